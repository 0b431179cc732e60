"""Nodes that share a vector: those of the same RDF types."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compgcn.data.triples import KnowledgeGraph
from compgcn.errors import InputError

TYPE_RELATIONS = ("http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "rdf:type")

Rows = NDArray[np.int64]


def typed(graph: KnowledgeGraph) -> bool:
    """Whether the graph says of what type nodes are."""
    return any(name in graph.relations.ids for name in TYPE_RELATIONS)


def rows_by_type(graph: KnowledgeGraph) -> Rows:
    """The row of each entity in a table of vectors [N], numbered from 0 without gaps.

    Entities with the same set of types share a row; one without a type has a row of its own.
    """
    relation = [row for row, name in enumerate(graph.relations.ids) if name in TYPE_RELATIONS]
    if not relation:
        raise InputError(
            f"the graph '{graph.name}' has no relation {' or '.join(TYPE_RELATIONS)}, so its nodes have no types "
            "to share vectors by; use encoder.input='learned'"
        )
    pairs = np.unique(graph.train[np.isin(graph.train[:, 1], relation)][:, [0, 2]], axis=0)  # sorted by entity
    entities, starts = np.unique(pairs[:, 0], return_index=True)
    sets = [types.tobytes() for types in np.split(pairs[:, 1], starts[1:])]
    number: dict[bytes, int] = {}
    rows = np.full(graph.num_entities, -1, dtype=np.int64)
    rows[entities] = [number.setdefault(types, len(number)) for types in sets]
    alone = np.flatnonzero(rows < 0)
    rows[alone] = len(number) + np.arange(len(alone))
    return rows
