"""The definition of aggregation in plain torch, and the oracle every other backend is tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from compgcn.compose import Combine, combined
from compgcn.kernels.plan import Segments


def _combined(a: Tensor, b: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    """One row per message, [M, D]. A copy never looks at `b`, which may be a placeholder without those rows."""
    return a[left] if op == Combine.COPY else combined(Combine(op), a[left], b[right])


def segment_reduce(a: Tensor, b: Tensor, weight: Tensor, s: Segments, op: int) -> Tensor:
    """out[v] = sum over e in [offsets[v], offsets[v + 1]) of weight[e] * combine(a[left[e]], b[right[e]])."""
    rows = s.offsets.numel() - 1
    row = torch.repeat_interleave(torch.arange(rows, device=a.device), s.offsets.diff(), output_size=s.left.numel())
    message = weight.unsqueeze(-1) * _combined(a, b, s.left, s.right, op)  # [M, D]
    return a.new_zeros(rows, a.shape[1]).index_add_(0, row, message)


def edge_dot(g: Tensor, a: Tensor, b: Tensor, row: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    """out[e] = <g[row[e]], combine(a[left[e]], b[right[e]])>: the gradient of a weighted sum by its weights."""
    return (g[row] * _combined(a, b, left, right, op)).sum(-1)
