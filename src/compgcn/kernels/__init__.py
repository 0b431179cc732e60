"""Aggregation, the one operation of every layer: gather two rows, combine them, add them up.

    out[v] = sum over messages e = (u, r) -> v of   weight_e * combine(x[u], z[r])

`x` [N, D] and `z` [Z, D] are lifted tables (`compgcn.compose`), a row v is a receiver, or a receiver and a direction.
The gradients are the same operation again: by x over the messages grouped by sender, by z grouped by relation. A `Plan`
holds the three groupings, built once per graph. The operation is registered with torch, so autograd, torch.compile
and autocast see it as one node, and it never stores a message per edge.

The backend follows the device: Triton on CUDA, Numba on the CPU, plain torch elsewhere or where they are missing.
COMPGCN_KERNEL=reference|numba|triton overrides it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compgcn.compose import Combine
from compgcn.errors import InputError
from compgcn.kernels.backend import at_once, kernels, wide
from compgcn.kernels.distance import l1_distance
from compgcn.kernels.grouped import Groups, grouped_matmul, make_groups
from compgcn.kernels.plan import Plan, Segments, make_plan
from compgcn.kernels.rectified import rectified_sum

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
