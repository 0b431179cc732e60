"""The TU format of graph classification: a folder of text files, one of them named `<name>_A.txt`.

Nodes and graphs are numbered from 1, in the order of their lines. `_A` lists edges `i, j`, as a rule in both
directions; `_graph_indicator` has the graph of each node, `_graph_labels` the class of each graph. Optional are
`_edge_labels` (the relations), `_node_labels` and `_node_attributes`.
"""

from __future__ import annotations

import hashlib
import io
import logging
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compgcn.data import delimited
from compgcn.data.columns import Columns, Features, Numbers, check_columns, checked_features, counted, keys, locate
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


def folds(targets: Sequence[int] | Numbers, k: int, seed: int = 0) -> list[Numbers]:
    """Deal examples over k folds: every example in one, and the members of each class as even as whole numbers allow.

    The examples are laid out class by class, shuffled within each, and dealt like cards; so the folds themselves
    differ by at most one in size too.

    Args:
        targets: [n], the class of each example.
        k: how many folds, 2 to n.
        seed: equal seeds give equal folds.
    """
    classes = np.asarray(targets)
    n = len(classes)
    if not 2 <= k <= n:
        raise InputError(
            f"{counted(n, 'example')} cannot be dealt over {k} folds; give a number from 2 to the number of examples"
        )
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(n), classes))  # by class, within a class by chance
    fold = np.empty(n, dtype=np.int64)
    fold[order] = rng.permutation(k)[np.arange(n) % k]  # which folds get one more is a matter of chance too
    return [np.flatnonzero(fold == i) for i in range(k)]


log = logging.getLogger(__name__)

_GRAPH = {"graph", "graph_id", "g", "molecule", "molecule_id", "id"}
_NODE = {"node", "node_id", "atom", "atom_id", "head", "subject", "source", "from", "s", "h", "src"}
_RELATION = {"relation", "predicate", "rel", "r", "p", "edge", "type", "label", "bond"}
_OTHER = {"tail", "object", "target", "to", "o", "t", "dst"}
_CLASS = {"label", "class", "y", "target", "type", "element", "name"}
_LISTED = 3  # graphs named where many are meant
_RELATIONS = 1_000_000  # more than this is a number that was no relation


def read_graphs(
    path: str | Path,
    *,
    labels: str | Path,
    nodes: str | Path | None = None,
    name: str | None = None,
    label_columns: Columns | None = None,
) -> GraphCollection:
    """Read graphs from a table of triples with a column for the graph, and a table of their classes.

    The ids of nodes belong to their graph: node 1 of one graph is not node 1 of another. Graphs stand in the order of
    the table of classes, nodes in the order of first appearance. Lines that only name the columns are skipped.

    Args:
        path: columns graph, source, relation, target; .tsv, .txt or .csv, gzipped or not.
        labels: columns graph, class.
        nodes: columns graph, node, label; then every node must be in it, and a graph may do without edges.
        name: what to call it; the name of the file when not given.
        label_columns: names, or positions from 0 on, of graph and class in `labels`; by default the only two.
    """
    notes: list[str] = []
    edge_graph, source, relation, target = _columns(path, [_GRAPH, _NODE, _RELATION, _OTHER], notes)
    label_graph, label = _class_columns(labels, label_columns, notes)
    node_graph, node, node_label = [None] * 3 if nodes is None else _columns(nodes, [_GRAPH, _NODE, _CLASS], notes)

    (owner, of_edge, of_node), graph_ids = _encode(label_graph, edge_graph, node_graph)
    _check_owners(graph_ids, owner, np.concatenate([of_edge, of_node]), str(labels))
    (listed, sources, targets), node_ids = _encode(node, source, target)
    graph, at_node, ends = _number(of_node, listed, of_edge, np.column_stack([sources, targets]), len(node_ids))
    (relations,), relation_ids = _encode(relation)
    classes, class_names = _sorted(label)
    node_labels, node_names = _node_labels(at_node, len(graph), node_label, str(nodes), str(path))

    present, graph_of = np.unique(graph, return_inverse=True)
    left_out = np.setdiff1d(owner, present)
    if len(left_out):
        what = "triple or node" if nodes is not None else "triple"
        notes.append(
            f"{counted(len(left_out), 'labelled graph')} without a {what} left out: {_some(graph_ids, left_out)}"
        )
    used, targets = np.unique(
        classes[present], return_inverse=True
    )  # graphs are numbered in the order of their classes
    collection = GraphCollection(
        name or Path(path).name.split(".")[0] or "graphs",
        Vocabulary("relation", relation_ids),
        tuple(class_names[c] for c in used),  # not those of graphs that were left out
        graph_of=graph_of,
        triples=np.column_stack([ends[:, 0], relations, ends[:, 1]]),
        targets=targets,
        node_labels=node_labels,
        node_classes=node_names,
        graph_ids=tuple(graph_ids[g] for g in present),
        origin={key: str(file) for key, file in (("source", path), ("labels", labels), ("node_labels", nodes)) if file}
        | ({} if label_columns is None else {"label_columns": tuple(label_columns)}),
    )
    collection = replace(collection, notes=(*notes, *observe(collection)))
    for note in collection.notes:
        log.info("%s: %s", collection.name, note)
    return collection


