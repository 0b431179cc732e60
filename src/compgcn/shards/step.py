"""The update of a rank: add up the parts of gradients that every rank has, then update all weights locally."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from compgcn.config import Training
from compgcn.processes import World
from compgcn.shards.link_prediction import ENTITY_ROWS, ShardedLinkPrediction
from compgcn.tasks.link_prediction import ConditionalPrediction
from compgcn.train.loop import Task
from compgcn.train.step import Step


def add_up(world: World, weights: Sequence[nn.Parameter]) -> None:
    """Replace the gradients of weights that every rank has by their sums; None where no rank has one."""
    if world.size == 1 or not weights:
        return
    there = weights[0].new_tensor([weight.grad is not None for weight in weights])
    parts = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
    sums = world.reduced(torch.cat([*(part.flatten() for part in parts), there]))
    *parts, there = torch.split(sums, [*(weight.numel() for weight in weights), len(weights)])
    for weight, part, ranks in zip(weights, parts, there.tolist(), strict=True):
        weight.grad = part.view_as(weight) if ranks else None


class ShardedStep(Step):
    """The eager step of one rank, with its rows of `ENTITY_ROWS`; the norm of the gradient is that over all ranks."""

    def __init__(self, module: nn.Module, loss: Callable[[Tensor], Tensor], settings: Training, world: World) -> None:
        super().__init__(module, loss, settings)
        self._world = world
        weights = dict(module.named_parameters())
        self._rows = [weight for name, weight in weights.items() if name in ENTITY_ROWS]
        self._shared = [weight for name, weight in weights.items() if name not in ENTITY_ROWS]

    def _finish_gradients(self) -> None:
        add_up(self._world, self._shared)
        if self.settings.grad_clip is None:
            return
        own, shared = (
            nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])
            for weights in (self._rows, self._shared)
        )
        norm = (self._world.reduced(own.square().to(self.device)) + shared.square().to(self.device)).sqrt()
        nn.utils.clip_grads_with_norm_([*self._rows, *self._shared], self.settings.grad_clip, norm)


def sharded_step(task: Task, settings: Training, steps: int) -> Step:
    """Return the step of a task that is shared out, for `compgcn.train.loop.optimise`."""
    assert isinstance(task, (ShardedLinkPrediction, ConditionalPrediction))
    return ShardedStep(task.module, task.loss, settings, task.world)
