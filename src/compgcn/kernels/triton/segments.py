"""Sums over messages: one program per chunk of a row's messages, so that many programs share a hub.

A program stores the row of a single chunk at once. The chunks of a longer row leave their sums in a scratch table, and
a second kernel adds those in a fixed order: without atomics the same input gives the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from compgcn.kernels.backend import wide
from compgcn.kernels.plan import Segments
from compgcn.kernels.reference import LEFT, RIGHT, ROW


@triton.jit
def load_tile(BASE, rows, cols, R, W, S, ACC: tl.constexpr):
    """Load a tile of a matrix of R rows, S apart, and W columns; 0 outside of it."""
    mask = (rows < R)[:, None] & (cols < W)[None, :]
    return tl.load(BASE + rows[:, None] * S + cols[None, :], mask=mask, other=0.0).to(ACC)


def sum_type(dtype: torch.dtype) -> Any:
    return tl.float64 if wide(dtype) == torch.float64 else tl.float32


_EDGES = 4  # messages a program gathers at a time
_COLUMNS = 256  # at most so many columns a program
_RUN = (4, 512, 1)  # the same where messages lie in runs; warps
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
        _store_sum(OUT, SCRATCH, row, slot, cols, real, imaginary, D, S, OP)


@triton.jit
def _store_sum(OUT, SCRATCH, row, slot, cols, real, imaginary, D, S, OP: tl.constexpr):
    in_d = cols < D
    if slot < 0:
        tl.store(OUT + row * S + cols, real, mask=in_d)
        if OP >= 4:
            tl.store(OUT + row * S + D + cols, imaginary, mask=in_d)
    else:
        tl.store(SCRATCH + slot * S + cols, real, mask=in_d)
        if OP >= 4:
            tl.store(SCRATCH + slot * S + D + cols, imaginary, mask=in_d)


@triton.jit
def _any_live(live, OPERANDS, first, end, blocks):
    """Return whether a chunk has an operand that matters: most have none."""
    seen = tl.zeros([32], tl.int32)
    for part in range(first, end, 32):
        every = part + tl.arange(0, 32)
        operand = tl.load(OPERANDS + every, mask=every < end, other=0).to(tl.int64)
        seen |= tl.load(live + operand * blocks, mask=every < end, other=0).to(tl.int32)
    return tl.max(seen, 0) > 0


@triton.jit
def _reduce_runs_kernel(
    A, B, W, LEFT, RIGHT, RUNS, CHUNKS, LIVE, OUT, SCRATCH, D, S,
    OP: tl.constexpr, BE: tl.constexpr, BD: tl.constexpr, VECTOR: tl.constexpr, ACC: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """Combine the weighted sum of the first operands of a run with the second operand, which they share.

    LIVE [.., programs of columns] says which rows of a side matter, see `_live`.
    """
    p = tl.program_id(0)
    D, S = D * VECTOR, S * VECTOR
    row = tl.load(CHUNKS + p * 4)
    if row >= 0:
        first, end, slot = tl.load(CHUNKS + p * 4 + 1), tl.load(CHUNKS + p * 4 + 2), tl.load(CHUNKS + p * 4 + 3)
        cols = tl.program_id(1) * BD + tl.arange(0, BD)
        in_d = cols < D
        real = tl.zeros([BD], ACC)
        imaginary = tl.zeros([BD], ACC)
        blocks = tl.num_programs(1)
        live = LIVE + tl.program_id(1)
        if SIDE == 2:
            end = tl.where(tl.load(live + row * blocks).to(tl.int32) > 0, end, first)
        elif SIDE > 0:
            end = tl.where(_any_live(live, LEFT if SIDE == 1 else RIGHT, first, end, blocks), end, first)
        stop = tl.load(RUNS + first, mask=first < end, other=0).to(tl.int64)
        while first < end:
            after = tl.load(RUNS + stop, mask=stop < end, other=0).to(tl.int64)  # early, for the next run waits for it
            right = tl.load(RIGHT + first).to(tl.int64)
            b, here, last = B + right * S + cols, in_d, tl.minimum(stop, end)
            if SIDE == 3:
                shown = tl.load(live + right * blocks).to(tl.int32)
                here, last = cols < tl.where(shown > 0, D, 0), tl.where(shown > 0, last, first)
            z = tl.load(b, mask=here, other=0.0).to(ACC)
            x = tl.zeros([BD], ACC)
            xi = tl.zeros([BD], ACC)
            weight = tl.zeros([BE], ACC)
            for tile in range(first, last, BE):
                e = tile + tl.arange(0, BE)
                in_e = e < last
                w = tl.load(W + e, mask=in_e, other=0.0).to(ACC)
                left = tl.load(LEFT + e, mask=in_e, other=0).to(tl.int64)
                if SIDE == 1:
                    in_e = in_e & (tl.load(live + left * blocks, mask=in_e, other=0) != 0)
                mask = in_e[:, None] & in_d[None, :]
                a = A + left[:, None] * S + cols[None, :]
                x += tl.sum(w[:, None] * tl.load(a, mask=mask, other=0.0).to(ACC), 0)
                if OP >= 4:
                    xi += tl.sum(w[:, None] * tl.load(a + D, mask=mask, other=0.0).to(ACC), 0)
                weight += w
            if OP == 1:
                real += x + tl.sum(weight, 0) * z
            elif OP == 2:
                real += x - tl.sum(weight, 0) * z
            elif OP == 3:
                real += x * z
            else:
                zi = tl.load(b + D, mask=here, other=0.0).to(ACC)
                sign = 1.0 if OP == 5 else -1.0
                real += x * z + sign * xi * zi
                imaginary += x * zi - sign * xi * z
            first, stop = stop, after
        _store_sum(OUT, SCRATCH, row, slot, cols, real, imaginary, D, S, OP)


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


def columns_of(width: int, op: int, most: int = _COLUMNS) -> tuple[int, int, int]:
    """Return the columns of a plane, how many of them a program takes, and how many programs that makes."""
    columns = width // 2 if op >= 4 else width
    block = min(most, 1 << max(columns - 1, 0).bit_length())
    return columns, block, -(-columns // block)


_LAUNCHERS: dict[tuple[Any, ...], Any] = {}
_KNOBS = hasattr(triton, "knobs")  # since Triton 3.4 a compiled kernel takes the arguments of its source


def launch(kernel: Any, grid: tuple[int, int], tensors: tuple[Tensor, ...], *others: Any, num_warps: int) -> None:
    """Start a kernel with a compiled form that was found before: Triton's own search takes longer than it runs.

    Triton compiles by type and by alignment of the tensors, and by the other arguments.
    """
    kinds = tuple((tensor.dtype, tensor.data_ptr() % 16 == 0) for tensor in tensors)
    key = (id(kernel), tensors[0].device, kinds, others)
    if _KNOBS and (compiled := _LAUNCHERS.get(key)) is not None:
        compiled[(*grid, 1)](*tensors, *others)
    else:
        _LAUNCHERS[key] = kernel[grid](*tensors, *others, num_warps=num_warps)  # None from the interpreter


def _live(only: Tensor, rows: int, columns: int, block: int, programs: int) -> Tensor:
    """Return whether a row is the one that matters in any column of a program, [rows, programs]."""
    live = torch.zeros(rows, programs, dtype=torch.uint8, device=only.device)
    program = torch.arange(only.numel(), device=only.device) % columns // block
    return live.index_put_((only, program), live.new_ones(()))  # a Python number would wait for the device


def segment_reduce(
    a: Tensor, b: Tensor, weight: Tensor, s: Segments, op: int, only: Tensor | None = None, side: int = 0
) -> Tensor:
    """Compute `reference.segment_reduce`; where messages lie in runs, rows that do not matter are left out."""
    a, b, width = a.contiguous(), b.contiguous(), a.shape[1]
    out = a.new_empty(s.offsets.numel() - 1, width)
    if not out.numel():
        return out
    in_runs = op > 0 and s.runs.numel() > 0
    edges, most, warps = _RUN if in_runs else (_EDGES, _COLUMNS, 1)
    kind, (columns, block, programs) = sum_type(a.dtype), columns_of(width, op, most)
    vector = 4 if columns % 4 == 0 else 1
    scratch = torch.empty(s.slots, width, dtype=wide(a.dtype), device=a.device)
    kernel, where, last = _reduce_kernel, [s.chunks], []
    if in_runs:
        rows, last = {LEFT: len(a), ROW: len(out), RIGHT: len(b)}.get(side, 0), [0 if only is None else side]
        live = s.runs if only is None else _live(only, rows, columns, block, programs)
        kernel, where = _reduce_runs_kernel, [s.runs, s.chunks, live]
    tables, sizes = (a, b, weight, s.left, s.right, *where, out, scratch), (columns // vector, width // vector)
    knobs = op, edges, block, vector, kind, *last
    launch(kernel, (len(s.chunks), programs), tables, *sizes, *knobs, num_warps=warps)
    merge(s, scratch, out)
    return out


def merge(s: Segments, scratch: Tensor, out: Tensor) -> None:
    """Add the partial sums of the rows of several chunks."""
    if len(s.merges):
        width = out.shape[1]
        _, block, programs = columns_of(width, 0)
        grid, tables = (len(s.merges), programs), (s.merges, scratch, out)
        launch(_merge_kernel, grid, tables, width, width, _MERGED, block, sum_type(out.dtype), num_warps=2)


def edge_dot(g: Tensor, a: Tensor, b: Tensor, row: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    """Compute `reference.edge_dot`."""
    g, a, b = g.contiguous(), a.contiguous(), b.contiguous()
    out = torch.empty(left.numel(), dtype=wide(g.dtype), device=g.device)
    if left.numel():
        columns, block, _ = columns_of(a.shape[1], op)
        _dot_kernel[(-(-left.numel() // _EDGES),)](
            g, a, b, row, left, right, out, left.numel(), columns, g.stride(0), a.stride(0), b.stride(0),
            op, _EDGES, block, sum_type(a.dtype), num_warps=2,
        )  # fmt: skip
    return out