def _class_columns(labels: str | Path, chosen: Columns | None, notes: list[str]) -> list[Any]:
    """Graph and class: the only two columns of a table, or those that are chosen."""
    if chosen is not None:
        check_columns(chosen, 2, "graph and class")
        return _columns(labels, [_GRAPH, _CLASS], notes, chosen)
    width = len(delimited.first(delimited.file(labels)))
    if width > 2:
        raise InputError(
            f"'{labels}' has {width} columns: expected graph and class alone, as graphs are cross-validated and have "
            "no split; say with label_columns which two to read"
        )
    return _columns(labels, [_GRAPH, _CLASS], notes)


def _columns(path: str | Path, words: Sequence[set[str]], notes: list[str], chosen: Columns | None = None) -> list[Any]:
    """The columns of a table, all or those chosen, without a line that names them."""
    text = delimited.file(path)
    header = delimited.first(text) if chosen is not None else []
    take = locate(text.label, chosen, header) if chosen is not None else None
    found = delimited.columns(text, len(header) or len(words), take=take)
    columns = [column.dictionary_encode() for column in found]
    first = [str(column[0].as_py()).strip().casefold() for column in columns]
    named = chosen is not None and isinstance(chosen[0], str)
    if named or all(field in known for field, known in zip(first, words, strict=True)):
        columns = [column.slice(1) for column in columns]
        notes.append(f"the first line of '{text.label}' names the columns and was skipped")
        if not len(columns[0]):
            raise InputError(f"'{text.label}' is empty: it holds a header and nothing more")
    return columns


def _encode(*columns: Any) -> tuple[list[Numbers], list[str]]:
    """One numbering of the texts of several columns, in order of first appearance, and the texts."""
    numbers: dict[str, int] = {}
    coded = []
    for column in columns:
        parts = [np.empty(0, dtype=np.int64)]
        for chunk in [] if column is None else _dictionary(column).chunks:
            used, where = np.unique(chunk.indices.to_numpy(), return_index=True)
            texts = chunk.dictionary.to_pylist()
            table = np.zeros(len(texts), dtype=np.int64)
            for code in used[np.argsort(where)].tolist():  # over distinct texts, not over rows
                table[code] = numbers.setdefault(texts[code], len(numbers))
            parts.append(table[chunk.indices.to_numpy()])
        coded.append(np.concatenate(parts))
    return coded, list(numbers)


def _dictionary(column: Any) -> Any:
    """A column of strings as numbers of distinct ones, if it is not so already."""
    import pyarrow as pa

    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _some(graph_ids: Sequence[str], rows: Numbers) -> str:
    named = ", ".join(f"'{graph_ids[row]}'" for row in rows[:_LISTED])
    return f"{named} and {len(rows) - _LISTED:,} more" if len(rows) > _LISTED else named


def _check_owners(graph_ids: Sequence[str], labelled: Numbers, used: Numbers, labels: str) -> None:
    """Every graph must have one class."""
    counts = np.bincount(labelled, minlength=len(graph_ids))
    twice = np.flatnonzero(counts > 1)
    if len(twice):
        raise InputError(f"'{labels}' gives a graph more than one line: {_some(graph_ids, twice)}; give each one class")
    missing = np.setdiff1d(used, labelled)
    if len(missing):
        raise InputError(f"'{labels}' has no class for {counted(len(missing), 'graph')}: {_some(graph_ids, missing)}")


