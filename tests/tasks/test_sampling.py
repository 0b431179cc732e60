"""Negatives are uniform, and the generator decides them; choices follow their logits."""

from __future__ import annotations

import torch

from compgcn.tasks.sampling import drawn, uniform_negatives


def draw(seed: int, batch: int = 50, num_negatives: int = 40, num_entities: int = 10, **where: str) -> torch.Tensor:
    return uniform_negatives(batch, num_negatives, num_entities, torch.Generator().manual_seed(seed), **where)


def test_negatives_have_the_shape_and_range_asked_for():
    negatives = draw(0)
    assert negatives.shape == (50, 40)
    assert negatives.dtype == torch.long
    assert set(negatives.unique().tolist()) == set(range(10))


def test_every_entity_is_drawn_about_equally_often():
    counts = torch.bincount(draw(0, batch=500).flatten(), minlength=10)
    assert (counts - 2000).abs().max() < 6 * 2000**0.5


def test_the_generator_alone_decides():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_result_lies_on_the_device_asked_for():
    assert draw(0, device="meta").device.type == "meta"


def test_no_queries_have_no_negatives():
    assert draw(0, batch=0).shape == (0, 40)


def test_choices_are_made_with_the_probabilities_of_the_softmax():
    torch.manual_seed(0)
    p = torch.tensor([0.5, 0.3, 0.2, 0.0])
    counts = torch.bincount(drawn((p.log() + 7).expand(20_000, 4)).flatten(), minlength=4)
    assert counts[3] == 0
    assert (counts - 20_000 * p).abs().max() < 6 * (20_000 * 0.25) ** 0.5
