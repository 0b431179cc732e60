"""The data of a run as tables, so that its folder needs nothing else: a graph, labels of its nodes, or many graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from compgcn.data import GraphCollection, KnowledgeGraph, Labels, Vocabulary

_SPLITS = ("train", "valid", "test")
_SPLIT = pa.dictionary(pa.int8(), pa.string())

# Every file there may be, and its columns. A graph has the first two; labels are of entities, or, where there are nodes
# with a graph each, of graphs.
SCHEMAS: dict[str, pa.Schema] = {
    "vocabulary.parquet": pa.schema({"kind": _SPLIT, "id": pa.string(), "name": pa.string()}),
    "triples.parquet": pa.schema({"split": _SPLIT, "s": pa.int32(), "r": pa.int32(), "o": pa.int32()}),
    "labels.parquet": pa.schema({"split": _SPLIT, "item": pa.int32(), "class": pa.int32()}),
    "nodes.parquet": pa.schema({"graph": pa.int32(), "label": pa.int32()}),  # -1: no label
}

Numbers = NDArray[np.int64]


def tables(data: KnowledgeGraph | GraphCollection) -> dict[str, pa.Table]:
    """The files of a run's data, by name."""
    made = _of_collection(data) if isinstance(data, GraphCollection) else _of_graph(data)
    return {name: pa.table(columns, schema=SCHEMAS[name]) for name, columns in made.items()}


def _of_graph(graph: KnowledgeGraph) -> dict[str, list[object]]:
    texts = {"entity": (graph.entities.ids, graph.entities.names), "relation": _texts(graph.relations)}
    found = {"triples.parquet": _split_rows(graph.splits)}
    if graph.labels is not None:
        texts["class"] = (graph.labels.classes, graph.labels.classes)
        found["labels.parquet"] = _split_rows(graph.labels.splits)
    return {"vocabulary.parquet": _vocabulary(texts)} | found


def _of_collection(graphs: GraphCollection) -> dict[str, list[object]]:
    texts = {"relation": _texts(graphs.relations)}
    texts |= {"class": (graphs.classes,) * 2, "graph": (graphs.graph_ids,) * 2, "label": (graphs.node_classes,) * 2}
    labels = np.full(graphs.num_nodes, -1) if graphs.node_labels is None else graphs.node_labels
    targets = np.column_stack([np.arange(len(graphs)), graphs.targets])
    return {
        "vocabulary.parquet": _vocabulary(texts),
        "triples.parquet": _split_rows({"train": graphs.triples}),
        "labels.parquet": _split_rows({"train": targets}),
        "nodes.parquet": [graphs.graph_of.astype(np.int32), labels.astype(np.int32)],
    }


def _texts(vocabulary: Vocabulary) -> tuple[Sequence[str], Sequence[str]]:
    return vocabulary.ids, vocabulary.names


def _vocabulary(texts: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> list[object]:
    kinds = np.repeat(np.arange(len(texts), dtype=np.int8), [len(ids) for ids, _ in texts.values()])
    ids, names = ([text for pair in texts.values() for text in pair[place]] for place in (0, 1))
    return [pa.DictionaryArray.from_arrays(kinds, list(texts)), ids, names]


def _split_rows(splits: Mapping[str, Numbers]) -> list[object]:
    rows = np.concatenate(list(splits.values())).astype(np.int32)  # [n, columns]
    of = np.repeat(np.arange(len(splits), dtype=np.int8), [len(part) for part in splits.values()])
    return [pa.DictionaryArray.from_arrays(of, list(splits)), *rows.T]


def restored(name: str, found: Mapping[str, pa.Table]) -> KnowledgeGraph | GraphCollection:
    """The data that such tables hold, without features: those are among the weights."""
    rows = found["vocabulary.parquet"].to_pydict()
    texts: dict[str, tuple[list[str], list[str]]] = {}
    for kind, text, shown in zip(rows["kind"], rows["id"], rows["name"], strict=True):
        ids, names = texts.setdefault(kind, ([], []))
        ids.append(text)
        names.append(shown)
    triples = _by_split(found["triples.parquet"])
    labels = _by_split(found["labels.parquet"]) if "labels.parquet" in found else {}
    relations = Vocabulary("relation", *texts.get("relation", ([], [])))
    classes = tuple(texts.get("class", ([], []))[0])
    if "nodes.parquet" not in found:
        entities = Vocabulary("entity", *texts.get("entity", ([], [])))
        train, valid, test = triples.values()
        kept = Labels(classes, **labels) if labels else None
        return KnowledgeGraph(name, entities, relations, train, valid, test, labels=kept)
    graph_of, node_labels = (found["nodes.parquet"][key].to_numpy().astype(np.int64) for key in ("graph", "label"))
    node_classes, graph_ids = (tuple(texts.get(kind, ([], []))[0]) for kind in ("label", "graph"))
    return GraphCollection(
        name,
        relations,
        classes,
        graph_of,
        triples["train"],
        labels["train"][:, 1],
        node_labels=node_labels if node_classes else None,
        node_classes=node_classes,
        graph_ids=graph_ids,
    )


def _by_split(table: pa.Table) -> dict[str, Numbers]:
    column, *numbers = table.columns
    coded = column.combine_chunks()
    names, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    rows = np.stack([values.to_numpy().astype(np.int64) for values in numbers], 1)  # [n, columns]
    return {split: rows[codes == names.index(split)] if split in names else rows[:0] for split in _SPLITS}
