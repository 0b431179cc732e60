"""From a resolved config and its data to the modules and tasks it describes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn import processes
from compgcn.config import Config, Data
from compgcn.data import GraphCollection, KnowledgeGraph
from compgcn.data.columns import Numbers
from compgcn.data.labels import deal
from compgcn.errors import InputError
from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.nn.convolutional import ConvolutionSettings
from compgcn.nn.decoders import DECODERS, build_decoder
from compgcn.nn.encoder import Backwards, Encoder, learned
from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.classification import Classifier, Graphs, Nodes, Readout
from compgcn.tasks.inputs import INPUTS, Dataset, Start, num_nodes
from compgcn.tasks.link_prediction import ConditionalPrediction, LinkPrediction, LinkPredictor, LinkTask, Ranker
from compgcn.tasks.sampling import SAMPLERS, Adversary, seeded
from compgcn.train.step import chosen_precision

if TYPE_CHECKING:  # loaded where a config names a baseline, or where several processes share a model
    from compgcn.baselines import Baseline
    from compgcn.baselines.fitted import Fitted
    from compgcn.shards.link_prediction import ShardedLinkPrediction
    from compgcn.shards.rows import Rows

CONDITIONAL = "conditional"  # the encoder that scores by itself

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu, "none": lambda x: x}


class TaskRow(NamedTuple):
    """A task as `compgcn list tasks` shows it, with the inputs and protocols it takes, the default first."""

    description: str
    reference: str
    needs: str
    inputs: tuple[str, ...]
    protocols: tuple[str, ...]


TASKS: dict[str, TaskRow] = {
    "link-prediction": TaskRow(
        description="the facts that are missing from a graph, by rank among all entities",
        reference="Bordes et al., NeurIPS 2013",
        needs="a knowledge graph",
        inputs=("features", "learned", "literals"),
        protocols=("ranking",),
    ),
    "node-classification": TaskRow(
        description="the classes of nodes, from some that have labels",
        reference="Schlichtkrull et al., ESWC 2018",
        needs="a knowledge graph with labels of some of its nodes (--labels FILE)",
        inputs=("features", "types", "learned", "literals", "shared"),
        protocols=("refit", "holdout"),
    ),
    "graph-classification": TaskRow(
        description="the classes of whole graphs, by cross-validation",
        reference="Xu et al., ICLR 2019",
        needs="a collection of graphs",
        inputs=("labels", "features", "shared"),
        protocols=("paper", "nested"),
    ),
}


def find_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros((), device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(f"there is no device '{name}' here; use cpu or auto") from None
    return device


def baseline_of(config: Config, task: str) -> Baseline | None:
    """Return the baseline that a config names, if it names one; baselines are loaded only then."""
    if config.classifier.baseline is None:
        return None
    from compgcn.baselines import find_baseline

    return find_baseline(config.classifier.baseline, task)


# Encoder and graph


def build_graph(config: Config, triples: Numbers, data: Dataset, device: torch.device) -> RelationalGraph:
    """Make the graph of some triples, or the one of an ablation."""
    graph = RelationalGraph.from_triples(torch.from_numpy(triples).to(device), num_nodes(data), data.num_relations)
    if config.encoder.graph == "none":
        return graph.without_edges()
    if config.encoder.graph == "random":
        return graph.randomised(seeded(config.training.seed))
    return graph


def build_start(config: Config, data: Dataset) -> Start:
    """Make the initial vectors of the nodes."""
    assert config.encoder.input is not None  # `compgcn.run.resolve.expand` fills it in
    return INPUTS[config.encoder.input].start(data)


def build_encoder(config: Config, data: Dataset, own: Rows | None = None) -> tuple[Encoder, Numbers | None]:
    """Make the encoder, or a rank's own rows of it, and the row of its input table of each node."""
    e, start = config.encoder, build_start(config, data)
    given, vectors = getattr(data, "relation_features", None), start.vectors
    if own is not None and vectors is not None:
        vectors = vectors[own.start : own.stop].clone()
    encoder = Encoder(
        start.size if own is None else own.size,
        data.num_relations,
        e.dims,
        e.name,
        composition=e.composition,
        norm=e.norm,
        flow=e.flow,
        bases=e.bases,
        dropout=e.dropout,
        loop_dropout=e.loop_dropout,
        hidden_dropout=e.hidden_dropout,
        bias=e.bias,
        batch_norm=e.batch_norm,
        activation=ACTIVATIONS[e.activation],
        self_loop=e.self_loop,
        update_loop=e.update_loop,
        add_inverse=not (isinstance(data, GraphCollection) and data.both_directions),
        tie_inverse=_tie(config),
        node_features=vectors,
        relation_features=None if given is None else torch.as_tensor(given),
        residual=e.residual,
        init_scale=e.init_scale,
        entity_table=learned if own is None else own.learned,
    )
    return encoder, start.rows


