"""Look-ups find what going over the whole graph finds."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import toy
from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.serve.graph_index import Atlas

LETTERS = "aAáÁbBß \n/\u0301"
NAMES = st.lists(st.text(LETTERS, max_size=4), min_size=2, max_size=12)


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeGraph:
    names = draw(NAMES)
    N, R = len(names), 3
    triple = st.tuples(st.integers(0, N - 1), st.integers(0, R - 1), st.integers(0, N - 1))
    rows = {split: draw(st.lists(triple, max_size=8)) for split in ("train", "valid", "test")}
    splits = {split: np.array(facts, dtype=np.int64).reshape(-1, 3) for split, facts in rows.items()}
    ids = [f"b{i}" for i in range(N)]
    return KnowledgeGraph("g", Vocabulary("entity", ids, names), Vocabulary("relation", ["x", "y", "z"]), **splits)


def folded(text: str) -> str:
    """A line break counts as a space, case and accents not at all."""
    return text.casefold().translate({ord("á"): "a", 0x301: None, ord("\n"): " "})


@given(graphs(), st.text(LETTERS, max_size=2), st.integers(1, 15))
def test_a_search_finds_beginnings_as_written_first_then_parts_the_best_connected_first(
    graph: KnowledgeGraph, text: str, limit: int
) -> None:
    atlas, part = Atlas(graph), folded(text)
    labels = [[folded(label) for label in pair] for pair in zip(graph.entities.ids, graph.entities.names, strict=True)]

    def key(entity: int) -> tuple[bool, bool, int, int]:
        begins = any(label.startswith(part) for label in labels[entity])
        own = graph.entities.ids[entity], graph.entities.names[entity]
        written = bool(part) and any(label.startswith(text) for label in own)
        return not begins, not written, -int(atlas.degree[entity]), entity

    matching = [i for i, pair in enumerate(labels) if any(part in label for label in pair)]
    assert atlas.search(text, limit) == sorted(matching, key=key)[:limit]


@given(graphs(), st.integers(0, 11), st.integers(1, 9))
def test_a_neighbourhood_is_every_fact_with_the_entity_once(graph: KnowledgeGraph, entity: int, limit: int) -> None:
    entity %= graph.num_entities
    atlas = Atlas(graph)
    expected = [i for i, (s, _, o) in enumerate(atlas.facts.tolist()) if entity in (s, o)]
    assert atlas.around(entity, limit).tolist() == expected[:limit]
    assert atlas.degree[entity] == len(expected)


@given(graphs())
def test_the_type_of_an_entity_is_its_commonest_place_in_facts(graph: KnowledgeGraph) -> None:
    atlas = Atlas(graph)
    places: list[Counter[str]] = [Counter() for _ in range(graph.num_entities)]
    for s, r, o in atlas.facts.tolist():
        places[s][f"subject of {graph.relations.names[r]}"] += 1
        places[o][f"object of {graph.relations.names[r]}"] += 1
    for found, counts in zip(atlas.types, places, strict=True):
        assert counts[found] == max(counts.values(), default=0)
        assert (found == "") == (not counts)


def test_the_examples_are_queries_that_have_an_answer() -> None:
    graph = toy.graph()
    atlas = Atlas(graph)
    examples = atlas.examples()
    assert len({head for head, _ in examples}) == len(examples) == graph.num_relations
    assert {*examples} <= {(s, r) for s, r, _ in atlas.facts.tolist()}
