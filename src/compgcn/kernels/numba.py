"""Kernels for a CPU; the names are those of `compgcn.kernels.reference`.

One thread sums an output row, in the order of its edges, so the bits do not depend on the number of threads. Each
kernel is a loop over a range of its rows; `_threaded` makes the one that shares such ranges out to the threads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compgcn.kernels import reference
from compgcn.kernels.backend import wide
from compgcn.kernels.plan import Segments

# Numba would take every core, and have torch take as many: give it the number that torch was given.
if "numba" not in sys.modules:
    os.environ.setdefault("NUMBA_NUM_THREADS", str(torch.get_num_threads()))

from numba import njit, prange

_SMALL = 2**17  # multiplications that one thread does before a second one has woken up
_LARGE = 2**17  # multiplications of a group's block from which on a call of torch's product pays
_CANDIDATES = 1024  # whose distances are made at a time: they stay in the cache
_TASKS = 64  # pieces of about equal numbers of edges; many more than cores, so that no thread waits long
_FLOOR, _EPSILON = reference.FLOOR, reference.EPSILON


def _compiled(function: Callable[..., Any], *, parallel: bool = False) -> Callable[..., Any]:
    """Compile for one core or for all, and keep the machine code on disk where that can be written.

    Without fast-math: code compiled now and code loaded from disk must round alike.
    """
    try:
        kernel: Callable[..., Any] = njit(function, cache=True, parallel=parallel, nogil=True)
    except RuntimeError:  # no place to write: every process compiles it again
        kernel = njit(function, parallel=parallel, nogil=True)
    return kernel


@_compiled
def _reduce_rows(a, b, weight, offsets, left, right, op, out, first, last):  # pragma: no cover
    width = a.shape[1]
    half = width // 2
    for v in range(first, last):
        y = out[v]
        for e in range(offsets[v], offsets[v + 1]):
            w = weight[e]
            x = a[left[e]]
            if op == 0:
                for j in range(width):
                    y[j] += w * x[j]
                continue
            z = b[right[e]]
            if op == 1:
                for j in range(width):
                    y[j] += w * (x[j] + z[j])
            elif op == 2:
                for j in range(width):
                    y[j] += w * (x[j] - z[j])
            elif op == 3:
                for j in range(width):
                    y[j] += w * x[j] * z[j]
            elif op == 4:
                for j in range(half):
                    y[j] += w * (x[j] * z[j] - x[half + j] * z[half + j])
                    y[half + j] += w * (x[j] * z[half + j] + x[half + j] * z[j])
            else:
                for j in range(half):
                    y[j] += w * (x[j] * z[j] + x[half + j] * z[half + j])
                    y[half + j] += w * (x[j] * z[half + j] - x[half + j] * z[j])


@_compiled
def _combine(x, z, op, m):  # pragma: no cover
    """Write one message; every statistic and its gradient take it from here, so they round it alike."""
    width = x.shape[0]
    half = width // 2
    if op == 0:
        for j in range(width):
            m[j] = x[j]
    elif op == 1:
        for j in range(width):
            m[j] = x[j] + z[j]
    elif op == 2:
        for j in range(width):
            m[j] = x[j] - z[j]
    elif op == 3:
        for j in range(width):
            m[j] = x[j] * z[j]
    elif op == 4:
        for j in range(half):
            m[j] = x[j] * z[j] - x[half + j] * z[half + j]
            m[half + j] = x[j] * z[half + j] + x[half + j] * z[j]
    else:
        for j in range(half):
            m[j] = x[j] * z[j] + x[half + j] * z[half + j]
            m[half + j] = x[j] * z[half + j] - x[half + j] * z[j]


@_compiled
def _statistics_rows(x, z, weight, offsets, left, right, op, out, first, last):  # pragma: no cover
    m = np.empty(x.shape[1], x.dtype)
    for v in range(first, last):
        total, square, largest, smallest, top, bottom = out[0, v], out[1, v], out[2, v], out[3, v], out[4, v], out[5, v]
        for e in range(offsets[v], offsets[v + 1]):
            w = weight[e]
            if w == 0:
                continue
            _combine(x[left[e]], z[right[e] if op > 0 else 0], op, m)
            for j in range(m.shape[0]):
                value = m[j]
                total[j] += w * value
                square[j] += w * value * value
                top[j] = 1 if value > largest[j] else top[j] + (value == largest[j])
                bottom[j] = 1 if value < smallest[j] else bottom[j] + (value == smallest[j])
                largest[j] = max(largest[j], value)
                smallest[j] = min(smallest[j], value)


@_compiled
def _pair_rows(
    x, z, weight, found, g_sum, g_square, g_largest, g_smallest, sender, relation, offsets, row, op, out, first, last
):  # fmt: skip  # pragma: no cover
    m = np.empty(x.shape[1], x.dtype)
    for p in range(first, last):
        _combine(x[sender[p]], z[relation[p] if op > 0 else 0], op, m)
        d = out[p]
        for e in range(offsets[p], offsets[p + 1]):
            w, v = weight[e], row[e]
            if w == 0:
                continue
            by_sum, by_square, by_largest, by_smallest = g_sum[v], g_square[v], g_largest[v], g_smallest[v]
            largest, smallest = found[2, v], found[3, v]
            for j in range(m.shape[0]):
                value = m[j]
                by_extremes = by_largest[j] if value == largest[j] else 0
                if value == smallest[j]:
                    by_extremes += by_smallest[j]
                d[j] += w * (by_sum[j] + 2 * value * by_square[j]) + by_extremes


@_compiled
def _dot_rows(g, a, b, row, left, right, op, out):  # pragma: no cover
    width = a.shape[1]
    half = width // 2
    for e in range(out.shape[0]):
        y, x = g[row[e]], a[left[e]]
        dot = out[e]
        if op == 0:  # `b` may be a placeholder without the row right[e]
            for j in range(width):
                dot += y[j] * x[j]
            out[e] = dot
            continue
        z = b[right[e]]
        if op == 1:
            for j in range(width):
                dot += y[j] * (x[j] + z[j])
        elif op == 2:
            for j in range(width):
                dot += y[j] * (x[j] - z[j])
        elif op == 3:
            for j in range(width):
                dot += y[j] * x[j] * z[j]
        else:
            sign = 1 if op == 5 else -1
            for j in range(half):
                dot += y[j] * (x[j] * z[j] + sign * x[half + j] * z[half + j])
                dot += y[half + j] * (x[j] * z[half + j] - sign * x[half + j] * z[j])
        out[e] = dot


@_compiled
def _product_groups(rows, weight, offsets, most, out, first, last):  # pragma: no cover
    blocks, inputs, width = weight.shape[1:]
    fours = inputs // 4 * 4  # four rows of a filter for each time that the sums are read and written
    for group in range(first, last):
        if offsets[group + 1] - offsets[group] > most:
            continue
        for p in range(offsets[group], offsets[group + 1]):
            for b in range(blocks):
                x, w, y = rows[p, b], weight[group, b], out[p, b]
                for i in range(0, fours, 4):
                    x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
                    w0, w1, w2, w3 = w[i], w[i + 1], w[i + 2], w[i + 3]
                    for j in range(width):
                        y[j] += x0 * w0[j] + x1 * w1[j] + x2 * w2[j] + x3 * w3[j]
                for i in range(fours, inputs):
                    x0, w0 = x[i], w[i]
                    for j in range(width):
                        y[j] += x0 * w0[j]


@_compiled
def _outer_groups(rows, g, offsets, most, out, first, last):  # pragma: no cover
    blocks, inputs, width = out.shape[1:]
    for group in range(first, last):
        start, end = offsets[group], offsets[group + 1]
        if end - start > most:
            continue
        fours = start + (end - start) // 4 * 4
        for b in range(blocks):
            w = out[group, b]
            for p in range(start, fours, 4):
                x0, x1, x2, x3 = rows[p, b], rows[p + 1, b], rows[p + 2, b], rows[p + 3, b]
                g0, g1, g2, g3 = g[p, b], g[p + 1, b], g[p + 2, b], g[p + 3, b]
                for i in range(inputs):
                    y, a0, a1, a2, a3 = w[i], x0[i], x1[i], x2[i], x3[i]
                    for j in range(width):
                        y[j] += a0 * g0[j] + a1 * g1[j] + a2 * g2[j] + a3 * g3[j]
            for p in range(fours, end):
                x0, g0 = rows[p, b], g[p, b]
                for i in range(inputs):
                    y, a0 = w[i], x0[i]
                    for j in range(width):
                        y[j] += a0 * g0[j]


@_compiled
def _add_products(rows, matrix, out):  # pragma: no cover
    """Add rows [n, i] times a matrix [i, o] to out [n, o], four rows of either at a time."""
    (n, inputs), width = rows.shape, matrix.shape[1]
    p4, i4 = n // 4 * 4, inputs // 4 * 4
    for p in range(0, p4, 4):
        a, b, c, d = rows[p], rows[p + 1], rows[p + 2], rows[p + 3]
        ya, yb, yc, yd = out[p], out[p + 1], out[p + 2], out[p + 3]
        for i in range(0, i4, 4):
            a0, a1, a2, a3 = a[i], a[i + 1], a[i + 2], a[i + 3]
            b0, b1, b2, b3 = b[i], b[i + 1], b[i + 2], b[i + 3]
            c0, c1, c2, c3 = c[i], c[i + 1], c[i + 2], c[i + 3]
            d0, d1, d2, d3 = d[i], d[i + 1], d[i + 2], d[i + 3]
            w0, w1, w2, w3 = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
            for j in range(width):
                v0, v1, v2, v3 = w0[j], w1[j], w2[j], w3[j]
                ya[j] += a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3
                yb[j] += b0 * v0 + b1 * v1 + b2 * v2 + b3 * v3
                yc[j] += c0 * v0 + c1 * v1 + c2 * v2 + c3 * v3
                yd[j] += d0 * v0 + d1 * v1 + d2 * v2 + d3 * v3
    for p in range(n):
        y = out[p]
        for i in range(i4 if p < p4 else 0, inputs):
            a0, w0 = rows[p, i], matrix[i]
            for j in range(width):
                y[j] += a0 * w0[j]


@_compiled
def _norm_rows(x, parts, degree, scale, filters, bias, t, folded, out, spread):  # pragma: no cover
    """Write the statistics t [K, B, d] of an entity, and the normed rows [B, d] of its update.

    The filters of a statistic are one matrix for the entity: A + s B + C / s, written to `folded` [K, d, d]. `spread`
    gets the standard deviation of each row before the norm [B].
    """
    (B, d), one, floor = x.shape, np.float32(1), np.float32(_FLOOR)
    share = one / np.float32(d)
    for b in range(B):
        for j in range(d):
            out[b, j] = bias[j]
    _add_products(x, filters[0], out)
    for k in range(len(parts)):
        divisor = degree if k < 2 else one
        for b in range(B):
            for j in range(d):
                value = parts[k, b, j] / divisor
                t[k, b, j] = np.sqrt(max(value - t[0, b, j] * t[0, b, j], floor)) if k == 1 else value
        first, more, less = filters[3 * k + 1], filters[3 * k + 2], filters[3 * k + 3]
        for i in range(d):
            for j in range(d):
                folded[k, i, j] = first[i, j] + scale * more[i, j] + less[i, j] / scale
        _add_products(t[k], folded[k], out)
    for b in range(B):
        mean = square = np.float32(0)
        for j in range(d):
            mean += out[b, j]
        mean *= share
        for j in range(d):
            out[b, j] -= mean
        for j in range(d):
            square += out[b, j] * out[b, j]
        spread[b] = np.sqrt(square * share + np.float32(_EPSILON))
        for j in range(d):
            out[b, j] *= one / spread[b]


@_compiled
def _update_rows(x, parts, degree, scale, filters, gamma, beta, bias, out, first, last):  # pragma: no cover
    (_, B, d), K = x.shape, len(parts)
    t, folded, spread = np.empty((K, B, d), x.dtype), np.empty((K, d, d), x.dtype), np.empty(B, x.dtype)
    for v in range(first, last):
        y = out[v]
        _norm_rows(x[v], parts[:, v], degree[v], scale[v], filters, bias, t, folded, y, spread)
        for b in range(B):
            for j in range(d):
                y[b, j] = x[v, b, j] + max(gamma[j] * y[b, j] + beta[j], np.float32(0))


@_compiled
def _update_slopes(
    g, x, parts, degree, scale, filters, gamma, beta, bias, by_x, by_parts, by_filters, by_rows, first, last
):  # fmt: skip  # pragma: no cover
    """Write the gradients by x and the parts; add those by the filters [1 + 3K, d, d], and by gamma, beta and bias."""
    (_, B, d), K = x.shape, len(parts)
    t, by_t = np.empty((2, K, B, d), x.dtype)
    n, h = np.empty((2, B, d), x.dtype)
    folded, outer, spread = np.empty((K, d, d), x.dtype), np.empty((d, d), x.dtype), np.empty(B, x.dtype)
    one = np.float32(1)
    share, least, own = one / np.float32(d), np.sqrt(np.float32(_FLOOR)), filters[0].T.copy()
    for v in range(first, last):
        _norm_rows(x[v], parts[:, v], degree[v], scale[v], filters, bias, t, folded, n, spread)
        for b in range(B):
            for j in range(d):  # sums of a row have a loop of their own: the others use vector instructions
                slope = g[v, b, j] if gamma[j] * n[b, j] + beta[j] > 0 else np.float32(0)
                by_rows[0, j] += slope * n[b, j]
                by_rows[1, j] += slope
                h[b, j] = slope * gamma[j]
            mean = along = np.float32(0)
            for j in range(d):
                mean += h[b, j]
                along += h[b, j] * n[b, j]
            mean, along, inverse = mean * share, along * share, one / spread[b]
            for j in range(d):
                h[b, j] = (h[b, j] - mean - n[b, j] * along) * inverse
                by_rows[2, j] += h[b, j]
                by_x[v, b, j] = g[v, b, j]
        _add_products(h, own, by_x[v])
        _add_products(x[v].T.copy(), h, by_filters[0])
        by_t[:] = 0
        for k in range(K):
            _add_products(h, folded[k].T.copy(), by_t[k])
            outer[:] = 0
            _add_products(t[k].T.copy(), h, outer)
            for i in range(d):
                for j in range(d):
                    by_filters[3 * k + 1, i, j] += outer[i, j]
                    by_filters[3 * k + 2, i, j] += outer[i, j] * scale[v]
                    by_filters[3 * k + 3, i, j] += outer[i, j] / scale[v]
        for b in range(B):
            for j in range(d):
                if K == 4:
                    by_variance = np.float32(0.5) * by_t[1, b, j] / t[1, b, j] if t[1, b, j] > least else np.float32(0)
                    by_t[0, b, j] -= np.float32(2) * t[0, b, j] * by_variance
                    by_parts[1, v, b, j] = by_variance / degree[v]
                    by_parts[2, v, b, j], by_parts[3, v, b, j] = by_t[2, b, j], by_t[3, b, j]
                by_parts[0, v, b, j] = by_t[0, b, j] / degree[v]


@partial(_compiled, parallel=True)
def _update_slope_shares(
    g, x, parts, degree, scale, filters, gamma, beta, bias, by_x, by_parts, by_filters, by_rows
):  # fmt: skip  # pragma: no cover
    rows, tasks = x.shape[0], len(by_rows)
    for task in prange(tasks):
        first, last = rows * task // tasks, rows * (task + 1) // tasks
        _update_slopes(
            g, x, parts, degree, scale, filters, gamma, beta, bias, by_x, by_parts, by_filters[task], by_rows[task],
            first, last,
        )  # fmt: skip


@_compiled
def _moduli_rows(q, e, out, first, last):  # pragma: no cover
    half, C = q.shape[1] // 2, e.shape[1]
    for begin in range(0, C, _CANDIDATES):
        end = min(C, begin + _CANDIDATES)
        for b in range(first, last):
            y = out[b, begin:end]
            for j in range(half):
                x, w, real, imaginary = q[b, j], q[b, half + j], e[j, begin:end], e[half + j, begin:end]
                for c in range(end - begin):
                    u, v = x - real[c], w - imaginary[c]
                    y[c] += np.sqrt(u * u + v * v)


@_compiled
def _slope_rows(g, q, e, planar, out, first, last):  # pragma: no cover
    half = q.shape[1] // 2
    for b in range(first, last):
        x, y = q[b], out[b]
        for c in range(e.shape[0]):
            weight, z = g[b, c], e[c]
            if planar:
                for j in range(half):
                    u, v = x[j] - z[j], x[half + j] - z[half + j]
                    modulus = np.sqrt(u * u + v * v)
                    if modulus > 0:
                        y[j] += weight * u / modulus
                        y[half + j] += weight * v / modulus
            else:
                for j in range(q.shape[1]):
                    if x[j] > z[j]:
                        y[j] += weight
                    elif x[j] < z[j]:
                        y[j] -= weight


@_compiled
def _count_rows(scores, row, bar, greater, equal, first, last):  # pragma: no cover
    for i in range(first, last):
        y, value, more, same = scores[row[i]], bar[i], 0, 0
        for c in range(y.shape[0]):
            more += y[c] > value
            same += y[c] == value
        greater[i], equal[i] = more, same


@_compiled
def _place(key, next_place, order):  # pragma: no cover
    for message in range(key.shape[0]):
        place = next_place[key[message]]
        order[place] = message
        next_place[key[message]] = place + 1


def _plain(tensor: Tensor) -> Tensor:
    tensor = tensor.to(wide(tensor.dtype)) if tensor.is_floating_point() else tensor
    return tensor.detach().contiguous()


def _array(tensor: Tensor) -> Any:
    return _plain(tensor).numpy()


def _in_pieces(pieces, *operands):  # pragma: no cover
    for piece in prange(len(pieces) - 1):
        _kernel(*operands, pieces[piece], pieces[piece + 1])  # type: ignore[name-defined]  # noqa: F821 - see `_threaded`


@cache
def _threaded(kernel: Any) -> Callable[..., None]:
    """Return a kernel that shares the pieces between some rows, its new first argument, out to the threads.

    It is a copy of `_in_pieces` with its own `_kernel`, since Numba keeps no closure on disk.
    """
    function = FunctionType(_in_pieces.__code__, {**globals(), "_kernel": kernel})
    function.__qualname__ = f"{kernel.__name__}_in_pieces"  # the name of its file on disk
    return _compiled(function, parallel=True)


def _call(kernel: Callable[..., None], work: int, rows: int | Tensor, *operands: Any) -> None:
    """Run a kernel over so many rows, or over those with such offsets; on one core where there is little work."""
    arrays = [_array(one) if isinstance(one, Tensor) else one for one in operands]
    if work < _SMALL:
        kernel(*arrays, 0, rows if isinstance(rows, int) else len(rows) - 1)
    elif isinstance(rows, int):
        _threaded(kernel)(rows * np.arange(_TASKS + 1) // _TASKS, *arrays)
    else:  # pieces of about as many edges
        offsets = _array(rows)
        edges = offsets[-1] * np.arange(_TASKS + 1) // _TASKS
        _threaded(kernel)(np.searchsorted(offsets[:-1], edges), *arrays)


def segment_reduce(
    a: Tensor, b: Tensor, weight: Tensor, s: Segments, op: int, only: Tensor | None = None, side: int = 0
) -> Tensor:
    """Compute `reference.segment_reduce`."""
    out = torch.zeros(s.offsets.numel() - 1, a.shape[1], dtype=wide(a.dtype))
    if s.left.numel():
        work = s.left.numel() * a.shape[1]
        _call(_reduce_rows, work, s.offsets, a, b, weight, s.offsets, s.left, s.right, op, out)
    return out.to(a.dtype)


def statistics(x: Tensor, z: Tensor, weight: Tensor, s: Segments, op: int) -> Tensor:
    """Compute `reference.statistics`, which itself rounds messages of half precision."""
    if x.dtype != wide(x.dtype):
        return reference.statistics(x, z, weight, s, op)
    out = torch.zeros(6, s.offsets.numel() - 1, x.shape[1], dtype=x.dtype)
    out[2], out[3] = -torch.inf, torch.inf
    if s.left.numel():
        work = s.left.numel() * x.shape[1]
        operands = (x, z, weight.to(x.dtype), s.offsets, s.left, s.right, op, out)
        _call(_statistics_rows, work, s.offsets, *operands)
    out[4:].clamp_(min=1)
    return out


def pair_gradient(
    x: Tensor, z: Tensor, weight: Tensor, found: Tensor, g_sum: Tensor, g_square: Tensor, g_largest: Tensor,
    g_smallest: Tensor, sender: Tensor, relation: Tensor, s: Segments, op: int,
) -> Tensor:  # fmt: skip
    """Compute `reference.pair_gradient`, which itself rounds messages of half precision."""
    operands = (found, g_sum, g_square, g_largest, g_smallest, sender, relation)
    if x.dtype != wide(x.dtype):
        return reference.pair_gradient(x, z, weight, *operands, s, op)
    out = torch.zeros(len(sender), x.shape[1], dtype=x.dtype)
    if s.left.numel():
        given = (x, z, weight.to(x.dtype), *operands, s.offsets, s.left, op, out)
        _call(_pair_rows, s.left.numel() * x.shape[1], s.offsets, *given)
    return out


def edge_dot(g: Tensor, a: Tensor, b: Tensor, row: Tensor, left: Tensor, right: Tensor, op: int) -> Tensor:
    """Compute `reference.edge_dot`."""
    out = torch.zeros(left.numel(), dtype=wide(g.dtype))
    if left.numel():
        _dot_rows(*(_array(t) for t in (g, a, b, row, left, right)), op, out.numpy())
    return out


def grouped_matmul(rows: Tensor, weight: Tensor, offsets: Tensor, chunks: Tensor) -> Tensor:
    """Compute `reference.grouped_matmul`: a call of torch's product for each large group, one kernel for all others.

    A call takes longer than the whole product of a small group, and a graph of many relations has many of those.
    """
    _, blocks, inputs, width = weight.shape
    a, w = _plain(rows), _plain(weight)
    out = a.new_zeros(len(a), blocks, width)
    most = _LARGE // max(1, inputs * width)  # rows of a group that is not large
    _call(_product_groups, out.numel() * inputs, offsets, a, w, offsets, most, out)
    for group, part in reference.groups_above(offsets, most):
        torch.bmm(a[part].transpose(0, 1), w[group], out=out[part].transpose(0, 1))
    return out.to(rows.dtype)


def grouped_outer(rows: Tensor, g: Tensor, offsets: Tensor) -> Tensor:
    """Compute `reference.grouped_outer`, shared out as in `grouped_matmul`."""
    inputs, width = rows.shape[2], g.shape[2]
    a, b = _plain(rows), _plain(g)
    out = a.new_zeros(len(offsets) - 1, *a.shape[1:], width)
    most = _LARGE // max(1, inputs * width)
    _call(_outer_groups, b.numel() * inputs, offsets, a, b, offsets, most, out)
    for group, part in reference.groups_above(offsets, most):
        torch.bmm(a[part].permute(1, 2, 0), b[part].transpose(0, 1), out=out[group])
    return out.to(rows.dtype)


def update(
    x: Tensor, parts: Sequence[Tensor], degree: Tensor, scale: Tensor, weight: Tensor, gamma: Tensor,
    beta: Tensor | None, bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """Compute `reference.update` in one pass over the rows."""
    given, out = _update_operands(x, parts, degree, scale, weight, gamma, beta, bias), torch.empty(x.shape)
    _call(_update_rows, out.numel() * len(weight), len(x), *given, out)
    return out.to(x.dtype)


def update_gradient(
    g: Tensor, x: Tensor, parts: Sequence[Tensor], degree: Tensor, scale: Tensor, weight: Tensor, gamma: Tensor,
    beta: Tensor | None, bias: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """Return the gradients of `reference.update` by x, by W, gamma, beta and bias as rows of a matrix, by the parts.

    The update is computed again, so nothing but the arguments is kept until here.
    """
    given = _update_operands(x, parts, degree, scale, weight, gamma, beta, bias)
    by_x, by_parts = torch.empty(x.shape), torch.empty_like(given[1])
    by_filters, by_rows = torch.zeros(_TASKS, *given[4].shape), torch.zeros(_TASKS, 3, x.shape[2])
    arrays = [_array(one) for one in (g, *given, by_x, by_parts, by_filters, by_rows)]
    _update_slope_shares(*arrays)
    sums = torch.cat((by_filters.sum(0).view(weight.shape), by_rows.sum(0)))
    return [by_x.to(x.dtype), sums, *by_parts.to(x.dtype)]


def _update_operands(
    x: Tensor, parts: Sequence[Tensor], degree: Tensor, scale: Tensor, weight: Tensor, gamma: Tensor,
    beta: Tensor | None, bias: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the arguments of an update with all parts in one table and W as matrices, zeros for absent rows."""
    d, zeros = x.shape[2], torch.zeros_like(gamma)
    filters = weight.view(-1, d, d)
    table = torch.stack(tuple(parts)) if len(parts) > 1 else parts[0].unsqueeze(0)
    rows = (gamma, zeros if beta is None else beta, zeros if bias is None else bias)
    return x, _plain(table), degree, scale, filters, *rows


