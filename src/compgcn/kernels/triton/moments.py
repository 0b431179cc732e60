"""Statistics of messages in one pass, and their gradient; chunks and merges are those of `segments`.

A program has columns of one plane: complex messages have two, the real and the imaginary parts. Both kernels round a
message alike, since its gradient knows the extremes by equality.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from compgcn.kernels.backend import wide
from compgcn.kernels.plan import Segments
from compgcn.kernels.triton.segments import columns_of, launch, merge, sum_type

# Messages at a time, columns at most and warps of a program.
_FORWARD = (2, 256, 1)
_BACKWARD = (1, 256, 1)
_MERGED = 8  # partial statistics at a time


@triton.jit
def _planes(D, BD: tl.constexpr):
    """Return this program's plane and its columns in a plane of D."""
    programs = tl.cdiv(D, BD)
    return tl.program_id(1) // programs, tl.program_id(1) % programs * BD + tl.arange(0, BD)


@triton.jit
def _second(Z, row, cols, plane, D, S, OP: tl.constexpr, BD: tl.constexpr, ACC: tl.constexpr):
    """Load the own and the other plane of the row of second operands that a pointer holds, [1, BD] each."""
    z, other = tl.zeros([1, BD], ACC), tl.zeros([1, BD], ACC)
    if OP > 0:
        b, mask = Z + tl.load(row).to(tl.int64) * S + cols[None, :], (cols < D)[None, :]
        z = tl.load(b + plane * D, mask=mask, other=0.0).to(ACC)
        if OP >= 4:
            other = tl.load(b + (1 - plane) * D, mask=mask, other=0.0).to(ACC)
    return z, other


@triton.jit
def _with_more(largest, smallest, top, bottom, highs, lows, tops, bottoms):
    """Return the extremes of a tile and those before it, and how often each is there."""
    high, low = tl.maximum(largest, tl.max(highs, 0)), tl.minimum(smallest, tl.min(lows, 0))
    top = tl.where(high == largest, top, 0.0) + tl.sum(tl.where(highs == high[None, :], tops, 0.0), 0)
    bottom = tl.where(low == smallest, bottom, 0.0) + tl.sum(tl.where(lows == low[None, :], bottoms, 0.0), 0)
    return high, low, top, bottom


@triton.jit
def _message(x, mask, z, other, plane, D, OP: tl.constexpr, ACC: tl.constexpr):
    """Combine first operands at pointers x with the own and the other plane of second operands; round as x is."""
    m = tl.load(x, mask=mask, other=0.0).to(ACC)
    if OP == 1:
        m = m + z
    elif OP == 2:
        m = m - z
    elif OP == 3:
        m = m * z
    elif OP >= 4:
        # Written as one multiply-add, so that every kernel rounds it alike.
        sign = tl.where((plane == 0) == (OP == 4), -1.0, 1.0).to(ACC)
        m = tl.fma(m, z + tl.zeros_like(m), sign * (tl.load(x + D, mask=mask, other=0.0).to(ACC) * other))
    return m.to(x.dtype.element_ty).to(ACC)


