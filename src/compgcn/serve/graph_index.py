"""A graph to look around in: entities by the first letters of their names, facts around one, a map of all."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.data.vocabulary import folded

_SCANNED = 20_000  # matches that are looked at; of a letter or two there can be very many
_EXAMPLES = 6

Rows = NDArray[np.int64]


class Atlas:
    """Indices over the facts and names of a graph; every look-up takes time in what it finds, not in the graph.

    Args:
        graph: with all of its splits.
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        self.splits = list(graph.splits)
        self.facts = np.concatenate(list(graph.splits.values()))  # [n, 3], train first
        self.split = np.repeat(np.arange(len(self.splits)), [len(rows) for rows in graph.splits.values()])  # [n]
        numbers = np.arange(len(self.facts))
        other = self.facts[:, 0] != self.facts[:, 2]  # a loop stands once at its entity
        ends = np.concatenate([self.facts[:, 0], self.facts[other, 2]])
        at = np.concatenate([numbers, numbers[other]])
        self._at = at[np.lexsort((at, ends))]  # the facts of each entity in their order
        self.degree = np.bincount(ends, minlength=graph.num_entities)  # [N]
        self._start = np.concatenate([[0], np.cumsum(self.degree)])
        self.by_degree = np.argsort(-self.degree, kind="stable")  # entities, the best connected first
        self.facts_of_relation = np.bincount(self.facts[:, 1], minlength=graph.num_relations)  # [R]
        self.names = _Names(graph.entities)

    def search(self, text: str, limit: int) -> list[int]:
        """Entities whose name or id begins with `text`, then those that contain it, each the best connected first.

        Case and accents do not matter, but of those that begin so the ones written so come before the others.
        """
        if not _folded(text):
            best: list[int] = self.by_degree[:limit].tolist()
            return best
        first = set(self.names.beginning(text))
        ids, names = self.graph.entities.ids, self.graph.entities.names

        def place(row: int) -> tuple[bool, int, int]:
            written = names[row].startswith(text) or ids[row].startswith(text)
            return not written, *self._place(row)

        found = heapq.nsmallest(limit, first, key=place)
        if len(found) < limit:
            found += heapq.nsmallest(limit - len(found), set(self.names.containing(text)) - first, key=self._place)
        return found

    def _place(self, entity: int) -> tuple[int, int]:
        """The best connected before the others, those alike in the order of the vocabulary."""
        return -int(self.degree[entity]), entity

    def around(self, entity: int, limit: int) -> Rows:
        """Numbers of the facts that an entity takes part in, train first."""
        start, end = self._start[entity : entity + 2]
        return self._at[start : min(end, start + limit)]

    def examples(self) -> list[tuple[int, int]]:
        """Queries (head, relation) worth trying: of the commonest relations, each with a well connected head."""
        chosen: list[tuple[int, int]] = []
        for relation in np.argsort(-self.facts_of_relation, kind="stable")[:_EXAMPLES].tolist():
            heads = self.facts[self.facts[:, 1] == relation, 0]
            free = heads[~np.isin(heads, [head for head, _ in chosen])] if chosen else heads
            if len(heads):
                heads = free if len(free) else heads
                chosen.append((int(heads[self.degree[heads].argmax()]), relation))
        return chosen

    @cached_property
    def types(self) -> list[str]:
        """What each entity is mostly: subject or object of which relation [N]; empty where it is in no fact."""
        places = 2 * self.graph.num_relations  # as head of each relation, then as tail
        heads = self.facts[:, 0] * places + self.facts[:, 1]
        tails = self.facts[:, 2] * places + self.facts[:, 1] + self.graph.num_relations
        keys, counts = np.unique(np.concatenate([heads, tails]), return_counts=True)
        order = np.lexsort((-counts, keys // places))  # of each entity its commonest place first
        entities, first = np.unique(keys[order] // places, return_index=True)
        commonest = keys[order[first]] % places
        names = self.graph.relations.names
        labels = [f"{side} of {name}" for side in ("subject", "object") for name in names]
        found = [""] * self.graph.num_entities
        for entity, place in zip(entities.tolist(), commonest.tolist(), strict=True):
            found[entity] = labels[place]
        return found


class _Names:
    """Names and ids, whatever their case and accents, by their beginnings and by what they contain."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        folded = [(_folded(text), row) for row, text in enumerate(vocabulary.names)]
        if vocabulary.ids is not vocabulary.names:
            folded += [(_folded(text), row) for row, text in enumerate(vocabulary.ids)]
        folded.sort()
        self._sorted = [text for text, _ in folded]
        self._rows = [row for _, row in folded]
        # All of them in one text, a line each: a search through it takes a few milliseconds for a million.
        self._text = "\n".join(self._sorted)
        self._starts = np.concatenate([[0], np.cumsum([len(text) + 1 for text in self._sorted])]).tolist()

    def beginning(self, text: str) -> list[int]:
        """Rows whose name or id begins so; of more than are looked at, the first by the alphabet."""
        text = _folded(text)
        first = bisect_left(self._sorted, text)
        last = bisect_left(self._sorted, text + chr(0x10FFFF), lo=first)
        return self._rows[first : min(last, first + _SCANNED)]

    def containing(self, text: str) -> Iterator[int]:
        """Rows whose name or id contains it; of more than are looked at, the first by the alphabet."""
        text, place = _folded(text), -1
        for _ in range(_SCANNED):
            place = self._text.find(text, place + 1)
            if place < 0:
                return
            line = bisect_right(self._starts, place) - 1
            yield self._rows[line]
            place = self._starts[line + 1] - 1  # once a line


def _folded(text: str) -> str:
    """Without its case and accents, on one line: a line is a name."""
    return folded(text).replace("\n", " ")
