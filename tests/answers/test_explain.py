"""Explanations are differences of scores, and say which facts a prediction depends on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compgcn.answers import explain
from compgcn.answers.explain import Triple, receptive_field, scores_without, slopes
from compgcn.answers.links import Links
from compgcn.errors import InputError
from compgcn.nn.graph import COUNT_SENT, NORMS, RelationalGraph
from compgcn.run import Run
from reproduction.measure import drops
from toy import Command, classify, graph, labelled, refused, train

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


SETTINGS = {"decoder": "distmult", "epochs": 1}


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


def test_the_gradient_of_a_linear_model_is_exact(tmp_path: Path) -> None:
    """Where a fact reaches one end only: the score is linear in each end, and in both it has their product."""
    asked = links(tmp_path, **LINEAR)
    field = receptive_field(asked.task.model, asked.task.graph, TRIPLE)
    one_end = ~np.isin(asked.data.train[field.edges][:, [0, 2]], (TRIPLE[0], TRIPLE[2])).all(axis=1)
    exact, slope = (explain.contributions(asked, TRIPLE, field, exact=exact)[1] for exact in (True, False))
    assert one_end.sum() >= 4
    assert exact[one_end].abs().min() > 1e-4
    torch.testing.assert_close(slope[one_end], exact[one_end], atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dims", [(8, 16), (8, 8, 16)], ids=["one layer", "two layers"])
def test_an_exact_explanation_weighs_every_fact_that_the_score_depends_on(
    norm: str, dims: tuple[int, ...], tmp_path: Path
) -> None:
    """Those outside change nothing, all at once; a norm that counts what a sender sends sees one hop further."""
    settings = {**SETTINGS, "encoder.norm": norm, "encoder.dims": dims}
    answers = train(tmp_path / "run", graph(40, 20), **settings).answers
    assert isinstance(answers, Links)
    triple = tuple(answers.data.train[0].tolist())
    field = receptive_field(answers.task.model, answers.task.graph, triple)
    weighed, values = explain.contributions(answers, triple, field, exact=True)
    outside = np.setdiff1d(np.arange(len(answers.data.train)), weighed)
    assert 0 < len(outside) < len(answers.data.train)
    assert score(answers, tuple(outside), triple) == pytest.approx(score(answers, (), triple), abs=1e-5)
    alone = [score(answers, (edge,), triple) for edge in weighed.tolist()]
    torch.testing.assert_close(values, score(answers, (), triple) - torch.tensor(alone), atol=1e-5, rtol=0)
    further = ~torch.isin(weighed, field.edges)
    assert further.any() == (norm in COUNT_SENT) == bool(values[further].abs().gt(1e-6).any())
    assert torch.isin(field.edges, weighed).all()


def test_facts_that_count_at_the_same_senders_are_left_out_once(run: Run) -> None:
    """A crowd in the town of someone the fact is about costs one more score, not twenty."""
    asked = run.with_facts([("p0", "lives", "t0"), *((f"c{i}", "lives", "t0") for i in range(20))]).answers
    assert isinstance(asked, Links)
    field = receptive_field(asked.task.model, asked.task.graph, (0, 2, 1))  # p0 knows p1
    crowd = asked.task.graph.src[field.counted] >= run.data.num_entities
    assert crowd.sum() == 20
    assert len(field.kind[crowd].unique()) == 1


def test_sets_of_facts_are_left_out_together_however_many_copies_are_scored_at_a_time(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = run.answers
    assert isinstance(asked, Links)
    field = receptive_field(asked.task.model, asked.task.graph, TRIPLE)
    sets = [field.edges[:0], field.edges[:3], field.edges[2:4], field.edges]
    found = scores_without(asked.task.model, asked.task.graph, TRIPLE, field, sets)
    expected = [score(asked, tuple(part.tolist())) for part in sets]
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=0)
    monkeypatch.setattr(explain, "_EDGES", 1)
    one_by_one = scores_without(asked.task.model, asked.task.graph, TRIPLE, field, sets)
    torch.testing.assert_close(one_by_one, found, atol=1e-5, rtol=0)
    assert scores_without(asked.task.model, asked.task.graph, TRIPLE, field, []).shape == (0,)


@pytest.mark.parametrize("exact", [True, False])
def test_the_benchmark_takes_out_the_facts_that_an_explanation_names(run: Run, exact: bool) -> None:
    asked = run.answers
    assert isinstance(asked, Links)
    field = receptive_field(asked.task.model, asked.task.graph, TRIPLE)
    lost = drops(asked, TRIPLE, field, exact, np.random.default_rng(0))
    found = asked.explain("p0", "lives", "t0", top=1000, method="exact" if exact else "gradient").facts
    edge = {tuple(row): i for i, row in enumerate(asked.data.train.tolist())}
    e, r = asked.data.entities, asked.data.relations
    row = {fact: edge[e.index(fact.head), r.index(fact.relation), e.index(fact.tail)] for fact in found}
    draws = np.random.default_rng(0)
    random = [field.edges.numpy()[draws.choice(len(field.edges), 3, replace=False)] for _ in range(10)]
    expected = [
        score(asked) - score(asked, tuple(row[fact] for fact in found[:3])),
        np.mean([score(asked) - score(asked, tuple(some)) for some in random]),
    ]
    assert lost.tolist() == pytest.approx(expected, abs=1e-5)


def test_the_order_of_the_facts_does_not_matter(run: Run) -> None:
    asked = run.answers
    assert isinstance(asked, Links)
    model, given = asked.task.model, asked.task.graph
    order = torch.randperm(given.num_edges, generator=torch.Generator().manual_seed(0))
    other = RelationalGraph(given.src[order], given.dst[order], given.rel[order], given.num_nodes, given.num_relations)
    ours, theirs = (receptive_field(model, g, TRIPLE) for g in (given, other))
    assert sorted(order[theirs.edges].tolist()) == ours.edges.tolist()
    values = torch.zeros(given.num_edges).index_put((ours.edges,), slopes(model, given, TRIPLE, ours))
    torch.testing.assert_close(slopes(model, other, TRIPLE, theirs), values[order[theirs.edges]], atol=1e-6, rtol=0)


def test_a_known_fact_is_one_of_its_own_reasons_and_told_from_the_others(run: Run) -> None:
    s, r, o = run.data.train[0].tolist()
    e = run.data.entities.ids
    found = run.explain(e[s], run.data.relations.ids[r], e[o], top=1000)
    assert found.known == "train"
    assert [found.is_itself(fact) for fact in found.facts].count(True) == 1
    (best,) = (p for p in run.predict(e[s], run.data.relations.ids[r], top=100) if p.entity == e[o])
    assert (found.score, found.probability, found.known) == pytest.approx((best.score, best.probability, best.known))
    assert len(run.explain(e[s], run.data.relations.ids[r], e[o], top=2).facts) == 2


def test_names_do_as_well_as_ids(run: Run) -> None:
    assert run.explain("name of p0", "LIVES", "name of t0") == run.explain("p0", "lives", "t0")


def test_many_facts_are_weighed_by_the_gradient_unless_told_otherwise(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.explain("p0", "lives", "t0").method == "exact"
    monkeypatch.setattr(explain, "EXACT_WORK", 1)
    assert run.explain("p0", "lives", "t0").method == "gradient"
    assert run.explain("p0", "lives", "t0", method="exact").method == "exact"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("p0", "lives", "t99"), "unknown entity 't99'"),
        (("p0", "leaves", "t0"), "did you mean 'lives'"),
        (("p0", "lives", "t0", 0), "top must be a whole number from 1 on, not 0"),
    ],
)
def test_what_cannot_be_explained_is_said(arguments: Any, message: str, run: Run) -> None:
    with pytest.raises(InputError, match=message):
        run.explain(*arguments)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": "none", "encoder.dims": (16,)}, "the encoder 'none' sends no messages"),
        ({"encoder.graph": "random"}, "encoder.graph 'random', so its edges are not facts"),
    ],
)
def test_a_model_that_no_fact_takes_part_in_has_nothing_to_explain(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        links(tmp_path, **settings).explain("p0", "lives", "t0")


def test_a_classification_has_no_predictions_to_explain(tmp_path: Path, command: Command) -> None:
    classify(tmp_path / "classes", labelled(), epochs=1)
    refused(command("explain", "classes", "p0", "buys", "a"), "node-classification")


def test_the_command_shows_signed_bars_and_json(run: Run, command: Command) -> None:
    shown = command("explain", run.path, "p0", "lives", "t0", "--top", 1000)
    assert shown.code == 0, shown
    found = run.explain("p0", "lives", "t0", top=1000)
    header = next(line for line in shown.out.splitlines() if line.startswith("rank"))
    bars = [line for line in shown.out.splitlines() if "█" in line]
    assert [line.index("█") >= header.index("  for") for line in bars] == [f.contribution >= 0 for f in found.facts]
    assert [line.split("█")[0].split()[-1] for line in bars] == [f"{f.contribution:+.4f}" for f in found.facts]
    assert f"{found.edges} of {found.edges} facts that the prediction depends on, left out one by one" in shown.out
    printed = json.loads(command("explain", run.path, "p0", "lives", "t0", "--json", "--method", "gradient").out)
    assert printed["method"] == "gradient"
    assert [fact["rank"] for fact in printed["facts"]] == [1, 2, 3, 4, 5]
    refused(command("explain", run.path, "p0", "lives", "t99"), "unknown entity 't99'")
