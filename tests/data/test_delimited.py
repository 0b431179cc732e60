"""The fast reader and the line by line one read the same table, and name the same bad line."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compgcn
from compgcn.data import delimited
from compgcn.errors import InputError

pieces = st.sampled_from(
    [
        b"a",
        b"b",
        b"\t",
        b"\t",
        b",",
        b",",
        b"\n",
        b"\n",
        b"\r\n",
        b"\r",
        b" ",
        b'"',
        b"007",
        b"\xc3\xa9",
        b"\xff",
        b"\x00",
    ]
)
jumble = st.one_of(st.binary(max_size=60), st.lists(pieces, max_size=40).map(b"".join))
# Fields as they may stand in a tab-separated file: no separator, no line end, not blank.
field = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\t\r\n"), min_size=1, max_size=6
).filter(lambda text: bool(text.strip(" ")) and "\ufeff" not in text)
rows = st.lists(st.tuples(field, field, field), min_size=1, max_size=20)

Reader = Callable[[delimited.Text], list[tuple[str, ...]]]


def in_memory(content: bytes, delimiter: str = "\t") -> delimited.Text:
    return delimited.Text("memory", lambda: io.BytesIO(content), delimiter)


def fast(text: delimited.Text) -> list[tuple[str, ...]]:
    return list(zip(*(column.to_pylist() for column in delimited.columns(text, 3)), strict=True))


def slow(text: delimited.Text) -> list[tuple[str, ...]]:
    return [tuple(row) for _, row in delimited.scan(text, 3)]


def answer(reader: Reader, text: delimited.Text) -> list[tuple[str, ...]] | str:
    try:
        return reader(text)
    except InputError as error:
        return str(error)


@settings(max_examples=300)
@given(jumble)
def test_the_two_readers_of_tabs_agree_on_any_bytes(content: bytes) -> None:
    text = in_memory(content)
    assert answer(fast, text) == answer(slow, text)


@settings(max_examples=300)
@given(jumble)
def test_any_bytes_read_as_commas_give_a_table_or_an_input_error(content: bytes) -> None:
    try:
        table = fast(in_memory(content, ","))
    except InputError:
        return
    assert table
    assert all(value.strip(" ") for row in table for value in row)


@given(rows, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_what_was_written_with_tabs_is_read_back(rows: list[tuple[str, ...]], end: str, bom: bool, last: bool) -> None:
    content = end.join("\t".join(row) for row in rows) + (end if last else "")
    assert fast(in_memory((b"\xef\xbb\xbf" if bom else b"") + content.encode())) == rows


@given(st.lists(st.tuples(*[st.text("ab,\"\n' 0é", min_size=1).filter(str.strip)] * 3), min_size=1))
def test_what_was_written_with_commas_and_quotes_is_read_back(rows: list[tuple[str, ...]]) -> None:
    stream = io.StringIO()
    csv.writer(stream).writerows(rows)
    text = in_memory(stream.getvalue().encode(), ",")
    assert fast(text) == slow(text) == rows


@pytest.mark.parametrize("name", ["t.tsv", "t.txt", "T.TSV", "t.tsv.gz", "t.v2.txt.gz"])
def test_tab_separated_files_are_told_by_their_ending(tmp_path: Path, name: str) -> None:
    content = b'"a\tr\tb"\n'
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert fast(delimited.file(tmp_path / name)) == [('"a', "r", 'b"')]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_comma_separated_files_may_quote(tmp_path: Path, name: str) -> None:
    content = b'"a, b","r ""x""",c\n'
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert fast(delimited.file(tmp_path / name)) == [("a, b", 'r "x"', "c")]


@pytest.mark.parametrize("delimiter", ["\t", ","])
def test_chosen_columns_are_read_and_the_others_may_be_empty(delimiter: str) -> None:
    content = "w,a,,r,b\nx,c,,r,d\n".replace(",", delimiter).encode()
    text = in_memory(content, delimiter)
    assert [column.to_pylist() for column in delimited.columns(text, 5, take=[1, 4])] == [["a", "c"], ["b", "d"]]
    assert [row for _, row in delimited.scan(text, 5, take=[4, 1])] == [["b", "a"], ["d", "c"]]
    with pytest.raises(InputError, match="line 1: column 3 is empty"):
        delimited.columns(text, 5, take=[0, 2])


@settings(max_examples=300)
@given(jumble.map(lambda content: content.replace(b"007", b"\n#")))
def test_the_two_readers_of_tabs_agree_on_comments(content: bytes) -> None:
    text = delimited.Text("memory", lambda: io.BytesIO(content), comment="#")
    assert answer(fast, text) == answer(slow, text)


def test_a_comment_is_a_line_that_starts_so_and_not_one_inside_quotes() -> None:
    content = b'\xef\xbb\xbf#x\na,r,"b\n#c"\n#d,e,f\n #g,r,h\n'
    text = delimited.Text("memory", lambda: io.BytesIO(content), ",", comment="#")
    assert fast(text) == [("a", "r", "b\n#c"), (" #g", "r", "h")]
    assert [number for number, _ in delimited.scan(text, 3)] == [2, 5]


