"""The dense part of a layer over queries in one pass over the rows, and its gradients in a second one.

A fixed number of programs walk over tiles of rows with the filters at hand. The second pass computes the rows before
the norm again, so nothing but the arguments is kept between the two. Every program sums the gradients by the filters
over its own tiles, and torch adds these sums: without atomics the same input gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from compgcn.kernels import reference
from compgcn.kernels.triton.products import _precision
from compgcn.kernels.triton.segments import _launch

_ROWS = {1: (128, 64), 4: (128, 64)}  # of a tile, by the number of parts: forward, backward
_WARPS = {1: (4, 4), 4: (4, 8)}
_PROGRAMS = {1: (1056, 528), 4: (528, 264)}  # 8 to 2 for each multiprocessor of an H200
_STAGES = 1  # tiles that are loaded at once
_FLOOR = tl.constexpr(reference.FLOOR)
_EPSILON = tl.constexpr(reference.EPSILON)


@triton.jit
def _filters(W, first, D: tl.constexpr):
    """Load three filters one after the other, [D, D] each."""
    i = tl.arange(0, D)
    w = W + (first * D + i)[:, None] * D + i[None, :]
    return tl.load(w), tl.load(w + D * D), tl.load(w + 2 * D * D)


@triton.jit
def _project(t, s, a, b, c, PRECISION: tl.constexpr):
    """[t; t·s; t/s] times the filters a, b, c; the scaler multiplies the products, which are exact."""
    first = tl.dot(t, a, input_precision=PRECISION)
    return first + s * tl.dot(t, b, input_precision=PRECISION) + tl.dot(t, c, input_precision=PRECISION) / s


@triton.jit
def _outer(t, h, up, down, a, b, c, PRECISION: tl.constexpr):
    """Add the gradients by three filters to a, b, c, for the gradient h of the products, and h times and over s."""
    t = tl.trans(t)
    a = tl.dot(t, h, a, input_precision=PRECISION)
    b = tl.dot(t, up, b, input_precision=PRECISION)
    return a, b, tl.dot(t, down, c, input_precision=PRECISION)


@triton.jit
def _store_filters(SUMS, first, a, b, c, D: tl.constexpr):
    i = tl.arange(0, D)
    at = SUMS + (first * D + i)[:, None] * D + i[None, :]
    tl.store(at, a)
    tl.store(at + D * D, b)
    tl.store(at + 2 * D * D, c)


@triton.jit
def _update_kernel(
    X, P1, P2, P3, P4, DEGREE, SCALE, W, GAMMA, BETA, BIAS, OUT, G, G1, G2, G3, G4, SUMS, ROWS, B,
    K: tl.constexpr, D: tl.constexpr, HAS_BETA: tl.constexpr, HAS_BIAS: tl.constexpr, GRADIENT: tl.constexpr,
    BM: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """OUT is the output, or the gradient by X; G1 to G4 and SUMS are written for a gradient alone."""
    kind = X.dtype.element_ty
    i = tl.arange(0, D)
    w = tl.load(W + i[:, None] * D + i[None, :])
    a1, b1, c1 = _filters(W, 1, D)
    if K == 4:
        a2, b2, c2 = _filters(W, 4, D)
        a3, b3, c3 = _filters(W, 7, D)
        a4, b4, c4 = _filters(W, 10, D)
    gamma = tl.load(GAMMA + i).to(tl.float32)[None, :]
    if GRADIENT:
        by_gamma = tl.zeros([D], tl.float32)
        by_beta = tl.zeros([D], tl.float32)
        by_bias = tl.zeros([D], tl.float32)
        by_w = tl.zeros([D, D], tl.float32)
        by_a1 = tl.zeros([D, D], tl.float32)
        by_b1 = tl.zeros([D, D], tl.float32)
        by_c1 = tl.zeros([D, D], tl.float32)
        if K == 4:
            by_a2 = tl.zeros([D, D], tl.float32)
            by_b2 = tl.zeros([D, D], tl.float32)
            by_c2 = tl.zeros([D, D], tl.float32)
            by_a3 = tl.zeros([D, D], tl.float32)
            by_b3 = tl.zeros([D, D], tl.float32)
            by_c3 = tl.zeros([D, D], tl.float32)
            by_a4 = tl.zeros([D, D], tl.float32)
            by_b4 = tl.zeros([D, D], tl.float32)
            by_c4 = tl.zeros([D, D], tl.float32)

    for tile in tl.range(tl.program_id(0), tl.cdiv(ROWS, BM), tl.num_programs(0), num_stages=STAGES):
        row = tile * BM + tl.arange(0, BM)
        here = row < ROWS
        at = row.to(tl.int64)[:, None] * D + i[None, :]
        mask = here[:, None] & (i < D)[None, :]
        s = tl.load(SCALE + row // B, mask=here, other=1.0)[:, None]
        share = 1.0 / tl.load(DEGREE + row // B, mask=here, other=1.0)[:, None]
        x = tl.load(X + at, mask=mask, other=0.0)
        mean = tl.load(P1 + at, mask=mask, other=0.0).to(tl.float32) * share
        t1 = mean.to(kind)
        pre = tl.dot(x, w, input_precision=PRECISION) + _project(t1, s, a1, b1, c1, PRECISION)
        if K == 4:
            variance = tl.load(P2 + at, mask=mask, other=0.0).to(tl.float32) * share - mean * mean
            deviation = tl.sqrt(tl.maximum(variance, _FLOOR))
            t2 = deviation.to(kind)
            t3 = tl.load(P3 + at, mask=mask, other=0.0).to(kind)
            t4 = tl.load(P4 + at, mask=mask, other=0.0).to(kind)
            pre += _project(t2, s, a2, b2, c2, PRECISION)
            pre += _project(t3, s, a3, b3, c3, PRECISION)
            pre += _project(t4, s, a4, b4, c4, PRECISION)
        if HAS_BIAS:
            pre += tl.load(BIAS + i).to(tl.float32)[None, :]
        pre -= (tl.sum(pre, 1) / D)[:, None]
        slope = tl.rsqrt(tl.sum(pre * pre, 1) / D + _EPSILON)[:, None]
        pre *= slope
        y = pre * gamma
        if HAS_BETA:
            y += tl.load(BETA + i).to(tl.float32)[None, :]
        if not GRADIENT:
            tl.store(OUT + at, x.to(tl.float32) + tl.maximum(y, 0.0), mask=mask)
        else:
            g = tl.load(G + at, mask=mask, other=0.0).to(tl.float32)
            h = tl.where(y > 0.0, g, 0.0)
            by_gamma += tl.sum(h * pre, 0)
            if HAS_BETA:
                by_beta += tl.sum(h, 0)
            h *= gamma
            h = slope * (h - (tl.sum(h, 1) / D)[:, None] - pre * (tl.sum(h * pre, 1) / D)[:, None])
            if HAS_BIAS:
                by_bias += tl.sum(h, 0)
            up, down, h = (h * s).to(kind), (h / s).to(kind), h.to(kind)
            by_w = tl.dot(tl.trans(x), h, by_w, input_precision=PRECISION)
            by_a1, by_b1, by_c1 = _outer(t1, h, up, down, by_a1, by_b1, by_c1, PRECISION)
            tl.store(OUT + at, g + tl.dot(h, tl.trans(w), input_precision=PRECISION), mask=mask)
            by_mean = _project(h, s, tl.trans(a1), tl.trans(b1), tl.trans(c1), PRECISION)
            if K == 4:
                by_a2, by_b2, by_c2 = _outer(t2, h, up, down, by_a2, by_b2, by_c2, PRECISION)
                by_a3, by_b3, by_c3 = _outer(t3, h, up, down, by_a3, by_b3, by_c3, PRECISION)
                by_a4, by_b4, by_c4 = _outer(t4, h, up, down, by_a4, by_b4, by_c4, PRECISION)
                by_deviation = _project(h, s, tl.trans(a2), tl.trans(b2), tl.trans(c2), PRECISION)
                by_variance = tl.where(variance >= _FLOOR, 0.5 * by_deviation / deviation, 0.0)
                by_mean -= 2.0 * mean * by_variance
                tl.store(G2 + at, by_variance * share, mask=mask)
                by_largest = _project(h, s, tl.trans(a3), tl.trans(b3), tl.trans(c3), PRECISION)
                tl.store(G3 + at, by_largest, mask=mask)
                by_smallest = _project(h, s, tl.trans(a4), tl.trans(b4), tl.trans(c4), PRECISION)
                tl.store(G4 + at, by_smallest, mask=mask)
            tl.store(G1 + at, by_mean * share, mask=mask)

    if GRADIENT:
        SUMS += tl.program_id(0) * ((1 + 3 * K) * D + 3) * D
        tl.store(SUMS + i[:, None] * D + i[None, :], by_w)
        _store_filters(SUMS, 1, by_a1, by_b1, by_c1, D)
        if K == 4:
            _store_filters(SUMS, 4, by_a2, by_b2, by_c2, D)
            _store_filters(SUMS, 7, by_a3, by_b3, by_c3, D)
            _store_filters(SUMS, 10, by_a4, by_b4, by_c4, D)
        SUMS += (1 + 3 * K) * D * D
        tl.store(SUMS + i, by_gamma)
        tl.store(SUMS + D + i, by_beta)
        tl.store(SUMS + 2 * D + i, by_bias)


def _run(
    x: Tensor, parts: Sequence[Tensor], degree: Tensor, scale: Tensor, weight: Tensor, gamma: Tensor,
    beta: Tensor | None, bias: Tensor | None, out: Tensor, g: Tensor | None = None, by_parts: Sequence[Tensor] = (),
) -> Tensor:  # fmt: skip
    """Write the output, or for its gradient `g` the gradients by x and the parts, and return the sums over the rows."""
    pieces, gradient, (nodes, batch, d) = reference.pieces(parts), g is not None, x.shape
    K, rows = len(pieces), nodes * batch
    size, warps, programs = (knob[K][gradient] for knob in (_ROWS, _WARPS, _PROGRAMS))
    size = size if d < 64 else size // 2
    programs = min(programs, -(-rows // size))
    sums = torch.empty(programs if gradient else 0, weight.shape[0] + 3, d, device=x.device)
    # A launch has places for four parts and for every option; it never touches those that stand in for an absent one.
    read = [*pieces, *[x] * (4 - K), degree, scale, weight.to(x.dtype), gamma]
    read += [gamma if option is None else option for option in (beta, bias)]
    written = [*reference.pieces(by_parts), *[out] * (4 - K if gradient else 4), sums]
    g = x if g is None else g
    tensors = (*(tensor.contiguous() for tensor in (x, *read)), out, g.contiguous(), *written)
    flags = beta is not None, bias is not None, gradient
    if rows:
        _launch(
            _update_kernel, (programs, 1), tensors, rows, batch, K, d, *flags, size, _STAGES, _precision(),
            num_warps=warps,
        )  # fmt: skip
    return sums.sum(0)


def update(
    x: Tensor, parts: Sequence[Tensor], degree: Tensor, scale: Tensor, weight: Tensor, gamma: Tensor,
    beta: Tensor | None, bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """Compute `reference.update`."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _run(x, parts, degree, scale, weight, gamma, beta, bias, out)
    return out


def update_gradient(
    g: Tensor, x: Tensor, parts: Sequence[Tensor], degree: Tensor, scale: Tensor, weight: Tensor, gamma: Tensor,
    beta: Tensor | None, bias: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """Return the gradients of `reference.update` by x, by W, gamma, beta and bias as rows of a matrix, by the parts."""
    by_x, *by_parts = (torch.empty_like(given, memory_format=torch.contiguous_format) for given in (x, *parts))
    sums = _run(x, parts, degree, scale, weight, gamma, beta, bias, by_x, g, by_parts)  # [(1 + 3K) d + 3, d]
    return [by_x, sums, *by_parts]
