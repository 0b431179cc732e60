"""A collection of graphs: a subset is what its graphs give, and what cannot be a collection is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.data.collection import GraphCollection, observe
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError

Graph = tuple[int, list[tuple[int, int, int]], int]


@st.composite
def graphs(draw: st.DrawFn) -> list[Graph]:
    """(number of nodes, edges within, class) of each graph; relations 0 .. 2, classes 0 .. 1."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.integers(1, 4))
        node = st.integers(0, size - 1)
        edges = draw(st.lists(st.tuples(node, st.integers(0, 2), node), max_size=6))
        found.append((size, edges, draw(st.integers(0, 1))))
    return found


def build(items: list[Graph], shuffle: int = 0) -> GraphCollection:
    """Their disjoint union; node n of the union has label n % 3 and features (n, -n)."""
    sizes = [size for size, _, _ in items]
    before = np.cumsum(sizes) - sizes
    rows = [(s + at, r, o + at) for (_, edges, _), at in zip(items, before, strict=True) for s, r, o in edges]
    triples = np.array(rows, dtype=np.int64).reshape(-1, 3)
    N = sum(sizes)
    graph_of = np.repeat(np.arange(len(items)), sizes)
    if shuffle:  # graphs in any order; within a graph the order is kept
        order = np.random.default_rng(shuffle).random(len(items))
        triples = triples[np.argsort(order[graph_of[triples[:, 0]]], kind="stable")]
    return GraphCollection(
        "made up",
        Vocabulary("relation", ["r0", "r1", "r2"]),
        ("no", "yes"),
        graph_of=graph_of,
        triples=triples,
        targets=np.array([label for _, _, label in items]),
        node_labels=np.arange(N) % 3,
        node_classes=("C", "N", "O"),
        node_features=np.column_stack([np.arange(N), -np.arange(N)]).astype(np.float32),
    )


@given(graphs(), st.data())
def test_a_subset_is_what_building_from_its_graphs_gives(items: list[Graph], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(items) - 1), max_size=8))
    part, made = build(items).subset(chosen), build([items[g] for g in chosen])
    np.testing.assert_array_equal(part.graph_of, made.graph_of)
    np.testing.assert_array_equal(part.triples, made.triples)
    np.testing.assert_array_equal(part.targets, made.targets)
    assert part.graph_ids == tuple(str(g) for g in chosen)
    starts = np.cumsum([0, *(size for size, _, _ in items)])
    nodes = [n for g in chosen for n in range(starts[g], starts[g + 1])]
    assert part.node_features is not None
    assert part.node_features[:, 0].tolist() == nodes
    assert part.node_labels is not None
    assert part.node_labels.tolist() == [n % 3 for n in nodes]


@given(graphs(), st.integers(1, 99))
def test_the_order_of_graphs_among_the_edges_does_not_matter(items: list[Graph], seed: int) -> None:
    assert build(items, shuffle=seed).fingerprint() == build(items).fingerprint()


@given(graphs())
def test_edges_in_both_directions_are_recognised(items: list[Graph]) -> None:
    rows = [{(s, r, o) for s, r, o in edges} for _, edges, _ in items]
    expected = all((o, r, s) in edges for edges in rows for s, r, o in edges)
    assert build(items).both_directions == expected
    doubled = [(size, edges + [(o, r, s) for s, r, o in edges], label) for size, edges, label in items]
    assert build(doubled).both_directions


def test_what_is_odd_is_counted() -> None:
    items: list[Graph] = [(2, [(0, 0, 1), (0, 0, 1), (0, 1, 0)], 0), (1, [], 1), (2, [(0, 0, 1), (1, 0, 0)], 1)]
    assert observe(build(items)) == [
        "1 repeated edge kept",
        "1 self-loop kept",
        "1 graph without an edge kept",
        "2 edges of 5 in one direction only",
    ]
    assert observe(build(items[2:])) == ["every edge stands there in both directions"]
    assert observe(build([(2, [(0, 0, 1)], 0)])) == []


def test_the_fingerprint_changes_with_the_data_and_not_with_the_name() -> None:
    one = build([(2, [(0, 0, 1)], 0), (1, [], 1)])
    others: list[dict[str, Any]] = [
        {"targets": np.array([1, 1])},
        {"triples": np.array([[1, 0, 0]])},
        {"triples": np.array([[0, 1, 1]])},
        {"graph_of": np.array([0, 1, 1]), "triples": np.empty((0, 3), int)},
        {"node_labels": np.array([0, 0, 0])},
        {"node_features": np.ones((3, 2))},
        {"node_features": None},
        {"classes": ("a", "b")},
    ]
    prints = [one.fingerprint(), *(replace(one, **other).fingerprint() for other in others)]
    assert len(set(prints)) == len(prints)
    assert replace(one, name="other", notes=("x",)).fingerprint() == one.fingerprint()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"graph_of": np.array([1, 0, 1])}, "must stand together"),
        ({"graph_of": np.array([0, 0, 0])}, "graph 1 has no node"),
        ({"graph_of": np.array([0, 0, 2])}, "refer to rows beyond the sizes 2"),
        ({"graph_of": np.array([0.0, 0, 1])}, "whole numbers of shape .*, not float64"),
        ({"targets": np.array([0, -1])}, "targets refer to rows beyond"),
        ({"triples": np.array([[0, 0, 2]])}, "edge 0 goes from graph 0 to graph 1"),
        ({"triples": np.array([[0, 3, 1]])}, "beyond the sizes 3, 3, 3"),
        ({"node_labels": np.array([0, 1])}, "2 node labels were given for 3 nodes"),
        ({"node_labels": np.array([0, 1, 3])}, "node labels refer to rows beyond the sizes 3"),
        ({"node_features": np.zeros((2, 1))}, r"shape \[2, 1\]; expected \[3, f\]"),
        ({"graph_ids": ("a",)}, "1 graph ids were given for 2 graphs"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        replace(build([(2, [(0, 0, 1)], 0), (1, [], 1)]), **change)
