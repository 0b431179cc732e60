"""Negatives are uniform; choices follow their logits."""

from __future__ import annotations

import torch

from compgcn.tasks.sampling import drawn, uniform_negatives


def test_every_entity_is_drawn_about_equally_often():
    torch.manual_seed(0)
    negatives = uniform_negatives(500, 40, 10, torch.device("cpu"))
    assert negatives.shape == (500, 40)
    counts = torch.bincount(negatives.flatten(), minlength=10)
    assert len(counts) == 10
    assert (counts - 2000).abs().max() < 6 * 2000**0.5


def test_choices_are_made_with_the_probabilities_of_the_softmax():
    torch.manual_seed(0)
    p = torch.tensor([0.5, 0.3, 0.2, 0.0])
    counts = torch.bincount(drawn((p.log() + 7).expand(20_000, 4)).flatten(), minlength=4)
    assert counts[3] == 0
    assert (counts - 20_000 * p).abs().max() < 6 * (20_000 * 0.25) ** 0.5
