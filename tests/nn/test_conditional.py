"""A model conditioned on the query equals its definition message by message, and knows no entity by its number."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from compgcn.errors import InputError
from compgcn.nn import ConditionalCompGCN
from compgcn.nn.compose import COMPOSITIONS
from compgcn.nn.conditional import STATISTICS, find_pace, find_reach
from compgcn.nn.graph import RelationalGraph
from oracles import Edges, edge_lists

EVERY_PHI = pytest.mark.parametrize("composition", COMPOSITIONS)
EVERY_STATISTIC = pytest.mark.parametrize("statistics", STATISTICS)


EVERY_PRODUCT = pytest.mark.parametrize(
    "composition", [name for name in COMPOSITIONS if ConditionalCompGCN(1, 4, 1, name, bias=False).sparse]
)


def model_of(edges: Edges, composition: str = "mult", statistics: str = "mean", **options: int) -> ConditionalCompGCN:
    """A model in double precision, with the degrees of a graph."""
    torch.manual_seed(0)
    sizes = {"dim": 4, "layers": 2} | options
    model = ConditionalCompGCN(edges.num_relations, composition=composition, statistics=statistics, **sizes).double()
    model.measure(edges.graph())
    return model


def every_query(edges: Edges) -> tuple[Tensor, Tensor]:
    """Some queries, inverses among them."""
    s = torch.arange(5) % edges.num_nodes
    return s, torch.arange(5) % (2 * edges.num_relations)


def by_hand(model: ConditionalCompGCN, edges: Edges, s: int, r: int) -> Tensor:
    """Return the scores of one query, entity by entity and message by message."""
    R, N = edges.num_relations, edges.num_nodes
    sent = [(u, p, v) for u, p, v in edges.triples] + [(v, p + R, u) for u, p, v in edges.triples]
    q = model.queries.weight[r]
    zero = torch.zeros_like(q)
    first = [q if v == s else zero for v in range(N)]
    states = first
    for layer in model.layers:
        z = q @ layer.relations + layer.relation_bias[:, 0]  # [2R, d]
        new = []
        for v in range(N):
            messages = [layer.phi(states[u], z[p]) for u, p, w in sent if w == v] + [first[v]]
            scale = torch.tensor(len(messages) + 1.0).double().log() / model.mean_log_degree
            m = torch.stack(messages)
            parts = [m.mean(0)]
            if layer.statistics == "pna":
                deviation = (m.square().mean(0) - m.mean(0).square()).clamp_min(1e-4).sqrt()
                parts += [deviation, m.amax(0), m.amin(0)]
            row = torch.cat([states[v], *(part * factor for part in parts for factor in (1, scale, 1 / scale))])
            row = row @ layer.weight + (0 if layer.bias is None else layer.bias)
            new.append(states[v] + F.relu(layer.norm(row)))
        states = new
    rows = torch.stack([torch.cat((state, q)) for state in states])
    return model.out(F.relu(model.hidden(rows)))[:, 0]


@EVERY_PHI
@EVERY_STATISTIC
@pytest.mark.parametrize("bias", [True, False])
def test_scores_and_gradients_are_those_of_every_message_by_itself(
    composition: str, statistics: str, bias: bool
) -> None:
    if statistics == "pna" and COMPOSITIONS[composition].transforms:
        pytest.skip("refused, see below")
    edges = Edges([(0, 0, 1), (1, 1, 2), (0, 1, 2), (2, 0, 2), (1, 1, 2)], 4, 2)
    model, (s, r) = model_of(edges, composition, statistics, bias=bias), every_query(edges)
    expected = torch.stack([by_hand(model, edges, *query) for query in zip(s.tolist(), r.tolist(), strict=True)])
    ours = model(model.view(edges.graph()), s, r)
    torch.testing.assert_close(ours, expected)
    weights = torch.randn(ours.shape, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    found = (
        torch.autograd.grad((y * weights).sum(), list(model.parameters()), materialize_grads=True)
        for y in (ours, expected)
    )
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@EVERY_PRODUCT
@settings(max_examples=30)
@given(edges=edge_lists(max_edges=12), data=st.data())
def test_the_entities_that_a_query_reaches_give_the_scores_and_gradients_of_all(
    composition: str, edges: Edges, data: st.DataObject
) -> None:
    """Hidden edges lead nowhere: whether an answer is reached must not tell that there was one."""
    keep = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(edges.triples), max_size=len(edges.triples))))
    model, query = model_of(edges, composition, bias=False, layers=3), every_query(edges)
    view, found = model.view(edges.graph(), keep.double()), []
    for sparse in (True, False):
        model.sparse = sparse
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("compgcn.nn.conditional._SORTED", 0)
            patch.setattr("compgcn.nn.conditional._UPDATED", 0)
            scores = model(view, *query)
        weights = torch.linspace(-1, 1, scores.numel(), dtype=torch.double).view_as(scores)
        gradients = torch.autograd.grad((scores * weights).sum(), list(model.parameters()), materialize_grads=True)
        found.append((scores, *gradients))
    for reached, every in zip(*found, strict=True):
        torch.testing.assert_close(reached, every)


def test_weights_of_messages_have_the_gradients_of_all_states() -> None:
    edges = Edges([(n, n % 2, n + 1) for n in range(30)], 31, 2)  # a chain, of which a query reaches little
    model, query, found = model_of(edges, bias=False), every_query(edges), []
    for sparse in (True, False):
        model.sparse, view = sparse, model.view(edges.graph())
        assert find_reach(view.pairs.messages.by_sender, view.weight, query[0], 2) is not None
        weights = [view.weight.clone().requires_grad_() for _ in model.layers]
        scores = model([view._replace(weight=weight) for weight in weights], *query)
        found.append(torch.autograd.grad(scores.square().sum(), weights))
    for reached, every in zip(*found, strict=True):
        torch.testing.assert_close(reached, every)


def test_all_states_are_computed_where_queries_reach_most_of_a_graph() -> None:
    chain = Edges([(n, 0, n + 1) for n in range(30)], 31, 1).graph()
    whole = Edges([(a, 0, b) for a in range(31) for b in range(31)], 31, 1).graph()
    for graph, near in ((chain, True), (whole, False)):
        sent = graph.messages().receiver_plan().messages.by_sender
        reach = find_reach(sent, torch.ones(len(sent.order)), torch.tensor([0, 9]), 3)
        assert (reach is not None) == near
        pace, of_all = find_pace(graph, 3), find_pace(graph, 3, sparse=False)
        assert (pace.time < of_all.time, pace.sparse, of_all.sparse) == (near, near, False)
        assert pace.queries == (60 if near else 62)
        assert find_pace(graph.without_edges(), 3).queries == 0
        if reach is not None:
            assert reach.reached == [2, 5, 8, 11]
            assert reach.entity.tolist() == [0, 9, 1, 8, 10, 2, 7, 11, 3, 6, 12]
            assert reach.query.tolist() == [0, 1] + [0, 1, 1] * 3


@EVERY_STATISTIC
@settings(max_examples=20)
@given(edges=edge_lists(max_edges=12), data=st.data())
def test_renamed_entities_get_the_scores_they_had(statistics: str, edges: Edges, data: st.DataObject) -> None:
    order = torch.tensor(data.draw(st.permutations(range(edges.num_nodes))))
    model, (s, r), graph = model_of(edges, statistics=statistics), every_query(edges), edges.graph()
    renamed = RelationalGraph(order[graph.src], order[graph.dst], graph.rel, graph.num_nodes, graph.num_relations)
    torch.testing.assert_close(model(model.view(renamed), order[s], r)[:, order], model(model.view(graph), s, r))


@EVERY_STATISTIC
@settings(max_examples=30)
@given(edges=edge_lists(max_edges=12), data=st.data())
def test_hidden_edges_leave_the_scores_of_the_graph_without_them(
    statistics: str, edges: Edges, data: st.DataObject
) -> None:
    """Neither a sum nor a degree may tell that something was there: the answer would be read off the gap."""
    keep = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(edges.triples), max_size=len(edges.triples))))
    model, (s, r), graph = model_of(edges, statistics=statistics), every_query(edges), edges.graph()
    stay = keep.bool() if len(keep) else torch.zeros(0, dtype=torch.bool)
    less = RelationalGraph(graph.src[stay], graph.dst[stay], graph.rel[stay], graph.num_nodes, graph.num_relations)
    torch.testing.assert_close(model(model.view(graph, stay.double()), s, r), model(model.view(less), s, r))


@EVERY_STATISTIC
def test_layers_computed_again_have_the_same_gradients(statistics: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = Edges([(0, 0, 1), (1, 1, 2), (0, 1, 2), (3, 0, 2)], 4, 2)
    model, query = model_of(edges, statistics=statistics), every_query(edges)
    found = []
    for bound in (2**40, 0):
        monkeypatch.setattr("compgcn.nn.conditional.memory", lambda device, bound=bound: bound)
        loss = model(model.view(edges.graph()), *query).square().sum()
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_answers_do_not_depend_on_how_many_queries_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = Edges([(0, 0, 1), (1, 1, 2), (0, 1, 2), (3, 0, 2)], 4, 2)
    model, query = model_of(edges), every_query(edges)
    whole = model.scorer(edges.graph())(*query)
    monkeypatch.setattr("compgcn.nn.conditional.memory", lambda device: 40)
    torch.testing.assert_close(model.scorer(edges.graph())(*query), whole)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"composition": "ntn"}, "has parameters"),
        ({"statistics": "median"}, "unknown statistics 'median'"),
        ({"composition": "corr", "statistics": "pna"}, "which 'corr' transforms"),
        ({"composition": "rotate", "dim": 5}, "even"),
    ],
)
def test_parts_that_do_not_fit_are_refused(options: dict[str, object], error: str) -> None:
    with pytest.raises(InputError, match=error):
        ConditionalCompGCN(3, **{"dim": 4, "layers": 1} | options)  # type: ignore[arg-type]
