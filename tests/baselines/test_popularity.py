"""The popularity baseline equals a count by hand, ties included."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.baselines.popularity import Popularity
from compgcn.tasks.facts import Answers

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
