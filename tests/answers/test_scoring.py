"""Facts that are given: scores are those of answers, ranks those of evaluation, in whatever order they are asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import csv

from compgcn.answers import links, score
from compgcn.answers.links import Links
from compgcn.answers.score import Scored
from compgcn.errors import InputError
from compgcn.run import Run
from compgcn.tasks.ranking import filtered_ranks
from toy import Command, graph, refused, train

NEW = [("p0", "lives", "p3"), ("t1", "knows", "t1"), ("name of p2", "born", "name of t0")]


@pytest.fixture(scope="module", params=["distmult", "conve"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    loss = "cross-entropy" if request.param == "distmult" else "bce"
    return train(tmp_path_factory.mktemp("run") / "run", decoder=request.param, loss=loss)


def texts(split: str) -> list[tuple[str, str, str]]:
    data = graph()
    e, r = data.entities.ids, data.relations.ids
    return [(e[s], r[p], e[o]) for s, p, o in data.splits[split].tolist()]


def write(path: Path, facts: list[tuple[str, str, str]]) -> Path:
    path.write_text("".join("\t".join(fact) + "\n" for fact in facts))
    return path


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_the_ranks_of_known_facts_are_those_of_evaluation(
    run: Run, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = run.task.ranks(split)
    for queries in (1, 2, 512):
        monkeypatch.setattr(links, "_QUERIES", queries)
        found = run.score(texts(split))
        assert [fact.tail_rank for fact in found] == ranks.tail.realistic.tolist()
        assert [fact.head_rank for fact in found] == ranks.head.realistic.tolist()
        assert {fact.known for fact in found} == {split}


def test_the_ranks_of_new_facts_leave_out_the_known_answers_alone(run: Run) -> None:
    links = run.answers
    assert isinstance(links, Links)
    data = links.data
    for fact in run.score(NEW):
        assert fact.known is None
        s, r, o = data.entities.index(fact.head), data.relations.index(fact.relation), data.entities.index(fact.tail)
        known = torch.zeros(1, data.num_entities, dtype=torch.bool)
        for triples in data.splits.values():
            known[0, triples[(triples[:, 0] == s) & (triples[:, 1] == r), 2]] = True
        with torch.inference_mode():
            scores = links.task.model.score(links.encoded, torch.tensor([s]), torch.tensor([r]))
        assert fact.tail_rank == filtered_ranks(scores, torch.tensor([o]), known).realistic.item()


def test_a_fact_has_the_score_and_the_probability_of_the_answer(run: Run) -> None:
    for fact in run.score([*texts("train"), *texts("test"), *NEW]):
        (answer,) = [
            answer
            for answer in run.predict(head=fact.head, relation=fact.relation, top=1000)
            if answer.entity == fact.tail
        ]
        assert (fact.score, fact.probability) == pytest.approx((answer.score, answer.probability), abs=1e-5)
        assert (fact.tail_name, fact.known) == (answer.name, answer.known)


def test_equal_scores_get_the_mean_rank(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    links = run.answers
    assert isinstance(links, Links)
    N = links.data.num_entities
    monkeypatch.setattr(type(links.task.model), "score", lambda self, encoded, s, r: torch.zeros(len(s), N))
    fact = run.score([("t1", "knows", "t2")])[0]  # towns know nobody, so that nothing is left out
    assert fact.head_rank == fact.tail_rank == (N + 1) / 2


def test_the_doubtful_come_first_and_are_the_same_facts(run: Run) -> None:
    given = [*texts("train"), *NEW]
    plain, sorted_ = run.score(given), run.score(given, doubtful=True)
    assert sorted(fact[:10] for fact in plain) == sorted(fact[:10] for fact in sorted_)
    keys = [(fact.probability, -fact.tail_rank) for fact in sorted_]
    assert keys == sorted(keys)
    assert plain != sorted_


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
def test_a_file_holds_what_the_list_has(run: Run, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "_TOGETHER", 2)
    facts, to = write(tmp_path / "facts.tsv", [*texts("test"), *NEW]), tmp_path / f"out{ending}"
    seen: list[tuple[int, int]] = []
    assert run.score_file(facts, to, doubtful=True, notify=lambda *how: seen.append(how)) == 6
    assert seen[-1] == (6, 6)
    if ending == ".parquet":
        table = pq.read_table(to)
    else:
        options = csv.ConvertOptions(strings_can_be_null=True, column_types={"known": pa.string()})
        parsing = csv.ParseOptions(delimiter="\t" if ending == ".tsv" else ",")
        table = csv.read_csv(to, parse_options=parsing, convert_options=options)
    expected = run.score([*texts("test"), *NEW], doubtful=True)
    assert [tuple(row.values()) for row in table.to_pylist()] == [tuple(fact) for fact in expected]


def test_facts_are_taken_in_every_shape_that_triples_are_read_in(run: Run, tmp_path: Path) -> None:
    expected = run.score(NEW)
    assert run.score(write(tmp_path / "x.tsv", [("head", "relation", "tail"), *NEW])) == expected
    assert run.score(np.array(NEW)) == expected
    assert run.score(pa.table(dict(zip("sro", map(list, zip(*NEW, strict=True)), strict=True)))) == expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([("p0", "lives", "t1"), ("p0", "lives", "nobody")], "'facts', row 2: unknown entity 'nobody'"),
        ([("p0", "lives", "?")], "row 1: a fact has a head, a relation and a tail"),
        ([("p0", "lives")], r"row 1: expected \(subject, relation, object\)"),
        ([], "is empty"),
    ],
)
def test_what_is_no_fact_is_refused(run: Run, facts: Any, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        run.score(facts)


def test_nothing_is_written_over_the_facts(run: Run, tmp_path: Path) -> None:
    facts = write(tmp_path / "facts.tsv", NEW)
    with pytest.raises(InputError, match="the facts are read from"):
        run.score_file(facts, facts)


def test_the_command_scores_a_file_of_facts(run: Run, command: Command, tmp_path: Path) -> None:
    facts = write(tmp_path / "facts.tsv", [*texts("train"), *NEW])
    asked = ("predict", run.path, "--queries", facts)
    shown = json.loads(command(*asked, "--doubtful", "--top", 4, "--json").out)
    assert shown == [fact._asdict() for fact in run.score(facts, doubtful=True)[:4]]
    lines = command(*asked, "--top", 2).out.splitlines()
    assert lines[0].split()[:4] == ["head", "relation", "tail", "probability"]
    assert [line.split()[:3] for line in lines[1:3]] == [
        f"name of {s} {r} name of {o}".split()[:3] for s, r, o in texts("train")[:2]
    ]
    assert f"{len(texts('train')) + 1} more facts" in lines[-1]
    assert command(*asked, "--to", "out.csv").out.startswith(f"{len(texts('train')) + 3} facts written to out.csv\n")
    assert json.loads(command(*asked, "--to", "out.csv", "--json").out)["facts"] == len(texts("train")) + 3
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == ",".join(f'"{name}"' for name in Scored._fields)
    refused(command(*asked, "--new"), "holds facts", "--new")
    queries = write(tmp_path / "queries.tsv", [("p0", "lives", "?"), ("p0", "lives", "t1")])
    wrong = ("predict", run.path, "--queries", queries)
    refused(command(*wrong, "--to", "x.csv"), "line 2: ", "facts to be scored go in a file of their own")
    refused(command(*wrong, "--to", "x.csv", "--doubtful"), "--doubtful puts facts in order")
    refused(command("predict", run.path, "--head", "p0", "--doubtful"), "--doubtful goes with --queries")
    both = write(tmp_path / "both.tsv", [("p0", "lives", "t1"), ("p0", "lives", "?")])
    refused(command("predict", run.path, "--queries", both), "line 2: a fact has a head")
