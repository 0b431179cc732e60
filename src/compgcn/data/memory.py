"""Graphs that a program has in memory: rows of triples, data frames, and objects of NetworkX and PyG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compgcn.data.collection import GraphCollection, noted
from compgcn.data.columns import Columns, Facts, Numbers, headless, numbered, pa, picked
from compgcn.data.graph import KnowledgeGraph, tidied
from compgcn.data.labels import Labels
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError

Rows = Iterable[Any]  # of triples; an array [n, 3], or a data frame of pandas, Polars or pyarrow


@dataclass(frozen=True)
class Memory:
    """Triples in memory; `columns` are names or positions of subject, relation and object."""

    label: str
    rows: Rows
    columns: Columns | None = None

    def facts(self) -> Facts:
        """Read the triples; whole numbers become text, and a first row that names the columns is skipped."""
        frame = _frame(self.rows)
        header, columns = frame or self._columns()
        if not columns or not len(columns[0]):
            raise InputError(f"'{self.label}' is empty: it holds no triple")
        places, named = picked(self.label, header, self.columns)
        texts = [_texts(self.label, columns[place]) for place in places]
        texts, notes = headless(self.label, texts, named and frame is None)
        try:
            arrays = [pa.chunked_array([pa.array(column, pa.string())]) for column in texts]
        except UnicodeEncodeError as error:
            raise InputError(f"'{self.label}' holds an id that is no text: {error.reason}") from None
        return Facts(arrays, notes, guessed=frame is None and not notes)

    def _columns(self) -> tuple[list[str], list[Sequence[Any]]]:
        """Return the first row, as text, and the columns of rows of one width."""
        given = self.rows.tolist() if hasattr(self.rows, "tolist") else self.rows
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            what = "a list of (subject, relation, object), an array of shape [n, 3] or a data frame"
            raise InputError(f"triples are read from a file, or from {what}, not from {type(self.rows).__name__}")
        rows = [row.tolist() if hasattr(row, "tolist") else row for row in given]
        width = len(rows[0]) if self.columns is not None and rows else 3
        for number, row in enumerate(rows, 1):
            if not isinstance(row, (list, tuple)) or len(row) != width:
                what = f"{width} columns" if self.columns is not None else "(subject, relation, object)"
                raise InputError(f"'{self.label}', row {number}: expected {what}, found {repr(row)[:60]}")
        return [str(field) for field in rows[0]] if rows else [], list(zip(*rows, strict=True))


def _frame(given: Any) -> tuple[list[str], list[Sequence[Any]]] | None:
    """Return the names and the columns of a data frame of any library, or None if it is none."""
    if hasattr(given, "iloc") and hasattr(given, "columns"):  # pandas, which need not be installed
        return [str(name) for name in given.columns], [given.iloc[:, i].tolist() for i in range(given.shape[1])]
    if hasattr(given, "__arrow_c_stream__") and hasattr(given, "columns"):  # Polars, pyarrow and others
        table = pa.table(given)
        return list(table.column_names), [column.to_pylist() for column in table.columns]
    return None


def _texts(label: str, column: Sequence[Any]) -> list[str]:
    """Return ids as text, or raise an InputError at the first that is missing or is no id."""
    texts = []
    for number, value in enumerate(column, 1):
        if isinstance(value, Integral) and not isinstance(value, bool):
            text = str(int(value))
        elif isinstance(value, str):
            text = str(value)
        elif value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value)):
            raise InputError(f"'{label}', row {number}: an id is missing")
        else:
            raise InputError(f"'{label}', row {number}: {value!r} is no id; ids are text or whole numbers")
        if not text.strip(" "):
            raise InputError(f"'{label}', row {number}: an id is empty")
        texts.append(text)
    return texts


def from_networkx(graph: Any, relation: str = "relation", name: str = "graph") -> KnowledgeGraph:
    """Convert a directed NetworkX graph; all triples are for training, and nodes without an edge are kept.

    Args:
        graph: a DiGraph or MultiDiGraph; the id of a node is its text.
        relation: the edge attribute that holds the relation; where an edge has none, its key, if that is text.
    """
    from compgcn.nn.graph import networkx_edges  # here, not above: it imports torch

    edges = networkx_edges(graph, relation)
    if not edges:
        raise InputError("the NetworkX graph has no edges")
    node, number = numbered(graph), numbered(r for _, r, _ in edges)
    triples = np.array([(node[s], number[r], node[o]) for s, r, o in edges], dtype=np.int64)
    return tidied(name, [str(key) for key in node], list(number), {"": triples})


def graph_from_pyg(data: Any, name: str = "graph") -> KnowledgeGraph:
    """Convert a PyG `Data` with edge_index and edge_type, or a `HeteroData`, whose relations are the middle names.

    Ids are the numbers of nodes and relations; in a `HeteroData` `type/number` and the name. Its `x` becomes the node
    features; `y` with train_mask, val_mask and test_mask, or train_idx, train_y, test_idx and test_y, the labels. All
    triples are for training.
    """
    from compgcn.nn.graph import RelationalGraph

    graph = RelationalGraph.from_pyg(data)
    if not graph.num_edges:
        raise InputError("the PyG graph has no edges")
    if hasattr(type(data), "edge_types"):
        stores = [data[kind] for kind in data.node_types]
        entities = [f"{kind}/{i}" for kind in data.node_types for i in range(data[kind].num_nodes)]
        relations = list(dict.fromkeys(kind[1] for kind in data.edge_types))
    else:
        stores = [data]
        entities, relations = ([str(i) for i in range(size)] for size in (graph.num_nodes, graph.num_relations))
    triples = np.stack([np.asarray(column.cpu()) for column in (graph.src, graph.rel, graph.dst)], axis=1)  # [n, 3]
    whole = tidied(name, entities, relations, {"": triples})
    notes = []
    tables = _arrays(stores, "x")
    if len(tables) == len(stores) and len({x.shape[1:] for x in tables}) == 1:
        whole = whole.with_features(np.concatenate(tables))
    elif tables:
        notes.append("the features x are left out: not every type of node has them, in the same width")
    labels = _labels(stores)
    if labels is None and _arrays(stores, "y"):
        notes.append("the labels y are left out: no mask says which are for training")
    return replace(whole, labels=labels, notes=(*whole.notes, *notes))


def _labels(stores: list[Any]) -> Labels | None:
    """Return the classes of the nodes of the first kind that has them."""
    start = 0
    for store in stores:
        parts = {part: _labelled(store, part, start) for part in ("train", "val", "test")}
        if parts["train"] is not None:
            none = np.empty((0, 2), dtype=np.int64)
            train, valid, test = (none if rows is None else rows for rows in parts.values())
            classes = 1 + max(int(rows[:, 1].max(initial=-1)) for rows in (train, valid, test))
            return Labels(tuple(str(i) for i in range(classes)), train, valid, test)
        start += int(store.num_nodes)
    return None


def _labelled(store: Any, part: str, start: int) -> Numbers | None:
    """Return rows (entity, class) of a split, from a mask over all nodes or from a list of some."""
    y, mask = _array(store, "y"), _array(store, f"{part}_mask")
    if y is not None and mask is not None and y.ndim == mask.ndim == 1:
        if y.dtype.kind == "f":
            raise InputError("the labels y must be the whole numbers of classes, not fractions")
        chosen = np.flatnonzero(mask)
        return np.column_stack([chosen + start, y[chosen]]).astype(np.int64)
    nodes, classes = _array(store, f"{part}_idx"), _array(store, f"{part}_y")
    if nodes is None or classes is None:
        return None
    return np.column_stack([nodes + start, classes]).astype(np.int64)


def from_pyg(graphs: Iterable[Any], *, name: str = "graphs") -> GraphCollection:
    """Convert a list of PyG `Data` objects, or anything with the same fields, to a collection.

    Args:
        graphs: each with `edge_index` [2, e] and the class `y`, one whole number. The relation of an edge is
            `edge_type` [e] or, as in PyG's own data sets, a one-hot (or whole-number) `edge_attr`; without either
            there is one relation. `x` [n, f] gives the features of nodes, or, if every row is one-hot, their labels.
    """
    items = list(graphs)
    if not items:
        raise InputError("the list of graphs is empty; give at least one")
    ends = [_ends(item, at) for at, item in enumerate(items)]
    sizes = np.array([size for _, size in ends])
    before = np.cumsum(sizes) - sizes
    source, target = np.concatenate([index + shift for (index, _), shift in zip(ends, before, strict=True)], axis=1)
    relations = [_relation(item, at, ends[at][0].shape[1]) for at, item in enumerate(items)]
    R = max(count for _, count in relations)
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
    return noted(collection)


def _array(item: Any, attribute: str) -> NDArray[Any] | None:
    """Return a tensor or a list of an object as an array, or None if it has none."""
    value = getattr(item, attribute, None)
    return None if value is None else np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _arrays(items: Sequence[Any], attribute: str) -> list[NDArray[Any]]:
    return [value for value in (_array(item, attribute) for item in items) if value is not None]


def _ends(item: Any, at: int) -> tuple[Numbers, int]:
    """Return source and target of each edge [2, e], and the number of nodes."""
    index = _array(item, "edge_index")
    if index is None or index.ndim != 2 or index.shape[0] != 2 or (index.size and index.dtype.kind not in "iu"):
        raise InputError(f"graph {at} has no edge_index of whole numbers of shape [2, e]")
    x = _array(item, "x")
    size = int(item.num_nodes or 0) if x is None else len(x)
    if index.size and not 0 <= index.min() <= index.max() < size:
        raise InputError(f"the edge_index of graph {at} refers to nodes beyond the {size} it has")
    return index.astype(np.int64), size


def _relation(item: Any, at: int, edges: int) -> tuple[Numbers, int]:
    """Return the relation of each edge [e], and how many relations there must be."""
    for attribute in ("edge_type", "edge_attr"):
        values = _array(item, attribute)
        if values is None:
            continue
        if len(values) != edges:
            raise InputError(f"the {attribute} of graph {at} has {len(values)} rows for {edges} edges")
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim == 1 and values.dtype.kind in "iuf" and ((values >= 0) & (values == np.floor(values))).all():
            return values.astype(np.int64), int(values.max(initial=0)) + 1
        if values.ndim == 2 and _one_hot(values):
            return values.argmax(axis=1), values.shape[1]
        raise InputError(f"the {attribute} of graph {at} is no relation: give edge_type, a whole number for each edge")
    return np.zeros(edges, dtype=np.int64), 1


def _target(item: Any, at: int) -> int:
    values = _array(item, "y")
    if values is None or values.size != 1 or not float(values.item()).is_integer():
        raise InputError(f"graph {at} has no class: y must be one whole number")
    return int(values.item())


def _inputs(items: Sequence[Any]) -> tuple[Numbers | None, int, NDArray[Any] | None]:
    """Return the labels of the nodes and their number, or the features, whichever `x` holds."""
    present = _arrays(items, "x")
    if not present:
        return None, 0, None
    if len(present) < len(items) or len({x.shape[1:] for x in present}) > 1 or present[0].ndim != 2:
        raise InputError("the node features x must have the same width in every graph: [n, f]")
    x = np.concatenate(present)
    return (x.argmax(axis=1), x.shape[1], None) if x.size and _one_hot(x) else (None, 0, x)


def _one_hot(values: NDArray[Any]) -> bool:
    return bool(((values == 0) | (values == 1)).all() and (values.sum(axis=1) == 1).all())
