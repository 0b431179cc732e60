"""Triples and other tables in Parquet files, as columns of strings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compgcn.data.columns import Columns, Facts, existing, places_of
from compgcn.errors import InputError


@dataclass(frozen=True)
class Parquet:
    """A Parquet file of triples; `columns` are names or positions of subject, relation and object."""

    label: str
    columns: Columns | None = None

    def facts(self) -> Facts:
        """The triples; numbers that stand for ids become text."""
        names = column_names(self.label)
        return Facts(strings(self.label, self.places(names)))

    def places(self, names: list[str]) -> list[int]:
        """Where the three stand among the columns of these names."""
        return places_of(self.label, self.columns, names)


def file(path: str | Path, *, columns: Columns | None = None) -> Parquet:
    """A Parquet file on disk."""
    return Parquet(str(existing(path)), columns)


def column_names(label: str) -> list[str]:
    """What the columns of the file are called."""
    return list(_opened(label).schema_arrow.names)


def table(label: str, names: Sequence[str] | None = None) -> Any:
    """Some columns of the file, or all, as a pyarrow table."""
    import pyarrow as pa

    opened = _opened(label)
    known = opened.schema_arrow.names
    twice = next((name for name in known if known.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"'{label}' has several columns called '{twice}'; give each its own name")
    try:
        return opened.read(None if names is None else list(names))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(label, error) from None


def strings(label: str, places: Sequence[int]) -> list[Any]:
    """Columns of ids as strings; an InputError at the first that is missing or is no id."""
    names = column_names(label)
    found = table(label, [names[place] for place in places])
    if not len(found):
        raise InputError(f"'{label}' is empty: it holds no row")
    return [_ids(label, names[place], found[names[place]]) for place in places]


def rows(source: Parquet) -> Iterator[list[str | None]]:
    """Subject, relation and object of each row, read a piece at a time; None where there is nothing."""
    import pyarrow as pa

    opened = _opened(source.label)
    names = list(opened.schema_arrow.names)
    wanted = [names[place] for place in source.places(names)]
    batches = opened.iter_batches(columns=wanted)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(source.label, error) from None
        if batch is None:
            return
        columns = [_texts(source.label, name, batch.column(name), gaps=True).to_pylist() for name in wanted]
        yield from map(list, zip(*columns, strict=True))


def _ids(label: str, name: str, column: Any) -> Any:
    import pyarrow.compute as pc

    texts = _texts(label, name, column)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py() + 1
        raise InputError(f"'{label}', row {row}: the column '{name}' is empty")
    blank = pc.equal(pc.ascii_trim(texts, " "), "")
    if pc.any(blank).as_py():
        raise InputError(f"'{label}', row {pc.index(blank, True).as_py() + 1}: the column '{name}' is empty")
    return texts


def _texts(label: str, name: str, column: Any, *, gaps: bool = False) -> Any:
    """A column of ids as strings; with `gaps`, one that holds nothing at all will do."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (text or pa.types.is_integer(kind) or (gaps and pa.types.is_null(kind))):
        raise InputError(f"'{label}': the column '{name}' holds {kind}; ids must be strings or whole numbers")
    try:
        if pa.types.is_dictionary(column.type):
            column = column.cast(kind)
        column = column.cast(pa.string())
        column.validate(full=True)  # text is taken on trust by the reader
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _damaged(label, error) from None
    return column


def _opened(label: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(label)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(label, error) from None


def _damaged(label: str, error: Exception) -> InputError:
    lines = str(error).strip().splitlines()
    return InputError(f"'{label}' cannot be read: {lines[0].rstrip('.') if lines else type(error).__name__}")
