"""Queries (s, r, ?) and the entities known to answer them: labels in training, the filter in ranking."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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
