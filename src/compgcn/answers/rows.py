"""Write tables of answers to Parquet, CSV or TSV files, a batch at a time and all or nothing."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, get_type_hints

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from compgcn import processes
from compgcn.data.columns import check_place
from compgcn.train.folder import spared
from compgcn.train.storage import replace

Batch = Sequence[tuple[Any, ...]]

_BLANKS = str.maketrans("\t\n\r", "   ")


def write_tabs(file: TextIO, rows: Iterable[Sequence[Any]]) -> None:
    """Write lines of fields between tabs, without quotes: a tab or a line end inside a text becomes a space."""
    lines = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, quotechar=None)
    lines.writerows([one.translate(_BLANKS) if isinstance(one, str) else one for one in row] for row in rows)


def check_table(path: str | Path) -> Path:
    """Return the path of a table to be written, or refuse it before any work is done."""
    what = "answers are written to a .parquet, .csv or .tsv file"
    return spared(check_place(path, what, ".parquet", ".csv", ".tsv"))


def schema_of(row: type, *, ranked: bool = False) -> pa.Schema:
    """Return the columns of a table of such NamedTuples: numbers and texts, after the rank if they are `ranked`."""
    columns = [(name, pa.float64() if kind is float else pa.string()) for name, kind in get_type_hints(row).items()]
    return pa.schema([("rank", pa.int32())] * ranked + columns)


def write_rows(path: Path, schema: pa.Schema, batches: Iterable[Batch]) -> int:
    """Write batches of rows in the format of the file's ending; return how many rows there were."""
    rows = 0

    def write(part: Path) -> None:
        nonlocal rows
        with _opened(part, path.suffix.lower(), schema) as put:
            for batch in batches:
                put(batch)
                rows += len(batch)

    if processes.rank():  # all processes answer, and the first writes
        rows = sum(map(len, batches))
    replace(path, write)
    return rows


@contextmanager
def _opened(path: Path, ending: str, schema: pa.Schema) -> Iterator[Callable[[Batch], None]]:
    if ending == ".tsv":
        with path.open("w", encoding="utf-8", newline="\n") as file:
            write_tabs(file, [schema.names])
            yield lambda batch: write_tabs(file, batch)
        return
    with (pq.ParquetWriter if ending == ".parquet" else pyarrow.csv.CSVWriter)(str(path), schema) as writer:
        yield lambda batch: writer.write_table(
            pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in batch], schema)
        )
