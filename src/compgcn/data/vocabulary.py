"""Ids and readable names of entities or relations, and the search for the row that a text means."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property

from compgcn.data.columns import quoted
from compgcn.errors import InputError, unknown


class Vocabulary:
    """Entities or relations of a graph: row i has the id `ids[i]` and the readable name `names[i]`.

    Args:
        kind: "entity" or "relation", the word used in errors.
        ids: unique, in the order of the rows.
        names: readable names, not necessarily unique; the ids by default.
    """

    def __init__(self, kind: str, ids: Sequence[str], names: Sequence[str] | None = None) -> None:
        self.kind = kind
        self.ids = tuple(ids)
        self.names = self.ids if names is None else tuple(names)
        if len(self.names) != len(self.ids):
            raise InputError(f"{len(self.names)} {kind} names were given for {len(self.ids)} ids; give one name per id")
        if len(set(self.ids)) != len(self.ids):
            twice = next(text for text, rows in _rows(self.ids).items() if len(rows) > 1)
            raise InputError(f"the {kind} id '{twice}' occurs more than once; ids must be unique")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Vocabulary({self.kind!r}, {len(self)} ids)"

    def index(self, text: str) -> int:
        """Return the row that a text means, or raise an InputError with suggestions; see `find`."""
        row = self.find(text)
        if row is None:
            raise unknown(self.kind, text, self.ids + self.names, alike=self.spellings())
        return row

    def find(self, text: str) -> int | None:
        """Return the row that a text means, or None.

        The first rule that finds a row decides: the id; the name; either in another case; either without accents and
        surrounding spaces; the end of an IRI, after its last # or /; this end without case and accents. Several rows
        are an error.
        """
        if not isinstance(text, str):
            raise InputError(f"give the {self.kind} by its id or name, not as {text!r}")
        row = self._by_id.get(text)
        if row is not None:
            return row
        rows = self._by_name.get(text) or self._by_case.get(text.casefold()) or []
        if not rows and (letters := _letters(text)) and not (rows := self._by_letters.get(letters, [])):
            endings = self._by_ending.get(letters, [])
            rows = [row for row in endings if ending(self.ids[row]) == text] or endings
        if len(rows) > 1:
            shared = quoted([self.ids[row] for row in rows], 10)
            raise InputError(f"the {self.kind} name '{text}' is shared by {len(rows)} ids: {shared}; give the id")
        return rows[0] if rows else None

    def spellings(self) -> list[str]:
        """Return the ids, the names and the last parts of IRIs, to compare a misspelt text with."""
        return [*self.ids, *self.names, *filter(None, map(ending, self.ids))]

    @cached_property
    def shared(self) -> frozenset[str]:
        """Names that several rows have."""
        return frozenset(text for text, rows in self._by_name.items() if len(rows) > 1)

    @cached_property
    def _by_id(self) -> dict[str, int]:
        return {text: row for row, text in enumerate(self.ids)}

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        return _rows(self.names)

    @cached_property
    def _by_case(self) -> dict[str, list[int]]:
        """Id or name in lower case -> rows."""
        return _rows(map(str.casefold, self.ids), map(str.casefold, self.names))

    @cached_property
    def _by_letters(self) -> dict[str, list[int]]:
        """Id or name without case, accents and surrounding spaces -> rows."""
        return _rows(map(_letters, self.ids), map(_letters, self.names))

    @cached_property
    def _by_ending(self) -> dict[str, list[int]]:
        """The part of an IRI after its last # or /, without case, accents and surrounding spaces -> rows."""
        return _rows(_letters(ending(text)) for text in self.ids)


def folded(text: str) -> str:
    """Return a text without case and accents."""
    if text.isascii():  # nearly always, and ten times as fast
        return text.casefold()
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(mark for mark in parts if not unicodedata.combining(mark)).casefold()


def ending(text: str) -> str:
    """Return the part of an IRI after its last # or /, and nothing of other texts."""
    return text.replace("#", "/").rpartition("/")[2] if "://" in text else ""


def _letters(text: str) -> str:
    return folded(text.strip()).strip()


def _rows(*columns: Iterable[str]) -> dict[str, list[int]]:
    """Return text -> the rows that have it, in order."""
    rows: dict[str, list[int]] = {}
    for column in columns:
        for row, text in enumerate(column):
            rows.setdefault(text, []).append(row)
    return rows if len(columns) == 1 else {text: sorted(set(found)) for text, found in rows.items()}
