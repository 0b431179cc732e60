"""Which kernels run on which device."""

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
    """The module with the kernels for a type of device."""
    return import_module(f"compgcn.kernels.{choose(device)}")


def choose(device: str) -> str:
    """The backend for a type of device: its own, unless COMPGCN_KERNEL names another."""
    return _choose(os.environ.get("COMPGCN_KERNEL", ""), device)


@cache
def _choose(wanted: str, device: str) -> str:
    """The backend for a device; said once."""
    if wanted and wanted not in BACKENDS:
        raise unknown("COMPGCN_KERNEL", wanted, BACKENDS)
    name = wanted or _BY_DEVICE.get(device, "reference")
    if not runs(name, device):
        log.warning("the %s kernels cannot run on %s here; taking the slower path through plain torch", name, device)
        name = "reference"
    log.info("aggregation on %s runs on the %s kernels", device, name)
    return name


def runs(name: str, device: str) -> bool:
    """Whether that backend can run on that type of device; Triton's interpreter runs on a CPU, for tests."""
    if name == "reference":
        return True
    if find_spec(name) is None:
        return False
    return device == "cpu" if name == "numba" else device == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


# As torch.compiler.assume_constant_result marks it, which loads the whole compiler and takes seconds to.
runs._dynamo_marked_constant = True  # type: ignore[attr-defined]


def at_once() -> bool:
    """Whether nothing is recorded or compiled, so that kernels are called as they are.

    The first operation that is called by way of torch loads its compiler, which takes longer than most answers.
    """
    return not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()


def wide(dtype: torch.dtype) -> torch.dtype:
    """What sums of numbers of that type are made in."""
    return dtype if dtype == torch.float64 else torch.float32
