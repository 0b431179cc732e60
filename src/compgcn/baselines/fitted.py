"""From what nodes have to a table: a column for each thing that more than one labelled node has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compgcn.config import Classifier, Config, Training, differences
from compgcn.data import KnowledgeGraph
from compgcn.data.columns import Numbers
from compgcn.errors import InputError
from compgcn.tasks.classification import LogProbabilities

_CHUNK = 1024  # nodes whose features are made at a time

Matrix = Any  # [n, F]: an array, or a sparse one of scipy
Scores = NDArray[np.float64]  # log probabilities [n, C]
Features = Callable[[Numbers], Matrix]  # of some nodes [n]
Decide = Callable[[Matrix], Scores]


class Fitting(NamedTuple):
    """How a classifier is fitted."""

    num_classes: int
    folds: int  # of the cross-validation that chooses its own settings
    balanced: bool  # whether every class counts the same, however rare
    seed: int


class Variant(NamedTuple):
    """One way to make features, of those that a fit chooses among.

    Fields:
        settings: what makes it this one.
        table: of some nodes, what is counted or measured; variants may share it, and it is then made once.
        weigh: from that to the features.
    """

    settings: dict[str, Any]
    table: Features
    weigh: Callable[[Matrix], Matrix] = lambda table: table


class Fit(NamedTuple):
    """A classifier that is fitted: which variant it chose, its own settings, and what it says of others."""

    variant: int
    settings: dict[str, Any]
    decide: Decide


class FitOnce(NamedTuple):
    """A baseline in two steps.

    Fields:
        features: from the graph, the labelled nodes [n], train or not, and the seed, to the features of any nodes, in
            one variant or more, the simplest first. The classes of nodes are not theirs to see.
        classifier: fitted to the features of some nodes in every variant and their classes [m], of which it chooses one
            by these nodes alone, it tells the classes of others.
    """

    features: Callable[[KnowledgeGraph, Numbers, int], Sequence[Variant]]
    classifier: Callable[[Sequence[Matrix], Numbers, Fitting], Fit]


def must_not_train(config: Config) -> None:
    """Refuse settings that mean nothing where nothing is trained epoch by epoch."""
    c, t = config.classifier, config.training
    used = Classifier(
        baseline=c.baseline,
        protocol=c.protocol,
        folds=c.folds,
        inner_folds=c.inner_folds,
        class_weights=c.class_weights,
    )
    plain = Config(
        task=config.task,
        data=config.data,
        classifier=used,
        training=Training(seed=t.seed),
    )
    for change in differences(plain, config):
        setting = change.partition(":")[0]
        raise InputError(f"the baseline '{c.baseline}' is fitted once and has no {setting}; leave it out")


class Fitted:
    """Some nodes of a graph and their classes, as `compgcn.tasks.classification.Items`, for a baseline.

    Args:
        how: the baseline.
        graph: of N nodes, with labels.
        nodes, targets: which are classified, and their classes, int64 [n].
        fitting: how.
        device: where the answers are kept; features are made on the CPU.
    """

    together = True

    def __init__(
        self,
        how: FitOnce,
        graph: KnowledgeGraph,
        nodes: Tensor,
        targets: Tensor,
        fitting: Fitting,
        device: torch.device,
    ) -> None:
        self._how, self._graph, self._fitting = how, graph, fitting
        self.nodes, self.targets = nodes.to(device), targets.to(device)
        self.model = LogProbabilities(graph.num_entities, fitting.num_classes).to(device)

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
        if not len(train):
            raise InputError("there is no labelled item to train on; mark some with the split 'train'")
        rows = train.cpu().numpy()
        return self._how.classifier([x[rows] for x in self._known], self.targets.cpu().numpy()[rows], self._fitting)

    def fitted_to(self, train: Tensor, others: Tensor) -> Tensor:
        """Fitted to some of the nodes [m], the log probabilities of others [k], [k, C]."""
        fit = self._fit(train)
        return torch.from_numpy(fit.decide(self._known[fit.variant][others.cpu().numpy()])).to(self.targets.device)

    def keep(self, train: Tensor) -> dict[str, Any]:
        """Fit to some of the nodes [m], fill the model with what that says of all nodes, and return what was chosen."""
        fit, everything = self._fit(train), np.arange(self._graph.num_entities)
        variant = self._variants[fit.variant]
        chunks = (everything[i : i + _CHUNK] for i in range(0, len(everything), _CHUNK))
        parts = [fit.decide(variant.weigh(variant.table(chunk))) for chunk in chunks]
        table = self.model.get_buffer("table")
        table.copy_(torch.from_numpy(np.concatenate(parts)))
        return variant.settings | fit.settings

    def vectors(self, items: Tensor) -> Tensor:
        """Of some of the nodes [B], their log probabilities, [B, C]."""
        return self.model.get_buffer("table")[self.nodes[items]]


Describe = Callable[[Numbers], tuple[Numbers, Numbers]]  # nodes -> all they have: which of them, and a number for what

Values = NDArray[np.float64]

# What a count enters as, the simplest first.
WEIGHINGS: dict[str, Callable[[Values], Values]] = {
    "counts": lambda count: count,
    "root": np.sqrt,
    "log": np.log1p,
    "binary": np.ones_like,
}


class Adjacency(NamedTuple):
    """Edges in order of where they start.

    Fields:
        first: [N + 1], where those of each node begin.
        step: their relations [E].
        end: where they lead [E].
    """

    first: Numbers
    step: Numbers
    end: Numbers

    def follow(self, at: Numbers) -> tuple[Numbers, Numbers]:
        """For each place [n] its edges: which place they are of, and which edges they are."""
        sizes = self.first[at + 1] - self.first[at]
        before = np.cumsum(sizes) - sizes
        return np.repeat(np.arange(len(at)), sizes), np.arange(sizes.sum()) + np.repeat(self.first[at] - before, sizes)


def outgoing(triples: Numbers, num_nodes: int) -> Adjacency:
    """Of triples (s, r, o), in the direction they have."""
    order = np.lexsort((triples[:, 2], triples[:, 1], triples[:, 0]))
    start, step, end = triples[order].T
    return Adjacency(np.searchsorted(start, np.arange(num_nodes + 1)), step, end)


def both_ways(triples: Numbers, num_nodes: int, num_relations: int) -> Adjacency:
    """Of triples and their inverses, whose relations come after the originals."""
    inverses = triples[:, [2, 1, 0]] + [0, num_relations, 0]
    return outgoing(np.concatenate([triples, inverses]), num_nodes)


class Counts(NamedTuple):
    """A count in a table: of which row, in which column, how many; all [n]."""

    row: Numbers
    column: Numbers
    times: Numbers


def counter(describe: Describe, known: Numbers) -> tuple[Callable[[Numbers], Counts], int]:
    """How often other nodes have what more than one of the known ones has; and how many such things there are."""
    _, thing, _ = _counted(describe, known)
    columns, shared = np.unique(thing, return_counts=True)
    columns = columns[shared > 1]

    def counts(nodes: Numbers) -> Counts:
        if not len(nodes) or not len(columns):
            return Counts(*np.empty((3, 0), dtype=np.int64))
        row, thing, count = _counted(describe, nodes)
        column = np.searchsorted(columns, thing).clip(max=len(columns) - 1)
        there = columns[column] == thing
        return Counts(row[there], column[there], count[there])

    return counts, len(columns)


def _counted(describe: Describe, nodes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    row, thing = describe(nodes)
    order = np.lexsort((thing, row))
    row, thing = row[order], thing[order]
    new = np.ones(len(row), dtype=bool)
    new[1:] = (row[1:] != row[:-1]) | (thing[1:] != thing[:-1])
    starts = np.flatnonzero(new)
    return row[starts], thing[starts], np.diff(np.append(starts, len(row)))


def sparse(describe: Describe, known: Numbers) -> Features:
    """How often any nodes have what more than one of the known ones has, sparse."""
    from scipy.sparse import csr_array

    counts, width = counter(describe, known)

    def table(nodes: Numbers) -> Matrix:
        row, column, count = counts(nodes)
        places = row.astype(np.int32), column.astype(np.int32)  # scikit-learn takes no wider ones
        return csr_array((count.astype(np.float64), places), shape=(len(nodes), max(width, 1)))

    return table


def weighings(table: Features, **settings: Any) -> list[Variant]:
    """A variant of a sparse table for each of `WEIGHINGS`."""
    return [
        Variant({**settings, "weighting": name}, table, partial(_weigh, function=function))
        for name, function in WEIGHINGS.items()
    ]


def _weigh(counts: Matrix, function: Callable[[Values], Values]) -> Matrix:
    """A function of every count, and each row over its length: nodes that have much are no louder than others."""
    found = counts.copy()
    found.data = function(found.data)
    row = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    found.data /= np.sqrt(np.bincount(row, found.data**2, minlength=found.shape[0]))[row]
    return found
