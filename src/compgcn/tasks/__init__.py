"""The tasks: what a model is trained and judged by. Each fits the small protocol of `compgcn.train.loop.Task`."""

from __future__ import annotations
