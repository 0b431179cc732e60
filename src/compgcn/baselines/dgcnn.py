"""DGCNN: an end-to-end deep learning architecture for graph classification (Zhang et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from compgcn.baselines.networks import GraphNetwork, classifier, extra, neighbours
from compgcn.config import Config
from compgcn.data import GraphCollection
from compgcn.data.arrays import Numbers
from compgcn.dropout import dropout as drop_out
from compgcn.errors import InputError
from compgcn.graph import RelationalGraph
from compgcn.inputs import Start
from compgcn.tasks.classification import GraphClassifier

_SMALLEST = 10  # nodes to keep: the second convolution takes five places after every other one is dropped


class DGCNN(GraphNetwork):
    """Propagation, a sorting of the nodes, and convolutions along the k that come first.

    Z_t = tanh(D^-1 (A + I) Z_{t-1} W_t), where A has no kinds of edges; the nodes of a graph are sorted by the last
    channel of the last, and the vectors of all depths side by side, of the first k nodes, make an image of one line.

    Args:
        num_rows, node_features: what nodes start from.
        kept: k; a graph with fewer nodes is padded with zeros.
        channels: of each Z_t.
        filters: of the two convolutions, the first over one node at a time and the second over five.
        hidden: the dimension of the dense layer, whose output is the vector of a graph.
        dropout: on that vector.
    """

    def __init__(
        self,
        num_rows: int,
        node_features: Tensor | None = None,
        *,
        kept: int,
        channels: Sequence[int] = (32, 32, 32, 1),
        filters: tuple[int, int] = (16, 32),
        hidden: int = 128,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(num_rows, node_features, hidden)
        kept, total, self.dropout = max(kept, _SMALLEST), sum(channels), dropout
        pyg = extra("torch_geometric.nn")
        self.propagate = pyg.SimpleConv(aggr="mean", combine_root="self_loop")  # D^-1 (A + I)
        self.layers = nn.ModuleList(nn.Linear(*sizes, bias=False) for sizes in pairwise([self.inputs, *channels]))
        self.sort = pyg.SortAggregation(kept)
        self.first = nn.Linear(total, filters[0])  # a convolution over one node at a time
        self.pool = nn.MaxPool1d(2)
        self.second = nn.Conv1d(*filters, 5)
        self.dense = nn.Linear(filters[1] * (kept // 2 - 4), hidden)
        for layer in [*self.layers, self.first, self.second, self.dense]:
            nn.init.xavier_normal_(layer.weight)

    def forward(self, graph: RelationalGraph, rows: Tensor, graphs: int) -> Tensor:
        x, edges = self.start(rows), neighbours(graph)
        depths = []
        for layer in self.layers:
            x = self.propagate(layer(x), edges).tanh()
            depths.append(x)
        line = self.sort(torch.cat(depths, 1), graph.graph_of_node, dim_size=graphs)  # [G, k * total]
        nodes = self.first(line.view(graphs, self.sort.k, -1)).relu()  # [G, k, filters]
        places = self.pool(nodes.transpose(1, 2))  # [G, filters, k / 2]
        found = self.dense(self.second(places).relu().flatten(1)).relu()  # [G, hidden]
        return drop_out(found, self.dropout, self.training)


def usual_size(sizes: Numbers, share: float = 0.6) -> int:
    """The number of nodes that this share of the graphs, whose sizes these are [G], have at least."""
    return int(np.quantile(sizes, 1 - share, method="lower"))


def build_dgcnn(config: Config, data: GraphCollection, start: Start) -> GraphClassifier:
    """The classifier of a config; `encoder.dims` are those of propagation, after that of the input."""
    e, kept = config.encoder, usual_size(np.diff(data.node_starts))
    if len(e.dims) < 2:
        raise InputError(f"encoder.dims = {list(e.dims)}: dgcnn needs a dimension for each of its layers, at least one")
    network = DGCNN(start.size, start.vectors, kept=kept, channels=e.dims[1:], dropout=e.hidden_dropout)
    return classifier(network, data)
