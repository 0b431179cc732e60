"""Vectors read back from every format as they were, with their ids and names; a failed export changes nothing."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.answers import export
from compgcn.answers.export import FORMATS, PROJECTOR, write_vectors
from compgcn.errors import InputError
from compgcn.train.storage import Table
from toy import contents

# Names as data have them: a tab, a line end, blanks of other kinds, ids that differ in a blank only, quotes.
IDS = ["a", "New York", "New_York", "New\u00a0York", 'say "x"', "line\nend", "tab\there", "#2", "é\u2028ü"]
_RANDOM = np.random.default_rng(0)
ENTITIES = Table("entity", IDS, [f"name of {text}" for text in IDS], _RANDOM.normal(size=(9, 3)).astype(np.float32))
RELATIONS = Table("relation", ["a", "b c"], ["a", "b c"], np.array([[1e-30, -0.0, 3e38], [0.1, 1 / 3, -2]], np.float32))
TABLES = [ENTITIES, RELATIONS]
WHOLE = np.concatenate([ENTITIES.vectors, RELATIONS.vectors])
ALL_IDS, ALL_NAMES = ENTITIES.ids + RELATIONS.ids, ENTITIES.names + RELATIONS.names

Read = tuple[list[str], list[str], list[str], Any]  # kinds, ids, names, vectors


def flat(texts: list[str]) -> list[str]:
    return [re.sub(r"[\t\n\r]", " ", text) for text in texts]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="\n", encoding="utf-8") as file:
        return list(csv.DictReader(file.read().split("\n")[:-1], delimiter="\t", quoting=csv.QUOTE_NONE))


def read_parquet(path: Path) -> Read:
    table = pq.read_table(path).to_pydict()
    assert table["id"] == ALL_IDS  # tabs and all
    return table["kind"], flat(table["id"]), flat(table["name"]), np.array(table["vector"], np.float32)


def columns(found: list[dict[str, str]]) -> tuple[list[str], list[str], list[str]]:
    kinds, ids, names = (flat([row[key] for row in found]) for key in ("kind", "id", "name"))
    return kinds, ids, names


def numbers(found: list[dict[str, str]]) -> Any:
    return np.array([[row[str(k)] for k in range(3)] for row in found], np.float32)


def read_tsv(path: Path) -> Read:
    return *columns(rows(path)), numbers(rows(path))


def read_csv(path: Path) -> Read:
    with path.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert [row["id"] for row in found] == ALL_IDS  # tabs and all
    return *columns(found), numbers(found)


def read_npy(path: Path) -> Read:
    return *columns(rows(path.with_suffix(".names.tsv"))), np.load(path)


def read_projector(path: Path) -> Read:
    kinds, ids, names, found = [], [], [], []
    for block in (path / PROJECTOR).read_text().split("embeddings ")[1:]:
        values = dict(re.findall(r'(\w+): "([^"]*)"', block))
        table = np.loadtxt(path / values["tensor_path"], dtype=np.float32, delimiter="\t", ndmin=2)
        assert [int(size) for size in re.findall(r"tensor_shape: (\d+)", block)] == list(table.shape)
        texts = rows(path / values["metadata_path"])
        kinds += [values["tensor_name"]] * len(texts)
        ids += [row["id"] for row in texts]
        names += [row["name"] for row in texts]
        found.append(table)
    return kinds, ids, names, np.concatenate(found)


READERS = {"parquet": read_parquet, "csv": read_csv, "tsv": read_tsv, "npy": read_npy, "projector": read_projector}


@pytest.mark.parametrize("form", READERS)
@pytest.mark.parametrize("piece", [2, 2**14])
def test_an_export_reads_back_as_it_was(tmp_path: Path, form: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_ROWS", piece)
    path = tmp_path / "vectors.x"
    assert write_vectors(path, TABLES, form) == 11
    kinds, ids, names, values = READERS[form](path)
    assert kinds == ["entity"] * 9 + ["relation"] * 2
    assert (ids, names) == (flat(ALL_IDS), flat(ALL_NAMES))
    np.testing.assert_array_equal(values, WHOLE)


def test_gensim_reads_the_word2vec_format(tmp_path: Path) -> None:
    assert {*READERS, "word2vec"} == set(FORMATS)
    gensim = pytest.importorskip("gensim.models", reason="gensim is not installed")
    assert write_vectors(tmp_path / "vectors.w2v", TABLES) == 11
    read = gensim.KeyedVectors.load_word2vec_format(str(tmp_path / "vectors.w2v"))
    assert read.index_to_key == [
        *("a", "New_York", "New_York#2", "New_York#3", 'say_"x"', "line_end", "tab_here", "#2", "é_ü"),
        *("relation:a", "relation:b_c"),
    ]
    np.testing.assert_array_equal(read.vectors, WHOLE)


@given(st.lists(st.text(alphabet="a_ \u3000#2:", min_size=1, max_size=5), min_size=1, max_size=8, unique=True))
def test_tokens_are_unique_and_have_no_blanks(ids: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "v.vec"
        write_vectors(path, [Table("entity", ids, ids, np.ones((len(ids), 1), np.float32))])
        lines = path.read_text(encoding="utf-8").split("\n")
    assert lines[0] == f"{len(ids)} 1"
    tokens = [line.split()[0] for line in lines[1:-1]]
    assert [line.split()[1:] for line in lines[1:-1]] == [["1"]] * len(ids)
    assert len(set(tokens)) == len(ids)


@pytest.mark.parametrize(
    ("name", "form", "sentence"),
    [
        ("v.xls", None, r"must end in \.parquet, \.csv, \.tsv, \.npy, \.w2v or \.vec, or name a format: parquet, csv"),
        ("v.tsv", "parket", "unknown format 'parket'; did you mean 'parquet'"),
        ("no/v.npy", None, "there is no folder"),
        ("folder", "npy", "it is a folder"),
        ("file", "projector", "it is a file; name a folder"),
        ("folder", "projector", "the folder holds other files; name an empty or a new one"),
        ("ours", "projector", r"'.*ours/relation_metadata\.tsv' is a file of the run .*run, which needs it"),
    ],
)
def test_an_export_to_a_wrong_place_is_refused_and_changes_nothing(
    tmp_path: Path, name: str, form: str | None, sentence: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("kept")
    (tmp_path / "file").write_text("kept")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / PROJECTOR).write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("format = 1\n")
    (tmp_path / "ours" / "relation_metadata.tsv").symlink_to(tmp_path / "run" / "config.toml")
    before = contents(tmp_path)
    with pytest.raises(InputError, match=sentence):
        write_vectors(tmp_path / name, TABLES, form)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_vectors_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    vectors = ENTITIES.vectors.copy()
    vectors[4, 1] = value
    with pytest.raises(InputError, match="vectors are not finite; train again"):
        write_vectors(tmp_path / "x.csv", [RELATIONS, ENTITIES._replace(vectors=vectors)])
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_that_fails_halfway_leaves_the_one_before(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_vectors(tmp_path / "v", TABLES, form)
    before = contents(tmp_path)
    monkeypatch.setattr(export, "_ROWS", 1)
    pieces = export._pieces

    def full(tables: list[Table]) -> Any:
        for number, piece in enumerate(pieces(tables)):
            if number == 2:
                raise OSError(28, "No space left on device")
            yield piece

    with monkeypatch.context() as patched:
        patched.setattr(export, "_pieces", full)
        with pytest.raises(OSError, match=r"could not write .*No space left.*untouched"):
            write_vectors(tmp_path / "v", [ENTITIES], form)
    assert contents(tmp_path) == before
    write_vectors(tmp_path / "v", [ENTITIES], form)  # and over it goes the next
    assert contents(tmp_path) != before
    assert not [path for path in tmp_path.iterdir() if path.name[0] == "."]
