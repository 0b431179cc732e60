"""Explanations are differences of scores, and name the facts that a prediction depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compgcn.answers import explain
from compgcn.answers.explain import Triple, receptive_field, scores_without
from compgcn.answers.links import Links
from compgcn.errors import InputError
from compgcn.nn.graph import COUNT_SENT, NORMS, RelationalGraph
from compgcn.run.run import Run
from toy import facts, graph, train, trained

TRIPLE: Triple = (0, 0, 12)  # p0 lives in t0
LINEAR = {"encoder.batch_norm": False, "encoder.activation": "none", "encoder.norm": "none", "decoder": "distmult"}
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


def small(folder: Path, **settings: Any) -> Links:
    return train(folder / "run", graph(12, 4), epochs=1, **settings).answers


def score(asked: Links, without: tuple[int, ...] = (), triple: Triple = TRIPLE) -> float:
    """Return a score by definition: encode the whole graph without some of the facts of train."""
    s, r, o = triple
    rows = torch.from_numpy(np.delete(asked.data.train, without, axis=0))
    smaller = RelationalGraph.from_triples(rows, asked.data.num_entities, asked.data.num_relations)
    with torch.inference_mode():
        encoded = asked.task.model.encode(smaller)
        return asked.task.model.score(encoded, torch.tensor([s]), torch.tensor([r]))[0, o].item()


run = trained(graph(12, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_an_exact_contribution_is_the_difference_of_scores_made_from_scratch(kind: str, tmp_path: Path) -> None:
    asked = small(tmp_path, **KINDS[kind])
    found = explain.explain(asked, "p0", "lives", "t0", top=100, method="exact")
    edge = {tuple(row): i for i, row in enumerate(asked.data.train.tolist())}
    e, r = asked.data.entities, asked.data.relations
    whole = score(asked)
    assert found.score == pytest.approx(whole, abs=1e-5)
    assert len(found.facts) == found.edges > 3
    for fact in found.facts:
        gone = edge[e.index(fact.head), r.index(fact.relation), e.index(fact.tail)]
        assert fact.contribution == pytest.approx(whole - score(asked, (gone,)), abs=1e-5), fact
    sizes = [abs(fact.contribution) for fact in found.facts]
    assert sizes == sorted(sizes, reverse=True)


def test_the_gradient_of_a_linear_model_is_exact(tmp_path: Path) -> None:
    """Facts that reach one end only: the score is linear in each end."""
    asked = small(tmp_path, **LINEAR)
    field = receptive_field(asked.task.model, asked.task.graph, TRIPLE)
    one_end = ~np.isin(asked.data.train[field.edges][:, [0, 2]], (TRIPLE[0], TRIPLE[2])).all(axis=1)
    exact, slope = (explain.contributions(asked, TRIPLE, field, exact=exact)[1] for exact in (True, False))
    assert one_end.sum() >= 4
    assert exact[one_end].abs().min() > 1e-4
    torch.testing.assert_close(slope[one_end], exact[one_end], atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", NORMS)
def test_an_exact_explanation_weighs_every_fact_that_the_score_depends_on(norm: str, tmp_path: Path) -> None:
    """Facts outside change nothing; a norm that counts sent messages sees one hop further."""
    settings = {"decoder": "distmult", "epochs": 1, "encoder.norm": norm, "encoder.dims": (8, 8, 16)}
    asked = train(tmp_path / "run", graph(40, 20), **settings).answers
    triple = tuple(asked.data.train[0].tolist())
    field = receptive_field(asked.task.model, asked.task.graph, triple)
    weighed, values = explain.contributions(asked, triple, field, exact=True)
    outside = np.setdiff1d(np.arange(len(asked.data.train)), weighed)
    whole = score(asked, (), triple)
    assert 0 < len(outside) < len(asked.data.train)
    assert score(asked, tuple(outside), triple) == pytest.approx(whole, abs=1e-5)
    alone = [score(asked, (edge,), triple) for edge in weighed.tolist()]
    torch.testing.assert_close(values, whole - torch.tensor(alone), atol=1e-5, rtol=0)
    further = ~torch.isin(weighed, field.edges)
    assert further.any() == (norm in COUNT_SENT) == bool(values[further].abs().gt(1e-6).any())
    assert torch.isin(field.edges, weighed).all()


def test_facts_that_count_at_the_same_senders_are_left_out_once(run: Run) -> None:
    asked = run.with_facts([("p0", "lives", "t0"), *((f"c{i}", "lives", "t0") for i in range(20))]).answers
    field = receptive_field(asked.task.model, asked.task.graph, (0, 2, 1))  # p0 knows p1
    crowd = asked.task.graph.src[field.counted] >= run.data.num_entities
    assert crowd.sum() == 20
    assert len(field.kind[crowd].unique()) == 1


def test_sets_of_facts_are_left_out_together_in_any_number_of_copies(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = run.answers
    field = receptive_field(asked.task.model, asked.task.graph, TRIPLE)
    sets = [field.edges[:0], field.edges[:3], field.edges[2:4], field.edges]
    expected = torch.tensor([score(asked, tuple(part.tolist())) for part in sets])
    for edges in (explain._EDGES, 1):
        monkeypatch.setattr(explain, "_EDGES", edges)
        found = scores_without(asked.task.model, asked.task.graph, TRIPLE, field, sets)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_a_known_fact_is_marked_among_its_own_reasons(run: Run) -> None:
    s, r, o = facts(run.data, "train")[0]
    found = run.explain(s, r, o, top=1000)
    assert [found.is_itself(fact) for fact in found.facts].count(True) == 1
    (best,) = (p for p in run.predict(s, r, top=100) if p.id == o)
    assert (found.score, found.probability) == pytest.approx((best.score, best.probability))
    assert found.known == best.known == "train"
    names = f"name of {s}", r.upper(), f"name of {o}"
    assert run.explain(*names, top=2) == found._replace(facts=found.facts[:2])


def test_auto_takes_the_gradient_if_exact_is_much_work(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.explain("p0", "lives", "t0").method == "exact"
    monkeypatch.setattr(explain, "EXACT_WORK", 1)
    assert run.explain("p0", "lives", "t0").method == "gradient"
    assert run.explain("p0", "lives", "t0", method="exact").method == "exact"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"encoder": "none", "encoder.dims": (16,)},
            "has no graph encoder.* train one that has, such as --model conditional",
        ),
        ({"encoder.graph": "random"}, "encoder.graph 'random', so its edges are not facts"),
    ],
)
def test_a_model_without_messages_along_facts_has_nothing_to_explain(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        explain.explain(small(tmp_path, **settings), "p0", "lives", "t0")
