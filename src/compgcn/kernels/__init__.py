"""The fused operations over the edges of a graph and over candidates, with their gradients.

Each operation is a `torch.autograd.Function` around the kernels of the device at hand (`compgcn.kernels.backend`); the
definition of every kernel is in `compgcn.kernels.reference`. The gradients of a sum over messages are sums over the
same messages, grouped by sender and by relation (`compgcn.kernels.plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from compgcn.errors import InputError
from compgcn.kernels import reference
from compgcn.kernels.backend import kernels, wide
from compgcn.kernels.plan import Groups, PairPlan, Plan, Segments, make_groups, make_pair_plan, make_plan
from compgcn.kernels.reference import Combine, rounded_messages, rows_of

__all__ = [
    "Combine",
    "Groups",
    "Own",
    "PairPlan",
    "Plan",
    "Segments",
    "Statistics",
    "aggregate",
    "grouped_matmul",
    "l1_distance",
    "make_groups",
    "make_pair_plan",
    "make_plan",
    "statistics",
    "update",
]

_BLOCK = 2**24  # numbers of messages that one step of a gradient by weights lays out


class Own(NamedTuple):
    """One more message of weight 1 that has a value in one row of each column, and is zero elsewhere."""

    row: Tensor  # of each column, [D]
    value: Tensor  # [D]


class Statistics(NamedTuple):
    """Statistics of the messages m of each row, [rows, D] each."""

    sum: Tensor  # Σ w m
    square: Tensor  # Σ w m²
    largest: Tensor  # -inf in a row without messages
    smallest: Tensor  # inf in a row without messages


def aggregate(
    x: Tensor, z: Tensor, weight: Tensor | None, plan: Plan, combine: Combine, own: Own | None = None,
    only: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the sum of weight · combine(x[sender], z[relation]) over the messages of each row, [rows, D].

    The sums have the dtype of `x`; half precisions add in float32.

    Args:
        x: entities [N, D].
        z: relations [Z, D]; a copy never reads them.
        weight: [M], in the order in which `make_plan` got the messages; None for the weights of the plan.
        plan: the M messages, see `make_plan`.
        combine: what happens on an edge.
        own: a message that rows get besides.
        only: the one row of x that may differ from zero in each column, [D]; the gradient by the others is zero. Sums
            of products leave out the rows that are zero.
    """
    if not torch.compiler.is_compiling():
        _check(x, z, weight, plan, combine)
    weight = plan.by_row.weight[:0] if weight is None else weight
    tables = x, z.to(x.dtype), weight, *_own(own, x, plan), plan.by_row.order[:0] if only is None else only
    out: Tensor = _Aggregate.apply(*tables, int(combine), *chain(*plan))  # type: ignore[no-untyped-call]
    return out


def statistics(
    x: Tensor, z: Tensor, weight: Tensor, plan: PairPlan, combine: Combine, own: Own | None = None
) -> Statistics:
    """Return statistics of combined messages in one pass, in the dtype of `x`; half precisions add in float32.

    Every message is rounded to that dtype first. A message of weight 0 is absent; any other weight counts in the sums
    alone. Messages that equal an extreme share its gradient evenly, and leave nothing for an own message that equals
    it too; the extremes have no gradient by the weight.

    Args:
        x, z, combine, own: as for `aggregate`.
        weight: [M], in the order in which `make_pair_plan` got the messages.
        plan: the M messages, see `make_pair_plan`.
    """
    if not torch.compiler.is_compiling():
        _check(x, z, weight, plan.messages, combine)
    used = (plan.messages.by_row, plan.by_pair, *plan.pairs)  # the whole plan holds some tensors twice
    tables = x, z.to(x.dtype), weight, *_own(own, x, plan.messages)
    found = _Statistics.apply(*tables, int(combine), *chain(*used))  # type: ignore[no-untyped-call]
    return Statistics(found[0], found[1], found[2], found[3])


