"""Similarities of a query with candidates: higher is better.

Each takes queries q [B, d] and candidates e, either shared [C, d] or one list per query [B, C, d], and gives [B, C].
"""

from __future__ import annotations

import torch
from torch import Tensor

from compgcn.kernels import l1_distance


def dot(q: Tensor, e: Tensor) -> Tensor:
    """qᵀe."""
    if e.ndim == 2:
        # Tensor cores load whole vectors: if rows of N scores would begin between two, those of B may not.
        turned = e.is_cuda and e.requires_grad and len(e) % 8 != 0
        return (e @ q.t()).t() if turned else q @ e.t()
    return (e @ q.unsqueeze(-1)).squeeze(-1)  # [B, C, d] @ [B, d, 1]


def negative_l1(q: Tensor, e: Tensor) -> Tensor:
    """−‖q − e‖₁; with shared candidates no array [B, C, d] is made."""
    return -l1_distance(q, e) if e.ndim == 2 else -(q.unsqueeze(1) - e).abs().sum(-1)


def negative_complex_l1(q: Tensor, e: Tensor) -> Tensor:
    """−‖q − e‖₁ of complex vectors, the sum of the moduli; real parts first, then imaginary parts."""
    if e.ndim == 2:
        return -l1_distance(q, e, planar=True)
    planes = torch.stack((q.unsqueeze(1) - e).chunk(2, -1))
    moduli: Tensor = torch.linalg.vector_norm(planes, dim=0)  # its gradient at 0 is 0, which that of hypot is not
    return -moduli.sum(-1)
