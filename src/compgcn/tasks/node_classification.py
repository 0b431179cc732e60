"""Node classification: the classes of some nodes of a graph, encoded whole or as far as those nodes can hear."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from compgcn.graph import RelationalGraph
from compgcn.tasks.classification import Classifier


class Nodes:
    """Some nodes of a graph and their classes.

    Args:
        model: what classifies them, on the graph's device.
        graph: of N nodes.
        rows: the row of the encoder's input table each of the N starts from, int64 [N]; None: its own.
        nodes: int64 [n], which of them are classified.
        targets: int64 [n], their classes.
        restrict: make only the vectors that those of the nodes depend on, layer by layer. They are the same; only batch
            norm, which would see fewer nodes, is refused that.
    """

    together = True

    def __init__(
        self,
        model: Classifier,
        graph: RelationalGraph,
        rows: Tensor | None,
        nodes: Tensor,
        targets: Tensor,
        *,
        restrict: bool = True,
    ) -> None:
        self.model, self.graph, self.rows, self.nodes, self.targets = model, graph, rows, nodes, targets
        normalised = any(isinstance(norm, torch.nn.BatchNorm1d) for norm in model.encoder.norms)
        self._layers: RelationalGraph | list[RelationalGraph] = graph
        self._rows, self._places = rows, nodes
        if restrict and not normalised:
            self._layers, kept, self._places = graph.around(nodes, len(model.encoder.layers))
            self._rows = kept if rows is None else rows[kept]

    def vectors(self, items: Tensor) -> Tensor:
        """Of some of the nodes [B], as the encoder makes them, [B, d]."""
        x, _ = self.model.encoder(self._layers, self._rows)
        return F.embedding(self._places[items], x)