@triton.jit
def _statistics_kernel(
    X, Z, W, LEFT, RIGHT, RUNS, CHUNKS, OUT, SCRATCH, D, S, T, U,
    OP: tl.constexpr, BE: tl.constexpr, BD: tl.constexpr, VECTOR: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0)
    D, S = D * VECTOR, S * VECTOR  # tells the compiler what these are multiples of
    row = tl.load(CHUNKS + p * 4)
    if row >= 0:
        first, end, slot = tl.load(CHUNKS + p * 4 + 1), tl.load(CHUNKS + p * 4 + 2), tl.load(CHUNKS + p * 4 + 3)
        plane, cols = _planes(D, BD)
        in_d = cols < D
        total, square = tl.zeros([BD], ACC), tl.zeros([BD], ACC)
        largest, smallest = tl.full([BD], float("-inf"), ACC), tl.full([BD], float("inf"), ACC)
        top, bottom = tl.zeros([BD], ACC), tl.zeros([BD], ACC)
        stop = tl.load(RUNS + first, mask=first < end, other=0).to(tl.int64)
        while first < end:
            after = tl.load(RUNS + stop, mask=stop < end, other=0).to(tl.int64)  # early, for the next run waits for it
            z, other = _second(Z, RIGHT + first, cols, plane, D, S, OP, BD, ACC)
            for tile in range(first, tl.minimum(stop, end), BE):
                e = tile + tl.arange(0, BE)
                w = tl.load(W + e, mask=e < tl.minimum(stop, end), other=0.0).to(ACC)
                shown = w != 0
                mask = shown[:, None] & in_d[None, :]
                x = X + tl.load(LEFT + e, mask=shown, other=0).to(tl.int64)[:, None] * S + cols[None, :]
                m = _message(x, mask, z, other, plane, D, OP, ACC)
                total += tl.sum(w[:, None] * m, 0)
                square += tl.sum(w[:, None] * m * m, 0)
                highs, lows, ones = tl.where(mask, m, float("-inf")), tl.where(mask, m, float("inf")), mask.to(ACC)
                largest, smallest, top, bottom = _with_more(largest, smallest, top, bottom, highs, lows, ones, ones)
            first, stop = stop, after
        at = plane * D + cols
        if slot < 0:
            top, bottom = tl.maximum(top, 1.0), tl.maximum(bottom, 1.0)
            _store_all(OUT + row * S + at, T, in_d, total, square, largest, smallest, top, bottom)
        else:
            _store_all(SCRATCH + slot * S + at, U, in_d, total, square, largest, smallest, top, bottom)


@triton.jit
def _store_all(OUT, T, mask, total, square, largest, smallest, top, bottom):
    """Store the six statistics of a row, in tables of T numbers; added one by one, since 5 T may exceed an int32."""
    tl.store(OUT, total, mask=mask)
    tl.store(OUT + T, square, mask=mask)
    tl.store(OUT + T + T, largest, mask=mask)
    tl.store(OUT + T + T + T, smallest, mask=mask)
    tl.store(OUT + T + T + T + T, top, mask=mask)
    tl.store(OUT + T + T + T + T + T, bottom, mask=mask)


@triton.jit
def _merge_statistics_kernel(MERGES, SCRATCH, OUT, S, T, U, BE: tl.constexpr, BD: tl.constexpr, ACC: tl.constexpr):
    p = tl.program_id(0)
    row = tl.load(MERGES + p * 3)
    if row >= 0:
        start, end = tl.load(MERGES + p * 3 + 1), tl.load(MERGES + p * 3 + 2)
        cols = tl.program_id(1) * BD + tl.arange(0, BD)
        total, square = tl.zeros([BD], ACC), tl.zeros([BD], ACC)
        largest, smallest = tl.full([BD], float("-inf"), ACC), tl.full([BD], float("inf"), ACC)
        top, bottom = tl.zeros([BD], ACC), tl.zeros([BD], ACC)
        for first in range(start, end, BE):
            slot = first + tl.arange(0, BE)
            mask = (slot < end)[:, None] & (cols < S)[None, :]
            part = SCRATCH + slot[:, None] * S + cols[None, :]
            total += tl.sum(tl.load(part, mask=mask, other=0.0), 0)
            square += tl.sum(tl.load(part + U, mask=mask, other=0.0), 0)
            highs = tl.load(part + U + U, mask=mask, other=float("-inf"))
            lows = tl.load(part + U + U + U, mask=mask, other=float("inf"))
            tops = tl.load(part + U + U + U + U, mask=mask, other=0.0)
            bottoms = tl.load(part + U + U + U + U + U, mask=mask, other=0.0)
            largest, smallest, top, bottom = _with_more(largest, smallest, top, bottom, highs, lows, tops, bottoms)
        out, top, bottom = OUT + row * S + cols, tl.maximum(top, 1.0), tl.maximum(bottom, 1.0)
        _store_all(out, T, cols < S, total, square, largest, smallest, top, bottom)


