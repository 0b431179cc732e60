"""The search over classifiers of nodes: who wins, what it may look at, and that it resumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

import toy
from compgcn.data import KnowledgeGraph, Labels, Vocabulary
from compgcn.errors import InputError
from compgcn.run import portfolio
from compgcn.run.run import Run, train
from compgcn.run.search import Budget, journalled
from compgcn.train.loop import Interrupted
from compgcn.train.recipes import Candidate, node_portfolio
from toy import Command, classify, molecules

TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
SETTINGS = {"data.source": "institute", "task": "node-classification", "classifier.folds": 2, "device": "cpu"}
FEW = ("mult, learned", "sub, types", "facts", "sub, 2 layers, types", "R-GCN, 2 layers, learned")
SHORT = {"training.epochs": 6, "training.lr": 0.1}


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


@pytest.fixture(scope="module", autouse=True)
def few() -> Iterator[None]:
    """Let a few candidates compete, for a few epochs."""

    def some(*args: Any, **options: Any) -> list[Candidate]:
        found = {one.name: one.settings for one in node_portfolio(*args, **options)}
        return [Candidate(name, {**found[name], **(SHORT if name != "facts" else {})}) for name in FEW]

    with mock.patch.object(portfolio, "node_portfolio", some):
        yield


@pytest.fixture(scope="module")
def whole(few: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[dict[str, Any]]]:
    """A whole search, and its events."""
    events: list[dict[str, Any]] = []
    return searched(tmp_path_factory.mktemp("whole") / "run", institute(), notify=events.append), events


def searched(folder: Path, data: KnowledgeGraph, **options: Any) -> Run:
    return portfolio.search(SETTINGS, data, Budget(trials=9), folder, **options)


def test_changed_labels_are_named(whole: tuple[Run, list[dict[str, Any]]]) -> None:
    run, data = whole[0], institute()
    other = replace(data, labels=replace(data.labels, train=data.labels.train[1:]))
    with pytest.raises(InputError, match="holds a search with other labels"):
        searched(run.path, other)
    with pytest.raises(InputError, match=r"\(the triples, features or labels of 'institute' have changed\);"):
        train(run.config.model_copy(update={"fingerprint": other.fingerprint()}), other, run.path)
    with pytest.raises(InputError, match="holds a finished run with other options"):
        classify(run.path, molecules())


def test_a_graph_whose_types_tell_nothing_gets_a_model_with_a_vector_of_every_node(
    whole: tuple[Run, list[dict[str, Any]]],
) -> None:
    run, _ = whole
    found = journalled(run.path)
    assert found.trials[0].name == "mult, learned"
    assert run.config.encoder.input == "learned"
    assert run.metrics["test"]["accuracy"] == 1
    values = {trial.name: trial.value or 0.0 for trial in found.trials}
    assert values["sub, types"] < 0.5 < values["mult, learned"]


def test_the_winner_is_the_run_that_its_settings_give(whole: tuple[Run, list[dict[str, Any]]], tmp_path: Path) -> None:
    """The folds of its first cross-validation are not trained again."""
    run, events = whole
    ended = next(i for i, event in enumerate(events) if event["event"] == "start")
    assert {event["part"] for event in events[ended:] if "part" in event} == {"final"}
    (settings,) = (one.settings for one in portfolio.node_portfolio(["types"], fitted=False) if one.name == FEW[0])
    assert run.metrics == toy.fit(institute(), run_dir=tmp_path / "again", **SETTINGS, **settings).metrics


def test_a_search_does_not_depend_on_test_labels(whole: tuple[Run, list[dict[str, Any]]], tmp_path: Path) -> None:
    data = institute()
    nodes, classes = data.labels.test.T
    wrong = replace(data.labels, test=np.column_stack((nodes, (classes + 1) % 3)))
    other = searched(tmp_path / "run", replace(data, labels=wrong))
    first, second = journalled(whole[0].path), journalled(other.path)
    assert [trial[:4] for trial in first.trials] == [trial[:4] for trial in second.trials]


def test_a_stopped_search_resumes_and_ends_the_same(whole: tuple[Run, list[dict[str, Any]]], tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    with pytest.raises(Interrupted):
        searched(tmp_path / "run", institute(), notify=seen.append, interrupted=lambda: len(seen) >= 30)
    run = searched(tmp_path / "run", institute())
    assert toy.lasting(run.path) == toy.lasting(whole[0].path)


def test_minutes_judge_every_candidate_on_whole_cross_validations(tmp_path: Path) -> None:
    """Where one takes little time: on a clock that stands still, none."""
    drawn = torch.get_rng_state()
    run = portfolio.search(SETTINGS, institute(), Budget(seconds=60), tmp_path / "run", clock=lambda: 0.0)
    assert torch.equal(torch.get_rng_state(), drawn)
    found = journalled(run.path)
    assert {trial.name for trial in found.trials} == set(FEW)
    assert all(2 * trial.share == round(2 * trial.share) > 0 for trial in found.trials)


def test_own_labels_are_searched_by_default_and_named_settings_are_not(command: Command, tmp_path: Path) -> None:
    toy.write_tsv(tmp_path / "institute.tsv", institute())
    toy.write_labels(tmp_path / "labels.tsv", institute())
    shown = command("train", "institute.tsv", "--labels", "labels.tsv", "--trials", 9, "--device", "cpu").out
    assert "'mult, learned' has the highest validation likelihood of 5 candidates" in shown
    assert "protocol 'refit'" in shown
    assert "run folder runs/institute-best-labels-0" in shown
    for words in (["--minutes", 1], []):
        done = command("train", "institute.tsv", "--labels", "labels.tsv", "--encoder", "gcn", "--epochs", 2, *words)
        assert ("a comparison of models" in done.err) == bool(words)
        assert "candidate" not in done.out
