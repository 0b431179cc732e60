"""Every kernel in plain torch: the definition, the backend for other devices, and the oracle of the fused ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from compgcn.kernels.backend import wide
from compgcn.kernels.plan import Segments

_BLOCK = 2**22  # differences that one step lays out
_COUNT_BLOCK_CPU, _COUNT_BLOCK = 2**18, 2**24  # scores that one step compares: a cache of a CPU, work for a GPU


class Combine(IntEnum):
    """The combination of a lifted entity and a lifted relation on one edge; the kernels switch on the numbers."""

    COPY = 0  # x
    ADD = 1  # x + z
    SUB = 2  # x - z
    MULT = 3  # x * z
    COMPLEX = 4  # x * z on complex planes
    CONJUGATE = 5  # conj(x) * z on complex planes


def combined(op: Combine, x: Tensor, z: Tensor) -> Tensor:
    """Combine tensors [.., D] that broadcast."""
    match op:
        case Combine.COPY:
            return torch.broadcast_tensors(x, z)[0]  # type: ignore[no-untyped-call, no-any-return]
        case Combine.ADD:
            return x + z
        case Combine.SUB:
            return x - z
        case Combine.MULT:
            return x * z
        case Combine.COMPLEX:
            (a, b), (c, d) = x.chunk(2, -1), z.chunk(2, -1)
            return torch.cat((a * c - b * d, a * d + b * c), -1)
        case Combine.CONJUGATE:
            (a, b), (c, d) = x.chunk(2, -1), z.chunk(2, -1)
            return torch.cat((a * c + b * d, a * d - b * c), -1)


def _combined(a: Tensor, b: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    """Return one row per message, [M, D]; a copy never reads `b`, which may be a placeholder without those rows."""
    x = a[left].to(wide(a.dtype))
    return x if op == Combine.COPY else combined(Combine(op), x, b[right].to(x.dtype))


def rows_of(s: Segments) -> Tensor:
    """Return the row of every message, [M]."""
    rows = torch.arange(s.offsets.numel() - 1, device=s.offsets.device)
    return torch.repeat_interleave(rows, s.offsets.diff(), output_size=s.left.numel())


LEFT, ROW, RIGHT = 1, 2, 3  # of a segmented sum: its first operand, its rows, its second operand


def segment_reduce(
    a: Tensor, b: Tensor, weight: Tensor, s: Segments, op: int, only: Tensor | None = None, side: int = 0
) -> Tensor:
    """out[v] = sum over e in [offsets[v], offsets[v + 1]) of weight[e] * combine(a[left[e]], b[right[e]]).

    `only` [D] promises that one row of each column matters on a side: the others are zero, or nobody reads their sums.
    """
    message = weight.to(wide(a.dtype)).unsqueeze(-1) * _combined(a, b, s.left, s.right, op)  # [M, D]
    return message.new_zeros(s.offsets.numel() - 1, a.shape[1]).index_add_(0, rows_of(s), message).to(a.dtype)


def rounded_messages(x: Tensor, z: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    """Return combine(x[left], z[right]) rounded to the dtype of x, in that of sums, [M, D]."""
    message = _combined(x, z, left, right, op)
    return message.to(x.dtype).to(message.dtype)


def statistics(x: Tensor, z: Tensor, weight: Tensor, s: Segments, op: int) -> Tensor:
    """The statistics of the rounded messages of each row, [6, rows, D].

    Σ w m, Σ w m², the largest and the smallest m of a weight other than 0, and how many messages equal each of the two,
    or 1 where there are none.
    """
    row, m = rows_of(s), rounded_messages(x, z, s.left, s.right, op)
    w, shown = weight.to(m.dtype).unsqueeze(-1), (weight != 0).unsqueeze(-1)
    zeros, index = m.new_zeros(s.offsets.numel() - 1, m.shape[1]), row.unsqueeze(-1).expand_as(m)
    out = [zeros.index_add(0, row, w * m), zeros.index_add(0, row, w * m * m)]
    for reduce, none in (("amax", -torch.inf), ("amin", torch.inf)):
        out.append((zeros + none).scatter_reduce(0, index, torch.where(shown, m, none), reduce))
    out += [zeros.index_add(0, row, (shown & (m == extreme[row])).to(m.dtype)).clamp_min(1) for extreme in out[2:]]
    return torch.stack(out).to(x.dtype)


def pair_gradient(
    x: Tensor, z: Tensor, weight: Tensor, found: Tensor, g_sum: Tensor, g_square: Tensor, g_largest: Tensor,
    g_smallest: Tensor, sender: Tensor, relation: Tensor, s: Segments, op: int,
) -> Tensor:  # fmt: skip
    """The gradient of statistics by the message of each pair (sender, relation), [P, D].

    Args:
        x: entities [N, D].
        z: relations [Z, D].
        weight: [M], in the order of `s`.
        found: the statistics [6, rows, D].
        g_sum: the gradient by Σ w m, [rows, D].
        g_square: by Σ w m².
        g_largest: by the largest, divided by the number of messages that equal it.
        g_smallest: by the smallest, divided likewise.
        sender: of each pair, [P].
        relation: of each pair, [P].
        s: the messages grouped by pair, left their rows.
        op: how sender and relation combine.
    """
    pair, row = rows_of(s), s.left
    m = rounded_messages(x, z, sender, relation, op)[pair]
    w, shown = weight.to(m.dtype).unsqueeze(-1), (weight != 0).unsqueeze(-1)
    d = w * (g_sum[row] + 2 * m * g_square[row])
    for extreme, g in ((found[2], g_largest), (found[3], g_smallest)):
        d += torch.where(shown & (m == extreme[row]), g[row], 0.0)
    return m.new_zeros(len(sender), m.shape[1]).index_add(0, pair, d).to(x.dtype)


def edge_dot(g: Tensor, a: Tensor, b: Tensor, row: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    """out[e] = <g[row[e]], combine(a[left[e]], b[right[e]])>: the gradient of a weighted sum by its weights."""
    return (g[row].to(wide(g.dtype)) * _combined(a, b, left, right, op)).sum(-1)


def groups_above(offsets: Tensor, size: int) -> Iterator[tuple[int, slice]]:
    """Yield each group of more than `size` rows, and where its rows are."""
    large = (offsets.diff() > size).nonzero().flatten()
    for group, start, end in zip(large.tolist(), offsets[large].tolist(), offsets[large + 1].tolist(), strict=True):
        yield group, slice(start, end)


def grouped_matmul(rows: Tensor, weight: Tensor, offsets: Tensor, chunks: Tensor) -> Tensor:
    """out[p] = rows[p] @ weight[group of p], block by block: [P, B, in], [Z, B, in, out] -> [P, B, out]."""
    out = rows.new_empty(*rows.shape[:2], weight.shape[3])
    for group, part in groups_above(offsets, 0):
        out[part] = torch.einsum("pbi,bio->pbo", rows[part], weight[group])
    return out


def grouped_outer(rows: Tensor, g: Tensor, offsets: Tensor) -> Tensor:
    """The sum over the rows of a group of rows[p]ᵀ g[p]: [P, B, in], [P, B, out] -> [Z, B, in, out]."""
    out = rows.new_zeros(len(offsets) - 1, *rows.shape[1:], g.shape[2])
    for group, part in groups_above(offsets, 0):
        out[group] = torch.einsum("pbi,pbo->bio", rows[part], g[part])
    return out


def _moduli(difference: Tensor) -> Tensor:
    """Return the moduli of complex numbers, [.., d] -> [.., d/2]."""
    real, imaginary = difference.chunk(2, -1)
    return (real * real).addcmul_(imaginary, imaginary).sqrt_()


def _slope(difference: Tensor, planar: bool) -> Tensor:
    """Return the gradient of the absolute values, or moduli, of differences [.., d]; 0 at no difference."""
    if not planar:
        return difference.sign()
    modulus = _moduli(difference).repeat(*(1,) * (difference.ndim - 1), 2)
    return torch.where(modulus > 0, difference / modulus, 0.0)


def l1_distance(q: Tensor, e: Tensor, planar: bool) -> Tensor:
    """‖q_b − e_c‖₁, [B, C]; with `planar`, of vectors of d/2 complex numbers, all real parts first."""
    if q.is_cpu and q.dtype in (torch.float32, torch.float64) and not planar:
        return torch.cdist(q, e, p=1.0)
    out = []
    for part in torch.split(e, max(1, _BLOCK // max(1, q.numel()))):
        difference = q.unsqueeze(1) - part
        out.append((_moduli(difference) if planar else difference.abs()).sum(-1))
    return torch.cat(out, 1)


def l1_gradient(g: Tensor, q: Tensor, e: Tensor, planar: bool) -> Tensor:
    """The sum over c of g[b, c] · the slope of ‖q_b − e_c‖₁ by q_b, [B, d]."""
    step = max(1, _BLOCK // max(1, q.numel()))
    out = torch.zeros_like(q, dtype=wide(q.dtype))
    for part, weight in zip(torch.split(e, step), torch.split(g, step, 1), strict=True):
        slope = _slope(q.unsqueeze(1) - part, planar)
        out += torch.einsum("bc,bcd->bd", weight.to(out.dtype), slope.to(out.dtype))
    return out.to(q.dtype)


def count_rivals(scores: Tensor, row: Tensor, bar: Tensor) -> tuple[Tensor, Tensor]:
    """Count the scores[row[i]] greater than bar[i], and those equal to it: [B, N], [m], [m] -> [m] each."""
    greater, equal = torch.empty_like(row), torch.empty_like(row)
    step = max(1, (_COUNT_BLOCK_CPU if scores.device.type == "cpu" else _COUNT_BLOCK) // max(1, scores.shape[1]))
    for part in range(0, len(row), step):
        block = slice(part, part + step)
        rivals, value = scores.index_select(0, row[block]), bar[block].unsqueeze(1)  # [b, N], [b, 1]
        torch.sum(rivals > value, 1, out=greater[block])
        torch.sum(rivals == value, 1, out=equal[block])
    return greater, equal


def stable_order(key: Tensor, offsets: Tensor) -> Tensor:
    """Return the order that sorts keys stably; offsets[k] of them are smaller than k."""
    return torch.argsort(key, stable=True)


FLOOR = 1e-4  # of a variance, whose root has no slope at 0
EPSILON = 1e-5  # of a layer norm


def update(
    x: Tensor, parts: Sequence[Tensor], degree: Tensor, scale: Tensor, weight: Tensor, gamma: Tensor,
    beta: Tensor | None, bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """out = x + relu(gamma · norm([x; t_1; t_1 s; t_1 / s; t_2; …] W + bias) + beta), row by row of x [N, B, d].

    The statistics t of the messages of an entity are their mean alone, or mean, deviation, largest and smallest.
    """
    kind = wide(x.dtype)
    total, *others = (part.to(kind) for part in parts)
    degree, s = degree.to(kind)[:, None, None], scale.to(kind)[:, None, None]
    statistics = [total / degree]
    if others:
        square, *extremes = others
        statistics += [(square / degree - statistics[0].square()).clamp_min(FLOOR).sqrt(), *extremes]
    first, *filters = weight.to(kind).reshape(-1, x.shape[-1], x.shape[-1])  # [d, d] each
    pre = x.to(kind) @ first
    for i, t in enumerate(statistics):
        a, b, c = filters[3 * i : 3 * i + 3]
        pre = pre + t @ a + s * (t @ b) + t @ c / s
    pre = pre if bias is None else pre + bias.to(kind)
    y = layer_norm(pre, x.shape[-1:], gamma.to(kind), None if beta is None else beta.to(kind), EPSILON)
    return (x.to(kind) + y.relu()).to(x.dtype)
