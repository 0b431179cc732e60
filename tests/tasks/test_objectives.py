"""Terms beside the loss equal their definitions, and settings that make no loss together are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from compgcn.config import Config, configure
from compgcn.errors import InputError
from compgcn.nn.compose import COMPOSITIONS
from compgcn.nn.decoders import (
    DECODERS,
    ConvolutionSettings,
    Decoder,
    Row,
    build_decoder,
    dot,
    negative_complex_l1,
    negative_l1,
)
from compgcn.run.resolve import expand
from compgcn.tasks import objectives
from compgcn.tasks.link_prediction import Encoded, LinkPrediction
from compgcn.tasks.objectives import REGULARISERS, relation_scores
from oracles import assert_same_with_gradients, normal
from toy import SMALL, build_task, graph


@pytest.fixture(autouse=True)
def products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every composition that is linear in the relation as a decoder."""
    for name in ("cmul", "conv", "corr"):
        monkeypatch.setitem(DECODERS, f"dot-{name}", Row(name, dot, False, False, "a product", "made up"))


PRODUCTS = ["distmult", "dot-cmul", "dot-conv", "dot-corr"]


def build(**settings: Any) -> LinkPrediction:
    data = graph()
    torch.manual_seed(0)
    config = expand(configure(Config(), {**SMALL, "loss": "cross-entropy", **settings}), data)
    task = build_task(config, data, torch.device("cpu"))
    task.model.eval()
    return task


def by_definition(decoder: Decoder, encoded: Encoded, s: Tensor, o: Tensor) -> Tensor:
    """The score of every (s, r, o), each as a triple of its own: [B, 2R]."""
    B, C = len(s), len(encoded.relations)
    subjects, objects = (entities.repeat_interleave(C) for entities in (s, o))  # [B 2R]
    relations = torch.arange(C).repeat(B)
    x, z = encoded.entities[subjects], encoded.relations[relations]
    scores: Tensor = decoder(x, z, encoded.entities, objects.unsqueeze(1))
    return scores.view(B, C)


SIMILARITIES = {"dot": dot, "l1": negative_l1, "complex-l1": negative_complex_l1}


def decoder_of(name: str) -> Decoder:
    """A row of the table, or a composition and a similarity: in double precision, with a bias for each entity."""
    phi, _, similarity = name.partition(" ")
    if similarity:
        decoder = Decoder(COMPOSITIONS[phi], SIMILARITIES[similarity], 7, entity_bias=True, margin=3.0)
    else:
        decoder = build_decoder(name, 7, 6, entity_bias=True, settings=ConvolutionSettings(filters=2, kernel=2))
    decoder.entity_bias.data.normal_(generator=torch.Generator().manual_seed(0))
    return decoder.double().eval()


@pytest.mark.parametrize("numbers", [1, 5 * 6 * 3, 2**22], ids=["one relation", "three relations", "all relations"])
@pytest.mark.parametrize("name", [*DECODERS, *(f"{phi} {of}" for phi in COMPOSITIONS for of in SIMILARITIES)])
def test_scores_of_all_relations_are_those_of_every_triple_and_so_are_their_gradients(
    monkeypatch: pytest.MonkeyPatch, name: str, numbers: int
) -> None:
    monkeypatch.setattr(objectives, "_NUMBERS", numbers)
    decoder, encoded = decoder_of(name), Encoded(normal(7, 6), normal(8, 6, seed=1))
    s, o = torch.tensor([0, 3, 5, 5, 2]), torch.tensor([6, 3, 1, 1, 0])
    x, e = F.embedding(torch.stack((s, o)), encoded.entities)
    weights = [weight for key, weight in decoder.named_parameters() if key != "entity_bias"]
    found, expected = relation_scores(decoder, encoded, x, e), by_definition(decoder, encoded, s, o)
    if decoder.entity_bias is not None:  # the same for all relations
        expected = expected - decoder.entity_bias[o].unsqueeze(1)
    if objectives.dual(decoder) is not None:  # but for a constant of each query
        found, expected = found.log_softmax(1), expected.log_softmax(1)
    assert_same_with_gradients(found, expected, (*encoded[:2], *weights))


