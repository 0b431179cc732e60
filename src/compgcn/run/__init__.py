"""Runs: resolve settings, build a task, train it by a protocol, open it again and ask it.

The names are loaded when first used, so that `compgcn.run.plots` loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compgcn.answers.classes import Classified
    from compgcn.answers.discover import Discovery
    from compgcn.answers.explain import Contribution, Explanation
    from compgcn.answers.links import Prediction
    from compgcn.answers.score import Scored
    from compgcn.run.run import Kind, Run, fit, open_run, train

_HOME = {
    "Classified": "compgcn.answers.classes",
    "Contribution": "compgcn.answers.explain",
    "Discovery": "compgcn.answers.discover",
    "Explanation": "compgcn.answers.explain",
    "Kind": "compgcn.run.run",
    "Prediction": "compgcn.answers.links",
    "Run": "compgcn.run.run",
    "Scored": "compgcn.answers.score",
    "fit": "compgcn.run.run",
    "open_run": "compgcn.run.run",
    "train": "compgcn.run.run",
}

__all__ = [
    "Classified",
    "Contribution",
    "Discovery",
    "Explanation",
    "Kind",
    "Prediction",
    "Run",
    "Scored",
    "fit",
    "open_run",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'compgcn.run' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)
