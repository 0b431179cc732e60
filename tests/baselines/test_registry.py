"""Every baseline makes a run that learns, opens again, answers by name and sees no test label."""

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


@pytest.fixture(autouse=True)
def few_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an SVM try two bounds; test_svm.py tests that it tries all of them."""
    monkeypatch.setattr("compgcn.baselines.svm._BOUNDS", (0.1, 10.0))


def trained(folder: Path, name: str, data: KnowledgeGraph | None = None, **settings: Any) -> Run:
    for module in BASELINES[name].needs:
        pytest.importorskip(module)
    return fit(toy.labelled() if data is None else data, run_dir=folder, baseline=name, **(SETTINGS | settings))


@pytest.mark.parametrize("name", ONCE)
def test_a_baseline_learns_answers_by_name_and_survives_an_interruption(tmp_path: Path, name: str) -> None:
    run, calls = trained(tmp_path / "run", name), iter(range(10))
    assert run.metrics["test"]["accuracy"] == 1.0
    assert len(run.metrics["valid"]["folds"]) == 3
    again, items = open_run(run.path), ["p0", "p9", "Person"]
    answers = again.classify(items)
    assert answers == run.classify(items)
    assert [answer.name for answer in answers] == items
    assert [answer.label for answer in answers[:2]] == [answer.known for answer in answers[:2]]
    assert again.evaluate("train")["accuracy"] == 1.0
    assert again.evaluate("test") == run.metrics["test"]
    path = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        trained(path, name, interrupted=lambda: next(calls) >= 2)
    assert not (path / "metrics.json").exists()
    assert trained(path, name).metrics == run.metrics
    assert (path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize("protocol", TASKS["node-classification"].protocols)
def test_test_labels_change_the_report_on_test_alone(tmp_path: Path, name: str, protocol: str) -> None:
    data = toy.labelled(valid=4)
    assert data.labels is not None
    flipped = data.labels.test * [1, 0] + [0, 1] - data.labels.test * [0, 1]
    other = replace(data, labels=Labels(data.labels.classes, data.labels.train, data.labels.valid, flipped))
    runs = [trained(tmp_path / key, name, d, protocol=protocol) for key, d in (("a", data), ("b", other))]
    assert len({(run.path / "model.safetensors").read_bytes() for run in runs}) == 1
    assert runs[0].metrics["valid"] == runs[1].metrics["valid"]
    assert runs[0].metrics["chosen"] == runs[1].metrics["chosen"] != {}
    assert runs[0].metrics["test"]["accuracy"] == 1 - runs[1].metrics["test"]["accuracy"] == 1.0


@pytest.mark.parametrize("protocol", TASKS["node-classification"].protocols)
def test_a_variant_is_chosen_among_training_nodes_alone(
    tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, seen, how = toy.labelled(valid=4), [], BASELINES["feat"].how
    assert data.labels is not None
    assert isinstance(how, FitOnce)
    train, valid, test = data.labels.splits.values()
    labels = Labels((*data.labels.classes, "hidden"), train, valid, test * [1, 0] + [0, 2])  # a class of test alone

    def classifier(variants: Any, targets: Any, fitting: Any) -> Any:
        seen.append((variants, targets))
        return how.classifier(variants, targets, fitting)

    monkeypatch.setitem(BASELINES, "feat", BASELINES["feat"]._replace(how=how._replace(classifier=classifier)))
    run = trained(tmp_path / "run", "feat", replace(data, labels=labels), protocol=protocol)
    variants = how.features(data, np.concatenate([train, valid, test])[:, 0], 0)
    assert any(run.metrics["chosen"].items() >= variant.settings.items() for variant in variants)
    assert all(len(tables) == len(variants) and targets.max() < 2 for tables, targets in seen)
    tables, targets = seen[-1]  # of the fit that is kept
    pool = np.concatenate([train, valid]) if protocol == "refit" else train
    np.testing.assert_array_equal(targets, pool[:, 1])
    for variant, table in zip(variants, tables, strict=True):
        assert (variant.weigh(variant.table(pool[:, 0])) != table).nnz == 0


@pytest.mark.parametrize("name", ONCE)
def test_rare_and_missing_classes_are_no_trouble(tmp_path: Path, name: str) -> None:
    data = toy.labelled(6)
    rows = np.array([[0, 0], [1, 1], [2, 0], [3, 2]])
    labels = Labels(("a", "b", "c", "d"), rows, rows[:0], np.array([[4, 0], [5, 1]]))
    run = trained(tmp_path / "run", name, replace(data, labels=labels), folds=2)
    assert np.isfinite(run.metrics["test"]["log_likelihood"])
    assert len(run.classify()) == data.num_entities - 6


def test_the_config_of_a_run_makes_the_same_run_again(tmp_path: Path, command: toy.Command) -> None:
    data = toy.labelled()
    assert data.labels is not None
    toy.write_tsv(tmp_path / "graph.tsv", data)
    rows = [(split, *row) for split, part in data.labels.splits.items() for row in part]
    lines = [f"{data.entities.ids[node]}\t{data.labels.classes[target]}\t{split}\n" for split, node, target in rows]
    (tmp_path / "labels.tsv").write_text("node\tlabel\tsplit\n" + "".join(lines))
    first = command("train", "graph.tsv", "--labels", "labels.tsv", "--baseline", "facts", "--set", "folds=2")
    assert first.code == 0, first
    assert "epochs" not in first.out
    second = command("train", "runs/graph-facts-refit-0/config.toml", "--run-dir", "again")
    assert second.code == 0, second
    assert toy.lasting(tmp_path / "again") == toy.lasting(tmp_path / "runs" / "graph-facts-refit-0")
    toy.refused(command("export", "again", "--to", "v.tsv"), "baseline 'facts'", "keeps no vectors")


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
def test_an_impossible_request_is_refused(
    tmp_path: Path, data: KnowledgeGraph | GraphCollection, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit(data, run_dir=tmp_path / "run", **settings)


@pytest.mark.parametrize("name", [name for name, row in BASELINES.items() if row.needs])
def test_a_baseline_without_its_libraries_says_how_to_install_them(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    extra = next(line for line in text.splitlines() if line.startswith("baselines = "))
    assert all(f'"{baselines._PROJECTS.get(module, module)}>=' in extra for module in BASELINES[name].needs)
    monkeypatch.setattr(baselines, "find_spec", lambda module: None)
    with pytest.raises(InputError, match=r"pip install 'compgcn\[baselines\]'"):
        fit(DATA[BASELINES[name].task](), run_dir=tmp_path / "run", baseline=name)