@triton.jit
def _pair_kernel(
    X, Z, W, LEFT, SENDER, RELATION, CHUNKS, G_SUM, G_SQUARE, LARGEST, G_LARGEST, SMALLEST, G_SMALLEST, OUT, SCRATCH,
    D, S, OP: tl.constexpr, BE: tl.constexpr, BD: tl.constexpr, VECTOR: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0)
    D, S = D * VECTOR, S * VECTOR
    pair = tl.load(CHUNKS + p * 4)
    if pair >= 0:
        start, end, slot = tl.load(CHUNKS + p * 4 + 1), tl.load(CHUNKS + p * 4 + 2), tl.load(CHUNKS + p * 4 + 3)
        plane, cols = _planes(D, BD)
        in_d = cols < D
        z, other = _second(Z, RELATION + pair, cols, plane, D, S, OP, BD, ACC)
        x = X + tl.load(SENDER + pair).to(tl.int64) * S + cols[None, :]
        m = _message(x, in_d[None, :], z, other, plane, D, OP, ACC)  # [1, BD]
        total = tl.zeros([BD], ACC)
        for first in range(start, end, BE):
            e = first + tl.arange(0, BE)
            w = tl.load(W + e, mask=e < end, other=0.0).to(ACC)
            shown = w != 0
            mask = shown[:, None] & in_d[None, :]
            row = tl.load(LEFT + e, mask=shown, other=0).to(tl.int64)
            at = row[:, None] * S + plane * D + cols[None, :]
            g = tl.load(G_SUM + at, mask=mask, other=0.0).to(ACC)
            g += 2 * m * tl.load(G_SQUARE + at, mask=mask, other=0.0).to(ACC)
            for_largest = tl.load(G_LARGEST + at, mask=mask, other=0.0).to(ACC)
            for_smallest = tl.load(G_SMALLEST + at, mask=mask, other=0.0).to(ACC)
            extreme = tl.where(m == tl.load(LARGEST + at, mask=mask, other=0.0).to(ACC), for_largest, 0.0)
            extreme += tl.where(m == tl.load(SMALLEST + at, mask=mask, other=0.0).to(ACC), for_smallest, 0.0)
            total += tl.sum(w[:, None] * g + extreme, 0)
        if slot < 0:
            tl.store(OUT + pair * S + plane * D + cols, total, mask=in_d)
        else:
            tl.store(SCRATCH + slot * S + plane * D + cols, total, mask=in_d)


def statistics(x: Tensor, z: Tensor, weight: Tensor, s: Segments, op: int) -> Tensor:
    """Compute `reference.statistics`."""
    x, z, width, rows = x.contiguous(), z.contiguous(), x.shape[1], s.offsets.numel() - 1
    out = x.new_empty(6, rows, width)
    if not out.numel():
        return out
    edges, most, warps = _FORWARD
    kind, (columns, block, vector, programs) = sum_type(x.dtype), columns_of(width, op, most)
    scratch = torch.empty(6, s.slots, width, dtype=wide(x.dtype), device=x.device)
    grid, apart = (len(s.chunks), programs * (2 if op >= 4 else 1)), (rows * width, s.slots * width)
    tables = (x, z, weight, s.left, s.right, s.runs, s.chunks, out, scratch)
    knobs = columns // vector, width // vector, *apart, op, edges, block, vector, kind
    launch(_statistics_kernel, grid, tables, *knobs, num_warps=warps)
    if len(s.merges):
        _, block, _, programs = columns_of(width, 0)
        parts, grid = (s.merges, scratch, out), (len(s.merges), programs)
        launch(_merge_statistics_kernel, grid, parts, width, *apart, _MERGED, block, kind, num_warps=4)
    return out


def pair_gradient(
    x: Tensor, z: Tensor, weight: Tensor, found: Tensor, g_sum: Tensor, g_square: Tensor, g_largest: Tensor,
    g_smallest: Tensor, sender: Tensor, relation: Tensor, s: Segments, op: int,
) -> Tensor:  # fmt: skip
    """Compute `reference.pair_gradient`."""
    x, z, width = x.contiguous(), z.contiguous(), x.shape[1]
    out = x.new_empty(len(sender), width)
    if not out.numel():
        return out
    edges, most, warps = _BACKWARD
    columns, block, vector, programs = columns_of(width, op, most)
    scratch = torch.empty(s.slots, width, dtype=wide(x.dtype), device=x.device)
    by_row = (g.contiguous() for g in (g_sum, g_square, found[2], g_largest, found[3], g_smallest))
    tables = (x, z, weight, s.left, sender, relation, s.chunks, *by_row, out, scratch)
    knobs = columns // vector, width // vector, op, edges, block, vector, sum_type(x.dtype)
    launch(_pair_kernel, (len(s.chunks), programs * (2 if op >= 4 else 1)), tables, *knobs, num_warps=warps)
    merge(s, scratch, out)
    return out
