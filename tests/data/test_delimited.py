"""The fast reader and the line by line one read the same table, and name the same bad line."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_text_that_looks_like_numbers_or_nothing_stays_text() -> None:
    rows = [("007", "1e5", "NA"), ("null", "NaN", "true"), ("7", "100000", "2020-01-01")]
    assert fast(in_memory("\n".join("\t".join(row) for row in rows).encode())) == rows


def test_a_member_of_an_archive_is_read_in_place(tmp_path: Path) -> None:
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("x/train.txt", "a\tr\tb\r\n")
    assert fast(delimited.member(archive, "x/train.txt")) == [("a", "r", "b")]
    with pytest.raises(InputError, match=r"has no member 'x/test\.txt'"):
        fast(delimited.member(archive, "x/test.txt"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]


def test_a_file_that_is_not_an_archive_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"no archive")
    with pytest.raises(InputError, match="cannot be read"):
        fast(delimited.member(tmp_path / "x.zip", "x/train.txt"))
