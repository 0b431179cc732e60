"""Plans count what a training holds: its tensors by part, and what ranks send; rates only turn counts into seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compgcn.config import Config
from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError
from compgcn.run.build import build_links
from compgcn.run.plan import STATES, Cost, Outline, Plan, Rates, measure, plan, read_rates, remedies, shape_of
from compgcn.run.resolve import resolve
from compgcn.train.loop import make_step
from compgcn.train.step import OPTIMISERS
from reproduction import BENCHMARKS, blocks
from reproduction.blocks import of_size, rates
from toy import graph, numbered

RATES = Rates("cpu", stream=1e10, gather=1e9, products=1e10, call=1e-6)
CPU = torch.device("cpu")
SAMPLED = {"loss": "sampled-cross-entropy", "sampler": "shared", "negatives": 4}
SETTINGS: dict[str, dict[str, Any]] = {
    "recommended": {},
    "adagrad": {"encoder": "none", "encoder.dims": (8,), "optimiser": "adagrad", **SAMPLED},
    "clipped": {"encoder": "none", "encoder.dims": (8,), "optimiser": "adagrad", "grad_clip": 1.0, **SAMPLED},
    "fan-out": {"encoder.dims": (8, 8), "encoder.fanout": (2,), **SAMPLED},
    "queries": {"decoder": "conve", "loss": "bce", "encoder.dims": (100, 100), "optimiser": "sgd"},
    "residual": {"encoder.dims": (8, 8), "encoder.residual": 6, "entity_bias": True},
}


def resolved(data: KnowledgeGraph, **settings: Any) -> Config:
    return resolve({"data.source": "own.tsv", "device": "cpu", **settings}, data).config


def size(made: Plan, *names: str) -> int:
    return sum(part.bytes for part in made.parts if part.name in names)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_plan_counts_the_weights_and_steps_of_the_task(name: str) -> None:
    data = graph()
    config = resolved(data, **SETTINGS[name])
    made, task = plan(config, data, 1, RATES), build_links(config, data, CPU)
    update = make_step(task, config.training, 2)
    task.module.train()
    update(task.examples(0, 0), 0.1)
    state = [value for one in update.optimiser.state.values() for value in one.values() if value.ndim]
    weights = sum(4 * weight.numel() for weight in task.module.parameters())
    assert size(made, "entity table", "its optimiser state", "relations and decoder") == weights + sum(
        value.nbytes for value in state
    )
    assert size(made, "checkpoint") == weights + sum(value.nbytes for value in state)
    assert (made.steps, made.shape.queries) == (task.steps_per_epoch, len(task.train))
    cost = Cost(config, data, made.shape, RATES)
    assert (cost.batch, cost.in_part, cost.sparse) == (task.batch_size, task.in_part, task.in_part and task.sparse)


def test_every_optimiser_has_its_states() -> None:
    assert STATES.keys() == OPTIMISERS.keys()


def test_shares_of_ranks_add_up_and_the_rest_stays() -> None:
    data = Outline(10**6, 100, 10**7)
    config = resolved(data, encoder="compgcn")
    one, four = (plan(config, data, ranks, RATES) for ranks in (1, 4))
    for alone, part in zip(one.parts, [p for p in four.parts if p.name != "halo"], strict=True):
        if part.when in ("always", "disk") and part.name != "checkpoint":
            assert part.bytes == pytest.approx(alone.bytes / 4 if part.sharded else alone.bytes, rel=0.01), part.name
    assert one.sent == 0 < four.sent


def edges(data: KnowledgeGraph, ranks: int) -> Iterator[tuple[int, set[int]]]:
    """The messages that each rank receives and the entities of others that send them, one by one."""
    chunk = -(-data.num_entities // ranks)
    for rank in range(ranks):
        ends = [pair for s, _, o in data.train.tolist() for pair in ((s, o), (o, s)) if pair[0] // chunk == rank]
        yield len(ends), {sender for _, sender in ends if sender // chunk != rank}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_shape_is_that_of_the_rank_with_most_to_do(ranks: int) -> None:
    data = graph()
    shape, each = shape_of(resolved(data), data, ranks), list(edges(data, ranks))
    assert shape.messages == max(count for count, _ in each)
    assert shape.halo == max(len(others) for _, others in each)


def test_equal_degrees_bound_the_mean_halo_of_entities_in_any_order() -> None:
    draw = np.random.default_rng(0)
    N, (s, o) = 500, (draw.random((2, 3000)) ** 3 * 500).astype(np.int64)  # few entities have most of the facts
    order = draw.permutation(N)
    facts = np.stack((order[s], np.zeros_like(s), order[o]), 1)
    data = numbered(facts, N)
    outline = Outline(N, 1, len(facts), held_out=(0.0, 0.0))
    for ranks in (2, 4, 8):
        halos = [len(others) for _, others in edges(data, ranks)]
        assert sum(halos) / ranks <= shape_of(resolved(data), outline, ranks).halo


def test_remedies_fit_and_are_settings_that_train_takes() -> None:
    data = Outline(10**6, 100, 10**7)
    config = resolved(data, encoder="compgcn", loss="cross-entropy", batch_size=512)
    whole = plan(config, data, 1, RATES).peak
    found = remedies(config, data, 1, RATES, 0.75 * whole)
    assert any(words.startswith("--devices") for words in found)
    assert any("sampler=shared" in words and "fanout" not in words for words in found)
    assert any("fanout" in words for words in found)
    assert all(peak <= 0.75 * whole for peak in found.values())
    assert remedies(config, data, 1, RATES, 1.0) == {}


def test_faster_devices_take_less_time_and_the_same_memory() -> None:
    data = Outline(10**5, 100, 10**6)
    config = resolved(data)
    slow, fast = plan(config, data, 2, RATES), plan(config, data, 2, Rates("cpu", 2e10, 2e9, 2e10, 5e-7, 50e9))
    assert fast.peak == slow.peak
    assert fast.seconds["epoch"] == pytest.approx(slow.seconds["epoch"] / 2)


def test_a_measurement_takes_the_best_of_its_times() -> None:
    ticks = iter(range(10**6))
    found = measure(CPU, clock=lambda: next(ticks))  # a second for everything
    assert found.call == pytest.approx(0.01)
    assert found.products == 2 * 1024 * 128 * 2**14


@pytest.mark.parametrize("tree", [{}, [], {"rates": {**RATES._asdict(), "call": -1.0}}, {"rates": {"x": 1}}])
def test_a_file_without_rates_is_refused(tmp_path: Path, tree: Any) -> None:
    path = tmp_path / "here.json"
    path.write_text(json.dumps(tree))
    with pytest.raises(InputError, match=r"here.json has no rates: expected those"):
        read_rates(path)
    for good in (RATES._asdict(), {"rates": RATES._asdict()}):
        path.write_text(json.dumps(good))
        assert read_rates(path) == RATES


MEASURED = json.loads((BENCHMARKS / "plan.json").read_text(encoding="utf-8"))["data"]


@pytest.mark.parametrize("size", MEASURED)
def test_plans_agree_with_measured_trainings(size: str) -> None:
    measured, made = MEASURED[size]["measured"], of_size(size, Rates(**MEASURED[size]["rates"]))
    assert made.peak == pytest.approx(measured["peak"], rel=0.2)
    assert 0.5 < (made.seconds["epoch"] + made.seconds["evaluation"]) / measured["seconds"] < 2
    assert len(MEASURED) >= 3


def test_plans_agree_with_measured_steps_of_a_gpu() -> None:
    reports = {name: blocks.load(f"h200/{name}") for name in ("step-fb15k-237", "kernels", "costs-fb15k-237")}
    here, data = rates(*reports.values()), Outline(14_541, 237, 310_116, held_out=(0.057, 0.066))
    rows = [row for row in reports["costs-fb15k-237"]["rows"] if row["label"].startswith(("DistMult", "ConvE"))]
    rows = [row for row in rows if "R-GCN" not in row["label"]]  # it multiplies by relation
    for row in rows:
        settings = {key: tuple(value) if isinstance(value, list) else value for key, value in row["settings"].items()}
        step = plan(resolve(settings, data).config, data, 1, here).seconds["step"]
        assert 0.5 < 1000 * step / row["steps"]["ours"]["ms"] < 2, row["label"]
    assert len(rows) > 10