def _tie(config: Config) -> Backwards | None:
    """Return the map from a relation to its inverse, if they are tied: as the decoder reads a triple backwards."""
    if not config.encoder.tie_inverse:
        return None
    return DECODERS[config.decoder.name].backwards if config.task == "link-prediction" else torch.neg


# Link prediction


def build_model(
    config: Config, data: KnowledgeGraph, *, half_query: bool = False, own: Rows | None = None
) -> LinkPredictor:
    """Make the encoder and the decoder of a link predictor, or a rank's own rows of them."""
    e, d = config.encoder, config.decoder
    encoder, _ = build_encoder(config, data, own)
    usual = DECODERS[d.name].settings
    decoder = build_decoder(
        d.name,
        data.num_entities if own is None else own.size,
        encoder.dim,
        entity_bias=d.entity_bias,
        margin=d.margin,
        settings=ConvolutionSettings(
            filters=d.filters or usual.filters,
            kernel=d.kernel or usual.kernel,
            input_dropout=d.input_dropout,
            feature_dropout=d.feature_dropout,
            hidden_dropout=d.hidden_dropout,
        ),
        half_query=half_query,
    )
    return LinkPredictor(
        encoder,
        decoder,
        tie_inverse=_tie(config),
        init_scale=e.init_scale,
        adversary=_adversary(config, data) if SAMPLERS[config.training.sampler].adversary else None,
    )


def _adversary(config: Config, data: KnowledgeGraph) -> Adversary:
    """Make the generator of KBGAN: DistMult with tables of its own, of the model's dimension."""
    dim = config.encoder.dims[-1]
    encoder = Encoder(data.num_entities, data.num_relations, [dim], "none")
    return Adversary(LinkPredictor(encoder, build_decoder("distmult", data.num_entities, dim)))


def build_ranker(config: Config, data: KnowledgeGraph, device: torch.device) -> Ranker:
    """Make a link predictor that answers and is not trained."""
    if processes.size() > 1 and config.encoder.name != CONDITIONAL:
        return build_shard(config, data, device, processes.World())
    splits = _splits(data, device)
    graph = build_graph(config, data.train, data, device)
    mixed = chosen_precision(config.training.precision, device) == "mixed"
    e = config.encoder
    if e.name == CONDITIONAL:
        sizes = data.num_relations, e.dims[-1], len(e.dims) - 1
        model = ConditionalCompGCN(*sizes, e.composition or "mult", e.statistics, bias=e.bias, half=mixed)
        model = model.to(device)
        model.measure(graph)
        return Ranker(model, graph, splits)
    return Ranker(build_model(config, data, half_query=mixed).to(device), graph, splits)


def _splits(data: KnowledgeGraph, device: torch.device) -> dict[str, Tensor]:
    """Return the triples of each split; refuse a graph that teaches nothing."""
    if not len(data.train):
        raise InputError(f"the graph '{data.name}' has no training triples")
    if data.num_entities < 2:
        raise InputError(f"the graph '{data.name}' has only one entity, so there is nothing to tell apart")
    return {name: torch.from_numpy(triples).to(device) for name, triples in data.splits.items()}


def build_links(config: Config, data: KnowledgeGraph, device: torch.device) -> LinkTask:
    """Make the task of link prediction."""
    ranker = build_ranker(config, data, device)
    if isinstance(ranker.model, ConditionalCompGCN):
        return ConditionalPrediction(ranker.model, ranker.graph, ranker.splits, config.training)
    if isinstance(ranker, LinkPrediction):  # shared out
        return ranker
    more = config.decoder.margin_decay, config.encoder.fanout
    task = LinkPrediction(ranker.model, ranker.graph, ranker.splits, config.training, *more)
    _must_fill_batches(task.batch_size < 2, task.model.decoder, config, "query")
    return task


def build_shard(
    config: Config, data: KnowledgeGraph, device: torch.device, world: processes.World
) -> ShardedLinkPrediction:
    """Make the task of link prediction of one of several ranks; see `compgcn.shards`."""
    from compgcn.shards.link_prediction import ShardedLinkPrediction, must_be_supported
    from compgcn.shards.rows import Rows

    must_be_supported(config.training)
    if config.encoder.fanout:
        raise InputError("several processes encode the whole graph; leave encoder.fanout out, or train in one process")
    cpu, rows = torch.device("cpu"), Rows(data.num_entities, world)
    mixed = chosen_precision(config.training.precision, device) == "mixed"
    model = build_model(config, data, half_query=mixed, own=rows).to(device)
    graph, splits = build_graph(config, data.train, data, cpu), _splits(data, cpu)
    task = ShardedLinkPrediction(model, graph, splits, config.training, config.decoder.margin_decay, rows)
    _must_fill_batches(task.batch_size < 2, task.model.decoder, config, "query")
    return task


