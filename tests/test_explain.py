"""Explanations are differences of scores, and say which facts a prediction depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compgcn.answers.links import Links
from compgcn.graph import RelationalGraph
from compgcn.run import Run
from compgcn.tasks.edges import Triple
from toy import graph, train

TRIPLE: Triple = (0, 0, 12)  # p0 lives in t0
LINEAR = {"encoder.batch_norm": False, "encoder.activation": "none", "encoder.norm": "none", "decoder": "distmult"}

# What the encoders send, one and two layers of it, and decoders with a bias and with a margin.
KINDS: dict[str, dict[str, Any]] = {
    "compgcn": {},
    "two layers": {"encoder.dims": (8, 8, 16), "decoder": "transe"},
    "rgcn-basis": {"encoder": "rgcn-basis", "bases": 2},
    "gcn": {"encoder": "gcn", "encoder.dims": (8, 8, 16)},
    "released": {"encoder": "released"},
    "vrgcn": {"encoder": "vrgcn", "decoder": "distmult"},
    "wgcn, raw vectors": {"encoder": "wgcn", "encoder.residual": 16},
    "learned composition": {"encoder.composition": "ntn"},
}


def links(folder: Path, **settings: Any) -> Links:
    answers = train(folder / "run", graph(12, 4), epochs=2, **settings).answers
    assert isinstance(answers, Links)
    return answers


def score(asked: Links, without: tuple[int, ...] = (), triple: Triple = TRIPLE) -> float:
    """By encoding the whole graph without some of the facts of train: the definition."""
    s, r, o = triple
    rows = torch.from_numpy(np.delete(asked.data.train, without, axis=0))
    smaller = RelationalGraph.from_triples(rows, asked.data.num_entities, asked.data.num_relations)
    with torch.inference_mode():
        encoded = asked.task.model.encode(smaller)
        return asked.task.model.score(encoded, torch.tensor([s]), torch.tensor([r]))[0, o].item()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("explain") / "run", graph(12, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_an_exact_contribution_is_the_difference_of_scores_made_from_scratch(kind: str, tmp_path: Path) -> None:
    asked = links(tmp_path, **KINDS[kind])
    found = asked.explain("p0", "lives", "t0", top=100, method="exact")
    edge = {tuple(row): i for i, row in enumerate(asked.data.train.tolist())}
    e, r = asked.data.entities, asked.data.relations
    assert found.score == pytest.approx(score(asked), abs=1e-5)
    assert len(found.facts) == found.edges > 3
    for fact in found.facts:
        gone = edge[e.index(fact.head), r.index(fact.relation), e.index(fact.tail)]
        assert fact.contribution == pytest.approx(score(asked) - score(asked, (gone,)), abs=1e-5), fact
    sizes = [abs(fact.contribution) for fact in found.facts]
    assert sizes == sorted(sizes, reverse=True)
