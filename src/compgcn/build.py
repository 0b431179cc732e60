"""From settings to objects: here names become models and tasks, and nowhere below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.answers.classes import Classes
from compgcn.answers.links import Links
from compgcn.baselines import FitOnce, Trained, find_baseline, must_be_installed
from compgcn.baselines.fitted import Fitted, Fitting, must_not_train
from compgcn.baselines.networks import must_be_used
from compgcn.compose import COMPOSITIONS, Composition, Learned
from compgcn.compose import LEARNED as FACTORED
from compgcn.config import Config, configure
from compgcn.config import Encoder as EncoderSettings
from compgcn.data import DATASETS, OWN_RECIPES, GraphCollection, KnowledgeGraph
from compgcn.data.arrays import Numbers
from compgcn.decoders import DECODERS, ConvolutionSettings, build_decoder
from compgcn.decoders.convolution import ConvEQuery, image_shape
from compgcn.encoders import Encoder, preset
from compgcn.errors import InputError, unknown
from compgcn.graph import NORMS, RelationalGraph
from compgcn.inputs import INPUTS, Dataset, num_nodes
from compgcn.models import beneath
from compgcn.models import model as find_model
from compgcn.protocols import Metrics, Session, fitted, holdout, nested, paper, ranking, refit
from compgcn.sampling import seeded
from compgcn.step import chosen_precision
from compgcn.tasks.classification import Classifier, GraphClassifier
from compgcn.tasks.graph_classification import Graphs
from compgcn.tasks.link_prediction import LinkPrediction, LinkPredictor
from compgcn.tasks.node_classification import Nodes
from compgcn.tasks.readout import Readout
from compgcn.tasks.samplers import SAMPLERS, Adversary

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu, "none": lambda x: x}


# Compositions with parameters: those of `compgcn.compose`, and the query of a decoder.

_FILTERS, _KERNEL = 16, 3  # of ConvE as a composition, where every message makes its image


class _Same(nn.Module):
    """The numbers as they are, laid out in order, as a norm would leave them."""

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous()


def _conve(dim: int) -> nn.Module:
    """The query of ConvE without dropout and batch norms: a message depends on its entity and relation alone."""
    height, width = image_shape(dim)
    sizes = ConvolutionSettings(_FILTERS, min(_KERNEL, 2 * height, width), feature_dropout=0.0, hidden_dropout=0.0)
    query = ConvEQuery(dim, sizes)
    for name, part in list(query.named_children()):
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            setattr(query, name, _Same())
    return query


LEARNED: dict[str, Learned] = {
    **FACTORED,
    "conve": Learned(
        "conve",
        _conve,
        origin="a convolution over the entity and the relation as an image",
        reference="Dettmers et al., AAAI 2018",
    ),
}


def find_composition(name: str | None) -> Composition | Learned:
    """The composition of that name, with or without parameters."""
    table: dict[str, Composition | Learned] = {**COMPOSITIONS, **FACTORED, **LEARNED}
    if name not in table:
        raise unknown("composition", str(name), table)
    return table[name]


# From names to a whole config.


def task_of(settings: Config, data: Dataset) -> str:
    """The task that is asked for, or else the first that the data are made for."""
    if settings.task is None:
        return next(name for name, row in TASKS.items() if row.takes(data))
    if not TASKS[settings.task].fits(data):
        raise InputError(f"{settings.task} needs {TASKS[settings.task].needs}, which '{data.name}' is not")
    return settings.task


def recommended(settings: Mapping[str, Any], data: Dataset, model: str | None = None) -> Config:
    """The defaults, then what the data set's recipe (or that for one's own files) recommends, then the settings.

    With a model, a row of `MODELS`, its settings come before one's own, and what the recipe says of others is left out.
    A baseline's own recipe comes before the data set's, of which it takes how to classify and, unless it is fitted
    once, how to train.
    """
    system = None if model is None else find_model(model)
    own: Mapping[str, Any] = {} if system is None else system.settings
    asked = configure(configure(Config(), own), settings)
    task, known = task_of(asked, data), DATASETS.get(asked.data.source)
    recipe = dict(known.recipe if known is not None and known.task == task else OWN_RECIPES[task])
    if system is not None:
        if task != "link-prediction":
            raise InputError(f"the model '{model}' is one of link prediction, not of {task}; choose an encoder instead")
        recipe = beneath(system, recipe)
    if preset(asked.encoder.name).composition is not None:  # an encoder that has its own, and its usual norm
        recipe = {key: recipe[key] for key in recipe if key not in ("encoder.composition", "encoder.norm")}
    baseline = find_baseline(asked.classifier.baseline, task)
    if baseline is not None:
        kept = ("classifier.",) if isinstance(baseline.how, FitOnce) else ("classifier.", "training.")
        recipe = {key: value for key, value in recipe.items() if key.startswith(kept)}
        recipe |= baseline.recipe
    usual = configure(configure(Config(), recipe), own)
    if configure(usual, settings).decoder.name != usual.decoder.name:  # the recipe's sizes are those of another one
        usual = configure(usual, {"decoder.filters": None, "decoder.kernel": None})
    return configure(usual, settings)


def expand(config: Config, data: Dataset) -> Config:
    """Fill in what a preset, a decoder or the data decide, and refuse names that are none."""
    task, row = task_of(config, data), preset(config.encoder.name)
    baseline = find_baseline(config.classifier.baseline, task)
    same = {"task": task, "data.fingerprint": _fingerprint(config, data)}
    if config.classifier.baseline is not None:
        must_be_installed(config.classifier.baseline)
        if config.encoder.name != EncoderSettings().name:
            raise InputError(
                f"the baseline '{config.classifier.baseline}' takes the place of an encoder; name only one"
            )
    if baseline is not None and isinstance(baseline.how, FitOnce):
        must_not_train(config)
        return configure(config, {**same, "classifier.protocol": _protocol(config, task)})
    if baseline is not None:
        must_be_used(config)
        chosen = _input(config, data, TASKS[task])
        start = INPUTS[chosen].start(data)
        inputs = start.size if start.features is None else start.features.shape[1]
        own = {"encoder.input": chosen, "encoder.dims": (inputs, *config.encoder.dims[1:])}
        return configure(config, same | own | TASKS[task].complete(config, data) | {"encoder.add_inverse": None})
    if config.encoder.norm is not None and config.encoder.norm not in NORMS:
        raise unknown("norm", config.encoder.norm, NORMS)
    composition = config.encoder.composition or row.composition or "corr"
    phi = find_composition(composition)
    if row.composition not in (None, composition):
        raise InputError(f"encoder '{config.encoder.name}' has composition '{row.composition}'; leave composition out")
    if row.bases is None and config.encoder.bases:
        raise InputError(f"encoder '{config.encoder.name}' has no bases; leave encoder.bases out")
    chosen = _input(config, data, TASKS[task])
    dims = _dims(config.encoder, data, chosen)
    if isinstance(phi, Composition):
        for dim in dims[:-1]:
            phi(torch.zeros(1, dim), torch.zeros(1, dim))  # not every one takes every dimension
    if config.encoder.residual and len(dims) == 1:
        raise InputError("encoder.residual needs a layer whose vectors it adds; leave it out, or name two encoder.dims")
    found = {
        **same,
        "encoder.input": chosen,
        "encoder.composition": composition,
        "encoder.norm": config.encoder.norm or row.norm,
        "encoder.dims": dims,
        "encoder.bases": config.encoder.bases or row.bases or 0,
    }
    return configure(config, found | TASKS[task].complete(config, data))


def _fingerprint(config: Config, data: Dataset) -> str:
    fingerprint = data.fingerprint()
    if config.data.fingerprint not in (None, fingerprint):
        raise InputError(
            f"the data are not those the config was written for: data.fingerprint is {fingerprint}, not "
            f"{config.data.fingerprint}; leave it out to train on them anyway"
        )
    return fingerprint


def _input(config: Config, data: Dataset, row: TaskRow) -> str:
    chosen = config.encoder.input
    if chosen is None:
        return next(name for name in row.inputs if INPUTS[name].there(data))
    if chosen not in row.inputs:
        raise unknown(f"encoder.input for {task_of(config, data)}", chosen, row.inputs)
    return chosen


def _dims(encoder: EncoderSettings, data: Dataset, chosen: str) -> tuple[int, ...]:
    """The dimensions in use: features that are given decide the first, and without layers there is only one."""
    dims = encoder.dims[-1:] if encoder.name == "none" else encoder.dims
    relations = getattr(data, "relation_features", None) if preset(encoder.name).relations == "vectors" else None
    nodes = INPUTS[chosen].start(data).features if chosen in ("features", "literals") else None
    given = [table for table in (nodes, relations) if table is not None]
    return (given[0].shape[1], *dims[1:]) if given else dims


def _complete_links(config: Config, data: KnowledgeGraph) -> dict[str, Any]:
    if config.decoder.name not in DECODERS:
        raise unknown("decoder", config.decoder.name, DECODERS)
    if config.decoder.generator not in DECODERS:
        raise unknown("decoder.generator", config.decoder.generator, DECODERS)
    if config.encoder.add_inverse is False:
        raise InputError("link prediction asks for heads through inverse relations; leave encoder.add_inverse out")
    d, row = config.decoder, DECODERS[config.decoder.name]
    return {
        "decoder.entity_bias": row.entity_bias if d.entity_bias is None else d.entity_bias,
        "decoder.filters": d.filters or row.settings.filters,
        "decoder.kernel": d.kernel or row.settings.kernel,
        "encoder.add_inverse": True,
    }


def _complete_classes(config: Config, data: Dataset) -> dict[str, Any]:
    both = isinstance(data, GraphCollection) and data.both_directions
    inverse = config.encoder.add_inverse
    return {
        "encoder.add_inverse": not both if inverse is None else inverse,
        "classifier.protocol": _protocol(config, task_of(config, data)),
        "training.loss": "cross-entropy",
    }


def _protocol(config: Config, task: str) -> str:
    protocols = TASKS[task].protocols
    default, *_ = protocols
    protocol = config.classifier.protocol or default
    if protocol not in protocols:
        raise unknown(f"protocol for {task}", protocol, protocols)
    return protocol


# From a whole config to what is trained.


def build_task(config: Config, data: Dataset, device: torch.device, *, whole: bool = False) -> Any:
    """What a config describes, with fresh weights: the task of link prediction, or the items of a classification.

    With `whole`, the nodes of a graph are all of them, and not only those with a label.
    """
    assert config.task is not None
    return TASKS[config.task].build(config, data, device, whole)


def build_graph(config: Config, triples: Numbers, data: Dataset, device: torch.device) -> RelationalGraph:
    """The graph of some triples, or what an ablation puts in its place."""
    graph = RelationalGraph.from_triples(torch.from_numpy(triples).to(device), num_nodes(data), data.num_relations)
    if config.encoder.graph == "none":
        return graph.without_edges()
    if config.encoder.graph == "random":
        return graph.randomised(seeded(config.training.seed))
    return graph


def build_encoder(config: Config, data: Dataset) -> tuple[Encoder, Numbers | None]:
    """The encoder a config describes, and the row of its input table that each node starts from."""
    e = config.encoder
    assert e.input is not None
    assert e.add_inverse is not None
    start = INPUTS[e.input].start(data)
    given = getattr(data, "relation_features", None)
    encoder = Encoder(
        start.size,
        data.num_relations,
        e.dims,
        e.name,
        composition=find_composition(e.composition),
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
        add_inverse=e.add_inverse,
        tie_inverse=e.tie_inverse,
        node_features=start.vectors,
        relation_features=None if given is None else torch.as_tensor(given),
        residual=e.residual,
        edge_dropout=e.edge_dropout,
        init_scale=e.init_scale,
    )
    return encoder, start.rows


def build_links(config: Config, data: KnowledgeGraph, device: torch.device, whole: bool) -> LinkPrediction:
    """The task of link prediction."""
    must_be_trainable(data)
    splits = {name: torch.from_numpy(triples).to(device) for name, triples in data.splits.items()}
    graph = build_graph(config, data.train, data, device)
    margin = (config.decoder.margin_decay, config.decoder.margin_patience)
    mixed = chosen_precision(config.training.precision, device) == "mixed"
    model = build_model(config, data, half_query=mixed).to(device)
    return LinkPrediction(model, graph, splits, config.training, margin)


def build_model(config: Config, data: KnowledgeGraph, *, half_query: bool = False) -> LinkPredictor:
    """The encoder and the decoder a config describes."""
    e, d = config.encoder, config.decoder
    encoder, _ = build_encoder(config, data)
    assert d.filters is not None
    assert d.kernel is not None
    settings = ConvolutionSettings(
        filters=d.filters,
        kernel=d.kernel,
        input_dropout=d.input_dropout,
        feature_dropout=d.feature_dropout,
        hidden_dropout=d.hidden_dropout,
        height=d.height,
    )
    decoder = build_decoder(
        d.name,
        data.num_entities,
        encoder.dim,
        entity_bias=d.entity_bias,
        margin=d.margin,
        settings=settings,
        half_query=half_query,
    )
    return LinkPredictor(
        encoder,
        decoder,
        tie_inverse=e.tie_inverse,
        init_scale=e.init_scale,
        adversary=_adversary(config, data) if SAMPLERS[config.training.sampler].adversary else None,
    )


def _adversary(config: Config, data: KnowledgeGraph) -> Adversary:
    """The generator of KBGAN: a decoder with tables of its own, of the model's dimension."""
    dim = config.encoder.dims[-1]
    encoder = Encoder(data.num_entities, data.num_relations, [dim], "none")
    decoder = build_decoder(config.decoder.generator, data.num_entities, dim)
    return Adversary(LinkPredictor(encoder, decoder))


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


