"""Every row of the table of decoders: formula, candidates, gradients, saving."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from compgcn import config
from compgcn.data import DATASETS
from compgcn.errors import InputError
from compgcn.nn.decoders import DECODERS, ConvolutionSettings, Decoder, build_decoder
from compgcn.run.resolve import expand, recommended
from oracles import normal
from scores import FORMULAS
from toy import graph

B, N, D = 3, 7, 8
SMALL = ConvolutionSettings(filters=4, kernel=2)
EVERY = pytest.mark.parametrize("name", DECODERS)
BIAS = pytest.mark.parametrize("entity_bias", [False, True, None])


def build(name: str, entity_bias: bool | None = None, margin: float = 9.0) -> Decoder:
    torch.manual_seed(0)
    decoder = build_decoder(name, N, D, entity_bias=entity_bias, margin=margin, settings=SMALL).double().eval()
    with torch.no_grad():
        for seed, parameter in enumerate(decoder.parameters()):  # none is left at 0, where it could be forgotten
            parameter += 0.3 * normal(*parameter.shape, seed=100 + seed)
        if decoder.entity_bias is not None:
            decoder.entity_bias.copy_(normal(N, seed=9))
    return decoder


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return normal(B, D), normal(B, D, seed=1), normal(N, D, seed=2)


@EVERY
@BIAS
def test_scores_equal_the_textbook_formula(name, entity_bias):
    decoder = build(name, entity_bias)
    x, z, entities = inputs()
    scores = decoder(x, z, entities)
    assert scores.shape == (B, N)
    has_bias = DECODERS[name].entity_bias if entity_bias is None else entity_bias
    bias = normal(N, seed=9).tolist() if has_bias else [0.0] * N
    for b in range(B):
        for o in range(N):
            expected = FORMULAS[name](decoder, x[b].tolist(), z[b].tolist(), entities[o].tolist()) + bias[o]
            assert scores[b, o].item() == pytest.approx(expected)


@EVERY
@BIAS
def test_a_candidate_scores_the_same_however_it_is_asked_for(name, entity_bias):
    decoder = build(name, entity_bias)
    x, z, entities = inputs()
    every = decoder(x, z, entities)
    for o in range(N):
        torch.testing.assert_close(decoder(x, z, entities, torch.tensor([o])), every[:, o : o + 1])
        torch.testing.assert_close(decoder(x, z, entities, torch.full((B, 1), o)), every[:, o : o + 1])
    shared = torch.tensor([5, 0, 5])
    torch.testing.assert_close(decoder(x, z, entities, shared), every[:, shared])
    own = torch.randint(N, (B, 4), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(decoder(x, z, entities, own), every.gather(1, own))


FORMS = {"all": None, "shared": torch.tensor([5, 0, 5]), "own": torch.tensor([[0, 3], [6, 1], [2, 2]])}


@EVERY
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_finite_differences_and_reach_every_input_and_parameter(name, form):
    decoder = build(name, entity_bias=True)
    names, parameters = zip(*decoder.named_parameters(), strict=True)

    def score(x: Tensor, z: Tensor, entities: Tensor, *values: Tensor) -> Tensor:
        given = (x, z, entities, FORMS[form])
        return torch.func.functional_call(decoder, dict(zip(names, values, strict=True)), given)

    leaves = (*inputs(), *parameters)
    assert torch.autograd.gradcheck(score, leaves, fast_mode=True)
    scores = score(*leaves)
    found = torch.autograd.grad((scores * normal(*scores.shape, seed=4)).sum(), leaves)
    assert all(gradient.abs().max() > 0 for gradient in found)


@EVERY
def test_scores_and_gradients_are_finite_where_everything_is_zero(name):
    decoder = build(name)
    tables = [torch.zeros(size, D, dtype=torch.float64, requires_grad=True) for size in (B, B, N)]
    for candidates in (None, torch.zeros(B, 2, dtype=torch.long)):
        scores = decoder(*tables, candidates)
        found = torch.autograd.grad(scores.sum(), (*tables, *decoder.parameters()), allow_unused=True)
        assert all(value is None or value.isfinite().all() for value in (scores, *found))


@EVERY
def test_one_query_and_no_query_are_scored(name):
    decoder = build(name)
    x, z, entities = inputs()
    torch.testing.assert_close(decoder(x[:1], z[:1], entities), decoder(x, z, entities)[:1])
    assert decoder(x[:0], z[:0], entities).shape == (0, N)


@pytest.mark.parametrize("name", [name for name, row in DECODERS.items() if row.backwards is not None])
def test_a_triple_read_backwards_by_the_inverse_has_the_same_score(name):
    decoder, inverse = build(name, entity_bias=False), DECODERS[name].backwards
    z, entities = normal(B, D, seed=1), normal(N, D, seed=2)
    for s, o in ((0, 1), (4, 2), (3, 3)):
        forwards = decoder(entities[s].expand(B, D), z, entities)[:, o]
        backwards = decoder(entities[o].expand(B, D), inverse(z), entities)[:, s]
        torch.testing.assert_close(forwards, backwards)
    torch.testing.assert_close(inverse(inverse(z)), z)


def test_the_margin_moves_every_score_and_is_saved():
    decoder = build("transe")
    before = decoder(*inputs())
    decoder.margin.sub_(5)
    torch.testing.assert_close(decoder(*inputs()), before - 5)
    assert decoder.state_dict()["margin"].item() == 4
    assert "margin=4" in repr(decoder)


def test_shapes_that_do_not_match_are_refused_with_the_shapes():
    decoder = build("distmult")
    x, z, entities = inputs()
    with pytest.raises(InputError, match=r"scores 7 entities, but the table has shape \[6, 8\]"):
        decoder(x, z, entities[1:])
    with pytest.raises(InputError, match=r"\[C\], or \[3, C\] for 3 queries, not \[1, 2\]"):
        decoder(x, z, entities, torch.zeros(1, 2, dtype=torch.long))


def resolved(**settings: Any) -> config.Decoder:
    data = graph()
    return expand(recommended({"encoder.dims": (200, 200)} | settings, data), data).decoder


@EVERY
def test_sizes_are_the_decoders_own_unless_given(name):
    usual, row = resolved(decoder=name), DECODERS[name]
    assert (usual.filters, usual.kernel) == (row.settings.filters, row.settings.kernel)
    given = resolved(decoder=name, filters=5, kernel=2)
    assert (given.filters, given.kernel) == (5, 2)


def test_the_sizes_of_a_recipe_are_for_its_own_decoder():
    recipe = DATASETS["wn18rr"].recipe
    assert resolved(**{"data.source": "wn18rr"}).filters == recipe["decoder.filters"] == 250
    other = resolved(**{"data.source": "wn18rr", "decoder": "hyper"})
    assert (other.filters, other.kernel) == (32, 9)
    assert other.feature_dropout == recipe["decoder.feature_dropout"]
    assert resolved(**{"data.source": "wn18rr", "decoder": "hyper", "filters": 7}).filters == 7
