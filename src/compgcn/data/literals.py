"""Literals as features: numbers by their value, text by its words."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from compgcn.data.arrays import Features
from compgcn.data.triples import KnowledgeGraph
from compgcn.data.types import rows_by_type, typed
from compgcn.errors import InputError

_WORDS = 64  # columns the words of all text literals are hashed to
_TYPES = 256  # sets of types with a column each, the most frequent


def literal_features(graph: KnowledgeGraph) -> Features:
    """A row of numbers for each entity, [N, f], out of the literals kept beside a graph and its types.

    For each relation to literals: whether the entity has one, and, where all of them are numbers, its mean,
    standardised over those that have one. The words of the others are hashed, with their relation, to 64
    columns. A column for each set of types, where there are any, tells the others apart.
    """
    kept = graph.literals
    if kept is None or not len(kept.entities):
        raise InputError(
            f"no literals were kept of the graph '{graph.name}'; read it with "
            "literals='keep' for encoder.input='literals'"
        )
    relation_of = {name: i for i, name in enumerate(dict.fromkeys(kept.relations))}
    relation = np.array([relation_of[name] for name in kept.relations])
    columns = [_types(graph)] if typed(graph) else []
    words = np.zeros((graph.num_entities, _WORDS))
    for name, number in relation_of.items():
        places = np.flatnonzero(relation == number)
        entities, values = kept.entities[places], [kept.values[place] for place in places]
        present = np.bincount(entities, minlength=graph.num_entities)
        columns.append((present > 0).astype(np.float64)[:, None])
        numbers = _numbers(values)
        if numbers is None:
            _hash_words(words, entities, values, name)
        else:
            mean = np.bincount(entities, numbers, graph.num_entities) / np.maximum(present, 1)
            having = mean[present > 0]
            scaled = (mean - having.mean()) / (having.std() or 1.0)
            columns.append(np.where(present > 0, scaled, 0.0)[:, None])
    return np.hstack([*columns, np.log1p(words)]).astype(np.float32)


def _numbers(values: Sequence[str]) -> NDArray[np.float64] | None:
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _hash_words(words: NDArray[np.float64], entities: NDArray[np.int64], values: Sequence[str], relation: str) -> None:
    for entity, value in zip(entities, values, strict=True):
        for word in value.casefold().split():
            words[entity, zlib.crc32(f"{relation} {word}".encode("utf-8", "surrogatepass")) % _WORDS] += 1


def _types(graph: KnowledgeGraph) -> NDArray[np.float64]:
    """Which of the most frequent sets of types an entity has, [N, t]."""
    rows = rows_by_type(graph)
    counts = np.bincount(rows)
    common = np.argsort(-counts, kind="stable")[:_TYPES]
    common = common[counts[common] > 1]
    found: NDArray[np.float64] = (rows[:, None] == common[None, :]).astype(np.float64)
    return found
