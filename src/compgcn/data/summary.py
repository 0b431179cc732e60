"""The figures that describe a data set: how its nodes, relations and labels are distributed, and what it gives away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compgcn.data import leakage
from compgcn.data.collection import GraphCollection
from compgcn.data.triples import KnowledgeGraph

Numbers = NDArray[np.int64]

_UNITS = 15  # up to this number every value has a bin of its own


class Bin(NamedTuple):
    """How many values lie between two numbers, both included."""

    low: int
    high: int
    size: int


class Distribution(NamedTuple):
    """How often each class occurs, by part of the data.

    Fields:
        what: what the classes are of.
        classes: their names.
        parts: part -> counts [C].
    """

    what: str
    classes: tuple[str, ...]
    parts: Mapping[str, Numbers]


@dataclass(frozen=True, eq=False)
class Summary:
    """What there is to say about a knowledge graph or a collection of graphs.

    Fields:
        name, statistics, notes: its own.
        nodes, edges: what it calls them.
        degrees: [N], the edges at each node, one written in both directions once.
        graph_sizes: [G], nodes of each graph of a collection; None for a knowledge graph.
        relation_ids, relation_names: R of each.
        by_relation: [R], the edges of each relation.
        distributions: of labels, where there are any.
        leakage: of a knowledge graph whose valid or test is not empty.
    """

    name: str
    statistics: Mapping[str, int | float]
    notes: tuple[str, ...]
    nodes: str
    edges: str
    degrees: Numbers
    graph_sizes: Numbers | None
    relation_ids: tuple[str, ...]
    relation_names: tuple[str, ...]
    by_relation: Numbers
    distributions: tuple[Distribution, ...]
    leakage: leakage.Leakage | None

    @property
    def order(self) -> list[int]:
        """The relations, those with most edges first."""
        return [int(r) for r in np.argsort(-self.by_relation, kind="stable")]

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON has it."""
        report: dict[str, Any] = {"name": self.name, **self.statistics, "notes": list(self.notes)}
        report["by_relation"] = {self.relation_ids[r]: int(self.by_relation[r]) for r in self.order}
        report["degree"] = _spread(self.degrees, bins(self.degrees))
        if self.graph_sizes is not None:
            report["graph_size"] = _spread(self.graph_sizes, even_bins(self.graph_sizes))
        report["distributions"] = {
            d.what: {
                part: {text: int(count) for text, count in zip(d.classes, counts, strict=True)}
                for part, counts in d.parts.items()
            }
            for d in self.distributions
        }
        report["leakage"] = {} if self.leakage is None else self.leakage.as_dict(self.relation_ids)
        return report


def summarise(data: KnowledgeGraph | GraphCollection) -> Summary:
    """The summary of a data set."""
    return _of_collection(data) if isinstance(data, GraphCollection) else _of_graph(data)


def _of_graph(graph: KnowledgeGraph) -> Summary:
    triples = np.concatenate(list(graph.splits.values()))
    distributions = []
    if graph.labels is not None:
        classes = {part: rows[:, 1] for part, rows in graph.labels.splits.items()}
        distributions.append(_distribution("classes of entities", graph.labels.classes, classes))
    held_out = len(graph.valid) + len(graph.test)
    return Summary(
        graph.name,
        graph.statistics(),
        graph.notes,
        nodes="entities",
        edges="triples",
        degrees=np.bincount(triples[:, [0, 2]].ravel(), minlength=graph.num_entities),
        graph_sizes=None,
        relation_ids=graph.relations.ids,
        relation_names=graph.relations.names,
        by_relation=np.bincount(triples[:, 1], minlength=graph.num_relations),
        distributions=tuple(distributions),
        leakage=leakage.report(graph) if held_out else None,
    )


def _of_collection(graphs: GraphCollection) -> Summary:
    distributions = [_distribution("classes of graphs", graphs.classes, {"all": graphs.targets})]
    if graphs.node_labels is not None:
        distributions.append(_distribution("labels of nodes", graphs.node_classes, {"all": graphs.node_labels}))
    ends = [0] if graphs.both_directions else [0, 2]  # an edge written both ways is one edge at each of its nodes
    return Summary(
        graphs.name,
        graphs.statistics(),
        graphs.notes,
        nodes="nodes",
        edges="edges",
        degrees=np.bincount(graphs.triples[:, ends].ravel(), minlength=graphs.num_nodes),
        graph_sizes=np.diff(graphs.node_starts),
        relation_ids=graphs.relations.ids,
        relation_names=graphs.relations.names,
        by_relation=np.bincount(graphs.triples[:, 1], minlength=graphs.num_relations),
        distributions=tuple(distributions),
        leakage=None,
    )


def _distribution(what: str, classes: Sequence[str], rows: Mapping[str, Numbers]) -> Distribution:
    parts = {part: np.bincount(values, minlength=len(classes)) for part, values in rows.items() if len(values)}
    return Distribution(what, tuple(classes), parts)


def _spread(values: Numbers, histogram: Sequence[Bin]) -> dict[str, Any]:
    mean, median, largest = middle(values)
    rows = [{"from": low, "to": high, "count": size} for low, high, size in histogram]
    return {"mean": mean, "median": median, "max": largest, "histogram": rows}


def middle(values: Numbers) -> tuple[float, float, int]:
    """Mean, median and largest of whole numbers; zeros where there are none."""
    return (float(values.mean()), float(np.median(values)), int(values.max())) if len(values) else (0.0, 0.0, 0)


def bins(values: Numbers) -> list[Bin]:
    """Counts of whole numbers ≥ 0, from the smallest to the largest.

    A bin for each number if none is large, else the bins 0, 1, 2–3, 4–7, 8–15 and so on.
    """
    if not len(values):
        return []
    largest = int(values.max())
    if largest <= _UNITS:
        counts = np.bincount(values)
        return [Bin(value, value, int(counts[value])) for value in range(int(values.min()), largest + 1)]
    _, place = np.frexp(values.astype(np.float64))  # 0 -> 0, 1 -> 1, 2..3 -> 2, 4..7 -> 3
    counts = np.bincount(place)
    start = int(place.min())
    return [Bin(2 ** (k - 1) if k else 0, min(2**k - 1, largest), int(counts[k])) for k in range(start, len(counts))]


def even_bins(values: Numbers, most: int = 12) -> list[Bin]:
    """Counts of whole numbers in at most so many bins of one width, from the smallest to the largest."""
    if not len(values):
        return []
    smallest, largest = int(values.min()), int(values.max())
    width = -(-(largest - smallest + 1) // most)
    counts = np.bincount((values - smallest) // width)
    lows = range(smallest, largest + 1, width)
    return [Bin(low, min(low + width - 1, largest), int(count)) for low, count in zip(lows, counts, strict=True)]
