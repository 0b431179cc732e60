"""The definition of aggregation in plain torch, and the oracle every other backend is tested against."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from compgcn.kernels.backend import wide
from compgcn.kernels.combine import Combine, combined
from compgcn.kernels.plan import Segments


def _combined(a: Tensor, b: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    """One row per message, [M, D]. A copy never looks at `b`, which may be a placeholder without those rows."""
    x = a[left].to(wide(a.dtype))
    return x if op == Combine.COPY else combined(Combine(op), x, b[right].to(x.dtype))


def segment_reduce(a: Tensor, b: Tensor, weight: Tensor, s: Segments, op: int) -> Tensor:
    """out[v] = sum over e in [offsets[v], offsets[v + 1]) of weight[e] * combine(a[left[e]], b[right[e]])."""
    rows = s.offsets.numel() - 1
    row = torch.repeat_interleave(torch.arange(rows, device=a.device), s.offsets.diff(), output_size=s.left.numel())
    message = weight.to(wide(a.dtype)).unsqueeze(-1) * _combined(a, b, s.left, s.right, op)  # [M, D]
    return message.new_zeros(rows, a.shape[1]).index_add_(0, row, message).to(a.dtype)


def edge_dot(g: Tensor, a: Tensor, b: Tensor, row: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    """out[e] = <g[row[e]], combine(a[left[e]], b[right[e]])>: the gradient of a weighted sum by its weights."""
    return (g[row].to(wide(g.dtype)) * _combined(a, b, left, right, op)).sum(-1)


def groups_above(offsets: Tensor, size: int) -> Iterator[tuple[int, slice]]:
    """The groups of more rows than that, each with where its rows are."""
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


# Differences are laid out for so many numbers at a time.
_BLOCK = 2**22


def _moduli(difference: Tensor) -> Tensor:
    """Of complex numbers, [.., d] -> [.., d/2]."""
    real, imaginary = difference.chunk(2, -1)
    return (real * real).addcmul_(imaginary, imaginary).sqrt_()


def _slope(difference: Tensor, planar: bool) -> Tensor:
    """The gradient of the absolute values, or moduli, of differences [.., d]; where there is no difference, 0."""
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


def _units(q: Tensor, e: Tensor, slope: Tensor) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """The units before they are rectified: queries, candidates, their vectors [1 or b, c, 1, d], units [b, c, F, d]."""
    width = max(1, q[0].numel() if len(q) else 1)
    queries = max(1, min(len(q), _BLOCK // width))
    candidates = max(1, _BLOCK // (queries * width))
    lists = e if e.ndim == 3 else e.unsqueeze(0)
    for first in range(0, len(q), queries):
        rows = slice(first, first + queries)
        for begin in range(0, e.shape[-2], candidates):
            part = slice(begin, begin + candidates)
            vectors = (lists[rows] if e.ndim == 3 else lists)[:, part].unsqueeze(2)
            yield rows, part, vectors, torch.addcmul(q[rows].unsqueeze(1), slope.unsqueeze(1), vectors)


def rectified_sum(q: Tensor, e: Tensor, slope: Tensor, weight: Tensor) -> Tensor:
    """out[b, c] = sum over f, j of weight[f, j] · relu(q[b, f, j] + slope[f] · e[c, j]); e may be a list per query."""
    out = q.new_empty(len(q), e.shape[-2])
    for rows, part, _, units in _units(q, e, slope):
        out[rows, part] = units.relu_().flatten(2) @ weight.flatten()
    return out


def rectified_gradient(g: Tensor, q: Tensor, e: Tensor, slope: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over the candidates of g · on and of g · on · e, [B, F, d], and the gradient by e."""
    on, on_e, de = (torch.zeros_like(t, dtype=wide(t.dtype)) for t in (q, q, e))
    slopes = (weight * slope.unsqueeze(1)).to(on.dtype)
    for rows, part, vectors, units in _units(q, e, slope):
        share = (units > 0).to(on.dtype) * g[rows, part, None, None]  # [b, c, F, d]
        on[rows] += share.sum(1)
        on_e[rows] += (share * vectors).sum(1)
        if e.ndim == 3:
            de[rows, part] = torch.einsum("bcfd,fd->bcd", share, slopes)
        else:
            de[part] += torch.einsum("bcfd,fd->cd", share, slopes)
    return on.to(q.dtype), on_e.to(q.dtype), de.to(e.dtype)


# Rows are compared with their bars in blocks of this many scores: few enough for a CPU's cache, and elsewhere enough to
# keep the device busy.
_COUNT_BLOCK_CPU, _COUNT_BLOCK = 2**18, 2**24


def count_rivals(scores: Tensor, row: Tensor, bar: Tensor) -> tuple[Tensor, Tensor]:
    """How many of scores[row[i]] are greater than bar[i], and how many equal it: [B, N], [m], [m] -> [m] each."""
    greater, equal = torch.empty_like(row), torch.empty_like(row)
    step = max(1, (_COUNT_BLOCK_CPU if scores.device.type == "cpu" else _COUNT_BLOCK) // max(1, scores.shape[1]))
    for part in range(0, len(row), step):
        block = slice(part, part + step)
        rivals, value = scores.index_select(0, row[block]), bar[block].unsqueeze(1)  # [b, N], [b, 1]
        torch.sum(rivals > value, 1, out=greater[block])
        torch.sum(rivals == value, 1, out=equal[block])
    return greater, equal
