"""Look-ups agree with a search through the whole graph."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import toy
from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.serve.graph_index import GraphIndex

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
    """Return the text without case and accents, a line break as a space."""
    return text.casefold().translate({ord("á"): "a", 0x301: None, ord("\n"): " "})


@given(graphs(), st.text(LETTERS, max_size=2), st.integers(1, 15))
def test_search_lists_exact_beginnings_then_beginnings_then_parts_best_connected_first(
    graph: KnowledgeGraph, text: str, limit: int
) -> None:
    index, part = GraphIndex(graph), folded(text)
    labels = [[folded(label) for label in pair] for pair in zip(graph.entities.ids, graph.entities.names, strict=True)]

    def key(entity: int) -> tuple[bool, bool, int, int]:
        begins = any(label.startswith(part) for label in labels[entity])
        own = (label.replace("\n", " ") for label in (graph.entities.ids[entity], graph.entities.names[entity]))
        exact = bool(part) and any(label.startswith(text.replace("\n", " ")) for label in own)
        return not begins, not exact, -int(index.degree[entity]), entity

    matching = [i for i, pair in enumerate(labels) if any(part in label for label in pair)]
    assert index.search(text, limit) == sorted(matching, key=key)[:limit]


@given(graphs(), st.integers(0, 11), st.integers(1, 9))
def test_a_neighbourhood_lists_every_fact_about_the_entity_once(graph: KnowledgeGraph, entity: int, limit: int) -> None:
    entity %= graph.num_entities
    index = GraphIndex(graph)
    expected = [i for i, (s, _, o) in enumerate(index.facts.tolist()) if entity in (s, o)]
    assert index.around(entity, limit).tolist() == expected[:limit]
    assert index.degree[entity] == len(expected)


@given(graphs())
def test_the_type_of_an_entity_is_its_most_frequent_role(graph: KnowledgeGraph) -> None:
    index = GraphIndex(graph)
    roles: list[Counter[str]] = [Counter() for _ in range(graph.num_entities)]
    for s, r, o in index.facts.tolist():
        roles[s][f"subject of {graph.relations.names[r]}"] += 1
        roles[o][f"object of {graph.relations.names[r]}"] += 1
    for found, counts in zip(index.types, roles, strict=True):
        assert counts[found] == max(counts.values(), default=0)
        assert (found == "") == (not counts)


def test_the_examples_are_queries_with_an_answer() -> None:
    graph = toy.graph()
    index = GraphIndex(graph)
    examples = index.examples()
    assert len({head for head, _ in examples}) == len(examples) == graph.num_relations
    assert {*examples} <= {(s, r) for s, r, _ in index.facts.tolist()}
