"""Walks of RDF2Vec follow edges, all with the same chance, and a seed decides the vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.baselines import rdf2vec
from compgcn.baselines.fitted import outgoing
from compgcn.baselines.rdf2vec import embed, sentences, walks

N, R = 6, 2
node, relation = st.integers(0, N - 1), st.integers(0, R - 1)
edges = st.lists(st.tuples(node, relation, node), min_size=1, max_size=12, unique=True)


@given(triples=edges, depth=st.integers(0, 4), seed=st.integers(0, 9))
def test_a_walk_follows_edges_until_there_are_none(triples: list[tuple[int, int, int]], depth: int, seed: int) -> None:
    found = walks(outgoing(np.array(triples), N), np.arange(N), depth, np.random.default_rng(seed))
    assert found.shape == (N, 2 * depth + 1)
    for start, (walk, words) in enumerate(zip(found.tolist(), sentences(found, N), strict=True)):
        path = [number for number in walk if number >= 0]
        assert walk == path + [-1] * (len(walk) - len(path))
        assert path[0] == start
        for place in range(0, len(path) - 1, 2):
            assert tuple(path[place : place + 3]) in triples
        if len(path) < len(walk):
            assert not any(s == path[-1] for s, _, _ in triples)
        assert words == [str(number + N * (place % 2)) for place, number in enumerate(path)]


def test_every_edge_of_a_node_is_equally_likely() -> None:
    triples = np.array([[0, 0, 1], [0, 0, 2], [0, 1, 2], [3, 0, 0]])
    found = walks(outgoing(triples, 4), np.zeros(6000, dtype=np.int64), 1, np.random.default_rng(0))
    _, counts = np.unique(found[:, 1:], axis=0, return_counts=True)
    assert len(counts) == 3
    assert (abs(counts - 2000) < 200).all()  # five standard deviations


def test_the_same_seed_makes_the_same_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gensim")
    monkeypatch.setattr(rdf2vec, "WALKS", 10)
    graph = outgoing(np.array([[0, 0, 1], [1, 1, 2], [2, 0, 3]]), 5)  # the last has no edge, and a vector all the same
    first, again, other = (embed(graph, np.array([0, 2]), seed) for seed in (0, 0, 1))
    assert first.shape == (5, rdf2vec.DIM)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
