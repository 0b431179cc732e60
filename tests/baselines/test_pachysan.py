"""The receptive fields of PATCHY-SAN do not depend on the numbering of nodes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compgcn.baselines.pachysan import PachySAN, nearest, receptive_fields, refine
from compgcn.data.columns import Numbers
from compgcn.tasks.inputs import Start


def directed(pairs: list[tuple[int, int]]) -> Numbers:
    """Pairs in both directions, sorted and once each, [2, E]."""
    both = sorted({(a, b) for a, b in pairs} | {(b, a) for a, b in pairs})
    return np.array(both, dtype=np.int64).reshape(-1, 2).T


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[int]]:
    nodes = draw(st.integers(1, 9))
    ends = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1]), max_size=14))
    return pairs, draw(st.lists(st.integers(0, 1), min_size=nodes, max_size=nodes))


@given(graph=graphs(), seed=st.integers(0, 99), width=st.integers(1, 10), field=st.integers(1, 6))
def test_renumbered_nodes_give_the_same_fields(
    graph: tuple[list[tuple[int, int]], list[int]], seed: int, width: int, field: int
) -> None:
    pairs, kinds = graph
    new = np.random.default_rng(seed).permutation(len(kinds))
    renumbered = directed([(int(new[a]), int(new[b])) for a, b in pairs])
    moved = np.empty(len(kinds), dtype=np.int64)
    moved[new] = kinds

    def seen(edges: Numbers, kinds: Numbers) -> list[list[int]]:
        fields = receptive_fields(*edges, kinds, width, field)
        return np.where(fields < 0, -1, kinds[fields]).tolist()  # type: ignore[no-any-return]

    assert seen(directed(pairs), np.array(kinds)) == seen(renumbered, moved)


@given(graph=graphs(), width=st.integers(1, 10), field=st.integers(1, 6))
def test_a_field_holds_its_root_and_the_nodes_nearest_to_it(
    graph: tuple[list[tuple[int, int]], list[int]], width: int, field: int
) -> None:
    pairs, kinds = graph
    edges = directed(pairs)
    around = [edges[1][edges[0] == v].tolist() for v in range(len(kinds))]
    fields = receptive_fields(*edges, np.array(kinds), width, field)
    assert fields.shape == (min(width, len(kinds)), field)
    assert len({row[0] for row in fields.tolist()}) == len(fields)
    for row in fields.tolist():
        distance = nearest(around, row[0], len(kinds) + 1)
        found = [distance[v] for v in row if v >= 0]
        assert found == sorted(distance.values())[:field]
        assert len(set(row) - {-1}) == len(found)


def test_nodes_come_by_degree_and_then_by_that_of_their_neighbours() -> None:
    around = [[1], [0, 2, 3], [1], [1, 4], [3]]  # a star whose one arm is longer
    assert refine(around) == [3, 0, 3, 1, 2] or refine(around) == [2, 0, 2, 1, 3]
    assert receptive_fields(*directed([(0, 1), (1, 2), (1, 3), (3, 4)]), np.zeros(5, dtype=np.int64), 5, 1)[
        :2
    ].tolist() == [[1], [3]]


def test_nodes_with_the_same_features_are_of_one_kind() -> None:
    features = np.array([[2.0], [1.0], [2.0]], np.float32)
    net = PachySAN(Start(3, features=features), width=10, dims=(2, 2, 2))
    assert net._kinds.tolist() == [1, 0, 1]
