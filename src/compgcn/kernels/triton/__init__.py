"""Kernels for a GPU; the names are those of `compgcn.kernels.reference`."""

from __future__ import annotations

from compgcn.kernels.reference import count_rivals, stable_order
from compgcn.kernels.triton.distances import l1_distance, l1_gradient
from compgcn.kernels.triton.moments import pair_gradient, statistics
from compgcn.kernels.triton.products import grouped_matmul, grouped_outer
from compgcn.kernels.triton.segments import edge_dot, segment_reduce
from compgcn.kernels.triton.updates import update, update_gradient

__all__ = [
    "count_rivals",
    "edge_dot",
    "grouped_matmul",
    "grouped_outer",
    "l1_distance",
    "l1_gradient",
    "pair_gradient",
    "segment_reduce",
    "stable_order",
    "statistics",
    "update",
    "update_gradient",
]
