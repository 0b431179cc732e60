"""Choose the entities that discoveries ask about: the heads of a relation, and their peers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from compgcn.data.columns import Numbers
from compgcn.tasks.facts import Known

STRANGER, PEER, HEAD = range(3)  # the kinds of entities, for a relation

_SHARE = 0.5  # of the entities with a place must be heads


class Peers:
    """The heads of each relation by some facts [n, 3], and their peers.

    An entity has a place for each relation that it is the head of, and for each that it is the tail of. A peer of the
    heads of a relation is no head, and has a place that at least half heads have: if nearly everyone who works
    somewhere lives somewhere, a person who works and lives nowhere is a peer.
    """

    def __init__(self, facts: Numbers, num_entities: int, num_relations: int) -> None:
        self.num_entities = num_entities
        s, r, o = facts.T
        entity, place, number = np.concatenate((s, o)), np.concatenate((r, r + num_relations)), 2 * num_relations
        self._places, self._having = index(entity, place, number), index(place, entity, num_entities)
        self._lengths = np.bincount(self._having.pairs(np.arange(number))[0], minlength=number)  # entities of a place
        self._sizes: dict[int, int] = {}  # of the relations that `of` has looked at

    def of(self, relation: int, *, strangers: bool = False) -> tuple[Numbers, Numbers]:
        """Return the heads of a relation and their peers, or every entity, ascending and with their kinds [n]."""
        _, heads = self._having.pairs(np.array([relation]))
        common = np.bincount(self._places.pairs(heads)[1], minlength=len(self._lengths))  # heads with each place
        telling = np.flatnonzero(common >= np.maximum(_SHARE * self._lengths, 1))
        # Heads are among them: all have the place of the relation. `np.unique` of NumPy 2.3 would hash, which is slow.
        entities = np.sort(self._having.pairs(telling)[1])
        entities = entities[np.diff(entities, prepend=-1) > 0]
        kinds = np.full(len(entities), PEER)
        kinds[np.searchsorted(entities, heads)] = HEAD
        self._sizes[relation] = len(entities)
        if not strangers:
            return entities, kinds
        everyone = np.full(self.num_entities, STRANGER)
        everyone[entities] = kinds
        return np.arange(self.num_entities), everyone

    def sizes(self, relations: Iterable[int]) -> list[int]:
        """Return the number of heads and peers of each relation."""
        return [self._sizes[r] if r in self._sizes else len(self.of(r)[0]) for r in relations]

    def sample(self, relations: Sequence[int], size: int, seed: int) -> Numbers:
        """Draw so many heads and peers of all relations, or all if there are fewer: entity, relation, kind [n, 3]."""
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


def index(keys: Numbers, values: Numbers, size: int) -> Known:
    """Return an index of pairs without splits; the values lie below `size`."""
    return Known(keys, values, np.zeros_like(keys), [""], size)
