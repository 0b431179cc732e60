"""Processes that read a part of a file each have the graph that one process reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import launched
from compgcn.data import read
from compgcn.data.columns import Options
from compgcn.data.tables import table
from compgcn.errors import InputError

ROWS = [(f"e{i * i % 41}", f"r{i % 5 if i % 7 else 5 + i // 60}", f"e{i * 3 % 37 + i // 40}") for i in range(240)]
HEADER = ("tail", "relation", "head")


def write(path: Path, rows: list[tuple[str, ...]]) -> Path:
    """A file in the format of its ending; Parquet has seven row groups."""
    if path.suffix == ".parquet":
        columns = dict(zip(("head", "relation", "tail"), map(list, zip(*rows, strict=True)), strict=True))
        pq.write_table(pa.table(columns), path, row_group_size=-(-len(rows) // 7))
    else:
        path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("ending", ["tsv", "parquet"])
@pytest.mark.parametrize("rows", [ROWS, [HEADER, *ROWS], ROWS[:8]], ids=["plain", "header", "few"])
@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_the_parts_of_a_file_are_its_rows(
    number: int, rows: list[tuple[str, ...]], ending: str, tmp_path: Path
) -> None:
    found = table(write(tmp_path / f"graph.{ending}", rows))
    whole = found.facts()
    parts = [found.part(place, number) for place in range(number)]
    assert parts[0].notes == whole.notes
    for place, column in enumerate(whole.columns):
        assert [text for part in parts for text in part.columns[place].to_pylist()] == column.to_pylist()
    if len(rows) > 100:
        assert max(len(part.columns[0]) for part in parts) <= len(rows) / number + len(rows) / 7


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("graph.csv", "a,r,b\n", Options()),
        ("graph.tsv", "#\na\tr\tb\n", Options(comment="#")),
        ("graph.tsv", "\na\tr\tb\n", Options()),
        ("graph.tsv", '"a"\t"r"\t"b"\n"c"\t"r"\t"d"\n', Options()),
        ("graph.tsv", 'head\trelation\ttail\n"a"\t"r"\t"b"\n"c"\t"r"\t"d"\n', Options()),
        ("graph.tsv", "head\trelation\ttail\na\tr\tb\n", Options()),
        ("graph.tsv", "a\tr\tb\n \tr\tb\n", Options()),
        ("graph.tsv", "a\tr\tb\na\tr\n", Options()),
        ("graph.tsv", "a\tr\tb\rc\tr\td\r", Options()),
    ],
)
def test_a_file_that_only_the_whole_explains_has_no_parts(
    name: str, content: str, options: Options, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content.encode())
    assert None in [table(tmp_path / name, options).part(place, 2) for place in (0, 1)]


@pytest.mark.parametrize("number", [2, 3])
def test_several_processes_read_the_graph_of_one(number: int, tmp_path: Path) -> None:
    given = [[write(tmp_path / "graph.tsv", ROWS)], [write(tmp_path / "graph.parquet", ROWS)]]
    given.append([write(tmp_path / f"{name}.tsv", ROWS[place::3]) for place, name in enumerate(("a", "b", "c"))])
    given.append([write(tmp_path / "header.tsv", [HEADER, *ROWS])])
    given.append([write(tmp_path / "quoted.tsv", [tuple(f'"{text}"' for text in row) for row in ROWS])])
    (tmp_path / "files.json").write_text(json.dumps([[str(file) for file in files] for files in given]))
    done = launched.launch(tmp_path, number, launched.reading, tmp_path)
    assert done.code == 0, done
    for rank in range(number):
        found = json.loads((tmp_path / f"graphs-{rank}.json").read_text())
        for (fingerprint, notes, most), files in zip(found, given, strict=True):
            graph = read(files[0]) if len(files) == 1 else read(train=files[0], valid=files[1], test=files[2])
            assert fingerprint == graph.fingerprint()
            assert rank or notes == list(graph.notes)
            if files[0].stem in ("graph", "a"):
                assert most <= np.ceil(len(ROWS) / number) + len(ROWS) / 7


def test_one_bad_line_stops_all_processes_with_its_number(tmp_path: Path) -> None:
    path = write(tmp_path / "graph.tsv", [*ROWS, ("a", "b")])
    with pytest.raises(InputError) as alone:
        read(path)
    done = launched.launch(tmp_path, 2, launched.command, ["train", str(path), "--run-dir", str(tmp_path / "run")])
    assert done.code != 0
    assert done.err.count("error: ") == 1, done
    assert f"error: {alone.value}\n" in done.err
