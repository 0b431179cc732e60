"""Figures of a data set: distributions of nodes, relations and labels, and leakage from train to test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compgcn.data.collection import GraphCollection
from compgcn.data.columns import Numbers, keys, ranges
from compgcn.data.graph import KnowledgeGraph

_Flags = NDArray[np.bool_]

SHARE = 0.8  # of the smaller relation's pairs that two similar relations have in common
LEAST = 3  # pairs they must have in common: two facts may agree by chance
_UNITS = 15  # up to this number every value has its own bin


@dataclass(frozen=True)
class Given:
    """The number of facts (s, r, o) of a split that train gives away, by the way; one may count in several."""

    triples: int
    copies: int  # (s, r, o) itself is in train
    symmetric: int  # (o, r, s) is, s ≠ o
    near_duplicates: int  # (s, r', o) is, r' ≠ r
    inverses: int  # (o, r', s) is, r' ≠ r, s ≠ o
    any: int  # one of these
    copy_rule: int  # a symmetric relation, or a pair of relations of the report, answers it out of train


class Overlap(NamedTuple):
    """Two relations with the same pairs, or with exchanged pairs; or one relation and its mirror image."""

    relation: int
    other: int
    shared: int  # ordered pairs (s, o) of the smaller one that the other one has, as they are or exchanged
    pairs: int  # of the smaller one

    @property
    def share(self) -> float:
        return self.shared / self.pairs


@dataclass(frozen=True)
class Leakage:
    """Report on what train gives away about valid and test."""

    splits: dict[str, Given]  # counts for valid and for test
    duplicates: tuple[Overlap, ...]  # pairs of relations, most facts first
    inverses: tuple[Overlap, ...]  # likewise
    symmetric: tuple[Overlap, ...]  # relations that are their own inverse, most facts first
    share: float  # threshold of these lists, as is `least`
    least: int

    def as_dict(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the report as JSON, relations by their names."""

        def pairs(overlaps: tuple[Overlap, ...]) -> list[dict[str, Any]]:
            return [{**a._asdict(), "relation": names[a.relation], "other": names[a.other]} for a in overlaps]

        shares = {part: one.copy_rule / max(one.triples, 1) for part, one in self.splits.items()}
        return {
            **{part: {**asdict(one), "copy_rule_share": shares[part]} for part, one in self.splits.items()},
            "near_duplicate_relations": pairs(self.duplicates),
            "inverse_relations": pairs(self.inverses),
            "symmetric_relations": [{k: v for k, v in row.items() if k != "other"} for row in pairs(self.symmetric)],
            "threshold": self.share,
            "least": self.least,
        }


def report(graph: KnowledgeGraph, *, share: float = SHARE, least: int = LEAST) -> Leakage:
    """Return what train gives away about valid and test.

    Two relations are near-duplicates if they have `share` of the smaller one's pairs (s, o) in common. They are
    inverses if one has the pairs (o, s) of the other in this way, and a relation is symmetric if it is its own inverse.
    Pairs come from all three splits, since a split hides part of an overlap, and only from different entities, since a
    self-loop is its own mirror image. Relations with fewer than `least` pairs in common are not listed.
    """
    N, R = graph.num_entities, graph.num_relations
    facts = _distinct(np.concatenate(list(graph.splits.values())), N, R)
    facts = facts[facts[:, 0] != facts[:, 2]]
    same, mirrored = (_kept(codes, facts[:, 1], R, share, least) for codes in _overlaps(facts, N, R))
    symmetric = tuple(pair for pair in mirrored if pair.relation == pair.other)
    inverses = tuple(pair for pair in mirrored if pair.relation != pair.other)
    train, rules = _distinct(graph.train, N, R), (_codes(same, R), _codes(mirrored, R))
    splits = {part: _given(graph.splits[part], train, N, R, *rules) for part in ("valid", "test")}
    return Leakage(splits, same, inverses, symmetric, share, least)


def _distinct(triples: Numbers, N: int, R: int) -> Numbers:
    """Return the triples without repetitions, sorted by subject, object and relation."""
    return triples[np.unique(keys(triples, N, R), return_index=True)[1]]


