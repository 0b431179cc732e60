"""A file of queries: the answers are those of `predict`, and no line is answered before all are known to be queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from compgcn.answers import score
from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError
from compgcn.run import Run
from toy import Command, contents, refused, train

QUERIES: list[tuple[str | None, str | None, str | None]] = [
    ("p0", "lives", None),
    (None, "born", "t1"),
    ("name of p3", None, "p4"),
    ("p0", "lives", None),
    ("p5", "knows", None),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("run") / "run")


def write(path: Path, gap: str = "?", header: bool = False) -> Path:
    """The queries in the format that the name of the file tells."""
    if path.suffix == ".parquet":
        columns = zip(*QUERIES, strict=True)
        names = ["subject", "predicate", "object"] if header else ["a", "b", "c"]
        pq.write_table(pa.table([pa.array(column, pa.string()) for column in columns], names=names), path)
        return path
    mark = "," if path.suffix == ".csv" else "\t"
    lines = [["head", "relation", "tail"]] if header else []
    lines += [[gap if text is None else text for text in query] for query in QUERIES]
    path.write_text("".join(mark.join(line) + "\n" for line in lines))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    options = csv.ConvertOptions(strings_can_be_null=True, column_types={"known": pa.string(), "tail": pa.string()})
    parsing = csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
    table = (
        pq.read_table(path)
        if path.suffix == ".parquet"
        else csv.read_csv(path, parse_options=parsing, convert_options=options)
    )
    assert table.column_names == score.ANSWERED.names
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


@pytest.mark.parametrize(
    ("name", "gap", "header"),
    [
        ("q.tsv", "?", True),
        ("q.tsv", "", False),
        ("q.csv", "?", False),
        ("q.csv", "", True),
        ("q.parquet", "", True),
        ("q.parquet", "", False),
    ],
)
@pytest.mark.parametrize("to", ["out.csv", "out.tsv", "out.parquet"])
def test_every_query_has_the_answers_it_would_have_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, gap: str, header: bool, to: str
) -> None:
    monkeypatch.setattr(score, "_TOGETHER", 2)
    seen: list[tuple[int, int]] = []
    written = run.predict_file(
        write(tmp_path / name, gap, header), tmp_path / to, 3, new=True, notify=lambda *how: seen.append(how)
    )
    rows = read(tmp_path / to)
    assert written == (5, len(rows))
    assert seen == [(2, 5), (4, 5), (5, 5)]
    for number, query in enumerate(QUERIES, 1):
        found = [row for row in rows if row["query"] == number]
        alone = run.predict(*query, top=3, new=True)
        assert [tuple(row[key] for key in ("head", "relation", "tail")) for row in found] == [query] * len(alone)
        assert [row["rank"] for row in found] == list(range(1, len(alone) + 1))
        assert [(row["id"], row["name"], row["known"]) for row in found] == [(a.entity, a.name, a.known) for a in alone]
        for key in ("score", "probability"):
            assert [row[key] for row in found] == pytest.approx([getattr(a, key) for a in alone], abs=1e-5)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("p0\tlives\tt0", "line 6: one of head, relation and tail must be ? or empty, and none is"),
        ("p0\t?\t?", "line 6: a prediction needs two of head, relation and tail"),
        ("p0\tlives", "line 6: expected 3 columns, found 2 columns"),
        ("p0\tlive\t?", "line 6: unknown relation 'live'; did you mean 'lives'"),
        ("name of p00\tlives\t?", "line 6: unknown entity 'name of p00'; did you mean 'name of p0'"),
    ],
)
def test_a_line_that_is_no_query_is_named_and_nothing_is_answered_or_lost(
    run: Run, tmp_path: Path, line: str, sentence: str
) -> None:
    queries = write(tmp_path / "q.tsv")
    queries.write_text(queries.read_text() + line + "\n")
    (tmp_path / "out.csv").write_text("what was here before")
    with pytest.raises(InputError) as caught:
        run.predict_file(queries, tmp_path / "out.csv", notify=lambda done, total: pytest.fail("it was answered"))
    assert str(caught.value).startswith(f"'{queries}', {sentence}")
    assert (tmp_path / "out.csv").read_text() == "what was here before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "q.tsv"]


def test_a_table_that_is_stopped_halfway_leaves_what_was_there(run: Run, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "out.csv").write_text("what was here before")
    with pytest.raises(KeyboardInterrupt):
        run.predict_file(write(tmp_path / "q.tsv"), tmp_path / "out.csv", notify=stop)
    assert (tmp_path / "out.csv").read_text() == "what was here before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "q.tsv"]


def test_no_file_that_is_read_and_no_file_of_a_run_is_written_over(command: Command, run: Run, tmp_path: Path) -> None:
    queries = write(tmp_path / "q.csv")
    (tmp_path / "facts.csv").write_text("p0,lives,t0\n")
    (tmp_path / "same.csv").symlink_to(queries)
    before = contents(tmp_path), contents(run.path)
    ask = ("predict", run.path, "--queries", queries, "--facts", "facts.csv", "--to")
    for to in (queries, "same.csv"):
        refused(command(*ask, to), "the queries are read from", "choose another file")
    refused(command(*ask, "facts.csv"), "the facts are read from 'facts.csv'")
    with pytest.raises(InputError, match="the queries are read from"):
        run.predict_file(queries, queries)
    own = run.path / "vocabulary.parquet"
    refused(command("predict", run.path, "--queries", queries, "--to", own), f"is a file of the run {run.path}")
    refused(command("discover", run.path, "--to", own), "is a file of the run")
    for form, name in (("parquet", own), ("tsv", run.path / "config.toml"), ("projector", run.path / "checkpoint")):
        refused(command("export", run.path, "--to", name, "--format", form), "is a file of the run")
    assert (contents(tmp_path), contents(run.path)) == before


def test_the_command_says_what_it_wrote_and_refuses_what_does_not_go_together(
    command: Command, run: Run, tmp_path: Path
) -> None:
    queries = write(tmp_path / "q.tsv")
    result = command("predict", run.path, "--queries", queries, "--to", "out.parquet", "--top", 2)
    assert result.code == 0
    assert result.out.splitlines() == [
        "10 answers to 5 queries written to out.parquet",
        "probabilities not calibrated",
    ]
    result = command("predict", run.path, "--queries", queries, "--to", "out.csv", "--top", 2, "--json")
    assert json.loads(result.out) == {"queries": 5, "answers": 10, "file": "out.csv"}
    refused(command("predict", run.path, "--queries", queries), "--to answers.parquet")
    refused(command("predict", run.path, "--queries", queries, "--to", "out.txt"), "a .parquet, .csv or .tsv file")
    refused(command("predict", run.path, "--queries", queries, "--to", "no/out.csv"), "there is no folder 'no'")
    (tmp_path / "q.xlsx").touch()
    refused(command("predict", run.path, "--queries", "q.xlsx", "--to", "out.csv"), ".tsv, .txt, .csv", ".parquet")
    refused(command("predict", run.path, "--queries", "no.tsv", "--to", "out.csv"), "there is no file 'no.tsv'")
    refused(command("predict", run.path, "--queries", queries, "--to", "out.csv", "--head", "p0"), "leave out --head")
    refused(
        command("predict", run.path, "--head", "p0", "--relation", "lives", "--to", "out.csv"),
        "--to goes with --queries",
    )


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("query", [("p0", "lives", None), (None, "born", "t1"), ("t1", "knows", None)])
def test_plausible_answers_are_the_others_without_those_never_at_that_end(
    run: Run, query: tuple[str | None, str, str | None], new: bool
) -> None:
    data = run.data
    assert isinstance(data, KnowledgeGraph)
    relation, end = data.relations.index(query[1]), 2 if query[2] is None else 0
    there = {data.entities.ids[row] for row in data.train[data.train[:, 1] == relation, end]}
    every = run.predict(*query, top=1000, new=new)
    expected = [answer for answer in every if answer.entity in there]
    assert 0 < len(expected) < len(every)
    assert run.predict(*query, top=1000, new=new, plausible=True) == expected
    assert run.predict(*query, top=2, new=new, plausible=True) == expected[:2]


def test_plausible_answers_come_from_the_command_and_from_a_file_too(
    run: Run, command: Command, tmp_path: Path
) -> None:
    asked = ("predict", run.path, "--head", "p0", "--relation", "lives", "--plausible", "--json")
    shown = json.loads(command(*asked).out)
    assert [one["entity"] for one in shown] == [a.entity for a in run.predict("p0", "lives", plausible=True)]
    assert {one["entity"][0] for one in shown} == {"t"}  # towns, and no people
    queries, to = tmp_path / "q.tsv", tmp_path / "out.csv"
    queries.write_text("p0\tlives\t?\n?\tborn\tt1\n")
    command("predict", run.path, "--queries", queries, "--to", to, "--plausible", "--top", 99)
    found = [(row["query"], row["id"]) for row in read(to)]
    expected = [run.predict("p0", "lives", top=99, plausible=True), run.predict(None, "born", "t1", 99, plausible=True)]
    assert found == [(number, answer.entity) for number, answers in enumerate(expected, 1) for answer in answers]
    queries.write_text("p0\tlives\t?\np0\t?\tt1\n")
    asked = ("predict", run.path, "--queries", queries, "--to", to, "--plausible")
    refused(command(*asked), "line 2: plausible selects entities")
    refused(command("predict", run.path, "--head", "p0", "--tail", "t1", "--plausible"), "plausible selects entities")
