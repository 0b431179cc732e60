"""The sum of absolute differences of every query with every candidate, without an array of all the differences."""

from __future__ import annotations

import torch
from torch import Tensor

from compgcn.kernels.backend import kernels


def l1_distance(q: Tensor, e: Tensor) -> Tensor:
    """‖q_b − e_c‖₁ for q [B, d] and e [C, d]: [B, C]; differentiable in both."""
    out: Tensor = _distance(q, e.to(q.dtype))
    return out


@torch.library.custom_op("compgcn::l1_distance", mutates_args=())
def _distance(q: Tensor, e: Tensor) -> Tensor:
    out: Tensor = kernels(q.device.type).l1_distance(q, e)
    return out


@_distance.register_fake
def _(q: Tensor, e: Tensor) -> Tensor:
    return q.new_empty(q.shape[0], e.shape[0])


@torch.library.custom_op("compgcn::l1_gradient", mutates_args=())
def _gradient(g: Tensor, q: Tensor, e: Tensor) -> Tensor:
    """By q, for g [B, C]: the sum over c of g[b, c] · sign(q_b − e_c), [B, d]. By e it is that of gᵀ, e and q."""
    out: Tensor = kernels(q.device.type).l1_gradient(g, q, e)
    return out


@_gradient.register_fake
def _(g: Tensor, q: Tensor, e: Tensor) -> Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _backward(ctx, g: Tensor):  # type: ignore[no-untyped-def]
    q, e = ctx.saved_tensors
    dq = _gradient(g.contiguous(), q, e) if ctx.needs_input_grad[0] else None
    de = _gradient(g.t().contiguous(), e, q) if ctx.needs_input_grad[1] else None
    return dq, de


_distance.register_autograd(_backward, setup_context=_setup)
