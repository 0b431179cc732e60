"""Counting facts: the table is what a loop over the edges finds, and a regression on it learns what it says."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.baselines.facts import fact_counts, logistic_regression
from compgcn.nn.graph import RelationalGraph

N, R = 6, 2
node, relation = st.integers(0, N - 1), st.integers(0, R - 1)
edges = st.lists(st.tuples(node, relation, node), min_size=1, max_size=12)


@given(triples=edges, kinds=st.lists(st.integers(0, 2), min_size=N, max_size=N), hops=st.sampled_from([1, 2]))
def test_the_counts_are_those_of_a_loop_over_the_edges(
    triples: list[tuple[int, int, int]], kinds: list[int], hops: int
) -> None:
    graph = RelationalGraph.from_triples(torch.tensor(triples), N, R)
    nodes = torch.tensor([4, 0, 1])
    found = fact_counts(graph, torch.tensor(kinds), nodes, hops)
    out = [[(r, o) for s, r, o in triples if s == n] + [(r + R, s) for s, r, o in triples if o == n] for n in range(N)]
    tables = [Counter((r, kinds[o]) for r, o in out[n]) for n in nodes.tolist()]
    if hops == 2:
        for table, n in zip(tables, nodes.tolist(), strict=True):
            table.update((r, q, kinds[p]) for r, o in out[n] for q, p in out[o])  # type: ignore[misc]
    paths = [path for path in set().union(*tables) if sum(path in table for table in tables) > 1]
    counts = [[table[path] for path in paths] for table in tables]
    expected = torch.tensor(counts, dtype=torch.float64).reshape(3, -1).log1p()
    expected = expected / expected.amax(0) if paths else expected
    assert found.shape == (3, len(paths))
    columns, wanted = (
        sorted([round(value, 12) for value in column] for column in t.T.tolist()) for t in (found, expected)
    )
    assert columns == wanted


def test_what_counts_say_is_learned_from_the_training_rows_alone() -> None:
    targets = torch.arange(40) % 2
    x = torch.stack([targets.double(), torch.rand(40, dtype=torch.float64)], 1)
    train = torch.arange(20)
    found = logistic_regression(x, targets, train, 2)
    assert found.exp().sum(1) == pytest.approx(torch.ones(40, dtype=torch.float64))
    assert (found.argmax(1) == targets).all()
    others = targets.clone()
    others[20:] = 1 - others[20:]
    torch.testing.assert_close(logistic_regression(x, others, train, 2), found)


def test_a_table_wider_than_long_gives_what_it_gives_with_rows_that_say_nothing_below_it() -> None:
    generator = torch.Generator().manual_seed(0)
    x, targets = torch.rand(12, 30, generator=generator, dtype=torch.float64), torch.arange(12) % 3
    longer = torch.cat([x, torch.zeros(40, 30, dtype=torch.float64)])
    train = torch.arange(9)
    found = logistic_regression(longer, torch.cat([targets, torch.zeros(40, dtype=torch.int64)]), train, 3)
    torch.testing.assert_close(logistic_regression(x, targets, train, 3), found[:12], rtol=1e-4, atol=1e-4)
