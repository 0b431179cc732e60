"""What is measured beside ours computes the same, and a report holds what was promised."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from reproduction.bench import bench_evaluate, bench_kernels, bench_step
from reproduction.bench import kernels as bench
from reproduction.bench.costs import ranks_by_definition
from reproduction.bench.measure import cost
from reproduction.bench.peers import PHI, PerEdge
from reproduction.bench.steps import fresh_task

import toy
from compgcn.data import load
from compgcn.nn import CompGCNConv
from compgcn.run.resolve import expand, recommended
from oracles import DEGENERATE, assert_same_with_gradients, normal

CPU = torch.device("cpu")
SETTINGS = {"data.source": "world", "dims": [8, 8], "batch_size": 64}


@pytest.mark.parametrize("composition", PHI)
@pytest.mark.parametrize("name", [name for name, edges in DEGENERATE.items() if edges.triples])
def test_the_layer_edge_by_edge_is_our_layer(composition, name):
    edges = DEGENERATE[name]
    layer = CompGCNConv(6, 4, edges.num_relations, composition=composition, bias=True).double()
    x, rel = normal(edges.num_nodes, 6), normal(2 * edges.num_relations, 6, seed=1)
    graph = edges.graph()
    for ours, theirs in zip(layer(x, rel, graph), PerEdge(layer)(x, rel, graph), strict=True):
        assert_same_with_gradients(ours, theirs, (x, rel, *layer.parameters()))


def test_ranks_triple_by_triple_are_ours():
    data = load("world")
    task = fresh_task(expand(recommended(SETTINGS, data), data), data, CPU)
    sample = task.splits["test"][:20]
    task.splits["test"] = sample
    ours = task.ranks("test")
    theirs = ranks_by_definition(task, sample).view(-1, 2)
    assert torch.equal(theirs[:, 0], ours.tail.realistic)
    assert torch.equal(theirs[:, 1], ours.head.realistic)


def test_a_report_of_the_kernels_has_every_composition_and_scale(monkeypatch):
    monkeypatch.setattr(bench, "_SCALES", (100, 1000))
    monkeypatch.setattr(bench, "_RELATIONS", (3, 30))
    monkeypatch.setattr(bench, "_RELATIONAL_EDGES", 1000)
    said: list[str] = []
    report = bench_kernels(load("world"), CPU, say=said.append)
    assert (
        {row["composition"] for row in report["aggregate"]}
        == set(PHI)
        == {row["composition"] for row in report["layer"]}
    )
    assert len(report["aggregate"]) == 3 * len(PHI)
    assert [row["messages"] for row in report["scaling"]] == [100, 1000]
    assert all(row["ours"]["ms"] > 0 and row["per_edge"]["ms"] > 0 for row in report["layer"] + report["scaling"])
    assert {(row["encoder"], row["relations"]) for row in report["relations"]} == set(
        product(bench._RELATIONAL, (3, 30))
    )
    assert all(row["ours"]["ms"] > 0 for row in report["relations"])
    assert said


def test_a_step_of_node_classification_is_measured_on_what_is_heard_and_on_the_whole_graph():
    settings = {"task": "node-classification", "encoder.composition": "sub", "dims": [8, 8]}
    report = bench_step(toy.labelled(), CPU, settings)
    assert [*report["steps"]] == ["ours", "ours, whole graph", "per edge"]
    assert report["batch"] == len(toy.labelled().labels.train)


def test_a_report_of_the_step_has_ours_and_the_one_edge_by_edge():
    report = bench_step(load("world"), CPU, SETTINGS | {"decoder": "conve", "kernel": 2, "filters": 4})
    assert {"ours", "per edge"} <= set(report["steps"])
    assert report["floor_ms"] > 0
    assert report["config"]["encoder"]["dims"] == (8, 8)


def test_a_report_of_evaluation_counts_ranks_and_queries():
    report = bench_evaluate(load("world"), CPU, SETTINGS)
    assert report["ranks"] == 2044
    assert report["queries"] == 1563
    assert report["ours"]["us_per_rank"] > 0
    assert report["definition"]["us_per_rank"] > 0


def test_a_power_law_graph_has_hubs_and_the_sizes_asked_for():
    graph = bench.power_law(10_000, 1000, 10, CPU)
    assert (graph.num_edges, graph.num_nodes, graph.num_relations) == (10_000, 1000, 10)
    degrees = torch.bincount(graph.dst, minlength=1000)
    assert degrees.max() > 20 * degrees.float().mean()


def test_memory_is_what_a_call_takes_at_its_peak():
    megabytes = 200
    taken = cost(lambda: torch.zeros(megabytes * 2**18).sum(), CPU, 2)
    if taken.mib is None:
        pytest.skip("this system does not tell")
    assert taken.mib == pytest.approx(megabytes, rel=0.2)
