"""A step that is compiled trains like one that is not, and the other way round where the compiler cannot."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest
import torch
from torch import nn

from compgcn.config import Training
from compgcn.data import load
from compgcn.nn.decoders import ConvolutionSettings, build_decoder
from compgcn.run.build import build_links
from compgcn.run.resolve import expand, recommended
from compgcn.train.step import OPTIMISERS, Adagrad, Step, deterministic

STILL = {"encoder.dropout": 0.0, "encoder.hidden_dropout": 0.0, "decoder.hidden_dropout": 0.0, "feature_dropout": 0.0}
SMALL = STILL | {"dims": [8, 8], "kernel": 2, "filters": 4, "batch_size": 64}
SETTINGS: list[dict[str, Any]] = [
    {"decoder": "conve"},
    {"encoder": "rgcn-basis", "decoder": "distmult"},
    {
        "encoder": "none",
        "decoder": "distmult",
        "regulariser": "dura",
        "relation_prediction": 0.5,
        "optimiser": "adagrad",
    },
    {"encoder": "none", "decoder": "transe", "regulariser": "n3", "relation_prediction": 0.5, "batch_size": 16},
]


@pytest.fixture
def traced(monkeypatch):
    """torch.compile without code generation, which a test machine may not have the compiler for."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))


@pytest.mark.filterwarnings("ignore")  # what the compiler has to say of torch
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_compiled_step_has_the_loss_and_the_gradients_of_a_plain_one(settings, traced, caplog):
    data = load("world")
    config = expand(recommended({"data.source": "world", **SMALL | settings}, data), data)
    found = []
    for compiled in (True, False):
        torch.manual_seed(0)
        task = build_links(config, data, torch.device("cpu"))
        task.model.train()
        step = Step(task.model, task.loss, config.training, compiled=compiled)
        loss = step(task.examples(0, 0), 0.0)
        found.append([loss, *(p.grad for p in task.model.parameters() if p.grad is not None)])
    assert "could not be compiled" not in caplog.text
    scale = max(gradient.norm() for gradient in found[1])
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).norm() <= 1e-4 * theirs.norm() + 1e-6 * scale


@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_optimiser_follows_the_gradient_at_the_rate_of_the_step(name):
    module = Weight()
    step = Step(module, lambda examples: (module.w * examples).sum(), Training(optimiser=name, lr=0.5))
    step(torch.ones(3), 0.0)
    assert torch.equal(module.w, torch.ones(3))
    step(torch.tensor([1.0, -1.0, 0.0]), 0.1)
    assert module.w[0] < 1 < module.w[1]
    assert name == "adam" or module.w[2] == 1  # Adam goes on where it was going


class Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))


def fails(*arguments: object, **options: object) -> None:
    raise RuntimeError("no compiler\nand more lines")


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> None:
        fails()


STAGES = {  # what stands in for torch.compile -> where it fails
    "at once": fails,
    "in the loss": lambda loss, **options: fails,
    "in the gradient": lambda loss, **options: lambda examples: Fails.apply(loss(examples)),
}


@pytest.mark.parametrize("stage", STAGES)
def test_training_goes_on_where_the_compiler_fails(monkeypatch, caplog, stage):
    monkeypatch.setattr(torch, "compile", STAGES[stage])
    module = Weight()
    step = Step(module, lambda examples: (module.w * examples).sum(), Training(), compiled=True)
    with caplog.at_level(logging.WARNING, "compgcn.train.step"):
        for _ in range(2):
            step(torch.ones(3), 0.1)
    assert caplog.text.count("could not be compiled") == 1
    assert "no compiler" in caplog.text
    assert "and more lines" not in caplog.text
    assert module.w.max() < 1


