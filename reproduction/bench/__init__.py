"""Benchmarks: our path beside the per-edge definition, in one run: `bench kernels | step | evaluate | costs`.

Each returns plain dictionaries with the data, the device and the commit in them, ready to be kept as JSON.
"""

from __future__ import annotations

from reproduction.bench.costs import Row, bench_costs, bench_evaluate
from reproduction.bench.kernels import bench_kernels
from reproduction.bench.steps import bench_step

__all__ = ["Row", "bench_costs", "bench_evaluate", "bench_kernels", "bench_step"]
