"""Tables of answers on disk, written a batch at a time and all or nothing: Parquet or CSV."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from compgcn.errors import InputError
from compgcn.folder import spared
from compgcn.storage import replace

_ENDINGS = (".parquet", ".csv")


def check_table(path: str | Path) -> Path:
    """The path of a table to be, refused before any work is done for it."""
    path = Path(path)
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(f"answers are written to a .parquet or .csv file, not '{path.name}'")
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
        open_writer = pq.ParquetWriter if path.suffix.lower() == ".parquet" else csv.CSVWriter
        try:
            with open_writer(str(part), schema) as writer:
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
