"""The part of a graph that a rank computes: the edges at its rows, and the halo of their other ends."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from compgcn.kernels.backend import wide
from compgcn.nn.graph import RelationalGraph
from compgcn.shards.rows import Lookup, Rows


def edges_at(rows: Rows, graph: RelationalGraph) -> RelationalGraph:
    """Return the edges that begin or end at a rank's rows; nodes keep their numbers among all N."""
    here = rows.hold(graph.src) | rows.hold(graph.dst)
    return RelationalGraph(graph.src[here], graph.dst[here], graph.rel[here], graph.num_nodes, graph.num_relations)


class Part(RelationalGraph):
    """A rank's nodes, then its halo, the nodes of other ranks that its edges reach; only its own nodes receive.

    Before each layer the rank looks the vectors of the halo up. It knows all edges at its nodes, so that it counts
    their messages itself, and looks those of the halo up too: messages have their weights in the whole graph.

    Args:
        graph: all edges at the rank's rows, with nodes numbered among all N, see `edges_at`; others are not allowed.
    """

    def __init__(self, rows: Rows, graph: RelationalGraph) -> None:
        ends = torch.stack((graph.src, graph.dst))
        mine = rows.hold(ends)
        halo = torch.unique(ends[~mine])
        src, dst = torch.where(mine, ends - rows.start, rows.size + torch.searchsorted(halo, ends))
        super().__init__(src, dst, graph.rel, rows.size + len(halo), graph.num_relations)
        self.num_receivers, self._halo = rows.size, Lookup(rows, halo)
        whole = RelationalGraph(src, dst, graph.rel, self.num_nodes, graph.num_relations)
        whole.complete = lambda counts: self.senders(counts[: rows.size])
        every = torch.arange(max(self.num_edges, rows.size), device=src.device)
        self._part_of = whole, every[: self.num_edges], every[: rows.size]

    def senders(self, x: Tensor) -> Tensor:
        """Return the vectors of the rank's nodes and of the halo, for those x [n, d] of its nodes."""
        return torch.cat((x, self._halo.rows(x)))


class SharedNorm(nn.BatchNorm1d):
    """Batch norm over the rows of all ranks, [n, d] of each."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def __init__(self, norm: nn.BatchNorm1d, rows: Rows) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum)
        self.load_state_dict(norm.state_dict())
        self.to(norm.weight)
        self._rows = rows

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows with mean 0 and variance 1 over all ranks, or in evaluation by the running figures."""
        if not self.training:
            return super().forward(x)
        total, pooled = self._rows.total, self._rows.world.pooled
        own = x.to(wide(x.dtype))
        mean = pooled(own.sum(0)) / total
        centred = own - mean
        variance = pooled(centred.square().sum(0)) / total
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean.detach().to(self.running_mean.dtype), self.momentum)
        unbiased = variance.detach() * (total / max(total - 1, 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return (centred * (variance + self.eps).rsqrt() * self.weight + self.bias).to(x.dtype)
