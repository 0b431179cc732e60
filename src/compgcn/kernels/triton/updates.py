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
from compgcn.kernels.triton.segments import launch

_ROWS = {1: 64, 4: 128}  # of a tile, by the number of parts
_WARPS = {1: (4, 4), 4: (4, 8)}  # likewise, for the output and for the gradients
_PROGRAMS = 528, 264  # for either, of 132 processors
_FLOOR = tl.constexpr(reference.FLOOR)
_EPSILON = tl.constexpr(reference.EPSILON)


@triton.jit
def _beside(a, b, BM: tl.constexpr, D: tl.constexpr):
    """Lay two tiles [BM, D] side by side, [BM, 2D]: in turns, column by column, which moves nothing between threads."""
    return tl.reshape(tl.join(a, b), [BM, 2 * D])


@triton.jit
def _statistics(
    P1, P2, P3, P4, at, mask, share, kind: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """Load the parts of a tile: all its statistics side by side, mean, variance, deviation."""
    mean = tl.load(P1 + at, mask=mask, other=0.0).to(tl.float32) * share
    t, variance, deviation = mean.to(kind), mean, mean
    if K == 4:
        variance = tl.load(P2 + at, mask=mask, other=0.0).to(tl.float32) * share - mean * mean
        deviation = tl.sqrt(tl.maximum(variance, _FLOOR))
        largest = tl.load(P3 + at, mask=mask, other=0.0).to(kind)
        smallest = tl.load(P4 + at, mask=mask, other=0.0).to(kind)
        t = _beside(_beside(t, largest, BM, D), _beside(deviation.to(kind), smallest, BM, D), BM, 2 * D)
    return t, mean, variance, deviation


@triton.jit
def _store_by_parts(
    G1, G2, G3, G4, by_t, mean, variance, deviation, at, mask, share, K: tl.constexpr, BM: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """Store the gradients by the parts, for those by their statistics side by side."""
    if K == 1:
        tl.store(G1 + at, by_t * share, mask=mask)
    else:
        odd, even = tl.split(tl.reshape(by_t, [BM, D, 2, 2]))
        by_mean, by_largest = tl.split(odd)
        by_deviation, by_smallest = tl.split(even)
        by_variance = tl.where(variance >= _FLOOR, 0.5 * by_deviation / deviation, 0.0)
        tl.store(G1 + at, (by_mean - 2.0 * mean * by_variance) * share, mask=mask)
        tl.store(G2 + at, by_variance * share, mask=mask)
        tl.store(G3 + at, by_largest, mask=mask)
        tl.store(G4 + at, by_smallest, mask=mask)


@triton.jit
def _add_outer(
    by_w, by_a, by_b, by_c, x, t, h, up, down, K: tl.constexpr, BM: tl.constexpr, D: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the gradients by the filters over a tile of rows.

    Tensor cores want 64 rows and more: one statistic is multiplied together with x, and by both scaled gradients.
    """
    if K == 1:
        by_a = tl.dot(tl.trans(_beside(x, t, BM, D)), h, by_a, input_precision=PRECISION)
        by_b = tl.dot(tl.trans(_beside(up, down, BM, D)), t, by_b, input_precision=PRECISION)
    else:
        by_w = tl.dot(tl.trans(x), h, by_w, input_precision=PRECISION)
        by_a = tl.dot(tl.trans(t), h, by_a, input_precision=PRECISION)
        by_b = tl.dot(tl.trans(t), up, by_b, input_precision=PRECISION)
        by_c = tl.dot(tl.trans(t), down, by_c, input_precision=PRECISION)
    return by_w, by_a, by_b, by_c


@triton.jit
def _store_sums(
    SUMS, by_w, by_a, by_b, by_c, by_gamma, by_beta, by_bias, whole, every, K: tl.constexpr, D: tl.constexpr
):
    """Store what `_add_outer` and the rows added up, in the order of W, gamma, beta, bias."""
    i = tl.arange(0, D)
    SUMS += tl.program_id(0) * ((1 + 3 * K) * D + 3) * D
    if K == 1:
        j = tl.arange(0, 2 * D)
        tl.store(SUMS + (j % 2 * D + j // 2)[:, None] * D + i[None, :], by_a)
        tl.store(SUMS + ((2 + j % 2) * D * D + j // 2)[:, None] + i[None, :] * D, by_b)
    else:
        tl.store(SUMS + whole, by_w)
        tl.store(SUMS + every, by_a)
        tl.store(SUMS + every + D * D, by_b)
        tl.store(SUMS + every + 2 * D * D, by_c)
    SUMS += (1 + 3 * K) * D * D
    tl.store(SUMS + i, tl.sum(by_gamma, 0))
    tl.store(SUMS + D + i, tl.sum(by_beta, 0))
    tl.store(SUMS + 2 * D + i, tl.sum(by_bias, 0))


@triton.jit
def _update_kernel(
    X, P1, P2, P3, P4, DEGREE, SCALE, W, GAMMA, BETA, BIAS, OUT, G, G1, G2, G3, G4, SUMS, ROWS, B,
    K: tl.constexpr, D: tl.constexpr, HAS_BETA: tl.constexpr, HAS_BIAS: tl.constexpr, GRADIENT: tl.constexpr,
    BM: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """OUT is the output, or the gradient by X; G1 to G4 and SUMS are written for a gradient alone."""
    kind = X.dtype.element_ty
    i = tl.arange(0, D)
    j = tl.arange(0, K * D)
    whole = i[:, None] * D + i[None, :]  # a filter
    every = ((1 + 3 * (j % K)) * D + j // K)[:, None] * D + i[None, :]  # the first filters of all statistics
    w, a, b, c = tl.load(W + whole), tl.load(W + every), tl.load(W + every + D * D), tl.load(W + every + 2 * D * D)
    gamma = tl.load(GAMMA + i).to(tl.float32)[None, :]
    if GRADIENT:
        by_gamma = tl.zeros([BM, D], tl.float32)
        by_beta = tl.zeros([BM if HAS_BETA else 1, D], tl.float32)
        by_bias = tl.zeros([BM if HAS_BIAS else 1, D], tl.float32)
        by_w = tl.zeros([1 if K == 1 else D, D], tl.float32)
        by_a = tl.zeros([2 * D if K == 1 else K * D, D], tl.float32)
        by_b = tl.zeros([2 * D if K == 1 else K * D, D], tl.float32)
        by_c = tl.zeros([1 if K == 1 else K * D, D], tl.float32)

    for tile in tl.range(tl.program_id(0), tl.cdiv(ROWS, BM), tl.num_programs(0), num_stages=STAGES):
        row = tile * BM + tl.arange(0, BM)
        here = row < ROWS
        at, mask = row.to(tl.int64)[:, None] * D + i[None, :], here[:, None]
        s = tl.load(SCALE + row // B, mask=here, other=1.0)[:, None]
        share = 1.0 / tl.load(DEGREE + row // B, mask=here, other=1.0)[:, None]
        x = tl.load(X + at, mask=mask, other=0.0)
        t, mean, variance, deviation = _statistics(P1, P2, P3, P4, at, mask, share, kind, K, BM, D)
        # The scaler multiplies the products, which are more exact than a scaled statistic would be.
        pre = s * tl.dot(t, b, input_precision=PRECISION) + tl.dot(t, c, input_precision=PRECISION) / s
        pre += tl.dot(t, a, tl.dot(x, w, input_precision=PRECISION), input_precision=PRECISION)
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
            by_gamma += h * pre
            if HAS_BETA:
                by_beta += h
            h *= gamma
            h = slope * (h - (tl.sum(h, 1) / D)[:, None] - pre * (tl.sum(h * pre, 1) / D)[:, None])
            if HAS_BIAS:
                by_bias += h
            up, down, h = (h * s).to(kind), (h / s).to(kind), h.to(kind)
            tl.store(OUT + at, g + tl.dot(h, tl.trans(w), input_precision=PRECISION), mask=mask)
            if K == 4:  # load them again: keeping them takes more registers than there are
                t, mean, variance, deviation = _statistics(P1, P2, P3, P4, at, mask, share, kind, K, BM, D)
            by_t = tl.dot(h, tl.trans(a), input_precision=PRECISION)
            by_t = tl.dot(up, tl.trans(b), by_t, input_precision=PRECISION)
            by_t = tl.dot(down, tl.trans(c), by_t, input_precision=PRECISION)
            _store_by_parts(G1, G2, G3, G4, by_t, mean, variance, deviation, at, mask, share, K, BM, D)
            by_w, by_a, by_b, by_c = _add_outer(by_w, by_a, by_b, by_c, x, t, h, up, down, K, BM, D, PRECISION)

    if GRADIENT:
        _store_sums(SUMS, by_w, by_a, by_b, by_c, by_gamma, by_beta, by_bias, whole, every, K, D)


def _run(
    x: Tensor, parts: Sequence[Tensor], degree: Tensor, scale: Tensor, weight: Tensor, gamma: Tensor,
    beta: Tensor | None, bias: Tensor | None, out: Tensor, g: Tensor | None = None, by_parts: Sequence[Tensor] = (),
) -> Tensor:  # fmt: skip
    """Write the output, or for its gradient `g` the gradients by x and the parts, and return the sums over the rows."""
    gradient, K, (nodes, batch, d) = g is not None, len(parts), x.shape
    rows = nodes * batch
    size, stages = _ROWS[K], 2  # tiles on their way at a time
    if x.element_size() > 2:  # a processor has room for half the rows, one tile at a time
        size, stages = size // 2, 1
    programs = min(_PROGRAMS[gradient], -(-rows // size))
    sums = torch.empty(programs if gradient else 0, weight.shape[0] + 3, d, device=x.device)
    # A launch has places for four parts and for every option; it never touches those that stand in for an absent one.
    read = [*parts, *[x] * (4 - K), degree, scale, weight.to(x.dtype), gamma]
    read += [gamma if option is None else option for option in (beta, bias)]
    written = [*by_parts, *[out] * (4 - K if gradient else 4), sums]
    g = x if g is None else g
    tensors = (*(tensor.contiguous() for tensor in (x, *read)), out, g.contiguous(), *written)
    flags = beta is not None, bias is not None, gradient
    if rows:
        launch(
            _update_kernel, (programs, 1), tensors, rows, batch, K, d, *flags, size, stages, _precision(),
            num_warps=_WARPS[K][gradient],
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
