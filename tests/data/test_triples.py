"""Reading a graph: what comes out is what the files say, and a bad file is answered with its line."""

from __future__ import annotations

import gzip
import logging
import shlex
import tempfile
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compgcn.config import as_list, parse_setting
from compgcn.data import KnowledgeGraph, read
from compgcn.data.files import lines as read_lines
from compgcn.errors import InputError
from toy import Write, facts, numbered

ids = st.sampled_from(["a", "b", "c", "007", "7", "1e5", "é", "NA"])
triples_text = st.lists(st.tuples(ids, ids, ids), min_size=1, max_size=30)


def read_three(train: str, valid: str, test: str) -> KnowledgeGraph:
    with tempfile.TemporaryDirectory() as folder:
        files = {part: Path(folder) / f"{part}.tsv" for part in ("train", "valid", "test")}
        for part, content in zip(files, (train, valid, test), strict=True):
            files[part].write_text(content, encoding="utf-8")
        return read(**files)


def lines(rows: list[tuple[str, str, str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


@given(triples_text, triples_text, triples_text)
def test_three_files_are_kept_as_they_are_but_for_repetitions(
    train: list[tuple[str, str, str]], valid: list[tuple[str, str, str]], test: list[tuple[str, str, str]]
) -> None:
    graph = read_three(lines(train), lines(valid), lines(test))
    for part, rows in zip(graph.splits, (train, valid, test), strict=True):
        assert facts(graph, part) == list(dict.fromkeys(rows))
    rows = train + valid + test
    assert list(graph.entities.ids) == list(dict.fromkeys(end for s, _, o in rows for end in (s, o)))
    assert list(graph.relations.ids) == list(dict.fromkeys(r for _, r, _ in rows))


@given(triples_text)
def test_one_file_is_split_without_losing_a_fact(rows: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.tsv"
        path.write_text(lines(rows), encoding="utf-8")
        graph, again = read(path), read(path)
    assert sorted(facts(graph)) == sorted(set(rows))
    assert graph.fingerprint() == again.fingerprint()
    assert graph.name == "mine"
    assert any("split into" in note for note in graph.notes)


@settings(max_examples=200)
@given(
    st.sampled_from(["x.tsv", "x.csv", "x.tsv.gz", "x.csv.gz", "x.tsv.zst", "x.parquet"]),
    st.booleans(),
    st.one_of(st.binary(max_size=80), st.text('ab\t,"\r\n 0é').map(str.encode)),
)
def test_any_bytes_give_a_graph_or_one_input_error(name: str, pack: bool, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(gzip.compress(content) if pack and name.endswith(".gz") else content)
        try:
            graph = read(path)
        except InputError:
            return
    assert graph.statistics()["triples"] > 0


BAD_LINES = {
    "too few columns": ("x.tsv", b"a\tr\tb\na\tr\n", "line 2: expected 3 columns, found 2"),
    "an empty field": ("x.tsv", b"a\tr\tb\nc\t\td\n", "line 2: column 2 is empty"),
    "too many columns": ("x.tsv", b"a\tr\tb\n\nc\tr\td\te\n", "line 3: expected 3 columns, found 4"),
    "a field of spaces": ("x.tsv", b"a\tr\tb\nc\tr\t  \n", "line 2: column 3 is empty"),
    "bad UTF-8": ("x.tsv", b"a\tr\tb\na\tr\tc\r\nd\tr\t\xff\n", "line 3: byte 5 is not UTF-8"),
    "a bad line after a byte order mark": ("x.tsv", b"\xef\xbb\xbfa\tr\tb\nq\n", "line 2: expected 3 columns, found 1"),
    "UTF-16": ("x.tsv", "a\tr\tb\n".encode("utf-16"), "line 1: the text is UTF-16; save the file as UTF-8"),
    "a record after a quoted line end": ("x.csv", b'"a\nb",r,c\nd,r\n', "line 3: expected 3 columns, found 2"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_the_first_bad_line_is_named(write: Write, case: str) -> None:
    name, content, expected = BAD_LINES[case]
    with pytest.raises(InputError, match=expected) as caught:
        read(write(name, content))
    assert name in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", b"  \n", b"head\trelation\ttail\n"])
def test_a_file_without_triples_is_said_to_be_empty(write: Write, content: bytes) -> None:
    with pytest.raises(InputError, match=r"x\.tsv' is empty"):
        read(write("x.tsv", content))


def test_a_missing_file_a_folder_and_a_strange_ending_each_get_a_sentence(tmp_path: Path, write: Write) -> None:
    write("films.tsv", "a\tb\tc\n")
    with pytest.raises(InputError, match=r"no file '.*film\.tsv'; did you mean '.*films\.tsv'\?"):
        read(tmp_path / "film.tsv")
    with pytest.raises(InputError, match="cannot tell what the folder"):
        read(tmp_path)
    with pytest.raises(InputError, match="is a folder"):
        read(train=tmp_path, valid=tmp_path, test=tmp_path)
    with pytest.raises(InputError, match="cannot tell the format"):
        read(write("x.docx", b"a\tr\tb\n"))
    with pytest.raises(InputError, match=r"format of '.*x\.XLSX'; save the sheet as CSV \(UTF-8\)"):
        read(write("x.XLSX", b"PK"))


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("ending", ["tsv", "csv", "parquet"])
def test_named_columns_are_read_in_whatever_order_they_stand(tmp_path: Path, ending: str, order: list[int]) -> None:
    path, expected = tmp_path / f"x.{ending}", [("a", "likes", "b"), ("b", "sees", "c")]
    rows = [[fact[k] for k in order] for fact in (("Subject", "predicate", "OBJECT"), *expected)]
    if ending == "parquet":
        pq.write_table(pa.table(list(map(list, zip(*rows[1:], strict=True))), names=rows[0]), path)
    else:
        path.write_text("".join(("\t" if ending == "tsv" else ",").join(row) + "\n" for row in rows))
    assert facts(read(train=path, valid=path, test=path), "train") == expected
    assert [fields for _, fields in read_lines(path)] == [list(fact) for fact in expected]


TABLE = "year,who,how,whom\n2020,007,knows,b\n2021,b,knows,c\n2021,c,sees,007\n"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (("wo", "how", "whom"), "unknown column 'wo'; did you mean 'who'"),
        ((1, 2, 4), "has no column 4: it has 4 columns, counted from 0"),
        ((1, 2), "columns must be 3 names or 3 positions"),
        ((1, "how", 2), "columns must be 3 names or 3 positions"),
        ((-1, 0, 1), "columns must be 3 names or 3 positions"),
        ((1, 1, 2), "columns must be 3 names or 3 positions"),
        ("abc", "columns must be 3 names or 3 positions"),
        (1, "columns must be 3 names or 3 positions from 0 on, of subject, relation and object, not 1"),
    ],
)
def test_columns_that_cannot_be_are_refused(write: Write, columns: tuple[str | int, ...], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read(write("x.csv", TABLE), columns=columns)


@pytest.mark.parametrize("header", [("film", "link", "value"), ("the film", "li'nk", "[x]"), ("a,b", "2", ' c"')])
def test_an_unknown_header_is_read_and_a_note_says_the_words_that_skip_it(
    write: Write, header: tuple[str, str, str]
) -> None:
    quoted = ",".join(f'"{name.replace(chr(34), 2 * chr(34))}"' for name in header)
    path = write("x.csv", f"{quoted}\na,r,b\nb,r,c\nc,q,a\na,q,c\n")
    graph = read(path)
    assert graph.entities.ids[:2] == header[::2]
    (note,) = (note for note in graph.notes if "looks like a header" in note)
    option, words = shlex.split(note.rpartition("skipped: ")[2])
    columns = as_list("data.columns", words) if option == "--columns" else parse_setting(words)[1]
    assert columns == list(header)
    assert read(path, columns=columns).num_entities == 3
    for content in ("a,r,b\nc,r,d\n", "a,r,b\nc,q,d\ne,s,f\n", "who,how,a\na,r,b\nb,r,c\n"):
        assert not any("looks like a header" in note for note in read(write("y.csv", content)).notes)


def test_excluded_relations_are_left_out_of_any_format(write: Write) -> None:
    graph = read(write("x.tsv", "a\tr\tb\na\tlabel\tx\nb\tr\tc\n"), exclude=["label"])
    assert (graph.entities.ids, graph.relations.ids) == (("a", "b", "c"), ("r",))
    assert "1 triple of 1 excluded relation left out" in graph.notes
    with pytest.raises(InputError, match="without r no triple is left"):
        read(write("x.tsv", "a\tr\tb\n"), exclude=["r"])


def test_what_is_noticed_is_noted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="compgcn"):
        graph = read_three("a\tr\tb\na\tr\tb\na\tr\ta\n", "a\tr\tb\n", "c\tq\t x\n")
    assert graph.notes == (
        "1 repeated triple dropped from train",
        "leakage: 1 triple of valid also in train",
        "1 self-loop (subject and object are the same entity) kept",
        "2 entities only in valid or test, never in train; kept",
        "1 relation only in valid or test, never in train; kept",
        "1 id with a space at the start or the end, kept as written",
    )
    assert all(note in caplog.text for note in graph.notes)


def test_names_come_from_a_file_that_may_lack_ids_and_name_others_but_none_twice(write: Write) -> None:
    path = write("x.tsv", "Q1\tP1\tQ2\n")
    graph = read(path, names=write("names.tsv", "Q1\tParis\nQ1\tParis\nP1\tcapital of\nQ9\tMars\n"))
    assert (graph.entities.names, graph.relations.names) == (("Paris", "Q2"), ("capital of",))
    taken = f"names of 1 entity and 1 relation taken from '{path.with_name('names.tsv')}'"
    assert graph.notes[-1] == f"{taken}; 1 id of it not in the graph"
    with pytest.raises(InputError, match="no id in the first column"):
        read(path, names=write("names.tsv", "Paris\tQ1\n"))
    with pytest.raises(InputError, match=r"names.tsv' calls 'Q1' both 'Paris' and 'Lutetia'"):
        read(path, names=write("names.tsv", "Q1\tParis\n\nQ1\tLutetia\n"))


def test_the_fingerprint_changes_with_the_data_and_not_with_the_names(write: Write) -> None:
    path = write("x.tsv", "a\tr\tb\nb\tr\tc\n")
    graph = read(path)
    assert read(path, name="other", names=write("n.tsv", "a\tAnna\n")).fingerprint() == graph.fingerprint()
    others = [
        read(write("y.tsv", "a\tr\tb\nb\tr\td\n")),
        graph.with_features(nodes=np.zeros((3, 1))),
        graph.with_features(relations=np.ones((2, 1))),
    ]
    assert len({graph.fingerprint(), *(other.fingerprint() for other in others)}) == 4


@pytest.mark.parametrize(
    ("nodes", "relations", "expected"),
    [
        (np.zeros((2, 4)), None, r"shape \[2, 4\]; expected \[3, f\]"),
        (np.zeros(3), None, r"shape \[3\]"),
        (np.zeros((3, 0)), None, r"shape \[3, 0\]"),
        (None, np.full((1, 4), np.inf), "row 0 holds a NaN or an infinity"),
        (np.array([[0.0], [np.nan], [1.0]]), None, "row 1 holds a NaN"),
        ([["x"]] * 3, None, "not an array of numbers"),
        (None, np.zeros((3, 4)), r"expected \[1, f\] or \[2, f\]"),
    ],
)
def test_features_that_do_not_fit_are_refused(nodes: object, relations: object, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        numbered([(0, 0, 1)], 3).with_features(nodes=nodes, relations=relations)


@pytest.mark.parametrize("train", [np.zeros((2, 2), int), np.zeros((1, 3)), [[0, 1, 0]], [[-1, 0, 0]]])
def test_triples_that_do_not_fit_the_vocabulary_are_refused(train: object) -> None:
    with pytest.raises(InputError, match="the train triples"):
        replace(numbered([(0, 0, 1)], 3), train=train)