def l1_distance(q: Tensor, e: Tensor, planar: bool) -> Tensor:
    """Compute `reference.l1_distance`; complex candidates are read by dimension, to take many roots at once."""
    if not planar:
        return reference.l1_distance(q, e, planar)
    out = torch.zeros(len(q), len(e), dtype=wide(q.dtype))
    if out.numel():
        _call(_moduli_rows, q.numel() * len(e), len(out), q, e.t(), out)
    return out.to(q.dtype)


def l1_gradient(g: Tensor, q: Tensor, e: Tensor, planar: bool) -> Tensor:
    """Compute `reference.l1_gradient`."""
    out = torch.zeros(q.shape, dtype=wide(q.dtype))
    if e.numel():
        _call(_slope_rows, q.numel() * len(e), len(out), g, q, e, planar, out)
    return out.to(q.dtype)


def count_rivals(scores: Tensor, row: Tensor, bar: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `reference.count_rivals`, in one pass over each row."""
    greater, equal = torch.empty_like(row), torch.empty_like(row)
    _call(_count_rows, len(row) * scores.shape[1], len(row), scores, row, bar, greater, equal)
    return greater, equal


def stable_order(key: Tensor, offsets: Tensor) -> Tensor:
    """Compute `reference.stable_order`, by counting: one pass and no comparison."""
    order = torch.empty_like(key)
    _place(_array(key), _array(offsets).copy(), order.numpy())
    return order
