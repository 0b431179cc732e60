"""Tables of answers on disk, written a batch at a time and all or nothing: Parquet, CSV or TSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from compgcn.errors import InputError
from compgcn.train.folder import spared
from compgcn.train.storage import replace


class Writer(Protocol):
    """What tables are handed to, one after the other."""

    def write_table(self, table: pa.Table) -> None: ...


def cells(*texts: str) -> str:
    """Text of a table without quotes, so a tab or a line end inside a name becomes a space."""
    return "\t".join(text.replace("\t", " ").replace("\n", " ").replace("\r", " ") for text in texts)


class _Tabs:
    """Writes tables as lines with tabs between the fields; what is missing is empty."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write_table(self, table: pa.Table) -> None:
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        self._file.writelines(cells(*("" if v is None else str(v) for v in row)) + "\n" for row in rows)


@contextmanager
def _tabs(path: str, schema: pa.Schema) -> Iterator[_Tabs]:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(cells(*schema.names) + "\n")
        yield _Tabs(file)


# The ending of a name -> what opens such a file for tables of a schema.
WRITERS: dict[str, Callable[[str, pa.Schema], AbstractContextManager[Writer]]] = {
    ".parquet": pq.ParquetWriter,
    ".csv": csv.CSVWriter,
    ".tsv": _tabs,
}


def check_table(path: str | Path) -> Path:
    """The path of a table to be, refused before any work is done for it."""
    path = Path(path)
    if path.suffix.lower() not in WRITERS:
        raise InputError(f"answers are written to a .parquet, .csv or .tsv file, not '{path.name}'")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder '{path.parent}' to put '{path.name}' in; make it first")
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; give the name of a file")
    return spared(path)


def write_rows(path: Path, schema: pa.Schema, batches: Iterable[list[tuple[Any, ...]]]) -> int:
    """Write rows, batch after batch, under another name first; how many they were."""
    rows = 0

    def write(part: Path) -> None:
        nonlocal rows
        try:
            with WRITERS[path.suffix.lower()](str(part), schema) as writer:
                for batch in batches:
                    columns = zip(*batch, strict=True) if batch else [()] * len(schema)
                    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                    writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
                    rows += len(batch)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    replace(path, write)
    return rows