def _overlaps(facts: Numbers, N: int, R: int) -> tuple[Numbers, Numbers]:
    """Return a code r * R + r' with r ≤ r' for every two facts over one pair of entities: as they are, and exchanged.

    The facts [n, 3] are distinct, sorted by pair, without self-loops; two of one relation that mirror each other count
    twice, once from either side.
    """
    s, r, o = facts.T
    (one, two), (back, forth) = (_matches(s * N + o, wanted) for wanted in (s * N + o, o * N + s))
    same, mirrored = r[one] < r[two], r[back] <= r[forth]
    return (r[one] * R + r[two])[same], (r[back] * R + r[forth])[mirrored]


def _matches(pairs: Numbers, wanted: Numbers) -> tuple[Numbers, Numbers]:
    """Return every i and j with wanted[i] = pairs[j]; the pairs are sorted."""
    start = np.searchsorted(pairs, wanted, "left")
    many = np.searchsorted(pairs, wanted, "right") - start
    return np.repeat(np.arange(len(wanted)), many), ranges(start, many)


def _kept(codes: Numbers, relations: Numbers, R: int, share: float, least: int) -> tuple[Overlap, ...]:
    """Return the overlaps that are large enough, most facts first."""
    sizes = np.bincount(relations, minlength=R)
    distinct, shared = np.unique(codes, return_counts=True)
    one, two = distinct // R, distinct % R
    smaller = np.minimum(sizes[one], sizes[two])
    rows = np.flatnonzero((shared >= share * smaller) & (shared >= least))
    rows = rows[np.argsort(-shared[rows], kind="stable")]
    return tuple(Overlap(int(one[i]), int(two[i]), int(shared[i]), int(smaller[i])) for i in rows)


def _codes(overlaps: tuple[Overlap, ...], R: int) -> Numbers:
    """Return r * R + r' for both orders of every pair."""
    one, two = np.array([pair[:2] for pair in overlaps], dtype=np.int64).reshape(-1, 2).T
    return np.concatenate([one * R + two, two * R + one])


def _given(triples: Numbers, train: Numbers, N: int, R: int, same: Numbers, mirrored: Numbers) -> Given:
    """Count the triples that train gives away; `same` and `mirrored` are codes of similar relations."""
    s, r, o = triples.T
    copies, duplicates, by_same = _match(train, N, R, s, r, o, same)
    symmetric, inverses, by_mirrored = (flags & (s != o) for flags in _match(train, N, R, o, r, s, mirrored))
    some, ruled = copies | symmetric | duplicates | inverses, by_same | by_mirrored
    counts = (int(flags.sum()) for flags in (copies, symmetric, duplicates, inverses, some, ruled))
    return Given(len(triples), *counts)


def _match(train: Numbers, N: int, R: int, s: Numbers, r: Numbers, o: Numbers, rules: Numbers) -> tuple[_Flags, ...]:
    """Return for each (s, r, o) whether train has it, has an (s, r', o), and has one by the rules. [n] each"""
    query, row = _matches(train[:, 0] * N + train[:, 2], s * N + o)  # train is sorted by pair
    relation = train[row, 1]
    own = relation == r[query]
    ruled = np.isin(r[query] * R + relation, rules)
    return tuple(np.bincount(query[hits], minlength=len(s)) > 0 for hits in (own, ~own, ruled))


class Bin(NamedTuple):
    """Number of values between two numbers, both included."""

    low: int
    high: int
    size: int


class Distribution(NamedTuple):
    """Frequencies of classes, by part of the data."""

    what: str  # such as "classes of entities"
    classes: tuple[str, ...]
    parts: Mapping[str, Numbers]  # part -> counts [C]


