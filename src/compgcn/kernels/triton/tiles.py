"""What the kernels share: how a tile is loaded, and what sums are made in."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from compgcn.kernels.backend import wide


@triton.jit
def load_tile(BASE, rows, cols, R, W, S, ACC: tl.constexpr):
    """A tile of a matrix of R rows, S apart, and W columns; 0 outside of it."""
    mask = (rows < R)[:, None] & (cols < W)[None, :]
    return tl.load(BASE + rows[:, None] * S + cols[None, :], mask=mask, other=0.0).to(ACC)


def sum_type(dtype: torch.dtype) -> Any:
    return tl.float64 if wide(dtype) == torch.float64 else tl.float32
