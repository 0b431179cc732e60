"""Triples that a program has in memory: rows of ids, an array of them, or the columns of a data frame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from compgcn.data.columns import Columns, Facts, locate, named_places, places_of
from compgcn.errors import InputError

Rows = Iterable[Any]  # of triples; an array [n, 3], or a data frame of pandas, Polars or pyarrow


@dataclass(frozen=True)
class Memory:
    """Triples in memory; `columns` are names or positions of subject, relation and object."""

    label: str
    rows: Rows
    columns: Columns | None = None

    def facts(self) -> Facts:
        """The triples; whole numbers that stand for ids become text, a first row that names the columns is skipped."""
        import pyarrow as pa

        names, found = _table(self.rows) or (None, _columns(self.label, self.rows, self.columns))
        if names is not None:
            found = [found[place] for place in places_of(self.label, self.columns, names)]
        if not len(found[0]):
            raise InputError(f"'{self.label}' is empty: it holds no triple")
        texts = [_texts(self.label, column) for column in found]
        notes: tuple[str, ...] = ()
        header = names is None and self._skips(texts)
        if header:
            places = named_places([column[0] for column in texts]) if self.columns is None else None
            texts = [texts[place][1:] for place in places or range(3)]
            notes = (f"the first line of '{self.label}' names the columns and was skipped",)
        if not texts[0]:
            raise InputError(f"'{self.label}' is empty: it holds a header and no triple")
        try:
            arrays = [pa.chunked_array([pa.array(column, pa.string())]) for column in texts]
        except UnicodeEncodeError as error:
            raise InputError(f"'{self.label}' holds an id that is no text: {error.reason}") from None
        return Facts(arrays, notes, guessed=names is None and not header)

    def _skips(self, texts: Sequence[Sequence[str]]) -> bool:
        """Whether the first row names the columns, as the first line of a file may."""
        asked = self.columns is not None and isinstance(self.columns[0], str)
        return asked or named_places([column[0] for column in texts]) is not None


def _table(given: Any) -> tuple[list[str], list[Sequence[Any]]] | None:
    """The names and the columns of a data frame, whichever library has made it; None of what is none."""
    if hasattr(given, "iloc") and hasattr(given, "columns"):  # pandas, which need not be there to be recognised
        return [str(name) for name in given.columns], [given.iloc[:, i].tolist() for i in range(given.shape[1])]
    if hasattr(given, "__arrow_c_stream__"):  # Polars, pyarrow and others
        import pyarrow as pa

        try:
            table = pa.table(given)
        except (pa.ArrowException, TypeError, ValueError):
            return None
        return list(table.column_names), [column.to_pylist() for column in table.columns]
    return None


def _columns(label: str, given: Any, columns: Columns | None) -> list[Sequence[Any]]:
    """Subject, relation and object of rows, all of which have one width: three, or what the columns are chosen from."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        what = "a list of (subject, relation, object), an array of shape [n, 3] or a data frame"
        raise InputError(f"triples are read from a file, or from {what}, not from {type(given).__name__}")
    whole = _plain(given)
    rows = [_plain(row) for row in whole] if isinstance(whole, Iterable) else [whole]
    sound = (list, tuple)
    width = len(rows[0]) if columns is not None and rows and isinstance(rows[0], sound) else 3
    for number, row in enumerate(rows, 1):
        if not isinstance(row, sound) or len(row) != width:
            what = f"{width} columns" if columns is not None else "(subject, relation, object)"
            raise InputError(f"'{label}', row {number}: expected {what}, found {_shown(row)}")
    turned: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * width
    return turned if columns is None or not rows else [turned[i] for i in locate(label, columns, list(rows[0]))]


def _plain(given: Any) -> Any:
    """An array, of NumPy or of others, as lists; anything else as it is."""
    return given.tolist() if hasattr(given, "tolist") else given


def _texts(label: str, column: Sequence[Any]) -> list[str]:
    """Ids as text; an InputError at the first that is missing or is no id."""
    texts = []
    for number, value in enumerate(column, 1):
        if isinstance(value, str):
            text = str(value)
        elif isinstance(value, Integral) and not isinstance(value, bool):
            text = str(int(value))
        else:
            gap = value is None or type(value).__name__ in ("NAType", "NaTType")
            if gap or (isinstance(value, float) and math.isnan(value)):
                raise InputError(f"'{label}', row {number}: an id is missing")
            raise InputError(f"'{label}', row {number}: {_shown(value)} is no id; ids are text or whole numbers")
        if not text.strip(" "):
            raise InputError(f"'{label}', row {number}: an id is empty")
        texts.append(text)
    return texts


def _shown(value: Any, most: int = 60) -> str:
    """What was given, for an error, and no more of it than a line holds."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
