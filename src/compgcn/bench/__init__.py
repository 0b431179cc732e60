"""Benchmarks: our path beside the per-edge definition, in one run: `bench kernels | step | evaluate | costs`.

Each returns plain dictionaries with the data, the device and the commit in them, ready to be kept as JSON.
"""

from compgcn.bench.costs import Row, bench_costs
from compgcn.bench.evaluation import bench_evaluate
from compgcn.bench.kernels import bench_kernels
from compgcn.bench.steps import bench_step

__all__ = ["Row", "bench_costs", "bench_evaluate", "bench_kernels", "bench_step"]
