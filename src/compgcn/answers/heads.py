"""Whom a relation is asked of: the heads it has, and those who are like them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from compgcn.data.arrays import Numbers

STRANGER, PEER, HEAD = range(3)  # kinds of entities, for a relation

_MOST = 0.5  # of the entities with a place in common must be heads


class Heads(NamedTuple):
    """Entities that a relation is asked of, ascending, and their kinds [n]."""

    entities: Numbers
    kinds: Numbers


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
        as_head, as_tail = facts[:, :2], np.stack((facts[:, 2], facts[:, 1] + num_relations), 1)
        self._entity, self._place = np.unique(np.concatenate((as_head, as_tail)), axis=0).T
        self._having = np.bincount(self._place, minlength=2 * num_relations)

    def of(self, relation: int, *, strangers: bool = False) -> Heads:
        """The heads of a relation and their peers, or every entity."""
        kinds = np.full(self.num_entities, STRANGER)
        kinds[self._entity[self._place == relation]] = HEAD
        heads = np.bincount(self._place[kinds[self._entity] == HEAD], minlength=len(self._having))
        telling = heads >= np.maximum(_MOST * self._having, 1)
        alike = self._entity[telling[self._place]]
        kinds[alike[kinds[alike] == STRANGER]] = PEER
        entities = np.arange(self.num_entities) if strangers else np.flatnonzero(kinds)
        return Heads(entities, kinds[entities])

    def each(self, relations: Iterable[int], *, strangers: bool = False) -> Iterator[tuple[int, Heads]]:
        """The same of several."""
        return ((r, self.of(r, strangers=strangers)) for r in relations)
