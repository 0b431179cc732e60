"""Randomness: where a run's comes from, and negatives, entities put in the place of a triple's answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def uniform_negatives(
    batch: int,
    num_negatives: int,
    num_entities: int,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Draw K entities for each of B queries, uniformly and with replacement, true answers not excluded.

    Args:
        batch: B.
        num_negatives: K.
        num_entities: N.
        generator: where the randomness comes from; torch's own for the device if not given.
        device: where the result is wanted. The numbers of a generator are drawn on its device and then moved, so that
            one on the CPU gives the same negatives whatever the model runs on.

    Returns:
        Entities in [0, N) [B, K].
    """
    source = device if generator is None else generator.device
    drawn = torch.randint(num_entities, (batch, num_negatives), generator=generator, device=source)
    return drawn if device is None else drawn.to(device)


def drawn(logits: Tensor) -> Tensor:
    """One of K for each of B rows, with probabilities softmax(logits): [B, K] -> [B, 1].

    The largest of logits − log(exponential numbers): unlike torch.multinomial it never waits for the device.
    """
    noise = torch.empty_like(logits).exponential_().log()
    return (logits.detach() - noise).argmax(1, keepdim=True)


def seeded(*numbers: int) -> torch.Generator:
    """A generator that depends on these numbers alone, such as seed, epoch and step."""
    state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


@contextmanager
def randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Every random number inside comes from the seed, and none outside is touched."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which reaches every device
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
