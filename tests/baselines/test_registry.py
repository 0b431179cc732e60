"""Every baseline makes a run that learns, opens again, answers by name and sees no test label."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toy
from compgcn.baselines import BASELINES, FitOnce
from compgcn.data import GraphCollection, KnowledgeGraph, Labels
from compgcn.errors import InputError
from compgcn.run.build import TASKS
from compgcn.run.run import Run, fit, open_run
from compgcn.train.loop import Interrupted

DATA = {"node-classification": toy.labelled, "graph-classification": toy.molecules}
SETTINGS = {"folds": 3, "inner_folds": 2, "device": "cpu"}
ONCE = [name for name, row in BASELINES.items() if isinstance(row.how, FitOnce)]


@pytest.fixture(autouse=True)
def few_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an SVM try two bounds and two depths of subtrees; other tests have all of them."""
    monkeypatch.setattr("compgcn.baselines.svm._BOUNDS", (0.1, 10.0))
    monkeypatch.setattr("compgcn.baselines.wl.DEPTHS", (1, 2))


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
def test_a_fit_looks_at_no_label_outside_its_training_part(tmp_path: Path, name: str, protocol: str) -> None:
    data = toy.labelled(valid=4)
    train, valid, test = data.labels.splits.values()
    held_out = protocol == "holdout"
    flipped = [rows * [1, -1] + [0, 1] if hidden else rows for rows, hidden in ((valid, held_out), (test, True))]
    other = replace(data, labels=Labels(data.labels.classes, train, *flipped))
    runs = [trained(tmp_path / key, name, d, protocol=protocol) for key, d in (("a", data), ("b", other))]
    assert len({(run.path / "model.safetensors").read_bytes() for run in runs}) == 1
    assert (runs[0].metrics["valid"] != runs[1].metrics["valid"]) == held_out
    assert runs[0].metrics["chosen"] == runs[1].metrics["chosen"] != {}
    assert runs[0].metrics["test"]["accuracy"] == 1 - runs[1].metrics["test"]["accuracy"] == 1.0


@pytest.mark.parametrize("name", ONCE)
def test_rare_and_missing_classes_are_no_trouble(tmp_path: Path, name: str) -> None:
    data = toy.labelled(6)
    rows = np.array([[0, 0], [1, 1], [2, 0], [3, 2]])
    labels = Labels(("a", "b", "c", "d"), rows, rows[:0], np.array([[4, 0], [5, 1]]))
    run = trained(tmp_path / "run", name, replace(data, labels=labels), folds=2)
    assert np.isfinite(run.metrics["test"]["log_likelihood"])
    assert len(run.classify()) == data.num_entities - 6


def test_the_config_of_a_run_makes_the_same_run_again(tmp_path: Path, command: toy.Command) -> None:
    toy.write_tsv(tmp_path / "graph.tsv", toy.labelled())
    toy.write_labels(tmp_path / "labels.tsv", toy.labelled())
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
    for module in BASELINES[name].needs:
        assert f'"{module.replace("sklearn", "scikit-learn").replace("_", "-")}>=' in extra
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"pip install 'compgcn\[baselines\]'"):
        fit(DATA[BASELINES[name].task](), run_dir=tmp_path / "run", baseline=name)
