"""The facts of a graph by two of their three parts: which answers to a query stand in the data, and in which split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compgcn.data.arrays import Numbers


class Known:
    """An index from keys to values, each with the split it stands in; made once, a lookup costs what it finds.

    A value that stands in several splits under one key counts as one of the first.

    Args:
        keys, values: numbers from 0 on, one of each for every fact [A].
        codes: the place of each fact's split among `splits` [A].
        splits: their names.
        size: values lie below it.

    Its `keys` are distinct and ascend.
    """

    def __init__(self, keys: Numbers, values: Numbers, codes: Numbers, splits: Sequence[str], size: int) -> None:
        order = np.lexsort((codes, values, keys))
        keys, values, codes = keys[order], values[order], codes[order]
        first = np.ones(len(keys), dtype=bool)
        first[1:] = (keys[1:] != keys[:-1]) | (values[1:] != values[:-1])
        keys, self._values, self._codes = keys[first], values[first], codes[first].astype(np.int8)
        self.keys, counts = np.unique(keys, return_counts=True)
        self._offsets = np.concatenate(([0], np.cumsum(counts)))  # where the values of each key begin
        # A fact as one number, ascending: the place of its key, then its value.
        self._facts = np.repeat(np.arange(len(self.keys)), counts) * size + self._values
        self.splits, self._size = tuple(splits), size

    def pairs(self, keys: Numbers) -> tuple[Numbers, Numbers]:
        """All values of some keys [B]: the row in [0, B) and the value of each, [k] both."""
        place, found = self._places(keys)
        if not len(self.keys):
            return keys[:0], keys[:0]
        begin = self._offsets[place]
        count = np.where(found, self._offsets[place + 1] - begin, 0)
        rows = np.repeat(np.arange(len(keys)), count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return rows, self._values[begin[rows] + within]

    def of(self, keys: Numbers, values: Numbers) -> list[list[str | None]]:
        """The split that each of these values [B, k] of the keys [B] stands in, or None."""
        place, found = self._places(keys)
        if not len(self.keys):
            return [[None] * values.shape[1] for _ in keys]
        wanted = place[:, None] * self._size + values
        at = np.searchsorted(self._facts, wanted).clip(max=len(self._facts) - 1)
        codes = np.where((self._facts[at] == wanted) & found[:, None], self._codes[at], -1)
        return [[None if code < 0 else self.splits[code] for code in row] for row in codes.tolist()]

    def _places(self, keys: Numbers) -> tuple[Numbers, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
        """Where the keys stand, and whether they do."""
        place = np.searchsorted(self.keys, keys).clip(max=max(len(self.keys) - 1, 0))
        return place, (self.keys[place] == keys if len(self.keys) else np.zeros(len(keys), dtype=bool))


def _stacked(splits: Mapping[str, Numbers]) -> tuple[Numbers, Numbers]:
    """All triples [A, 3], and the place of the split of each [A]."""
    codes = np.repeat(np.arange(len(splits)), [len(triples) for triples in splits.values()])
    return np.concatenate(list(splits.values())), codes


def known_entities(splits: Mapping[str, Numbers], num_entities: int, num_relations: int) -> Known:
    """The entities that answer (s, r, ?), by the key s · 2R + r; (?, r, o) is asked as (o, r + R, ?)."""
    triples, codes = _stacked(splits)
    s, r, o = triples.T
    keys = np.concatenate((s * (2 * num_relations) + r, o * (2 * num_relations) + r + num_relations))
    return Known(keys, np.concatenate((o, s)), np.concatenate((codes, codes)), list(splits), num_entities)


def known_relations(splits: Mapping[str, Numbers], num_entities: int, num_relations: int) -> Known:
    """The relations that answer (s, ?, o), by the key s · N + o."""
    triples, codes = _stacked(splits)
    s, r, o = triples.T
    return Known(s * num_entities + o, r, codes, list(splits), num_relations)
