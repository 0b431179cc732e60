"""A product per group: rows of relation r times the filter of relation r, without a launch per relation.

    out[p, b] = rows[p, b] @ weight[group of p, b]

Rows are sorted by group. B diagonal blocks are multiplied apart; a full filter is one block.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from compgcn.kernels.backend import at_once, kernels
from compgcn.kernels.plan import cut


class Groups(NamedTuple):
    """Rows sorted by group: those of group r are `[offsets[r], offsets[r + 1])`."""

    offsets: Tensor  # [Z + 1]
    chunks: Tensor  # [P, 4] (group, start, end, slot), as in `Segments`


def make_groups(group: Tensor, size: int) -> Groups:
    """The groups of rows whose group numbers [P] ascend, out of `size`."""
    offsets = torch.searchsorted(group, torch.arange(size + 1, device=group.device))
    return Groups(offsets, cut(offsets, group.numel())[0])


def grouped_matmul(rows: Tensor, weight: Tensor, groups: Groups) -> Tensor:
    """rows [P, B, in], weight [Z, B, in, out] -> [P, B, out]; differentiable in both."""
    run = kernels(rows.device.type).grouped_matmul if at_once() else _matmul
    out: Tensor = run(rows, weight.to(rows.dtype), *groups)
    return out


@torch.library.custom_op("compgcn::grouped_matmul", mutates_args=())
def _matmul(rows: Tensor, weight: Tensor, offsets: Tensor, chunks: Tensor) -> Tensor:
    out: Tensor = kernels(rows.device.type).grouped_matmul(rows, weight, offsets, chunks)
    return out


@_matmul.register_fake
def _(rows: Tensor, weight: Tensor, offsets: Tensor, chunks: Tensor) -> Tensor:
    return rows.new_empty(*rows.shape[:2], weight.shape[3])


@torch.library.custom_op("compgcn::grouped_outer", mutates_args=())
def _outer(rows: Tensor, g: Tensor, offsets: Tensor) -> Tensor:
    out: Tensor = kernels(rows.device.type).grouped_outer(rows, g, offsets)
    return out


@_outer.register_fake
def _(rows: Tensor, g: Tensor, offsets: Tensor) -> Tensor:
    return rows.new_empty(offsets.shape[0] - 1, *rows.shape[1:], g.shape[2])


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _backward(ctx, g: Tensor):  # type: ignore[no-untyped-def]
    rows, weight, offsets, chunks = ctx.saved_tensors
    g = g.contiguous()
    drows = _matmul(g, weight.transpose(2, 3).contiguous(), offsets, chunks) if ctx.needs_input_grad[0] else None
    dweight = _outer(rows, g, offsets) if ctx.needs_input_grad[1] else None
    return drows, dweight, None, None


_matmul.register_autograd(_backward, setup_context=_setup)
