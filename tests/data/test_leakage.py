"""The leakage report is its definition, on graphs drawn at random and on graphs whose answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compgcn.data import KnowledgeGraph, Vocabulary, load
from compgcn.data.statistics import Given, Overlap, report

N, R = 4, 3
Fact = tuple[int, int, int]
facts = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, R - 1), st.integers(0, N - 1)), max_size=25)


def graph(
    train: list[Fact], valid: list[Fact], test: list[Fact], entities: int = N, relations: int = R
) -> KnowledgeGraph:
    parts = [np.array(part, dtype=np.int64).reshape(-1, 3) for part in (train, valid, test)]
    e = Vocabulary("entity", [f"e{i}" for i in range(entities)])
    return KnowledgeGraph("made up", e, Vocabulary("relation", [f"r{i}" for i in range(relations)]), *parts)


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
    found = report(graph(train, valid, test), share=share, least=least)
    lists = overlaps({*train, *valid, *test}, share, least)
    for name, expected in lists.items():
        assert set(getattr(found, name)) == expected
        assert len(getattr(found, name)) == len(expected)
    for part, rows in (("valid", valid), ("test", test)):
        assert found.splits[part] == given_away(rows, set(train), lists)


def test_inverse_duplicate_and_symmetric_relations_answer_the_test_facts_over_them() -> None:
    chain = [(i, i + 1) for i in range(20)]
    parent, child, mother, near = 0, 1, 2, 3
    train = [(s, parent, o) for s, o in chain] + [(s, near, o) for s, o in chain]
    train += [(o, child, s) for s, o in chain[:10]] + [(s, mother, o) for s, o in chain[:8]]
    test = [(o, child, s) for s, o in chain[10:]] + [(o, near, s) for s, o in chain] + [(0, parent, 9)]
    found = report(graph(train, [], test, entities=21, relations=4))
    assert Overlap(parent, child, 20, 20) in found.inverses
    assert Overlap(parent, mother, 8, 8) in found.duplicates
    assert found.symmetric == (Overlap(near, near, 40, 40),)
    assert found.splits["test"].copy_rule == 30
    assert found.splits["test"].copy_rule_share == pytest.approx(30 / 31)
    assert [pair.shared for pair in found.inverses] == sorted((pair.shared for pair in found.inverses), reverse=True)


def test_json_has_relations_by_name() -> None:
    made = graph([(0, 0, 1), (1, 0, 0), (2, 0, 3), (3, 0, 2)], [], [])
    found = report(made).as_dict(made.relations.ids)
    assert found["symmetric_relations"] == [{"relation": "r0", "shared": 4, "pairs": 4}]
    assert found["inverse_relations"] == found["near_duplicate_relations"] == []
    assert found["test"]["copy_rule_share"] == 0


def test_train_gives_away_nothing_of_fb15k_237_and_a_third_of_wn18rr(benchmarks: Path) -> None:
    assert {part.any for part in report(load("fb15k-237")).splits.values()} == {0}
    data = load("wn18rr")
    found = report(data)
    names = {data.relations.ids[pair.relation] for pair in found.symmetric}
    assert names == {"_derivationally_related_form", "_verb_group", "_similar_to"}
    assert not found.inverses
    assert found.splits["test"] == Given(3134, 0, 1086, 8, 11, 1096, 1052)
