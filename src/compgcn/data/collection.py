"""Collections of graphs to classify: the class, folds, tables of graphs, and folders in the TU format."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compgcn.data.columns import (
    Columns,
    Features,
    Numbers,
    check_columns,
    checked_features,
    checked_rows,
    counted,
    joined,
    keys,
    numbered,
    quoted,
    ranges,
)
from compgcn.data.tables import text
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError

log = logging.getLogger(__name__)

_GRAPH = {"graph", "graph_id", "g", "molecule", "molecule_id", "id"}
_NODE = {"node", "node_id", "atom", "atom_id", "head", "subject", "source", "from", "s", "h", "src"}
_RELATION = {"relation", "predicate", "rel", "r", "p", "edge", "type", "label", "bond"}
_OTHER = {"tail", "object", "target", "to", "o", "t", "dst"}
_CLASS = {"label", "class", "y", "target", "type", "element", "name"}
_EDGES = "_A.txt"
_UNUSED = ("_edge_attributes.txt", "_graph_attributes.txt")


@dataclass(frozen=True, eq=False)
class GraphCollection:
    """G graphs over one set of relations, their nodes numbered through, and the class of each graph.

    Args:
        name: the name in reports.
        relations: R ids, the labels of edges; R = 1 if edges have none.
        classes: the names of the classes.
        graph_of: int64 [N], the graph of each node, sorted; every graph has a node.
        triples: int64 [E, 3], rows (source node, relation, target node), both nodes in one graph. They are put in the
            order of the graphs; within a graph they keep theirs.
        targets: int64 [G], the class of each graph.
        node_labels: int64 [N], rows of `node_classes`, or None.
        node_classes: the names of the labels of nodes.
        node_features: float32 [N, f], or None.
        graph_ids: the id of each graph; 0 .. G-1 by default.
        notes: remarks of the reader, a sentence each.
        origin: settings that read this collection again, if known.
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
        graph_of = checked_rows("graphs of the nodes", self.graph_of, G)
        targets = checked_rows("targets", self.targets, len(self.classes))
        if (np.diff(graph_of) < 0).any():
            raise InputError("the nodes of a graph must stand together: sort graph_of, and renumber the nodes with it")
        empty = np.flatnonzero(np.bincount(graph_of, minlength=G) == 0)
        if len(empty):
            raise InputError(f"graph {empty[0]} has no node; every graph needs at least one")
        ids = tuple(self.graph_ids) or tuple(str(g) for g in range(G))
        if len(ids) != G:
            raise InputError(f"{len(ids)} graph ids were given for {G} graphs; give one id per graph")
        triples = checked_rows("triples", self.triples, N, len(self.relations), N)
        home, other = graph_of[triples[:, 0]], graph_of[triples[:, 2]]
        across = np.flatnonzero(home != other)
        if len(across):
            what = f"edge {across[0]} goes from graph {home[across[0]]} to graph {other[across[0]]}"
            raise InputError(f"{what}; edges must stay in one graph")
        kept: dict[str, Any] = {"graph_of": graph_of, "targets": targets, "graph_ids": ids}
        kept["classes"] = tuple(self.classes)
        kept["triples"] = triples[np.argsort(home, kind="stable")]
        if self.node_labels is not None:
            kept["node_labels"] = checked_rows("node labels", self.node_labels, len(self.node_classes))
            if len(kept["node_labels"]) != N:
                raise InputError(f"{len(self.node_labels)} node labels were given for {N} nodes; give one per node")
        if self.node_features is not None:
            kept["node_features"] = checked_features("node", self.node_features, N)
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
        """First node of each graph, and the end of the last. [G + 1]"""
        return np.searchsorted(self.graph_of, np.arange(len(self) + 1))

    @cached_property
    def edge_starts(self) -> Numbers:
        """First edge of each graph, and the end of the last. [G + 1]"""
        return np.searchsorted(self.graph_of[self.triples[:, 0]], np.arange(len(self) + 1))

    @cached_property
    def both_directions(self) -> bool:
        """Whether every edge is there in the other direction too, so that inverses would only repeat it."""
        return not _one_way(self)

    def statistics(self) -> dict[str, int | float]:
        """Return the sizes that a paper's table of data sets gives; an edge in both directions counts as two."""
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
        """Return a sha256 over the graphs, their ids, classes, labels and features."""
        digest = hashlib.sha256()
        texts = {"relation": self.relations.ids, "class": self.classes, "node class": self.node_classes}
        for kind, names in {**texts, "graph": self.graph_ids}.items():
            digest.update(f"{kind} {len(names)}\n".encode() + joined(names))
        arrays = {"graph of": self.graph_of, "triples": self.triples, "targets": self.targets}
        for kind, values in {**arrays, "node labels": self.node_labels, "node features": self.node_features}.items():
            if values is not None:
                form = "<f4" if values.dtype == np.float32 else "<i8"
                digest.update(f"\n{kind} {values.shape}\n".encode() + values.astype(form).tobytes())
        return digest.hexdigest()

    def subset(self, indices: Sequence[int] | Numbers) -> GraphCollection:
        """Return the graphs with these numbers, in this order, with their nodes renumbered."""
        chosen = checked_rows("graphs of a subset", indices, len(self))
        sizes, edge_sizes = np.diff(self.node_starts)[chosen], np.diff(self.edge_starts)[chosen]
        nodes = ranges(self.node_starts[chosen], sizes)
        shift = np.cumsum(sizes) - sizes - self.node_starts[chosen]  # [G'], new number of a node - its old one
        triples = self.triples[ranges(self.edge_starts[chosen], edge_sizes)]
        triples[:, [0, 2]] += np.repeat(shift, edge_sizes)[:, None]
        return replace(
            self,
            graph_of=np.repeat(np.arange(len(chosen)), sizes),
            triples=triples,
            targets=self.targets[chosen],
            node_labels=None if self.node_labels is None else self.node_labels[nodes],
            node_features=None if self.node_features is None else self.node_features[nodes],
            graph_ids=tuple(self.graph_ids[g] for g in chosen),
            notes=(),
        )


