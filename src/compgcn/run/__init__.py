"""Runs: resolve settings, build a task, train it by a protocol, open it again and ask it."""

from compgcn.answers.classes import Classified
from compgcn.answers.discover import Discovery
from compgcn.answers.explain import Contribution, Explanation
from compgcn.answers.links import Prediction
from compgcn.answers.score import Scored
from compgcn.run.run import Kind, Run, fit, open_run, train

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
