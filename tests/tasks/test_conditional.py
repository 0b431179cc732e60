"""A conditional model trains on the graph without the facts it must find: neither sums nor degrees show them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from compgcn.config import Training
from compgcn.nn import ConditionalCompGCN
from compgcn.tasks.edge_masking import linked
from compgcn.tasks.link_prediction import ConditionalPrediction
from compgcn.tasks.losses import hidden_answers
from oracles import Edges, edge_lists

EVERY_RULE = pytest.mark.parametrize("rule", ["facts", "pairs"])


def task_of(edges: Edges, rule: str, most: int) -> ConditionalPrediction:
    torch.manual_seed(0)
    graph = edges.graph()
    model = ConditionalCompGCN(edges.num_relations, dim=4, layers=2).double()
    model.measure(graph)
    train = torch.stack((graph.src, graph.rel, graph.dst), 1)
    options = Training(batch_size=3, hidden_answers=most, hide=rule)
    return ConditionalPrediction(model, graph, {"train": train, "valid": train[:0], "test": train[:0]}, options)


def stays(edge: tuple[int, int, int], hidden: list[tuple[int, int, int]], rule: str) -> bool:
    if rule == "pairs":
        return all({edge[0], edge[2]} != {s, o} for s, _, o in hidden)
    return edge not in hidden


@EVERY_RULE
@settings(max_examples=25)
@given(
    edges=edge_lists(max_edges=12).filter(lambda edges: edges.triples), most=st.integers(1, 4), seed=st.integers(0, 99)
)
def test_the_loss_is_that_of_the_graph_without_the_hidden_facts(rule: str, edges: Edges, most: int, seed: int) -> None:
    task, R, N = task_of(edges, rule, most), edges.num_relations, edges.num_nodes
    examples = task.examples(0, 0)
    torch.manual_seed(seed)
    ours = task.loss(examples)
    torch.manual_seed(seed)
    places = task.hide(examples, *task.train.padded_places(examples, task._most))
    queries = task.train.queries[examples].tolist()
    answers = [
        {int(task.train.answers[i]) for i in range(*task.train.offsets[e : e + 2].tolist())} for e in examples.tolist()
    ]
    chosen = [[o for o in row if o >= 0] for row in task.train.at(places).tolist()]
    hidden = []
    for (s, r), row, known in zip(queries, chosen, answers, strict=True):
        assert 1 <= len(row) == len(set(row)) <= min(most, len(known))
        assert set(row) <= known
        hidden += [(s, r, o) if r < R else (o, r - R, s) for o in row]
    left = [edge for edge in edges.triples if stays(edge, hidden, rule)]
    scores = task.model(task.model.view(Edges(left, N, R).graph()), *task.train.queries[examples].unbind(1))
    terms = [
        F.softplus(torch.logsumexp(torch.stack(rivals), 0) - x[t]) if rivals else x[t] * 0
        for x, row, known in zip(scores, chosen, answers, strict=True)
        for rivals in [[x[o] for o in range(N) if o not in known]]
        for t in row
    ]
    torch.testing.assert_close(ours, torch.stack(terms).mean())


def test_padding_and_known_answers_take_no_part_in_the_loss() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.5], [0.0, 3.0, 1.0]], dtype=torch.double, requires_grad=True)
    rows, cols = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 2, -1])
    loss = hidden_answers(logits, rows, cols, torch.tensor([[1, -1], [2, -1]]))
    others = logits[0, 2], torch.logsumexp(logits[1, :2], 0)
    expected = (F.softplus(others[0] - logits[0, 1]) + F.softplus(others[1] - logits[1, 2])) / 2
    torch.testing.assert_close(loss, expected)
    ours, theirs = (torch.autograd.grad(one, logits, retain_graph=True)[0] for one in (loss, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("asked", "share"),
    [
        ([[0, 0, 1]], 0.0),  # joined by itself alone
        ([[0, 1, 1]], 1.0),  # by another relation
        ([[1, 0, 0]], 1.0),  # the other way round
        ([[0, 1, 1], [0, 0, 2]], 0.5),
        ([], 0.0),
    ],
)
def test_pairs_are_linked_by_facts_other_than_their_own(asked: list[list[int]], share: float) -> None:
    train = torch.tensor([[0, 0, 1], [0, 0, 1], [1, 0, 2]])
    assert linked(torch.tensor(asked, dtype=torch.long).reshape(-1, 3), train) == share