def _one_way(collection: GraphCollection) -> int:
    """Return the number of edges without a mirror image (target, relation, source)."""
    triples, sizes = collection.triples, (collection.num_nodes, collection.num_relations)
    return int((~np.isin(keys(triples, *sizes), keys(triples[:, ::-1], *sizes))).sum())


def folds(targets: Sequence[int] | Numbers, k: int, seed: int = 0) -> list[Numbers]:
    """Deal examples, by their classes [n], over k folds; class counts and fold sizes differ by at most one."""
    classes = np.asarray(targets)
    n = len(classes)
    if not 2 <= k <= n:
        what = f"{counted(n, 'example')} cannot be dealt over {k} folds"
        raise InputError(f"{what}; give a number from 2 to the number of examples")
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(n), classes))  # by class, within a class by chance
    fold = np.empty(n, dtype=np.int64)
    fold[order] = rng.permutation(k)[np.arange(n) % k]
    return [np.flatnonzero(fold == i) for i in range(k)]


def read_graphs(
    path: str | Path,
    *,
    labels: str | Path,
    nodes: str | Path | None = None,
    name: str | None = None,
    label_columns: Columns | None = None,
) -> GraphCollection:
    """Read graphs from a table of triples with a column for the graph, and a table of their classes.

    Ids of nodes belong to their graph: node 1 of one graph is not node 1 of another. Graphs stand in the order of the
    table of classes, nodes in the order of first appearance. Headers are skipped.

    Args:
        path: columns graph, source, relation, target; .tsv, .txt or .csv, compressed or not.
        labels: columns graph, class.
        nodes: columns graph, node, label; then it must list every node, and a graph needs no edges.
        name: the name in reports; by default that of the file.
        label_columns: names, or positions from 0 on, of graph and class in `labels`; by default the only two.
    """
    notes: list[str] = []
    edges = _rows(path, [_GRAPH, _NODE, _RELATION, _OTHER], notes)
    labelled = _rows(labels, [_GRAPH, _CLASS], notes, label_columns)
    listed = _rows(nodes, [_GRAPH, _NODE, _CLASS], notes) if nodes else []

    class_of = dict(labelled)
    _check_owners(labels, [graph for graph, _ in labelled], [row[0] for row in (*edges, *listed)])
    order = numbered(class_of)
    mentioned = [row[:2] for row in listed] + [(graph, end) for graph, s, _, o in edges for end in (s, o)]
    number = numbered(sorted(mentioned, key=lambda node: order[node[0]]))  # by graph, then in order of appearance
    times = Counter(row[:2] for row in listed)
    wrong = sum(times[node] != 1 for node in number)
    if nodes and wrong:
        raise InputError(f"'{nodes}' must have one line for each node of '{path}', not so for {counted(wrong, 'node')}")
    row_of = numbered(graph for graph, _ in number)
    left_out = [graph for graph in class_of if graph not in row_of]
    if left_out:
        what = counted(len(left_out), "labelled graph")
        notes.append(f"{what} without a triple or node left out: {quoted(left_out)}")
    relations = numbered(relation for _, _, relation, _ in edges)
    classes, targets = np.unique([class_of[graph] for graph in row_of], return_inverse=True)
    label_of = {row[:2]: row[2] for row in listed}
    node_classes, node_labels = np.unique([label_of.get(node, "") for node in number], return_inverse=True)
    files = {"source": path, "labels": labels, "node_labels": nodes}
    origin: dict[str, Any] = {key: str(file) for key, file in files.items() if file}
    collection = GraphCollection(
        name or Path(path).name.split(".")[0] or "graphs",
        Vocabulary("relation", list(relations)),
        tuple(classes.tolist()),
        graph_of=np.array([row_of[graph] for graph, _ in number]),
        triples=np.array([(number[graph, s], relations[r], number[graph, o]) for graph, s, r, o in edges]),
        targets=targets,
        node_labels=node_labels if nodes else None,
        node_classes=tuple(node_classes.tolist()) if nodes else (),
        graph_ids=tuple(row_of),
        origin=origin if label_columns is None else origin | {"label_columns": tuple(label_columns)},
    )
    return noted(collection, notes)


