"""Similarities of a query with candidates: higher is better.

Each takes queries q [B, d] and candidates e, either shared [C, d] or one list per query [B, C, d], and gives [B, C].
"""

from __future__ import annotations

import torch
from torch import Tensor

# The backward pass of torch.cdist may lay out one number per query, candidate and dimension; candidates are taken in
# blocks small enough to keep that array at this many elements.
_BLOCK = 2**26


def dot(q: Tensor, e: Tensor) -> Tensor:
    """qᵀe."""
    if e.ndim == 2:
        return q @ e.t()
    return (e @ q.unsqueeze(-1)).squeeze(-1)  # [B, C, d] @ [B, d, 1]


def negative_l1(q: Tensor, e: Tensor) -> Tensor:
    """−‖q − e‖₁; with shared candidates no array [B, C, d] is made."""
    if e.ndim == 3:
        return -(q.unsqueeze(1) - e).abs().sum(-1)
    rows = max(1, _BLOCK // max(1, q.numel()))
    if len(e) <= rows:
        return -torch.cdist(q, e, p=1.0)
    return -torch.cat([torch.cdist(q, part, p=1.0) for part in torch.split(e, rows)], 1)
