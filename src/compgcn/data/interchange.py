"""Knowledge graphs from the objects of NetworkX and PyG; neither need be installed to import this."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compgcn.data.files import divided
from compgcn.data.graph import KnowledgeGraph, tidied
from compgcn.data.labels import Labels
from compgcn.errors import InputError


def from_networkx(
    graph: Any,
    relation: str = "relation",
    name: str = "graph",
    split_seed: int = 0,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> KnowledgeGraph:
    """A directed NetworkX graph, its triples split as those of a file are. Nodes without an edge are kept.

    Args:
        graph: a DiGraph or MultiDiGraph; the id of a node is its text.
        relation: the edge attribute that holds the relation; where an edge has none, its key, if that is text.
        name: what to call it in reports.
        split_seed, valid_fraction, test_fraction: how the triples are split.
    """
    from compgcn.nn.graph import networkx_edges  # here, not above: it imports torch

    edges = networkx_edges(graph, relation)
    if not edges:
        raise InputError("the NetworkX graph has no edges")
    node = {key: i for i, key in enumerate(graph)}
    number = {text: i for i, text in enumerate(dict.fromkeys(r for _, r, _ in edges))}
    triples = np.array([(node[s], number[r], node[o]) for s, r, o in edges], dtype=np.int64)
    whole = tidied(name, [str(key) for key in node], list(number), {"": triples})
    return divided(whole, split_seed, valid_fraction, test_fraction)


def from_pyg(
    data: Any,
    name: str = "graph",
    split_seed: int = 0,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> KnowledgeGraph:
    """A PyG `Data` with edge_index and edge_type, or a `HeteroData`, whose relations are the middle names.

    Ids are the numbers of nodes and relations; in a `HeteroData` `type/number` and the name. Its `x` becomes the node
    features; `y` with train_mask, val_mask and test_mask, or train_idx, train_y, test_idx and test_y, the labels, and
    all triples are for training then. Without labels the triples are split as those of a file are.
    """
    from compgcn.nn.graph import RelationalGraph

    graph = RelationalGraph.from_pyg(data)
    if not graph.num_edges:
        raise InputError("the PyG graph has no edges")
    if hasattr(type(data), "edge_types"):
        stores = [data[kind] for kind in data.node_types]
        entities = [
            f"{kind}/{i}" for kind, store in zip(data.node_types, stores, strict=True) for i in range(store.num_nodes)
        ]
        relations = list(dict.fromkeys(kind[1] for kind in data.edge_types))
    else:
        stores = [data]
        entities, relations = ([str(i) for i in range(size)] for size in (graph.num_nodes, graph.num_relations))
    triples = np.stack([_numpy(column) for column in (graph.src, graph.rel, graph.dst)], axis=1)  # [n, 3]
    features = _features(stores)
    whole = tidied(name, entities, relations, {"": triples}).with_features(features)
    if features is None and any(getattr(store, "x", None) is not None for store in stores):
        note = "the features x are left out: not every type of node has them, in the same width"
        whole = replace(whole, notes=(*whole.notes, note))
    labels = _labels(stores)
    if labels is None and any(getattr(store, "y", None) is not None for store in stores):
        whole = replace(whole, notes=(*whole.notes, "the labels y are left out: no mask says which are for training"))
    if labels is not None:
        return replace(whole, labels=labels)
    return divided(whole, split_seed, valid_fraction, test_fraction)


def _numpy(tensor: Any) -> NDArray[Any]:
    array: NDArray[Any] = np.asarray(tensor.detach().cpu())
    return array


def _features(stores: list[Any]) -> NDArray[Any] | None:
    """The x of all nodes, where all have one of the same width."""
    tables = [_numpy(store.x) for store in stores if getattr(store, "x", None) is not None]
    if len(tables) < len(stores) or len({table.shape[1:] for table in tables}) > 1:
        return None
    return np.concatenate(tables)


def _labels(stores: list[Any]) -> Labels | None:
    """The classes of the nodes of the first kind that has them."""
    start = 0
    for store in stores:
        parts = {part: _rows(store, part, start) for part in ("train", "val", "test")}
        if parts["train"] is not None:
            none = np.empty((0, 2), dtype=np.int64)
            train, valid, test = (none if rows is None else rows for rows in parts.values())
            classes = 1 + max(int(rows[:, 1].max(initial=-1)) for rows in (train, valid, test))
            return Labels(tuple(str(i) for i in range(classes)), train, valid, test)
        start += int(store.num_nodes)
    return None


def _rows(store: Any, part: str, start: int) -> NDArray[np.int64] | None:
    """Rows (entity, class) of a split, from a mask over all nodes or from a list of some."""
    y, mask = getattr(store, "y", None), getattr(store, f"{part}_mask", None)
    if y is not None and mask is not None and y.dim() == mask.dim() == 1:
        if y.is_floating_point():
            raise InputError("the labels y must be the whole numbers of classes, not fractions")
        chosen = np.flatnonzero(_numpy(mask))
        return np.column_stack([chosen + start, _numpy(y)[chosen]]).astype(np.int64)
    nodes, classes = getattr(store, f"{part}_idx", None), getattr(store, f"{part}_y", None)
    if nodes is None or classes is None:
        return None
    return np.column_stack([_numpy(nodes) + start, _numpy(classes)]).astype(np.int64)
