"""Fit a classifier once to features of nodes, and count the things that nodes have as such features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compgcn.data import KnowledgeGraph
from compgcn.data.columns import Numbers, ranges
from compgcn.tasks.classification import LogProbabilities

Matrix = Any  # [n, F]: an array, or a sparse one of scipy
Scores = NDArray[np.float64]  # log probabilities [n, C]
Features = Callable[[Numbers], Matrix]  # nodes [n] -> [n, F]
Describe = Callable[[Numbers], tuple[Numbers, Numbers]]  # nodes [n] -> all they have: places in [0, n), and things

_CHUNK = 1024  # nodes whose features are made at a time

# Weights of a count, the simplest first.
WEIGHINGS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "counts": lambda count: count,
    "root": np.sqrt,
    "log": np.log1p,
    "binary": np.ones_like,
}


class Fitting(NamedTuple):
    """A way to fit a classifier."""

    num_classes: int
    folds: int  # of the cross-validation that chooses its settings
    seed: int


class Variant(NamedTuple):
    """One of the ways to make features that a classifier chooses among."""

    settings: dict[str, Any]  # they tell it from other variants
    table: Features  # counts or measures; variants may share a table, which is then made once
    weigh: Callable[[Matrix], Matrix] = lambda table: table  # from the table to the features


class Fit(NamedTuple):
    """A fitted classifier: its variant, its own settings, and its decisions on features [n, F]."""

    variant: int
    settings: dict[str, Any]
    decide: Callable[[Matrix], Scores]


class FitOnce(NamedTuple):
    """A baseline in two steps: features that see no classes, and a classifier of some nodes that chooses a variant."""

    features: Callable[[KnowledgeGraph, Numbers, int], Sequence[Variant]]  # labelled nodes [n], seed; simplest first
    classifier: Callable[[Sequence[Matrix], Numbers, Fitting], Fit]  # features in every variant, classes [m]


class Fitted:
    """Nodes and their classes [n] for a baseline, in the shape of `compgcn.tasks.classification.Items`.

    The answers stay on the device of the nodes; features are made on the CPU.
    """

    together = True

    def __init__(self, how: FitOnce, graph: KnowledgeGraph, nodes: Tensor, targets: Tensor, fitting: Fitting) -> None:
        self._how, self._graph, self._fitting = how, graph, fitting
        self.nodes, self.targets = nodes, targets
        self.model = LogProbabilities(graph.num_entities, fitting.num_classes).to(nodes.device)

    @cached_property
    def _variants(self) -> Sequence[Variant]:
        return self._how.features(self._graph, self.nodes.cpu().numpy(), self._fitting.seed)

    @cached_property
    def _known(self) -> list[Matrix]:
        """Features of the nodes in every variant, [n, F]."""
        nodes = self.nodes.cpu().numpy()
        tables = {table: table(nodes) for table in dict.fromkeys(variant.table for variant in self._variants)}
        return [variant.weigh(tables[variant.table]) for variant in self._variants]

    def _fit(self, train: Tensor) -> Fit:
        rows = train.cpu().numpy()
        return self._how.classifier([x[rows] for x in self._known], self.targets.cpu().numpy()[rows], self._fitting)

    def fitted_to(self, train: Tensor, others: Tensor) -> Tensor:
        """Fit to some of the nodes [m]; return the log probabilities of others, [k, C] of [k]."""
        fit = self._fit(train)
        return torch.from_numpy(fit.decide(self._known[fit.variant][others.cpu().numpy()])).to(self.targets.device)

    def keep(self, train: Tensor) -> dict[str, Any]:
        """Fit to some of the nodes [m], fill the model for all nodes of the graph, and return the chosen settings."""
        fit, everything = self._fit(train), np.arange(self._graph.num_entities)
        variant = self._variants[fit.variant]
        chunks = (everything[i : i + _CHUNK] for i in range(0, len(everything), _CHUNK))
        parts = [fit.decide(variant.weigh(variant.table(chunk))) for chunk in chunks]
        self.model.get_buffer("table").copy_(torch.from_numpy(np.concatenate(parts)))
        return variant.settings | fit.settings

    def vectors(self, items: Tensor) -> Tensor:
        """Return the log probabilities of some of the nodes, [B, C] of [B]."""
        return self.model.get_buffer("table")[self.nodes[items]]


class Adjacency(NamedTuple):
    """Edges ordered by the node they start from."""

    first: Numbers  # the first edge of each node, and the number of edges [N + 1]
    step: Numbers  # relations [E]
    end: Numbers  # nodes [E]

    def follow(self, at: Numbers) -> tuple[Numbers, Numbers]:
        """Return all edges of nodes [n]: the place of their node in [0, n), and their own number."""
        sizes = self.first[at + 1] - self.first[at]
        return np.repeat(np.arange(len(at)), sizes), ranges(self.first[at], sizes)


def outgoing(triples: Numbers, num_nodes: int) -> Adjacency:
    """Return the edges of triples (s, r, o) from s to o."""
    order = np.lexsort((triples[:, 2], triples[:, 1], triples[:, 0]))
    start, step, end = triples[order].T
    return Adjacency(np.searchsorted(start, np.arange(num_nodes + 1)), step, end)


def both_ways(triples: Numbers, num_nodes: int, num_relations: int) -> Adjacency:
    """Return the edges of triples and of their inverses, whose relations are r + R."""
    inverses = triples[:, [2, 1, 0]] + [0, num_relations, 0]
    return outgoing(np.concatenate([triples, inverses]), num_nodes)


def counter(describe: Describe, known: Numbers) -> tuple[Callable[[Numbers], tuple[Numbers, Numbers, Numbers]], int]:
    """Return a function that counts, for any nodes, the things that more than one known node has, and their number.

    The function returns row, column and count of every cell of its table that is not zero.
    """
    row, thing = describe(known)
    things, place = np.unique(thing, return_inverse=True)
    cells, _ = np.unique(row * len(things) + place, return_counts=True)
    columns = things[np.bincount(cells % max(len(things), 1), minlength=len(things)) > 1]

    def counts(nodes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        row, thing = describe(nodes)
        there = np.isin(thing, columns)
        cells, times = np.unique(row[there] * len(columns) + np.searchsorted(columns, thing[there]), return_counts=True)
        return *np.divmod(cells, max(len(columns), 1)), times

    return counts, len(columns)


def sparse(describe: Describe, known: Numbers) -> Features:
    """Return a function that makes the table of `counter` as a sparse matrix."""
    from scipy.sparse import csr_array

    counts, width = counter(describe, known)

    def table(nodes: Numbers) -> Matrix:
        row, column, count = counts(nodes)
        places = row.astype(np.int32), column.astype(np.int32)  # scikit-learn takes no wider ones
        return csr_array((count.astype(np.float64), places), shape=(len(nodes), max(width, 1)))

    return table


def weighings(table: Features, **settings: Any) -> list[Variant]:
    """Return a variant of a sparse table for each of `WEIGHINGS`."""
    return [
        Variant({**settings, "weighting": name}, table, partial(_weigh, function=function))
        for name, function in WEIGHINGS.items()
    ]


def _weigh(counts: Matrix, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Matrix:
    """Weigh every count and scale each row to length 1."""
    from sklearn.preprocessing import normalize

    found = counts.copy()
    found.data = function(found.data)
    return normalize(found, copy=False)
