"""Many small graphs, each with a class, as one disjoint union: the data of graph classification."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from compgcn.data.arrays import Features, Numbers, checked_features, counted, keys
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError


@dataclass(frozen=True, eq=False)
class GraphCollection:
    """G graphs over one set of relations, their nodes numbered through, and the class of each graph.

    Args:
        name: what to call it in reports.
        relations: R ids, the labels of edges; R = 1 where edges have none.
        classes: the names of the classes.
        graph_of: int64 [N], the graph of each node, sorted: the nodes of a graph, at least one, stand together.
        triples: int64 [E, 3], rows (source node, relation, target node); both nodes in one graph. They are put in the
            order of the graphs; within a graph they keep theirs.
        targets: int64 [G], the class of each graph.
        node_labels: int64 [N], rows of `node_classes`, or None.
        node_classes: the names of the labels of nodes.
        node_features: float32 [N, f], or None.
        graph_ids: what each graph is called where it came from; 0 .. G-1 when not given.
        notes: what was noticed on the way in, a sentence each.
        origin: what reads this collection again, where that is known.
    """

    name: str
    relations: Vocabulary
    classes: tuple[str, ...]
    graph_of: Numbers
    triples: Numbers
    targets: Numbers
    node_labels: Numbers | None = None
    node_classes: tuple[str, ...] = ()
    node_features: Features | None = None
    graph_ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        G, N = len(self.targets), len(self.graph_of)
        graph_of = _rows("graph of each node", self.graph_of, G, "graphs")
        targets = _rows("targets", self.targets, len(self.classes), "classes")
        if (np.diff(graph_of) < 0).any():
            raise InputError("the nodes of a graph must stand together: sort graph_of, and renumber the nodes with it")
        empty = np.flatnonzero(np.bincount(graph_of, minlength=G) == 0)
        if len(empty):
            raise InputError(f"graph {empty[0]} has no node; every graph needs at least one")
        ids = tuple(self.graph_ids) or tuple(str(g) for g in range(G))
        if len(ids) != G:
            raise InputError(f"{len(ids)} graph ids were given for {G} graphs; give one id per graph")
        kept = {"graph_of": graph_of, "targets": targets, "graph_ids": ids, "classes": tuple(self.classes)}
        kept["triples"] = _edges(self.triples, graph_of, len(self.relations))
        if self.node_labels is not None:
            kept["node_labels"] = _rows("node labels", self.node_labels, len(self.node_classes), "node classes", N)
        if self.node_features is not None:
            kept["node_features"] = checked_features("node", self.node_features, {N: "N"})
        for key, value in kept.items():
            object.__setattr__(self, key, value)

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        n = self.statistics()
        sizes = f"{n['graphs']:,} graphs, {n['nodes']:,} nodes, {n['edges']:,} edges, {n['classes']:,} classes"
        return f"GraphCollection('{self.name}': {sizes})"

    @property
    def num_nodes(self) -> int:
        return len(self.graph_of)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @cached_property
    def node_starts(self) -> Numbers:
        """The nodes of graph g are node_starts[g] .. node_starts[g + 1]. [G + 1]"""
        return _starts(self.graph_of, len(self))

    @cached_property
    def edge_starts(self) -> Numbers:
        """The edges of graph g are edge_starts[g] .. edge_starts[g + 1]. [G + 1]"""
        return _starts(self.graph_of[self.triples[:, 0]], len(self))

    @cached_property
    def both_directions(self) -> bool:
        """Whether every edge stands there in the other direction too, so that inverses would only repeat it."""
        return not _one_way(self.triples, self.num_nodes, self.num_relations)

    def statistics(self) -> dict[str, int | float]:
        """The sizes a paper's table of data sets gives; an edge in both directions counts as two."""
        G, N, E = len(self), self.num_nodes, len(self.triples)
        return {
            "graphs": G,
            "nodes": N,
            "edges": E,
            "relations": self.num_relations,
            "node_labels": len(self.node_classes),
            "classes": len(self.classes),
            "mean_nodes": N / max(G, 1),
            "mean_edges": E / max(G, 1),
        }

    def fingerprint(self) -> str:
        """sha256 over the graphs, their ids, classes, labels and features: equal data gives equal fingerprints."""
        digest = hashlib.sha256()
        for kind, texts in (
            ("relation", self.relations.ids),
            ("class", self.classes),
            ("node class", self.node_classes),
            ("graph", self.graph_ids),
        ):
            digest.update(f"{kind} {len(texts)}\n".encode())
            digest.update("".join(f"{len(text)}:{text}" for text in texts).encode("utf-8", "surrogatepass"))
        for kind, values in (
            ("graph of", self.graph_of),
            ("triples", self.triples),
            ("targets", self.targets),
            ("node labels", self.node_labels),
            ("node features", self.node_features),
        ):
            if values is not None:
                digest.update(f"\n{kind} {values.shape}\n".encode())
                digest.update(values.astype("<f4" if values.dtype == np.float32 else "<i8").tobytes())
        return digest.hexdigest()

    def subset(self, indices: Sequence[int] | Numbers) -> GraphCollection:
        """The graphs with these numbers, in this order, their nodes renumbered; relations and classes stay whole."""
        chosen = _rows("graphs of a subset", indices, len(self), "graphs")
        nodes, sizes = _ranges(self.node_starts, chosen)
        edges, edge_sizes = _ranges(self.edge_starts, chosen)
        shift = np.cumsum(sizes) - sizes - self.node_starts[chosen]  # [G'], new number of a node - its old one
        triples = self.triples[edges]
        triples[:, [0, 2]] += np.repeat(shift, edge_sizes)[:, None]
        return GraphCollection(
            self.name,
            self.relations,
            self.classes,
            graph_of=np.repeat(np.arange(len(chosen)), sizes),
            triples=triples,
            targets=self.targets[chosen],
            node_labels=None if self.node_labels is None else self.node_labels[nodes],
            node_classes=self.node_classes,
            node_features=None if self.node_features is None else self.node_features[nodes],
            graph_ids=tuple(self.graph_ids[g] for g in chosen),
            origin=self.origin,
        )


