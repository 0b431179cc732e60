"""The facts that a graph may lack: by definition the best of all that are new, whatever the blocks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.answers import calibrate, links
from compgcn.answers.calibrate import fit_weighing
from compgcn.answers.discover import SCHEMA, Discovery, lacking, weighing
from compgcn.answers.links import Links
from compgcn.answers.peers import Peers
from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.errors import InputError
from compgcn.run import Run
from oracles import Edges, edge_lists
from toy import Command, graph, refused, train


@pytest.fixture(scope="module", params=["cross-entropy", "bce"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("run") / request.param, loss=request.param, decoder="distmult")


def kind_of(facts: list[list[int]], entity: int, relation: int) -> int:
    """Of an entity for a relation, by the definition: 2 a head, 1 a peer of the heads, 0 neither."""
    heads = {s for s, r, _ in facts if r == relation}
    if entity in heads:
        return 2
    places = {(r, 0) for s, r, _ in facts if s == entity} | {(r, 1) for _, r, o in facts if o == entity}
    for r, side in places:
        having = {fact[2 * side] for fact in facts if fact[1] == r}
        if 2 * len(having & heads) >= len(having):
            return 1
    return 0


def every_new_fact(run: Run, all_heads: bool = False) -> list[tuple[tuple[str, str, str], float]]:
    """All of them with their probabilities, asked one query at a time."""
    data, facts = run.data, [row for part in run.data.splits.values() for row in part.tolist()]
    found, missing = [], lacking(data)
    for r, relation in enumerate(data.relations.ids):
        for s in range(data.num_entities):
            kind, head = kind_of(facts, s, r), data.entities.ids[s]
            if all_heads or kind:
                answers = run.predict(head, relation, top=99, new=True)
                chances = ((a.entity, missing[r, kind] * a.probability) for a in answers if a.entity != head)
                found += [((head, relation, tail), chance) for tail, chance in chances]
    return found


@given(edge_lists())
def test_heads_and_their_peers_are_those_of_the_definition(edges: Edges) -> None:
    facts = np.array(edges.triples, dtype=np.int64).reshape(-1, 3)
    peers = Peers(facts, edges.num_nodes, edges.num_relations)
    for r in range(edges.num_relations):
        expected = [kind_of(facts.tolist(), entity, r) for entity in range(edges.num_nodes)]
        assert peers.of(r, strangers=True).kinds.tolist() == expected
        asked = peers.of(r)
        assert list(zip(*(part.tolist() for part in asked), strict=True)) == [
            (entity, kind) for entity, kind in enumerate(expected) if kind
        ]
    relations = range(edges.num_relations)
    for some in (peers, Peers(facts, edges.num_nodes, edges.num_relations)):  # what was looked at, or nothing yet
        assert some.sizes(relations) == [len(peers.of(r).entities) for r in relations]


@given(edge_lists(max_edges=24), st.integers(0, 12))
def test_how_often_someone_lacks_a_tail_is_by_the_definition(edges: Edges, held: int) -> None:
    facts = np.array(edges.triples, dtype=np.int64).reshape(-1, 3)
    N, R = edges.num_nodes, edges.num_relations
    entities, relations = (Vocabulary(kind, [str(k) for k in range(n)]) for kind, n in (("entity", N), ("relation", R)))
    data = KnowledgeGraph("g", entities, relations, facts[held:], facts[:held], facts[:0])
    if not len(data.valid):
        assert (lacking(data) == 1).all()
        return
    kinds = np.array([[kind_of(data.train.tolist(), s, r) for s in range(N)] for r in range(R)])  # [R, N]
    asks = np.array([[[s, r] in data.valid[:, :2].tolist() for s in range(N)] for r in range(R)])
    there, lack = (np.array([[(row & (kinds[r] == kind)).sum() for kind in range(3)] for r, row in enumerate(rows)])
                   for rows in (np.ones_like(asks), asks))  # fmt: skip
    usual = np.maximum(lack.sum(0), 0.5) / np.maximum(there.sum(0), 1)
    told: list[tuple[int, int]] = []
    found = lacking(data, notify=lambda *seen: told.append(seen))
    np.testing.assert_array_equal(found, np.minimum((lack + 10 * usual) / (there + 10), 1.0))
    np.testing.assert_array_equal(found, lacking(data, Peers(data.train, N, R)))
    assert told == [(r + 1, R) for r in range(R)]


def test_someone_who_lacks_what_all_others_like_them_have_is_found(tmp_path: Path) -> None:
    rows = [[p, 0, 40 + p % 4] for p in range(40)] + [[p, 1, 44 + p % 2] for p in range(40) if p % 8]
    facts = np.array(rows)
    names = [*(f"person {p}" for p in range(40)), *(f"team {t}" for t in range(4)), "Oslo", "Bergen"]
    held = np.arange(len(facts)) % 10 == 9
    data = KnowledgeGraph(
        "staff", Vocabulary("entity", names), Vocabulary("relation", ["works in", "based in"]),
        facts[~held], facts[held], facts[:0],
    )  # fmt: skip
    found = train(tmp_path / "run", data, decoder="distmult", loss="cross-entropy", epochs=60, lr=0.01).discover(top=5)
    assert {(fact.head, fact.relation, fact.tail) for fact in found} == {
        (f"person {p}", "based in", "Oslo") for p in range(0, 40, 8)
    }


@pytest.mark.parametrize("all_heads", [False, True])
def test_what_is_discovered_are_the_most_probable_of_all_new_facts(
    run: Run, monkeypatch: pytest.MonkeyPatch, all_heads: bool
) -> None:
    expected = dict(every_new_fact(run, all_heads))
    best = sorted(expected.values(), reverse=True)
    monkeypatch.setattr(links, "_QUERIES", 3)
    for top in (1, 7, 10_000):
        found = run.discover(top=top, all_heads=all_heads)
        assert len(found) == min(top, len(expected)) == len({fact[:3] for fact in found})
        assert [fact.probability for fact in found] == pytest.approx(best[:top])
        assert [fact.probability for fact in found] == pytest.approx([expected[fact[:3]] for fact in found])
        assert all(fact.head_name == f"name of {fact.head}" for fact in found)


def test_heads_lack_a_tail_as_often_as_validation_has_one_of_them() -> None:
    rows = np.array([[h, 0, 100 + h % 7] for h in range(100)] + [[h, 1, 100] for h in range(100)])
    more = np.array([[h, 1, 101] for h in range(60)])
    names = [str(k) for k in range(107)]
    data = KnowledgeGraph(
        "g", Vocabulary("entity", names), Vocabulary("relation", ["one", "many"]), rows, more, more[:0]
    )
    (*_, one), (*_, many) = lacking(data)
    assert one < 0.05 < 0.5 < many < 0.65  # those with a tail of the first relation never have a second
    assert (lacking(dataclasses.replace(data, valid=more[:0])) == 1).all()


def test_the_weighing_that_made_the_discoveries_is_found_and_few_are_too_few() -> None:
    generator = torch.Generator().manual_seed(0)
    odds = torch.randn(20_000, generator=generator, dtype=torch.double)
    right = torch.rand(20_000, generator=generator) < torch.sigmoid(0.7 * odds - 2)
    found = fit_weighing(odds, right)
    assert found is not None
    assert found[:2] == pytest.approx((0.7, -2.0), abs=0.1)
    assert found[2:4] == (20_000, int(right.sum()))
    assert fit_weighing(odds, torch.arange(20_000) < 19) is None


def test_a_weighing_is_fitted_to_finds_as_if_valid_were_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ten best tails of all heads and peers by train and test, without those of either, looked up in valid."""
    monkeypatch.setattr(calibrate, "_FEWEST", 1)
    data = graph()
    more = data.train[:20].copy()
    more[:, 2] = (more[:, 2] + 1) % data.num_entities  # other tails of heads that train has
    known = np.concatenate((data.train, data.test)).tolist()
    data = dataclasses.replace(data, valid=more[[row not in known for row in more.tolist()]])
    opened = train(tmp_path / "run", data, epochs=1)
    links = opened.answers
    assert isinstance(links, Links)
    shown = []
    pairs = [(s, r) for s in range(data.num_entities) for r in range(data.num_relations) if kind_of(known, s, r)]
    for s, r in pairs:
        answers = opened.predict(data.entities.ids[s], data.relations.ids[r], top=99)
        shown += [a for a in answers if a.known not in ("train", "test") and a.entity != data.entities.ids[s]][:10]
    links.weighing = weighing(links)
    assert links.weighing is not None
    assert links.weighing[2:4] == (len(shown), sum(answer.known == "valid" for answer in shown))
    found = opened.discover(top=50)
    links.weighing = None
    assert [fact[:3] for fact in opened.discover(top=50)] == [fact[:3] for fact in found]  # the order stays
    links.weighing = weighing(links)
    assert [fact.probability for fact in found] == sorted((fact.probability for fact in found), reverse=True)
    assert opened.calibrated("discoveries") == "valid"


