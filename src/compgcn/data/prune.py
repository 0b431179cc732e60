"""Parts of a knowledge graph, with a vocabulary of what is left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compgcn.data.triples import KnowledgeGraph
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError


def restricted(graph: KnowledgeGraph, keep: dict[str, NDArray[np.bool_]]) -> KnowledgeGraph:
    """Some triples of each split, and the entities and relations that occur in them, in the order they had.

    Args:
        graph: without labels and features, which belong to entities that may go.
        keep: for each split which of its triples stay, [n].
    """
    if graph.labels is not None or graph.node_features is not None or graph.relation_features is not None:
        raise InputError(f"'{graph.name}' has labels or features; only a graph of plain triples is cut down")
    splits = {part: triples[keep[part]] for part, triples in graph.splits.items()}
    rows = np.concatenate(list(splits.values()))
    entities, relations = np.unique(rows[:, [0, 2]]), np.unique(rows[:, 1])
    number = {"e": np.zeros(graph.num_entities, dtype=np.int64), "r": np.zeros(graph.num_relations, dtype=np.int64)}
    number["e"][entities], number["r"][relations] = np.arange(len(entities)), np.arange(len(relations))
    changed: dict[str, Any] = {
        part: np.column_stack([number["e"][t[:, 0]], number["r"][t[:, 1]], number["e"][t[:, 2]]])
        for part, t in splits.items()
    }
    return replace(
        graph,
        entities=_some(graph.entities, entities),
        relations=_some(graph.relations, relations),
        literals=None,
        **changed,
    )


def top_relations(graph: KnowledgeGraph, number: int) -> KnowledgeGraph:
    """The triples of the relations that train has most of, in all splits; of equals those that stand first."""
    if number > graph.num_relations:
        raise InputError(f"'{graph.name}' has {graph.num_relations} relations; data.top_relations = {number} is more")
    counts = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    kept = np.argsort(-counts, kind="stable")[:number]
    found = restricted(graph, {part: np.isin(triples[:, 1], kept) for part, triples in graph.splits.items()})
    origin = {**(graph.origin or {"source": graph.name}), "top_relations": number}
    note = f"only the {number} relations train has most of, and what occurs with them"
    return replace(found, notes=(*found.notes, note), origin=origin)


def _some(vocabulary: Vocabulary, rows: NDArray[np.int64]) -> Vocabulary:
    ids, names = ([texts[row] for row in rows] for texts in (vocabulary.ids, vocabulary.names))
    return Vocabulary(vocabulary.kind, ids, names)
