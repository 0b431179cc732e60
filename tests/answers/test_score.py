"""Files of queries and facts: answers are those of `predict`, and ranks are those of evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import csv

import compgcn
from compgcn.answers import links, score
from compgcn.answers.score import Scored
from compgcn.errors import InputError
from compgcn.run.run import Run
from oracles import filtered_ranks
from toy import Command, contents, graph, refused, trained
from toy import facts as facts_of

QUERIES: list[tuple[str | None, str | None, str | None]] = [
    ("p0", "lives", None),
    (None, "born", "t1"),
    ("name of p3", None, "p4"),
    ("p0", "lives", None),
    ("p5", "knows", None),
]
NEW = [("p0", "lives", "p3"), ("t1", "knows", "t1"), ("name of p2", "born", "name of t0")]
run = trained(each=[{"decoder": "distmult", "loss": "cross-entropy"}, {"decoder": "conve", "loss": "bce"}])


def write(path: Path, rows: Any = QUERIES, gap: str = "?", header: bool = False) -> Path:
    """Write rows in the format of the file's ending."""
    if path.suffix == ".parquet":
        names = ["subject", "predicate", "object"] if header else ["a", "b", "c"]
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        pq.write_table(pa.table(columns, names=names), path)
        return path
    mark = "," if path.suffix == ".csv" else "\t"
    lines = [["head", "relation", "tail"]] if header else []
    lines += [[gap if text is None else text for text in row] for row in rows]
    path.write_text("".join(mark.join(line) + "\n" for line in lines))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    options = csv.ConvertOptions(strings_can_be_null=True, column_types={"known": pa.string(), "tail": pa.string()})
    parsing = csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
    rows = csv.read_csv(path, parse_options=parsing, convert_options=options).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("name", "gap", "header", "to"),
    [("q.tsv", "?", True, "out.csv"), ("q.csv", "", False, "out.tsv"), ("q.parquet", "", True, "out.parquet")],
)
def test_every_query_of_a_file_gets_the_answers_it_gets_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, gap: str, header: bool, to: str
) -> None:
    monkeypatch.setattr(score, "_TOGETHER", 2)
    seen: list[tuple[int, int]] = []
    queries = write(tmp_path / name, QUERIES, gap, header)
    written = run.predict_file(queries, tmp_path / to, 3, new=True, notify=lambda *how: seen.append(how))
    rows = read(tmp_path / to)
    assert list(rows[0]) == score.ANSWERED.names
    assert written == (5, len(rows))
    assert seen == [(2, 5), (4, 5), (5, 5)]
    for number, query in enumerate(QUERIES, 1):
        found = [row for row in rows if row["query"] == number]
        alone = run.predict(*query, top=3, new=True)
        assert [tuple(row[key] for key in ("head", "relation", "tail")) for row in found] == [query] * len(alone)
        assert [row["rank"] for row in found] == list(range(1, len(alone) + 1))
        assert [(row["id"], row["name"], row["known"]) for row in found] == [(a.id, a.name, a.known) for a in alone]
        for key in ("score", "probability"):
            assert [row[key] for row in found] == pytest.approx([getattr(a, key) for a in alone], abs=1e-5)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("p0\tlives\tt0", "line 6: one of head, relation and tail must be ? or empty"),
        ("p0\t?\t?", "line 6: a prediction needs two of head, relation and tail"),
        ("p0\tlives", "line 6: expected 3 columns, found 2 columns"),
        ("name of p00\tlives\t?", "line 6: unknown entity 'name of p00'; did you mean 'name of p0'"),
        (None, ""),
    ],
)
def test_a_bad_line_or_an_interruption_leaves_the_file_as_it_was(
    run: Run, tmp_path: Path, line: str | None, sentence: str
) -> None:
    def stop(done: int, total: int) -> None:
        assert line is None
        raise KeyboardInterrupt

    queries, to = write(tmp_path / "q.tsv"), tmp_path / "out.csv"
    queries.write_text(queries.read_text() + ("" if line is None else line + "\n"))
    to.write_text("before")
    with pytest.raises(KeyboardInterrupt if line is None else InputError) as caught:
        run.predict_file(queries, to, notify=stop)
    assert line is None or str(caught.value).startswith(f"'{queries}', {sentence}")
    assert to.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "q.tsv"]


