"""The kernels of each device."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch

from compgcn.errors import unknown

log = logging.getLogger(__name__)

BACKENDS = ("reference", "numba", "triton")
_BY_DEVICE = {"cpu": "numba", "cuda": "triton"}


def kernels(device: str) -> ModuleType:
    """Return the module with the kernels for a type of device: its own, unless COMPGCN_KERNEL names another."""
    return _load(os.environ.get("COMPGCN_KERNEL", ""), device)


@cache
def _load(wanted: str, device: str) -> ModuleType:
    if wanted and wanted not in BACKENDS:
        raise unknown("COMPGCN_KERNEL", wanted, BACKENDS)
    name = wanted or _BY_DEVICE.get(device, "reference")
    if not runs(name, device):
        log.warning("the %s kernels cannot run on %s here; taking the slower path through plain torch", name, device)
        name = "reference"
    log.info("aggregation on %s runs on the %s kernels", device, name)
    return import_module(f"compgcn.kernels.{name}")


def runs(name: str, device: str) -> bool:
    """Return whether a backend can run on a type of device; Triton's interpreter runs on a CPU, for tests."""
    if name == "reference":
        return True
    fits = device == "cpu" if name == "numba" else device == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    return fits and find_spec(name) is not None


# The mark of torch.compiler.assume_constant_result, which itself loads the whole compiler and takes seconds.
runs._dynamo_marked_constant = True  # type: ignore[attr-defined]


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which sums of numbers of a dtype are made."""
    return dtype if dtype == torch.float64 else torch.float32
