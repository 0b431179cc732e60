"""The edges a batch asks about are those taken out, however often they stand in the graph."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.edge_masking import EdgeMask
from compgcn.tasks.facts import Answers
from oracles import Edges, edge_lists


def by_hand(edges: Edges, train: Answers, examples: list[int], by_query: bool) -> list[float]:
    """1 for every edge that is no answer of the examples, asked either way."""
    asked = set()
    for i, (s, r) in enumerate(train.queries.tolist()):
        for place in range(int(train.offsets[i]), int(train.offsets[i + 1])):
            if (i if by_query else place) in examples:
                asked.add((s, r, int(train.answers[place])))
    R = edges.num_relations
    return [0.0 if (s, r, o) in asked or (o, r + R, s) in asked else 1.0 for s, r, o in edges.triples]


@pytest.mark.parametrize("by_query", [True, False], ids=["questions", "answers"])
@given(edges=edge_lists(max_edges=30), other=edge_lists(max_edges=10), data=st.data())
def test_the_edges_taken_out_are_those_asked_about(by_query, edges, other, data):
    graph = edges.graph()
    triples = torch.stack((graph.src, graph.rel, graph.dst), 1)
    train = Answers.from_triples(triples, edges.num_relations)
    mask = EdgeMask(graph, train, by_query=by_query)
    number = len(train) if by_query else len(train.answers)
    examples = data.draw(st.lists(st.integers(0, number - 1), max_size=5)) if number else []
    keep = mask.keep(torch.tensor(examples, dtype=torch.long))
    assert keep.tolist() == by_hand(edges, train, examples, by_query)


@pytest.mark.parametrize("by_query", [True, False], ids=["questions", "answers"])
def test_edges_that_are_no_training_triples_stay(by_query):
    graph = RelationalGraph.from_triples(torch.tensor([[0, 0, 1], [1, 0, 0], [2, 1, 0], [0, 0, 2]]), 3, 2)
    train = Answers.from_triples(torch.tensor([[0, 0, 1]]), 2)
    mask = EdgeMask(graph, train, by_query=by_query)
    assert mask.keep(torch.arange(2)).tolist() == [0.0, 1.0, 1.0, 1.0]
    assert EdgeMask(graph.without_edges(), train, by_query=by_query).keep(torch.arange(2)).shape == (0,)
