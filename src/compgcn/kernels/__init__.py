"""A layer of rectified units between every query and every candidate, without an array of all the units.

    out[b, c] = sum over f, j of   w[f, j] · relu(q[b, f, j] + a[f] · e[c, j])

It is the score of ConvKB. With `on` the units that are positive, its gradients are made of sums over the candidates,
S = Σ_c g on and T = Σ_c g on e, and over the queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from compgcn.errors import InputError
from compgcn.kernels.backend import at_once, kernels, wide
from compgcn.kernels.combine import Combine
from compgcn.kernels.plan import Plan, Segments, cut, make_plan

__all__ = [
    "Groups",
    "Plan",
    "aggregate",
    "grouped_matmul",
    "l1_distance",
    "make_groups",
    "make_plan",
    "rectified_sum",
]


def aggregate(x: Tensor, z: Tensor, weight: Tensor | None, plan: Plan, combine: Combine) -> Tensor:
    """The weighted sum of combined messages, [rows, D], in the dtype of `x`; half precisions accumulate in float32.

    x [N, D], z [Z, D], weight [M] in the order the messages were given to `make_plan`; differentiable in all three.
    Without a weight the plan's own count, see `Plan.weighted`.
    """
    if combine is not Combine.COPY and z.shape[1] != x.shape[1]:
        raise InputError(f"entities of width {x.shape[1]} cannot be combined with relations of width {z.shape[1]}")
    if not torch.compiler.is_compiling():
        _check(x, z, weight, plan, combine)
    weight = plan.by_row.weight[:0] if weight is None else weight
    if at_once():
        run = kernels(x.device.type).segment_reduce
        out: Tensor = run(x, z.to(x.dtype), plan.by_row.weigh(weight), plan.by_row, combine)
        return out
    tensors = [tensor for segments in plan for tensor in segments]
    out = _aggregate(x, z.to(x.dtype), weight, tensors, combine)
    return out


def _check(x: Tensor, z: Tensor, weight: Tensor | None, plan: Plan, combine: Combine) -> None:
    """Refuse tables and weights that are not those the plan was made for: a kernel would read past their ends."""
    wanted = plan.by_sender.offsets.numel() - 1, plan.by_relation.offsets.numel() - 1
    if len(x) != wanted[0] or (combine is not Combine.COPY and len(z) != wanted[1]):
        raise InputError(f"the plan is of {wanted[0]} senders and {wanted[1]} relations, not of {len(x)} and {len(z)}")
    messages, own = plan.by_row.left.numel(), plan.by_row.weight.numel()
    if weight is not None and (own or weight.shape != (messages,)):
        given = "has its own" if own else f"is of {messages} messages, not of shape {list(weight.shape)}"
        raise InputError(f"a weight does not fit the plan, which {given}")
    if weight is None and messages and not own:
        raise InputError("a weight is missing: give one per message, or a plan with weights of its own")


@torch.library.custom_op("compgcn::segment_reduce", mutates_args=())
def _segment_reduce(a: Tensor, b: Tensor, weight: Tensor, segments: list[Tensor], op: int) -> Tensor:
    out: Tensor = kernels(a.device.type).segment_reduce(a, b, weight, Segments(*segments), op)
    return out


@_segment_reduce.register_fake
def _(a: Tensor, b: Tensor, weight: Tensor, segments: list[Tensor], op: int) -> Tensor:
    return a.new_empty(Segments(*segments).offsets.shape[0] - 1, a.shape[1])


def _reduce(a: Tensor, b: Tensor, weight: Tensor, s: Segments, op: Combine) -> Tensor:
    out: Tensor = _segment_reduce(a, b, weight, [*s], op)
    return out


@torch.library.custom_op("compgcn::edge_dot", mutates_args=())
def _edge_dot(g: Tensor, a: Tensor, b: Tensor, row: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    out: Tensor = kernels(a.device.type).edge_dot(g, a, b, row, left, right, op)
    return out


@_edge_dot.register_fake
def _(g: Tensor, a: Tensor, b: Tensor, row: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    return g.new_empty(left.shape[0], dtype=wide(g.dtype))


def _groupings(tensors: Sequence[Tensor]) -> Plan:
    """A plan passes through torch as one list of tensors."""
    size = len(Segments._fields)
    return Plan(*(Segments(*tensors[i : i + size]) for i in range(0, 3 * size, size)))


@torch.library.custom_op("compgcn::aggregate", mutates_args=())
def _aggregate(x: Tensor, z: Tensor, weight: Tensor, plan: list[Tensor], op: int) -> Tensor:
    by_row = _groupings(plan)[0]
    return _reduce(x, z, by_row.weigh(weight), by_row, Combine(op))


@_aggregate.register_fake
def _(x: Tensor, z: Tensor, weight: Tensor, plan: list[Tensor], op: int) -> Tensor:
    return x.new_empty(_groupings(plan).by_row.offsets.shape[0] - 1, x.shape[1])


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, z, weight, plan, op = inputs
    ctx.save_for_backward(x, z, weight, *plan)
    ctx.op = op


def _backward(ctx, g: Tensor):  # type: ignore[no-untyped-def]
    x, z, weight, *plan = ctx.saved_tensors
    by_row, by_sender, by_relation = _groupings(plan)
    g, op = g.contiguous(), Combine(ctx.op)
    dx = dz = dweight = None
    if ctx.needs_input_grad[0]:
        dx = gradient_by_x(g, z, by_sender.weigh(weight), by_sender, op)
    if ctx.needs_input_grad[1]:
        dz = gradient_by_z(g, x, z, by_relation.weigh(weight), by_relation, op)
    if ctx.needs_input_grad[2]:
        row = torch.empty_like(by_sender.left)
        row[by_sender.order] = by_sender.left
        left, right = torch.empty_like(by_row.left), torch.empty_like(by_row.right)
        left[by_row.order], right[by_row.order] = by_row.left, by_row.right
        dweight = _edge_dot(g, x, z, row, left, right, op).to(weight.dtype)
    return dx, dz, dweight, [None] * len(plan), None


def gradient_by_x(g: Tensor, z: Tensor, weight: Tensor, s: Segments, op: Combine) -> Tensor:
    """With s.left the rows of g and s.right those of z."""
    match op:
        case Combine.MULT:
            return _reduce(g, z, weight, s, Combine.MULT)
        case Combine.COMPLEX:  # g conj(z)
            return _reduce(z, g, weight, s.swapped(), Combine.CONJUGATE)
        case Combine.CONJUGATE:  # conj(g) z
            return _reduce(g, z, weight, s, Combine.CONJUGATE)
    return _reduce(g, z, weight, s, Combine.COPY)


def gradient_by_z(g: Tensor, x: Tensor, z: Tensor, weight: Tensor, s: Segments, op: Combine) -> Tensor:
    """With s.left the rows of g and s.right those of x."""
    match op:
        case Combine.ADD:
            return _reduce(g, x, weight, s, Combine.COPY)
        case Combine.SUB:
            return -_reduce(g, x, weight, s, Combine.COPY)
        case Combine.MULT:
            return _reduce(g, x, weight, s, Combine.MULT)
        case Combine.COMPLEX:  # g conj(x)
            return _reduce(x, g, weight, s.swapped(), Combine.CONJUGATE)
        case Combine.CONJUGATE:  # g x
            return _reduce(g, x, weight, s, Combine.COMPLEX)
    return torch.zeros_like(z)


_aggregate.register_autograd(_backward, setup_context=_setup)


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
def _distance_gradient(g: Tensor, q: Tensor, e: Tensor, planar: bool) -> Tensor:
    """By q, for g [B, C]: the sum over c of g[b, c] · slope(q_b − e_c), [B, d]. By e it is that of gᵀ, e and q.

    The slope of a real number is its sign, that of a complex number the number divided by its modulus.
    """
    out: Tensor = kernels(q.device.type).l1_gradient(g, q, e, planar)
    return out


@_distance_gradient.register_fake
def _(g: Tensor, q: Tensor, e: Tensor, planar: bool) -> Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


def _setup_distance(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.planar = inputs
    ctx.save_for_backward(*tensors)


def _distance_backward(ctx, g: Tensor):  # type: ignore[no-untyped-def]
    q, e = ctx.saved_tensors
    dq = _distance_gradient(g, q, e, ctx.planar) if ctx.needs_input_grad[0] else None
    de = _distance_gradient(g.t(), e, q, ctx.planar) if ctx.needs_input_grad[1] else None
    return dq, de, None


_distance.register_autograd(_distance_backward, setup_context=_setup_distance)


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


def _setup_grouped(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _grouped_backward(ctx, g: Tensor):  # type: ignore[no-untyped-def]
    rows, weight, offsets, chunks = ctx.saved_tensors
    g = g.contiguous()
    drows = _matmul(g, weight.transpose(2, 3).contiguous(), offsets, chunks) if ctx.needs_input_grad[0] else None
    dweight = _outer(rows, g, offsets) if ctx.needs_input_grad[1] else None
    return drows, dweight, None, None


_matmul.register_autograd(_grouped_backward, setup_context=_setup_grouped)


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
def _rectified_gradient(
    g: Tensor, q: Tensor, e: Tensor, slope: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """For g [B, C]: S and T [B, F, d], and the gradient by e."""
    out: tuple[Tensor, Tensor, Tensor] = kernels(q.device.type).rectified_gradient(g, q, e, slope, weight)
    return out


@_rectified_gradient.register_fake
def _(g: Tensor, q: Tensor, e: Tensor, slope: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    form = torch.contiguous_format
    return (
        torch.empty_like(q, memory_format=form),
        torch.empty_like(q, memory_format=form),
        torch.empty_like(e, memory_format=form),
    )


def _setup_rectified(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _rectified_backward(ctx, g: Tensor):  # type: ignore[no-untyped-def]
    q, e, slope, weight = ctx.saved_tensors
    on, on_e, de = _rectified_gradient(g.contiguous(), q, e, slope, weight)
    return (
        weight * on,
        de,
        (weight * on_e).sum((0, 2)),
        (q * on).sum(0) + slope.unsqueeze(1) * on_e.sum(0),
    )


_rectified_sum.register_autograd(_rectified_backward, setup_context=_setup_rectified)