@pytest.mark.parametrize("decoder", ["transe", "rotate"])
def test_what_the_scores_of_all_relations_keep_does_not_grow_with_relations_times_dimensions(
    monkeypatch: pytest.MonkeyPatch, decoder: str
) -> None:
    B, C, d = 16, 64, 32
    monkeypatch.setattr(objectives, "_NUMBERS", B * d * 4)
    encoded = Encoded(normal(7, d), normal(C, d, seed=1))
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes() // tensor.itemsize
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        relation_scores(build_decoder(decoder, 7, d), encoded, normal(B, d), normal(B, d, seed=2))
    assert 0 < sum(sizes.values()) < B * C * d / 4


@pytest.mark.parametrize("decoder", PRODUCTS)
def test_relation_prediction_adds_the_weighted_cross_entropy_of_the_relations(decoder: str) -> None:
    plain, task = build(decoder=decoder), build(decoder=decoder, relation_prediction=3.0)
    examples = torch.arange(6)
    encoded, batch = task.model.encode(task.graph), task.batch(examples)
    ends = F.embedding(torch.stack((batch.s, batch.answer)), encoded.entities)
    scores = relation_scores(task.model.decoder, encoded, *ends)
    expected = -scores.log_softmax(1)[torch.arange(6), batch.r].mean()
    torch.testing.assert_close(task.loss(examples), plain.loss(examples) + 3 * expected)


@pytest.mark.parametrize("decoder", ["distmult", "dot-cmul"])
@pytest.mark.parametrize("regulariser", REGULARISERS)
def test_a_regulariser_is_the_weighted_mean_over_the_triples_of_the_batch(decoder: str, regulariser: str) -> None:
    plain = build(decoder=decoder)
    task = build(decoder=decoder, regulariser=regulariser, regularisation=0.5)
    examples = torch.arange(6)
    encoded, batch = task.model.encode(task.graph), task.batch(examples)
    x, z, e = encoded.entities[batch.s], encoded.relations[batch.r], encoded.entities[batch.answer]
    if decoder == "dot-cmul":
        x, z, e = (torch.complex(*part.chunk(2, 1)) for part in (x, z, e))
    if regulariser == "n3":
        expected = sum(part.abs() ** 3 for part in (x, z, e)).sum(1).mean()
    else:
        expected = sum(part.abs() ** 2 for part in (x, e, x * z, e * z.conj())).sum(1).mean()
    torch.testing.assert_close(task.loss(examples), plain.loss(examples) + 0.5 * expected)


def test_the_relations_of_a_rotation_cost_nothing_under_n3() -> None:
    decoder = Decoder(COMPOSITIONS["rotate"], dot, 5)
    x, z, e = (torch.randn(4, 6, requires_grad=True) for _ in range(3))
    (gradient,) = torch.autograd.grad(REGULARISERS["n3"](decoder, x, z, e), z)
    torch.testing.assert_close(gradient, torch.zeros_like(z), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss": "bce", "regulariser": "n3"}, "need a loss over triples, not 'bce'"),
        ({"loss": "bce", "relation_prediction": 1.0}, "use cross-entropy, margin, self-adversarial, sampled"),
        ({"regulariser": "dura", "decoder": "transe"}, "'dura' needs a decoder that is a product"),
        ({"relation_prediction": 1.0, "decoder": "conve"}, "needs a decoder without convolutions"),
        ({"sampler": "kbgan"}, "makes them; take --set loss= and one of margin, self-adversarial"),
        ({"fanout": (3,), "loss": "bce"}, "take a loss with negatives: margin"),
        ({"fanout": (3, 3), "loss": "margin"}, "one number for each of the 1 layers"),
    ],
    ids=str,
)
def test_settings_that_make_no_loss_together_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refusal:
        build(**settings)
    assert words in str(refusal.value)


def test_tables_begin_with_the_scale_asked_for() -> None:
    task = build(encoder="none", decoder="distmult", dims=[512], init_scale=1e-3)
    for table in task.model.parameters():
        assert table.std().item() == pytest.approx(1e-3, rel=0.1)
        assert abs(table.mean().item()) < 1e-4
