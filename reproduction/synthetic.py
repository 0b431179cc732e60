"""Synthetic graphs of any size, with the degrees of real ones and something to learn.

Every entity has a type and a community; few entities have most of the facts, and few relations. A relation leads from
one type to another. Mostly it stays within a community, where few entities have the type: whoever learns communities
ranks better than popularity does. A seed, the sizes and the kind of device fix every fact.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from compgcn.data.columns import Numbers
from compgcn.errors import InputError

_TYPES = 20
_COMMUNITY = 100  # entities of the average community
_WITHIN = 0.7  # of the facts stay within a community
_HUBS = 3.0  # the share of the entity of rank k falls as k ** (1 / _HUBS - 1)


class _Groups:
    """Entities in groups, those that come first the most popular of their group."""

    def __init__(self, group: Tensor, size: int) -> None:
        self.members = group.argsort(stable=True)
        self.start = torch.searchsorted(group[self.members], torch.arange(size + 1, device=group.device))
        self.sizes = self.start.diff()

    def draw(self, group: Tensor, uniform: Tensor) -> Tensor:
        """Return an entity of each of these groups, few of them most of the time; of an empty group, any."""
        rank = (uniform**_HUBS * self.sizes[group]).long()
        return self.members[(self.start[group] + rank).clamp_max(len(self.members) - 1)]


def synthetic(triples: int, entities: int, relations: int = 100, seed: int = 0, device: str = "cpu") -> Numbers:
    """Return distinct facts (s, r, o), [triples, 3]; every entity is the subject of one at least."""
    if triples < entities or relations < _TYPES or entities < _TYPES:
        raise InputError(
            f"a synthetic graph needs {_TYPES} relations and entities at least, and a fact of each entity; given "
            f"{triples:,} triples, {entities:,} entities and {relations:,} relations"
        )
    generator = torch.Generator(device).manual_seed(seed)
    rand = partial(torch.rand, generator=generator, dtype=torch.double, device=device)
    shuffled = partial(torch.randperm, generator=generator, device=device)
    kind = (rand(entities) ** 1.5 * _TYPES).long()
    kind[:_TYPES] = torch.arange(_TYPES, device=device)  # no type is empty
    communities = max(1, entities // _COMMUNITY)
    community = (rand(entities) ** 1.5 * communities).long()
    by_kind, by_both = _Groups(kind, _TYPES), _Groups(community * _TYPES + kind, communities * _TYPES)
    source = shuffled(relations) % _TYPES  # every type has a relation
    target = (rand(relations) * _TYPES).long()
    shares = (1 / torch.arange(1, relations + 1, device=device).double()).cumsum(0)  # Zipf's
    shares /= shares[-1].clone()

    def keys(s: Tensor, r: Tensor) -> Tensor:
        near = community[s] * _TYPES + target[r]
        stays = (rand(len(s)) < _WITHIN) & (by_both.sizes[near] > 0)
        o = torch.where(stays, by_both.draw(near, rand(len(s))), by_kind.draw(target[r], rand(len(s))))
        return (s * relations + r) * entities + o

    own = _Groups(source, _TYPES).draw(kind, rand(entities))  # the relation of each entity's own fact
    found = first = keys(torch.arange(entities, device=device), own)
    while len(found) < triples:
        r = torch.searchsorted(shares, rand(int(1.1 * (triples - len(found))) + 100)).clamp_max(relations - 1)
        found = torch.unique(torch.cat((found, keys(by_kind.draw(source[r], rand(len(r))), r))))
    found = found.sort().values
    spare = torch.ones_like(found, dtype=torch.bool)
    spare[torch.searchsorted(found, first)] = False
    spare = spare.nonzero().squeeze(1)
    left_out = spare[shuffled(len(spare))[: len(found) - triples]]
    kept = torch.ones_like(found, dtype=torch.bool)
    kept[left_out] = False
    found = found[kept][shuffled(triples)]
    names = shuffled(entities)  # a hub may have any number
    s, r, o = found // (relations * entities), found // entities % relations, found % entities
    facts: Numbers = torch.stack((names[s], r, names[o]), 1).cpu().numpy()
    return facts


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
