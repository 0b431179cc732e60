"""What stands beside measured figures: the machine, the commit, and how the run that was measured was trained."""

from __future__ import annotations

import ctypes
import datetime
import gc
import json
import os
import platform
import shlex
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from compgcn import __version__
from compgcn.config import names
from compgcn.run import Run
from compgcn.run.resolve import expand, recommended
from compgcn.train.folder import commit

Report = dict[str, Any]
Say = Callable[[str], None]  # told what comes next


class Cost(NamedTuple):
    """What one call costs."""

    ms: float  # median
    mib: float | None  # at the peak, above what was there before; None where the system does not tell

    def as_dict(self) -> dict[str, float | None]:
        return {"ms": round(self.ms, 4), "mib": None if self.mib is None else round(self.mib, 1)}


def cost(call: Callable[[], object], device: torch.device, repeats: int = 10, warm_up: int = 2) -> Cost:
    """The median time and the peak memory of a call, after some to warm up."""
    for _ in range(warm_up):
        call()
    memory = _Memory(device)
    times = [_timed(call, device) for _ in range(repeats)]
    return Cost(statistics.median(times), memory.peak())


def cost_from_scratch(
    make: Callable[[], Callable[[], object]], device: torch.device, repeats: int, warm_up: int = 1
) -> Cost:
    """As `cost`, of the call that `make` gives; on a GPU the memory is all of it, what was made for the call included.

    Elsewhere it is what a call adds.
    """
    gc.collect()
    on_gpu = device.type == "cuda"
    before = 0
    if on_gpu:
        torch.cuda.empty_cache()  # of what was measured before
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
    call = make()
    call()  # compiled and recorded on the way
    peak = torch.cuda.max_memory_allocated(device) - before if on_gpu else 0
    taken = cost(call, device, repeats, warm_up)
    return Cost(taken.ms, peak / 2**20 if on_gpu else taken.mib)


def device_cost(call: Callable[[], object], device: torch.device, repeats: int = 20, calls: int = 10) -> Cost:
    """As `cost`; on a GPU of the device's own time, from a recording of several calls without gaps for launching."""
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


class _Memory:
    """The peak from now on: of torch's allocator on a GPU, of the process on Linux."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self._before: float | None = torch.cuda.memory_allocated(device) / 2**20
            return
        try:
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back first, or it would be used again unseen
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
            self._before = _resident("VmRSS")
        except (OSError, AttributeError):
            self._before = None

    def peak(self) -> float | None:
        """MiB above what was there at first."""
        if self._before is None:
            return None
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 2**20 - self._before
        return max(0.0, _resident("VmHWM") - self._before)


def _resident(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def free_mib(device: torch.device) -> float | None:
    """The memory that could still be taken; None where the system does not tell."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for the next
        return float(torch.cuda.mem_get_info(device)[0] + kept) / 2**20
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None


def copy_bandwidth(device: torch.device) -> float:
    """GB/s of a large copy, bytes read and written counted."""
    size = 2**28 if device.type == "cuda" else 2**26
    source = torch.randn(size, device=device)
    target = torch.empty_like(source)
    # By a kernel: a GPU's copy engines are slower.
    taken = device_cost(lambda: torch.mul(source, 1.0, out=target), device, repeats=10, calls=3)
    return 2 * 4 * size / taken.ms / 1e6


def environment(device: torch.device) -> dict[str, Any]:
    """What the figures were measured with."""
    cuda = device.type == "cuda"
    return {
        "compgcn": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if cuda else f"{torch.get_num_threads()} CPU cores",
        "processor": None if cuda else _processor(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


_MADE_WITH = ("compgcn", "commit", "python", "torch", "device", "seed", "time", "seconds")  # of environment.json


def header() -> dict[str, Any]:
    """What figures were measured with."""
    return {
        "hardware": f"{os.cpu_count()} CPU cores, {platform.machine()}",
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
    }


def trained(run: Run, data: str | None = None) -> dict[str, Any]:
    """How a run was trained: the command that does it again, every setting, and what it was made with.

    Args:
        run: the run, finished.
        data: what the command names after `train`; by default the name of the data set.
    """
    config = _settings(run.config)
    made = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    words = [f"{path}={value if isinstance(value, str) else json.dumps(value)}" for path, value in changed(run).items()]
    options = [word for setting in words for word in ("--set", setting)]
    return {
        "command": " ".join(["compgcn train", data or run.config.data.source, shlex.join(options)]).strip(),
        "settings": config,
        "environment": {key: made[key] for key in _MADE_WITH},
    }


def changed(run: Run) -> dict[str, Any]:
    """The settings of a run that are not those recommended for its data, by name."""
    usual = _settings(expand(recommended({"data.source": run.config.data.source}, run.data), run.data))
    return {path: value for path, value in _settings(run.config).items() if value != usual[path]}


def _settings(config: Any) -> dict[str, Any]:
    """Every setting but those that say where the data are, by name."""
    found = names(config.model_dump(mode="json"))
    return {path: value for path, value in found.items() if not path.startswith("data.")}
