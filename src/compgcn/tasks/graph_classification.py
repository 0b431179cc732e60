"""Graph classification: many small graphs, in batches that are disjoint unions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from compgcn.data import GraphCollection
from compgcn.data.arrays import Numbers
from compgcn.graph import RelationalGraph
from compgcn.tasks.classification import Classifier, GraphClassifier

_KEPT = 4  # batches remembered: those of validation come again in every epoch


class Graphs:
    """The graphs of a collection.

    Args:
        model: what classifies them, with a readout or a network of its own.
        collection: G graphs.
        rows: the row of the encoder's input table each node of the collection starts from, int64 [N].
        device: where the model is.
    """

    together = False

    def __init__(
        self,
        model: Classifier | GraphClassifier,
        collection: GraphCollection,
        rows: Numbers,
        device: torch.device,
    ) -> None:
        self.model, self.device = model, device
        self.targets = torch.from_numpy(collection.targets).to(device)
        names = tuple(str(row) for row in range(int(rows.max(initial=-1)) + 1))
        # The rows travel with the nodes as if they were their labels.
        self._collection = replace(collection, node_labels=rows, node_classes=names, node_features=None)
        self._batches: dict[bytes, tuple[RelationalGraph, Tensor]] = {}

    @property
    def smallest(self) -> int:
        """The number of nodes of the smallest graph."""
        return int(np.diff(self._collection.node_starts).min())

    def of(self, collection: GraphCollection, rows: Numbers) -> Graphs:
        """Other graphs for the same model."""
        return Graphs(self.model, collection, rows, self.device)

    def batch(self, items: Tensor) -> tuple[RelationalGraph, Tensor]:
        """Some of the graphs [B] as one, and the rows of its nodes."""
        chosen = items.cpu().numpy()
        key = chosen.tobytes()
        if key not in self._batches:
            while len(self._batches) >= _KEPT:
                self._batches.pop(next(iter(self._batches)))
            with torch.inference_mode(False):  # what is kept may be trained with later
                self._batches[key] = self._union(chosen)
        return self._batches[key]

    def _union(self, chosen: Numbers) -> tuple[RelationalGraph, Tensor]:
        part = self._collection.subset(chosen)
        assert part.node_labels is not None
        src, rel, dst = torch.from_numpy(np.ascontiguousarray(part.triples.T)).to(self.device)
        graph_of, rows = (torch.from_numpy(values).to(self.device) for values in (part.graph_of, part.node_labels))
        return RelationalGraph(src, dst, rel, part.num_nodes, part.num_relations, graph_of), rows

    def vectors(self, items: Tensor) -> Tensor:
        """Of some of the graphs [B], as the model makes them, [B, d]."""
        return self.model.vectors(*self.batch(items), len(items))