def test_a_relation_alone_and_a_limit_for_each_are_kept_to(run: Run) -> None:
    whole = run.discover(top=10_000)
    assert run.discover("lives", top=4) == [fact for fact in whole if fact.relation == "lives"][:4]
    taken: dict[str, int] = {}
    expected: list[Discovery] = []
    for fact in whole:
        taken[fact.relation] = taken.get(fact.relation, 0) + 1
        expected += [fact] if taken[fact.relation] <= 2 else []
    assert run.discover(top=5, per_relation=2) == expected[:5]


def test_an_entity_is_related_to_itself_only_where_some_are(tmp_path: Path) -> None:
    data = graph()
    loops = data.train.copy()
    loops[loops[:, 1] == 2, 2] = loops[loops[:, 1] == 2, 0]  # everyone knows themselves
    data = type(data)("loops", data.entities, data.relations, loops[:-1], data.valid, data.test)
    found = train(tmp_path / "run", data, epochs=1).discover(top=10_000, all_heads=True)
    assert {fact.relation for fact in found if fact.head == fact.tail} == {"knows"}


def test_what_cannot_be_asked_is_one_sentence(run: Run) -> None:
    with pytest.raises(InputError, match="unknown relation 'live'; did you mean 'lives'"):
        run.discover("live")
    with pytest.raises(InputError, match="per_relation must be a whole number from 1 on, not 0"):
        run.discover(per_relation=0)


