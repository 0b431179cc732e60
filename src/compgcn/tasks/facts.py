"""The index of known facts: which answers to a query the data hold, and in which split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from compgcn.data.columns import Numbers


def _grouped(key: Tensor, value: Tensor, code: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sort facts by key, then value, and keep each (key, value) once, with its smallest code.

    Returns:
        The distinct keys [Q], where the values of each begin [Q + 1], the values [A] and their codes [A].
    """
    keys, values, codes = (int(column.max()) + 1 if len(column) else 1 for column in (key, value, code))
    if keys * values * codes < 2**63:  # one number for all three: sorted several times as fast
        fact = _ascending((key * values + value) * codes + code)
        fact, code = fact // codes, fact % codes
        key, value = fact // values, fact % values
    else:
        order = code.argsort(stable=True)
        for column in (value, key):
            order = order[column[order].argsort(stable=True)]
        key, value, code = key[order], value[order], code[order]
    first = torch.ones_like(key, dtype=torch.bool)
    first[1:] = (key[1:] != key[:-1]) | (value[1:] != value[:-1])
    found, counts = torch.unique_consecutive(key[first], return_counts=True)
    return found, torch.nn.functional.pad(counts.cumsum(0), (1, 0)), value[first], code[first]


def _ascending(numbers: Tensor) -> Tensor:
    """Sort numbers; NumPy does so without the order that torch makes besides."""
    return numbers.sort().values if numbers.is_cuda else torch.from_numpy(np.sort(numbers.numpy()))


