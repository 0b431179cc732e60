"""Trial runs: small data and small models of the same kind, to check an experiment in seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compgcn.baselines import BASELINES, FitOnce
from compgcn.config import Config
from compgcn.data import DATASETS, GraphCollection, KnowledgeGraph, Labels, Vocabulary, datasets
from compgcn.data.graph import restricted, top_relations
from compgcn.tasks.inputs import Dataset

_COUNTRIES = 40
_DIMENSION = 16
_RELATIONS = ("borders", "speaks", "uses_currency", "capital", "on_continent")
_CLASSES = ("elsewhere", "Europe")
_Ids = NDArray[np.int64]


def task_of(config: Config) -> str:
    """Return the task of a config; without one, that of its data set."""
    known = DATASETS.get(config.data.source)
    return config.task or (known.task if known is not None else "link-prediction")


def trial_data(config: Config) -> Dataset:
    """Return a small graph for the task of a config: facts about countries, or whether each lies in Europe."""
    task, graph = task_of(config), _countries()
    if task == "link-prediction":
        wanted = config.data.top_relations
        return graph if wanted is None else top_relations(graph, min(wanted, graph.num_relations))
    rows = np.concatenate(list(graph.splits.values()))
    located = rows[:, 1] == graph.relations.index("on_continent")
    nodes, facts = rows[located, 0], rows[~located]
    classes = (rows[located, 2] == graph.entities.index("Europe")).astype(np.int64)
    return (
        _nodes(graph, nodes, classes, facts) if task == "node-classification" else _graphs(graph, nodes, classes, facts)
    )


def _countries() -> KnowledgeGraph:
    """Return the facts of the embedded graph about some countries."""
    whole = datasets.load_world()
    relations = [whole.relations.index(name) for name in _RELATIONS]
    chosen = whole.train[whole.train[:, 1] == relations[-1]][:_COUNTRIES, 0]
    splits = whole.splits.items()
    return restricted(whole, {k: np.isin(v[:, 1], relations) & np.isin(v[:, 0], chosen) for k, v in splits})


def _nodes(graph: KnowledgeGraph, nodes: _Ids, classes: _Ids, facts: _Ids) -> KnowledgeGraph:
    rows = np.column_stack([nodes, classes])
    third = len(rows) // 3
    labels = Labels(_CLASSES, rows[third:], rows[:0], rows[:third])
    empty = np.empty((0, 3), dtype=np.int64)
    return replace(graph, train=facts, valid=empty, test=empty, labels=labels)


def _graphs(graph: KnowledgeGraph, nodes: _Ids, classes: _Ids, facts: _Ids) -> GraphCollection:
    """Return a star for each country: the country, and a node for each of its facts."""
    triples, graph_of, labels, start = [], [], [], 0
    for number, node in enumerate(nodes):
        relations = facts[facts[:, 0] == node, 1].tolist()
        triples += [(start, r, start + 1 + k) for k, r in enumerate(relations)]
        graph_of += [number] * (1 + len(relations))
        labels += [0, *(1 + r for r in relations)]
        start += 1 + len(relations)
    return GraphCollection(
        "countries",
        Vocabulary("relation", graph.relations.ids),
        _CLASSES,
        graph_of=np.array(graph_of),
        triples=np.array(triples, dtype=np.int64),
        targets=classes,
        node_labels=np.array(labels),
        node_classes=("country", *graph.relations.ids),
        graph_ids=tuple(graph.entities.ids[node] for node in nodes),
    )


def trial_settings(config: Config) -> dict[str, Any]:
    """Return the settings that make a model of the same kind small and its training short."""
    few: dict[str, Any] = {}
    if config.task != "link-prediction":
        few |= {"classifier.folds": 2, "classifier.inner_folds": 2}
    baseline = BASELINES.get(config.classifier.baseline or "")
    if baseline is not None and isinstance(baseline.how, FitOnce):
        return few
    few |= {
        "encoder.dims": tuple(min(dim, _DIMENSION) for dim in config.encoder.dims),
        "encoder.bases": min(config.encoder.bases, 2),
        "training.epochs": 1 if config.task == "link-prediction" else 2,
        "training.evaluate_every": 1,
        "training.batch_size": 64,
    }
    if config.decoder.name == "conve":
        few |= {"decoder.filters": 4, "decoder.kernel": 3, "decoder.height": None}
    return few
