"""The leakage report is its definition, on graphs drawn at random and on graphs whose answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compgcn.data import KnowledgeGraph, Vocabulary, load
from compgcn.data.statistics import Given, Overlap, report

N, R = 4, 3
Fact = tuple[int, int, int]
facts = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, R - 1), st.integers(0, N - 1)), max_size=25)


def graph(*splits: list[Fact]) -> KnowledgeGraph:
    parts = [np.array(part, dtype=np.int64).reshape(-1, 3) for part in splits]
    e = Vocabulary("entity", [f"e{i}" for i in range(N)])
    return KnowledgeGraph("made up", e, Vocabulary("relation", [f"r{i}" for i in range(R)]), *parts)


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
        sizes = [pair.shared for pair in getattr(found, name)]
        assert sizes == sorted((pair.shared for pair in expected), reverse=True)
    for part, rows in (("valid", valid), ("test", test)):
        assert found.splits[part] == given_away(rows, set(train), lists)


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
    assert found.as_dict(data.relations.ids)["test"]["copy_rule_share"] == 1052 / 3134
