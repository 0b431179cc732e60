"""Each variant differs from the conditional model in what its name says, and in nothing else."""

from __future__ import annotations

from typing import get_args

import torch

from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.nn.graph import RelationalGraph
from reproduction.experiment import Row
from reproduction.training import VARIANTS, variant


def graph() -> RelationalGraph:
    edges = torch.tensor([[0, 0, 1], [1, 1, 2], [2, 0, 3], [0, 1, 3]])
    return RelationalGraph.from_triples(edges, num_nodes=4, num_relations=2)


def test_rows_may_ask_for_every_variant() -> None:
    assert set(get_args(Row.model_fields["variant"].annotation)) == set(VARIANTS)


def test_degrees_kept_hides_an_edge_from_the_sums_alone() -> None:
    model, keep = ConditionalCompGCN(2, 4, 2), torch.tensor([1.0, 0.0, 1.0, 1.0])
    whole, hidden = model.view(graph()), model.view(graph(), keep)
    with variant("degrees kept"):
        seen = model.view(graph(), keep)
    assert torch.equal(seen.weight, hidden.weight)
    assert torch.equal(seen.degree, whole.degree)
    assert torch.equal(seen.scale, whole.scale)
    assert not torch.equal(hidden.degree, whole.degree)


def test_free_relations_are_the_same_for_every_query_and_only_within_the_variant() -> None:
    with variant("free relations"):
        layer = ConditionalCompGCN(2, 4, 2).layers[0]
        free = layer.relation_vectors(torch.randn(3, 4))
    assert torch.equal(free, layer.relation_bias.expand(-1, 3, -1))
    assert not torch.equal(layer.relation_vectors(torch.randn(3, 4)), free)
