"""Many queries get the same answers as one at a time, by definition and in any number of blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.answers import links
from compgcn.answers.links import Links
from compgcn.data import KnowledgeGraph
from compgcn.run.run import Run
from compgcn.tasks import ranking
from compgcn.tasks.facts import known_entities, known_relations
from toy import facts, trained

# A product, a convolution with biases, and a distance with a margin
run = trained(each=[{"decoder": name} for name in ("distmult", "conve", "transe")])


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 2.0, -torch.inf]), min_size=9, max_size=9), min_size=1, max_size=4))
def test_the_best_come_first_and_ties_keep_their_order(rows: list[list[float]]) -> None:
    scores = torch.tensor(rows)
    for top in (1, 2, 4, 9, 20):
        found = ranking.best(scores, top)
        whole = scores.sort(dim=1, descending=True, stable=True).indices[:, :top]
        kept = scores.gather(1, whole) > -torch.inf
        assert torch.equal(found[kept], whole[kept])
        assert (scores.gather(1, found)[~kept] == -torch.inf).all()


@given(st.lists(st.tuples(*(st.integers(0, n) for n in (4, 2, 4, 2))), max_size=30), st.data())
def test_a_known_fact_stands_in_the_first_of_its_splits(
    rows: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    names = ("train", "valid", "test")
    splits = {
        name: np.array([row[:3] for row in rows if row[3] == i], dtype=np.int64).reshape(-1, 3)
        for i, name in enumerate(names)
    }
    first = {row[:3]: names[min(one[3] for one in rows if one[:3] == row[:3])] for row in rows}
    entities, relations = known_entities(splits, 5, 3), known_relations(splits, 5, 3)
    everyone, every = np.arange(5)[None], np.arange(3)[None]
    a, r, b = (data.draw(st.integers(0, n)) for n in (4, 2, 4))
    assert entities.of(np.array([a * 6 + r]), everyone)[0] == [first.get((a, r, o)) for o in range(5)]
    assert entities.of(np.array([b * 6 + r + 3]), everyone)[0] == [first.get((s, r, b)) for s in range(5)]
    assert relations.of(np.array([a * 5 + b]), every)[0] == [first.get((a, p, b)) for p in range(3)]
    places, values = entities.pairs(np.array([b * 6 + r + 3, a * 6 + r]))
    assert sorted(values[places == 1]) == [o for o in range(5) if (a, r, o) in first]


def test_many_queries_get_the_answers_of_each_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    data, asking = run.data, run.answers
    e, r = data.entities.ids, data.relations.ids
    asked: list[dict[str, Any]] = [{"head": e[i], "relation": r[i % 3]} for i in range(6)]
    asked += [{"tail": e[i], "relation": r[i % 3]} for i in range(6)]
    asked += [{"head": e[i], "tail": e[(5 * i + 1) % 12]} for i in range(6)]
    queries = [asking.query(*(one.get(part) for part in ("head", "relation", "tail"))) for one in asked]
    monkeypatch.setattr(links, "_QUERIES", 4)
    for new in (False, True):
        together = asking.answer(queries, 5, new)
        for one, answers in zip(asked, together, strict=True):
            alone = run.predict(**one, top=5, new=new)
            assert [answer[:2] + answer[4:] for answer in answers] == [answer[:2] + answer[4:] for answer in alone]
            assert [a.score for a in answers] == pytest.approx([a.score for a in alone], abs=1e-5)
            assert [a.probability for a in answers] == pytest.approx([a.probability for a in alone], abs=1e-5)


def test_relations_are_ranked_by_the_score_of_the_whole_fact(run: Run) -> None:
    data = run.data
    facts = {tuple(row): split for split, part in data.splits.items() for row in part.tolist()}
    for s, o in ((0, 9), (3, 4), (8, 8)):
        answers = run.predict(head=data.entities.ids[s], tail=data.entities.ids[o])
        with torch.inference_mode():
            scores = run.task.model.score(run.encoded, torch.full((3,), s), torch.arange(3))[:, o]
        order = scores.argsort(descending=True)
        assert [answer.id for answer in answers] == [data.relations.ids[i] for i in order]
        assert [answer.score for answer in answers] == pytest.approx(scores[order].tolist(), abs=1e-5)
        assert [answer.known for answer in answers] == [facts.get((s, int(i), o)) for i in order]


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("query", [("p0", "lives", None), (None, "born", "t1"), ("t1", "knows", None)])
def test_plausible_answers_are_those_that_train_has_at_that_end(
    run: Run, query: tuple[str | None, str, str | None], new: bool
) -> None:
    data = run.data
    relation, end = data.relations.index(query[1]), 2 if query[2] is None else 0
    there = {data.entities.ids[row] for row in data.train[data.train[:, 1] == relation, end]}
    every = run.predict(*query, top=1000, new=new)
    expected = [answer for answer in every if answer.id in there]
    assert 0 < len(expected) < len(every)
    assert run.predict(*query, top=1000, new=new, plausible=True) == expected
    assert run.predict(*query, top=2, new=new, plausible=True) == expected[:2]


def test_an_entity_is_odd_where_it_is_like_none_at_that_end_of_the_relation(run: Run) -> None:
    def odd(*query: str | None) -> bool:
        return run.answers.is_odd(run.answers.query(*query))

    assert odd("t1", "knows", None), "towns know nobody"
    assert odd(None, "lives", "p0"), "nobody lives in a person"
    assert not odd("p0", "knows", None)
    assert not odd(None, "born", "t3")
    assert not odd("p0", None, "p1"), "any relation may relate them"
    types = [(f"{kind}{i}", "rdf:type", kind) for kind in "pt" for i in range(2)]
    typed = KnowledgeGraph.from_triples([*facts(run.data, "train"), *types], valid_fraction=0, test_fraction=0)
    asked = Links(run.config, typed, run.task)
    assert asked.is_odd(asked.query("t1", "knows", None)), "another class"
    assert not asked.is_odd(asked.query("p0", "knows", None))


def test_an_entity_answers_its_own_query_where_train_has_such_a_fact_of_the_relation(run: Run) -> None:
    def answers(run: Run, *query: str | None) -> set[str]:
        return {answer.id for answer in run.predict(*query, top=1000)}

    everyone = set(run.data.entities.ids)
    assert answers(run, "p0", "knows") == everyone - {"p0"}
    assert answers(run, None, "born", "t1") == everyone - {"t1"}
    loop = [(run.data.entities.index("p3"), 2, run.data.entities.index("p3"))]
    data = replace(run.data, train=np.concatenate((run.data.train, loop)))
    narcissist = Links(run.config, data, run.task)
    asked = narcissist.answer([narcissist.query("p0", "knows", None), narcissist.query("p0", "lives", None)], 1000)
    assert [{one.id for one in found} for found in asked] == [everyone, everyone - {"p0"}]
