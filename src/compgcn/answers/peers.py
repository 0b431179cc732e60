"""Choose the entities that discoveries ask about: the heads of a relation, and their peers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from compgcn.data.columns import Numbers

STRANGER, PEER, HEAD = range(3)  # the kinds of entities, for a relation

_SHARE = 0.5  # of the entities with a place must be heads


class Heads(NamedTuple):
    """Entities to ask about for one relation, ascending, with their kinds [n]."""

    entities: Numbers
    kinds: Numbers


class Peers:
    """The heads of each relation by some facts [n, 3], and their peers.

    An entity has a place for each relation that it is the head of, and for each that it is the tail of. A peer of the
    heads of a relation is no head, and has a place that at least half heads have: if nearly everyone who works
    somewhere lives somewhere, a person who works and lives nowhere is a peer.
    """

    def __init__(self, facts: Numbers, num_entities: int, num_relations: int) -> None:
        self.num_entities = num_entities
        (s, r, o), places = facts.T, 2 * num_relations
        entity, place = distinct_pairs(np.concatenate((s, o)), np.concatenate((r, r + num_relations)), places)
        self._places = Rows(entity, place, num_entities)  # of each entity
        self._having = Rows(*distinct_pairs(place, entity, num_entities), places)  # the entities with each place
        self._sizes: dict[int, int] = {}  # of the relations that `of` has looked at

    def of(self, relation: int, *, strangers: bool = False) -> Heads:
        """Return the heads of a relation and their peers, or every entity."""
        heads = self._having[np.array([relation])]
        common = np.bincount(self._places[heads], minlength=len(self._having.lengths))  # heads with each place
        telling = np.flatnonzero(common >= np.maximum(_SHARE * self._having.lengths, 1))
        entities = _distinct(self._having[telling])  # heads among them: all have the place of the relation
        kinds = np.full(len(entities), PEER)
        kinds[np.searchsorted(entities, heads)] = HEAD
        self._sizes[relation] = len(entities)
        if not strangers:
            return Heads(entities, kinds)
        everyone = np.full(self.num_entities, STRANGER)
        everyone[entities] = kinds
        return Heads(np.arange(self.num_entities), everyone)

    def sizes(self, relations: Iterable[int]) -> list[int]:
        """Return the number of heads and peers of each relation."""
        return [self._sizes[r] if r in self._sizes else len(self.of(r).entities) for r in relations]

    def sample(self, relations: Sequence[int], size: int, seed: int) -> Numbers:
        """Draw so many heads and peers of all relations, or return all if there are fewer.

        Returns:
            Rows of entity, relation and kind [n, 3].
        """
        ends = np.cumsum(self.sizes(relations))
        draw = np.random.default_rng(seed)
        chosen = np.sort(draw.choice(ends[-1], min(size, ends[-1]), replace=False, shuffle=False))
        rows = [np.empty((0, 3), dtype=np.int64)]
        for r, end, places in zip(relations, ends, np.split(chosen, np.searchsorted(chosen, ends[:-1])), strict=True):
            if len(places):
                entities, kinds = self.of(r)
                picked = places - (end - len(entities))
                rows.append(np.stack((entities[picked], np.full_like(picked, r), kinds[picked]), 1))
        return np.concatenate(rows)


class Rows:
    """Numbers in rows of any length.

    Args:
        row: the row of each number, ascending [n].
        values: the numbers [n].
        size: how many rows there are.
    """

    def __init__(self, row: Numbers, values: Numbers, size: int) -> None:
        self.lengths = np.bincount(row, minlength=size)
        self._starts, self._values = np.cumsum(self.lengths) - self.lengths, values

    def __getitem__(self, rows: Numbers) -> Numbers:
        """Return the numbers of some rows, one row after another."""
        lengths = self.lengths[rows]
        shifts = self._starts[rows] - (np.cumsum(lengths) - lengths)  # from places in the result to places here
        found: Numbers = self._values[np.arange(lengths.sum()) + np.repeat(shifts, lengths)]
        return found


def distinct_pairs(a: Numbers, b: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """Return the distinct pairs of two columns, ascending; the second column lies below `size`."""
    first, second = np.divmod(_distinct(a * size + b), max(size, 1))  # sorting one number is faster than sorting two
    return first, second


def _distinct(numbers: Numbers) -> Numbers:
    """Return the distinct numbers, none negative, ascending: `np.unique` of NumPy 2.3 hashes, 20 times slower here."""
    numbers = np.sort(numbers)
    return numbers[np.diff(numbers, prepend=-1) > 0]
