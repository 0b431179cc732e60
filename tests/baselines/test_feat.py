"""Features by hand: the things counted are those of a loop over the edges, and only what is shared becomes a column."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.baselines.facts import relations
from compgcn.baselines.fitted import WEIGHINGS, both_ways, sparse, weighings

N, R = 6, 2
node, relation = st.integers(0, N - 1), st.integers(0, R - 1)
edges = st.lists(st.tuples(node, relation, node), min_size=1, max_size=12, unique=True)
KNOWN = np.array([4, 0, 1])


@given(triples=edges, kinds=st.lists(st.integers(0, 2), min_size=N, max_size=N))
def test_the_table_is_that_of_a_loop_over_the_edges(triples: list[tuple[int, int, int]], kinds: list[int]) -> None:
    pytest.importorskip("scipy")
    features = sparse(relations(both_ways(np.array(triples), N, R), np.array(kinds)), KNOWN)
    found = features(np.arange(N)).toarray()
    tables: list[Counter[Any]] = []
    for n in range(N):
        out = [(r, o) for s, r, o in triples if s == n] + [(r + R, s) for s, r, o in triples if o == n]
        tables.append(Counter(key for r, o in out for key in ((r,), (r, kinds[o]), (r, "node", o))))
    shared = [key for key in set().union(*tables) if sum(key in tables[n] for n in KNOWN) > 1]
    counts = np.array([[table[key] for key in shared] for table in tables], dtype=float).reshape(N, -1)
    assert found.shape == (N, max(len(shared), 1))
    if shared:
        assert sorted(found.T.tolist()) == sorted(counts.T.tolist())


@given(triples=edges)
def test_a_weighting_is_of_every_count_and_leaves_rows_of_length_one(triples: list[tuple[int, int, int]]) -> None:
    pytest.importorskip("scipy")
    table = sparse(relations(both_ways(np.array(triples), N, R), np.zeros(N, dtype=np.int64)), KNOWN)
    counts = table(np.arange(N)).toarray()
    by_hand = {"counts": counts, "root": counts**0.5, "log": np.log(1 + counts), "binary": counts > 0}
    variants = weighings(table, depth=3)
    assert [variant.settings for variant in variants] == [{"depth": 3, "weighting": name} for name in WEIGHINGS]
    for variant in variants:
        wanted = by_hand[variant.settings["weighting"]].astype(float)
        wanted /= np.maximum(np.linalg.norm(wanted, axis=1, keepdims=True), 1e-9)
        np.testing.assert_allclose(variant.weigh(variant.table(np.arange(N))).toarray(), wanted)
    np.testing.assert_array_equal(table(np.arange(N)).toarray(), counts)


def test_what_a_node_is_described_by_does_not_depend_on_who_is_asked_with_it() -> None:
    pytest.importorskip("scipy")
    triples = np.array([[0, 0, 3], [1, 0, 3], [2, 1, 3], [2, 0, 4]])
    features = sparse(relations(both_ways(triples, 5, 2), np.arange(5)), np.array([0, 1, 2]))
    together = features(np.array([2, 0])).toarray()
    np.testing.assert_array_equal(features(np.array([0])).toarray(), together[1:])
    assert features(np.array([], dtype=np.int64)).shape == (0, together.shape[1])