def _number(
    of_node: Numbers, node: Numbers, of_edge: Numbers, ends: Numbers, num_ids: int
) -> tuple[Numbers, Numbers, Numbers]:
    """Number the nodes by graph, within a graph in the order they are mentioned: the table of nodes, then the edges.

    Args:
        of_node, node: [m], graph and id in each line of the table of nodes.
        of_edge: [E], the graph of each edge.
        ends: [E, 2], the ids of its nodes.
        num_ids: how many ids there are.

    Returns the graph of each node [N], and the numbers of the nodes in the table [m] and in the edges [E, 2].
    """
    graph = np.concatenate([of_node, np.repeat(of_edge, 2)])
    keys = graph * num_ids + np.concatenate([node, ends.ravel()])
    _, where, inverse = np.unique(keys, return_index=True, return_inverse=True)
    place = np.lexsort((where, graph[where]))
    number = np.empty(len(place), dtype=np.int64)
    number[place] = np.arange(len(place))
    numbers = number[inverse]
    return graph[where][place], numbers[: len(node)], numbers[len(node) :].reshape(-1, 2)


def _sorted(column: Any) -> tuple[Numbers, tuple[str, ...]]:
    """The texts of a column as rows of the distinct ones in order, and these."""
    (rows,), texts = _encode(column)
    order = sorted(range(len(texts)), key=texts.__getitem__)
    return np.argsort(order)[rows], tuple(texts[i] for i in order)


def _node_labels(
    at_node: Numbers, num_nodes: int, column: Any, nodes: str, path: str
) -> tuple[Numbers | None, tuple[str, ...]]:
    """The label of each node [N], if a table has them, and the names of the labels."""
    if column is None:
        return None, ()
    counts = np.bincount(at_node, minlength=num_nodes)
    if (counts > 1).any():
        raise InputError(
            f"'{nodes}' has more than one line for {counted(int((counts > 1).sum()), 'node')}; give each one label"
        )
    if (counts == 0).any():
        raise InputError(f"'{nodes}' has no label for {counted(int((counts == 0).sum()), 'node')} of '{path}'")
    rows, names = _sorted(column)
    return rows[np.argsort(at_node)], names


def from_pyg(graphs: Iterable[Any], *, name: str = "graphs") -> GraphCollection:
    """A list of PyG `Data` objects, or anything with the same fields, as a collection.

    Args:
        graphs: each with `edge_index` [2, e] and the class `y`, one whole number. The relation of an edge is
            `edge_type` [e] or, as PyG's own data sets have it, a one-hot (or whole-number) `edge_attr`; without either
            there is one relation. `x` [n, f] gives the features of nodes, or, where every row is one-hot, their labels.
        name: what to call it.
    """
    items = list(graphs)
    if not items:
        raise InputError("the list of graphs is empty; give at least one")
    ends = [_ends(item, at) for at, item in enumerate(items)]
    sizes = np.array([_size(item, at, index) for at, (item, index) in enumerate(zip(items, ends, strict=True))])
    before = np.cumsum(sizes) - sizes
    source, target = np.concatenate([index + shift for index, shift in zip(ends, before, strict=True)], axis=1)
    relations = [_relation(item, at, ends[at].shape[1]) for at, item in enumerate(items)]
    R = max(count for _, count in relations)
    if R > _RELATIONS:
        raise InputError(f"the relations of the edges go up to {R - 1:,}; number them from 0 without gaps")
    classes, targets = np.unique([_target(item, at) for at, item in enumerate(items)], return_inverse=True)
    labels, num_labels, features = _inputs(items)
    collection = GraphCollection(
        name,
        Vocabulary("relation", ["edge"] if R == 1 else [str(r) for r in range(R)]),
        tuple(str(value) for value in classes),
        graph_of=np.repeat(np.arange(len(items)), sizes),
        triples=np.column_stack([source, np.concatenate([rows for rows, _ in relations]), target]),
        targets=targets,
        node_labels=labels,
        node_classes=tuple(str(label) for label in range(num_labels)),
        node_features=features,
    )
    return replace(collection, notes=tuple(observe(collection)))


