"""Feature vectors of entities or relations, from .npy and Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compgcn.data import parquet
from compgcn.data.columns import existing
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError

_NAMED = 3  # ids quoted in an error


def read_features(path: str | Path, vocabulary: Vocabulary) -> tuple[Any, tuple[str, ...]]:
    """An array of numbers, a row for each id of the vocabulary, and notes on what was left out.

    A .npy file has the rows in the order of the vocabulary. A Parquet file has the ids in a column called `id`, or
    else in its first, and the numbers in the others, or in one column of lists; rows of other ids, and columns of text,
    are left out.
    """
    path = existing(path)
    if path.suffix.lower() == ".npy":
        try:
            return np.lib.format.open_memmap(path, mode="r"), ()  # never a pickle
        except Exception as error:  # its header is parsed as Python is, and fails in as many ways
            raise InputError(f"'{path}' is not an array of numbers in .npy format: {error}") from None
    if path.suffix.lower() == ".parquet":
        return _matched(str(path), vocabulary)
    raise InputError(f"cannot read features from '{path}'; expected a name ending in .npy or .parquet")


def _matched(label: str, vocabulary: Vocabulary) -> tuple[Any, tuple[str, ...]]:
    import pyarrow as pa

    names = parquet.column_names(label)
    if len(names) < 2:
        raise InputError(f"'{label}' has {len(names)} columns; expected one of ids and others of numbers")
    place = names.index("id") if "id" in names else 0
    ids = parquet.strings(label, [place])[0].to_pylist()
    row_of: dict[str, int] = {}
    for row, text in enumerate(ids):
        if row_of.setdefault(text, row) != row:
            raise InputError(
                f"'{label}', row {row + 1}: the id '{text}' has features already, in row {row_of[text] + 1}"
            )
    missing = [text for text in vocabulary.ids if text not in row_of]
    if missing:
        quoted = ", ".join(f"'{text}'" for text in missing[:_NAMED])
        count = f"{len(missing):,} of {len(vocabulary):,}"
        raise InputError(f"'{label}' has no features of {count} {vocabulary.kind} ids, such as {quoted}")
    table = parquet.table(label).remove_column(place)
    texts = [
        name for name, kind in zip(table.column_names, table.schema.types, strict=True) if pa.types.is_string(kind)
    ]
    features = _numbers(label, table.drop_columns(texts))[[row_of[text] for text in vocabulary.ids]]
    return features, _notes(label, vocabulary.kind, len(row_of) - len(vocabulary), texts)


def _notes(label: str, kind: str, others: int, texts: Sequence[str]) -> tuple[str, ...]:
    notes = []
    if others:
        ids = f"{others:,} {kind} id{'s' if others > 1 else ''}"
        notes.append(f"the features of {ids} in '{label}' that the graph does not have left out")
    if texts:
        columns = f"{len(texts):,} column{'s' if len(texts) > 1 else ''} of text"
        quoted = ", ".join(f"'{text}'" for text in texts[:_NAMED])
        notes.append(f"{columns} in '{label}', such as {quoted}, left out of the features")
    return tuple(notes)


def _numbers(label: str, table: Any) -> Any:
    """The numbers of a table, [rows, f]: of its columns, or of the lists in its only one."""
    import pyarrow as pa

    kinds = table.schema.types
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    for name in table.column_names:
        if table[name].null_count:
            raise InputError(f"'{label}': the column '{name}' has gaps; give every row its numbers")
    if len(kinds) == 1 and any(is_list(kinds[0]) for is_list in lists):
        column = table.column(0).combine_chunks()
        values = column.flatten()
        width, rest = divmod(len(values), len(table))
        if rest or set(column.value_lengths().unique().to_pylist()) != {width} or values.null_count:
            raise InputError(f"'{label}': the lists in '{table.column_names[0]}' differ in length or have gaps")
        columns = [values]
    else:
        width, columns = 1, table.columns
    if not columns or not all(pa.types.is_floating(c.type) or pa.types.is_integer(c.type) for c in columns):
        raise InputError(f"'{label}': expected columns of numbers, or one of lists of numbers, beside that of ids")
    arrays = [np.asarray(column.to_numpy()).reshape(len(table), width) for column in columns]
    return np.concatenate(arrays, axis=1)
