"""Collections of graphs out of what people have: tables with a column for the graph, and lists of PyG objects."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compgcn.data import delimited
from compgcn.data.arrays import Numbers, counted
from compgcn.data.collection import GraphCollection, observe
from compgcn.data.facts import Columns, check_columns, locate
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError

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
    for field in ("edge_type", "edge_attr"):
        values = _array(getattr(item, field, None))
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
