"""Triples in Parquet files: the same graph as in text, and a gap is answered with its row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compgcn.data import read
from compgcn.errors import InputError

ROWS = [("a", "r", "b"), ("b", "q", "c"), ("é", "r", "a"), ("007", "q", "1e5")]


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_three_columns_are_the_triples_and_equal_those_of_text(tmp_path: Path) -> None:
    s, r, o = (list(column) for column in zip(*ROWS, strict=True))
    text = tmp_path / "x.tsv"
    text.write_text("".join("\t".join(row) + "\n" for row in ROWS), encoding="utf-8")
    expected = read(text).fingerprint()
    dictionary = pa.array(r).dictionary_encode()
    for columns in ({"x": s, "y": r, "z": o}, {"x": pa.array(s, pa.large_string()), "y": dictionary, "z": o}):
        assert read(parquet(tmp_path / "x.parquet", **columns)).fingerprint() == expected
    named = parquet(tmp_path / "n.parquet", year=[1] * 4, tail=o, relation=r, head=s)
    assert read(named).fingerprint() == expected
    for chosen in (("a", "b", "c"), (1, 3, 2)):
        other = parquet(tmp_path / "o.parquet", year=[1] * 4, a=s, c=o, b=r)
        assert read(other, columns=chosen).fingerprint() == expected


def test_whole_numbers_become_text(tmp_path: Path) -> None:
    graph = read(parquet(tmp_path / "x.parquet", s=[7, 10], r=[1, 1], o=[10, 2]))
    assert graph.entities.ids == ("7", "10", "2")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"s": ["a", None], "r": ["r", "r"], "o": ["b", "b"]}, "row 2: the column 's' is empty"),
        ({"s": ["a", "b"], "r": ["r", " "], "o": ["b", "b"]}, "row 2: the column 'r' is empty"),
        ({"s": ["a"], "r": ["r"], "o": [0.5]}, "the column 'o' holds double; ids must be"),
        ({"s": ["a"], "r": ["r"], "x": ["b"], "y": ["c"]}, "has the columns s, r, x, y; call three of them head"),
        ({"s": ["a"], "r": ["r"]}, "has the columns s, r; a triple has three"),
        ({"s": pa.array([], "string"), "r": pa.array([], "string"), "o": pa.array([], "string")}, "is empty"),
    ],
)
def test_a_table_that_holds_no_triples_is_refused(tmp_path: Path, columns: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read(parquet(tmp_path / "x.parquet", **columns))


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", subj=["a"], rel=["r"], obj=["b"])
    with pytest.raises(InputError, match="unknown column 'sbj'; did you mean 'subj'"):
        read(path, columns=("sbj", "rel", "obj"))
    with pytest.raises(InputError, match="has no column 3"):
        read(path, columns=(0, 1, 3))


def test_bytes_that_are_no_text_and_files_that_are_no_parquet_are_refused(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    with pytest.raises(InputError, match="cannot be read"):
        read(parquet(tmp_path / "x.parquet", s=bad, r=["r"], o=["b"]))
    (tmp_path / "y.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "y.parquet")
