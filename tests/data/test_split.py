"""The split leaks nothing and leaves nothing out of train, whatever the graph."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.data.split import Triples, split
from compgcn.errors import InputError


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Triples, int, int]:
    """Distinct triples in which every entity and every relation occurs."""
    N, R = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    triple = st.tuples(st.integers(0, N - 1), st.integers(0, R - 1), st.integers(0, N - 1))
    triples = np.array(draw(st.lists(triple, min_size=1, max_size=60, unique=True)), dtype=np.int64)
    _, ends = np.unique(triples[:, [0, 2]], return_inverse=True)
    _, rels = np.unique(triples[:, 1], return_inverse=True)
    ends = ends.reshape(-1, 2)
    return np.column_stack([ends[:, 0], rels, ends[:, 1]]), int(ends.max()) + 1, int(rels.max()) + 1


@given(graphs(), st.integers(0, 5), st.sampled_from([0.1, 0.3, 0.45]))
def test_the_splits_are_a_partition_by_pairs_in_the_given_order_and_train_has_everything(
    graph: tuple[Triples, int, int], seed: int, fraction: float
) -> None:
    triples, N, R = graph
    parts = split(triples, N, R, seed=seed, valid_fraction=fraction, test_fraction=fraction)
    place = {tuple(row): i for i, row in enumerate(triples.tolist())}
    orders = [[place[tuple(row)] for row in part.tolist()] for part in parts]
    assert all(order == sorted(order) for order in orders)
    assert sorted(place for order in orders for place in order) == list(range(len(triples)))
    pairs = [{frozenset((s, o)) for s, _, o in part.tolist()} for part in parts]
    assert sum(map(len, pairs)) == len(set.union(*pairs)), "no pair of entities is in two splits"
    train = parts[0]
    assert set(train[:, [0, 2]].ravel().tolist()) == set(range(N))
    assert set(train[:, 1].tolist()) == set(range(R))


def dense(n: int = 60) -> tuple[Triples, int, int]:
    s, o = np.nonzero(~np.eye(n, dtype=bool))
    return np.column_stack([s, (s + o) % 3, o]).astype(np.int64), n, 3


@pytest.mark.parametrize(("valid", "test"), [(0.1, 0.1), (0.2, 0.05), (0.0, 0.3), (0.0, 0.0)])
def test_the_fractions_are_met_where_the_graph_is_dense(valid: float, test: float) -> None:
    triples, N, R = dense()
    parts = split(triples, N, R, valid_fraction=valid, test_fraction=test)
    assert abs(len(parts[1]) - valid * len(triples)) <= 2
    assert abs(len(parts[2]) - test * len(triples)) <= 2


def star(cliquish: int) -> tuple[Triples, int, int]:
    """A star of 100 rays, all of which must be in train, and some nodes with every fact between them, few of which."""
    rays = [(0, 0, 1 + i) for i in range(100)]
    clique = [(101 + i, 0, 101 + j) for i in range(cliquish) for j in range(i)]
    return np.array(rays + clique, dtype=np.int64), 101 + cliquish, 1


@given(st.integers(0, 12), st.integers(0, 5), st.sampled_from([(0.1, 0.1), (0.1, 0.2), (0.3, 0.3)]))
def test_what_is_short_of_the_fractions_is_short_in_valid_and_test_alike(
    cliquish: int, seed: int, fractions: tuple[float, float]
) -> None:
    triples, N, R = star(cliquish)
    train, valid, test = split(triples, N, R, seed=seed, valid_fraction=fractions[0], test_fraction=fractions[1])
    wanted = [round(fraction * len(triples)) for fraction in fractions]
    held_out = len(valid) + len(test)
    assert held_out <= sum(wanted)
    assert abs(len(test) - held_out * wanted[1] / sum(wanted)) <= 0.5
    assert len(train) + held_out == len(triples)


def test_a_split_with_enough_for_both_is_the_one_it_has_always_been() -> None:
    parts = split(*dense(30), seed=3)
    digest = hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in parts)).hexdigest()
    assert [len(part) for part in parts] == [694, 88, 88]
    assert digest == "6f0d262d8b3bef1a75812f53ab44ed842880182686393cc8ac723d186d2a3902"


@pytest.mark.parametrize("fractions", [(-0.1, 0.1), (0.5, 0.5), (0.1, 2.0), (float("nan"), 0.1)])
def test_fractions_that_leave_no_train_are_refused(fractions: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="must leave something to train on"):
        split(*dense(4), valid_fraction=fractions[0], test_fraction=fractions[1])