def _labelled(data: KnowledgeGraph) -> tuple[dict[str, Numbers], Numbers, tuple[str, ...]]:
    """Which items of `build_nodes` are for what, the class of each, and the names of the classes."""
    assert data.labels is not None
    ends = np.cumsum([len(rows) for rows in data.labels.splits.values()])
    numbers = np.split(np.arange(ends[-1]), ends[:-1])
    targets = np.concatenate([rows[:, 1] for rows in data.labels.splits.values()])
    return dict(zip(data.labels.splits, numbers, strict=True)), targets, data.labels.classes


# The tasks.


class TaskRow(NamedTuple):
    """All that tells one task from another.

    Fields:
        description, reference: what is predicted, and whose way of measuring it is followed.
        takes: whether data are made for it.
        fits: whether they can be used for it.
        needs: what they must be, in words.
        inputs: what its nodes can start from, the first that the data have being the default.
        protocols: by name, the first being the default.
        complete: the settings it fills in.
        build: makes what is trained, see `build_task`.
        items: which items are for what, the class of each, and the names of the classes.
        answers: what a trained model can be asked, from its config, data and what was built of them.
    """

    description: str
    reference: str
    takes: Callable[[Any], bool]
    fits: Callable[[Any], bool]
    needs: str
    inputs: tuple[str, ...]
    protocols: Mapping[str, Callable[[Session], Metrics]]
    complete: Callable[[Config, Any], dict[str, Any]]
    build: Callable[[Config, Any, torch.device, bool], Any]
    items: Callable[[Any], tuple[dict[str, Numbers], Numbers, tuple[str, ...]]]
    answers: Callable[[Config, Any, Any, Mapping[str, Any]], Links | Classes]


