"""The facts of a graph by two of their three parts: which answers to a query stand in the data, and in which split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from compgcn.data.columns import Numbers
from compgcn.errors import InputError


def check_triples(triples: Tensor, num_relations: int, num_entities: int | None = None) -> None:
    """Refuse triples that are not integers [n, 3], or that name an entity or a relation that does not exist."""
    if triples.ndim != 2 or triples.shape[1] != 3 or triples.is_floating_point() or triples.dtype == torch.bool:
        raise InputError(
            f"triples must be integers of shape [n, 3] (subject, relation, object), not {triples.dtype} "
            f"of shape {list(triples.shape)}"
        )
    if not len(triples):
        return
    low, high = triples.amin(0).tolist(), triples.amax(0).tolist()
    if low[1] < 0 or high[1] >= num_relations:
        raise InputError(
            f"relations must lie in [0, {num_relations}), but the triples hold {low[1]} to {high[1]}; "
            "inverse relations are added here and must not be given"
        )
    entities = min(low[0], low[2]), max(high[0], high[2])
    if entities[0] < 0 or (num_entities is not None and entities[1] >= num_entities):
        bound = "" if num_entities is None else num_entities
        raise InputError(f"entities must lie in [0, {bound}), but the triples hold {entities[0]} to {entities[1]}")


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """An index from each distinct query (s, r) to its known answers, sorted and without duplicates.

    A query about the subject, (?, r, o), is asked as (o, r + R): relations R to 2R are the inverses of 0 to R. The rows
    are compressed: query i, `queries[i] = (s, r)`, has the answers `answers[offsets[i] : offsets[i + 1]]`.

    Args:
        queries: the distinct queries, ordered by their key [Q, 2].
        offsets: where each query's answers begin, and at the end their number [Q + 1].
        answers: entities [A].
        keys: `s * 2R + r` of each query, ascending [Q].
        num_relations: R, inverses not counted.
    """

    queries: Tensor
    offsets: Tensor
    answers: Tensor
    keys: Tensor
    num_relations: int

    @classmethod
    def from_triples(cls, triples: Tensor, num_relations: int, inverse: bool = True) -> Answers:
        """Index triples [n, 3], on the device they are on; with `inverse`, the queries about subjects too."""
        check_triples(triples, num_relations)
        s, r, o = triples.long().unbind(1)
        key, answer = s * (2 * num_relations) + r, o
        if inverse:
            key = torch.cat((key, o * (2 * num_relations) + r + num_relations))
            answer = torch.cat((answer, s))
        # Two stable sorts, not one of a combined key: the product of three counts can pass 63 bits.
        answer, order = answer.sort(stable=True)
        key, order = key[order].sort(stable=True)
        answer = answer[order]
        first = torch.ones_like(key, dtype=torch.bool)
        first[1:] = (key[1:] != key[:-1]) | (answer[1:] != answer[:-1])
        keys, counts = torch.unique_consecutive(key[first], return_counts=True)
        offsets = torch.zeros(len(keys) + 1, dtype=torch.long, device=keys.device)
        torch.cumsum(counts, 0, out=offsets[1:])
        queries = torch.stack((keys // (2 * num_relations), keys % (2 * num_relations)), 1)
        return cls(queries, offsets, answer[first], keys, num_relations)

    def __len__(self) -> int:
        """The number of distinct queries Q."""
        return len(self.keys)

    def to(self, device: torch.device | str) -> Answers:
        """The same index on another device."""
        queries, offsets, answers, keys = (
            table.to(device) for table in (self.queries, self.offsets, self.answers, self.keys)
        )
        return Answers(queries, offsets, answers, keys, self.num_relations)

    def pairs(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The answers of queries by their position in `queries` [B]: `row` in [0, B) and `col`, an entity [k] each."""
        return self._pairs(self.offsets[index], self.offsets[index + 1] - self.offsets[index])

    def padded_pairs(self, index: Tensor, bound: int) -> tuple[Tensor, Tensor]:
        """As `pairs`, always `bound` of them, so that nothing waits for their number: the rest have `col` -1.

        The queries must have at most `bound` answers together, see `most`.
        """
        begin = self.offsets[index]
        after = (self.offsets[index + 1] - begin).cumsum(0)  # [B]
        k = torch.arange(bound, device=index.device)
        row = torch.searchsorted(after, k, right=True).clamp_max(len(index) - 1)
        before = torch.cat((after.new_zeros(1), after[:-1]))[row]
        place = (begin[row] + k - before).clamp_max(len(self.answers) - 1)
        return row, torch.where(k < after[-1], self.answers[place], -1)

    def facts(self, num_entities: int) -> Tensor:
        """Every (query, answer) as one number, ascending [A], for `contains`."""
        query = torch.repeat_interleave(self.offsets.diff())  # [A]
        return query * num_entities + self.answers

    def contains(self, facts: Tensor, index: Tensor, entities: Tensor, num_entities: int) -> Tensor:
        """Which entities [B, K] answer the queries at these positions [B]; nothing waits for the device."""
        wanted = index.unsqueeze(1) * num_entities + entities  # [B, K]
        return facts[torch.searchsorted(facts, wanted).clamp_max(len(facts) - 1)] == wanted

    def most(self, batch: int) -> int:
        """How many answers so many distinct queries can have together."""
        return int(self.offsets.diff().topk(min(batch, len(self))).values.sum())

    def lookup(self, s: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The answers of queries (s, r) [B]: `row` in [0, B) and `col`, an entity [k] each; unseen queries have none.

        Rows ascend, and so do the entities of one row.
        """
        if not len(self):
            return torch.empty_like(s, dtype=torch.long)[:0], torch.empty_like(s, dtype=torch.long)[:0]
        width = 2 * self.num_relations
        key = s.long() * width + r
        index = torch.searchsorted(self.keys, key).clamp_(max=len(self) - 1)
        found = (self.keys[index] == key) & (r >= 0) & (r < width)
        begin = self.offsets[index]
        return self._pairs(begin, torch.where(found, self.offsets[index + 1] - begin, 0))

    def _pairs(self, begin: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Lay the runs `answers[begin : begin + count]` [B] one after another."""
        row = torch.repeat_interleave(count)  # [k]
        before = count.cumsum(0) - count
        within = torch.arange(len(row), device=row.device) - before[row]
        return row, self.answers[begin[row] + within]


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
