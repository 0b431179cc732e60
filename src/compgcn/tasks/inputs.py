"""Initial vectors of nodes: a learned table, whole or shared, or given features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compgcn.data import GraphCollection, KnowledgeGraph
from compgcn.data.columns import Features, Numbers
from compgcn.data.graph import literal_features, rows_by_type, typed

Dataset = KnowledgeGraph | GraphCollection


class Start(NamedTuple):
    """The initial vectors of nodes: a learned table of `size` rows, or given features [size, f].

    `rows` holds the row of each node [N]; None: node i has row i.
    """

    size: int
    rows: Numbers | None = None
    features: Features | None = None

    @property
    def vectors(self) -> Tensor | None:
        """The given features as a tensor."""
        return None if self.features is None else torch.as_tensor(self.features)


class Input(NamedTuple):
    """A kind of initial vectors: whether the data have what it needs, and how to make them."""

    there: Callable[[Any], bool]
    start: Callable[[Any], Start]


def num_nodes(data: Dataset) -> int:
    """Return the number of entities of a graph, or of nodes of all graphs of a collection."""
    return data.num_nodes if isinstance(data, GraphCollection) else data.num_entities


def without_test(data: Dataset) -> Dataset:
    """Return the data without their test part, for a search that must not depend on it."""
    if isinstance(data, GraphCollection):
        return data
    labels = data.labels and replace(data.labels, test=data.labels.test[:0])
    return replace(data, test=data.test[:0], labels=labels)


def _by_type(data: KnowledgeGraph) -> Start:
    rows = rows_by_type(data)
    return Start(int(rows.max()) + 1, rows)


def _by_literals(data: KnowledgeGraph) -> Start:
    # The weights of an opened run hold the features that its literals gave.
    features = data.node_features if data.node_features is not None else literal_features(data)
    return Start(len(features), features=features)


INPUTS: dict[str, Input] = {
    "learned": Input(lambda data: True, lambda data: Start(num_nodes(data))),
    "types": Input(typed, _by_type),
    "labels": Input(
        lambda data: data.node_labels is not None, lambda data: Start(len(data.node_classes), data.node_labels)
    ),
    "features": Input(
        lambda data: data.node_features is not None,
        lambda data: Start(len(data.node_features), features=data.node_features),
    ),
    "literals": Input(lambda data: getattr(data, "literals", None) is not None, _by_literals),
    "shared": Input(lambda data: True, lambda data: Start(1, np.zeros(num_nodes(data), dtype=np.int64))),
}
