"""The popularity baseline equals a count by hand, ties included."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.tasks.facts import Answers
from compgcn.tasks.ranking import Popularity, rank_triples, summary

N, R = 5, 2
TRIPLES = st.lists(
    st.tuples(st.integers(0, N - 1), st.integers(0, R - 1), st.integers(0, N - 1)), min_size=1, max_size=12
)


def _tensor(triples: list[tuple[int, int, int]]) -> torch.Tensor:
    return torch.tensor(triples, dtype=torch.long).reshape(-1, 3)


def _score(train: set[tuple[int, int, int]], relation: int, answer: int) -> int:
    """How often the answer stands with the relation; an inverse relation asks for subjects."""
    if relation < R:
        return sum((r, o) == (relation, answer) for _, r, o in train)
    return sum((r, s) == (relation - R, answer) for s, r, _ in train)


@given(TRIPLES)
def test_scores_are_counts_of_distinct_training_triples(triples: list[tuple[int, int, int]]) -> None:
    model = Popularity(Answers.from_triples(_tensor(triples), R), N)
    relations = torch.arange(2 * R).repeat(2)
    scores = model.score(torch.zeros_like(relations), relations)
    expected = [[_score(set(triples), r, answer) for answer in range(N)] for r in relations.tolist()]
    assert scores.tolist() == expected


@given(TRIPLES, TRIPLES)
def test_its_metrics_equal_an_independent_count_with_ties(
    train: list[tuple[int, int, int]], test: list[tuple[int, int, int]]
) -> None:
    test = sorted(set(test))
    known = set(train) | set(test)
    ranks = []
    for s, r, o in test:
        for query, relation, target in ((s, r, o), (o, r + R, s)):
            fact = (lambda e, q=query, p=r: (q, p, e)) if relation < R else (lambda e, q=query, p=r: (e, p, q))
            rivals = [e for e in range(N) if e != target and fact(e) not in known]
            mine = _score(set(train), relation, target)
            theirs = [_score(set(train), relation, e) for e in rivals]
            ranks.append(1 + sum(score > mine for score in theirs) + theirs.count(mine) / 2)
    model = Popularity(Answers.from_triples(_tensor(train), R), N)
    everything = Answers.from_triples(_tensor([*train, *test]), R)
    report = summary(rank_triples(model.score, _tensor(test), everything, N))
    assert report["mr"] == pytest.approx(sum(ranks) / len(ranks))
    assert report["mrr"] == pytest.approx(sum(1 / rank for rank in ranks) / len(ranks))
    for k in (1, 3, 10):
        assert report[f"hits@{k}"] == pytest.approx(sum(rank <= k for rank in ranks) / len(ranks))
