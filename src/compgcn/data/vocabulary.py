"""Ids are the vocabulary, names are labels: which row of a table a piece of text means."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property

from compgcn.errors import InputError, unknown

_LISTED = 10  # ids shown when a name is shared by several
_SEARCHED = 20_000  # beyond this many labels, only those that look alike at once are compared letter by letter


class Vocabulary:
    """The entities, or the relations, of a graph: row i is called `ids[i]` and shown as `names[i]`.

    Args:
        kind: "entity" or "relation", the word used in errors.
        ids: unique, in the order of the rows.
        names: readable labels, not necessarily unique; the ids themselves when not given.
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
        """The row that `text` means: an id, else a name only one row bears, else either of them whatever the case.

        Accents, and spaces at either end, may be left out where nothing is called so with those given. Of an IRI the
        part after its last # or / will do too, where nothing else bears it and no other IRI ends so.
        """
        row = self.find(text)
        if row is None:
            raise unknown(self.kind, text, _lookalikes(text, dict.fromkeys(self.ids + self.names)))
        return row

    def find(self, text: str) -> int | None:
        """As `index`, with None for what nothing is called: no time is spent on what may have been meant."""
        if not isinstance(text, str):
            raise InputError(f"give the {self.kind} by its id or name, not as {text!r}")
        row = self._by_id.get(text)
        if row is not None:
            return row
        rows = self._by_name.get(text) or self._by_folded.get(text.casefold()) or self._unaccented(text)
        rows = rows or self._by_ending.get(text) or self._trimmed(text)
        if len(rows) > 1:
            raise self._shared(text, rows)
        return rows[0] if rows else None

    def _shared(self, text: str, rows: Sequence[int]) -> InputError:
        listed = ", ".join(f"'{self.ids[row]}'" for row in rows[:_LISTED])
        more = f" and {len(rows) - _LISTED} more" if len(rows) > _LISTED else ""
        return InputError(f"the {self.kind} name '{text}' is shared by {len(rows)} ids: {listed}{more}; give the id")

    @cached_property
    def shared(self) -> frozenset[str]:
        """The names that several rows bear."""
        return frozenset(text for text, rows in self._by_name.items() if len(rows) > 1)

    @cached_property
    def _by_id(self) -> dict[str, int]:
        return {text: row for row, text in enumerate(self.ids)}

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        return _rows(self.names)

    @cached_property
    def _by_folded(self) -> dict[str, list[int]]:
        folded = _rows(text.casefold() for text in self.ids)
        for text, rows in _rows(text.casefold() for text in self.names).items():
            folded[text] = sorted({*folded.get(text, ()), *rows})
        return folded

    def _unaccented(self, text: str) -> list[int]:
        """The rows called so but for case and accents."""
        text = folded(text)
        return sorted({*self._by_folded.get(text, ()), *self._by_accents.get(text, ())})

    @cached_property
    def _by_accents(self) -> dict[str, list[int]]:
        """What has accents, without them -> the rows; what has none is found by `_by_folded`."""
        found: dict[str, list[int]] = {}
        for text, rows in self._by_folded.items():
            if not text.isascii() and (plain := folded(text)) != text:
                found.setdefault(plain, []).extend(rows)
        return found

    def _trimmed(self, text: str) -> list[int]:
        """The rows called so but for case, accents and spaces at either end."""
        text = folded(text.strip()).strip()
        return sorted({*self._unaccented(text), *self._by_trimmed.get(text, ())}) if text else []

    @cached_property
    def _by_trimmed(self) -> dict[str, list[int]]:
        """What has spaces at either end, without them, case and accents -> the rows."""
        found: dict[str, list[int]] = {}
        for text, rows in self._by_folded.items():
            if text != text.strip():
                found.setdefault(folded(text.strip()).strip(), []).extend(rows)
        return found

    @cached_property
    def _by_ending(self) -> dict[str, list[int]]:
        """The part of an IRI after its last # or / -> the rows."""
        found: dict[str, list[int]] = {}
        for row, text in enumerate(self.ids):
            ending = text.replace("#", "/").rpartition("/")[2] if "://" in text else ""
            if ending:
                found.setdefault(ending, []).append(row)
        return found


def folded(text: str) -> str:
    """A text without its case and accents, as it is typed by one who looks for it."""
    if text.isascii():  # as most are, at a tenth of the time
        return text.casefold()
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(mark for mark in parts if not unicodedata.combining(mark)).casefold()


def _rows(texts: Iterable[str]) -> dict[str, list[int]]:
    """Text -> the rows that bear it, in order."""
    rows: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        rows.setdefault(text, []).append(row)
    return rows


def _lookalikes(text: str, labels: Iterable[str]) -> list[str]:
    """The labels worth comparing with a typo: all of them, or in a large vocabulary those of its length and initial."""
    known = list(labels)
    if len(known) <= _SEARCHED:
        return known
    initial, length = text[:1].casefold(), len(text)
    near = [label for label in known if abs(len(label) - length) <= 2 and label[:1].casefold() == initial]
    return near[:_SEARCHED] or known[:_SEARCHED]
