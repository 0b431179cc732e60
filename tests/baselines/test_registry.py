"""Every baseline gives what an encoder gives: a run that learns, opens, answers by name and sees no test label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toy
from compgcn import baselines
from compgcn.baselines import BASELINES, FitOnce
from compgcn.data import GraphCollection, KnowledgeGraph, Labels
from compgcn.errors import InputError
from compgcn.run import Run, fit, open_run
from compgcn.run.build import TASKS
from compgcn.train.loop import Interrupted

DATA = {"node-classification": toy.labelled, "graph-classification": toy.molecules}
SETTINGS = {"folds": 3, "inner_folds": 2, "device": "cpu"}
ONCE = [name for name, row in BASELINES.items() if isinstance(row.how, FitOnce)]


def trained(folder: Path, name: str, data: KnowledgeGraph | GraphCollection | None = None, **settings: Any) -> Run:
    """A run of a baseline, with the small settings that make sense for it."""
    for module in BASELINES[name].needs:
        pytest.importorskip(module)
    data = DATA[BASELINES[name].task]() if data is None else data
    small = SETTINGS if name in ONCE else SETTINGS | {"epochs": 25, "lr": 0.02}
    return fit(data, run_dir=folder, baseline=name, **(small | settings))


@pytest.fixture
def few_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SVM tries two bounds on its weights; that it tries all of them is tested in test_svm.py."""
    monkeypatch.setattr("compgcn.baselines.svm._BOUNDS", (0.1, 10.0))


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_tells_a_toy_apart_and_answers_by_name_when_it_is_opened_again(
    tmp_path: Path, name: str
) -> None:
    run = trained(tmp_path / "run", name)
    found = run.metrics["test"] or run.metrics["valid"]
    assert found["accuracy"] == 1.0
    assert set(found) >= {"macro_f1", "log_likelihood", "by_class", "confusion"}
    assert len(run.metrics["valid"].get("folds", found.get("folds"))) == 3
    again = open_run(run.path)
    assert again.metrics == run.metrics
    items = ["p0", "p9", "Person"] if isinstance(run.data, KnowledgeGraph) else ["m0", "m1"]
    answers = again.classify(items)
    assert answers == run.classify(items)
    assert [answer.name for answer in answers] == items
    if name in ONCE:  # an epoch that is good for the folds need not be for the whole
        assert [answer.label for answer in answers[:2]] == [answer.known for answer in answers[:2]]
        assert again.evaluate("train")["accuracy"] == 1.0
    assert again.evaluate("test") == run.metrics["test"]


@pytest.mark.usefixtures("few_bounds")
@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize("protocol", TASKS["node-classification"].protocols)
def test_the_labels_of_test_change_nothing_but_the_report_on_test(tmp_path: Path, name: str, protocol: str) -> None:
    data = toy.labelled(valid=4)
    assert data.labels is not None
    flipped = data.labels.test * [1, 0] + [0, 1] - data.labels.test * [0, 1]
    other = replace(data, labels=Labels(data.labels.classes, data.labels.train, data.labels.valid, flipped))
    runs = [trained(tmp_path / key, name, d, protocol=protocol) for key, d in (("a", data), ("b", other))]
    assert len({(run.path / "model.safetensors").read_bytes() for run in runs}) == 1
    assert runs[0].metrics["valid"] == runs[1].metrics["valid"]
    assert runs[0].metrics["chosen"] == runs[1].metrics["chosen"] != {}
    assert runs[0].metrics["test"]["accuracy"] == 1 - runs[1].metrics["test"]["accuracy"] == 1.0


