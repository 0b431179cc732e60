"""Every system is settings that stand: it trains, and no recipe of another one leaks into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compgcn.config import BUDGET, Config, configure
from compgcn.data import DATASETS
from compgcn.errors import InputError
from compgcn.run.build import find_device
from compgcn.run.resolve import recommended
from compgcn.run.run import fit
from compgcn.train.recipes import CONDITIONAL_ON_CPU, MODELS, scaled
from toy import graph, labelled

EVERY = pytest.mark.parametrize("name", MODELS)
LINKS = [name for name, row in DATASETS.items() if row.task == "link-prediction"]


def settings_of(name: str, device: str = "auto") -> dict[str, Any]:
    """The settings of a system on the toy graph; on a CPU the conditional model is smaller."""
    on_cpu = name == "conditional" and find_device(device).type == "cpu"
    if not on_cpu:
        return dict(MODELS[name].settings)
    bias = recommended({"training.device": "cpu"}, graph(), name).encoder.bias  # by the graph
    return {**MODELS[name].settings, **CONDITIONAL_ON_CPU, "encoder.bias": bias}


@EVERY
def test_every_system_trains(tmp_path: Path, name: str) -> None:
    run = fit(graph(), model=name, run_dir=tmp_path / "run", epochs=1, batch_size=16, device="cpu")
    data = graph()
    chosen = settings_of(name, "cpu") | scaled(name, data.num_entities, len(data.train), on_gpu=False)
    expected = {key: value for key, value in chosen.items() if key != "training.epochs"}
    expected.pop("training.batch_size", None)
    assert configure(run.config, expected) == run.config


@EVERY
def test_no_recipe_of_another_system_leaks_in(name: str) -> None:
    for source in LINKS:
        _does_not_leak(name, source)


def _does_not_leak(name: str, source: str) -> None:
    found = recommended({"data.source": source}, graph(), name)
    recipe, settings = DATASETS[source].recipe, settings_of(name)
    own = configure(Config(), settings).model_dump()
    theirs = configure(Config(), recipe)
    shared = [getattr(theirs, part).name == own[part]["name"] for part in ("encoder", "decoder")]
    for part, alike in zip(("encoder", "decoder", "training"), (*shared, all(shared)), strict=True):
        for key, value in getattr(found, part).model_dump().items():
            path = f"{part}.{key}"
            if path in settings or not (alike or path in BUDGET):
                assert value == own[part][key], path
            else:
                assert value == getattr(theirs, part).model_dump()[key], path


def test_the_settings_of_a_user_go_over_those_of_a_system() -> None:
    found = recommended({"decoder": "transe", "lr": 0.5, "batch_size": 7}, graph(), "distmult")
    assert (found.decoder.name, found.training.lr, found.training.batch_size) == ("transe", 0.5, 7)
    assert (found.encoder.name, found.training.optimiser) == ("none", "adagrad")


@pytest.mark.parametrize("source", ["fb15k-237", "wn18rr"])
def test_the_papers_model_is_trained_by_the_recipe_of_the_papers_data(source: str) -> None:
    recipe = DATASETS[source].recipe
    found = recommended({"data.source": source}, graph(), "compgcn")
    assert recipe
    assert configure(found, recipe) == found


def test_a_system_of_link_prediction_classifies_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is one of link prediction, not of node-classification"):
        fit(labelled(), model="gcn", run_dir=tmp_path / "run")