def _runs(values: Tensor, begin: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Lay the runs `values[begin : begin + count]` [B] one after another: the row in [0, B) and the value of each."""
    row = torch.repeat_interleave(count)  # [k]
    within = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
    return row, values[begin[row] + within]


def search(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the position of each wanted key among ascending keys, and whether it is there."""
    if not len(keys):
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    place = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
    return place, keys[place] == wanted


def _look_up(keys: Tensor, offsets: Tensor, values: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of wanted keys [B] as pairs: the row in [0, B) and the value [k]; unknown keys have none."""
    place, found = search(keys, wanted)
    begin, end = offsets[place], offsets[(place + 1).clamp(max=len(keys))]
    return _runs(values, begin, torch.where(found, end - begin, 0))


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Index from each distinct query (s, r) to its known answers, sorted and without duplicates.

    The query (?, r, o) is asked as (o, r + R): relations R to 2R are the inverses of 0 to R. Query i,
    `queries[i] = (s, r)`, has the answers `answers[offsets[i] : offsets[i + 1]]`.
    """

    queries: Tensor  # the distinct queries, ordered by their key [Q, 2]
    offsets: Tensor  # where the answers of each query begin, and at the end their number [Q + 1]
    answers: Tensor  # entities [A]
    keys: Tensor  # `s * 2R + r` of each query, ascending [Q]
    num_relations: int  # R, inverses not counted

    @classmethod
    def from_triples(cls, triples: Tensor, num_relations: int, inverse: bool = True) -> Answers:
        """Index triples [n, 3] on their device; with `inverse`, the queries about subjects too."""
        s, r, o = triples.long().unbind(1)
        key, answer = s * (2 * num_relations) + r, o
        if inverse:
            key = torch.cat((key, o * (2 * num_relations) + r + num_relations))
            answer = torch.cat((answer, s))
        keys, offsets, answer, _ = _grouped(key, answer, torch.zeros_like(key))
        queries = torch.stack((keys // (2 * num_relations), keys % (2 * num_relations)), 1)
        return cls(queries, offsets, answer, keys, num_relations)

    def __len__(self) -> int:
        """Return the number of distinct queries Q."""
        return len(self.keys)

    def pairs(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the answers of queries by position [B] as pairs: `row` in [0, B) and `col`, an entity [k] each."""
        return _runs(self.answers, self.offsets[index], self.offsets[index + 1] - self.offsets[index])

    def padded_places(self, index: Tensor, bound: int) -> tuple[Tensor, Tensor]:
        """Return the places in `answers` of the answers of queries [B], padded to `bound` with A; see `most`.

        `row` in [0, B) and `place` [bound] each: no shape depends on the batch.
        """
        begin = self.offsets[index]
        after = (self.offsets[index + 1] - begin).cumsum(0)  # [B]
        k = torch.arange(bound, device=index.device)
        row = torch.searchsorted(after, k, right=True).clamp_max(len(index) - 1)
        before = torch.cat((after.new_zeros(1), after[:-1]))[row]
        return row, torch.where(k < after[-1], begin[row] + k - before, len(self.answers))

    def at(self, places: Tensor) -> Tensor:
        """Return the answers at places, -1 for the padding of `padded_places`."""
        found = self.answers[places.clamp_max(len(self.answers) - 1)]
        return torch.where(places < len(self.answers), found, -1)

    def most(self, batch: int) -> int:
        """Return the most answers that a batch of distinct queries can have."""
        return int(self.offsets.diff().topk(min(batch, len(self))).values.sum())

    def lookup(self, s: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """Return the answers of queries (s, r) [B] as `pairs` does, in ascending order; unknown queries have none."""
        return _look_up(self.keys, self.offsets, self.answers, s.long() * (2 * self.num_relations) + r)

    def positions(self, s: Tensor, r: Tensor, o: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions of the queries (s, r) and of their answers o [E]; for unknown facts, Q and A."""
        size = 1 + int(torch.cat((self.answers, o, o.new_zeros(1))).max())
        query, known = search(self.keys, s * (2 * self.num_relations) + r)
        answer, found = search(self.facts(size), query * size + o)
        found &= known
        return torch.where(found, query, len(self)), torch.where(found, answer, len(self.answers))

    def facts(self, size: int) -> Tensor:
        """Return every fact as one number, ascending [A]: the position of its query · `size` + its answer < `size`."""
        return torch.repeat_interleave(self.offsets.diff()) * size + self.answers


class Known:
    """Index from keys to values, each with the split it stands in: the first one, where there are several.

    Args:
        keys, values: numbers from 0 on, one of each for every fact [A].
        codes: the position of each fact's split among `splits` [A].
        size: an upper bound of the values.
    """

    def __init__(self, keys: Numbers, values: Numbers, codes: Numbers, splits: Sequence[str], size: int) -> None:
        self._keys, self._offsets, self._values, codes_found = _grouped(*map(torch.from_numpy, (keys, values, codes)))
        self._codes = codes_found.to(torch.int8)
        # A fact as one number, ascending: the position of its key, then its value.
        self._facts = torch.repeat_interleave(self._offsets.diff()) * size + self._values
        self.splits, self._size = tuple(splits), size

    @property
    def keys(self) -> Numbers:
        """The distinct keys, ascending [Q]."""
        found: Numbers = self._keys.numpy()
        return found

    def pairs(self, keys: Numbers) -> tuple[Numbers, Numbers]:
        """Return all values of some keys [B]: the row in [0, B) and the value of each, [k] both."""
        rows, values = _look_up(self._keys, self._offsets, self._values, torch.from_numpy(keys))
        return rows.numpy(), values.numpy()

    def hold(self, keys: Numbers, values: Tensor) -> Tensor:
        """Return which of these values [B, k] the keys [B] have."""
        return self._search(keys, values.cpu())[1].to(values.device)

    def _search(self, keys: Numbers, values: Tensor) -> tuple[Tensor, Tensor]:
        place, found = search(self._keys, torch.from_numpy(keys))
        at, there = search(self._facts, place.unsqueeze(1) * self._size + values)
        return at, there & found.unsqueeze(1)

    def of(self, keys: Numbers, values: Numbers) -> list[list[str | None]]:
        """Return the split that each of these values [B, k] of the keys [B] stands in, or None."""
        at, there = self._search(keys, torch.from_numpy(values))
        codes = torch.where(there, self._codes[at], -1) if len(self._codes) else torch.full_like(at, -1)
        return [[None if code < 0 else self.splits[code] for code in row] for row in codes.tolist()]


def known_entities(splits: Mapping[str, Numbers], num_entities: int, num_relations: int) -> Known:
    """Index the entities that answer (s, r, ?) by the key s · 2R + r; (?, r, o) is asked as (o, r + R, ?)."""
    (s, r, o), codes = _stacked(splits)
    keys = np.concatenate((s * (2 * num_relations) + r, o * (2 * num_relations) + r + num_relations))
    return Known(keys, np.concatenate((o, s)), np.concatenate((codes, codes)), list(splits), num_entities)


def known_relations(splits: Mapping[str, Numbers], num_entities: int, num_relations: int) -> Known:
    """Index the relations that answer (s, ?, o) by the key s · N + o."""
    (s, r, o), codes = _stacked(splits)
    return Known(s * num_entities + o, r, codes, list(splits), num_relations)


def _stacked(splits: Mapping[str, Numbers]) -> tuple[Numbers, Numbers]:
    """Return all triples as columns [3, A], and the position of the split of each [A]."""
    codes = np.repeat(np.arange(len(splits)), [len(triples) for triples in splits.values()])
    return np.ascontiguousarray(np.concatenate(list(splits.values())).T), codes
