"""The summary of a data set counts everything once, and its bins hold every value."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compgcn.data import GraphCollection, KnowledgeGraph, Labels, Vocabulary
from compgcn.data.statistics import Bin, bins, even_bins, summarise

values = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**40)), max_size=50).map(
    lambda x: np.array(x, dtype=np.int64)
)
close = st.lists(st.integers(0, 300), max_size=50).map(lambda x: np.array(x, dtype=np.int64))


def graph(**changes: object) -> KnowledgeGraph:
    train, test = np.array([[0, 0, 1], [1, 0, 2], [2, 1, 2]]), np.array([[1, 0, 0]])
    e, r = Vocabulary("entity", ["a", "b", "c", "d"]), Vocabulary("relation", ["p", "q"], ["P", "Q"])
    return KnowledgeGraph("g", e, r, train, np.empty((0, 3), int), test, **changes)  # type: ignore[arg-type]


def collection() -> GraphCollection:
    triples = np.array([[0, 0, 1], [1, 0, 0], [2, 1, 3], [3, 1, 2]])
    return GraphCollection(
        "c",
        Vocabulary("relation", ["single", "double"]),
        ("no", "yes"),
        graph_of=np.array([0, 0, 1, 1, 1]),
        triples=triples,
        targets=np.array([1, 1]),
        node_labels=np.array([0, 1, 1, 1, 1]),
        node_classes=("C", "N"),
    )


@given(values)
def test_every_value_is_in_one_bin(numbers: np.ndarray) -> None:
    for low, high, size in bins(numbers):
        assert low <= high
        assert size == ((numbers >= low) & (numbers <= high)).sum()
    assert sum(size for _, _, size in bins(numbers)) == len(numbers)


@given(close, st.integers(1, 15))
def test_even_bins_are_even_and_hold_every_value(numbers: np.ndarray, most: int) -> None:
    found = even_bins(numbers, most)
    assert len(found) <= most
    assert sum(size for _, _, size in found) == len(numbers)
    assert all(size == ((numbers >= low) & (numbers <= high)).sum() for low, high, size in found)
    assert len({high - low for low, high, _ in found[:-1]}) <= 1


def test_small_numbers_have_bins_of_their_own_and_large_ones_double() -> None:
    assert bins(np.array([1, 3, 3])) == [Bin(1, 1, 1), Bin(2, 2, 0), Bin(3, 3, 2)]
    assert bins(np.array([0, 1, 2, 3, 4, 20])) == [
        Bin(0, 0, 1), Bin(1, 1, 1), Bin(2, 3, 2), Bin(4, 7, 1), Bin(8, 15, 0), Bin(16, 20, 1)
    ]  # fmt: skip


def test_a_graph_counts_every_triple_at_both_its_ends() -> None:
    summary = summarise(graph())
    assert summary.degrees.tolist() == [2, 3, 3, 0]
    assert summary.degrees.sum() == 2 * summary.statistics["triples"]
    assert summary.by_relation.tolist() == [3, 1]
    assert summary.leakage is not None
    assert summary.leakage.splits["test"].symmetric == 1
    report = json.loads(json.dumps(summary.as_dict()))
    assert report["by_relation"] == {"p": 3, "q": 1}
    assert report["degree"]["mean"] == 2
    assert report["distributions"] == {}


def test_labels_of_entities_are_counted_by_split() -> None:
    rows = {"train": np.array([[0, 1], [1, 1]]), "valid": np.empty((0, 2), int), "test": np.array([[2, 0]])}
    found = summarise(replace(graph(), labels=Labels(("x", "y"), **rows))).as_dict()["distributions"]
    assert found == {"classes of entities": {"train": {"x": 0, "y": 2}, "test": {"x": 1, "y": 0}}}


def test_an_edge_written_both_ways_counts_once_at_each_of_its_nodes() -> None:
    summary = summarise(collection())
    assert summary.degrees.tolist() == [1, 1, 1, 1, 0]
    assert summary.graph_sizes is not None
    assert summary.graph_sizes.tolist() == [2, 3]
    report = summary.as_dict()
    assert report["distributions"] == {
        "classes of graphs": {"all": {"no": 0, "yes": 2}},
        "labels of nodes": {"all": {"C": 1, "N": 4}},
    }
    assert report["graph_size"]["max"] == 3
    one_way = summarise(
        GraphCollection("x", collection().relations, ("a",), np.zeros(2, int), np.array([[0, 0, 1]]), np.zeros(1, int))
    )
    assert one_way.degrees.tolist() == [1, 1]
