"""Synthetic graphs of any size, with the degrees of real ones and something to learn.

Every entity has a type and a community; few entities have most of the facts, and few relations. A relation leads from
one type to another. Mostly it stays within a community, where few entities have the type: whoever learns communities
ranks better than popularity does. A seed and the sizes fix every fact.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from compgcn.data.columns import Numbers, keys
from compgcn.errors import InputError

_TYPES = 20
_COMMUNITY = 100  # entities of the average community
_WITHIN = 0.7  # of the facts stay within a community
_HUBS = 3.0  # the share of the entity of rank k falls as k ** (1 / _HUBS - 1)


class _Groups:
    """Entities in groups, those that come first the most popular of their group."""

    def __init__(self, group: Numbers, size: int) -> None:
        self.members = np.argsort(group, kind="stable")
        self.start = np.searchsorted(group[self.members], np.arange(size + 1))
        self.sizes = np.diff(self.start)

    def draw(self, group: Numbers, rng: np.random.Generator) -> Numbers:
        """Draw an entity of each of these groups, which must not be empty; few entities are drawn most of the time."""
        rank = (rng.random(len(group)) ** _HUBS * self.sizes[group]).astype(np.int64)
        drawn: Numbers = self.members[self.start[group] + rank]
        return drawn


def synthetic(triples: int, entities: int, relations: int = 100, seed: int = 0) -> Numbers:
    """Return distinct facts (s, r, o), [triples, 3]; every entity is the subject of one at least."""
    if triples < entities or relations < _TYPES or entities < _TYPES:
        raise InputError(
            f"a synthetic graph needs {_TYPES} relations and entities at least, and a fact of each entity; given "
            f"{triples:,} triples, {entities:,} entities and {relations:,} relations"
        )
    rng = np.random.default_rng(seed)
    kind = (rng.random(entities) ** 1.5 * _TYPES).astype(np.int64)
    kind[:_TYPES] = np.arange(_TYPES)  # no type is empty
    communities = max(1, entities // _COMMUNITY)
    community = (rng.random(entities) ** 1.5 * communities).astype(np.int64)
    by_kind, by_both = _Groups(kind, _TYPES), _Groups(community * _TYPES + kind, communities * _TYPES)
    source = rng.permutation(np.arange(relations) % _TYPES)  # every type has a relation
    target = rng.integers(_TYPES, size=relations)
    weight = 1 / np.arange(1, relations + 1)  # Zipf's
    shares = np.cumsum(weight) / weight.sum()
    of_kind = [np.flatnonzero(source == one) for one in range(_TYPES)]
    first = np.empty(entities, dtype=np.int64)  # the relation of each entity's own fact
    for one, some in enumerate(of_kind):
        mine = np.flatnonzero(kind == one)
        first[mine] = rng.choice(some, len(mine), p=weight[some] / weight[some].sum())
    found = np.empty((0, 3), dtype=np.int64)
    s, r = np.arange(entities), first
    while len(found) < triples:
        near = community[s] * _TYPES + target[r]
        stays = (rng.random(len(s)) < _WITHIN) & (by_both.sizes[near] > 0)
        o = by_kind.draw(target[r], rng)
        o[stays] = by_both.draw(near[stays], rng)
        found = np.concatenate((found, np.stack((s, r, o), 1)))
        _, kept = np.unique(keys(found, entities, relations), return_index=True)
        found = found[np.sort(kept)]
        more = int(1.1 * (triples - len(found))) + 100
        r = np.searchsorted(shares, rng.random(more)).clip(max=relations - 1)
        s = by_kind.draw(source[r], rng)
    names = rng.permutation(entities)  # a hub may have any number
    found = found[:triples]
    return np.stack((names[found[:, 0]], found[:, 1], names[found[:, 2]]), 1)


def write(path: Path, triples: Numbers) -> None:
    """Write facts as tab-separated text."""
    import pyarrow as pa
    from pyarrow import csv

    columns = []
    for letter, column in zip("ero", triples.T, strict=True):
        ids = pa.array([f"{'e' if letter == 'o' else letter}{i}" for i in range(int(column.max()) + 1)])
        columns.append(ids.take(pa.array(column)))
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    csv.write_csv(pa.table(columns, names=["s", "r", "o"]), path, options)
