"""Figures of a data set count everything once, and the leakage report is its definition."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toy
from compgcn.data import GraphCollection, KnowledgeGraph, Labels, Vocabulary, load
from compgcn.data.statistics import Bin, Given, Overlap, bins, even_bins, report, summarise

values = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**40)), max_size=50).map(
    lambda x: np.array(x, dtype=np.int64)
)


def graph(**changes: object) -> KnowledgeGraph:
    train, test = np.array([[0, 0, 1], [1, 0, 2], [2, 1, 2]]), np.array([[1, 0, 0]])
    e, r = Vocabulary("entity", ["a", "b", "c", "d"]), Vocabulary("relation", ["p", "q"], ["P", "Q"])
    return KnowledgeGraph("g", e, r, train, np.empty((0, 3), int), test, **changes)


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


@pytest.mark.parametrize("count", [bins, even_bins])
@given(values)
def test_every_value_is_in_one_bin(count: Callable[[np.ndarray], list[Bin]], numbers: np.ndarray) -> None:
    found = count(numbers)
    assert all(low <= high and size == ((numbers >= low) & (numbers <= high)).sum() for low, high, size in found)
    assert sum(size for _, _, size in found) == len(numbers)
    assert count is bins or (len(found) <= 12 and len({high - low for low, high, _ in found[:-1]}) <= 1)


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
    assert summary.leakage.splits["test"].symmetric == 1
    report = json.loads(json.dumps(summary.as_dict()))
    assert report["by_relation"] == {"p": 3, "q": 1}
    assert report["degree"]["mean"] == 2
    assert report["distributions"] == {}
    assert set(report["leakage"]["test"]) >= {"symmetric", "copy_rule_share"}


def test_labels_of_entities_are_counted_by_split() -> None:
    rows = {"train": np.array([[0, 1], [1, 1]]), "valid": np.empty((0, 2), int), "test": np.array([[2, 0]])}
    found = summarise(replace(graph(), labels=Labels(("x", "y"), **rows))).as_dict()["distributions"]
    assert found == {"classes of entities": {"train": {"x": 0, "y": 2}, "test": {"x": 1, "y": 0}}}


def test_an_edge_written_both_ways_counts_once_at_each_of_its_nodes() -> None:
    summary = summarise(collection())
    assert summary.degrees.tolist() == [1, 1, 1, 1, 0]
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


N, R = 4, 3
Fact = tuple[int, int, int]
facts = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, R - 1), st.integers(0, N - 1)), max_size=25)


def overlaps(everything: set[Fact], share: float, least: int) -> dict[str, set[Overlap]]:
    """The definition of the three lists."""
    pairs = [{(s, o) for s, p, o in everything if p == r and s != o} for r in range(R)]
    found: dict[str, set[Overlap]] = {"duplicates": set(), "inverses": set(), "symmetric": set()}
    for a in range(R):
        for b in range(a, R):
            smaller = min(len(pairs[a]), len(pairs[b]))
            same, mirrored = len(pairs[a] & pairs[b]), len(pairs[a] & {(o, s) for s, o in pairs[b]})
            if a != b and same >= max(share * smaller, least):
                found["duplicates"].add(Overlap(a, b, same, smaller))
            if mirrored >= max(share * smaller, least):
                found["symmetric" if a == b else "inverses"].add(Overlap(a, b, mirrored, smaller))
    return found


def given_away(part: list[Fact], train: set[Fact], lists: dict[str, set[Overlap]]) -> Given:
    """The definition of what train gives away."""
    same = {(x.relation, x.other) for x in lists["duplicates"]}
    exchanged = {(x.relation, x.other) for x in lists["inverses"] | lists["symmetric"]}
    same |= {(b, a) for a, b in same}
    exchanged |= {(b, a) for a, b in exchanged}
    counts = dict.fromkeys(("copies", "symmetric", "near_duplicates", "inverses", "any", "copy_rule"), 0)
    for s, r, o in part:
        ways = {
            "copies": (s, r, o) in train,
            "symmetric": s != o and (o, r, s) in train,
            "near_duplicates": any((s, q, o) in train for q in range(R) if q != r),
            "inverses": s != o and any((o, q, s) in train for q in range(R) if q != r),
        }
        ways["any"] = any(ways.values())
        ways["copy_rule"] = any((s, q, o) in train and (r, q) in same for q in range(R)) or (
            s != o and any((o, q, s) in train and (r, q) in exchanged for q in range(R))
        )
        for way, holds in ways.items():
            counts[way] += holds
    return Given(len(part), **counts)


@settings(max_examples=200)
@given(facts, facts, facts, st.sampled_from([0.3, 0.5, 0.8, 1.0]), st.integers(1, 3))
def test_the_report_is_its_definition(
    train: list[Fact], valid: list[Fact], test: list[Fact], share: float, least: int
) -> None:
    found = report(toy.numbered(train, N, R, valid=valid, test=test), share=share, least=least)
    lists = overlaps({*train, *valid, *test}, share, least)
    for name, expected in lists.items():
        assert set(getattr(found, name)) == expected
        sizes = [pair.shared for pair in getattr(found, name)]
        assert sizes == sorted((pair.shared for pair in expected), reverse=True)
    for part, rows in (("valid", valid), ("test", test)):
        assert found.splits[part] == given_away(rows, set(train), lists)


def test_train_gives_away_nothing_of_fb15k_237_and_a_third_of_wn18rr(benchmarks: Path) -> None:
    assert {part.any for part in report(load("fb15k-237")).splits.values()} == {0}
    data = load("wn18rr")
    found = report(data)
    names = {data.relations.ids[pair.relation] for pair in found.symmetric}
    assert names == {"_derivationally_related_form", "_verb_group", "_similar_to"}
    assert not found.inverses
    assert found.splits["test"] == Given(3134, 0, 1086, 8, 11, 1096, 1052)
    assert found.as_dict(data.relations.ids)["test"]["copy_rule_share"] == 1052 / 3134
