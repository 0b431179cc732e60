"""Runs: resolve settings, build a task, train it by a protocol, open it again and ask it.

The names are loaded when first used, so that `compgcn.run.plots` loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compgcn.answers.classes import Classified as Classified
    from compgcn.answers.discover import Discovery as Discovery
    from compgcn.answers.explain import Contribution as Contribution
    from compgcn.answers.explain import Explanation as Explanation
    from compgcn.answers.links import Prediction as Prediction
    from compgcn.answers.paths import Path as Path
    from compgcn.answers.paths import Step as Step
    from compgcn.answers.score import Scored as Scored
    from compgcn.run.run import Kind as Kind
    from compgcn.run.run import Run as Run
    from compgcn.run.run import fit as fit
    from compgcn.run.run import open_run as open_run
    from compgcn.run.run import train as train

_ANSWERS = {
    "Classified": "classes",
    "Contribution": "explain",
    "Discovery": "discover",
    "Explanation": "explain",
    "Path": "paths",
    "Prediction": "links",
    "Scored": "score",
    "Step": "paths",
}


def __getattr__(name: str) -> Any:
    home = f"compgcn.answers.{_ANSWERS[name]}" if name in _ANSWERS else "compgcn.run.run"
    if name not in _ANSWERS and name not in ("Kind", "Run", "fit", "open_run", "train"):
        raise AttributeError(f"module 'compgcn.run' has no attribute '{name}'")
    return getattr(import_module(home), name)
