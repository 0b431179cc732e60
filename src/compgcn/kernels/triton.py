"""Aggregation on a GPU: one program per chunk of a row's messages, so that a hub is the work of many.

A row that fits one chunk is stored at once. The chunks of a longer row leave their sums in a scratch table, and a
second kernel adds those in a fixed order: no atomics, so the same input gives the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from compgcn.kernels import reference
from compgcn.kernels.backend import wide
from compgcn.kernels.plan import CHUNK, Segments

_EDGES, _WARPS = 4, 1  # messages a program gathers at a time, and the warps it has
_COLUMNS = 256  # at most so many columns a program
_MERGED = 16  # partial sums added at a time


@triton.jit
def _reduce_kernel(
    A, B, W, LEFT, RIGHT, CHUNKS, OUT, SCRATCH, D, S,
    OP: tl.constexpr, BE: tl.constexpr, BD: tl.constexpr, VECTOR: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0)
    D, S = D * VECTOR, S * VECTOR  # tells the compiler what these are multiples of
    row = tl.load(CHUNKS + p * 4)
    if row >= 0:
        start, end, slot = tl.load(CHUNKS + p * 4 + 1), tl.load(CHUNKS + p * 4 + 2), tl.load(CHUNKS + p * 4 + 3)
        cols = tl.program_id(1) * BD + tl.arange(0, BD)
        in_d = cols < D
        real = tl.zeros([BD], ACC)
        imaginary = tl.zeros([BD], ACC)
        for first in range(start, end, BE):
            e = first + tl.arange(0, BE)
            in_e = e < end
            w = tl.load(W + e, mask=in_e, other=0.0).to(ACC)[:, None]
            mask = in_e[:, None] & in_d[None, :]
            a = A + tl.load(LEFT + e, mask=in_e, other=0).to(tl.int64)[:, None] * S + cols[None, :]
            x = tl.load(a, mask=mask, other=0.0).to(ACC)
            if OP == 0:
                real += tl.sum(w * x, 0)
            else:
                b = B + tl.load(RIGHT + e, mask=in_e, other=0).to(tl.int64)[:, None] * S + cols[None, :]
                z = tl.load(b, mask=mask, other=0.0).to(ACC)
                if OP == 1:
                    real += tl.sum(w * (x + z), 0)
                elif OP == 2:
                    real += tl.sum(w * (x - z), 0)
                elif OP == 3:
                    real += tl.sum(w * x * z, 0)
                else:
                    xi = tl.load(a + D, mask=mask, other=0.0).to(ACC)
                    zi = tl.load(b + D, mask=mask, other=0.0).to(ACC)
                    if OP == 4:
                        real += tl.sum(w * (x * z - xi * zi), 0)
                        imaginary += tl.sum(w * (x * zi + xi * z), 0)
                    else:
                        real += tl.sum(w * (x * z + xi * zi), 0)
                        imaginary += tl.sum(w * (x * zi - xi * z), 0)
        if slot < 0:
            tl.store(OUT + row * S + cols, real, mask=in_d)
            if OP >= 4:
                tl.store(OUT + row * S + D + cols, imaginary, mask=in_d)
        else:
            tl.store(SCRATCH + slot * S + cols, real, mask=in_d)
            if OP >= 4:
                tl.store(SCRATCH + slot * S + D + cols, imaginary, mask=in_d)


@triton.jit
def _merge_kernel(MERGES, SCRATCH, OUT, D, SO, BE: tl.constexpr, BD: tl.constexpr, ACC: tl.constexpr):
    p = tl.program_id(0)
    row = tl.load(MERGES + p * 3)
    if row >= 0:
        start, end = tl.load(MERGES + p * 3 + 1), tl.load(MERGES + p * 3 + 2)
        cols = tl.program_id(1) * BD + tl.arange(0, BD)
        total = tl.zeros([BD], ACC)
        for first in range(start, end, BE):
            slot = first + tl.arange(0, BE)
            mask = (slot < end)[:, None] & (cols < D)[None, :]
            total += tl.sum(tl.load(SCRATCH + slot[:, None] * SO + cols[None, :], mask=mask, other=0.0), 0)
        tl.store(OUT + row * SO + cols, total, mask=cols < D)


@triton.jit
def _dot_kernel(
    G, A, B, ROW, LEFT, RIGHT, OUT, M, D, SG, SA, SB,
    OP: tl.constexpr, BE: tl.constexpr, BD: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    e = tl.program_id(0) * BE + tl.arange(0, BE)
    in_e = e < M
    g = G + tl.load(ROW + e, mask=in_e, other=0).to(tl.int64)[:, None] * SG
    a = A + tl.load(LEFT + e, mask=in_e, other=0).to(tl.int64)[:, None] * SA
    b = B + tl.load(RIGHT + e, mask=in_e, other=0).to(tl.int64)[:, None] * SB
    total = tl.zeros([BE], ACC)
    for first in range(0, D, BD):
        cols = (first + tl.arange(0, BD))[None, :]
        mask = in_e[:, None] & (cols < D)
        y = tl.load(g + cols, mask=mask, other=0.0).to(ACC)
        x = tl.load(a + cols, mask=mask, other=0.0).to(ACC)
        if OP == 0:
            total += tl.sum(y * x, 1)
        else:
            z = tl.load(b + cols, mask=mask, other=0.0).to(ACC)
            if OP == 1:
                total += tl.sum(y * (x + z), 1)
            elif OP == 2:
                total += tl.sum(y * (x - z), 1)
            elif OP == 3:
                total += tl.sum(y * x * z, 1)
            else:
                yi = tl.load(g + cols + D, mask=mask, other=0.0).to(ACC)
                xi = tl.load(a + cols + D, mask=mask, other=0.0).to(ACC)
                zi = tl.load(b + cols + D, mask=mask, other=0.0).to(ACC)
                if OP == 4:
                    total += tl.sum(y * (x * z - xi * zi) + yi * (x * zi + xi * z), 1)
                else:
                    total += tl.sum(y * (x * z + xi * zi) + yi * (x * zi - xi * z), 1)
    tl.store(OUT + e, total, mask=in_e)


def _shape(width: int, op: int, dtype: torch.dtype) -> dict[str, Any]:
    """Columns of a plane, how many of them a program takes, and what it adds up in."""
    columns = width // 2 if op >= 4 else width
    block = min(_COLUMNS, triton.next_power_of_2(max(columns, 1)))
    return {"D": columns, "BD": block, "ACC": _sum_type(dtype)}


def segment_reduce(a: Tensor, b: Tensor, weight: Tensor, s: Segments, op: int) -> Tensor:
    """As `reference.segment_reduce`."""
    a, b, width = a.contiguous(), b.contiguous(), a.shape[1]
    out = a.new_empty(s.offsets.numel() - 1, width)
    if not out.numel():
        return out
    shape = _shape(width, op, a.dtype)
    slots = 2 * (s.left.numel() // CHUNK) + 1  # a row of several chunks has fewer than twice its messages / CHUNK
    scratch = torch.empty(slots, width, dtype=wide(a.dtype), device=a.device)
    grid = (len(s.chunks), triton.cdiv(shape["D"], shape["BD"]))
    vector = 4 if shape["D"] % 4 == 0 else 1
    _reduce_kernel[grid](
        a, b, weight, s.left, s.right, s.chunks, out, scratch, S=width // vector, OP=op, BE=_EDGES, VECTOR=vector,
        num_warps=_WARPS, **shape | {"D": shape["D"] // vector},
    )  # fmt: skip
    if len(s.merges):
        shape |= {"D": width, "BD": min(_COLUMNS, triton.next_power_of_2(width))}
        grid = (len(s.merges), triton.cdiv(width, shape["BD"]))
        _merge_kernel[grid](s.merges, scratch, out, SO=width, BE=_MERGED, num_warps=2, **shape)
    return out


def edge_dot(g: Tensor, a: Tensor, b: Tensor, row: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    """As `reference.edge_dot`."""
    g, a, b = g.contiguous(), a.contiguous(), b.contiguous()
    out = torch.empty(left.numel(), dtype=wide(g.dtype), device=g.device)
    if not left.numel():
        return out
    shape = _shape(a.shape[1], op, a.dtype)
    strides = {"SG": g.stride(0), "SA": a.stride(0), "SB": b.stride(0)}
    grid = (triton.cdiv(left.numel(), _EDGES),)
    _dot_kernel[grid](g, a, b, row, left, right, out, M=left.numel(), OP=op, BE=_EDGES, num_warps=2, **strides, **shape)
    return out


@triton.jit
def _matmul_kernel(
    A, W, CHUNKS, OUT, K, N, BLOCKS, BM: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    p, b = tl.program_id(0), tl.program_id(2)
    group = tl.load(CHUNKS + p * 4)
    if group >= 0:
        start, end = tl.load(CHUNKS + p * 4 + 1), tl.load(CHUNKS + p * 4 + 2)
        row = start + tl.arange(0, BM)
        col = tl.program_id(1) * BN + tl.arange(0, BN)
        a = A + ((row * BLOCKS + b) * K)[:, None]
        w = W + (group * BLOCKS + b) * K * N + col[None, :]
        total = tl.zeros([BM, BN], tl.float32)
        for first in range(0, K, BK):
            k = first + tl.arange(0, BK)
            x = tl.load(a + k[None, :], mask=(row < end)[:, None] & (k < K)[None, :], other=0.0)
            y = tl.load(w + k[:, None] * N, mask=(k < K)[:, None] & (col < N)[None, :], other=0.0)
            total = tl.dot(x, y, total, input_precision=PRECISION)
        out = OUT + ((row * BLOCKS + b) * N)[:, None] + col[None, :]
        tl.store(out, total, mask=(row < end)[:, None] & (col < N)[None, :])


@triton.jit
def _outer_kernel(
    A, G, OFFSETS, OUT, K, N, BLOCKS, BM: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    group, b = tl.program_id(0).to(tl.int64), tl.program_id(2)
    start, end = tl.load(OFFSETS + group), tl.load(OFFSETS + group + 1)
    tiles = tl.cdiv(N, BN)
    k = tl.program_id(1) // tiles * BK + tl.arange(0, BK)
    col = tl.program_id(1) % tiles * BN + tl.arange(0, BN)
    total = tl.zeros([BK, BN], tl.float32)
    for first in range(start, end, BM):
        row = first + tl.arange(0, BM)
        a = A + ((row * BLOCKS + b) * K)[None, :] + k[:, None]
        g = G + ((row * BLOCKS + b) * N)[:, None] + col[None, :]
        x = tl.load(a, mask=(row < end)[None, :] & (k < K)[:, None], other=0.0)
        y = tl.load(g, mask=(row < end)[:, None] & (col < N)[None, :], other=0.0)
        total = tl.dot(x, y, total, input_precision=PRECISION)
    out = OUT + (group * BLOCKS + b) * K * N + k[:, None] * N + col[None, :]
    tl.store(out, total, mask=(k < K)[:, None] & (col < N)[None, :])


def _tile(size: int, most: int) -> int:
    """A side of a tile of tensor cores, which have at least 16."""
    return min(most, max(16, int(triton.next_power_of_2(size))))


def _precision() -> str:
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def grouped_matmul(rows: Tensor, weight: Tensor, offsets: Tensor, chunks: Tensor) -> Tensor:
    """As `reference.grouped_matmul`."""
    if rows.dtype == torch.float64:
        return reference.grouped_matmul(rows, weight, offsets, chunks)
    rows, weight, (_, blocks, K, N) = rows.contiguous(), weight.contiguous(), weight.shape
    out = rows.new_empty(len(rows), blocks, N)
    tile = _tile(N, 128)
    if out.numel():
        grid = (len(chunks), triton.cdiv(N, tile), blocks)
        _matmul_kernel[grid](rows, weight, chunks, out, K, N, blocks, CHUNK, 32, tile, _precision())
    return out


def grouped_outer(rows: Tensor, g: Tensor, offsets: Tensor) -> Tensor:
    """As `reference.grouped_outer`."""
    if rows.dtype == torch.float64:
        return reference.grouped_outer(rows, g, offsets)
    rows, g, (_, blocks, K), N = rows.contiguous(), g.contiguous(), rows.shape, g.shape[2]
    out = rows.new_empty(len(offsets) - 1, blocks, K, N)
    tile_k, tile_n = _tile(K, 64), _tile(N, 64)
    if out.numel():
        grid = (len(out), triton.cdiv(K, tile_k) * triton.cdiv(N, tile_n), blocks)
        _outer_kernel[grid](rows, g, offsets, out, K, N, blocks, 64, tile_k, tile_n, _precision())
    return out


@triton.jit
def _load_tile(BASE, rows, cols, R, W, S, ACC: tl.constexpr):
    """A tile of a matrix of R rows, S apart, and W columns; 0 outside of it."""
    mask = (rows < R)[:, None] & (cols < W)[None, :]
    return tl.load(BASE + rows[:, None] * S + cols[None, :], mask=mask, other=0.0).to(ACC)


@triton.jit
def _distance_kernel(
    Q, E, OUT, B, C, W,
    PLANAR: tl.constexpr, BB: tl.constexpr, BC: tl.constexpr, STEPS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(1).to(tl.int64) * BB + tl.arange(0, BB)
    c = tl.program_id(0).to(tl.int64) * BC + tl.arange(0, BC)  # candidates on the axis that may be long
    in_b, in_c = b < B, c < C
    total = tl.zeros([BB, BC], ACC)
    for first in range(0, W, STEPS):
        for step in tl.static_range(STEPS):  # of vectors that lie dimension by dimension: what is loaded is used often
            d = first + step
            u = _differences(Q + d * B, b, in_b, E + d * C, c, in_c, ACC)
            if PLANAR:
                v = _differences(Q + (W + d) * B, b, in_b, E + (W + d) * C, c, in_c, ACC)
                total += tl.sqrt(u * u + v * v)
            else:
                total += tl.abs(u)
    tl.store(OUT + b[:, None] * C + c[None, :], total, mask=in_b[:, None] & in_c[None, :])


@triton.jit
def _differences(Q, b, in_b, E, c, in_c, ACC: tl.constexpr):
    """Of one dimension, [BB, BC]; 0 where nothing is."""
    q, e = tl.load(Q + b, mask=in_b, other=0.0).to(ACC), tl.load(E + c, mask=in_c, other=0.0).to(ACC)
    return q[:, None] - e[None, :]


_HUGE = tl.constexpr(2.0**96)


@triton.jit
def _slope_kernel(
    G, Q, E, OUT, B, C, W, S, SLICE,
    PLANAR: tl.constexpr, BB: tl.constexpr, BD: tl.constexpr, STEPS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64) * BB + tl.arange(0, BB)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    in_b, in_d = b < B, d < W
    part = tl.program_id(2).to(tl.int64)
    x = _load_tile(Q, b, d, B, W, S, ACC)
    total = tl.zeros([BB, BD], ACC)
    if PLANAR:
        w = _load_tile(Q + W, b, d, B, W, S, ACC)
        imaginary = tl.zeros([BB, BD], ACC)
    last = min((part + 1) * SLICE, C)
    for first in range(part * SLICE, last, STEPS):
        for step in tl.static_range(STEPS):
            c = first + step
            g = tl.load(G + c * B + b, mask=in_b, other=0.0).to(ACC)[:, None]
            u = x - tl.load(E + c * S + d, mask=in_d, other=0.0).to(ACC)[None, :]
            if PLANAR:
                v = w - tl.load(E + c * S + W + d, mask=in_d, other=0.0).to(ACC)[None, :]
                square = u * u + v * v
                share = g * tl.rsqrt(tl.where(square > 0, square, 1.0))  # a difference of 0 has nothing to share
                total += share * u
                imaginary += share * v
            else:
                total += g * tl.minimum(tl.maximum(u * _HUGE, -1.0), 1.0)  # the sign, without a branch
    out = OUT + (part * B + b[:, None]) * S + d[None, :]
    mask = in_b[:, None] & in_d[None, :]
    tl.store(out, total, mask=mask)
    if PLANAR:
        tl.store(out + W, imaginary, mask=mask)


def _sum_type(dtype: torch.dtype) -> Any:
    return tl.float64 if wide(dtype) == torch.float64 else tl.float32


_TILE = 32  # numbers on a side of the square that a program has in its registers
_STEPS = 4  # unrolled, so that what they load is under way together
_SLICE = 1024  # candidates a program adds up; the sums of the slices are added in their order


def l1_distance(q: Tensor, e: Tensor, planar: bool) -> Tensor:
    """As `reference.l1_distance`."""
    B, C = len(q), len(e)
    out = q.new_empty(B, C)
    if out.numel():
        grid, turned = (triton.cdiv(C, _TILE), triton.cdiv(B, _TILE)), [_by_dimension(t, planar) for t in (q, e)]
        width = turned[0].shape[1]
        _distance_kernel[grid](*turned, out, B, C, width, planar, _TILE, _TILE, _STEPS, _sum_type(q.dtype))
    return out


def _by_dimension(x: Tensor, planar: bool) -> Tensor:
    """Vectors [n, D] dimension by dimension, plane by plane, [planes, D / planes, n], with zeros to whole steps."""
    planes = 1 + planar
    turned = x.reshape(len(x), planes, x.shape[1] // planes).permute(1, 2, 0)
    return pad(turned, (0, 0, 0, -turned.shape[1] % _STEPS)).contiguous()


def l1_gradient(g: Tensor, q: Tensor, e: Tensor, planar: bool) -> Tensor:
    """As `reference.l1_gradient`."""
    q, (B, D) = q.contiguous(), q.shape
    rows = (0, 0, 0, -len(e) % _STEPS)
    g, e = pad(g.t(), rows).contiguous(), pad(e, rows).contiguous()  # [C, B], [C, D]: candidates in whole steps
    parts, width = max(1, triton.cdiv(len(e), _SLICE)), D // (1 + planar)
    out = torch.empty(parts, B, D, dtype=wide(q.dtype), device=q.device)
    if out.numel():
        grid, kind = (triton.cdiv(B, _TILE), triton.cdiv(width, _TILE), parts), _sum_type(q.dtype)
        _slope_kernel[grid](g, q, e, out, B, len(e), width, D, _SLICE, planar, _TILE, _TILE, _STEPS, kind)
    return out.sum(0).to(q.dtype)


@triton.jit
def _rectified_kernel(
    Q, E, SLOPE, WEIGHT, OUT, B, C, F, D,
    BB: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(1).to(tl.int64) * BB + tl.arange(0, BB)
    c = tl.program_id(0).to(tl.int64) * BC + tl.arange(0, BC)
    total = tl.zeros([BB, BC], ACC)
    for first in range(0, D, BD):
        d = first + tl.arange(0, BD)
        e = _load_tile(E, c, d, C, D, D, ACC)[None, :, :]
        units = tl.zeros([BB, BC, BD], ACC)
        for f in range(F):
            q = _load_tile(Q + f * D, b, d, B, D, F * D, ACC)[:, None, :]
            weight = tl.load(WEIGHT + f * D + d, mask=d < D, other=0.0).to(ACC)[None, None, :]
            units += weight * tl.maximum(q + tl.load(SLOPE + f).to(ACC) * e, 0.0)
        total += tl.sum(units, 2)
    tl.store(OUT + b[:, None] * C + c[None, :], total, mask=(b < B)[:, None] & (c < C)[None, :])


@triton.jit
def _by_query_kernel(
    G, Q, E, SLOPE, ON, ON_E, B, C, F, D, TILES,
    BB: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    f = tl.program_id(0) // TILES
    b = tl.program_id(1).to(tl.int64) * BB + tl.arange(0, BB)
    d = tl.program_id(0) % TILES * BD + tl.arange(0, BD)
    q = _load_tile(Q + f * D, b, d, B, D, F * D, ACC)[:, None, :]
    slope = tl.load(SLOPE + f).to(ACC)
    on, on_e = tl.zeros([BB, BD], ACC), tl.zeros([BB, BD], ACC)
    for first in range(0, C, BC):
        c = first + tl.arange(0, BC).to(tl.int64)
        e = _load_tile(E, c, d, C, D, D, ACC)[None, :, :]
        share = tl.where(q + slope * e > 0, _load_tile(G, b, c, B, C, C, ACC)[:, :, None], 0.0)  # [BB, BC, BD]
        on += tl.sum(share, 1)
        on_e += tl.sum(share * e, 1)
    place = (b[:, None] * F + f) * D + d[None, :]
    mask = (b < B)[:, None] & (d < D)[None, :]
    tl.store(ON + place, on, mask=mask)
    tl.store(ON_E + place, on_e, mask=mask)


@triton.jit
def _by_candidate_kernel(
    G, Q, E, SLOPE, WEIGHT, OUT, B, C, F, D,
    BB: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    c = tl.program_id(0).to(tl.int64) * BC + tl.arange(0, BC)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    e = _load_tile(E, c, d, C, D, D, ACC)[:, None, :]
    total = tl.zeros([BC, BD], ACC)
    for first in range(0, B, BB):
        b = first + tl.arange(0, BB).to(tl.int64)
        g = tl.trans(_load_tile(G, b, c, B, C, C, ACC))[:, :, None]  # [BC, BB, 1]
        for f in range(F):
            slope = tl.load(SLOPE + f).to(ACC)
            weight = tl.load(WEIGHT + f * D + d, mask=d < D, other=0.0).to(ACC)[None, :]
            q = _load_tile(Q + f * D, b, d, B, D, F * D, ACC)[None, :, :]
            total += slope * weight * tl.sum(tl.where(q + slope * e > 0, g, 0.0), 1)
    tl.store(OUT + c[:, None] * D + d[None, :], total, mask=(c < C)[:, None] & (d < D)[None, :])


def rectified_sum(q: Tensor, e: Tensor, slope: Tensor, weight: Tensor) -> Tensor:
    """As `reference.rectified_sum`; lists per query are short enough for that itself."""
    if e.ndim == 3:
        return reference.rectified_sum(q, e, slope, weight)
    q, e, slope, weight = (t.contiguous() for t in (q, e, slope, weight))
    (B, F, D), C = q.shape, len(e)
    out = q.new_empty(B, C)
    if out.numel():
        grid = (triton.cdiv(C, 32), triton.cdiv(B, 16))
        _rectified_kernel[grid](q, e, slope, weight, out, B, C, F, D, 16, 32, 8, _sum_type(q.dtype))
    return out


def rectified_gradient(g: Tensor, q: Tensor, e: Tensor, slope: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As `reference.rectified_gradient`."""
    if e.ndim == 3:
        return reference.rectified_gradient(g, q, e, slope, weight)
    q, e, slope, weight = (t.contiguous() for t in (q, e, slope, weight))
    (B, F, D), C, kind = q.shape, len(e), _sum_type(q.dtype)
    on, on_e, de = torch.empty_like(q), torch.empty_like(q), torch.empty_like(e)
    tiles = triton.cdiv(D, 32)
    if q.numel():
        grid = (F * tiles, triton.cdiv(B, 8))
        _by_query_kernel[grid](g, q, e, slope, on, on_e, B, C, F, D, tiles, 8, 16, 32, kind)
    if e.numel():
        grid = (triton.cdiv(C, 16), tiles)
        _by_candidate_kernel[grid](g, q, e, slope, weight, de, B, C, F, D, 8, 16, 32, kind)
    return on, on_e, de