@pytest.mark.filterwarnings("ignore")
def test_compiling_draws_no_random_numbers_and_changes_no_statistics(traced):
    norm = nn.BatchNorm1d(3)
    seen = []

    def loss(examples: torch.Tensor) -> torch.Tensor:
        seen.append(norm.training)
        return norm(examples + torch.rand_like(examples)).square().sum()

    torch.manual_seed(0)
    Step(norm, loss, Training(), compiled=True)(torch.randn(8, 3), 0.0)
    state = torch.get_rng_state()
    torch.manual_seed(0)
    norm.reset_running_stats()
    Step(norm, loss, Training())(torch.randn(8, 3), 0.0)
    assert torch.equal(torch.get_rng_state(), state)
    assert norm.num_batches_tracked == 1
    assert seen[0] is False, "what is kept is made in evaluation mode"


def test_half_queries_are_made_in_training_only():
    torch.manual_seed(0)
    small = ConvolutionSettings(filters=3, kernel=2)
    decoder = build_decoder("conve", 5, 18, settings=small, half_query=True)
    x, z, entities = torch.randn(4, 18), torch.randn(4, 18), torch.randn(5, 18)
    plain = build_decoder("conve", 5, 18, settings=small)
    plain.load_state_dict(decoder.state_dict())
    for module in (decoder, plain):
        module.eval()
    assert torch.equal(decoder(x, z, entities), plain(x, z, entities))
    decoder.train()
    scores = decoder(x, z, entities)
    assert scores.dtype == torch.float32
    assert torch.isfinite(scores).all()


def test_determinism_lasts_as_long_as_it_is_asked_for(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with deterministic(True):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    with deterministic(False):
        assert not torch.are_deterministic_algorithms_enabled()


def test_an_encoder_has_a_rate_of_its_own_and_the_raw_vectors_of_a_residual_have_not():
    data = load("world")
    config = recommended(
        {"data.source": "world", "dims": [4, 4], "residual": 8, "optimiser": "sgd", "lr": 1.0, "encoder_lr": 0.25}, data
    )
    task = build_links(expand(config, data), data, torch.device("cpu"))
    before = {name: weight.detach().clone() for name, weight in task.model.named_parameters()}
    Step(task.module, task.loss, config.training)(task.examples(0, 0), 0.5)
    for name, weight in task.model.named_parameters():
        if weight.grad is not None:
            raw = name.startswith(("encoder.residual.nodes", "encoder.residual.relations", "decoder."))
            assert torch.allclose(before[name] - weight, (0.5 if raw else 0.125) * weight.grad, atol=1e-6), name


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("tensor", [True, False], ids=["tensor", "float"])
def test_the_updates_of_adagrad_are_those_of_torch(decay, tensor):
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(2))]
    theirs = [nn.Parameter(weight.detach().clone()) for weight in ours]
    one = Adagrad(ours, torch.tensor(0.5) if tensor else 0.5, decay)
    two = torch.optim.Adagrad(theirs, lr=0.5, weight_decay=decay)
    for step in range(5):
        rate = 0.5 / (1 + step)
        one.param_groups[0]["lr"] = torch.tensor(rate) if tensor else rate
        two.param_groups[0]["lr"] = rate
        for a, b in zip(ours[:2], theirs[:2], strict=True):  # the third has no gradient
            a.grad = torch.randn_like(a)
            a.grad[0] = 0.0
            b.grad = a.grad.clone()
        one.step()
        two.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_adagrad_updates_the_rows_of_a_sparse_gradient_as_those_of_a_dense_one():
    torch.manual_seed(0)
    tables = [nn.Parameter(torch.ones(6, 3)) for _ in range(2)]
    optimisers = [Adagrad([table], lr=0.1) for table in tables]
    for rows in ([0, 2, 2], [2, 5, 0], [1, 1, 1]):
        factors = torch.randn(3, 3)
        for table, optimiser, sparse in zip(tables, optimisers, (True, False), strict=True):
            optimiser.zero_grad()
            (nn.functional.embedding(torch.tensor(rows), table, sparse=sparse) * factors).sum().backward()
            assert table.grad.is_sparse == sparse
            optimiser.step()
    assert torch.allclose(*tables)
    decayed = Adagrad([tables[0]], lr=0.1, weight_decay=0.1)
    nn.functional.embedding(torch.tensor([1]), tables[0], sparse=True).sum().backward()
    with pytest.raises(ValueError, match="no gradient may be sparse"):
        decayed.step()
