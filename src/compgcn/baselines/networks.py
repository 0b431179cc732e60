"""GIN and DGCNN: networks that turn whole graphs into vectors."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.config import Config
from compgcn.data import GraphCollection
from compgcn.errors import InputError
from compgcn.nn.dropout import dropout as drop_out
from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.inputs import Start

# DGCNN: the least nodes that it keeps, for its second convolution takes five places of every other one; the filters of
# its two convolutions; and the dimension of the vector of a graph.
_SMALLEST, _FILTERS, _HIDDEN = 10, (16, 32), 128


class GraphNetwork(nn.Module):
    """The encoder of a graph classifier: `forward(graph, rows, graphs)` returns vectors [graphs, dim].

    Nodes start from one of the vectors of `start` [size, f], or from one of as many one-hot vectors.
    """

    node_features: Tensor | None
    dim: int

    def __init__(self, start: Start) -> None:
        super().__init__()
        vectors, self.num_rows = start.vectors, start.size
        self.inputs = start.size if vectors is None else vectors.shape[1]  # f
        self.register_buffer("node_features", vectors)

    def start(self, rows: Tensor) -> Tensor:
        """Return the inputs of nodes with these rows, [N, f] of [N]."""
        if self.node_features is not None:
            return F.embedding(rows, self.node_features)
        return F.one_hot(rows, self.num_rows).to(next(self.parameters()).dtype)


def neighbours(graph: RelationalGraph) -> Tensor:
    """Return the distinct pairs of nodes with an edge between them, in both directions, sorted [2, E]."""
    N = graph.num_nodes
    keys = torch.unique(torch.cat((graph.src * N + graph.dst, graph.dst * N + graph.src)))
    return torch.stack((keys // N, keys % N))


def extra(name: str) -> Any:
    """Import a library of the extra `baselines`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's own imports raise them
            return importlib.import_module(name)
    except ImportError:
        raise InputError(
            f"this baseline needs {name.partition('.')[0]}: install it with pip install 'compgcn[baselines]'"
        ) from None


class GIN(GraphNetwork):
    """h_v = MLP(h_v + sum_{u in N(v)} h_u), K times; the vector of a graph joins the sums of h at every depth.

    The paper adds a linear map of the sum at each depth 0 .. K, which is one linear map of all sums side by side. The
    dimensions are those of h in each of the K layers; the kinds of edges make no difference.
    """

    def __init__(self, start: Start, *, dims: Sequence[int], dropout: float = 0.5) -> None:
        super().__init__(start)
        self.dim, self.dropout = self.inputs + sum(dims), dropout
        pyg = extra("torch_geometric.nn")
        self._sum = pyg.global_add_pool
        self.layers = nn.ModuleList(
            pyg.GINConv(nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Linear(b, b)))
            for a, b in pairwise([self.inputs, *dims])
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for dim in dims)

    def forward(self, graph: RelationalGraph, rows: Tensor, graphs: int) -> Tensor:
        x, edges = self.start(rows), neighbours(graph)
        depths = [x]
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x, edges)).relu()  # [N, dim]
            depths.append(x)
        sums = self._sum(torch.cat(depths, 1), graph.graph_of_node, graphs)  # [G, d]
        return drop_out(sums, self.dropout, self.training)


def build_gin(config: Config, data: GraphCollection, start: Start) -> GIN:
    """Build the network of a config; `encoder.dims` are those of the input and the layers."""
    return GIN(start, dims=config.encoder.dims[1:], dropout=config.encoder.hidden_dropout)


class DGCNN(GraphNetwork):
    """Z_t = tanh(D^-1 (A + I) Z_{t-1} W_t), then convolutions over the nodes in the order of the last channel.

    The first k nodes of a graph, with their vectors of all depths side by side, make an image of one line. A has no
    kinds of edges.

    Args:
        kept: k; a graph with fewer nodes is padded with zeros.
        dims: of each Z_t.
        dropout: on the vector of a graph.
    """

    def __init__(self, start: Start, *, kept: int, dims: Sequence[int], dropout: float = 0.5) -> None:
        super().__init__(start)
        kept, self.dim, self.dropout = max(kept, _SMALLEST), _HIDDEN, dropout
        pyg = extra("torch_geometric.nn")
        self.propagate = pyg.SimpleConv(aggr="mean", combine_root="self_loop")  # D^-1 (A + I)
        self.layers = nn.ModuleList(nn.Linear(*sizes, bias=False) for sizes in pairwise([self.inputs, *dims]))
        self.sort = pyg.SortAggregation(kept)
        self.first = nn.Linear(sum(dims), _FILTERS[0])  # a convolution over one node at a time
        self.pool = nn.MaxPool1d(2)
        self.second = nn.Conv1d(*_FILTERS, 5)
        self.dense = nn.Linear(_FILTERS[1] * (kept // 2 - 4), _HIDDEN)
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


def build_dgcnn(config: Config, data: GraphCollection, start: Start) -> DGCNN:
    """Build the network of a config; `encoder.dims` are those of the input and of propagation.

    It keeps as many nodes of a graph as 60 % of the graphs have at least.
    """
    e, kept = config.encoder, int(np.quantile(np.diff(data.node_starts), 1 - 0.6, method="lower"))
    if len(e.dims) < 2:
        raise InputError(f"encoder.dims = {list(e.dims)}: dgcnn needs a dimension for each of its layers, at least one")
    return DGCNN(start, kept=kept, dims=e.dims[1:], dropout=e.hidden_dropout)
