"""Runs: resolve settings, build a task, train it by a protocol, open it again and ask it.

The names are loaded when first used, so that `compgcn.run.plots` loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compgcn.run.run import Kind, Run, fit, open_run, train

__all__ = ["Kind", "Run", "fit", "open_run", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'compgcn.run' has no attribute '{name}'")
    return getattr(import_module("compgcn.run.run"), name)
