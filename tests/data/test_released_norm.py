"""The figures of docs/fidelity.md on the released norm hold on the benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import compgcn
from compgcn.data import KnowledgeGraph
from compgcn.nn.encoder import Encoder
from compgcn.nn.graph import RelationalGraph

PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"


def known(name: str) -> tuple[KnowledgeGraph, RelationalGraph]:
    """A benchmark, and the graph of its train."""
    data = compgcn.load(name)
    assert isinstance(data, KnowledgeGraph)
    subject, relation, target = torch.from_numpy(data.train).T
    return data, RelationalGraph(subject, target, relation, data.num_entities, data.num_relations)


@pytest.mark.usefixtures("benchmarks")
@pytest.mark.parametrize("name", ["fb15k-237", "wn18rr"])
def test_as_many_messages_vanish_as_the_page_says(name: str) -> None:
    messages = known(name)[1].messages("target_to_source", True)
    silent = messages.weights("released").message == 0
    shares = [f"{100 * silent[messages.direction == half].double().mean():.1f} %" for half in (0, 1)]
    assert f"| `{name}` | {shares[0]} | {shares[1]} |" in PAGE.read_text(encoding="utf-8")


@pytest.mark.usefixtures("benchmarks")
def test_vectors_start_smaller_by_as_much_as_the_page_says() -> None:
    """From the variance of the sums before training, that of the whole sum being 9 times the one of its third."""
    data, graph = known("fb15k-237")
    torch.manual_seed(0)
    encoder = Encoder(data.num_entities, data.num_relations, (100, 200), "released", composition="corr")
    with torch.no_grad():
        third, _ = encoder.layers[0](encoder.nodes, encoder.relations(), graph)
    variance, eps = 9 * third.var(0, correction=0), encoder.norms[0].eps
    stated = re.search(r"v is about (\d)·10⁻⁴ .* smaller by about a sixth", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert stated is not None
    assert round(1e4 * variance.mean().item()) == int(stated[1])
    smaller = 1 - ((variance + eps) / (variance + 9 * eps)).sqrt().mean().item()
    assert round(1 / smaller) == 6