def _rows(
    path: str | Path, words: Sequence[set[str]], notes: list[str], chosen: Columns | None = None
) -> list[tuple[Any, ...]]:
    """Return the rows of a table, of all columns or of the chosen ones, without a line that names them."""
    table = text(path)
    if chosen is not None:
        check_columns(chosen, len(words), "graph and class")
    elif len(words) == 2 and (width := len(table.header())) > 2:
        what = "expected graph and class alone, as graphs are cross-validated and have no split"
        raise InputError(f"'{path}' has {width} columns: {what}; say with label_columns which two to read")
    columns, skipped = table.columns(words, chosen)
    notes += skipped
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _check_owners(labels: str | Path, labelled: Sequence[str], used: Sequence[str]) -> None:
    """Refuse graphs with no class or with several."""
    twice = [graph for graph, times in Counter(labelled).items() if times > 1]
    if twice:
        raise InputError(f"'{labels}' gives a graph more than one line: {quoted(twice)}; give each one class")
    known = set(labelled)
    missing = [graph for graph in dict.fromkeys(used) if graph not in known]
    if missing:
        raise InputError(f"'{labels}' has no class for {counted(len(missing), 'graph')}: {quoted(missing)}")


def noted(collection: GraphCollection, notes: Sequence[str] = ()) -> GraphCollection:
    """Return the collection with the notes of its reader, and notes on odd edges and graphs, all of which it keeps."""
    triples, N, R = collection.triples, collection.num_nodes, collection.num_relations
    repeated = len(triples) - len(np.unique(keys(triples, N, R)))
    loops = int((triples[:, 0] == triples[:, 2]).sum())
    lonely = int((np.diff(collection.edge_starts) == 0).sum())
    counts = ((repeated, "repeated edge", ""), (loops, "self-loop", ""), (lonely, "graph", " without an edge"))
    found = [f"{counted(count, noun)}{rest} kept" for count, noun, rest in counts if count]
    one_way = _one_way(collection)
    if len(triples) and not one_way:
        found.append("every edge is there in both directions")
    elif one_way < len(triples):
        found.append(f"{counted(one_way, 'edge')} of {len(triples):,} in one direction only")
    collection = replace(collection, notes=(*notes, *found))
    for note in collection.notes:
        log.info("%s: %s", collection.name, note)
    return collection


def found(folder: str | Path) -> bool:
    """Return whether a folder looks like one in the TU format."""
    return Path(folder).is_dir() and any(Path(folder).glob(f"*{_EDGES}"))


