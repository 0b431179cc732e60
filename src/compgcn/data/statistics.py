"""The figures that describe a data set: how its nodes, relations and labels are distributed, and what it gives away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compgcn.data.collection import GraphCollection
from compgcn.data.columns import keys
from compgcn.data.graph import KnowledgeGraph
from compgcn.errors import InputError

Numbers = NDArray[np.int64]
_Flags = NDArray[np.bool_]

SHARE = 0.8  # of the smaller relation's pairs; above it two relations count as saying the same
LEAST = 3  # pairs they must have in common: two facts may agree by chance


@dataclass(frozen=True)
class Given:
    """Of the facts (s, r, o) of a split, how many train gives away, and how; one fact may count in several ways."""

    triples: int
    copies: int  # (s, r, o) itself is in train
    symmetric: int  # (o, r, s) is, s ≠ o
    near_duplicates: int  # (s, r', o) is, r' ≠ r
    inverses: int  # (o, r', s) is, r' ≠ r, s ≠ o
    any: int  # one of these
    copy_rule: int  # a symmetric relation, or a pair of relations of the report, answers it out of train

    @property
    def copy_rule_share(self) -> float:
        return self.copy_rule / self.triples if self.triples else 0.0


class Overlap(NamedTuple):
    """Two relations that say the same, or the same with subject and object exchanged; or one and its mirror image."""

    relation: int
    other: int
    shared: int  # ordered pairs (s, o) of the smaller one that the other one has, as they are or exchanged
    pairs: int  # of the smaller one

    @property
    def share(self) -> float:
        return self.shared / self.pairs


@dataclass(frozen=True)
class Leakage:
    """The report on a graph.

    Fields:
        splits: what train gives away of valid and of test.
        duplicates, inverses: pairs of relations, most facts first.
        symmetric: relations that are their own inverse, most facts first.
        share, least: what two relations must have in common to stand here.
    """

    splits: dict[str, Given]
    duplicates: tuple[Overlap, ...]
    inverses: tuple[Overlap, ...]
    symmetric: tuple[Overlap, ...]
    share: float
    least: int

    def as_dict(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The report as JSON has it, relations by their names."""

        def pairs(overlaps: tuple[Overlap, ...]) -> list[dict[str, Any]]:
            return [
                {"relation": names[a.relation], "other": names[a.other], "shared": a.shared, "pairs": a.pairs}
                for a in overlaps
            ]

        return {
            **{
                part: {**asdict(given), "copy_rule_share": given.copy_rule_share} for part, given in self.splits.items()
            },
            "near_duplicate_relations": pairs(self.duplicates),
            "inverse_relations": pairs(self.inverses),
            "symmetric_relations": [{k: v for k, v in row.items() if k != "other"} for row in pairs(self.symmetric)],
            "threshold": self.share,
            "least": self.least,
        }


def report(graph: KnowledgeGraph, *, share: float = SHARE, least: int = LEAST) -> Leakage:
    """What train gives away about valid and test.

    Two relations are near-duplicates if they have `share` of the smaller one's pairs (s, o) in common, and inverses if
    that is so with one's pairs exchanged; a relation is symmetric if it has `share` of its own pairs exchanged. Pairs
    are taken from all three splits, since a split hides part of what relations have in common, and only between
    different entities, since a self-loop is its own mirror image.

    Args:
        graph: its three splits.
        share: above 0, at most 1.
        least: pairs in common below which nothing is said.
    """
    if not 0 < share <= 1:
        raise InputError(f"the share of pairs in common must be above 0 and at most 1; given {share}")
    N, R = graph.num_entities, graph.num_relations
    facts = _distinct(np.concatenate(list(graph.splits.values())), N, R)
    facts = facts[facts[:, 0] != facts[:, 2]]
    sizes = np.bincount(facts[:, 1], minlength=R)
    same, mirrored = _overlaps(facts, N, R)
    duplicates = _kept(same, sizes, R, share, least)
    inverses = _kept(mirrored, sizes, R, share, least)
    symmetric = tuple(pair for pair in inverses if pair.relation == pair.other)
    inverses = tuple(pair for pair in inverses if pair.relation != pair.other)
    train = _Index(_distinct(graph.train, N, R), N, R)
    rules = _codes(duplicates, R), _codes((*inverses, *symmetric), R)
    splits = {part: _given(graph.splits[part], train, *rules) for part in ("valid", "test")}
    return Leakage(splits, duplicates, inverses, symmetric, share, least)


def _distinct(triples: Numbers, N: int, R: int) -> Numbers:
    _, where = np.unique(keys(triples, N, R), return_index=True)
    return triples[where]


