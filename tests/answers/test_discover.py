"""Discoveries are by definition the best of all new facts, whatever the blocks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.answers import calibrate, discover, links
from compgcn.answers.discover import Discovery, Peers, lacking, weighing
from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError
from compgcn.run.run import Run
from oracles import Edges, edge_lists
from toy import CONDITIONAL, graph, numbered, train, trained

run = trained(each=[{"loss": "cross-entropy"}, {"loss": "bce"}], decoder="distmult")


def kind_of(facts: list[list[int]], entity: int, relation: int, hidden: list[list[int]] | None = None) -> int:
    """Return the kind of an entity by definition: 2 a head, 1 a peer, 0 neither; hidden facts make peers, no head."""
    if any([entity, relation] == fact[:2] for fact in facts):
        return 2
    facts = facts + (hidden or [])
    heads = {s for s, r, _ in facts if r == relation}
    places = {(r, 0) for s, r, _ in facts if s == entity} | {(r, 1) for _, r, o in facts if o == entity}
    for r, side in places - {(relation, 0)}:
        having = {fact[2 * side] for fact in facts if fact[1] == r}
        if 2 * len(having & heads) >= len(having):
            return 1
    return 0


def every_new_fact(run: Run, all_heads: bool) -> dict[tuple[str, str, str], float]:
    """Return all new facts with their probabilities, asked one query at a time."""
    data, facts = run.data, [row for part in run.data.splits.values() for row in part.tolist()]
    found, missing = {}, lacking(data, Peers(data, "valid"))
    for r, relation in enumerate(data.relations.ids):
        for s, head in enumerate(data.entities.ids):
            kind = kind_of(facts, s, r)
            for answer in run.predict(head, relation, top=99, new=True) if all_heads or kind else ():
                if answer.id != head:
                    found[head, relation, answer.id] = missing[r, kind] * answer.probability
    return found


@given(edge_lists(), st.integers(1, 60))
def test_heads_peers_and_samples_follow_the_definition(edges: Edges, size: int) -> None:
    data, every = numbered(edges.triples, edges.num_nodes, edges.num_relations), set()
    facts, peers, fresh = data.train, Peers(data), Peers(data)
    for r in range(edges.num_relations):
        expected = [kind_of(facts.tolist(), entity, r) for entity in range(edges.num_nodes)]
        assert peers.of(r, strangers=True)[:, 2].tolist() == expected
        assert peers.of(r).tolist() == [[entity, r, kind] for entity, kind in enumerate(expected) if kind]
        every |= set(map(tuple, peers.of(r).tolist()))
    assert fresh.counts(range(edges.num_relations)).sum() == len(every)
    assert (fresh.counts(range(edges.num_relations), strangers=True).sum(1) == edges.num_nodes).all()
    rows = [tuple(row) for row in fresh.sample(size).tolist()]
    assert len(rows) == len(set(rows)) == min(size, len(every))
    assert set(rows) <= every


def test_entities_of_another_class_are_no_peers() -> None:
    people = [(f"p{i}", "rdf:type", "Person") for i in range(9)] + [(f"p{i}", "lives", "t0") for i in range(8)]
    data = KnowledgeGraph.from_triples([*people, ("t0", "rdf:type", "Town")], valid_fraction=0, test_fraction=0)
    asked = Peers(data).of(data.relations.index("lives"))
    assert {data.entities.ids[entity] for entity, _, _ in asked.tolist()} == {f"p{i}" for i in range(9)}


@given(edge_lists(max_edges=24), st.integers(0, 12))
def test_rates_of_lacking_a_tail_follow_the_definition(edges: Edges, held: int) -> None:
    N, R, triples = edges.num_nodes, edges.num_relations, edges.triples
    data = numbered(triples[held:], N, R, valid=triples[:held])
    found = lacking(data, Peers(data, "valid"))
    if not len(data.valid):
        assert (found == 1).all()
        return
    known, hidden = data.train.tolist(), data.valid.tolist()
    kinds = np.array([[kind_of(known, s, r, hidden) for s in range(N)] for r in range(R)])  # [R, N]
    asks = np.array([[[s, r] in data.valid[:, :2].tolist() for s in range(N)] for r in range(R)])
    there, lack = (np.array([[(row & (kinds[r] == kind)).sum() for kind in range(3)] for r, row in enumerate(rows)])
                   for rows in (np.ones_like(asks), asks))  # fmt: skip
    usual = np.maximum(lack.sum(0), 0.5) / np.maximum(there.sum(0), 1)
    np.testing.assert_array_equal(found, np.minimum((lack + 2 * usual) / (there + 2), 1.0))
    asked = np.array([Peers(data).of(r, strangers=True)[:, 2] for r in range(R)])
    np.testing.assert_array_equal(asked == 1, (kinds == 1) & ~asks)  # the rate of peers is that of those asked about


def test_nobody_is_offered_a_tail_that_such_entities_never_have(tmp_path: Path) -> None:
    facts = [(i, 0, 60 + i) for i in range(60)]  # husband, wife
    facts += [(i, r, 120 + i % 4) for r in (1, 2) for i in range(120)]  # both live and were born in a town
    facts = np.random.default_rng(0).permutation(facts)
    data = numbered(facts[30:], 124, 3, valid=facts[:30])
    settings = {"encoder": "none", "encoder.dims": (32,), "decoder": "distmult", "loss": "cross-entropy", "lr": 0.03}
    found = train(tmp_path / "run", data, epochs=100, **settings).discover("0")
    assert found[0].probability < 0.1  # DistMult is symmetric, and sure that a husband is the wife of his wife


@pytest.mark.parametrize("all_heads", [False, True])
def test_discoveries_are_the_most_probable_new_facts(
    run: Run, monkeypatch: pytest.MonkeyPatch, all_heads: bool
) -> None:
    expected = every_new_fact(run, all_heads)
    best = sorted(expected.values(), reverse=True)
    monkeypatch.setattr(links, "_QUERIES", 3)
    for top in (1, 7, 10_000):
        found = run.discover(top=top, all_heads=all_heads)
        assert len(found) == min(top, len(expected)) == len({fact[:3] for fact in found})
        assert [fact.probability for fact in found] == pytest.approx(best[:top])
        assert [fact.probability for fact in found] == pytest.approx([expected[fact[:3]] for fact in found])
        assert all(fact.head_name == f"name of {fact.head}" for fact in found)


def test_a_weighing_is_fitted_to_discoveries_made_as_if_valid_were_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "_FEWEST", 1)
    data = graph()
    more = data.train[:20].copy()
    more[:, 2] = (more[:, 2] + 1) % data.num_entities  # other tails of heads that train has
    known = np.concatenate((data.train, data.test)).tolist()
    data = dataclasses.replace(data, valid=more[[row not in known for row in more.tolist()]])
    opened = train(tmp_path / "run", data, epochs=1)
    asking = opened.answers
    shown = []
    kinds = {(s, r): kind_of(known, s, r, data.valid.tolist()) for s in range(12) for r in range(3)}
    for s, r in (pair for pair, kind in kinds.items() if kind):
        answers = opened.predict(data.entities.ids[s], data.relations.ids[r], top=99)
        shown += [a for a in answers if a.known not in ("train", "test") and a.id != data.entities.ids[s]][:10]
    asking.weighing = weighing(asking)
    assert opened.calibrated("discoveries") == "valid"
    assert asking.weighing[2:4] == (len(shown), sum(answer.known == "valid" for answer in shown))
    found = opened.discover(top=50)
    assert [fact.probability for fact in found] == sorted((fact.probability for fact in found), reverse=True)
    asking.weighing = None
    assert [fact[:3] for fact in opened.discover(top=50)] == [fact[:3] for fact in found]  # the order stays


def test_limits_to_a_relation_and_per_relation_are_kept(run: Run) -> None:
    whole = run.discover(top=10_000)
    assert run.discover("lives", top=4) == [fact for fact in whole if fact.relation == "lives"][:4]
    taken: dict[str, int] = {}
    expected: list[Discovery] = []
    for fact in whole:
        taken[fact.relation] = taken.get(fact.relation, 0) + 1
        expected += [fact] if taken[fact.relation] <= 2 else []
    assert run.discover(top=5, per_relation=2) == expected[:5]
    with pytest.raises(InputError, match="per_relation must be a whole number from 1 on, not 0"):
        run.discover(per_relation=0)


def test_an_entity_is_related_to_itself_only_by_relations_that_do_so(tmp_path: Path) -> None:
    data = graph()
    loops = data.train.copy()
    loops[loops[:, 1] == 2, 2] = loops[loops[:, 1] == 2, 0]  # everyone knows themselves
    data = dataclasses.replace(data, train=loops[:-1])
    found = train(tmp_path / "run", data, epochs=1).discover(top=10_000, all_heads=True)
    assert {fact.relation for fact in found if fact.head == fact.tail} == {"knows"}


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=4), st.integers(1, 60), st.booleans())
def test_a_bounded_search_asks_where_a_tail_is_lacking_most(
    sizes: list[tuple[int, int, int]], limit: int, evenly: bool
) -> None:
    rates = np.random.default_rng(limit).integers(1, 5, (len(sizes), 3)) / 5  # some are equal
    counts = np.array(sizes, dtype=np.int64)
    asked = discover.quotas(counts, rates, limit, evenly=evenly)
    assert ((asked >= 0) & (asked <= counts)).all()
    rows = list(zip(asked, counts, rates, strict=True)) if evenly else [(asked, counts, rates)]
    for taken, there, rate in rows:
        assert taken.sum() == min(max(1, limit // len(sizes)) if evenly else limit, there.sum())
        assert max(rate[taken < there], default=0) <= min(rate[taken > 0], default=1)
    for r, share in enumerate(asked):
        kinds = np.repeat(range(3), counts[r])
        every = np.stack((np.arange(len(kinds)), np.full_like(kinds, r), kinds), 1)
        found = discover.some(every, share)
        assert (np.bincount(found[:, 2], minlength=3) == share).all()
        assert (np.diff(found[:, 0]) > 0).all()


def test_a_model_conditioned_on_the_query_answers_a_bounded_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = train(tmp_path / "run", epochs=1, **CONDITIONAL)
    whole, seen = run.discover(top=1000), []
    assert not caplog.records
    monkeypatch.setattr(discover, "_SENT", 1)
    assert discover.most_queries(run.answers) == discover.PROPAGATED
    monkeypatch.setattr(discover, "PROPAGATED", 7)
    some = run.discover(top=1000, notify=lambda *state: seen.append(state))
    assert seen[-1] == (7, 7)
    assert len({(fact.head, fact.relation) for fact in some}) <= 7
    assert set(some) < set(whole)
    (said,) = caplog.messages
    total = Peers(graph()).counts(range(3)).sum()
    assert said.startswith(f"7 of {total} queries asked, about heads that most often lack a tail; name a relation")
