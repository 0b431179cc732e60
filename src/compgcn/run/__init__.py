"""Runs: resolve settings, build a task, train it by a protocol, open it again and ask it.

The names are loaded when first used, so that `compgcn.run.plots` loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compgcn.run.run import Kind as Kind
    from compgcn.run.run import Run as Run
    from compgcn.run.run import fit as fit
    from compgcn.run.run import open_run as open_run
    from compgcn.run.run import train as train


def __getattr__(name: str) -> Any:
    if name not in ("Kind", "Run", "fit", "open_run", "train"):
        raise AttributeError(f"module 'compgcn.run' has no attribute '{name}'")
    return getattr(import_module("compgcn.run.run"), name)
