"""The L1 distance of every query with every candidate, without an array of all the differences."""

from __future__ import annotations

import torch
from torch import Tensor

from compgcn.kernels.backend import at_once, kernels


def l1_distance(q: Tensor, e: Tensor, *, planar: bool = False) -> Tensor:
    """‖q_b − e_c‖₁ for q [B, d] and e [C, d]: [B, C]; differentiable in both.

    With `planar` the vectors are of d/2 complex numbers, all real parts before all imaginary parts, and what is added
    up are the moduli of their differences. The slope of a difference of 0 is 0.
    """
    run = kernels(q.device.type).l1_distance if at_once() else _distance
    out: Tensor = run(q, e.to(q.dtype), planar)
    return out


@torch.library.custom_op("compgcn::l1_distance", mutates_args=())
def _distance(q: Tensor, e: Tensor, planar: bool) -> Tensor:
    out: Tensor = kernels(q.device.type).l1_distance(q, e, planar)
    return out


@_distance.register_fake
def _(q: Tensor, e: Tensor, planar: bool) -> Tensor:
    return q.new_empty(q.shape[0], e.shape[0])


@torch.library.custom_op("compgcn::l1_gradient", mutates_args=())
def _gradient(g: Tensor, q: Tensor, e: Tensor, planar: bool) -> Tensor:
    """By q, for g [B, C]: the sum over c of g[b, c] · slope(q_b − e_c), [B, d]. By e it is that of gᵀ, e and q.

    The slope of a real number is its sign, that of a complex number the number divided by its modulus.
    """
    out: Tensor = kernels(q.device.type).l1_gradient(g, q, e, planar)
    return out


@_gradient.register_fake
def _(g: Tensor, q: Tensor, e: Tensor, planar: bool) -> Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.planar = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx, g: Tensor):  # type: ignore[no-untyped-def]
    q, e = ctx.saved_tensors
    dq = _gradient(g, q, e, ctx.planar) if ctx.needs_input_grad[0] else None
    de = _gradient(g.t(), e, q, ctx.planar) if ctx.needs_input_grad[1] else None
    return dq, de, None


_distance.register_autograd(_backward, setup_context=_setup)