def test_the_command_shows_writes_and_prints_json(command: Command, run: Run) -> None:
    found = run.discover(top=6)
    result = command("discover", run.path, "--top", 6)
    lines = result.out.splitlines()
    assert lines[0].split() == ["rank", "head", "relation", "tail", "probability"]
    assert [line.split()[0] for line in lines[1:-1]] == list("123456")
    assert lines[-1].startswith("probabilities not calibrated")
    rows = json.loads(command("discover", run.path, "--top", 6, "--json").out)
    assert [tuple(row[key] for key in Discovery._fields) for row in rows] == [tuple(fact) for fact in found]
    assert command("discover", run.path, "--top", 6, "--to", "found.parquet").code == 0
    assert pq.read_table("found.parquet").to_pylist() == [
        dict(zip(SCHEMA.names, (rank, *fact), strict=True)) for rank, fact in enumerate(found, 1)
    ]
    refused(command("discover", run.path, "--to", "found.txt"), "a .parquet, .csv or .tsv file")


@given(edge_lists(), st.integers(1, 60))
def test_a_sample_is_of_what_is_asked_and_a_large_one_is_all_of_it(edges: Edges, size: int) -> None:
    facts = np.array(edges.triples, dtype=np.int64).reshape(-1, 3)
    peers = Peers(facts, edges.num_nodes, edges.num_relations)
    asked = [peers.of(r) for r in range(edges.num_relations)]
    every = {
        (s, r, kind) for r, some in enumerate(asked) for s, kind in zip(*(part.tolist() for part in some), strict=True)
    }
    rows = [tuple(row) for row in peers.sample(range(edges.num_relations), size, seed=0).tolist()]
    assert len(rows) == len(set(rows)) == min(size, len(every))
    assert set(rows) <= every
