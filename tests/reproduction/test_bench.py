"""Benchmarks compare the same computation, and their reports hold what the tables need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import toy
from compgcn.config import Config
from compgcn.nn import CompGCNConv
from compgcn.run.resolve import expand, recommended
from oracles import DEGENERATE, assert_same_with_gradients, normal
from reproduction import bench
from reproduction.bench import PHI, PerEdge, bench_costs, fresh_task, is_per_edge
from reproduction.experiment import chosen, experiments

CPU = torch.device("cpu")
(ENCODERS,) = experiments(["encoders"]).values()
# Rows with the paper's layers; rows with the released norm have others.
LAYERS = [row.name for row in ENCODERS.rows if chosen(ENCODERS, row)["encoder.name"] == "compgcn"]
SMALL = {"decoder.filters": 4, "decoder.kernel": 3, "training.batch_size": 8, "training.negatives": 4}
CERTAIN = dict.fromkeys(
    ("encoder.dropout", "encoder.hidden_dropout", "decoder.feature_dropout", "decoder.hidden_dropout"), 0.0
)


def small(name: str, **settings: Any) -> dict[str, Any]:
    """Return the settings of a row with small layers."""
    asked = chosen(ENCODERS, ENCODERS.row(name))
    dims = [8] * (len(asked["encoder.dims"]) - 1) + [16]
    return {**asked, **SMALL, "encoder.dims": dims, **settings}


def conditional(statistics: str, composition: str = "mult") -> dict[str, Any]:
    """Return the settings of a small model conditioned on the query."""
    parts = {"encoder.name": "conditional", "encoder.statistics": statistics, "encoder.composition": composition}
    return {**parts, "encoder.dims": (8, 8, 8), "training.batch_size": 8}


def config_of(settings: dict[str, Any]) -> Config:
    return expand(recommended(settings, toy.graph()), toy.graph())


def measured(*names: str) -> dict[str, Any]:
    report = bench_costs(toy.graph(), CPU, [(ENCODERS.row(name), small(name)) for name in names], False, lambda _: None)
    return {row["row"]: row for row in report["rows"]}


@pytest.mark.parametrize("composition", PHI)
@pytest.mark.parametrize("name", [name for name, edges in DEGENERATE.items() if edges.triples])
def test_the_layer_edge_by_edge_is_our_layer(composition: str, name: str) -> None:
    edges = DEGENERATE[name]
    layer = CompGCNConv(6, 4, edges.num_relations, composition=composition, bias=True).double()
    x, rel = normal(edges.num_nodes, 6), normal(2 * edges.num_relations, 6, seed=1)
    graph = edges.graph()
    for ours, theirs in zip(layer(x, rel, graph), PerEdge(layer)(x, rel, graph), strict=True):
        assert_same_with_gradients(ours, theirs, (x, rel, *layer.parameters()))


def test_exactly_the_rows_with_the_papers_layer_are_measured_edge_by_edge() -> None:
    assert {row.name for row in ENCODERS.rows if is_per_edge(config_of(small(row.name)))} == set(LAYERS)
    assert len(LAYERS) >= 12


@pytest.mark.parametrize(
    "settings",
    [
        *(small(name, **CERTAIN) for name in ("transe-compgcn-mult", "distmult-compgcn-sub", "conve-compgcn-corr")),
        *(conditional(*chosen) for chosen in (("mean", "mult"), ("mean", "corr"), ("pna", "mult"), ("pna", "sub"))),
    ],
)
def test_a_model_edge_by_edge_has_the_same_loss_and_gradients(settings: dict[str, Any]) -> None:
    config = config_of(settings)
    found = []
    for per_edge in (False, True):
        task = fresh_task(config, toy.graph(), CPU)
        if per_edge:
            bench.edge_by_edge(task)
        task.module.double()
        torch.manual_seed(1)  # of the negatives
        loss = task.loss(task.examples(0, 0))
        found.append((loss, torch.autograd.grad(loss, list(task.module.parameters()))))
    (ours, slopes), (theirs, other_slopes) = found
    assert ours > 0.1
    torch.testing.assert_close(theirs, ours)
    torch.testing.assert_close(other_slopes, slopes)


def test_a_row_has_the_sizes_of_its_model_and_the_seconds_of_an_epoch() -> None:
    rows = measured("transe-none", "conve-compgcn-corr")
    for name, row in rows.items():
        task = fresh_task(config_of(small(name)), toy.graph(), CPU)
        assert row["steps_per_epoch"] == -(-2 * len(toy.graph().train) // 8) == task.steps_per_epoch
        assert row["batch"] == task.batch_size
        assert row["parameters"] == sum(p.numel() for p in task.model.parameters())
        for cost in row["steps"].values():
            assert cost["seconds_per_epoch"] == pytest.approx(row["steps_per_epoch"] * cost["ms"] / 1000, abs=1e-4)
    assert [[*row["steps"]] for row in rows.values()] == [["ours"], ["ours", "per edge"]]


def test_pykeens_model_learns_and_has_our_parameters_and_a_bias_for_each_layer() -> None:
    pytest.importorskip("pykeen")
    (row,) = measured("distmult-compgcn-mult").values()
    dims = row["settings"]["encoder.dims"]
    assert row["steps"]["PyKEEN"]["parameters"] == row["parameters"] + sum(dims[1:])
    step, _ = bench.pykeen(toy.graph(), 3 * len(toy.graph().train), CPU, (8, 8))
    losses = [step().item() for _ in range(20)]
    assert 0 < losses[-1] < losses[0]


def test_the_commands_print_reports_of_what_they_are_asked_for(reproduction: toy.Command, tmp_path: Path) -> None:
    words = ["--data", toy.write_tsv(tmp_path / "toy.tsv", toy.graph()), "--device", "cpu"]
    words += toy.flags({"dims": (8, 8), "batch_size": 8})
    rows = ["--row", "transe-dgcn", "--row", "transe-compgcn-sub"]
    report = json.loads(reproduction("bench", "costs", *words, *rows).out)
    assert [row["row"] for row in report["rows"]] == ["transe-dgcn", "transe-compgcn-sub"]
    assert [row["settings"]["training.batch_size"] for row in report["rows"]] == [8, 8]
    step = json.loads(reproduction("bench", "step", *words).out)
    assert {"ours", "per edge"} <= set(step["steps"])
    assert step["copy_gb_s"] > 0  # for plans of this device
    assert (step["batch"], step["config"]["training"]["loss"]) == (8, "bce")
    assert json.loads(reproduction("bench", "evaluate", *words).out)["ranks"] == 4  # two test facts
    report = json.loads(reproduction("bench", "conditional", *words).out)
    assert [row["settings"]["encoder.statistics"] for row in report["rows"]] == ["mean", "pna"]
    assert [(row["per_edge"]["queries"], row["ranks"]["number"]) for row in report["rows"]] == [(8, 4)] * 2
    toy.refused(reproduction("bench", "kernel"), "did you mean 'kernels'?")
    toy.refused(reproduction("bench", "costs", *words, "--row", "transe-compgcn"), "unknown row of encoders")