def _ends(item: Any, at: int) -> Numbers:
    """Source and target of each edge. [2, e]"""
    index = _array(getattr(item, "edge_index", None))
    if index is None or index.ndim != 2 or index.shape[0] != 2 or (index.size and index.dtype.kind not in "iu"):
        raise InputError(f"graph {at} has no edge_index of whole numbers of shape [2, e]")
    return index.astype(np.int64)


def _size(item: Any, at: int, index: Numbers) -> int:
    """The number of nodes, which its edges must keep to."""
    x = _array(getattr(item, "x", None))
    size = int(item.num_nodes or 0) if x is None else len(x)
    if index.size and not 0 <= index.min() <= index.max() < size:
        raise InputError(f"the edge_index of graph {at} refers to nodes beyond the {size} it has")
    return size


def _array(value: Any) -> NDArray[Any] | None:
    """A tensor or a list as an array."""
    if value is None:
        return None
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _relation(item: Any, at: int, edges: int) -> tuple[Numbers, int]:
    """The relation of each edge [e], and how many relations there must be."""
    for attribute in ("edge_type", "edge_attr"):
        values = _array(getattr(item, attribute, None))
        if values is None:
            continue
        if len(values) != edges:
            raise InputError(f"the {field} of graph {at} has {len(values)} rows for {edges} edges")
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim == 1 and values.dtype.kind in "iuf" and ((values >= 0) & (values == np.floor(values))).all():
            return values.astype(np.int64), int(values.max(initial=0)) + 1
        if values.ndim == 2 and _one_hot(values):
            return values.argmax(axis=1), values.shape[1]
        raise InputError(f"the {field} of graph {at} is no relation: give edge_type, a whole number for each edge")
    return np.zeros(edges, dtype=np.int64), 1


def _target(item: Any, at: int) -> int:
    values = _array(getattr(item, "y", None))
    if values is None or values.size != 1 or not np.isfinite(values).all() or values.item() != int(values.item()):
        raise InputError(f"graph {at} has no class: y must be one whole number")
    return int(values.item())


def _inputs(items: Sequence[Any]) -> tuple[Numbers | None, int, NDArray[Any] | None]:
    """The labels of the nodes and their number, or the features, whichever `x` holds."""
    given = [_array(getattr(item, "x", None)) for item in items]
    present = [x for x in given if x is not None]
    if not present:
        return None, 0, None
    widths = {x.shape[1:] for x in present}
    if len(present) < len(items) or len(widths) > 1 or present[0].ndim != 2:
        raise InputError("the node features x must have the same width in every graph: [n, f]")
    x = np.concatenate(present)
    return (x.argmax(axis=1), x.shape[1], None) if x.size and _one_hot(x) else (None, 0, x)


def _one_hot(values: NDArray[Any]) -> bool:
    return bool(((values == 0) | (values == 1)).all() and (values.sum(axis=1) == 1).all())


Opener = Callable[[], Any]  # gives a binary stream

_EDGES = "_A.txt"
_UNUSED = ("_edge_attributes.txt", "_graph_attributes.txt")
_SHOWN = 40  # characters of a wrong value in an error
# Text made of these alone means the same to pyarrow as it does here; with others, 0x10 and nan are numbers to it.
_PLAIN = b"0123456789+-.eE, \t\r\n"
_WHOLE = re.compile(rb"[+-]?[0-9]+")
_DECIMAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class _File(NamedTuple):
    label: str
    content: bytes


def found(folder: str | Path) -> bool:
    """Whether a folder looks like one of this format."""
    return Path(folder).is_dir() and any(Path(folder).glob(f"*{_EDGES}"))