# Classification


class Labelled(NamedTuple):
    """The items of a classification: which are for what, the class of each, and the names of the classes."""

    splits: dict[str, Numbers]
    targets: Numbers
    classes: tuple[str, ...]

    @property
    def pool(self) -> Numbers:
        """All items that may be trained on and chosen by."""
        parts = [rows for split, rows in self.splits.items() if split != "test"]
        return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *parts]))

    def validation(self, settings: Data) -> tuple[Numbers, Numbers]:
        """Return the items that `holdout` trains on, and those it chooses by, drawn from train if there are none."""
        train, valid = self.splits["train"], self.splits["valid"]
        if not len(valid) and settings.valid_fraction:
            rows = np.column_stack((train, self.targets[train]))
            parts = deal(rows, np.random.default_rng(settings.split_seed), settings.valid_fraction, 0.0)
            train, valid = (np.sort(part[:, 0]) for part in parts[:2])
        return train, valid


def labelled_items(data: Dataset) -> Labelled:
    """Return the graphs of a collection, or the labelled nodes of a graph: train, then valid, then test."""
    if isinstance(data, GraphCollection):
        return Labelled({"train": np.arange(len(data))}, data.targets, data.classes)
    if data.labels is None:
        return Labelled({}, np.empty(0, dtype=np.int64), ())
    ends = np.cumsum([len(rows) for rows in data.labels.splits.values()])
    numbers = np.split(np.arange(ends[-1]), ends[:-1])
    targets = np.concatenate([rows[:, 1] for rows in data.labels.splits.values()])
    return Labelled(dict(zip(data.labels.splits, numbers, strict=True)), targets, data.labels.classes)


def build_nodes(config: Config, data: KnowledgeGraph, device: torch.device, whole: bool = False) -> Nodes | Fitted:
    """Make the items of `labelled_items`, or with `whole` all nodes of the graph in order."""
    if data.labels is None:
        raise InputError(f"node-classification needs {TASKS['node-classification'].needs}")
    labelled = torch.from_numpy(np.concatenate(list(data.labels.splits.values()))).to(device)  # [n, 2]
    nodes, targets = labelled.unbind(1)
    if whole:
        known, nodes = nodes, torch.arange(data.num_entities, device=device)
        targets = torch.full_like(nodes, -1).scatter(0, known, targets)
    baseline = baseline_of(config, "node-classification")
    if baseline is not None:
        from compgcn.baselines.fitted import FitOnce, Fitted, Fitting

        assert isinstance(baseline.how, FitOnce)
        fitting = Fitting(len(data.labels.classes), config.classifier.inner_folds, config.training.seed)
        return Fitted(baseline.how, data, nodes, targets, fitting)
    encoder, rows = build_encoder(config, data)
    model = Classifier(encoder, len(data.labels.classes)).to(device)
    graph = build_graph(config, data.train, data, device)
    start = None if rows is None else torch.from_numpy(rows).to(device)
    return Nodes(model, graph, start, nodes.contiguous(), targets.contiguous(), restrict=not whole)


def build_graphs(config: Config, data: GraphCollection, device: torch.device) -> Graphs:
    """Make the graphs of a collection."""
    baseline = baseline_of(config, "graph-classification")
    if baseline is not None:
        from compgcn.baselines.fitted import FitOnce

        assert not isinstance(baseline.how, FitOnce)
        start = build_start(config, data)
        network, rows = baseline.how(config, data, start), start.rows
        model = Classifier(network, len(data.classes))
    else:
        encoder, rows = build_encoder(config, data)
        model = Classifier(encoder, len(data.classes), Readout(config.classifier.readout, encoder.dim))
    if config.encoder.graph == "none":
        data = replace(data, triples=data.triples[:0])
    elif config.encoder.graph == "random":
        raise InputError("encoder.graph = 'random' would mix the graphs; use 'none', or the graphs as they are")
    graphs = Graphs(model.to(device), data, np.arange(data.num_nodes) if rows is None else rows, device)
    _must_fill_batches(config.training.batch_size < 2 and graphs.smallest < 2, model, config, "node")
    return graphs


def build_items(config: Config, data: Dataset, device: torch.device, whole: bool = False) -> Nodes | Fitted | Graphs:
    """Make the items of a classification, with fresh weights."""
    if isinstance(data, GraphCollection):
        return build_graphs(config, data, device)
    return build_nodes(config, data, device, whole)


def _must_fill_batches(alone: bool, part: nn.Module, config: Config, what: str) -> None:
    """Refuse batches of one example where something normalises over the batch."""
    if alone and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in part.modules()):
        raise InputError(
            f"with training.batch_size = {config.training.batch_size} a batch can hold a single {what}, and this model "
            "normalises over the batch; raise batch_size"
        )
