"""Triples in memory: the same graph, with the same notes, as of the same triples in a file."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compgcn
from compgcn.data import KnowledgeGraph, read
from compgcn.errors import InputError
from toy import train

ROWS = [("a", "r", "b"), ("b", "q", "c"), ("é", "r", "a"), ("007", "q", "1e5"), ("a", "r", "b"), ("c", "q", "c")]


def columns(rows: list[tuple[str, ...]]) -> list[list[str]]:
    return [list(column) for column in zip(*rows, strict=True)]


def frame(rows: list[tuple[str, ...]]) -> Any:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    return pandas.DataFrame(rows, columns=["x", "y", "z"])


SHAPES: dict[str, Callable[[list[tuple[str, ...]]], Any]] = {
    "tuples": lambda rows: rows,
    "lists": lambda rows: [list(row) for row in rows],
    "generator": lambda rows: (row for row in rows),
    "array": np.array,
    "array of objects": lambda rows: np.array(rows, dtype=object),
    "rows of arrays": lambda rows: [np.array(row) for row in rows],
    "pandas": frame,
    "pandas, rows chosen": lambda rows: frame([*rows, ("x", "y", "z")]).iloc[:-1].set_index(np.arange(len(rows)) * 3),
    "pandas, named": lambda rows: frame(rows).set_axis(["head", "rel", "tail"], axis=1)[["tail", "head", "rel"]],
    "pyarrow": lambda rows: pa.table(columns(rows), names=["x", "y", "z"]),
}


def same(one: KnowledgeGraph, other: KnowledgeGraph) -> None:
    assert one.fingerprint() == other.fingerprint()
    assert one.notes == other.notes
    assert one.entities.names == other.entities.names


def written(path: Path, rows: list[tuple[str, ...]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_a_graph_in_memory_is_that_of_the_file(tmp_path: Path, shape: str) -> None:
    file = written(tmp_path / "graph.csv", ROWS)
    same(read(SHAPES[shape](ROWS)), read(file))
    more = {"split_seed": 3, "valid_fraction": 0.2, "exclude": ["r"]}
    same(read(SHAPES[shape](ROWS), **more), read(file, **more))
    assert read(SHAPES[shape](ROWS), name="mine").name == "mine"


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"'), min_size=1, max_size=3)


@given(rows=st.lists(st.tuples(TEXT, TEXT, TEXT).filter(lambda row: all(t.strip(" ") for t in row)), min_size=1))
def test_whatever_the_ids_the_graph_is_that_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    file = written(tmp_path_factory.mktemp("given") / "triples.csv", list(rows))
    of_file = read(file)
    # The notes name the file, and the list is called triples.
    of_file = replace(of_file, notes=tuple(note.replace(str(file), "triples") for note in of_file.notes))
    same(read(rows), of_file)


def test_a_first_row_that_names_the_columns_is_skipped(tmp_path: Path) -> None:
    rows = [("tail", "head", "relation"), ("b", "a", "r"), ("c", "b", "q")]
    file = written(tmp_path / "x.csv", rows)
    graph = read(rows)
    assert graph.fingerprint() == read(file).fingerprint() == read([("a", "r", "b"), ("b", "q", "c")]).fingerprint()
    assert graph.notes[0] == "the first line of 'triples' names the columns and was skipped"
    with pytest.raises(InputError, match="a header and no triple"):
        read(rows[:1])


def test_columns_are_chosen_by_name_or_position(tmp_path: Path) -> None:
    rows = [(str(i), s, o, r) for i, (s, r, o) in enumerate(ROWS)]
    expected = read(ROWS).fingerprint()
    assert read(rows, columns=(1, 3, 2)).fingerprint() == expected
    assert read(np.array(rows), columns=(1, 3, 2)).fingerprint() == expected
    assert read([("year", "who", "whom", "how"), *rows], columns=("who", "how", "whom")).fingerprint() == expected
    table = pa.table(columns(rows), names=["year", "who", "whom", "how"])
    assert KnowledgeGraph.from_triples(table, ("who", "how", "whom")).fingerprint() == expected
    assert read(table, columns=(1, 3, 2)).fingerprint() == expected


def test_three_tables_are_three_splits(tmp_path: Path) -> None:
    parts = {"train": ROWS, "valid": ROWS[:1], "test": [("new", "r", "a")]}
    files = {part: written(tmp_path / f"{part}.csv", rows) for part, rows in parts.items()}
    same(read(train=ROWS, valid=np.array(ROWS[:1]), test=parts["test"]), read(**files))
    same(read(train=files["train"], valid=ROWS[:1], test=files["test"]), read(**files))
    same(compgcn.KnowledgeGraph.from_triples(ROWS), read(files["train"]))


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ([], "'triples' is empty"),
        ([("a", "r", "b"), ("a", "r")], r"row 2: expected \(subject, relation, object\), found \('a', 'r'\)"),
        (["arb"], r"row 1: expected \(subject, relation, object\), found 'arb'"),
        ([("a", "r", "b"), ("a", "r", None)], "row 2: an id is missing"),
        ([("a", "r", float("nan"))], "row 1: an id is missing"),
        ([("a", " ", "b")], "row 1: an id is empty"),
        ([("a", "r", 0.5)], "row 1: 0.5 is no id; ids are text or whole numbers"),
        ([("a", "r", True)], "row 1: True is no id"),
        ([("a", "r", "\ud800")], "an id that is no text"),
        (np.array([[0.5, 1.0, 2.0]]), "row 1: 0.5 is no id"),
        (np.zeros((2, 2, 3)), "row 1: expected"),
        ({"a": "b"}, "triples are read from a file, or from a list of .*, not from dict"),
        (pa.table({"x": ["a"], "y": ["r"], "z": ["b"], "w": ["c"]}), "call three of them head, relation and tail"),
        (pa.table({"x": ["a"], "y": ["r"], "z": [None]}), "row 1: an id is missing"),
    ],
)
def test_what_holds_no_triples_is_refused_in_a_sentence(given_: Any, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as error:
        read(given_)
    assert "\n" not in str(error.value)


def test_a_gap_in_a_data_frame_is_refused() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    for kind in ("object", "string"):
        with pytest.raises(InputError, match="row 2: an id is missing"):
            read(pandas.DataFrame({"s": ["a", "b"], "r": ["r", "r"], "o": ["b", None]}, dtype=kind))
    with pytest.raises(InputError, match="row 2: an id is missing"):
        read(pandas.DataFrame({"s": [1, 2], "r": ["r", "r"], "o": pandas.array([3, None], dtype="Int64")}))


def test_a_run_on_a_graph_in_memory_opens_again(tmp_path: Path) -> None:
    rows = [(f"p{i}", "knows", f"p{(i * 3 + 1) % 9}") for i in range(9)]
    rows += [(f"p{i}", "likes", f"p{(i + 2) % 9}") for i in range(9)]
    run = train(tmp_path / "run", read(rows), decoder="distmult", epochs=1)
    assert run.data.name == "graph"
    assert run.data.entities.ids == read(rows).entities.ids
    assert train(tmp_path / "run", read(rows), decoder="distmult", epochs=1).metrics == run.metrics
    with pytest.raises(InputError, match="other options"):
        train(tmp_path / "run", read(rows[1:]), decoder="distmult", epochs=1)