def read(source: str | Path | Mapping[str, Opener], *, name: str | None = None) -> GraphCollection:
    """Read a collection of graphs; edge labels are its relations.

    Args:
        source: a folder, or the files of one by name, each with what opens it as a binary stream.
        name: what to call it; the prefix of the files when not given.
    """
    files, place = _files(source)
    prefix = _prefix(files, place)
    load = partial(_load, files, place, prefix)
    labels = load("_graph_labels.txt")
    classes, targets = _labels(labels)
    indicator = load("_graph_indicator.txt")
    graph_of = _numbered(indicator, 1, "graph", len(targets), labels)[:, 0]
    empty = np.flatnonzero(np.bincount(graph_of, minlength=len(targets)) == 0)
    if len(empty):
        raise InputError(f"'{indicator.label}' gives graph {empty[0] + 1} no node; every graph needs at least one")
    edges = load(_EDGES)
    ends = _numbered(edges, 2, "node", len(graph_of), indicator)  # [E, 2]
    _check_within(graph_of, ends, edges)
    relations, rels = _optional_labels(load("_edge_labels.txt", optional=True), len(ends), edges)
    node_classes, node_labels = _optional_labels(load("_node_labels.txt", optional=True), len(graph_of), indicator)
    attributes = load("_node_attributes.txt", optional=True)
    features = None if attributes is None else _attributes(attributes, len(graph_of), indicator)

    order = np.argsort(graph_of, kind="stable")
    number = np.empty_like(order)  # [N], the new number of a node
    number[order] = np.arange(len(order))
    notes = [f"the file '{prefix}{ending}' is not used" for ending in _UNUSED if f"{prefix}{ending}" in files]
    if (np.diff(graph_of) < 0).any():
        notes.append("the nodes were put in the order of their graphs")
    collection = GraphCollection(
        name or prefix,
        Vocabulary("relation", relations or ("edge",)),
        classes,
        graph_of=graph_of[order],
        triples=np.column_stack(
            [number[ends[:, 0]], np.zeros(len(ends), int) if rels is None else rels, number[ends[:, 1]]]
        ),
        targets=targets,
        node_labels=None if node_labels is None else node_labels[order],
        node_classes=node_classes,
        node_features=None if features is None else features[order],
        graph_ids=tuple(str(g + 1) for g in range(len(targets))),
        origin={} if isinstance(source, Mapping) else {"source": str(source)},
    )
    collection = replace(collection, notes=(*notes, *observe(collection)))
    for note in collection.notes:
        log.info("%s: %s", collection.name, note)
    return collection


def _files(source: str | Path | Mapping[str, Opener]) -> tuple[dict[str, Opener], str]:
    """File name -> what opens it, and what to call the place."""
    if isinstance(source, Mapping):
        return {name.rsplit("/", 1)[-1]: opener for name, opener in source.items()}, "the files given"
    folder = Path(source)
    if not folder.is_dir():
        raise InputError(f"'{folder}' is not a folder; the TU format is a folder with a file '*{_EDGES}'")
    return {path.name: partial(path.open, "rb") for path in sorted(folder.iterdir()) if path.is_file()}, f"'{folder}'"


def _prefix(files: Mapping[str, Opener], place: str) -> str:
    names = [file.removesuffix(_EDGES) for file in files if file.endswith(_EDGES)]
    if len(names) != 1:
        what = f"{len(names)} of them: {', '.join(names)}" if names else "none"
        raise InputError(f"expected one file '*{_EDGES}' among {place}, found {what}")
    return names[0]


def _load(files: Mapping[str, Opener], place: str, prefix: str, ending: str, *, optional: bool = False) -> Any:
    """A file's content, or None for one that is not there and need not be."""
    label = f"{prefix}{ending}"
    if label not in files:
        if optional:
            return None
        raise InputError(f"there is no file '{label}' among {place}")
    try:
        with files[label]() as stream:
            return _File(label, stream.read().removeprefix(b"\xef\xbb\xbf"))
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise InputError(f"'{label}' cannot be read: {error}") from None


def _numbered(file: _File, width: int, what: str, size: int, other: _File) -> Numbers:
    """Numbers of things 1 .. size, which have a line each in the other file, as rows from 0. [n, width]"""
    rows = _table(file, width)
    wrong = np.flatnonzero(((rows < 1) | (rows > size)).any(axis=1))
    if len(wrong):
        row = rows[wrong[0]]
        given = row[(row < 1) | (row > size)][0]
        raise _wrong(file, wrong[0], f"{what} {given} is not one of the 1 to {size} that '{other.label}' has lines for")
    return rows - 1


