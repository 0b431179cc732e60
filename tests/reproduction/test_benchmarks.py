"""The committed measurements keep what the documents promise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import toy
from reproduction import measure


def test_hidden_entities_are_in_no_training_fact_and_no_fact_is_lost() -> None:
    data = toy.graph(40, 20, valid=20, test=20)
    known, told, hidden = measure.hide(data, seed=0)
    assert len(hidden) == 3
    assert not set(hidden) & set(known.entities.ids)
    assert all({s, o} & set(hidden) for facts in told.values() for s, _, o in facts)
    sizes = [len(rows) for rows in known.splits.values()], [len(facts) for facts in told.values()]
    assert [a + b for a, b in zip(*sizes, strict=True)] == [len(rows) for rows in data.splits.values()]


PARTS = ("mrr", "newcomer_given_mrr", "newcomer_answer_mrr", "ordinary_mrr", "entity_mrr")


def test_scores_that_put_every_true_answer_first_have_rank_one() -> None:
    data = toy.graph(40, 20, valid=20, test=20)
    queries = toy.facts(data, "test")
    facts = np.concatenate(list(data.splits.values()))

    def score(s: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(len(s), data.num_entities)
        for head, relation, tail in facts.tolist():
            found[(s == head) & (p == relation), tail] = 1.0
            found[(s == tail) & (p == relation + data.num_relations), head] = 1.0
        return found

    found = measure.ask(data, queries, {queries[0][0]: 3, queries[1][2]: 30}, score)
    assert found.keys() == {*PARTS, "degree_1_mrr", "degree_10_mrr"}
    assert set(found.values()) == {1.0}


def test_the_mean_over_hidden_entities_counts_a_hub_once() -> None:
    """Rank all entities alike but one, a hub with four of five queries, which always comes first."""
    data = toy.graph(40, 20, valid=20, test=20)
    e, r = data.entities.ids, data.relations.ids
    queries = [(e[i], r[2], e[0]) for i in range(20, 24)] + [(e[30], r[2], e[1])]  # e[30] and e[1] are hidden too
    score = lambda s, p: torch.eye(data.num_entities)[0].expand(len(s), -1)  # noqa: E731
    found = measure.ask(data, queries, {e[0]: 200, e[1]: 2, e[30]: 2}, score)
    hub, others = found["degree_100_mrr"], found["degree_1_mrr"]
    assert others < hub
    assert found["entity_mrr"] == pytest.approx((hub + 2 * others) / 3, abs=1e-4)
    assert "ordinary_mrr" not in found


@pytest.mark.parametrize(
    ("name", "model"), [*((name, None) for name in (*measure.OF_RUNS, "unseen")), ("unseen", "conditional")]
)
def test_a_measurement_replaces_the_one_on_the_same_data_with_the_same_model(
    name: str, model: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reproduction: toy.Command
) -> None:
    graph = toy.graph(40, 20, valid=20, test=20)
    monkeypatch.setattr(measure, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(measure, "graph_of", lambda source: graph)
    monkeypatch.setattr(measure, "FACTS", 3)
    (tmp_path / f"{name}.json").write_text(json.dumps({"data": {"world": {}, "other": {}}}))
    words = () if model is None else ("--model", model)
    assert reproduction("measure", name, "--device", "cpu", "--seeds", 1, *words).code == 0
    found = json.loads((tmp_path / f"{name}.json").read_text())
    key = "world" if model is None else f"world, {model}"
    row = found["data"][key]
    if name == "unseen":
        assert list(row["rows"][0]["test"]) == ["newcomers", "popularity", "random", "trained"]
    else:
        assert row["config"]["task"] == "link-prediction"
