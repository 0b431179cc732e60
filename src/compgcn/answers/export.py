"""Export the vectors of a model to files for other programs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from compgcn.answers.rows import write_tabs
from compgcn.errors import InputError, must_be_known
from compgcn.train.folder import spared
from compgcn.train.storage import Table, replace, replace_here

PROJECTOR = "projector_config.pbtxt"  # TensorBoard looks for this file
_ROWS = 2**14  # written at a time, so that no second copy of a large table is made


def write_vectors(path: Path, tables: Sequence[Table], form: str | None = None) -> int:
    """Write vectors of one width in the format named, or in that of the file's ending; return how many they are."""
    form = form or ENDINGS.get(path.suffix)
    if form is None:
        *endings, last = ENDINGS
        raise InputError(
            f"cannot export to '{path}': the name must end in {', '.join(endings)} or {last}, "
            f"or name a format: {', '.join(FORMATS)}"
        )
    must_be_known("format", form, FORMATS)
    if not path.parent.is_dir():
        raise InputError(f"cannot export to '{path}': there is no folder {path.parent}; make it first")
    if path.exists() and path.is_dir() != (form == "projector"):
        is_a, wanted = ("folder", "file") if path.is_dir() else ("file", "folder")
        raise InputError(f"could not write {path}: it is a {is_a}; name a {wanted}")
    if form == "projector" and path.exists() and any(path.iterdir()) and not (path / PROJECTOR).exists():
        raise InputError(f"could not write {path}: the folder holds other files; name an empty or a new one")
    if not all(np.isfinite(edge(table.vectors, initial=0.0)) for table in tables for edge in (np.min, np.max)):
        raise InputError("the model's vectors are not finite; train again with a lower training.lr")

    def write(part: Path) -> None:
        FORMATS[form](part, tables)
        if form == "npy":  # last, so that a failure leaves both files as they were
            replace_here(path.with_suffix(".names.tsv"), lambda names: _names(names, tables))

    if form == "projector":
        _projector(spared(path), tables)
    else:
        replace(spared(path), write)
    return sum(len(table.ids) for table in tables)


def _pieces(tables: Sequence[Table]) -> Iterator[Table]:
    """Yield the tables in their order, some rows at a time."""
    for kind, ids, names, vectors in tables:
        for first in range(0, len(ids), _ROWS):
            part = slice(first, first + _ROWS)
            yield Table(kind, ids[part], names[part], vectors[part])


def _rows(tables: Sequence[Table]) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield kind, id, name and vector; nine digits keep single precision."""
    for kind, ids, names, vectors in _pieces(tables):
        for text, name, vector in zip(ids, names, vectors.tolist(), strict=True):
            yield kind, text, name, [f"{value:.9g}" for value in vector]


def _table(tables: Sequence[Table]) -> Iterator[list[str]]:
    """Yield a header and a row for each vector: kind, id, name, and a column for each number."""
    yield ["kind", "id", "name", *map(str, range(tables[0].vectors.shape[1]))]
    yield from ([kind, text, name, *vector] for kind, text, name, vector in _rows(tables))


def _write_tabs(path: Path, rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        write_tabs(file, rows)


def _parquet(path: Path, tables: Sequence[Table]) -> None:
    """Write columns kind, id, name and vector, a list."""
    width = tables[0].vectors.shape[1]
    fields = {"kind": pa.string(), "id": pa.string(), "name": pa.string(), "vector": pa.list_(pa.float32(), width)}
    schema = pa.schema(fields)
    with pq.ParquetWriter(path, schema) as file:
        for kind, ids, names, vectors in _pieces(tables):
            lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), width)
            file.write_batch(pa.record_batch([[kind] * len(ids), ids, names, lists], schema=schema))


def _csv(path: Path, tables: Sequence[Table]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(_table(tables))


def _npy(path: Path, tables: Sequence[Table]) -> None:
    """Write an array [n, d]; `_names` says what its rows stand for."""
    shape = sum(len(table.ids) for table in tables), tables[0].vectors.shape[1]
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for piece in _pieces(tables):
            file.write(piece.vectors.astype("<f4", copy=False).tobytes())


def _names(path: Path, tables: Sequence[Table]) -> None:
    rows = ((kind, *pair) for kind, ids, names, _ in tables for pair in zip(ids, names, strict=True))
    _write_tabs(path, [("kind", "id", "name"), *rows])


def _word2vec(path: Path, tables: Sequence[Table]) -> None:
    """Write a line with both sizes, then a token and its numbers on each line.

    A token is an id with _ for every blank. Its kind stands before it, unless that is the first kind. A token that is
    taken ends with #2, or with the next number that is free.
    """
    taken: set[str] = set()
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{sum(len(table.ids) for table in tables)} {tables[0].vectors.shape[1]}\n")
        for kind, text, _, vector in _rows(tables):
            own = "".join("_" if c.isspace() else c for c in text)
            own = own if kind == tables[0].kind else f"{kind}:{own}"
            token, turn = own, 1
            while token in taken:
                turn += 1
                token = f"{own}#{turn}"
            taken.add(token)
            file.write(f"{token} {' '.join(vector)}\n")


def _projector(folder: Path, tables: Sequence[Table]) -> None:
    """Write the vectors and the names of each kind, and last the file that tells TensorBoard about them."""
    files = [[spared(folder / f"{table.kind}_{what}.tsv") for what in ("tensors", "metadata")] for table in tables]
    config, last = "", spared(folder / PROJECTOR)
    folder.mkdir(exist_ok=True)
    for table, (vectors, metadata) in zip(tables, files, strict=True):
        numbers = (vector for *_, vector in _rows([table]))
        names = [("name", "id"), *zip(table.names, table.ids, strict=True)]
        replace(vectors, partial(_write_tabs, rows=numbers))
        replace(metadata, partial(_write_tabs, rows=names))
        shape = "".join(f"  tensor_shape: {size}\n" for size in table.vectors.shape)
        paths = f'  tensor_path: "{vectors.name}"\n  metadata_path: "{metadata.name}"\n'
        config += f'embeddings {{\n  tensor_name: "{table.kind}"\n{shape}{paths}}}\n'
    replace(last, lambda path: path.write_text(config, encoding="utf-8"))


FORMATS: dict[str, Callable[[Path, Sequence[Table]], None]] = {
    "parquet": _parquet,
    "csv": _csv,
    "tsv": lambda path, tables: _write_tabs(path, _table(tables)),
    "npy": _npy,
    "word2vec": _word2vec,
    "projector": _projector,
}
ENDINGS = {f".{form}": form for form in ("parquet", "csv", "tsv", "npy")} | {".w2v": "word2vec", ".vec": "word2vec"}
