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
        restrict: encode only the part of the graph that the nodes hear of. The vectors are the same; only batch
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
        self.model, self.targets = model, targets
        normalised = any(isinstance(norm, torch.nn.BatchNorm1d) for norm in model.encoder.norms)
        self.graph, self.rows, self.places = graph, rows, nodes
        if restrict and not normalised:
            part, kept = graph.around(nodes, len(model.encoder.layers))
            if part.num_nodes < graph.num_nodes or part.num_edges < graph.num_edges:
                self.graph, self.rows = part, kept if rows is None else rows[kept]
                self.places = torch.searchsorted(kept, nodes)

    def vectors(self, items: Tensor) -> Tensor:
        """Of some of the nodes [B], as the encoder makes them, [B, d]."""
        x, _ = self.model.encoder(self.graph, self.rows)
        return F.embedding(self.places[items], x)