def test_nothing_is_a_comment_unless_it_is_said() -> None:
    assert fast(in_memory(b"#a\tr\tb\n")) == [("#a", "r", "b")]


@pytest.mark.parametrize("delimiter", ["\t", ","])
def test_a_line_of_a_megabyte_is_read_and_one_after_it_still_named(delimiter: str) -> None:
    long = b"x" * 2**20
    line = delimiter.encode().join((b"a", b"r", long)) + b"\n"
    assert fast(in_memory(line, delimiter)) == [("a", "r", long.decode())]
    with pytest.raises(InputError, match="line 2: expected 3 columns, found 1"):
        fast(in_memory(line + b"a\n", delimiter))


@pytest.mark.parametrize(
    ("delimiter", "line", "expected"),
    [
        ("\t", "a,r,b", "looks separated by commas"),
        ("\t", "a;r;b", "looks separated by semicolons"),
        ("\t", "a r b", "looks separated by spaces"),
        (",", "a\tr\tb", "looks separated by tabs"),
        (",", "a;r, s;b", "looks separated by semicolons"),
    ],
)
def test_a_line_with_other_separators_than_the_rest_is_recognised(delimiter: str, line: str, expected: str) -> None:
    good = delimiter.join("arb")
    with pytest.raises(InputError, match=f"line 2: expected 3 columns, found .*{expected}"):
        fast(in_memory(f"{good}\n{line}\n".encode(), delimiter))


def test_a_gzip_file_of_several_members_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(b"a\tr\tb\n") + gzip.compress(b"c\tr\td\n"))
    assert fast(delimited.file(tmp_path / "t.tsv.gz")) == [("a", "r", "b"), ("c", "r", "d")]


@pytest.mark.parametrize("name", ["t.tsv.zst", "t.csv.zst"])
def test_files_may_be_compressed_with_zstandard(tmp_path: Path, name: str) -> None:
    content = b"a\tr\tb\n" if "tsv" in name else b"a,r,b\n"
    packed = pa.compress(content, "zstd", asbytes=True)
    (tmp_path / name).write_bytes(packed)
    assert fast(delimited.file(tmp_path / name)) == [("a", "r", "b")]
    (tmp_path / name).write_bytes(packed[:-3])
    with pytest.raises(InputError, match="cannot be read"):
        fast(delimited.file(tmp_path / name))


def test_text_that_looks_like_numbers_or_nothing_stays_text() -> None:
    rows = [("007", "1e5", "NA"), ("null", "NaN", "true"), ("7", "100000", "2020-01-01")]
    assert fast(in_memory("\n".join("\t".join(row) for row in rows).encode())) == rows


@pytest.mark.parametrize("content", ['a,r,"b\nc,r,d\n', 'a,r,b\nc,r,"d\n' + "e,r,f\n" * 50])
def test_a_quote_that_is_not_closed_swallows_nothing(tmp_path, content):
    path = tmp_path / "open.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=r"line [12]: not comma-separated values"):
        compgcn.read(path)


def test_an_id_over_several_lines_is_noted(tmp_path):
    path = tmp_path / "several.csv"
    path.write_text('a,r,"b\nc,r,d\ne,r,f"\ng,r,h\n')
    graph = compgcn.read(path, valid_fraction=0.0, test_fraction=0.0)
    assert len(graph.train) == 2
    assert any("1 id over several lines" in note for note in graph.notes)


def test_files_of_several_formats_make_one_graph(tmp_path):
    pytest.importorskip("pyoxigraph")
    (tmp_path / "train.tsv").write_text("http://a\thttp://r\thttp://b\n")
    (tmp_path / "valid.nt").write_text("<http://b> <http://r> <http://a> .\n")
    (tmp_path / "test.csv").write_text("http://a,http://r,http://c\n")
    graph = compgcn.read(train=tmp_path / "train.tsv", valid=tmp_path / "valid.nt", test=tmp_path / "test.csv")
    assert (graph.num_entities, graph.num_relations) == (3, 1)


def test_an_error_quotes_no_more_than_a_line_of_a_name(tmp_path):
    path = tmp_path / "long.tsv"
    path.write_text("x" * 100_000 + "\tr\tb\n")
    with pytest.raises(InputError) as raised:
        compgcn.read(path, columns=("a", "b", "c"))
    assert len(str(raised.value)) < 1000


def test_quotes_around_every_field_of_a_tsv_are_taken_off_and_noted(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text('"head"\t"relation"\t"tail"\n"a ""b"""\t"r"\t"c"\n"c"\t"r"\t"d"\n')
    facts = delimited.file(tmp_path / "g.tsv", header=True).facts()
    assert [column.to_pylist() for column in facts.columns] == [['a "b"', "c"], ["r", "r"], ["c", "d"]]
    assert any("stands in double quotes" in note for note in facts.notes)


def test_quotes_around_some_fields_of_a_tsv_are_kept(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text('"a"\t"r"\t"c"\n"c"\tr\t"d"\n')
    facts = delimited.file(tmp_path / "g.tsv", header=True).facts()
    assert facts.columns[0].to_pylist() == ['"a"', '"c"']
    assert facts.notes == ()
