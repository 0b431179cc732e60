"""What graph networks from elsewhere share: what their nodes start from, and edges that have no kind or direction."""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.config import Classifier, Config, Encoder, differences
from compgcn.data import GraphCollection
from compgcn.errors import InputError
from compgcn.graph import RelationalGraph
from compgcn.tasks.classification import GraphClassifier


class GraphNetwork(nn.Module):
    """From graphs to vectors: the encoder of a classifier of graphs.

    Args:
        num_rows: how many kinds of nodes there are, each its own one-hot vector.
        node_features: given vectors [num_rows, f] in place of these.
        dim: d, of the vectors.
    """

    node_features: Tensor | None

    def __init__(self, num_rows: int, node_features: Tensor | None, dim: int) -> None:
        super().__init__()
        self.num_rows, self.dim = num_rows, dim
        self.register_buffer("node_features", node_features)

    @property
    def inputs(self) -> int:
        """The dimension nodes start with, f."""
        return self.num_rows if self.node_features is None else self.node_features.shape[1]

    def start(self, rows: Tensor) -> Tensor:
        """The vectors of nodes with these rows [N], [N, f]."""
        if self.node_features is not None:
            return F.embedding(rows, self.node_features)
        return F.one_hot(rows, self.num_rows).to(next(self.parameters()).dtype)

    def forward(self, graph: RelationalGraph, rows: Tensor, graphs: int) -> Tensor:
        """The vectors of a disjoint union of graphs, [graphs, d].

        Args:
            graph: the union, of N nodes; those of a graph stand together.
            rows: the kind of each node [N], or the row of its features.
            graphs: how many there are, each of at least one node.
        """
        raise NotImplementedError


def classifier(network: GraphNetwork, data: GraphCollection) -> GraphClassifier:
    """The network and a linear map to the classes of the data."""
    return GraphClassifier(network, network.dim, len(data.classes))


def neighbours(graph: RelationalGraph) -> Tensor:
    """The pairs of nodes with an edge between them, in both directions and once each, [2, E], sorted."""
    N = graph.num_nodes
    keys = torch.unique(torch.cat((graph.src * N + graph.dst, graph.dst * N + graph.src)))
    return torch.stack((keys // N, keys % N))


@cache
def extra(name: str) -> Any:
    """A library of the extra `baselines`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the library itself imports: nobody here can help it
            return importlib.import_module(name)
    except ImportError:
        raise InputError(
            f"this baseline needs {name.partition('.')[0]}: install it with pip install 'compgcn[baselines]'"
        ) from None


def must_be_used(config: Config) -> None:
    """Refuse settings of an encoder that mean nothing to these networks."""
    e, c = config.encoder, config.classifier
    plain = config.model_copy(
        update={
            "encoder": Encoder(input=e.input, dims=e.dims, hidden_dropout=e.hidden_dropout, graph=e.graph),
            "classifier": c.model_copy(update={"readout": Classifier().readout}),
        }
    )
    for change in differences(plain, config):
        setting = change.partition(":")[0]
        raise InputError(f"the baseline '{c.baseline}' is a network of its own and has no {setting}; leave it out")
