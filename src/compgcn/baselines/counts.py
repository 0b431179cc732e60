"""From what nodes have to a table: a column for each thing that more than one labelled node has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compgcn.baselines.fitted import Features, Matrix, Variant
from compgcn.data.arrays import Numbers

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
