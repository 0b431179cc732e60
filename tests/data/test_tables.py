"""The fast reader and the line by line one read the same table; Parquet gives the same graph as text."""

from __future__ import annotations

import csv
import gzip
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compgcn
from compgcn.data import read
from compgcn.data.columns import Options
from compgcn.data.tables import Text, table, text
from compgcn.errors import InputError

marks = [b"\t", b"\t", b",", b",", b"\n", b"\n", b"\r\n", b"\r", b" ", b'"']
pieces = st.sampled_from([b"a", b"b", *marks, b"007", b"\xc3\xa9", b"\xff", b"\0"])
jumble = st.one_of(st.binary(max_size=60), st.lists(pieces, max_size=40).map(b"".join))
# Fields as they may stand in a tab-separated file: no separator, no line end, not blank.
field = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\t\r\n"), min_size=1, max_size=6
).filter(lambda text: bool(text.strip(" ")) and "\ufeff" not in text)
rows = st.lists(st.tuples(field, field, field), min_size=1, max_size=20)

Table = list[tuple[str, ...]]


def fast(text: Text) -> Table:
    return list(zip(*(column.to_pylist() for column in text.read(3, range(3))), strict=True))


def slow(text: Text) -> Table:
    return [tuple(row) for _, row in text.scan(3)]


def answer(reader: Callable[[Text], Table], content: bytes, ending: str = "tsv", comment: str | None = None) -> Any:
    """Return the table in a file of this content, or the error."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x.{ending}"
        path.write_bytes(content)
        try:
            return reader(Text(path, Options(comment=comment)))
        except InputError as error:
            return str(error).replace(folder, "")


@settings(max_examples=200)
@given(jumble)
def test_the_two_readers_of_tabs_agree_on_any_bytes(content: bytes) -> None:
    assert answer(fast, content) == answer(slow, content)


@given(rows, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_a_table_written_with_tabs_is_read_back(rows: Table, end: str, bom: bool, last: bool) -> None:
    content = end.join("\t".join(row) for row in rows) + (end if last else "")
    assert answer(fast, (b"\xef\xbb\xbf" if bom else b"") + content.encode()) == rows


@given(st.lists(st.tuples(*[st.text("ab,\"\n' 0é", min_size=1).filter(str.strip)] * 3), min_size=1))
def test_a_table_written_with_commas_and_quotes_is_read_back(rows: Table) -> None:
    stream = io.StringIO()
    csv.writer(stream).writerows(rows)
    content = stream.getvalue().encode()
    assert answer(fast, content, "csv") == answer(slow, content, "csv") == rows


@pytest.mark.parametrize("name", ["t.txt", "T.TSV", "t.v2.tsv.gz", "t.csv.zst"])
def test_the_ending_tells_separator_and_compression(tmp_path: Path, name: str) -> None:
    content = b'"a, b","r",c\n' if ".csv" in name else b'"a, b\tr\tc\n"c\tr\td\n'
    packers = {"gz": gzip.compress, "zst": lambda data: pa.compress(data, "zstd", asbytes=True)}
    pack = packers.get(name.rpartition(".")[2])
    (tmp_path / name).write_bytes(pack(content) if pack else content)
    assert fast(text(tmp_path / name))[0] == ("a, b" if ".csv" in name else '"a, b', "r", "c")
    if pack is not None:
        (tmp_path / name).write_bytes(pack(content)[:-3])
        with pytest.raises(InputError, match="cannot be read"):
            fast(text(tmp_path / name))


def test_a_gzip_file_of_several_members_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(b"a\tr\tb\n") + gzip.compress(b"c\tr\td\n"))
    assert fast(text(tmp_path / "t.tsv.gz")) == slow(text(tmp_path / "t.tsv.gz")) == [("a", "r", "b"), ("c", "r", "d")]


@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_a_field_may_be_long(ending: str) -> None:
    row = ("a" * 200_000, "r", "b")
    content = ("\t" if ending == "tsv" else ",").join(row).encode()
    assert answer(slow, content, ending) == [row]


@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_chosen_columns_are_read_and_the_others_may_be_empty(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x.{ending}"
    path.write_text("w,a,,r,b\nx,c,,r,d\n".replace(",", "\t" if ending == "tsv" else ","))
    assert [column.to_pylist() for column in text(path).read(5, [1, 4])] == [["a", "c"], ["b", "d"]]
    assert [row for _, row in text(path).scan(5, [4, 1])] == [["b", "a"], ["d", "c"]]
    with pytest.raises(InputError, match="line 1: column 3 is empty; fill it in or leave the line out"):
        text(path).read(5, [0, 2])


def test_a_comment_is_a_line_that_starts_so_and_not_one_inside_quotes() -> None:
    content = b'\xef\xbb\xbf#x\na,r,"b\n#c"\n#d,e,f\n #g,r,h\n'
    assert answer(fast, content, "csv", "#") == [("a", "r", "b\n#c"), (" #g", "r", "h")]
    assert answer(fast, b"#a\tr\tb\nc\tr\td\n", comment="#") == [("c", "r", "d")]
    assert answer(fast, b"#a\tr\tb\n") == [("#a", "r", "b")]


@pytest.mark.parametrize(("line", "expected"), [("a,r,b", "commas"), ("a;r;b", "semicolons"), ("a r b", "spaces")])
def test_a_line_with_other_separators_than_the_rest_is_recognised(line: str, expected: str) -> None:
    found = answer(fast, f"a\tr\tb\n{line}\n".encode())
    assert "line 2: expected 3 columns, found 1 column" in found
    assert f"looks separated by {expected}" in found


@pytest.mark.parametrize(("line", "content"), [(1, 'a,r,"b\nc,r,d\n'), (2, 'a,r,b\nc,r,"d\n' + "e,r,f\n" * 50)])
def test_a_quote_that_is_not_closed_swallows_nothing(line: int, content: str) -> None:
    assert f"line {line}: a quote is opened and never closed" in answer(fast, content.encode(), "csv")


@pytest.mark.parametrize("comment", [None, "#"])
def test_semicolons_separate_a_csv_whose_first_line_has_more_of_them(tmp_path: Path, comment: str | None) -> None:
    content = b"#,a\n"[: 4 * bool(comment)] + b'a;r;"b;c"\nd;r,q;"e\nf"\n'
    expected = [("a", "r", "b;c"), ("d", "r,q", "e\nf")]
    assert answer(fast, content, "csv", comment) == answer(slow, content, "csv", comment) == expected
    assert answer(fast, b"a,r,b;c\n", "csv") == [("a", "r", "b;c")]
    assert answer(fast, b"a, x;r;b\n", "csv") == answer(fast, b'"a, x";r;"b"\n', "csv") == [("a, x", "r", "b")]
    (tmp_path / "x.csv").write_text("head;relation;tail;price\na;r;b;0,5\n")
    assert read(tmp_path / "x.csv", columns=("head", "relation", "tail")).entities.ids == ("a", "b")


def test_an_id_over_several_lines_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "several.csv"
    path.write_text('a,r,"b\nc,r,d\ne,r,f"\ng,r,h\n')
    graph = compgcn.read(path, valid_fraction=0.0, test_fraction=0.0)
    assert len(graph.train) == 2
    assert any("1 id over several lines" in note for note in graph.notes)


def test_files_of_several_formats_make_one_graph(tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    (tmp_path / "train.tsv").write_text("http://a\thttp://r\thttp://b\n")
    (tmp_path / "valid.nt").write_text("<http://b> <http://r> <http://a> .\n")
    (tmp_path / "test.csv").write_text("http://a,http://r,http://c\n")
    graph = compgcn.read(train=tmp_path / "train.tsv", valid=tmp_path / "valid.nt", test=tmp_path / "test.csv")
    assert (graph.num_entities, graph.num_relations) == (3, 1)


def test_quotes_around_every_field_of_a_tsv_are_taken_off_and_noted(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text('"head"\t"relation"\t"tail"\n"a ""b"""\t"r"\t"c"\n"c"\t"r"\t"d"\n')
    facts = text(tmp_path / "g.tsv").facts()
    assert [column.to_pylist() for column in facts.columns] == [['a "b"', "c"], ["r", "r"], ["c", "d"]]
    assert any("stands in double quotes" in note for note in facts.notes)
    (tmp_path / "g.tsv").write_text('"a"\t"r"\t"c"\n"c"\tr\t"d"\n')
    facts = text(tmp_path / "g.tsv").facts()
    assert (facts.columns[0].to_pylist(), facts.notes) == (['"a"', '"c"'], ())


