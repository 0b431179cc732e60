"""From a whole config to what is trained on: facts, the nodes of a graph, or whole graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from compgcn.assembly.models import build_encoder, build_graph, build_model
from compgcn.baselines import FitOnce, Trained, find_baseline
from compgcn.baselines.fitted import Fitted, Fitting
from compgcn.config import Config
from compgcn.data import GraphCollection, KnowledgeGraph
from compgcn.data.arrays import Numbers
from compgcn.errors import InputError
from compgcn.inputs import INPUTS
from compgcn.step import chosen_precision
from compgcn.tasks.classification import Classifier, GraphClassifier
from compgcn.tasks.graph_classification import Graphs
from compgcn.tasks.link_prediction import LinkPrediction
from compgcn.tasks.node_classification import Nodes
from compgcn.tasks.readout import Readout


def build_links(config: Config, data: KnowledgeGraph, device: torch.device, whole: bool) -> LinkPrediction:
    """The task of link prediction."""
    must_be_trainable(data)
    splits = {name: torch.from_numpy(triples).to(device) for name, triples in data.splits.items()}
    graph = build_graph(config, data.train, data, device)
    margin = (config.decoder.margin_decay, config.decoder.margin_patience)
    mixed = chosen_precision(config.training.precision, device) == "mixed"
    model = build_model(config, data, half_query=mixed).to(device)
    return LinkPrediction(model, graph, splits, config.training, margin)


def build_nodes(config: Config, data: KnowledgeGraph, device: torch.device, whole: bool) -> Nodes | Fitted:
    """The labelled nodes of a graph, of train, then valid, then test; or, as a whole, all its nodes in order."""
    assert data.labels is not None
    labelled = torch.from_numpy(np.concatenate(list(data.labels.splits.values()))).to(device)  # [n, 2]
    nodes, targets = labelled.unbind(1)
    if whole:
        known, nodes = nodes, torch.arange(data.num_entities, device=device)
        targets = torch.full_like(nodes, -1).scatter(0, known, targets)
    baseline = find_baseline(config.classifier.baseline, "node-classification")
    if baseline is not None and isinstance(baseline.how, FitOnce):
        c = config.classifier
        fitting = Fitting(len(data.labels.classes), c.inner_folds, c.class_weights, config.training.seed)
        return Fitted(baseline.how, data, nodes, targets, fitting, device)
    encoder, rows = build_encoder(config, data)
    model = Classifier(encoder, len(data.labels.classes)).to(device)
    graph = build_graph(config, data.train, data, device)
    start = None if rows is None else torch.from_numpy(rows).to(device)
    return Nodes(model, graph, start, nodes.contiguous(), targets.contiguous(), restrict=not whole)


def build_graphs(config: Config, data: GraphCollection, device: torch.device, whole: bool) -> Graphs:
    """The graphs of a collection."""
    baseline = find_baseline(config.classifier.baseline, "graph-classification")
    model: Classifier | GraphClassifier
    if baseline is None:
        encoder, rows = build_encoder(config, data)
        model = Classifier(encoder, len(data.classes), Readout(config.classifier.readout, encoder.dim))
    else:
        assert isinstance(baseline.how, Trained)
        assert config.encoder.input is not None
        start = INPUTS[config.encoder.input].start(data)
        model, rows = baseline.how.build(config, data, start), start.rows
    if config.encoder.graph == "none":
        data = replace(data, triples=data.triples[:0])
    elif config.encoder.graph == "random":
        raise InputError("encoder.graph = 'random' would mix the graphs; use 'none', or the graphs as they are")
    return Graphs(model.to(device), data, np.arange(data.num_nodes) if rows is None else rows, device)


def labelled_nodes(data: KnowledgeGraph) -> tuple[dict[str, Numbers], Numbers, tuple[str, ...]]:
    """Which items of `build_nodes` are for what, the class of each, and the names of the classes."""
    assert data.labels is not None
    ends = np.cumsum([len(rows) for rows in data.labels.splits.values()])
    numbers = np.split(np.arange(ends[-1]), ends[:-1])
    targets = np.concatenate([rows[:, 1] for rows in data.labels.splits.values()])
    return dict(zip(data.labels.splits, numbers, strict=True)), targets, data.labels.classes


def must_be_trainable(data: KnowledgeGraph) -> None:
    if not len(data.train):
        raise InputError(f"the graph '{data.name}' has no training triples")
    if data.num_entities < 2:
        raise InputError(f"the graph '{data.name}' has only one entity, so there is nothing to tell apart")


def must_fill_batches(config: Config, built: Any) -> None:
    """Refuse batches of one example where something normalises over the batch."""
    part: nn.Module
    if isinstance(built, LinkPrediction):
        alone, part, what = built.batch_size < 2, built.model.decoder, ("query", "decoder")
    elif isinstance(built, Graphs):
        alone, part, what = config.training.batch_size < 2 and built.smallest < 2, built.model, ("node", "model")
    else:
        return
    if alone and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in part.modules()):
        raise InputError(
            f"with training.batch_size = {config.training.batch_size} a batch can hold a single {what[0]}, and this "
            f"{what[1]} normalises over the batch; raise batch_size"
        )
