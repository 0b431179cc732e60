"""Paths lead from the head to the tail, and no path is more important than those that are listed."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import toy
from compgcn.answers import explain, paths
from compgcn.answers.paths import QueryScore, best_walks
from compgcn.data import KnowledgeGraph
from compgcn.nn.conditional import STATISTICS, ConditionalCompGCN
from compgcn.nn.graph import RelationalGraph
from compgcn.run.run import Run
from oracles import Edges, edge_lists
from toy import fit, graph, numbered

LAYERS = 3
SETTINGS = {"epochs": 1, "encoder.dims": (8,) * (LAYERS + 1), "batch_size": 8, "device": "cpu"}


def conditional(folder: Path, data: KnowledgeGraph, **settings: object) -> Run:
    return fit(data, run_dir=folder, model="conditional", **(SETTINGS | settings))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return conditional(tmp_path_factory.mktemp("paths") / "run", graph(12, 4), hide="facts")


def untrained(
    edges: list[tuple[int, int, int]], nodes: int, statistics: str = "mean"
) -> tuple[ConditionalCompGCN, RelationalGraph]:
    torch.manual_seed(0)
    model = ConditionalCompGCN(2, 4, LAYERS, statistics=statistics).double()
    made = RelationalGraph.from_triples(torch.tensor(edges).view(-1, 3), nodes, 2)
    model.measure(made)
    return model, made


def all_paths(made: RelationalGraph, slopes: torch.Tensor, head: int, tail: int) -> dict[tuple[int, ...], float]:
    """Every path by its entities, and the largest mean of slopes over its facts and layers, by trying all of them."""
    messages = made.messages("source_to_target")
    ways: dict[tuple[int, int], list[int]] = {}
    for i, pair in enumerate(zip(messages.sender.tolist(), messages.receiver.tolist(), strict=True)):
        ways.setdefault(pair, []).append(i)
    found = {}
    others = [node for node in range(made.num_nodes) if node not in (head, tail)]
    for length in range(1, len(slopes) + 1):
        for between in permutations(others, length - 1):
            entities = (head, *between, tail)
            hops = list(pairwise(entities))
            if all(hop in ways for hop in hops):
                found[entities] = max(
                    sum(
                        max(float(slopes[layer, i]) for i in ways[hop]) for layer, hop in zip(layers, hops, strict=True)
                    )
                    / length
                    for layers in product(range(len(slopes)), repeat=length)
                    if all(a < b for a, b in pairwise(layers))
                )
    return found


@given(edges=edge_lists(max_edges=12), seed=st.integers(0, 99), data=st.data())
def test_the_search_finds_the_paths_that_trying_all_of_them_finds(edges: Edges, seed: int, data: st.DataObject) -> None:
    made = edges.graph()
    head, tail = (data.draw(st.integers(0, made.num_nodes - 1)) for _ in range(2))
    slopes = torch.randn(LAYERS, 2 * made.num_edges, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    walks = best_walks(made.messages("source_to_target"), slopes, head, tail, 1000)
    expected = all_paths(made, slopes, head, tail)
    assert {walk.entities: pytest.approx(walk.importance) for walk in walks} == expected
    assert [walk.importance for walk in walks] == sorted((walk.importance for walk in walks), reverse=True)
    for walk in walks:
        messages = made.messages("source_to_target")
        assert messages.sender[list(walk.messages)].tolist() == list(walk.entities[:-1])
        assert messages.receiver[list(walk.messages)].tolist() == list(walk.entities[1:])


def test_a_narrow_beam_finds_the_best_path_where_no_way_back_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = [(0, 0, i) for i in range(1, 40)] + [(i, 1, 40) for i in range(1, 40)]
    made = RelationalGraph.from_triples(torch.tensor(edges), 41, 2)
    slopes = torch.rand(2, 2 * made.num_edges, generator=torch.Generator().manual_seed(0))
    ask = lambda: best_walks(made.messages("source_to_target"), slopes, 0, 40, 1)  # noqa: E731
    expected = ask()
    monkeypatch.setattr(paths, "_WIDTH", 1)
    assert ask() == expected != []


@pytest.mark.parametrize("known", [True, False], ids=["a known fact", "a new fact"])
@pytest.mark.parametrize("statistics", STATISTICS)
def test_slopes_are_the_differences_of_scores_by_the_weights_of_a_layer(statistics: str, known: bool) -> None:
    facts = [(0, 0, 1), (1, 1, 2), (2, 0, 3), (0, 1, 3), (3, 1, 1), (4, 0, 2)]
    model, made = untrained(facts, 5, statistics)
    keep = torch.tensor([1.0, 1.0, 1.0, float(not known), 1.0, 1.0])
    asked = QueryScore(model, made, (0, 1, 3) if known else (0, 0, 3), keep)
    view, query = model.view(made, asked.keep), (torch.tensor([0]), torch.tensor([1 if known else 0]))

    def score(layer: int, message: int, by: float) -> float:
        weight = view.weight.clone()
        weight[message] += by
        other = view._replace(plan=view.pairs.messages.weighted(weight), weight=weight)
        return model([other if k == layer else view for k in range(LAYERS)], *query)[0, 3].item()

    slopes, step = asked.slopes(), 1e-6
    assert slopes.shape == (LAYERS, 2 * len(facts))
    assert asked.hidden == known
    kept = view.weight.nonzero().squeeze(1).tolist()
    by_hand = [[(score(k, i, step) - score(k, i, -step)) / (2 * step) for i in kept] for k in range(LAYERS)]
    torch.testing.assert_close(slopes[:, kept], torch.tensor(by_hand).double(), atol=1e-6, rtol=1e-4)
    assert slopes[:, kept].abs().max() > 1e-3


def test_one_weight_in_all_layers_has_the_sum_of_the_slopes_and_all_weights_one_change_nothing() -> None:
    model, made = untrained([(0, 0, 1), (1, 1, 2), (2, 0, 3), (3, 1, 1)], 4)
    asked = QueryScore(model, made, (0, 0, 3), torch.ones(4))
    edges, values = asked.contributions(asked.slopes())
    view, messages = model.view(made), made.messages("source_to_target")
    keep = torch.ones(4, dtype=torch.double, requires_grad=True)
    weighed = view._replace(weight=messages.of_edges(keep))
    score = model(weighed, torch.tensor([0]), torch.tensor([0]))[0, 3]
    torch.testing.assert_close(score, asked.scores(edges[:0])[0, 3])
    torch.testing.assert_close(values.double(), torch.autograd.grad(score, keep)[0][edges])


def test_every_path_starts_at_the_head_ends_at_the_tail_and_consists_of_other_facts_of_train(run: Run) -> None:
    facts, shown = set(toy.facts(run.data, "train")), 0
    for asked in [*sorted(facts)[:6], ("p0", "knows", "p5"), ("t0", "born", "t0")]:
        found = run.explain(*asked, top=20)
        assert found.hidden == (asked in facts)
        for path in found.paths:
            steps = path.steps
            assert 1 <= len(steps) <= LAYERS
            starts, ends = zip(*((s.head, s.tail) if s.forward else (s.tail, s.head) for s in steps), strict=True)
            assert (starts[0], ends[-1]) == (asked[0], asked[2])
            assert starts[1:] == ends[:-1]
            assert len(set(starts)) == len(starts)
            assert {step[:3] for step in steps} <= facts - {asked}
            assert path.importance == pytest.approx(np.mean([step.importance for step in steps]))
            shown += 1
        assert len({path.arrows() for path in found.paths}) == len(found.paths)
        assert not any(found.is_itself(fact) for fact in found.facts)
    assert shown > 20


def test_the_only_path_comes_first_and_reads_as_arrows(tmp_path: Path) -> None:
    """Entity 3 leads nowhere; the other way from 0 to 2 is too long."""
    facts = [(0, 0, 1), (2, 1, 1), (0, 0, 3), (0, 0, 4), (4, 0, 5), (5, 0, 6), (6, 0, 2), (7, 0, 8)]
    run = conditional(tmp_path / "run", numbered(facts, 9, ["knows", "employs"]))
    (path,) = run.explain("0", "employs", "2").paths
    assert path.arrows() == "0 -knows-> 1 <-employs- 2"
    assert run.explain("0", "employs", "7").paths == []


def test_an_exact_contribution_is_the_difference_of_scores_on_smaller_graphs(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = run.answers
    found = run.explain("p0", "knows", "p5", top=4, method="exact")
    rows = links.data.train.tolist()
    s, r, o = links.data.entities.index("p0"), links.data.relations.index("knows"), links.data.entities.index("p5")

    def score(gone: list[int]) -> float:
        left = torch.tensor([row for row in rows if row != gone])
        smaller = RelationalGraph.from_triples(left, links.data.num_entities, links.data.num_relations)
        with torch.inference_mode():
            return links.task.model.scorer(smaller)(torch.tensor([s]), torch.tensor([r]))[0, o].item()

    for fact in found.facts:
        gone = [
            links.data.entities.index(fact.head),
            links.data.relations.index(fact.relation),
            links.data.entities.index(fact.tail),
        ]
        assert fact.contribution == pytest.approx(score([]) - score(gone), abs=1e-4)
    (best,) = (answer for answer in run.predict("p0", "knows", top=100) if answer.id == "p5")
    assert (found.score, found.probability, found.hidden) == pytest.approx((best.score, best.probability, 0))
    monkeypatch.setattr(explain, "EXACT_WORK", 1)
    assert run.explain("p0", "knows", "p5").method == "gradient"
    assert run.explain("p0", "knows", "p5").paths == run.explain("p0", "knows", "p5", method="exact").paths
