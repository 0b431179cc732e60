"""From the settings of a config's [data] to the graph."""

from __future__ import annotations

from pathlib import Path

from compgcn.config import Data
from compgcn.data import collection, delimited
from compgcn.data.collection import GraphCollection, read_graphs
from compgcn.data.columns import endings, existing
from compgcn.data.datasets import DATASETS, load
from compgcn.data.delimited import first
from compgcn.data.files import read
from compgcn.data.graph import KnowledgeGraph, top_relations
from compgcn.errors import InputError, unknown

_DRAWN = ("split_seed", "valid_fraction", "test_fraction")
_OWN = tuple(key for key in Data.model_fields if key not in ("source", "fingerprint", "top_relations", *_DRAWN))


def find(data: Data, task: str | None = None) -> KnowledgeGraph | GraphCollection:
    """The data that a config's [data] names: a data set, or files of one's own.

    A folder in the TU format holds graphs; a table of triples does if the task is to classify graphs.
    """
    found = _find(data, task)
    if data.top_relations is None:
        return found
    if isinstance(found, GraphCollection):
        raise InputError("data.top_relations cuts down one graph, not a collection of them; leave it out")
    return top_relations(found, data.top_relations)


def _check_width(data: Data) -> None:
    """Refuse a table of four columns that comes with labels: it is most often one of graphs."""
    path = existing(data.source)
    if endings(path)[0] in delimited.DELIMITERS and len(first(delimited.file(path, comment=data.comment))) == 4:
        raise InputError(
            f"'{data.source}' has 4 columns: if these are graph, source, relation and target, say --task "
            "graph-classification; else name those of subject, relation and object with --columns"
        )


def _find(data: Data, task: str | None) -> KnowledgeGraph | GraphCollection:
    if data.source in DATASETS:
        chosen = [key for key in _OWN if getattr(data, key) != Data.model_fields[key].default]
        if chosen:
            what = f"leave {' and '.join(chosen)} out"
            raise InputError(
                f"the data set '{data.source}' is read in its own way, with its own splits and names; {what}"
            )
        return load(data.source)
    if not Path(data.source).exists() and "." not in data.source and "/" not in data.source:
        raise unknown("data set", data.source, DATASETS, listed=len(DATASETS))
    if collection.found(data.source):
        return collection.read(data.source)
    if task == "graph-classification":
        if data.labels is None:
            raise InputError(f"'{data.source}' needs a table of graphs and their classes; name it with --labels")
        return read_graphs(data.source, labels=data.labels, nodes=data.node_labels, label_columns=data.label_columns)
    if data.labels is not None and data.columns is None:
        _check_width(data)
    settings = data.model_dump(exclude={"source", "fingerprint", "node_labels", "top_relations"})
    alone = data.valid is None and data.test is None
    return read(data.source, **settings) if alone else read(train=data.source, **settings)
