"""Rows of learned tables for entities that training never saw: what trained ones with such neighbours have.

The row of an entity has much to do with what its neighbours send it, and with how many they are. So a linear map from
that to the rows is fitted over the entities that have one, in closed form, and read off for those that have none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from compgcn.encoders import Encoder
from compgcn.graph import RelationalGraph
from compgcn.layers import CompGCNConv

_RIDGE = 1e-3  # of the size of each column: enough where there are fewer entities than columns
_LEAST = 1e-9  # of the largest: what keeps the system regular where a column is all zero
_BLOCK = 2**14  # rows that are looked at in float64 at a time


class Surroundings:
    """What is known of every node but for its own row; `self[i:j]` is [j - i, 2(d + 1)] in float64.

    That is (1, h) and log(1 + facts) (1, h), where h is what its neighbours send a node in the first layer.

    Args:
        received: h, [N, d].
        facts: how many facts each node has, [N].
    """

    def __init__(self, received: Tensor, facts: Tensor) -> None:
        self.received, self.facts = received, facts

    def __len__(self) -> int:
        return len(self.facts)

    def __getitem__(self, part: slice) -> Tensor:
        h = self.received[part].double()
        h = torch.cat((torch.ones_like(h[:, :1]), h), 1)
        return torch.cat((h, h * self.facts[part].double().log1p().unsqueeze(1)), 1)


@torch.no_grad()
def surroundings(encoder: Encoder, graph: RelationalGraph) -> Surroundings:
    """Of all nodes of a graph."""
    x, layer = encoder.nodes, encoder.layers[0]
    assert x is not None
    assert isinstance(layer, CompGCNConv)
    h = layer.received(x, None if encoder.relations is None else encoder.relations(), graph)
    return Surroundings(h, torch.bincount(torch.cat((graph.src, graph.dst)), minlength=graph.num_nodes))


def fitted_rows(known: Surroundings | Tensor, table: Tensor, wanted: Tensor) -> Tensor:
    """Rows [n, ..] for surroundings `wanted` [n, f], from a table [N, ..] and its own surroundings [N, f].

    Least squares with a ridge on every column but the first: a table whose rows are all alike gives that row. The sums
    over the N rows are made block by block.
    """
    flat = table.detach().reshape(len(table), -1)
    gram, right = wanted.new_zeros(wanted.shape[1], wanted.shape[1]), wanted.new_zeros(wanted.shape[1], flat.shape[1])
    for first in range(0, len(known), _BLOCK):
        block = known[first : first + _BLOCK]  # [b, f]
        gram += block.T @ block  # [f, f]
        right += block.T @ flat[first : first + _BLOCK].double()
    ridge = _RIDGE * gram.diagonal()
    ridge[0] = 0.0
    gram = gram + torch.diag(ridge.clamp_min(_LEAST * gram.diagonal().max()))
    rows: Tensor = wanted @ torch.linalg.solve(gram, right)
    return rows.to(table.dtype).view(-1, *table.shape[1:])