def _check_within(graph_of: Numbers, ends: Numbers, edges: _File) -> None:
    homes = graph_of[ends]  # [E, 2]
    across = np.flatnonzero(homes[:, 0] != homes[:, 1])
    if len(across):
        (i, j), (one, two) = ends[across[0]] + 1, homes[across[0]] + 1
        what = f"node {i} is in graph {one} and node {j} in graph {two}"
        raise _wrong(edges, across[0], f"{what}; an edge must join two nodes of one graph")


def _labels(file: _File) -> tuple[tuple[str, ...], Numbers]:
    """The distinct labels in order, and the row of each line's label among them."""
    values, rows = np.unique(_table(file, 1)[:, 0], return_inverse=True)
    if not len(values):
        raise InputError(f"'{file.label}' is empty: expected a number on each line, found none")
    return tuple(str(value) for value in values), rows.astype(np.int64)


def _optional_labels(file: _File | None, length: int, other: _File) -> tuple[tuple[str, ...], Numbers | None]:
    if file is None or (not length and not file.content.strip()):
        return (), None
    names, rows = _labels(file)
    _check_length(file, len(rows), length, other)
    return names, rows


def _attributes(file: _File, length: int, other: _File) -> Features:
    width = next((line.count(b",") + 1 for _, line in _lines(file)), 1)
    values = _table(file, width, decimal=True)
    _check_length(file, len(values), length, other)
    with np.errstate(over="ignore"):
        features: Features = values.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(wrong):
        raise _wrong(file, wrong[0], "a number is too large for 32 bits")
    return features


def _check_length(file: _File, given: int, expected: int, other: _File) -> None:
    if given != expected:
        raise InputError(f"'{file.label}' has {given:,} lines where '{other.label}' has {expected:,}; they must agree")


def _table(file: _File, width: int, *, decimal: bool = False) -> NDArray[Any]:
    """The numbers of a file: int64 [n, width], or float64 if they may be decimal.

    pyarrow reads what is plainly right; anything else is read line by line, so that an error can name the line.
    """
    import pyarrow as pa
    from pyarrow import csv

    if not file.content.translate(None, _PLAIN):
        names = [str(i) for i in range(width)]
        try:
            table = csv.read_csv(
                io.BytesIO(file.content),
                read_options=csv.ReadOptions(column_names=names, block_size=1 << 24),
                parse_options=csv.ParseOptions(quote_char=False),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.float64() if decimal else pa.int64()), null_values=[]
                ),
            )
            return np.column_stack([column.to_numpy() for column in table.columns])
        except pa.ArrowException:
            pass  # the reading below says what is wrong, or knows better
    kind = float if decimal else int
    rows = [[kind(value) for value in values] for values in _scan(file, width, decimal)]
    return np.array(rows, dtype=np.float64 if decimal else np.int64).reshape(-1, width)


def _scan(file: _File, width: int, decimal: bool) -> Iterator[list[bytes]]:
    """The definition: the values of each line, or an InputError that names the first that is wrong."""
    form, what = (_DECIMAL, "a number") if decimal else (_WHOLE, "a whole number")
    for line, content in _lines(file):
        values = [value.strip(b" \t") for value in content.split(b",")]
        if len(values) != width:
            many = "value" if width == 1 else "values separated by commas"
            raise InputError(f"'{file.label}', line {line}: expected {width} {many}, found {len(values)}")
        for value in values:
            if not form.fullmatch(value):
                shown = value[:_SHOWN].decode("utf-8", "replace")
                raise InputError(f"'{file.label}', line {line}: expected {what}, found '{shown}'")
            if not decimal and (len(value) > _SHOWN or not -(2**63) <= int(value) < 2**63):
                raise InputError(f"'{file.label}', line {line}: a number is too large for 64 bits")
        yield values


def _lines(file: _File) -> Iterator[tuple[int, bytes]]:
    """Number and content of each line that is not blank."""
    for number, line in enumerate(file.content.splitlines(), start=1):
        if line.strip(b" \t"):
            yield number, line


def _wrong(file: _File, row: int, what: str) -> InputError:
    """An error about a row of numbers, with the number of its line."""
    line = next(number for at, (number, _) in enumerate(_lines(file)) if at == row)
    return InputError(f"'{file.label}', line {line}: {what}")