def test_several_unknown_names_are_counted_and_the_first_few_listed_with_their_lines(run: Run, tmp_path: Path) -> None:
    lines = [("p0", "lives", "?"), *((f"nobody {i}", "lives", "?") for i in (1, 2, 1, 3, 4)), ("p0", "eats", "?")]
    queries = tmp_path / "q.tsv"
    queries.write_text("".join("\t".join(line) + "\n" for line in [*lines, ("nobody 5", "lives", "?")]))
    some = "entity 'nobody 1' (line 2), entity 'nobody 2' (line 3), entity 'nobody 3' (line 5)"
    expected = (
        f"'{queries}' has 6 unknown names: {some}, entity 'nobody 4' (line 6), relation 'eats' (line 7), ..; correct"
    )
    with pytest.raises(InputError) as caught:
        run.predict_file(queries, tmp_path / "out.csv")
    assert str(caught.value).startswith(expected)
    with pytest.raises(InputError, match=r"'facts' has 2 unknown names: entity 'x' \(row 1\), relation 'y' \(row 2\);"):
        run.score([("x", "lives", "t1"), ("p0", "y", "t1")])


def test_the_file_of_a_run_is_read_by_its_columns_and_never_overwritten(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = tmp_path / "mine.csv", tmp_path / "run"
    path.write_text("who,when,how,whom\n" + "".join(f"p{i},2020,lives,t{i % 3}\n" for i in range(40)))
    before = path.read_bytes()
    monkeypatch.chdir(tmp_path)
    compgcn.fit(compgcn.read(path.name, columns=("who", "how", "whom")), run_dir=folder, model="distmult", epochs=1)
    assert "40 facts" in command("predict", folder, "--queries", path, "--to", tmp_path / "scored.csv").out
    for asked in (("predict", folder, "--queries", path), ("discover", folder), ("export", folder)):
        refused(command(*asked, "--to", path), "are read from", "choose another file")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    refused(command("export", folder, "--to", path), "are read from")
    for write in (compgcn.open_run(folder).export, lambda to: compgcn.open_run(folder).score_file([], to)):
        with pytest.raises(InputError, match="are read from"):
            write(path)
    assert path.read_bytes() == before


def test_no_file_of_a_folder_or_another_graph_is_overwritten(command: Command, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for part, rows in {"train": "a\tr\tb\nb\tr\tc\nc\tr\ta\n", "valid": "a\tr\tc\n", "test": "b\tr\ta\n"}.items():
        (tmp_path / "data" / f"{part}.tsv").write_text(rows)
    words = ["--model", "conditional", "--epochs", 1, "--set", "encoder.dims=[4,4]", "--run-dir", "run"]
    assert command("train", "data", *words).code == 0
    (tmp_path / "other.tsv").write_text("x\tr\ty\n")
    refused(command("discover", "run", "--to", "data/test.tsv"), "are read from")
    refused(command("discover", "run", "--graph", "other.tsv", "--to", "other.tsv"), "the data are read from")


def test_no_input_and_no_file_of_a_run_is_overwritten(command: Command, run: Run, tmp_path: Path) -> None:
    queries, facts = write(tmp_path / "q.csv"), write(tmp_path / "facts.csv", NEW)
    (tmp_path / "same.csv").symlink_to(queries)
    before = contents(tmp_path), contents(run.path)
    ask = ("predict", run.path, "--queries", queries, "--facts", "facts.csv", "--to")
    refused(command(*ask, "same.csv"), "the queries are read from", "choose another file")
    refused(command(*ask, "facts.csv"), "the facts are read from 'facts.csv'")
    with pytest.raises(InputError, match="the facts are read from"):
        run.score_file(facts, facts)
    own = run.path / "vocabulary.parquet"
    for asked in (("predict", run.path, "--queries", queries), ("discover", run.path), ("export", run.path)):
        refused(command(*asked, "--to", own), f"is a file of the run {run.path}")
    assert (contents(tmp_path), contents(run.path)) == before


def test_the_command_answers_a_file_of_queries(command: Command, run: Run, tmp_path: Path) -> None:
    queries = write(tmp_path / "q.tsv")
    ask = ("predict", run.path, "--queries", queries, "--to")
    assert command(*ask, "out.parquet", "--top", 2).out.startswith("10 answers to 5 queries written to out.parquet")
    printed = json.loads(command(*ask, "out.csv", "--top", 2, "--json").out)
    assert printed == {"queries": 5, "answers": 10, "file": "out.csv"}
    found = json.loads(command("discover", run.path, "--top", 3, "--to", "new.csv", "--json").out)
    assert found == {"facts": 3, "file": "new.csv"}
    refused(command(*ask, "out.csv", "--head", "p0"), "leave out --head")
    refused(command(*ask, "out.csv", "--plausible"), "line 3: plausible selects entities")
    refused(command("predict", run.path, "--queries", queries, "--json"), "--to answers.parquet")
    assert command(*ask, "out.tsv", "--top", 2).code == 0
    assert command(*ask[:-1], "--top", 2).out == (tmp_path / "out.tsv").read_text()
    write(queries, [("p0", "lives", "?")])
    assert command(*ask, "out.csv", "--plausible").code == 0
    plausible = run.predict("p0", "lives", plausible=True)
    assert [row["id"] for row in read(tmp_path / "out.csv")] == [answer.id for answer in plausible]


# Facts


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_the_ranks_of_known_facts_are_those_of_evaluation(
    run: Run, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = run.task.ranks(split)
    for queries in (1, 2, 512):
        monkeypatch.setattr(links, "_QUERIES", queries)
        found = run.score(facts_of(graph(), split))
        assert [fact.tail_rank for fact in found] == ranks.tail.realistic.tolist()
        assert [fact.head_rank for fact in found] == ranks.head.realistic.tolist()
        assert {fact.known for fact in found} == {split}


def test_the_ranks_of_new_facts_leave_out_known_answers_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = run.answers
    data = asking.data
    for fact in run.score(NEW):
        assert fact.known is None
        s, r, o = data.entities.index(fact.head), data.relations.index(fact.relation), data.entities.index(fact.tail)
        known = torch.zeros(1, data.num_entities, dtype=torch.bool)
        for triples in data.splits.values():
            known[0, triples[(triples[:, 0] == s) & (triples[:, 1] == r), 2]] = True
        with torch.inference_mode():
            scores = asking.task.model.score(asking.encoded, torch.tensor([s]), torch.tensor([r]))
        assert fact.tail_rank == filtered_ranks(scores, torch.tensor([o]), known).realistic.item()
    N = data.num_entities
    monkeypatch.setattr(asking, "scorer", lambda s, r: torch.zeros(len(s), N))
    tied = run.score([("t1", "knows", "t2")])[0]  # towns know nobody, so that nothing is left out
    assert tied.head_rank == tied.tail_rank == (N + 1) / 2


def test_a_fact_gets_the_score_and_the_probability_of_the_answer(run: Run) -> None:
    asking = run.answers
    e, r = run.data.entities, run.data.relations
    for fact in run.score([*facts_of(graph(), "train")[:4], *facts_of(graph(), "test"), *NEW]):
        answers = run.predict(head=fact.head, relation=fact.relation, top=1000)
        found = [answer for answer in answers if answer.id == fact.tail]
        assert bool(found) == (fact.head != fact.tail), "no entity answers its own query"
        alone = asking.fact(e.index(fact.head), r.index(fact.relation), e.index(fact.tail))
        for one in (*found, alone):
            assert (fact.score, fact.probability) == pytest.approx((one.score, one.probability), abs=1e-5)
            assert (fact.tail_name, fact.known) == (one.name, one.known)


def test_a_file_holds_the_scored_facts_the_doubtful_first(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score, "_TOGETHER", 2)
    given = [*facts_of(graph(), "test"), *NEW]
    seen: list[tuple[int, int]] = []
    facts, to = write(tmp_path / "facts.tsv", given), tmp_path / "out.parquet"
    assert run.score_file(facts, to, doubtful=True, notify=lambda *how: seen.append(how)) == 6
    assert seen[-1] == (6, 6)
    expected = run.score(given, doubtful=True)
    assert [tuple(row.values()) for row in read(to)] == [tuple(fact) for fact in expected]
    keys = [(fact.probability, -fact.tail_rank) for fact in expected]
    assert keys == sorted(keys)
    assert sorted(fact[:10] for fact in run.score(given)) == sorted(fact[:10] for fact in expected)
    assert [fact[:6] for fact in run.score(given * 2, doubtful=True)] == [fact[:6] for fact in expected]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([("p0", "lives", "t1"), ("p0", "lives", "nobody")], "'facts', row 2: unknown entity 'nobody'"),
        ([("p0", "lives", "?")], "row 1: a fact has a head, a relation and a tail"),
        ([], "is empty"),
    ],
)
def test_a_row_that_is_no_fact_is_refused(run: Run, facts: Any, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        run.score(facts)


def test_the_command_scores_a_file_of_facts(run: Run, command: Command, tmp_path: Path) -> None:
    known = facts_of(graph(), "train")
    facts, number = write(tmp_path / "facts.tsv", [*known, *NEW]), len(known) + 3
    asked = ("predict", run.path, "--queries", facts)
    shown = json.loads(command(*asked, "--doubtful", "--top", 4, "--json").out)
    assert shown == [fact._asdict() for fact in run.score(facts, doubtful=True)[:4]]
    assert f"{number - 2} more facts" in command(*asked, "--top", 2).out
    assert command(*asked, "--to", "out.csv").out.startswith(f"{number} facts written to out.csv\n")
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == ",".join(f'"{name}"' for name in Scored._fields)
    refused(command(*asked, "--new"), "holds facts", "--new")
    write(facts, [("p0", "lives", "?"), ("p0", "lives", "t1")])
    refused(command(*asked, "--to", "x.csv"), "line 2: ", "facts go in a file of their own")
    refused(command(*asked, "--to", "x.csv", "--doubtful"), "--doubtful puts facts in order")
    write(facts, [("p0", "lives", "t1"), ("p0", "lives", "?")])
    refused(command(*asked), "line 2: a fact has a head")