def _own(own: Own | None, x: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """Return value and row; empty without own messages."""
    return (x.new_empty(0), plan.by_row.order[:0]) if own is None else (own.value.to(x.dtype), own.row)


def _cells(row: Tensor) -> tuple[Tensor, Tensor]:
    """Return where a table has the row of each column."""
    return row, torch.arange(row.numel(), device=row.device)


def l1_distance(q: Tensor, e: Tensor, *, planar: bool = False) -> Tensor:
    """Return ‖q_b − e_c‖₁, [B, C], for q [B, d] and e [C, d].

    With `planar` the vectors are d/2 complex numbers, real parts first, and the distance is the sum of the moduli.
    """
    out: Tensor = _Distance.apply(q, e.to(q.dtype), planar)  # type: ignore[no-untyped-call]
    return out


def grouped_matmul(rows: Tensor, weight: Tensor, groups: Groups) -> Tensor:
    """Multiply rows [P, B, in] by the matrices of their groups, weight [Z, B, in, out]: [P, B, out]."""
    out: Tensor = _GroupedMatmul.apply(rows, weight.to(rows.dtype), *groups)  # type: ignore[no-untyped-call]
    return out


def _check(x: Tensor, z: Tensor, weight: Tensor | None, plan: Plan, combine: Combine) -> None:
    """Refuse tables and weights that the plan was not made for: a kernel would read past their ends."""
    senders, relations = plan.by_sender.offsets.numel() - 1, plan.by_relation.offsets.numel() - 1
    if combine is not Combine.COPY and z.shape[1] != x.shape[1]:
        raise InputError(f"entities of width {x.shape[1]} cannot be combined with relations of width {z.shape[1]}")
    if len(x) != senders or (combine is not Combine.COPY and len(z) != relations):
        raise InputError(f"the plan is of {senders} senders and {relations} relations, not of {len(x)} and {len(z)}")
    messages, own = plan.by_row.left.numel(), plan.by_row.weight.numel()
    if weight is None and messages and not own:
        raise InputError("a weight is missing: give one per message, or a plan with weights of its own")
    if weight is not None and (own or weight.shape != (messages,)):
        given = "has its own" if own else f"is of {messages} messages, not of shape {list(weight.shape)}"
        raise InputError(f"a weight does not fit the plan, which {given}")


def _kernel(name: str, device: torch.device) -> Callable[..., Tensor]:
    """Return a kernel by name: called directly, or as a registered operation while torch compiles.

    A registered operation costs about 100 µs a call and loads the compiler, so eager code never goes through one.
    """
    source = torch.ops.compgcn if torch.compiler.is_compiling() else kernels(device.type)
    kernel: Callable[..., Tensor] = getattr(source, name)
    return kernel


def _given(segments: Segments) -> Segments | list[Tensor]:
    """Return segments as a kernel takes them: a registered operation knows lists alone."""
    return list(segments) if torch.compiler.is_compiling() else segments


def segment_sum(
    a: Tensor, b: Tensor, weight: Tensor, segments: Segments, op: int, only: Tensor | None = None, side: int = 0
) -> Tensor:
    """Return the sum over each segment of weight · op(a[left], b[right]); `weight` is by message id."""
    weight = segments.weight if segments.weight.numel() else weight[segments.order]
    products = (Combine.MULT, Combine.COMPLEX, Combine.CONJUGATE)
    promise: tuple[object, ...] = ()
    if only is not None and not torch.compiler.is_compiling() and op in products and only.numel():
        promise = (only, side)
    return _kernel("segment_reduce", a.device)(a, b, weight, _given(segments), int(op), *promise)


def _gradient_by_x(g: Tensor, z: Tensor, weight: Tensor, s: Segments, op: int, only: Tensor | None = None) -> Tensor:
    """Return the gradient of `aggregate` by x; s.left are rows of g, s.right rows of z."""
    match op:
        case Combine.COPY | Combine.ADD | Combine.SUB:  # g
            return segment_sum(g, z, weight, s, Combine.COPY)
        case Combine.MULT | Combine.CONJUGATE:  # g z, and conj(g) z
            return segment_sum(g, z, weight, s, op, only, reference.ROW)
        case Combine.COMPLEX:  # g conj(z)
            return segment_sum(z, g, weight, s.swapped(), Combine.CONJUGATE)
    raise ValueError(f"the combination {op} has no gradient")


def _gradient_by_z(
    g: Tensor, x: Tensor, z: Tensor, weight: Tensor, s: Segments, op: int, only: Tensor | None = None
) -> Tensor:
    """Return the gradient of `aggregate` by z; s.left are rows of g, s.right rows of x."""
    match op:
        case Combine.COPY:
            return torch.zeros_like(z)
        case Combine.ADD:  # g
            return segment_sum(g, x, weight, s, Combine.COPY)
        case Combine.SUB:  # -g
            return -segment_sum(g, x, weight, s, Combine.COPY)
        case Combine.MULT:  # g x
            return segment_sum(g, x, weight, s, Combine.MULT, only, reference.RIGHT)
        case Combine.COMPLEX:  # g conj(x)
            return segment_sum(x, g, weight, s.swapped(), Combine.CONJUGATE)
        case Combine.CONJUGATE:  # g x, of complex numbers
            return segment_sum(g, x, weight, s, Combine.COMPLEX, only, reference.RIGHT)
    raise ValueError(f"the combination {op} has no gradient")


def _gradient_by_weight(g: Tensor, x: Tensor, z: Tensor, by_row: Segments, by_sender: Segments, op: int) -> Tensor:
    """Return the gradient of `aggregate` by the weight of every message, [M]."""
    row, left, right = (torch.empty_like(by_row.left) for _ in range(3))
    row[by_sender.order] = by_sender.left
    left[by_row.order], right[by_row.order] = by_row.left, by_row.right
    return _kernel("edge_dot", g.device)(g, x, z, row, left, right, op)


def _groupings(tensors: Sequence[Tensor]) -> list[Segments]:
    """Return the groupings that consist of these tensors: a compiled autograd function takes tensors one by one."""
    size = len(Segments._fields)
    return [Segments(*tensors[start : start + size]) for start in range(0, len(tensors), size)]


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, z: Tensor, weight: Tensor, own: Tensor, row: Tensor, only: Tensor, op: int,
        *given: Tensor,
    ) -> Tensor:  # fmt: skip
        ctx.op = op
        ctx.save_for_backward(x, z, weight, row, only, *given)
        out = segment_sum(x, z, weight, _groupings(given)[0], op, only, reference.LEFT)
        if row.numel():
            cells = _cells(row)
            out[cells] = out[cells] + own
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, z, weight, row, only, *given = ctx.saved_tensors
        by_row, by_sender, by_relation = _groupings(given)
        op, g, (by_x, by_z, by_weight, by_own, *others) = ctx.op, g.contiguous(), ctx.needs_input_grad
        dx = _gradient_by_x(g, z, weight, by_sender, op, only) if by_x else None
        if dx is not None and only.numel():
            cells, every = _cells(only), dx
            dx = torch.zeros_like(every)
            dx[cells] = every[cells]
        return (
            dx,
            _gradient_by_z(g, x, z, weight, by_relation, op, only) if by_z else None,
            _gradient_by_weight(g, x, z, by_row, by_sender, op).to(weight.dtype) if by_weight else None,
            g[_cells(row)] if by_own else None,
            *[None] * len(others),
        )


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, z: Tensor, weight: Tensor, own: Tensor, row: Tensor, op: int, *given: Tensor
    ) -> Any:
        by_row = _groupings(given)[0]
        found = _kernel("statistics", x.device)(x, z, weight[by_row.order], _given(by_row), op)  # [6, rows, D]
        alone = _add_own(found, own, row) if row.numel() else None
        ctx.op, ctx.views = op, not torch.compiler.is_compiling()
        ctx.save_for_backward(x, z, weight, found, own, row, alone, *given)
        # Compiled code loses the gradients of outputs that are views of one table, so it gets the table.
        return found.unbind()[:4] if ctx.views else found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, z, weight, found, own, row, alone, *given = ctx.saved_tensors
        by_row, by_pair, pairs, pairs_by_sender, pairs_by_relation = _groupings(given)
        op, (by_x, by_z, by_weight, by_own, *others) = ctx.op, ctx.needs_input_grad
        each = gradients if ctx.views else gradients[0].unbind()[:4]
        g_sum, g_square, g_largest, g_smallest = (g.contiguous() for g in each)
        d = x[:0]
        if by_x or by_z:
            shares = g_largest / found[4], g_smallest / found[5]
            tables = (x, z, weight[by_pair.order], found, g_sum, g_square, *shares, pairs.left, pairs.right)
            d = _kernel("pair_gradient", x.device)(*tables, _given(by_pair), op)  # [P, D]
        d_own = None
        if by_own:
            total, square, *extremes = (g[_cells(row)] for g in (g_sum, g_square, g_largest, g_smallest))
            d_own = total + 2 * own * square + (alone * torch.stack(extremes)).sum(0)
        return (
            _gradient_by_x(d, z, weight, pairs_by_sender, op) if by_x else None,
            _gradient_by_z(d, x, z, weight, pairs_by_relation, op) if by_z else None,
            _statistics_by_weight(g_sum, g_square, x, z, weight, by_row, op) if by_weight else None,
            d_own,
            *[None] * len(others),
        )


