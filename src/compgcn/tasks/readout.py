"""Readouts: from the vectors of the nodes of many graphs to one vector for each graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from compgcn.errors import unknown


def _sum(x: Tensor, graph_of: Tensor, graphs: int) -> Tensor:
    return x.new_zeros(graphs, x.shape[1]).index_add(0, graph_of, x)


def _mean(x: Tensor, graph_of: Tensor, graphs: int) -> Tensor:
    """The paper's: the average over the nodes of a graph."""
    return _sum(x, graph_of, graphs) / torch.bincount(graph_of, minlength=graphs).unsqueeze(1)


def _max(x: Tensor, graph_of: Tensor, graphs: int) -> Tensor:
    start = x.new_full((graphs, x.shape[1]), -torch.inf)
    return start.scatter_reduce(0, graph_of.unsqueeze(1).expand_as(x), x, "amax")


READOUTS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {"mean": _mean, "sum": _sum, "max": _max}
NAMES = (*READOUTS, "attention")


class Readout(nn.Module):
    """x [N, d] and the graph of each node [N] -> [G, d], every graph having a node at least.

    Args:
        name: "mean", "sum", "max", or "attention": a mean whose weights are a softmax over the nodes of a graph of
            a learned linear score.
        dim: d.
    """

    gate: nn.Parameter | None

    def __init__(self, name: str, dim: int) -> None:
        super().__init__()
        if name not in NAMES:
            raise unknown("readout", name, NAMES)
        self.name = name
        self.gate = nn.Parameter(nn.init.xavier_normal_(torch.empty(dim, 1))) if name == "attention" else None

    def forward(self, x: Tensor, graph_of: Tensor, graphs: int) -> Tensor:
        """The vectors of the graphs."""
        if self.gate is None:
            return READOUTS[self.name](x, graph_of, graphs)
        score = x @ self.gate  # [N, 1]
        weight = (score - _max(score.detach(), graph_of, graphs)[graph_of]).exp()
        return _sum(weight * x, graph_of, graphs) / _sum(weight, graph_of, graphs)
