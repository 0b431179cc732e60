"""Settings that are given and do nothing are said to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compgcn.config import PATHS, read_settings, to_toml
from compgcn.data import KnowledgeGraph, load
from compgcn.errors import InputError
from compgcn.run.resolve import _ANY, _LINKS, expand, recommended, resolve, unused_settings
from compgcn.train.recipes import MODELS, factorisation
from toy import graph

CHOICES: list[dict[str, Any]] = [
    {"encoder.name": "none"},
    {"encoder.name": "conditional"},
    {"decoder.name": "transe"},
    {"decoder.name": "distmult"},
    {"decoder.name": "conve"},
    *({"training.loss": loss} for loss in ("bce", "cross-entropy", "margin", "self-adversarial")),
    {"training.regulariser": "n3", "decoder.name": "complex"},
    {"training.schedule": "cosine"},
    {"training.schedule": "constant"},
]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"decoder": "conve", "margin": 3.0}, ["decoder.margin has no effect: the decoder 'conve' has no margin"]),
        ({"decoder": "transe", "margin": 3.0}, []),
        (
            {"decoder": "distmult", "kernel": 3},
            ["decoder.kernel has no effect: the decoder 'distmult' has no convolution"],
        ),
        ({"loss": "bce", "negatives": 3}, ["training.negatives has no effect: the loss is 'bce'"]),
        ({"encoder": "none", "bias": True}, ["encoder.bias has no effect: the encoder 'none' has no layer"]),
        (
            {"schedule": "constant", "schedule_floor": 0.1},
            ["training.schedule_floor has no effect: the schedule is 'constant'"],
        ),
    ],
)
def test_a_setting_that_does_nothing_is_said_to(settings: dict[str, Any], expected: list[str]) -> None:
    data = graph()
    assert unused_settings(expand(recommended(settings, data), data), settings) == expected


@pytest.mark.parametrize("model", MODELS)
def test_a_model_and_an_encoder_that_do_not_go_together_are_both_named(model: str) -> None:
    other = "compgcn" if MODELS[model].settings.get("encoder.name") == "conditional" else "conditional"
    with pytest.raises(InputError, match=f"--model {model} and --encoder {other} do not go together"):
        resolve({"data.source": "toy", "device": "cpu", "encoder": other}, graph(), model)


@pytest.mark.parametrize("model", ["conditional", "complex", "compgcn", "sacn"])
def test_the_config_of_a_run_is_read_back_without_a_note(tmp_path: Path, model: str) -> None:
    """It names every setting, those without effect too."""
    data, path = graph(), tmp_path / "config.toml"
    config = resolve({"data.source": "toy", "device": "cpu"}, data, model).config
    path.write_text(to_toml(config))
    again = resolve(read_settings(path), data)
    assert again.config == config
    assert again.notes == []


def test_every_rule_names_settings_there_are_and_has_configs_with_and_without_them() -> None:
    data = graph()
    configs = [expand(recommended(one, data), data) for one in CHOICES]
    for rule in (*_ANY, *_LINKS):
        assert rule.names <= set(PATHS.values())
        asked = configs if rule in _LINKS[:2] else [one for one in configs if one.encoder.name != "conditional"]
        assert {rule.used(config) for config in asked} == {True, False}, rule.names


@pytest.mark.parametrize("model", ["complex", "complex-n3-rp", "distmult"])
def test_a_factorisation_of_ones_own_triples_follows_their_size(model: str) -> None:
    mine = {"data.source": "mine.tsv", "device": "cpu"}
    found = recommended(mine, graph(), model)
    assert (found.encoder.dims, found.training.batch_size) == ((512,), 100)
    assert recommended({**mine, "dims": (8,)}, graph(), model).encoder.dims == (8,)
    published = recommended({"data.source": "world", "device": "cpu"}, graph(), model)
    assert published.encoder.dims[0] >= 1000, "a data set has the settings of its results"


@pytest.mark.parametrize(
    ("sizes", "best"),
    [((14_541, 272_115), 0.05), ((40_943, 86_835), 0.1), ((135, 5_216), 0.005), ((1_000, 6_400), 0.05)],
    ids=["fb15k-237", "wn18rr", "umls", "synthetic"],
)
def test_the_weight_of_n3_is_near_that_of_recipes_and_searches(sizes: tuple[int, int], best: float) -> None:
    assert best / 2 < factorisation(*sizes, on_gpu=False)["training.regularisation"] < best * 2


def test_a_step_of_a_conditional_model_has_as_many_queries_as_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    data = graph()
    usual = recommended({"encoder": "conditional"}, data).encoder.dims
    needed = 4 * 5 * (len(usual) - 1 + 6) * data.num_entities * usual[-1] * 4  # a quarter holds the states of 5 queries
    monkeypatch.setattr("compgcn.nn.conditional.memory", lambda device: needed)
    assert recommended({"encoder": "conditional"}, data).training.batch_size == 5
    assert recommended({"encoder": "conditional", "batch_size": 7}, data).training.batch_size == 7


def test_epochs_of_the_conditional_model_on_a_cpu_follow_from_the_time_of_its_queries() -> None:
    on_cpu: dict[str, Any] = {"encoder.name": "conditional", "training.device": "cpu"}
    found = {bias: resolve({"encoder.bias": bias, **on_cpu}, load("world")).config for bias in (False, True)}
    assert 1 <= found[True].training.epochs < found[False].training.epochs <= 8
    assert not resolve(on_cpu, load("world")).config.encoder.bias
    whole = [(f"a{i}", "r", f"a{j}") for i in range(30) for j in range(30)]
    assert resolve(on_cpu, KnowledgeGraph.from_triples(whole)).config.encoder.bias, "where a query reaches most"
    assert resolve({"encoder.graph": "none", **on_cpu}, graph()).config.training.epochs == 8
    assert resolve({"training.epochs": 3, **on_cpu}, graph()).config.training.epochs == 3
    for refused, why in ({"encoder.dims": (16,)}, "takes one width"), ({"encoder.composition": "ntn"}, "parameters"):
        with pytest.raises(InputError, match=why):
            resolve({**on_cpu, **refused}, graph())
