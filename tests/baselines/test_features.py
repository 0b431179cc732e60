"""Features and counts are those of loops over the edges, and a regression learns from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import toy
from compgcn.baselines import rdf2vec
from compgcn.baselines.facts import fact_counts, logistic_regression, relations
from compgcn.baselines.fitted import WEIGHINGS, both_ways, outgoing, sparse, weighings
from compgcn.baselines.rdf2vec import embed, sentences, walks
from compgcn.baselines.wl import refined, subtrees, wl_features
from compgcn.data import Vocabulary
from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.facts import Answers
from compgcn.tasks.ranking import Popularity

N, R = 6, 2
KNOWN = np.array([4, 0, 1])
Triples = list[tuple[int, int, int]]
edges = st.lists(
    st.tuples(st.integers(0, N - 1), st.integers(0, R - 1), st.integers(0, N - 1)), min_size=1, max_size=12
)
distinct = edges.map(lambda triples: sorted(set(triples)))
sorts = st.lists(st.integers(0, 2), min_size=N, max_size=N)


def around(triples: Triples) -> list[list[tuple[int, int]]]:
    """Return the edges of each node, both ways, as (relation, end)."""
    return [[(r, o) for s, r, o in triples if s == n] + [(r + R, s) for s, r, o in triples if o == n] for n in range(N)]


@given(triples=edges, kinds=sorts, hops=st.sampled_from([1, 2]))
def test_path_counts_are_those_of_a_loop_over_the_edges(triples: Triples, kinds: list[int], hops: int) -> None:
    graph = RelationalGraph.from_triples(torch.tensor(triples), N, R)
    found = fact_counts(graph, torch.tensor(kinds), torch.from_numpy(KNOWN), hops)
    out, tables = around(triples), list[Counter[Any]]()
    for n in KNOWN:
        tables.append(Counter((r, kinds[o]) for r, o in out[n]))
        tables[-1].update((r, q, kinds[p]) for r, o in out[n] for q, p in out[o] if hops == 2)
    paths = [path for path in set().union(*tables) if sum(path in table for table in tables) > 1]
    counts = [[table[path] for path in paths] for table in tables]
    expected = torch.tensor(counts, dtype=torch.float64).reshape(3, -1).log1p()
    expected = expected / expected.amax(0) if paths else expected
    assert found.shape == (3, len(paths))
    columns, wanted = (
        sorted([round(value, 12) for value in column] for column in t.T.tolist()) for t in (found, expected)
    )
    assert columns == wanted


@given(triples=edges, kinds=sorts)
def test_relation_counts_are_those_of_a_loop_over_the_edges(triples: Triples, kinds: list[int]) -> None:
    pytest.importorskip("scipy")
    features = sparse(relations(both_ways(np.array(triples), N, R), np.array(kinds)), KNOWN)
    found = features(np.arange(N)).toarray()
    np.testing.assert_array_equal(features(KNOWN).toarray(), found[KNOWN])  # whoever is asked with a node
    tables: list[Counter[Any]] = [
        Counter(key for r, o in out for key in ((r,), (r, kinds[o]), (r, "node", o))) for out in around(triples)
    ]
    shared = [key for key in set().union(*tables) if sum(key in tables[n] for n in KNOWN) > 1]
    counts = np.array([[table[key] for key in shared] for table in tables], dtype=float).reshape(N, -1)
    assert found.shape == (N, max(len(shared), 1))
    assert not shared or sorted(found.T.tolist()) == sorted(counts.T.tolist())


@given(triples=edges)
def test_popularity_counts_distinct_training_triples(triples: Triples) -> None:
    model, asked = Popularity(Answers.from_triples(torch.tensor(triples), R), N), torch.arange(2 * R).repeat(2)
    facts = set(triples) | {(o, r + R, s) for s, r, o in triples}  # an inverse relation asks for subjects
    expected = [[sum((q, o) == (r, answer) for _, q, o in facts) for answer in range(N)] for r in asked.tolist()]
    assert model.score(torch.zeros_like(asked), asked).tolist() == expected


@given(triples=edges)
def test_a_weighing_applies_to_every_count_and_scales_rows_to_length_one(triples: Triples) -> None:
    pytest.importorskip("sklearn")
    table = sparse(relations(both_ways(np.array(triples), N, R), np.zeros(N, dtype=np.int64)), KNOWN)
    counts = table(np.arange(N)).toarray()
    by_hand = {"counts": counts, "root": counts**0.5, "log": np.log(1 + counts), "binary": counts > 0}
    variants = weighings(table, depth=3)
    assert [variant.settings for variant in variants] == [{"depth": 3, "weighting": name} for name in WEIGHINGS]
    given = table(np.arange(N))
    for variant in variants:
        wanted = by_hand[variant.settings["weighting"]].astype(float)
        wanted /= np.maximum(np.linalg.norm(wanted, axis=1, keepdims=True), 1e-9)
        np.testing.assert_allclose(variant.weigh(given).toarray(), wanted)
    np.testing.assert_array_equal(given.toarray(), counts)


@given(triples=distinct, kinds=sorts, depth=st.integers(0, 3))
def test_the_subtrees_are_those_of_a_recursive_definition(triples: Triples, kinds: list[int], depth: int) -> None:
    def tree(v: int, down: int) -> Any:
        hanging = [] if down == 0 else sorted((r, tree(o, down - 1)) for s, r, o in triples if s == v)
        return (down, kinds[v], tuple(hanging))

    def walked(root: int, steps: int) -> set[int]:
        found = {root}
        for _ in range(steps):
            found |= {o for s, _, o in triples if s in found}
        return found

    def by_hand(root: int) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for down in range(depth + 1):
            found.update(tree(v, down) for v in walked(root, depth - down))
        for down in range(depth):
            near = walked(root, depth - down - 1)
            found.update((r, tree(o, down)) for s, r, o in triples if s in near)
        return found

    graph = outgoing(np.array(triples), N)
    row, thing = subtrees(graph, refined(graph, np.array(kinds), 3)[: depth + 1])(np.arange(N))
    tables = [Counter(thing[row == n].tolist()) for n in range(N)]
    wanted = [by_hand(n) for n in range(N)]

    def columns(counted: list[Counter[Any]]) -> list[tuple[int, ...]]:
        return sorted(tuple(table[key] for table in counted) for key in set().union(*counted))

    assert columns(tables) == columns(wanted)


@pytest.mark.parametrize("typed", [True, False])
def test_each_depth_start_and_weighing_has_a_variant_the_shallowest_first(typed: bool) -> None:
    pytest.importorskip("scipy")
    data = toy.labelled(typed=typed)
    data = data if typed else replace(data, relations=Vocabulary("relation", ["buys", "sells", "near", "like"]))
    variants = wl_features(data, np.arange(6), 0)
    found = [tuple(variant.settings.values()) for variant in variants]
    starts = ["types", "nodes"] if typed else ["nodes"]
    assert found == [(depth, start, name) for depth in (1, 2, 3, 4) for start in starts for name in WEIGHINGS]
    assert all(list(variant.settings) == ["depth", "start", "weighting"] for variant in variants)
    widths = [variant.table(np.arange(6)).shape[1] for variant in variants if variant.settings["start"] == "nodes"]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


@given(triples=distinct, depth=st.integers(0, 4), seed=st.integers(0, 9))
def test_a_walk_follows_edges_until_there_are_none(triples: Triples, depth: int, seed: int) -> None:
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


def test_a_regression_learns_from_the_training_rows_alone() -> None:
    targets = torch.arange(40) % 2
    x = torch.stack([targets.double(), torch.rand(40, dtype=torch.float64)], 1)
    train = torch.arange(20)
    found = logistic_regression(x, targets, train, 2)
    assert found.exp().sum(1) == pytest.approx(torch.ones(40, dtype=torch.float64))
    assert (found.argmax(1) == targets).all()
    others = targets.clone()
    others[20:] = 1 - others[20:]
    torch.testing.assert_close(logistic_regression(x, others, train, 2), found)


def test_a_wide_table_gives_the_same_regression_with_empty_rows_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    x, targets = torch.rand(12, 30, generator=generator, dtype=torch.float64), torch.arange(12) % 3
    longer = torch.cat([x, torch.zeros(40, 30, dtype=torch.float64)])
    train = torch.arange(9)
    monkeypatch.setattr("compgcn.baselines.facts._STRENGTHS", (1e-2, 1e-1))
    found = logistic_regression(longer, torch.cat([targets, torch.zeros(40, dtype=torch.int64)]), train, 3)
    torch.testing.assert_close(logistic_regression(x, targets, train, 3), found[:12], rtol=1e-4, atol=1e-4)
