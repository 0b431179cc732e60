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


@torch.no_grad()
def surroundings(encoder: Encoder, graph: RelationalGraph) -> Tensor:
    """What is known of every node but for its own row, [N, 2(d + 1)] in float64.

    That is (1, h) and log(1 + facts) (1, h), where h [N, d] is what its neighbours send it in the first layer.
    """
    x, layer = encoder.nodes, encoder.layers[0]
    assert x is not None
    assert isinstance(layer, CompGCNConv)
    h = layer.received(x, None if encoder.relations is None else encoder.relations(), graph).double()
    facts = torch.bincount(torch.cat((graph.src, graph.dst)), minlength=graph.num_nodes)
    h = torch.cat((torch.ones_like(h[:, :1]), h), 1)
    return torch.cat((h, h * facts.double().log1p().unsqueeze(1)), 1)


def fitted_rows(known: Tensor, table: Tensor, wanted: Tensor) -> Tensor:
    """Rows [n, ..] for surroundings `wanted` [n, f], from a table [N, ..] and its own surroundings [N, f].

    Least squares with a ridge on every column but the first: a table whose rows are all alike gives that row.
    """
    gram = known.T @ known  # [f, f]
    ridge = _RIDGE * gram.diagonal()
    ridge[0] = 0.0
    gram = gram + torch.diag(ridge.clamp_min(_LEAST * gram.diagonal().max()))
    flat = table.detach().double().reshape(len(table), -1)
    rows: Tensor = wanted @ torch.linalg.solve(gram, known.T @ flat)
    return rows.to(table.dtype).view(-1, *table.shape[1:])
