"""What the commands say beside their answers: which of several of a name is meant, and how far to trust the model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from compgcn.data import Vocabulary
from compgcn.run import Run
from toy import Command, graph, train

DOUBT = "note: the model is no better than the baseline"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Every person but the first is called Ann, and two relations are called alike."""
    data = graph()
    names = [text if text == "p0" or text[0] == "t" else "Ann" for text in data.entities.ids]
    entities = Vocabulary("entity", data.entities.ids, names)
    relations = Vocabulary("relation", data.relations.ids, ["at", "at", "knows well"])
    data = dataclasses.replace(data, entities=entities, relations=relations)
    return train(tmp_path_factory.mktemp("run") / "run", data, epochs=1, decoder="distmult")


def test_names_that_are_shared_have_their_ids_beside_them(run: Run, command: Command) -> None:
    shown = command("discover", run.path, "--top", 1000, "--all-heads").out
    lines = [line.split()[1:-1] for line in shown.splitlines()]
    assert ["Ann", "(p3)", "at", "(lives)", "p0"] in lines
    assert ["p0", "knows", "well", "Ann", "(p5)"] in lines
    shown = command("explain", run.path, "p3", "knows", "p4", "--top", 50).out
    assert "Ann (p3) - at (" in shown
    shown = command("evaluate", run.path, "--split", "train", "--by", "relation").out
    called = [line.split("  ")[0].rpartition(" ")[0] for line in shown.splitlines()[1:]]
    assert called == ["at (lives)", "at (born)", "knows well"]


def test_a_model_worse_than_its_baseline_is_called_so_whenever_it_is_asked(
    tmp_path: Path, run: Run, command: Command
) -> None:
    asked = [
        ("predict", run.path, "--head", "p0", "--relation", "lives"),
        ("explain", run.path, "p0", "lives", "t0"),
        ("discover", run.path),
    ]
    metrics = json.loads((run.path / "metrics.json").read_text())
    for baseline, expected in ((1.0, 1), (0.0, 0)):
        metrics["popularity"]["test"]["mrr"] = baseline
        (run.path / "metrics.json").write_text(json.dumps(metrics))
        for words in asked:
            assert command(*words).err.count(DOUBT) == expected


def test_nothing_to_discover_is_a_sentence(run: Run, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "discover", lambda *_, **__: [])
    assert command("discover", run.path).out == "no new facts\n"