def _add_own(found: Tensor, own: Tensor, row: Tensor) -> Tensor:
    """Add own messages to statistics in place, and return which of them alone are the two extremes, [2, D]."""
    rows, columns = _cells(row)
    total, square, largest, smallest = found[:4, rows, columns]
    found[2].clamp_(min=0)  # the own message of other rows
    found[3].clamp_(max=0)
    extremes = torch.maximum(largest, own), torch.minimum(smallest, own)
    found[:4, rows, columns] = torch.stack((total + own, square + own * own, *extremes))
    return torch.stack((own > largest, own < smallest))


def _statistics_by_weight(
    g_sum: Tensor, g_square: Tensor, x: Tensor, z: Tensor, weight: Tensor, s: Segments, op: int
) -> Tensor:
    """Return the gradient of `statistics` by the weight of every message, [M]."""
    out, rows, step = torch.empty_like(weight), rows_of(s), max(1, _BLOCK // max(1, x.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        row, m = rows[part], rounded_messages(x, z, s.left[part], s.right[part], op)
        out[s.order[part]] = (m * (g_sum[row] + m * g_square[row])).sum(-1).to(out.dtype)
    return out


class _Distance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, e: Tensor, planar: bool) -> Tensor:
        ctx.save_for_backward(q, e)
        ctx.planar = planar
        return _kernel("l1_distance", q.device)(q, e, planar)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        q, e = ctx.saved_tensors
        gradient = _kernel("l1_gradient", g.device)
        dq = gradient(g, q, e, ctx.planar) if ctx.needs_input_grad[0] else None
        de = gradient(g.t(), e, q, ctx.planar) if ctx.needs_input_grad[1] else None
        return dq, de, None