def _overlaps(facts: Numbers, N: int, R: int) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]]:
    """How often two relations hold over one pair of entities: the same way round, and exchanged.

    Facts over one unordered pair stand together; each is compared with the next in its group, the one after that, and
    so on, all groups at once, as long as there is a group that long.

    Args:
        facts: [n, 3], distinct, without self-loops.

    Returns, for both, the codes r * R + r' with r ≤ r', and the number of pairs (s, o) for each.
    """
    s, r, o = facts.T
    pair = np.minimum(s, o) * N + np.maximum(s, o)
    order = np.argsort(pair, kind="stable")
    pair, rel, forward = pair[order], r[order], (s < o)[order]
    at = np.arange(len(pair))
    found: tuple[list[Numbers], list[Numbers]] = ([], [])
    for step in range(1, len(pair)):
        at = at[at + step < len(pair)]
        at = at[pair[at] == pair[at + step]]
        if not len(at):
            break
        one, two = rel[at], rel[at + step]
        code = np.minimum(one, two) * R + np.maximum(one, two)
        exchanged = forward[at] != forward[at + step]
        found[0].append(code[~exchanged])
        found[1].append(code[exchanged])
    same, mirrored = (_counted(np.concatenate([np.empty(0, dtype=np.int64), *codes])) for codes in found)
    return same, mirrored


def _counted(codes: Numbers) -> tuple[Numbers, Numbers]:
    values, counts = np.unique(codes, return_counts=True)
    return values, counts


def _kept(overlaps: tuple[Numbers, Numbers], sizes: Numbers, R: int, share: float, least: int) -> tuple[Overlap, ...]:
    """Those that have enough in common, most facts first."""
    codes, counts = overlaps
    one, two = codes // R, codes % R
    shared = np.where(
        one == two, 2 * counts, counts
    )  # of a relation and itself both pairs (s, o) and (o, s) are its own
    smaller = np.minimum(sizes[one], sizes[two])
    rows = np.flatnonzero((shared >= share * smaller) & (shared >= least))
    rows = rows[np.argsort(-shared[rows], kind="stable")]
    return tuple(Overlap(int(one[i]), int(two[i]), int(shared[i]), int(smaller[i])) for i in rows)


def _codes(overlaps: tuple[Overlap, ...], R: int) -> Numbers:
    """r * R + r' for both orders of every pair, sorted."""
    both = {a * R + b for pair in overlaps for a, b in ((pair.relation, pair.other), (pair.other, pair.relation))}
    return np.array(sorted(both), dtype=np.int64)


class _Index:
    """The distinct facts of train by their pair of entities."""

    def __init__(self, facts: Numbers, N: int, R: int) -> None:
        self.N, self.R = N, R
        pair = facts[:, 0] * N + facts[:, 2]
        order = np.lexsort((facts[:, 1], pair))
        self.pair, self.relation = pair[order], facts[order, 1]

    def ranges(self, s: Numbers, o: Numbers) -> tuple[Numbers, Numbers]:
        """Where the facts over (s, o) start and end. [n], [n]"""
        wanted = s * self.N + o
        return np.searchsorted(self.pair, wanted, "left"), np.searchsorted(self.pair, wanted, "right")

    def relations(self, s: Numbers, o: Numbers) -> tuple[Numbers, Numbers]:
        """The query and the relation of each fact over (s, o). [m], [m]"""
        start, end = self.ranges(s, o)
        many = end - start
        query = np.repeat(np.arange(len(s)), many)
        within = np.arange(len(query)) - np.repeat(np.cumsum(many) - many, many)
        return query, self.relation[np.repeat(start, many) + within]


def _given(triples: Numbers, train: _Index, same: Numbers, mirrored: Numbers) -> Given:
    s, r, o = triples.T
    straight = s != o
    copies, duplicates, by_same = _match(train, s, r, o, same)
    symmetric, inverses, by_mirrored = (flags & straight for flags in _match(train, o, r, s, mirrored))
    return Given(
        triples=len(triples),
        copies=int(copies.sum()),
        symmetric=int(symmetric.sum()),
        near_duplicates=int(duplicates.sum()),
        inverses=int(inverses.sum()),
        any=int((copies | symmetric | duplicates | inverses).sum()),
        copy_rule=int((by_same | by_mirrored).sum()),
    )


def _match(train: _Index, s: Numbers, r: Numbers, o: Numbers, rules: Numbers) -> tuple[_Flags, _Flags, _Flags]:
    """For each (s, r, o), whether train has it, has an (s, r', o), and has one with r, r' among the rules. [n] each"""
    query, relation = train.relations(s, o)
    own = relation == r[query]
    ruled = np.isin(r[query] * train.R + relation, rules)
    flags = [np.zeros(len(s), dtype=bool) for _ in range(3)]
    for flag, hits in zip(flags, (own, ~own, ruled), strict=True):
        flag[query[hits]] = True
    return flags[0], flags[1], flags[2]


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
    leakage: Leakage | None

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
        leakage=report(graph) if held_out else None,
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
