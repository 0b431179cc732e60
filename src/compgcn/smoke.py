"""Trial runs: small data of every kind, made of the embedded graph, and small models to train on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from compgcn.baselines import BASELINES, FitOnce
from compgcn.config import Config
from compgcn.data import DATASETS, GraphCollection, KnowledgeGraph, Labels, Vocabulary, world
from compgcn.data.prune import restricted, top_relations
from compgcn.inputs import Dataset

_COUNTRIES = 40
_DIMENSION = 16
_ABOUT = ("borders", "speaks", "uses_currency", "capital", "on_continent")


def smoke_data(config: Config) -> Dataset:
    """A small graph for the task of a config's data: countries; their continents to tell; a graph around each."""
    known = DATASETS.get(config.data.source)
    task = config.task or (known.task if known is not None else "link-prediction")
    if task == "node-classification":
        return _nodes()
    if task == "graph-classification":
        return _graphs()
    graph = countries()
    wanted = config.data.top_relations
    return graph if wanted is None else top_relations(graph, min(wanted, graph.num_relations))


def countries() -> KnowledgeGraph:
    """What the embedded graph says of some countries."""
    whole = world.load()
    about = [whole.relations.index(name) for name in _ABOUT]
    continent = whole.train[whole.train[:, 1] == about[-1]]
    chosen = continent[:_COUNTRIES, 0]
    return restricted(
        whole,
        {part: np.isin(rows[:, 1], about) & np.isin(rows[:, 0], chosen) for part, rows in whole.splits.items()},
    )


def _by_continent(graph: KnowledgeGraph) -> tuple[Any, Any, Any]:
    """Countries, whether each is in Europe, and all other facts of them."""
    rows = np.concatenate(list(graph.splits.values()))
    told = rows[:, 1] == graph.relations.index("on_continent")
    places = rows[told]
    return places[:, 0], (places[:, 2] == graph.entities.index("Europe")).astype(np.int64), rows[~told]


def _nodes() -> KnowledgeGraph:
    graph = countries()
    nodes, classes, facts = _by_continent(graph)
    rows = np.column_stack([nodes, classes])
    third = len(rows) // 3
    labels = Labels(("elsewhere", "Europe"), rows[third:], rows[:0], rows[:third])
    empty = np.empty((0, 3), dtype=np.int64)
    return replace(graph, train=facts, valid=empty, test=empty, labels=labels)


def _graphs() -> GraphCollection:
    graph = countries()
    nodes, classes, facts = _by_continent(graph)
    triples, graph_of, labels, start = [], [], [], 0
    for number, node in enumerate(nodes):
        around = facts[facts[:, 0] == node]
        triples += [(start, int(r), start + 1 + k) for k, (_, r, _) in enumerate(around)]
        graph_of += [number] * (1 + len(around))
        labels += [0, *(1 + int(r) for r in around[:, 1])]
        start += 1 + len(around)
    return GraphCollection(
        "countries",
        Vocabulary("relation", graph.relations.ids),
        ("elsewhere", "Europe"),
        graph_of=np.array(graph_of),
        triples=np.array(triples, dtype=np.int64),
        targets=classes,
        node_labels=np.array(labels),
        node_classes=("country", *graph.relations.ids),
        graph_ids=tuple(graph.entities.ids[node] for node in nodes),
    )


def smoke_settings(config: Config) -> dict[str, Any]:
    """What makes a model of the same kind small and its training short."""
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
