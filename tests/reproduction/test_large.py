"""Synthetic graphs keep their sizes and have something to learn; the benchmark of large graphs reports every stage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import compgcn
from compgcn.errors import InputError
from reproduction.large import bench_large
from reproduction.synthetic import synthetic, write


def test_a_synthetic_graph_has_the_sizes_asked_for_and_hubs_and_depends_on_its_seed_alone(tmp_path: Path) -> None:
    facts = synthetic(6000, 1000, 40, seed=3)
    assert len({tuple(row) for row in facts.tolist()}) == 6000
    assert set(facts[:, 0].tolist()) == set(range(1000))
    assert np.unique(facts[:, 1]).tolist() == list(range(40))
    assert np.array_equal(facts, synthetic(6000, 1000, 40, seed=3))
    assert not np.array_equal(facts, synthetic(6000, 1000, 40, seed=4))
    degrees = np.sort(np.bincount(facts[:, [0, 2]].ravel()))[::-1]
    assert degrees[:100].sum() > 0.3 * degrees.sum(), "a tenth of the entities"
    write(tmp_path / "graph.tsv", facts)
    read = compgcn.read(tmp_path / "graph.tsv", valid_fraction=0, test_fraction=0)
    assert (read.num_entities, read.num_relations, len(read.train)) == (1000, 40, 6000)
    with pytest.raises(InputError, match="a fact of each entity"):
        synthetic(10, 1000)


def test_a_model_learns_from_a_synthetic_graph_more_than_popularity(tmp_path: Path) -> None:
    write(tmp_path / "graph.tsv", synthetic(8000, 1000, 20))
    settings = {"dims": [50], "epochs": 15, "evaluate_every": 15, "batch_size": 500, "device": "cpu"}
    run = compgcn.fit(compgcn.read(tmp_path / "graph.tsv"), model="distmult", run_dir=tmp_path / "run", **settings)
    assert run.metrics["test"]["mrr"] > 1.2 * run.metrics["popularity"]["test"]["mrr"]


def test_the_benchmark_of_large_graphs_reports_every_stage(tmp_path: Path) -> None:
    report = bench_large([(3000, 400, 20)], torch.device("cpu"), tmp_path / "large.json", lambda _: None)
    assert json.loads((tmp_path / "large.json").read_text()) == report
    (row,) = report["rows"]
    stages = [row[name] for name in ("generate", "write", "read")]
    for model in row["models"].values():
        stages += [model[name] for name in ("build", "warm up", "epoch", "evaluate")]
    stages += [row["models"]["distmult"][name] for name in ("calibrate", "predict", "discover")]
    assert all(stage.keys() == {"seconds", "cpu_seconds", "gib"} for stage in stages), stages
