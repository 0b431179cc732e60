"""Products of rows with the matrix of their group, in tiles of tensor cores."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from compgcn.kernels import reference
from compgcn.kernels.plan import CHUNK


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
    """Return the side of a tile of tensor cores, at least 16."""
    return min(most, max(16, int(triton.next_power_of_2(size))))


def _precision() -> str:
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def grouped_matmul(rows: Tensor, weight: Tensor, offsets: Tensor, chunks: Tensor) -> Tensor:
    """Compute `reference.grouped_matmul`."""
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
    """Compute `reference.grouped_outer`."""
    if rows.dtype == torch.float64:
        return reference.grouped_outer(rows, g, offsets)
    rows, g, (_, blocks, K), N = rows.contiguous(), g.contiguous(), rows.shape, g.shape[2]
    out = rows.new_empty(len(offsets) - 1, blocks, K, N)
    tile_k, tile_n = _tile(K, 64), _tile(N, 64)
    if out.numel():
        grid = (len(out), triton.cdiv(K, tile_k) * triton.cdiv(N, tile_n), blocks)
        _outer_kernel[grid](rows, g, offsets, out, K, N, blocks, 64, tile_k, tile_n, _precision())
    return out
