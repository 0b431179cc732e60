"""Index of a graph: search entities by name, list the facts about one, suggest queries, label types."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compgcn.answers.links import index
from compgcn.data import KnowledgeGraph
from compgcn.data.columns import Numbers
from compgcn.data.vocabulary import folded

_EXAMPLES = 6


class GraphIndex:
    """Facts by entity, entities by name."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph, N = graph, graph.num_entities
        self.splits = list(graph.splits)
        self.facts = np.concatenate(list(graph.splits.values()))  # train first [n, 3]
        self.split = np.repeat(np.arange(len(self.splits)), [len(rows) for rows in graph.splits.values()])  # of each
        ends = np.concatenate((self.facts[:, 0], self.facts[:, 2]))
        self._about = index(ends, np.tile(np.arange(len(self.facts)), 2), len(self.facts))  # facts by entity
        self.degree = np.bincount(self._about.pairs(np.arange(N))[0], minlength=N)  # facts about each entity [N]
        self.by_degree = np.argsort(-self.degree, kind="stable")  # entities, the best connected first [N]
        self.facts_of_relation = np.bincount(self.facts[:, 1], minlength=graph.num_relations)  # their number [R]
        # One text per entity, the best connected first, with a line for the name and one for the id.
        ids, names = graph.entities.ids, graph.entities.names
        labels = ["\n" + _line(names[row]) + "\n" + _line(ids[row]) for row in self.by_degree]
        self._labels, self._folded = pa.array(labels), pa.array([folded(text) for text in labels])

    def search(self, text: str, limit: int) -> list[int]:
        """Return entities whose name or id begins with `text`, then those that contain it.

        Case and accents do not matter, but an exact beginning comes before the others; ties go to the best connected.
        """
        written, part = _line(text), folded(_line(text))
        if not part:
            return list(self.by_degree[:limit].tolist())
        exact, begins, contains = (
            np.asarray(pc.match_substring(texts, wanted))
            for texts, wanted in ((self._labels, f"\n{written}"), (self._folded, f"\n{part}"), (self._folded, part))
        )
        groups = exact, begins & ~exact, contains & ~begins
        places = np.concatenate([np.flatnonzero(group)[:limit] for group in groups])[:limit]
        return list(self.by_degree[places].tolist())

    def around(self, entity: int, limit: int) -> Numbers:
        """Return the numbers of the facts about an entity, train first."""
        return self._about.pairs(np.array([entity]))[1][:limit]

    def examples(self) -> list[tuple[int, int]]:
        """Return queries (head, relation) to try: the most frequent relations, each with a well connected head."""
        chosen: list[tuple[int, int]] = []
        for relation in np.argsort(-self.facts_of_relation, kind="stable")[:_EXAMPLES].tolist():
            heads = self.facts[self.facts[:, 1] == relation, 0]
            unused = heads[~np.isin(heads, [head for head, _ in chosen])]
            heads = unused if len(unused) else heads
            if len(heads):
                chosen.append((int(heads[self.degree[heads].argmax()]), relation))
        return chosen

    @cached_property
    def types(self) -> list[str]:
        """Most frequent role of each entity [N], "subject of" or "object of" a relation; empty without facts."""
        roles = 2 * self.graph.num_relations  # subject of each relation, then object of each
        subjects = self.facts[:, 0] * roles + self.facts[:, 1]
        objects = self.facts[:, 2] * roles + self.facts[:, 1] + self.graph.num_relations
        keys, counts = np.unique(np.concatenate([subjects, objects]), return_counts=True)
        order = np.lexsort((-counts, keys // roles))  # the most frequent role of each entity first
        entities, first = np.unique(keys[order] // roles, return_index=True)
        labels = [f"{side} of {name}" for side in ("subject", "object") for name in self.graph.relations.names]
        found = [""] * self.graph.num_entities
        for entity, role in zip(entities.tolist(), (keys[order[first]] % roles).tolist(), strict=True):
            found[entity] = labels[role]
        return found


def _line(text: str) -> str:
    return text.replace("\n", " ")
