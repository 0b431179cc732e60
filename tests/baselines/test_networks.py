"""Networks of whole graphs follow their papers' equations, see a graph as a graph, and make runs like any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toy
from compgcn.baselines import BASELINES, FitOnce
from compgcn.baselines.networks import DGCNN, GIN, GraphNetwork, build_dgcnn
from compgcn.data import GraphCollection
from compgcn.errors import InputError
from compgcn.nn.graph import RelationalGraph
from compgcn.run.resolve import expand, recommended
from compgcn.run.run import Run, fit, open_run
from compgcn.tasks.classification import Classifier, Graphs
from compgcn.tasks.inputs import Start

NETWORKS = [name for name, row in BASELINES.items() if not isinstance(row.how, FitOnce)]
SMALL: dict[str, Any] = {"epochs": 25, "lr": 0.02, "folds": 3, "inner_folds": 2, "device": "cpu"}


def trained(folder: Path, baseline: str, data: GraphCollection | None = None, **settings: Any) -> Run:
    return fit(data or toy.molecules(), run_dir=folder, **(SMALL | {"baseline": baseline} | settings))


def built(baseline: str, data: GraphCollection) -> Graphs:
    """Build a network in evaluation mode with fresh weights and batch norms that do something."""
    config = expand(recommended({"data.source": data.name, "baseline": baseline}, data), data)
    assert expand(config, data) == config
    torch.manual_seed(0)
    items: Graphs = toy.build_task(config, data, torch.device("cpu"))
    for name, buffer in items.model.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
        elif name.endswith("running_mean"):
            buffer.uniform_(-0.5, 0.0)  # so that not every rectifier is shut
    items.model.double().eval()
    return items


def shapes(seed: int = 0) -> GraphCollection:
    """Return graphs of one to twelve nodes of three kinds, with random edges."""
    rng = np.random.default_rng(seed)
    sizes = np.array([1, 2, 5, 7, 9, 12, 12, 4])
    starts = np.cumsum(sizes) - sizes
    triples = [
        (start + a, rng.integers(2), start + b)
        for start, size in zip(starts, sizes, strict=True)
        for a, b in rng.integers(0, size, (2 * size, 2))
        if a != b
    ]
    return replace(
        toy.molecules(len(sizes)),
        graph_of=np.repeat(np.arange(len(sizes)), sizes),
        triples=np.array(triples),
        node_labels=rng.integers(0, 3, sizes.sum()),
    )


@torch.no_grad()
def vectors(items: Graphs) -> Tensor:
    return items.vectors(torch.arange(len(items.targets)))


def one_graph(net: GraphNetwork) -> tuple[RelationalGraph, Tensor, Tensor]:
    """Return a graph, the rows of its nodes, and its adjacency matrix."""
    rings = toy.molecules()
    items = Graphs(Classifier(net, 2), rings, rings.node_labels, torch.device("cpu"))  # type: ignore[arg-type]
    graph, rows = items.batch(torch.tensor([4]))
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    adjacency[graph.src, graph.dst] = 1.0
    return graph, rows, adjacency


def test_gin_sums_over_neighbours_and_over_the_nodes_at_every_depth() -> None:
    torch.manual_seed(0)
    net = GIN(Start(3), dims=(5, 5)).double().eval()
    graph, rows, adjacency = one_graph(net)
    x = torch.eye(3, dtype=torch.float64)[rows]
    expected = [x.sum(0)]
    for layer, norm in zip(net.layers, net.norms, strict=True):
        x = norm(layer.nn(x + adjacency @ x)).relu()
        expected.append(x.sum(0))
    torch.testing.assert_close(net(graph, rows, 1)[0], torch.cat(expected))


def test_gin_ignores_kind_direction_and_number_of_edges() -> None:
    torch.manual_seed(0)
    net = GIN(Start(2), dims=(4, 4, 4)).eval()
    rows, graph_of = torch.tensor([0, 1, 0]), torch.zeros(3, dtype=torch.long)

    def vector(*edges: list[int]) -> Tensor:
        found: Tensor = net(RelationalGraph(*(torch.tensor(ends) for ends in edges), 3, 2, graph_of), rows, 1)
        return found

    one = vector([0, 1], [1, 2], [0, 1])
    torch.testing.assert_close(one, vector([2, 1, 0, 0], [1, 0, 1, 1], [0, 0, 1, 0]))
    assert not torch.allclose(one, vector([0, 0], [1, 2], [0, 1]))


@pytest.mark.parametrize("kept", [10, 13])
def test_dgcnn_propagates_sorts_and_convolves(kept: int) -> None:
    torch.manual_seed(0)
    net = DGCNN(Start(3), kept=kept, dims=(4, 3, 1)).double().eval()
    graph, rows, adjacency = one_graph(net)
    adjacency = adjacency + torch.eye(len(adjacency))
    x, depths = torch.eye(3, dtype=torch.float64)[rows], []
    for layer in net.layers:
        x = torch.tanh((adjacency / adjacency.sum(1, keepdim=True)) @ x @ layer.weight.T)
        depths.append(x)
    nodes = torch.cat(depths, 1)
    line = torch.zeros(kept, 8, dtype=torch.float64)
    line[: len(nodes)] = nodes[nodes[:, -1].argsort(descending=True)]
    first = F.conv1d(line.view(1, 1, -1), net.first.weight.unsqueeze(1), net.first.bias, stride=8).relu()
    expected = net.dense(net.second(F.max_pool1d(first, 2)).relu().flatten(1)).relu()
    torch.testing.assert_close(net(graph, rows, 1), expected)


def test_dgcnn_keeps_the_first_nodes_of_large_graphs() -> None:
    net = DGCNN(Start(2), kept=10, dims=(1,)).eval()
    sort = net.sort(torch.arange(24.0).view(12, 2), torch.zeros(12, dtype=torch.long), dim_size=1)
    assert sort.view(10, 2)[:, 1].tolist() == [23.0 - 2 * i for i in range(10)]
    sizes = 10 * np.array([3, 9, 5, 7, 1, 8, 4, 6, 2, 10])
    config = recommended({"data.source": "toy", "baseline": "dgcnn"}, toy.molecules())
    built: Any = build_dgcnn(config, SimpleNamespace(node_starts=np.cumsum([0, *sizes])), Start(3))  # type: ignore[arg-type]
    assert built.sort.k == 40
    assert np.mean(sizes > 40) == 0.6


@pytest.mark.parametrize("baseline", NETWORKS)
def test_graphs_in_a_batch_come_out_as_they_do_one_by_one(baseline: str) -> None:
    items = built(baseline, shapes())
    chosen = torch.tensor([3, 0, 7, 5, 3])
    with torch.no_grad():
        together = items.vectors(chosen)
        alone = torch.cat([items.vectors(one.unsqueeze(0)) for one in chosen])
    torch.testing.assert_close(together, alone)
    assert not torch.allclose(together[0], together[3])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("baseline", NETWORKS)
def test_the_numbering_of_nodes_makes_no_difference_and_edges_do(baseline: str, seed: int) -> None:
    data, rng = shapes(seed), np.random.default_rng(seed)
    ends = zip(data.node_starts, data.node_starts[1:], strict=False)
    new = np.concatenate([first + rng.permutation(last - first) for first, last in ends])  # of each node
    labels = np.empty_like(data.node_labels)
    labels[new] = data.node_labels
    triples = np.column_stack([new[data.triples[:, 0]], data.triples[:, 1], new[data.triples[:, 2]]])
    renumbered = replace(data, triples=rng.permutation(triples), node_labels=labels)
    found = vectors(built(baseline, data))
    torch.testing.assert_close(vectors(built(baseline, renumbered)), found)
    without = vectors(built(baseline, replace(data, triples=data.triples[:0])))
    assert ((found - without).abs().amax(1) > 1e-9)[2:].all()


@pytest.mark.parametrize("baseline", NETWORKS)
def test_a_network_learns_and_answers_the_same_when_opened_again(tmp_path: Path, baseline: str) -> None:
    run = trained(tmp_path / "run", baseline)
    assert [fold["accuracy"] for fold in run.metrics["valid"]["folds"]] == [1.0] * 3
    again = open_run(run.path, "cpu")
    names = [f"m{i}" for i in range(18)]
    assert again.classify(names) == run.classify(names)
    assert [found.label for found in again.classify(names)] == ["no", "yes"] * 9
    assert again.graph_embeddings()[1].shape[0] == 18
    others = toy.molecules(graphs=10, seed=1)
    assert [found.label for found in again.classify(others)] == ["no", "yes"] * 5


def test_features_serve_as_input_in_the_nested_protocol(tmp_path: Path) -> None:
    rings = toy.molecules()
    features = np.eye(3, 5, dtype=np.float32)[rings.node_labels]
    data = replace(rings, node_labels=None, node_classes=(), node_features=features)
    run = trained(tmp_path / "run", "pachysan", data, protocol="nested")
    assert run.config.encoder.input == "features"
    assert [fold["accuracy"] for fold in run.metrics["test"]["folds"]] == [1.0] * 3
    assert open_run(run.path, "cpu").evaluate("train") == run.evaluate("train")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"composition": "sub"}, "'gin' is a network of its own and has no encoder.composition; leave it out"),
        ({"readout": "max"}, "'gin' is a network of its own and has no classifier.readout; leave it out"),
        ({"baseline": "pachysan", "encoder.dims": (8, 8)}, "pachysan takes four"),
        ({"baseline": "dgcnn", "encoder.dims": (8,)}, "dgcnn needs a dimension for each of its layers"),
        ({"batch_size": 1, "data": shapes()}, r"batch_size = 1 a batch can hold a single node"),
    ],
)
def test_settings_that_a_network_cannot_use_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trained(tmp_path / "run", **({"baseline": "gin"} | settings))
