"""The search over classifiers of nodes: who wins, what it may look at, and that it resumes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toy
from compgcn.data import KnowledgeGraph, Labels, Vocabulary
from compgcn.run import portfolio
from compgcn.run.search import Budget, journalled
from compgcn.train.loop import Interrupted
from compgcn.train.recipes import node_portfolio
from toy import Command

TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
SETTINGS = {"data.source": "institute", "task": "node-classification", "device": "cpu"}
FEW = ("mult, learned", "sub, types", "facts")
SHORT = {"training.epochs": 20, "training.lr": 0.05}


def institute(people: int = 48, groups: int = 3) -> KnowledgeGraph:
    """People of one type, told apart by the projects of their group alone: two for each of them."""
    entities = [f"p{i}" for i in range(people)] + [f"project {i}" for i in range(4 * groups)] + ["Person", "Project"]
    draw, group = np.random.default_rng(0), np.arange(people) % groups
    facts = [(i, 0, people + 4 * group[i] + k) for i in range(people) for k in draw.choice(4, 2, replace=False)]
    facts += [(i, 1, len(entities) - 2 + (i >= people)) for i in range(len(entities) - 2)]
    rows = draw.permutation(np.column_stack((np.arange(people), group)))
    return KnowledgeGraph(
        "institute",
        Vocabulary("entity", entities),
        Vocabulary("relation", ["works at", TYPE]),
        np.array(facts),
        valid=np.empty((0, 3), dtype=np.int64),
        test=np.empty((0, 3), dtype=np.int64),
        labels=Labels(tuple(f"group {g}" for g in range(groups)), rows[12:], rows[:0], rows[:12]),
    )


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few candidates compete, for a few epochs."""

    def some(*args: Any, **options: Any) -> list[tuple[str, dict[str, Any], str]]:
        found = {name: (settings, kind) for name, settings, kind in node_portfolio(*args, **options)}
        return [
            (name, settings | (SHORT if name != "facts" else {}), kind)
            for name in FEW
            for settings, kind in [found[name]]
        ]

    monkeypatch.setattr(portfolio, "node_portfolio", some)


def searched(folder: Path, data: KnowledgeGraph, **options: Any) -> Any:
    return portfolio.search(SETTINGS, data, Budget(trials=9), folder, **options)


def test_a_graph_whose_types_tell_nothing_gets_a_model_with_a_vector_of_every_node(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", institute())
    found = journalled(run.path)
    assert found is not None
    assert found.trials[0].name == "mult, learned"
    assert run.config.encoder.input == "learned"
    assert run.metrics["test"]["accuracy"] == 1
    values = {trial.name: trial.value or 0.0 for trial in found.trials}
    assert values["sub, types"] < 0.5 < values["mult, learned"]


def test_the_winner_is_the_run_that_its_settings_give(tmp_path: Path) -> None:
    """The folds of its first cross-validation are not trained again."""
    events: list[dict[str, Any]] = []
    run = searched(tmp_path / "run", institute(), notify=events.append)
    ended = next(i for i, event in enumerate(events) if event["event"] == "start")
    assert {event["part"] for event in events[ended:] if "part" in event} == {"final"}
    again = toy.fit(
        institute(),
        run_dir=tmp_path / "again",
        **SETTINGS,
        **dict(
            next(
                settings
                for name, settings, _ in portfolio.node_portfolio(["types", "learned"], fitted=False)
                if name == "mult, learned"
            )
        ),
    )
    assert run.metrics == again.metrics


def test_a_search_does_not_depend_on_test_labels(tmp_path: Path) -> None:
    data = institute()
    assert data.labels is not None
    nodes, classes = data.labels.test.T
    wrong = replace(data.labels, test=np.column_stack((nodes, (classes + 1) % 3)))
    searched(tmp_path / "a", data)
    searched(tmp_path / "b", replace(data, labels=wrong))
    first, second = (journalled(tmp_path / name) for name in "ab")
    assert first is not None
    assert second is not None
    assert [trial[:4] for trial in first.trials] == [trial[:4] for trial in second.trials]


@pytest.mark.parametrize("stop", [5, 60, 150])
def test_a_stopped_search_resumes_and_ends_the_same(tmp_path: Path, stop: int) -> None:
    whole = searched(tmp_path / "whole", institute())
    seen: list[dict[str, Any]] = []
    with pytest.raises(Interrupted):
        searched(tmp_path / "run", institute(), notify=seen.append, interrupted=lambda: len(seen) >= stop)
    run = searched(tmp_path / "run", institute())
    assert toy.lasting(run.path) == toy.lasting(whole.path)


def test_minutes_judge_every_candidate_on_whole_cross_validations(tmp_path: Path) -> None:
    """Where one takes little time: on a clock that stands still, none."""
    run = portfolio.search(SETTINGS, institute(), Budget(seconds=60), tmp_path / "run", clock=lambda: 0.0)
    found = journalled(run.path)
    assert found is not None
    assert {trial.name for trial in found.trials} == set(FEW)
    assert all(3 * trial.share == round(3 * trial.share) > 0 for trial in found.trials)


def test_own_labels_are_searched_by_default_and_named_settings_are_not(command: Command, tmp_path: Path) -> None:
    data = institute()
    assert data.labels is not None
    toy.write_tsv(tmp_path / "institute.tsv", data)
    rows = [(split, *row) for split, some in data.labels.splits.items() for row in some]
    (tmp_path / "labels.tsv").write_text(
        "node\tlabel\tsplit\n" + "".join(f"{data.entities.ids[n]}\tg{c}\t{split}\n" for split, n, c in rows)
    )
    shown = command("train", "institute.tsv", "--labels", "labels.tsv", "--trials", 9, "--device", "cpu").out
    assert "'mult, learned' has the highest validation likelihood of 3 candidates" in shown
    assert "protocol 'refit'" in shown
    for words in (["--minutes", 1], []):
        done = command("train", "institute.tsv", "--labels", "labels.tsv", "--encoder", "gcn", "--epochs", 2, *words)
        assert ("compares models" in done.err) == bool(words)
        assert "candidate" not in done.out
