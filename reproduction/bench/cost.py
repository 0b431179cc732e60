"""Time and peak memory of a call, and the machine they were measured on."""

from __future__ import annotations

import ctypes
import datetime
import gc
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from compgcn import __version__
from compgcn.train.folder import commit

Report = dict[str, Any]
Say = Callable[[str], None]  # is told which measurement starts


class Cost(NamedTuple):
    """Median milliseconds of a call, and MiB at its peak above those before it; None if the system does not tell."""

    ms: float
    mib: float | None

    def as_dict(self) -> Report:
        return {"ms": round(self.ms, 4), "mib": None if self.mib is None else round(self.mib, 1)}


def cost(call: Callable[[], object], device: torch.device, repeats: int = 10, warm_up: int = 2) -> Cost:
    """Measure a call after a warm-up."""
    for _ in range(warm_up):
        call()
    before = _start_peak(device)
    times = [_timed(call, device) for _ in range(repeats)]
    return Cost(statistics.median(times), None if before is None else max(0.0, _peak(device) - before))


def cost_from_scratch(make: Callable[[], Callable[[], object]], device: torch.device, repeats: int) -> Cost:
    """Measure the call that `make` returns; on a GPU the memory includes everything made for the call."""
    gc.collect()
    if device.type != "cuda":
        return cost(make(), device, repeats)
    torch.cuda.empty_cache()
    before = _start_peak(device)
    call = make()
    call()  # compiles and records
    peak = _peak(device)
    return Cost(cost(call, device, repeats, 1).ms, None if before is None else peak - before)


def device_cost(call: Callable[[], object], device: torch.device, repeats: int = 20, calls: int = 10) -> Cost:
    """Measure a call; on a GPU its device time alone, by recording several calls without gaps for launches."""
    if device.type != "cuda":
        return cost(call, device, repeats)
    call()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    recorded = cost(graph.replay, device, repeats)
    return Cost(recorded.ms / calls, cost(call, device, 2).mib)


def _timed(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(end))
    before = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - before)


def _start_peak(device: torch.device) -> float | None:
    """Reset the peak memory and return the MiB in use: of torch's allocator on a GPU, else of the process on Linux."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device) / 2**20
    try:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # return freed memory first, or its reuse would not show
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        return _field("/proc/self/status", "VmRSS")
    except (OSError, AttributeError):
        return None


def _peak(device: torch.device) -> float:
    cuda = device.type == "cuda"
    return torch.cuda.max_memory_allocated(device) / 2**20 if cuda else _field("/proc/self/status", "VmHWM")


def _field(path: str, name: str) -> float:
    """Return the MiB of a field of a file in /proc."""
    lines = Path(path).read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def free_mib(device: torch.device) -> float:
    """Return the memory that can still be allocated; infinite if the system does not tell."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + kept) / 2**20
    try:
        return _field("/proc/meminfo", "MemAvailable")
    except OSError:
        return float("inf")


def environment(device: torch.device | None = None) -> dict[str, Any]:
    """Return what a report was measured with, by default on a CPU."""
    cuda = device is not None and device.type == "cuda"
    return {
        "compgcn": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if cuda else f"{torch.get_num_threads()} CPU cores",
        "processor": None if cuda else platform.processor() or platform.machine(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
