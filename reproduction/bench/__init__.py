"""Benchmarks of speed and memory: this implementation beside the per-edge definition and PyKEEN.

Each returns a report of plain dictionaries, with the data, the device and the commit, to be kept as JSON.
"""

from __future__ import annotations

from reproduction.bench.kernels import bench_kernels
from reproduction.bench.steps import Row, bench_costs, bench_evaluate, bench_step

__all__ = ["Row", "bench_costs", "bench_evaluate", "bench_kernels", "bench_step"]
