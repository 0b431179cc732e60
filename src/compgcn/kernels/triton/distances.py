"""Distances of queries and candidates, and their gradients."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from compgcn.kernels.backend import wide
from compgcn.kernels.triton.segments import load_tile, sum_type

_TILE = 32  # numbers on a side of the square that a program has in its registers
_STEPS = 4  # unrolled, so that what they load is under way together
_SLICE = 1024  # candidates a program adds up; the sums of the slices are added in their order
_HUGE = tl.constexpr(2.0**96)


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
            u = _differences(Q, E, d, b, in_b, c, in_c, B, C, ACC)
            if PLANAR:
                v = _differences(Q, E, W + d, b, in_b, c, in_c, B, C, ACC)
                total += tl.sqrt(u * u + v * v)
            else:
                total += tl.abs(u)
    tl.store(OUT + b[:, None] * C + c[None, :], total, mask=in_b[:, None] & in_c[None, :])


@triton.jit
def _differences(Q, E, d, b, in_b, c, in_c, B, C, ACC: tl.constexpr):
    """Return the differences in dimension d, [BB, BC]; indices are 64-bit, as tables may be larger than 2^31."""
    q = tl.load(Q + (tl.zeros_like(b) + d) * B + b, mask=in_b, other=0.0).to(ACC)
    e = tl.load(E + (tl.zeros_like(c) + d) * C + c, mask=in_c, other=0.0).to(ACC)
    return q[:, None] - e[None, :]


@triton.jit
def _slope_kernel(
    G, Q, E, OUT, B, C, W, S, SLICE,
    PLANAR: tl.constexpr, BB: tl.constexpr, BD: tl.constexpr, STEPS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64) * BB + tl.arange(0, BB)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    in_b, in_d = b < B, d < W
    part = tl.program_id(2).to(tl.int64)
    x = load_tile(Q, b, d, B, W, S, ACC)
    total = tl.zeros([BB, BD], ACC)
    if PLANAR:
        w = load_tile(Q + W, b, d, B, W, S, ACC)
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


def l1_distance(q: Tensor, e: Tensor, planar: bool) -> Tensor:
    """Compute `reference.l1_distance`."""
    B, C = len(q), len(e)
    out = q.new_empty(B, C)
    if out.numel():
        grid, turned = (triton.cdiv(C, _TILE), triton.cdiv(B, _TILE)), [_by_dimension(t, planar) for t in (q, e)]
        width = turned[0].shape[1]
        _distance_kernel[grid](*turned, out, B, C, width, planar, _TILE, _TILE, _STEPS, sum_type(q.dtype))
    return out


def _by_dimension(x: Tensor, planar: bool) -> Tensor:
    """Lay out vectors [n, D] as [planes, D / planes, n], with zeros to whole steps."""
    planes = 1 + planar
    turned = x.reshape(len(x), planes, x.shape[1] // planes).permute(1, 2, 0)
    return pad(turned, (0, 0, 0, -turned.shape[1] % _STEPS)).contiguous()


def l1_gradient(g: Tensor, q: Tensor, e: Tensor, planar: bool) -> Tensor:
    """Compute `reference.l1_gradient`."""
    q, (B, D) = q.contiguous(), q.shape
    rows = (0, 0, 0, -len(e) % _STEPS)
    g, e = pad(g.t(), rows).contiguous(), pad(e, rows).contiguous()  # [C, B], [C, D]: candidates in whole steps
    parts, width = max(1, triton.cdiv(len(e), _SLICE)), D // (1 + planar)
    out = torch.empty(parts, B, D, dtype=wide(q.dtype), device=q.device)
    if out.numel():
        grid, kind = (triton.cdiv(B, _TILE), triton.cdiv(width, _TILE), parts), sum_type(q.dtype)
        _slope_kernel[grid](g, q, e, out, B, len(e), width, D, _SLICE, planar, _TILE, _TILE, _STEPS, kind)
    return out.sum(0).to(q.dtype)