@dataclass(frozen=True, eq=False)
class Summary:
    """Figures of a knowledge graph or a collection of graphs."""

    name: str  # of the data, as are statistics and notes
    statistics: Mapping[str, int | float]
    notes: tuple[str, ...]
    nodes: str  # word for its nodes
    edges: str  # word for its edges
    degrees: Numbers  # [N], the edges at each node; an edge in both directions counts once
    graph_sizes: Numbers | None  # [G], nodes of each graph of a collection; None for a knowledge graph
    relation_ids: tuple[str, ...]  # R
    relation_names: tuple[str, ...]  # R
    by_relation: Numbers  # [R], the edges of each relation
    distributions: tuple[Distribution, ...]  # frequencies of labels
    leakage: Leakage | None  # of a knowledge graph whose valid or test is not empty

    @property
    def order(self) -> list[int]:
        """Relations, those with most edges first."""
        return list(np.argsort(-self.by_relation, kind="stable").tolist())

    def as_dict(self) -> dict[str, Any]:
        report: dict[str, Any] = {"name": self.name, **self.statistics, "notes": list(self.notes)}
        report["by_relation"] = {self.relation_ids[r]: int(self.by_relation[r]) for r in self.order}
        report["degree"] = _spread(self.degrees, bins(self.degrees))
        if self.graph_sizes is not None:
            report["graph_size"] = _spread(self.graph_sizes, even_bins(self.graph_sizes))
        report["distributions"] = {
            one.what: {part: dict(zip(one.classes, counts.tolist(), strict=True)) for part, counts in one.parts.items()}
            for one in self.distributions
        }
        report["leakage"] = {} if self.leakage is None else self.leakage.as_dict(self.relation_ids)
        return report


def summarise(data: KnowledgeGraph | GraphCollection) -> Summary:
    leakage, graph_sizes, ends = None, None, [0, 2]
    if isinstance(data, GraphCollection):
        triples, num_nodes = data.triples, data.num_nodes
        distributions = [_distribution("classes of graphs", data.classes, {"all": data.targets})]
        if data.node_labels is not None:
            distributions.append(_distribution("labels of nodes", data.node_classes, {"all": data.node_labels}))
        graph_sizes = np.diff(data.node_starts)
        ends = [0] if data.both_directions else ends
    else:
        triples, num_nodes = np.concatenate(list(data.splits.values())), data.num_entities
        distributions = []
        if data.labels is not None:
            classes = {part: rows[:, 1] for part, rows in data.labels.splits.items()}
            distributions.append(_distribution("classes of entities", data.labels.classes, classes))
        leakage = report(data) if len(data.valid) + len(data.test) else None
    return Summary(
        data.name,
        data.statistics(),
        data.notes,
        nodes="entities" if graph_sizes is None else "nodes",
        edges="triples" if graph_sizes is None else "edges",
        degrees=np.bincount(triples[:, ends].ravel(), minlength=num_nodes),
        graph_sizes=graph_sizes,
        relation_ids=data.relations.ids,
        relation_names=data.relations.names,
        by_relation=np.bincount(triples[:, 1], minlength=data.num_relations),
        distributions=tuple(distributions),
        leakage=leakage,
    )


def _distribution(what: str, classes: Sequence[str], rows: Mapping[str, Numbers]) -> Distribution:
    parts = {part: np.bincount(values, minlength=len(classes)) for part, values in rows.items() if len(values)}
    return Distribution(what, tuple(classes), parts)


def _spread(values: Numbers, histogram: Sequence[Bin]) -> dict[str, Any]:
    mean, median, largest = middle(values)
    rows = [{"from": low, "to": high, "count": size} for low, high, size in histogram]
    return {"mean": mean, "median": median, "max": largest, "histogram": rows}


def middle(values: Numbers) -> tuple[float, float, int]:
    """Return mean, median and largest of whole numbers, or zeros."""
    return (float(values.mean()), float(np.median(values)), int(values.max())) if len(values) else (0.0, 0.0, 0)


def bins(values: Numbers) -> list[Bin]:
    """Count whole numbers ≥ 0, from the smallest to the largest.

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
    """Count whole numbers in at most so many bins of one width, from the smallest to the largest."""
    if not len(values):
        return []
    smallest, largest = int(values.min()), int(values.max())
    width = -(-(largest - smallest + 1) // most)
    counts = np.bincount((values - smallest) // width)
    lows = range(smallest, largest + 1, width)
    return [Bin(low, min(low + width - 1, largest), int(count)) for low, count in zip(lows, counts, strict=True)]
