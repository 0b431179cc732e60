"""Examples dealt into batches, the same way every time."""

from __future__ import annotations

import torch
from torch import Tensor

from compgcn.sampling import seeded


class Batches:
    """Numbers 0 .. n-1 in batches of one size, shuffled anew in every epoch.

    Args:
        number: n, how many examples there are.
        largest: the size asked for; the batches are made alike, so that hardly any example comes twice, and if they can
            be of a multiple of 8, which is what tensor cores take whole.
        seed: of the shuffling.
        device: where the batches are wanted.
    """

    def __init__(self, number: int, largest: int, seed: int, device: torch.device) -> None:
        self.number, self.seed, self.device = number, seed, device
        self.per_epoch = -(-number // largest)
        least = -(-number // self.per_epoch)
        whole = -(-least // 8) * 8
        self.size = whole if whole <= min(largest, number) else least
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def __call__(self, epoch: int, step: int) -> Tensor:
        """Which examples make a batch, [B]: an epoch meets every one, and fewer than 8 a step twice."""
        if self._order[0] != epoch:
            order = torch.randperm(self.number, generator=seeded(self.seed, epoch))
            self._order = (epoch, order.to(self.device))
        first = min(step * self.size, self.number - self.size)
        return self._order[1][first : first + self.size]
