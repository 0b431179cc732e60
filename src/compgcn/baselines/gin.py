"""GIN: how powerful are graph neural networks (Xu et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from compgcn.baselines.networks import GraphNetwork, classifier, extra, neighbours
from compgcn.config import Config
from compgcn.data import GraphCollection
from compgcn.dropout import dropout as drop_out
from compgcn.graph import RelationalGraph
from compgcn.inputs import Start
from compgcn.tasks.classification import GraphClassifier


class GIN(GraphNetwork):
    """h_v = MLP(h_v + sum_{u in N(v)} h_u), K times, and for a graph the sums of h over its nodes, of every depth.

    The paper adds up a linear map of the sum at every depth 0 .. K: that is one linear map of all of them side by side.
    What kind an edge is makes no difference.

    Args:
        num_rows, node_features: what nodes start from.
        dims: of h, for each of the K layers.
        dropout: on the vector of a graph.
    """

    def __init__(
        self,
        num_rows: int,
        node_features: Tensor | None = None,
        *,
        dims: Sequence[int] = (32, 32, 32, 32),
        dropout: float = 0.5,
    ) -> None:
        inputs = num_rows if node_features is None else node_features.shape[1]
        super().__init__(num_rows, node_features, inputs + sum(dims))
        self.dropout = dropout
        self._sum = extra("torch_geometric.nn").global_add_pool
        conv = extra("torch_geometric.nn").GINConv
        self.layers = nn.ModuleList(conv(_perceptron(*sizes)) for sizes in pairwise([inputs, *dims]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for dim in dims)

    def forward(self, graph: RelationalGraph, rows: Tensor, graphs: int) -> Tensor:
        x, edges = self.start(rows), neighbours(graph)
        depths = [x]
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x, edges)).relu()  # [N, dim]
            depths.append(x)
        sums = self._sum(torch.cat(depths, 1), graph.graph_of_node, graphs)  # [G, d]
        return drop_out(sums, self.dropout, self.training)


def _perceptron(inputs: int, outputs: int) -> nn.Module:
    """Two layers, as the paper has it."""
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(), nn.Linear(outputs, outputs))


def build_gin(config: Config, data: GraphCollection, start: Start) -> GraphClassifier:
    """The classifier of a config; `encoder.dims` are those of the layers, after that of the input."""
    e = config.encoder
    return classifier(GIN(start.size, start.vectors, dims=e.dims[1:], dropout=e.hidden_dropout), data)