TASKS: dict[str, TaskRow] = {
    "link-prediction": TaskRow(
        description="the facts that are missing from a graph, by rank among all entities",
        reference="Bordes et al., NeurIPS 2013",
        takes=lambda data: isinstance(data, KnowledgeGraph) and data.labels is None,
        fits=lambda data: isinstance(data, KnowledgeGraph),
        needs="a knowledge graph",
        inputs=("features", "learned", "literals"),
        protocols={"ranking": ranking},
        complete=_complete_links,
        build=build_links,
        items=lambda data: ({}, np.empty(0, dtype=np.int64), ()),
        answers=Links,
    ),
    "node-classification": TaskRow(
        description="the classes of nodes, from some that have labels",
        reference="Schlichtkrull et al., ESWC 2018",
        takes=lambda data: isinstance(data, KnowledgeGraph) and data.labels is not None,
        fits=lambda data: isinstance(data, KnowledgeGraph) and data.labels is not None,
        needs="a knowledge graph with labels of some of its nodes",
        inputs=("features", "types", "learned", "literals", "shared"),
        protocols={"refit": refit, "holdout": holdout},
        complete=_complete_classes,
        build=build_nodes,
        items=_labelled,
        answers=Classes,
    ),
    "graph-classification": TaskRow(
        description="the classes of whole graphs, by cross-validation",
        reference="Xu et al., ICLR 2019",
        takes=lambda data: isinstance(data, GraphCollection),
        fits=lambda data: isinstance(data, GraphCollection),
        needs="a collection of graphs",
        inputs=("labels", "features", "shared"),
        protocols={"paper": paper, "nested": nested},
        complete=_complete_classes,
        build=build_graphs,
        items=lambda data: ({"train": np.arange(len(data))}, data.targets, data.classes),
        answers=Classes,
    ),
}


