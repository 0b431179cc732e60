"""Networks of whole graphs: each of the registry learns a toy, sees a graph as a graph, and makes a run like any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import toy
from compgcn.baselines import BASELINES, Trained
from compgcn.baselines.networks import extra
from compgcn.data import GraphCollection
from compgcn.errors import InputError
from compgcn.run import Run, fit, open_run
from compgcn.run.build import build_task
from compgcn.run.resolve import expand, recommended
from compgcn.tasks.classification import Graphs

NETWORKS = [name for name, row in BASELINES.items() if isinstance(row.how, Trained)]
SMALL: dict[str, Any] = {"epochs": 25, "lr": 0.02, "folds": 3, "inner_folds": 2, "device": "cpu"}


def trained(folder: Path, baseline: str, data: GraphCollection | None = None, **settings: Any) -> Run:
    return fit(data or toy.molecules(), run_dir=folder, **(SMALL | {"baseline": baseline} | settings))


def built(baseline: str, data: GraphCollection) -> Graphs:
    """With fresh weights, made less alike than they come, and as it is when it answers."""
    config = expand(recommended({"data.source": data.name, "baseline": baseline}, data), data)
    torch.manual_seed(0)
    items: Graphs = build_task(config, data, torch.device("cpu"))
    for name, buffer in items.model.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
        elif name.endswith("running_mean"):
            buffer.uniform_(-0.5, 0.0)  # above it, so that not every rectifier is shut
    items.model.double().eval()
    return items


def shapes(seed: int = 0) -> GraphCollection:
    """Graphs of one to twelve nodes with edges anywhere, and nodes of three kinds."""
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
def vectors(items: Graphs) -> torch.Tensor:
    return items.vectors(torch.arange(len(items.targets)))


def test_there_is_something_to_test() -> None:
    assert {"pachysan", "dgcnn", "gin"} <= set(NETWORKS)


@pytest.mark.parametrize("protocol", ["paper", "nested"])
@pytest.mark.parametrize("baseline", NETWORKS)
def test_every_network_learns_to_tell_graphs_apart(tmp_path: Path, baseline: str, protocol: str) -> None:
    run = trained(tmp_path / "run", baseline, protocol=protocol)
    found = run.metrics["valid" if protocol == "paper" else "test"]
    assert [fold["accuracy"] for fold in found["folds"]] == [1.0] * 3


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
def test_how_the_nodes_of_a_graph_are_numbered_makes_no_difference(baseline: str, seed: int) -> None:
    data, rng = shapes(seed), np.random.default_rng(seed)
    new = np.concatenate(  # the number each node gets, within its graph
        [
            first + rng.permutation(last - first)
            for first, last in zip(data.node_starts, data.node_starts[1:], strict=False)
        ]
    )
    assert data.node_labels is not None
    labels = np.empty_like(data.node_labels)
    labels[new] = data.node_labels
    triples = np.column_stack([new[data.triples[:, 0]], data.triples[:, 1], new[data.triples[:, 2]]])
    renumbered = replace(data, triples=rng.permutation(triples), node_labels=labels)
    torch.testing.assert_close(vectors(built(baseline, renumbered)), vectors(built(baseline, data)))


@pytest.mark.parametrize("baseline", NETWORKS)
def test_edges_matter(baseline: str) -> None:
    data = shapes()
    without = replace(data, triples=data.triples[:0])
    changed = (vectors(built(baseline, data)) - vectors(built(baseline, without))).abs().amax(1) > 1e-9
    assert changed[2:].all()


@pytest.mark.parametrize("baseline", NETWORKS)
def test_a_run_opened_again_answers_the_same_of_its_own_graphs_and_of_others(tmp_path: Path, baseline: str) -> None:
    run = trained(tmp_path / "run", baseline)
    again = open_run(run.path, "cpu")
    names = [f"m{i}" for i in range(18)]
    assert again.classify(names) == run.classify(names)
    assert [found.label for found in again.classify(names)] == ["no", "yes"] * 9
    assert again.graph_embeddings()[1].shape[0] == 18
    others = toy.molecules(graphs=10, seed=1)
    assert [found.label for found in again.classify(others)] == ["no", "yes"] * 5
    assert baseline in repr(again)


@pytest.mark.parametrize("baseline", NETWORKS)
def test_given_features_serve_as_well_and_are_found_again(tmp_path: Path, baseline: str) -> None:
    rings = toy.molecules()
    assert rings.node_labels is not None
    features = np.eye(3, 5, dtype=np.float32)[rings.node_labels]
    data = replace(rings, node_labels=None, node_classes=(), node_features=features)
    run = trained(tmp_path / "run", baseline, data)
    assert run.config.encoder.input == "features"
    assert run.metrics["valid"]["accuracy"] == 1.0
    assert open_run(run.path, "cpu").evaluate("train") == run.evaluate("train")


@pytest.mark.parametrize("baseline", NETWORKS)
def test_a_run_killed_anywhere_ends_with_the_same_bits(tmp_path: Path, baseline: str) -> None:
    settings = {"epochs": 4, "checkpoint_seconds": 0.0, "batch_size": 5}
    whole = trained(tmp_path / "whole", baseline, **settings)
    path = tmp_path / "killed"
    with pytest.raises(toy.Killed):
        trained(path, baseline, notify=toy.killed_at_event(23), **settings)
    again = trained(path, baseline, **settings)
    assert again.metrics == whole.metrics
    assert (path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("baseline", NETWORKS)
def test_the_config_of_a_run_is_that_of_the_same_run(tmp_path: Path, baseline: str) -> None:
    rings = toy.molecules()
    config = expand(recommended({"data.source": "rings", "baseline": baseline}, rings), rings)
    assert expand(config, rings) == config
    assert config.encoder.dims[0] == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"composition": "sub"}, "'gin' is a network of its own and has no encoder.composition; leave it out"),
        ({"readout": "max"}, "'gin' is a network of its own and has no classifier.readout; leave it out"),
        ({"encoder": "gcn"}, "takes the place of an encoder"),
        ({"baseline": "pachysan", "encoder.dims": (8, 8)}, "pachysan takes four"),
        ({"baseline": "dgcnn", "encoder.dims": (8,)}, "dgcnn needs a dimension for each of its layers"),
    ],
)
def test_what_means_nothing_to_a_network_is_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trained(tmp_path / "run", **({"baseline": "gin"} | settings))


def test_a_batch_of_one_node_is_refused_where_something_normalises_over_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"batch_size = 1 a batch can hold a single node, and this model normalises"):
        trained(tmp_path / "run", "gin", shapes(), batch_size=1)
    assert trained(tmp_path / "other", "dgcnn", shapes(), batch_size=1, epochs=1, folds=2).metrics


def test_a_missing_library_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"needs nowhere: install it with pip install 'compgcn\[baselines\]'"):
        extra("nowhere.at_all")