# Parquet

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
    numbers = read(parquet(tmp_path / "x.parquet", s=[7, 10], r=[1, 1], o=[10, 2]))
    assert numbers.entities.ids == ("7", "10", "2")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"s": ["a", None], "r": ["r", "r"], "o": ["b", "b"]}, "row 2: the column 's' is empty"),
        ({"s": ["a", "b"], "r": ["r", " "], "o": ["b", "b"]}, "row 2: the column 'r' is empty"),
        ({"s": ["a"], "r": ["r"], "o": [0.5]}, "the column 'o' holds double; give strings"),
        ({"s": ["a"], "r": ["r"], "x": ["b"], "y": ["c"]}, "has the columns s, r, x, y; call three of them head"),
        ({"s": pa.array([], "string"), "r": pa.array([], "string"), "o": pa.array([], "string")}, "is empty"),
    ],
)
def test_a_table_that_holds_no_triples_is_refused(tmp_path: Path, columns: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read(parquet(tmp_path / "x.parquet", **columns))


def test_the_rows_of_a_parquet_file_are_counted_over_its_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compgcn.data.tables._BATCH", 2)
    found = table(parquet(tmp_path / "x.parquet", tail=list("bcdef"), head=[*"abcd", None], relation=["r"] * 5))
    rows = [*zip("abcd", "rrrr", "bcde", strict=True), (None, "r", "f")]
    expected = [(f"row {number}", list(fields)) for number, fields in enumerate(rows, 1)]
    assert list(found.lines(allow_empty=True)) == expected
    with pytest.raises(InputError, match="row 5: the column 'head' is empty; fill it in or leave the row out"):
        list(found.lines())


def test_bytes_that_are_no_text_and_files_that_are_no_parquet_are_refused(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    with pytest.raises(InputError, match="cannot be read"):
        read(parquet(tmp_path / "x.parquet", s=bad, r=["r"], o=["b"]))
    (tmp_path / "y.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "y.parquet")