@pytest.mark.parametrize("name", ["wl", "feat"])
@pytest.mark.parametrize("protocol", TASKS["node-classification"].protocols)
def test_what_is_chosen_is_chosen_among_nodes_of_train_alone(
    tmp_path: Path, name: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, seen, how = toy.labelled(valid=4), [], BASELINES[name].how
    assert data.labels is not None
    assert isinstance(how, FitOnce)
    train, valid, test = data.labels.splits.values()
    labels = Labels((*data.labels.classes, "hidden"), train, valid, test * [1, 0] + [0, 2])  # a class of test alone

    def classifier(variants: Any, targets: Any, fitting: Any) -> Any:
        seen.append((variants, targets))
        return how.classifier(variants, targets, fitting)

    monkeypatch.setitem(BASELINES, name, BASELINES[name]._replace(how=how._replace(classifier=classifier)))
    run = trained(tmp_path / "run", name, replace(data, labels=labels), protocol=protocol)
    variants = how.features(data, np.concatenate([train, valid, test])[:, 0], 0)
    assert any(run.metrics["chosen"].items() >= variant.settings.items() for variant in variants)
    assert all(len(tables) == len(variants) and targets.max() < 2 for tables, targets in seen)
    tables, targets = seen[-1]  # of the one that is kept
    pool = np.concatenate([train, valid]) if protocol == "refit" else train
    np.testing.assert_array_equal(targets, pool[:, 1])
    for variant, table in zip(variants, tables, strict=True):
        assert (variant.weigh(variant.table(pool[:, 0])) != table).nnz == 0


@pytest.mark.usefixtures("few_bounds")
@pytest.mark.parametrize("name", ONCE)
def test_a_run_stopped_between_folds_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    whole, calls = trained(tmp_path / "whole", name), iter(range(10))
    path = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        fit(toy.labelled(), run_dir=path, baseline=name, interrupted=lambda: next(calls) >= 2, **SETTINGS)
    assert not (path / "metrics.json").exists()
    again = trained(path, name)
    assert again.metrics == whole.metrics
    assert (path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ONCE)
def test_classes_that_are_rare_or_missing_in_a_part_are_no_trouble(tmp_path: Path, name: str) -> None:
    data = toy.labelled(6)
    assert data.labels is not None
    rows = np.array([[0, 0], [1, 1], [2, 0], [3, 2]])
    labels = Labels(("a", "b", "c", "d"), rows, rows[:0], np.array([[4, 0], [5, 1]]))
    run = trained(tmp_path / "run", name, replace(data, labels=labels), folds=2)
    assert np.isfinite(run.metrics["test"]["log_likelihood"])
    assert len(run.classify()) == data.num_entities - 6


def test_without_a_label_to_train_on_there_is_one_sentence(tmp_path: Path) -> None:
    data = toy.labelled()
    assert data.labels is not None
    nothing = Labels(data.labels.classes, data.labels.train[:0], data.labels.valid, data.labels.test)
    with pytest.raises(InputError, match="no labelled item to train on"):
        trained(tmp_path / "run", "facts", replace(data, labels=nothing), protocol="holdout")


def test_a_finished_baseline_is_opened_and_another_is_refused_its_folder(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "facts")
    before = toy.contents(run.path)
    assert trained(run.path, "facts").metrics == run.metrics
    assert toy.contents(run.path) == before
    with pytest.raises(InputError, match=r"classifier\.folds: 3 -> 4"):
        trained(run.path, "facts", folds=4)


def test_the_config_of_a_run_makes_the_same_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = toy.labelled()
    assert data.labels is not None
    toy.write_tsv(tmp_path / "graph.tsv", data)
    rows = [(split, *row) for split, part in data.labels.splits.items() for row in part]
    lines = [f"{data.entities.ids[node]}\t{data.labels.classes[target]}\t{split}\n" for split, node, target in rows]
    (tmp_path / "labels.tsv").write_text("node\tlabel\tsplit\n" + "".join(lines))
    run = toy.command(monkeypatch, capfd)
    first = run("train", "graph.tsv", "--labels", "labels.tsv", "--baseline", "facts")
    assert first.code == 0, first
    assert "baseline 'facts'" in first.out
    assert "epochs" not in first.out
    second = run("train", "runs/graph-facts-refit-0/config.toml", "--run-dir", "again")
    assert second.code == 0, second
    assert toy.lasting(tmp_path / "again") == toy.lasting(tmp_path / "runs" / "graph-facts-refit-0")
    shown = run("evaluate", "again", "--json")
    assert '"accuracy": 1.0' in shown.out
    toy.refused(run("export", "again", "--to", "v.tsv"), "baseline 'facts'", "keeps no vectors")


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (toy.labelled(), {"baseline": "factz"}, "unknown baseline 'factz'; did you mean 'facts'"),
        (toy.molecules(), {"baseline": "facts"}, "'facts' is for node-classification, not for graph-classification"),
        (toy.graph(), {"baseline": "facts"}, "'facts' is for node-classification, not for link-prediction"),
        (toy.labelled(), {"baseline": "facts", "encoder": "gcn"}, "takes the place of an encoder"),
        (toy.labelled(), {"baseline": "facts", "epochs": 3}, r"fitted once and has no training\.epochs"),
        (toy.labelled(), {"baseline": "facts", "readout": "sum"}, r"fitted once and has no classifier\.readout"),
        (toy.labelled(), {"baseline": "facts", "protocol": "paper"}, "unknown protocol for node-classification"),
        (toy.labelled(), {"baseline": "facts", "folds": 17}, "16 examples cannot be dealt over 17 folds"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    tmp_path: Path, data: KnowledgeGraph | GraphCollection, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit(data, run_dir=tmp_path / "run", **settings)


@pytest.mark.parametrize("name", [name for name, row in BASELINES.items() if row.needs])
def test_without_its_libraries_a_baseline_says_how_to_install_them(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "find_spec", lambda module: None)
    with pytest.raises(InputError, match=r"pip install 'compgcn\[baselines\]'"):
        fit(DATA[BASELINES[name].task](), run_dir=tmp_path / "run", baseline=name)


def test_every_library_a_baseline_needs_is_one_of_the_extra() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    extra = next(line for line in text.splitlines() if line.startswith("baselines = "))
    for row in BASELINES.values():
        for module in row.needs:
            assert f'"{baselines._PROJECTS.get(module, module)}>=' in extra