def read(source: str | Path | Iterable[Path], *, name: str | None = None) -> GraphCollection:
    """Read a collection in the TU format: text files, one of them named `<name>_A.txt`.

    Nodes and graphs are numbered from 1, in the order of their lines. `_A` lists edges `i, j`, as a rule in both
    directions; `_graph_indicator` has the graph of each node, `_graph_labels` the class of each graph. Optional are
    `_edge_labels` (the relations), `_node_labels` and `_node_attributes`.

    Args:
        source: a folder, or the files of one.
        name: the name in reports; by default the prefix of the files.
    """
    origin = {"source": str(source)} if isinstance(source, (str, Path)) else {}
    if isinstance(source, (str, Path)):
        if not Path(source).is_dir():
            raise InputError(f"'{source}' is not a folder; the TU format is a folder with a file '*{_EDGES}'")
        source = Path(source).iterdir()
    files = {path.name: path for path in source}
    prefixes = sorted(file.removesuffix(_EDGES) for file in files if file.endswith(_EDGES))
    if len(prefixes) != 1:
        raise InputError(f"expected one file '*{_EDGES}', found {', '.join(prefixes) or 'none'}")
    prefix = prefixes[0]
    classes, targets = _labels(_table(files, f"{prefix}_graph_labels.txt", 1))
    graph_of = _numbered(files, f"{prefix}_graph_indicator.txt", 1, len(targets))[:, 0]
    ends = _numbered(files, f"{prefix}{_EDGES}", 2, len(graph_of))  # [E, 2]
    relations, rels = _optional(files, f"{prefix}_edge_labels.txt", len(ends))
    node_classes, node_labels = _optional(files, f"{prefix}_node_labels.txt", len(graph_of))
    attributes = f"{prefix}_node_attributes.txt"
    features = _table(files, attributes, None) if attributes in files else None
    order = np.argsort(graph_of, kind="stable")
    number = np.argsort(order)  # [N], the new number of a node
    notes = [f"the file '{prefix}{ending}' is not used" for ending in _UNUSED if f"{prefix}{ending}" in files]
    if (np.diff(graph_of) < 0).any():
        notes.append("the nodes were put in the order of their graphs")
    rels = np.zeros(len(ends), dtype=np.int64) if rels is None else rels
    collection = GraphCollection(
        name or prefix,
        Vocabulary("relation", relations or ("edge",)),
        classes,
        graph_of=graph_of[order],
        triples=np.column_stack([number[ends[:, 0]], rels, number[ends[:, 1]]]),
        targets=targets,
        node_labels=None if node_labels is None else node_labels[order],
        node_classes=node_classes,
        node_features=None if features is None else checked_features("node", features, len(order))[order],
        graph_ids=tuple(str(g + 1) for g in range(len(targets))),
        origin=origin,
    )
    return noted(collection, notes)


def _table(files: Mapping[str, Path], label: str, width: int | None) -> NDArray[Any]:
    """Return the numbers of a file: int64 [n, width], or float64 [n, f] without a width."""
    if label not in files:
        raise InputError(f"there is no file '{label}' beside the other files of the TU format")
    try:
        lines = files[label].read_text(encoding="utf-8-sig").splitlines()
        kind = np.float64 if width is None else np.int64
        if not any(map(str.strip, lines)):
            return np.empty((0, width or 0), dtype=kind)
        values = np.loadtxt(lines, dtype=kind, delimiter=",", comments=None, ndmin=2)
    except (OSError, ValueError) as error:
        raise InputError(f"'{label}' cannot be read: {error}") from None
    if width is not None and values.shape[1] != width:
        raise InputError(f"'{label}' has {values.shape[1]} numbers in a line; expected {width}")
    return values


def _numbered(files: Mapping[str, Path], label: str, width: int, size: int) -> Numbers:
    """Return numbers of things 1 .. size as rows from 0. [n, width]"""
    rows: Numbers = _table(files, label, width) - 1
    wrong = rows[(rows < 0) | (rows >= size)]
    if len(wrong):
        raise InputError(f"'{label}' refers to number {wrong[0] + 1}; expected 1 to {size}")
    return rows


def _labels(values: Numbers) -> tuple[tuple[str, ...], Numbers]:
    """Return the distinct labels in order, and the row of each line's label among them."""
    distinct, rows = np.unique(values[:, 0], return_inverse=True)
    return tuple(str(value) for value in distinct), rows.astype(np.int64)


def _optional(files: Mapping[str, Path], label: str, length: int) -> tuple[tuple[str, ...], Numbers | None]:
    """Return the labels in a file that may be missing."""
    if label not in files:
        return (), None
    names, rows = _labels(_table(files, label, 1))
    if len(rows) != length:
        raise InputError(f"'{label}' has {len(rows):,} lines where {length:,} are needed")
    return names, rows if names else None
