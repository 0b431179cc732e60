"""A layer of rectified units between every query and every candidate, without an array of all the units.

    out[b, c] = sum over f, j of   w[f, j] · relu(q[b, f, j] + a[f] · e[c, j])

It is the score of ConvKB. With `on` the units that are positive, its gradients are made of sums over the candidates,
S = Σ_c g on and T = Σ_c g on e, and over the queries.
"""

from __future__ import annotations

import torch
from torch import Tensor

from compgcn.kernels.backend import at_once, kernels


def rectified_sum(q: Tensor, e: Tensor, slope: Tensor, weight: Tensor) -> Tensor:
    """The sums [B, C] for q [B, F, d], e [C, d] or a list per query [B, C, d], slope [F] and weight [F, d].

    Differentiable in all four.
    """
    run = kernels(q.device.type).rectified_sum if at_once() else _rectified_sum
    out: Tensor = run(q, e.to(q.dtype), slope.to(q.dtype), weight.to(q.dtype))
    return out


@torch.library.custom_op("compgcn::rectified_sum", mutates_args=())
def _rectified_sum(q: Tensor, e: Tensor, slope: Tensor, weight: Tensor) -> Tensor:
    out: Tensor = kernels(q.device.type).rectified_sum(q, e, slope, weight)
    return out


@_rectified_sum.register_fake
def _(q: Tensor, e: Tensor, slope: Tensor, weight: Tensor) -> Tensor:
    return q.new_empty(q.shape[0], e.shape[-2])


@torch.library.custom_op("compgcn::rectified_gradient", mutates_args=())
def _gradient(g: Tensor, q: Tensor, e: Tensor, slope: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For g [B, C]: S and T [B, F, d], and the gradient by e."""
    out: tuple[Tensor, Tensor, Tensor] = kernels(q.device.type).rectified_gradient(g, q, e, slope, weight)
    return out


@_gradient.register_fake
def _(g: Tensor, q: Tensor, e: Tensor, slope: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    form = torch.contiguous_format
    return (
        torch.empty_like(q, memory_format=form),
        torch.empty_like(q, memory_format=form),
        torch.empty_like(e, memory_format=form),
    )


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _backward(ctx, g: Tensor):  # type: ignore[no-untyped-def]
    q, e, slope, weight = ctx.saved_tensors
    on, on_e, de = _gradient(g.contiguous(), q, e, slope, weight)
    return (
        weight * on,
        de,
        (weight * on_e).sum((0, 2)),
        (q * on).sum(0) + slope.unsqueeze(1) * on_e.sum(0),
    )


_rectified_sum.register_autograd(_backward, setup_context=_setup)