def observe(collection: GraphCollection) -> list[str]:
    """What someone who trains on the graphs should know; none of it changes them."""
    triples, N, R = collection.triples, collection.num_nodes, collection.num_relations
    repeated = len(triples) - len(np.unique(keys(triples, N, R)))
    loops = int((triples[:, 0] == triples[:, 2]).sum())
    lonely = int((np.diff(collection.edge_starts) == 0).sum())
    one_way = _one_way(triples, N, R)
    notes = []
    if repeated:
        notes.append(f"{counted(repeated, 'repeated edge')} kept")
    if loops:
        notes.append(f"{counted(loops, 'self-loop')} kept")
    if lonely:
        notes.append(f"{counted(lonely, 'graph')} without an edge kept")
    if len(triples) and not one_way:
        notes.append("every edge stands there in both directions")
    elif one_way < len(triples):
        notes.append(f"{counted(one_way, 'edge')} of {len(triples):,} in one direction only")
    return notes


def _one_way(triples: Numbers, num_nodes: int, num_relations: int) -> int:
    """The number of edges whose mirror image (target, relation, source) is not there."""
    mirrored = keys(triples[:, ::-1], num_nodes, num_relations)
    return int((~np.isin(keys(triples, num_nodes, num_relations), mirrored)).sum())


def _rows(what: str, given: Any, size: int, of: str, length: int | None = None) -> Numbers:
    """Whole numbers 0 .. size-1 as int64 [n]."""
    values = np.asarray(given)
    if not values.size:
        values = values.astype(np.int64)  # an empty list has no kind
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InputError(f"the {what} must be a list of whole numbers, not {values.dtype} of shape {values.shape}")
    if length is not None and len(values) != length:
        raise InputError(f"{len(values)} {what} were given for {length} nodes; give one per node")
    wrong = np.flatnonzero((values < 0) | (values >= size))
    if len(wrong):
        raise InputError(f"the {what} refer to {values[wrong[0]]}, beyond the {size} {of} there are")
    return np.ascontiguousarray(values, dtype=np.int64)


def _edges(given: Any, graph_of: Numbers, num_relations: int) -> Numbers:
    """The triples, checked and in the order of their graphs."""
    values = np.asarray(given)
    if values.ndim != 2 or values.shape[1] != 3 or values.dtype.kind not in "iu":
        raise InputError(f"the triples must be whole numbers of shape [E, 3], not {values.dtype} of {values.shape}")
    sizes = np.array([len(graph_of), num_relations, len(graph_of)])
    if ((values < 0) | (values >= sizes)).any():
        raise InputError(f"the triples refer to rows beyond the {sizes[0]} nodes and {num_relations} relations")
    triples = np.ascontiguousarray(values, dtype=np.int64)
    home, other = graph_of[triples[:, 0]], graph_of[triples[:, 2]]
    across = np.flatnonzero(home != other)
    if len(across):
        row = int(across[0])
        raise InputError(f"edge {row} goes from graph {home[row]} to graph {other[row]}; edges must stay in one graph")
    return triples[np.argsort(home, kind="stable")]


def _starts(sorted_groups: Numbers, size: int) -> Numbers:
    """Where each of `size` groups starts in a sorted list of them, and the end of the last. [size + 1]"""
    return np.searchsorted(sorted_groups, np.arange(size + 1)).astype(np.int64)


def _ranges(starts: Numbers, chosen: Numbers) -> tuple[Numbers, Numbers]:
    """The members of the chosen groups, one group after the other, and the size of each."""
    sizes = starts[chosen + 1] - starts[chosen]
    before = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(starts[chosen] - before, sizes), sizes