def chosen_protocol(config: Config) -> Callable[[Session], Metrics]:
    """How a whole config is trained and reported."""
    assert config.task is not None
    baseline = find_baseline(config.classifier.baseline, config.task)
    if baseline is not None and isinstance(baseline.how, FitOnce):
        return fitted
    default, *_ = TASKS[config.task].protocols
    return TASKS[config.task].protocols[config.classifier.protocol or default]


def default_folder(config: Config) -> Path:
    """runs/<data>-<encoder>-<decoder>-<seed>; in a classification the protocol stands for the decoder.

    A baseline stands in its encoder's place.
    """
    source = Path(config.data.source).name.split(".")[0] or "graph"
    how = config.classifier.protocol or config.decoder.name
    what = config.classifier.baseline or config.encoder.name
    return Path("runs") / f"{source}-{what}-{how}-{config.training.seed}"


def find_device(name: str) -> torch.device:
    """The device of that name; "auto" is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros((), device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(f"the device '{name}' is not there; use cpu, or auto for the best there is") from None
    return device


def must_be_trainable(data: KnowledgeGraph) -> None:
    if not len(data.train):
        raise InputError(f"the graph '{data.name}' has no training triples")
    if data.num_entities < 2:
        raise InputError(f"the graph '{data.name}' has only one entity, so there is nothing to tell apart")


def must_fill_batches(config: Config, data: Dataset, built: Any) -> None:
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