class _GroupedMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, offsets: Tensor, chunks: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight, offsets, chunks)
        return _kernel("grouped_matmul", rows.device)(rows, weight, offsets, chunks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        rows, weight, *groups = ctx.saved_tensors
        g, product, outer = g.contiguous(), _kernel("grouped_matmul", g.device), _kernel("grouped_outer", g.device)
        drows = product(g, weight.transpose(2, 3).contiguous(), *groups) if ctx.needs_input_grad[0] else None
        dweight = outer(rows, g, groups[0]) if ctx.needs_input_grad[1] else None
        return drows, dweight, None, None


_WIDTHS = (16, 32, 64)  # of an update in tiles: their sides
_BYTES = {1: 128, 4: 64}  # of a row at most, by the number of parts: what the registers of a GPU hold
_QUERIES = 8  # from which on Numba's update pays: it scales the filters of an entity once for all its queries


def update(
    x: Tensor, parts: Sequence[Tensor], degree: Tensor, scale: Tensor, weight: Tensor, gamma: Tensor,
    beta: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return x + relu(gamma · norm([x; t_1; t_1 s; t_1 / s; t_2; …] W + bias) + beta), [N, B, d], in the dtype of `x`.

    The t are statistics of the messages of an entity: their mean, or their mean, deviation, largest and smallest. The
    gradients are by x, the parts, W, gamma, beta and bias.

    Args:
        x: entities for each query [N, B, d].
        parts: the sum of the messages alone, or their sum, sum of squares, largest and smallest: K tensors [N, B, d].
        degree: number of messages [N], at least 1.
        scale: the scaler s > 0 of each entity [N].
        weight: W [(1 + 3K) d, d].
        gamma, beta, bias: [d]; without beta and bias a row of zeros stays one where K is 1.
    """
    K, (nodes, _, d) = len(parts), x.shape
    if K not in _BYTES or any(part.shape != x.shape for part in parts):
        shapes = [list(part.shape) for part in parts]
        raise InputError(f"entities {list(x.shape)} need 1 or 4 parts of that shape, not {shapes}")
    if weight.shape != ((1 + 3 * K) * d, d) or not len(degree) == len(scale) == nodes:
        expected, shapes = [[(1 + 3 * K) * d, d], [nodes], [nodes]], [list(t.shape) for t in (weight, degree, scale)]
        raise InputError(f"{K} parts of width {d} need a weight, degree and scale of {expected}, not {shapes}")
    by = _updates(x.device.type)
    tiled = by == "triton" and d in _WIDTHS and d * x.element_size() <= _BYTES[K]
    looped = by == "numba" and x.shape[1] >= _QUERIES and d <= max(_WIDTHS) and not torch.compiler.is_compiling()
    if x.dtype == torch.float64 or not (tiled or looped):
        return reference.update(x, parts, degree, scale, weight, gamma, beta, bias)
    rows = degree.float(), scale.float(), weight, gamma, beta, bias
    out: Tensor = _Update.apply(x, *rows, *parts)  # type: ignore[no-untyped-call]
    return out


def _updates(device: str) -> str:
    """Return the name of the kernels of a type of device; where neither Triton nor Numba has one, torch derives it."""
    return kernels(device).__name__.rpartition(".")[2]


_updates._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as `backend.runs`


class _Update(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *given: Any) -> Tensor:
        ctx.save_for_backward(x, *given)
        return _kernel("update", x.device)(x, list(given[6:]), *given[:6])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, *given = ctx.saved_tensors
        gradient: Callable[..., Any] = _kernel("update_gradient", g.device)
        by_x, sums, *by_parts = gradient(g, x, given[6:], *given[:6])
        by_weight, *rows = sums.split([given[2].shape[0], 1, 1, 1])
        by_rows = (None if of is None else row[0].to(of.dtype) for row, of in zip(rows, given[3:6], strict=True))
        return by_x, None, None, by_weight.to(given[2].dtype), *by_rows, *by_parts


_UPDATED = (
    "Tensor x, Tensor[] parts, Tensor degree, Tensor scale, Tensor weight, Tensor gamma, Tensor? beta, Tensor? bias"
)

# The kernels as operations of torch, for compiled code: arguments and result, and the result's shape without values.
_OPERATIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "segment_reduce": (
        "(Tensor a, Tensor b, Tensor weight, Tensor[] segments, int op) -> Tensor",
        lambda a, b, weight, segments, op: a.new_empty(Segments(*segments).offsets.shape[0] - 1, a.shape[1]),
    ),
    "statistics": (
        "(Tensor x, Tensor z, Tensor weight, Tensor[] segments, int op) -> Tensor",
        lambda x, z, weight, segments, op: x.new_empty(6, Segments(*segments).offsets.shape[0] - 1, x.shape[1]),
    ),
    "pair_gradient": (
        "(Tensor x, Tensor z, Tensor weight, Tensor found, Tensor g_sum, Tensor g_square, Tensor g_largest, "
        "Tensor g_smallest, Tensor sender, Tensor relation, Tensor[] segments, int op) -> Tensor",
        lambda x, *others: x.new_empty(others[-4].shape[0], x.shape[1]),
    ),
    "edge_dot": (
        "(Tensor g, Tensor a, Tensor b, Tensor row, Tensor left, Tensor right, int op) -> Tensor",
        lambda g, a, b, row, left, right, op: g.new_empty(left.shape[0], dtype=wide(g.dtype)),
    ),
    "l1_distance": (
        "(Tensor q, Tensor e, bool planar) -> Tensor",
        lambda q, e, planar: q.new_empty(q.shape[0], e.shape[0]),
    ),
    "l1_gradient": (
        "(Tensor g, Tensor q, Tensor e, bool planar) -> Tensor",
        lambda g, q, e, planar: torch.empty_like(q, memory_format=torch.contiguous_format),
    ),
    "grouped_matmul": (
        "(Tensor rows, Tensor weight, Tensor offsets, Tensor chunks) -> Tensor",
        lambda rows, weight, offsets, chunks: rows.new_empty(*rows.shape[:2], weight.shape[3]),
    ),
    "grouped_outer": (
        "(Tensor rows, Tensor g, Tensor offsets) -> Tensor",
        lambda rows, g, offsets: rows.new_empty(offsets.shape[0] - 1, *rows.shape[1:], g.shape[2]),
    ),
    "update": (
        f"({_UPDATED}) -> Tensor",
        lambda x, *others: torch.empty_like(x, memory_format=torch.contiguous_format),
    ),
    "update_gradient": (
        f"(Tensor g, {_UPDATED}) -> Tensor[]",
        lambda g, x, parts, degree, scale, weight, *others: [
            torch.empty_like(x, memory_format=torch.contiguous_format),
            x.new_empty(weight.shape[0] + 3, x.shape[2], dtype=torch.float32),
            *(torch.empty_like(part, memory_format=torch.contiguous_format) for part in parts),
        ],
    ),
}


def _run(name: str, in_segments: bool, first: Tensor, *others: Any) -> Any:
    arguments = (Segments(*one) if in_segments and isinstance(one, list) else one for one in others)
    return getattr(kernels(first.device.type), name)(first, *arguments)


for _name, (_schema, _fake) in _OPERATIONS.items():
    _operation = torch.library.custom_op(
        f"compgcn::{_name}", partial(_run, _name, "segments" in _schema), mutates_args=(), schema=_schema
    )
    _operation.register_fake(_fake)
