"""Whom a relation is asked of: the heads it has, and those who are like them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from compgcn.data.columns import Numbers

STRANGER, PEER, HEAD = range(3)  # kinds of entities, for a relation

_MOST = 0.5  # of the entities with a place in common must be heads


class Heads(NamedTuple):
    """Entities that a relation is asked of, ascending, and their kinds [n]."""

    entities: Numbers
    kinds: Numbers

    def kinds_of(self, some: Numbers) -> Numbers:
        """The kinds of some entities, all different; those that are not asked are strangers."""
        found = np.full(len(some), STRANGER)
        _, theirs, ours = np.intersect1d(some, self.entities, assume_unique=True, return_indices=True)
        found[theirs] = self.kinds[ours]
        return found


class Peers:
    """The heads of relations by some facts, and their peers.

    An entity has a place for each relation that it is the head of, and for each that it is the tail of. A peer of the
    heads of a relation is none of them, and has a place of which at least half of those that have it are heads: where
    nearly everyone who works somewhere lives somewhere, someone who works and lives nowhere is one.

    Args:
        facts: [n, 3].
        num_entities, num_relations: N and R.
    """

    def __init__(self, facts: Numbers, num_entities: int, num_relations: int) -> None:
        self.num_entities = num_entities
        (s, r, o), places = facts.T, 2 * num_relations
        entity, place = distinct_pairs(np.concatenate((s, o)), np.concatenate((r, r + num_relations)), places)
        self._places = Rows(entity, place, num_entities)  # of each entity
        self._having = Rows(*distinct_pairs(place, entity, num_entities), places)  # the entities with each place
        self._sizes = np.full(num_relations, -1)  # of what `of` has found

    def of(self, relation: int, *, strangers: bool = False) -> Heads:
        """The heads of a relation and their peers, or every entity; only the places that its heads have are looked at.

        Of a place that tells, at least half of those that have it are heads, so that these are no more than twice the
        heads' own places.
        """
        heads = self._having.of(np.array([relation]))
        common = np.bincount(self._places.of(heads), minlength=len(self._having))  # heads with each place
        telling = np.flatnonzero(common >= np.maximum(_MOST * self._having.lengths, 1))
        entities = _distinct(self._having.of(telling))  # the heads among them, all of whom have the relation's place
        kinds = np.full(len(entities), PEER)
        kinds[np.searchsorted(entities, heads)] = HEAD
        self._sizes[relation] = len(entities)
        if not strangers:
            return Heads(entities, kinds)
        everyone = np.full(self.num_entities, STRANGER)
        everyone[entities] = kinds
        return Heads(np.arange(self.num_entities), everyone)

    def sizes(self, relations: Iterable[int], *, strangers: bool = False) -> Numbers:
        """How many entities each of several relations is asked of; nothing more is kept, for they may be very many."""
        if strangers:
            return np.array([self.num_entities for _ in relations], dtype=np.int64)
        return np.array([self._size(r) for r in relations], dtype=np.int64)

    def _size(self, relation: int) -> int:
        return int(self._sizes[relation]) if self._sizes[relation] >= 0 else len(self.of(relation).entities)

    def sample(self, relations: Sequence[int], size: int, seed: int) -> Numbers:
        """So many of all that are asked, or all if there are no more: rows entity, relation, kind [n, 3]."""
        ends = np.cumsum(self.sizes(relations))
        draw = np.random.default_rng(seed)
        chosen = np.sort(draw.choice(ends[-1], min(size, ends[-1]), replace=False, shuffle=False))
        rows = []
        for r, end, places in zip(relations, ends, np.split(chosen, np.searchsorted(chosen, ends[:-1])), strict=True):
            if len(places):
                entities, kinds = self.of(r)
                picked = places - (end - len(entities))
                rows.append(np.stack((entities[picked], np.full_like(picked, r), kinds[picked]), 1))
        return np.concatenate(rows) if rows else np.empty((0, 3), dtype=np.int64)


class Rows:
    """Numbers in rows of any length: some rows cost what is in them.

    Args:
        row: the row of each number, ascending [n].
        values: the numbers [n].
        size: how many rows there are.
    """

    def __init__(self, row: Numbers, values: Numbers, size: int) -> None:
        self.lengths = np.bincount(row, minlength=size)
        self._starts, self._values = np.cumsum(self.lengths) - self.lengths, values

    def __len__(self) -> int:
        return len(self.lengths)

    def of(self, rows: Numbers) -> Numbers:
        """The numbers of some rows, one after another."""
        lengths = self.lengths[rows]
        shifts = self._starts[rows] - (np.cumsum(lengths) - lengths)  # from places in what is returned to those here
        found: Numbers = self._values[np.arange(lengths.sum()) + np.repeat(shifts, lengths)]
        return found


def distinct_pairs(a: Numbers, b: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """The pairs of two columns, ascending, each once; those of the second lie below the size.

    They are sorted as one number each, which is far faster than rows of two.
    """
    first, second = np.divmod(_distinct(a * size + b), max(size, 1))
    return first, second


def _distinct(numbers: Numbers) -> Numbers:
    """Each once, ascending: `np.unique`, which from NumPy 2.3 on hashes, twenty times slower where most differ."""
    numbers = np.sort(numbers)
    return numbers[np.diff(numbers, prepend=-1) > 0]  # none is below 0
