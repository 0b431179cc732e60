"""Parts of a graph: the same facts by name, and nothing in the vocabulary that has none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.config import Data
from compgcn.data import KnowledgeGraph, find, load
from compgcn.data.graph import restricted, top_relations
from compgcn.errors import InputError
from toy import graph, labelled


def facts(data: KnowledgeGraph, part: str) -> list[tuple[str, str, str]]:
    e, r = data.entities.ids, data.relations.ids
    return [(e[s], r[p], e[o]) for s, p, o in data.splits[part]]


@given(st.integers(0, 2**16))
def test_what_is_kept_says_the_same_and_the_vocabulary_has_no_more(seed: int) -> None:
    data, rng = graph(), np.random.default_rng(seed)
    keep = {part: rng.random(len(triples)) < 0.5 for part, triples in data.splits.items()}
    found = restricted(data, keep)
    for part in data.splits:
        expected = [fact for fact, kept in zip(facts(data, part), keep[part], strict=True) if kept]
        assert facts(found, part) == expected
    everything = [fact for part in found.splits for fact in facts(found, part)]
    assert set(found.entities.ids) == {end for s, _, o in everything for end in (s, o)}
    assert set(found.relations.ids) == {r for _, r, _ in everything}


def test_the_relations_train_has_most_of_are_kept_in_every_split() -> None:
    world = load("world")
    assert isinstance(world, KnowledgeGraph)
    found = find(Data(source="world", top_relations=3))
    assert isinstance(found, KnowledgeGraph)
    assert set(found.relations.ids) == {"near", "in_time_zone", "in_country"}
    for part in world.splits:
        assert facts(found, part) == [fact for fact in facts(world, part) if fact[1] in found.relations.ids]
    assert top_relations(world, 10).fingerprint() == world.fingerprint()


def test_what_cannot_be_cut_down_is_one_sentence() -> None:
    with pytest.raises(InputError, match="has 3 relations"):
        top_relations(graph(), 4)
    with pytest.raises(InputError, match="labels or features"):
        top_relations(labelled(), 2)
