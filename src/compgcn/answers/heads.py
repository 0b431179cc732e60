"""Whom a relation is asked of: the heads it has, and those who are like them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

    def sizes(self, relations: Iterable[int], *, strangers: bool = False) -> Numbers:
        """How many entities each of several relations is asked of; nothing more is kept, for they may be very many."""
        if strangers:
            return np.array([self.num_entities for _ in relations], dtype=np.int64)
        return np.array([len(self.of(r).entities) for r in relations], dtype=np.int64)

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
