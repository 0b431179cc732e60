"""How far the probabilities of a model can be believed: how often the answers it gives some chance are right."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

BINS = 10


class Bin(NamedTuple):
    """Answers whose probability lies in one of equal intervals of [0, 1]."""

    answers: int
    probability: float  # their mean
    right: float  # the share of them that is right


def bins(probability: Tensor, right: Tensor) -> list[Bin]:
    """The intervals that have an answer, from the lowest on.

    Args:
        probability: of each answer, in [0, 1] [n].
        right: whether it is [n].
    """
    probability, right = probability.double().cpu(), right.double().cpu()
    place = (probability * BINS).long().clamp_max(BINS - 1)
    found = [(probability[place == k], right[place == k]) for k in range(BINS)]
    return [Bin(len(given), given.mean().item(), true.mean().item()) for given, true in found if len(given)]
