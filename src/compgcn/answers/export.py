"""The vectors of a model as files for other programs: tables, arrays, word2vec's text, TensorBoard's projector."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from compgcn.answers.rows import cells
from compgcn.errors import InputError, unknown
from compgcn.train.folder import spared
from compgcn.train.storage import Array, Table, replace, replace_folder

_ROWS = 2**14  # written at a time, so that no second copy of a large table is made
_TAB = "\t"

Row = tuple[str, str, str, list[float]]  # kind, id, name, vector


class Format(NamedTuple):
    """A way to write vectors: the endings of names that choose it, and what writes them."""

    endings: tuple[str, ...]
    write: Callable[[Path, Sequence[Table]], None]


def write_vectors(path: Path, tables: Sequence[Table], form: str | None = None) -> int:
    """Write vectors of one width in the format that is named, or that the file's name ends in; how many they are."""
    if form is None:
        found = [row for row in FORMATS.values() if path.suffix in row.endings]
        if not found:
            endings = [ending for row in FORMATS.values() for ending in row.endings]
            known = f"{', '.join(endings[:-1])} or {endings[-1]}"
            raise InputError(
                f"cannot export to '{path}': the name must end in {known}, or name a format: {', '.join(FORMATS)}"
            )
        chosen = found[0]
    elif form in FORMATS:
        chosen = FORMATS[form]
    else:
        raise unknown("format", form, FORMATS)
    if not path.name:
        raise InputError(f"cannot export to '{path}': name a file, or a folder of its own")
    if not path.parent.is_dir():
        raise InputError(f"cannot export to '{path}': there is no folder {path.parent}")
    if path.is_dir() and chosen.endings:
        raise InputError(f"could not write {path}: it is a folder; name a file")
    chosen.write(spared(path), tables)
    return sum(len(table.ids) for table in tables)


def _pieces(tables: Sequence[Table]) -> Iterator[Table]:
    """The tables in their order, some rows at a time."""
    for kind, ids, names, vectors in tables:
        for first in range(0, len(ids), _ROWS):
            part = slice(first, first + _ROWS)
            yield Table(kind, ids[part], names[part], vectors[part])


def _lines(tables: Sequence[Table]) -> Iterator[Row]:
    for kind, ids, names, vectors in _pieces(tables):
        yield from zip([kind] * len(ids), ids, names, vectors.tolist(), strict=True)


def _size(tables: Sequence[Table]) -> tuple[int, int]:
    """How many vectors there are, and how wide they are."""
    return sum(len(table.ids) for table in tables), tables[0].vectors.shape[1]


def _numbers(vector: Sequence[float], between: str) -> str:
    """Single precision survives nine digits."""
    return between.join([f"{value:.9g}" for value in vector])


def _written(path: Path, lines: Iterator[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


# The formats


def _parquet(path: Path, tables: Sequence[Table]) -> None:
    """Columns kind, id, name and vector, a list."""
    width = _size(tables)[1]
    fields = {"kind": pa.string(), "id": pa.string(), "name": pa.string(), "vector": pa.list_(pa.float32(), width)}
    schema = pa.schema(fields)

    def write(part: Path) -> None:
        with pq.ParquetWriter(part, schema) as file:
            for kind, ids, names, vectors in _pieces(tables):
                lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), width)
                file.write_batch(pa.record_batch([[kind] * len(ids), ids, names, lists], schema=schema))

    replace(path, write)


def _tsv(path: Path, tables: Sequence[Table]) -> None:
    """Columns kind, id, name, and one for each number."""

    def lines() -> Iterator[str]:
        yield cells("kind", "id", "name", *map(str, range(_size(tables)[1]))) + "\n"
        for *texts, vector in _lines(tables):
            yield f"{cells(*texts)}{_TAB}{_numbers(vector, _TAB)}\n"

    replace(path, lambda part: _written(part, lines()))


def _csv(path: Path, tables: Sequence[Table]) -> None:
    """As `_tsv`, with commas, and quotes where a name needs them."""

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["kind", "id", "name", *range(_size(tables)[1])])
            rows.writerows([*texts, *(f"{value:.9g}" for value in vector)] for *texts, vector in _lines(tables))

    replace(path, write)


def _npy(path: Path, tables: Sequence[Table]) -> None:
    """An array [n, d], and beside it what its rows stand for, `.names.tsv` in the place of the ending."""

    def lines() -> Iterator[str]:
        yield cells("kind", "id", "name") + "\n"
        yield from (cells(kind, *pair) + "\n" for kind, *texts, _ in tables for pair in zip(*texts, strict=True))

    def write(part: Path) -> None:
        with part.open("wb") as file:
            shape = {"descr": "<f4", "fortran_order": False, "shape": _size(tables)}
            np.lib.format.write_array_header_1_0(file, shape)
            for piece in _pieces(tables):
                _append(file, piece.vectors)
        # The names go before the vectors do, at the last moment: what fails until here leaves both as they were.
        replace(path.with_suffix(".names.tsv"), lambda part: _written(part, lines()))

    replace(path, write)


def _append(file: IO[bytes], vectors: Array) -> None:
    file.write(vectors.astype("<f4", copy=False).tobytes())


def _word2vec(path: Path, tables: Sequence[Table]) -> None:
    """A line with both sizes, then a token and its numbers on each; what follows the entities has its kind before it.

    A token is an id with _ for every blank in it; one that is taken already has #2 after it, or the next that is free.
    """

    def lines() -> Iterator[str]:
        yield "{} {}\n".format(*_size(tables))
        taken: set[str] = set()
        for kind, text, _, vector in _lines(tables):
            own = "".join("_" if c.isspace() else c for c in text)
            own = own if kind == tables[0].kind else f"{kind}:{own}"
            token, turn = own, 1
            while token in taken:
                turn += 1
                token = f"{own}#{turn}"
            taken.add(token)
            yield f"{token} {_numbers(vector, ' ')}\n"

    replace(path, lambda part: _written(part, lines()))


def _projector(path: Path, tables: Sequence[Table]) -> None:
    """A folder with the vectors and the names of each kind, and the file that tells TensorBoard of them."""

    def write(folder: Path) -> None:
        config = []
        for table in tables:
            vectors, metadata = (f"{table.kind}_{what}.tsv" for what in ("tensors", "metadata"))
            _written(folder / vectors, (f"{_numbers(vector, _TAB)}\n" for *_, vector in _lines([table])))
            texts = (cells(*pair) + "\n" for pair in zip(table.names, table.ids, strict=True))
            _written(folder / metadata, (line for part in (["name\tid\n"], texts) for line in part))
            shape = "".join(f"  tensor_shape: {size}\n" for size in table.vectors.shape)
            paths = f'  tensor_path: "{vectors}"\n  metadata_path: "{metadata}"\n'
            config.append(f'embeddings {{\n  tensor_name: "{table.kind}"\n{shape}{paths}}}\n')
        _written(folder / PROJECTOR, iter(config))

    replace_folder(path, write, (PROJECTOR, "*_tensors.tsv", "*_metadata.tsv"))


PROJECTOR = "projector_config.pbtxt"  # where TensorBoard looks

FORMATS: dict[str, Format] = {
    "parquet": Format((".parquet",), _parquet),
    "csv": Format((".csv",), _csv),
    "tsv": Format((".tsv",), _tsv),
    "npy": Format((".npy",), _npy),
    "word2vec": Format((".w2v", ".vec"), _word2vec),
    "projector": Format((), _projector),
}
