"""Sums of rectified units over queries and candidates, and their gradients."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from compgcn.kernels import reference
from compgcn.kernels.triton.segments import load_tile, sum_type


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
        e = load_tile(E, c, d, C, D, D, ACC)[None, :, :]
        units = tl.zeros([BB, BC, BD], ACC)
        for f in range(F):
            q = load_tile(Q + f * D, b, d, B, D, F * D, ACC)[:, None, :]
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
    q = load_tile(Q + f * D, b, d, B, D, F * D, ACC)[:, None, :]
    slope = tl.load(SLOPE + f).to(ACC)
    on, on_e = tl.zeros([BB, BD], ACC), tl.zeros([BB, BD], ACC)
    for first in range(0, C, BC):
        c = first + tl.arange(0, BC).to(tl.int64)
        e = load_tile(E, c, d, C, D, D, ACC)[None, :, :]
        share = tl.where(q + slope * e > 0, load_tile(G, b, c, B, C, C, ACC)[:, :, None], 0.0)  # [BB, BC, BD]
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
    e = load_tile(E, c, d, C, D, D, ACC)[:, None, :]
    total = tl.zeros([BC, BD], ACC)
    for first in range(0, B, BB):
        b = first + tl.arange(0, BB).to(tl.int64)
        g = tl.trans(load_tile(G, b, c, B, C, C, ACC))[:, :, None]  # [BC, BB, 1]
        for f in range(F):
            slope = tl.load(SLOPE + f).to(ACC)
            weight = tl.load(WEIGHT + f * D + d, mask=d < D, other=0.0).to(ACC)[None, :]
            q = load_tile(Q + f * D, b, d, B, D, F * D, ACC)[None, :, :]
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
        _rectified_kernel[grid](q, e, slope, weight, out, B, C, F, D, 16, 32, 8, sum_type(q.dtype))
    return out


def rectified_gradient(g: Tensor, q: Tensor, e: Tensor, slope: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As `reference.rectified_gradient`."""
    if e.ndim == 3:
        return reference.rectified_gradient(g, q, e, slope, weight)
    q, e, slope, weight = (t.contiguous() for t in (q, e, slope, weight))
    (B, F, D), C, kind = q.shape, len(e), sum_type(q.dtype)
    on, on_e, de = torch.empty_like(q), torch.empty_like(q), torch.empty_like(e)
    tiles = triton.cdiv(D, 32)
    if q.numel():
        grid = (F * tiles, triton.cdiv(B, 8))
        _by_query_kernel[grid](g, q, e, slope, on, on_e, B, C, F, D, tiles, 8, 16, 32, kind)
    if e.numel():
        grid = (triton.cdiv(C, 16), tiles)
        _by_candidate_kernel[grid](g, q, e, slope, weight, de, B, C, F, D, 8, 16, 32, kind)
    return on, on_e, de
