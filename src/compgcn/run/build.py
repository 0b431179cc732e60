"""Whether the labels there are suffice for a classification as it is asked for, said before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.answers.classes import Classes
from compgcn.answers.links import Links
from compgcn.baselines import FitOnce, Trained, find_baseline
from compgcn.baselines.fitted import Fitted, Fitting
from compgcn.config import Config
from compgcn.data import GraphCollection, KnowledgeGraph
from compgcn.data.columns import Numbers, counted
from compgcn.data.labels import deal
from compgcn.errors import InputError, unknown
from compgcn.nn.compose import COMPOSITIONS, Composition, Learned
from compgcn.nn.compose import LEARNED as FACTORED
from compgcn.nn.convolutional import ConvEQuery, ConvolutionSettings, image_shape
from compgcn.nn.decoders import DECODERS, build_decoder
from compgcn.nn.decoders import Row as DecoderRow
from compgcn.nn.encoder import Backwards, Encoder, preset
from compgcn.nn.graph import RelationalGraph
from compgcn.run.protocols import Metrics, Session, fitted, holdout, nested, paper, ranking, refit
from compgcn.tasks.classification import Classifier, GraphClassifier, Graphs, Nodes, Readout
from compgcn.tasks.inputs import INPUTS, Dataset, num_nodes
from compgcn.tasks.link_prediction import LinkPrediction, LinkPredictor
from compgcn.tasks.sampling import SAMPLERS, Adversary, seeded
from compgcn.train.step import chosen_precision

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
    table: dict[str, Composition | Learned] = {**COMPOSITIONS, **FACTORED, **LEARNED}  # a row may be added to each
    if name not in table:
        raise unknown("composition", str(name), table)
    return table[name]


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


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu, "none": lambda x: x}


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
        tie_inverse=_tie(config),
        node_features=start.vectors,
        relation_features=None if given is None else torch.as_tensor(given),
        residual=e.residual,
        edge_dropout=e.edge_dropout,
        init_scale=e.init_scale,
    )
    return encoder, start.rows


def _tie(config: Config) -> Backwards | None:
    """What makes an inverse of its original, where they are tied: as the decoder reads a triple backwards."""
    if not config.encoder.tie_inverse:
        return None
    return DECODERS[config.decoder.name].backwards if config.task == "link-prediction" else torch.neg


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
        tie_inverse=_tie(config),
        init_scale=e.init_scale,
        adversary=_adversary(config, data) if SAMPLERS[config.training.sampler].adversary else None,
    )


def _adversary(config: Config, data: KnowledgeGraph) -> Adversary:
    """The generator of KBGAN: a decoder with tables of its own, of the model's dimension."""
    dim = config.encoder.dims[-1]
    encoder = Encoder(data.num_entities, data.num_relations, [dim], "none")
    decoder = build_decoder(config.decoder.generator, data.num_entities, dim)
    return Adversary(LinkPredictor(encoder, decoder))


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


def task_of(settings: Config, data: Dataset) -> str:
    """The task that is asked for, or else the first that the data are made for."""
    if settings.task is None:
        return next(name for name, row in TASKS.items() if row.takes(data))
    if not TASKS[settings.task].fits(data):
        raise InputError(f"{settings.task} needs {TASKS[settings.task].needs}, which '{data.name}' is not")
    return settings.task


def protocol_of(config: Config, task: str) -> str:
    """The protocol that is asked for, or else the task's first."""
    protocols = TASKS[task].protocols
    default, *_ = protocols
    protocol = config.classifier.protocol or default
    if protocol not in protocols:
        raise unknown(f"protocol for {task}", protocol, protocols)
    if config.classifier.candidates and protocol != "nested":
        raise InputError(
            f"the protocol '{protocol}' chooses among no candidates; take --protocol nested, or compgcn tune before"
        )
    return protocol


def _complete_links(config: Config, data: KnowledgeGraph) -> dict[str, Any]:
    if config.decoder.name not in DECODERS:
        raise unknown("decoder", config.decoder.name, DECODERS)
    if config.decoder.generator not in DECODERS:
        raise unknown("decoder.generator", config.decoder.generator, DECODERS)
    if config.encoder.add_inverse is False:
        raise InputError("link prediction asks for heads through inverse relations; leave encoder.add_inverse out")
    if config.classifier.candidates:
        raise InputError("link prediction chooses among no candidates; search for settings with compgcn tune")
    d, row = config.decoder, DECODERS[config.decoder.name]
    if config.encoder.tie_inverse:
        _must_tie(config.encoder.name, d.name, row)
    return {
        "decoder.entity_bias": row.entity_bias if d.entity_bias is None else d.entity_bias,
        "decoder.filters": d.filters or row.settings.filters,
        "decoder.kernel": d.kernel or row.settings.kernel,
        "encoder.add_inverse": True,
    }


def _must_tie(encoder: str, decoder: str, row: DecoderRow) -> None:
    """Refuse to tie what cannot be: an inverse must be its original read backwards where it is scored."""
    if row.backwards is None:
        raise InputError(f"decoder '{decoder}' reads no triple backwards; leave encoder.tie_inverse out")
    z = torch.arange(1.0, 5.0)
    of_sign = any(torch.equal(row.backwards(z), sign * z) for sign in (1, -1))  # which every linear map keeps
    if not of_sign and preset(encoder).relations == "vectors":
        raise InputError(
            f"encoder '{encoder}' maps the vectors of relations, after which inverses are no more what decoder "
            f"'{decoder}' reads backwards; leave encoder.tie_inverse out"
        )


def _complete_classes(config: Config, data: Dataset) -> dict[str, Any]:
    both = isinstance(data, GraphCollection) and data.both_directions
    inverse = config.encoder.add_inverse
    return {
        "encoder.add_inverse": not both if inverse is None else inverse,
        "classifier.protocol": protocol_of(config, task_of(config, data)),
        "training.loss": "cross-entropy",
    }


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
        items=labelled_nodes,
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


def build_task(config: Config, data: Dataset, device: torch.device, *, whole: bool = False) -> Any:
    """What a config describes, with fresh weights: the task of link prediction, or the items of a classification.

    With `whole`, the nodes of a graph are all of them, and not only those with a label.
    """
    assert config.task is not None
    return TASKS[config.task].build(config, data, device, whole)


def chosen_protocol(config: Config) -> Callable[[Session], Metrics]:
    """How a whole config is trained and reported."""
    assert config.task is not None
    baseline = find_baseline(config.classifier.baseline, config.task)
    if baseline is not None and isinstance(baseline.how, FitOnce):
        return fitted
    default, *_ = TASKS[config.task].protocols
    return TASKS[config.task].protocols[config.classifier.protocol or default]


_NAMED = 3  # classes quoted in a note

Items = tuple[Mapping[str, Numbers], Numbers, Sequence[str]]  # as `TaskRow.items` gives them


def must_suffice(config: Config, candidates: Sequence[Config], items: Items) -> None:
    """Refuse a protocol that would stop half-way: too few items for its folds, no epoch to choose, a single class.

    Args:
        config: of the run, filled in.
        candidates: the configs it chooses among.
        items: which are for what, the class of each, and the names of the classes; nothing for link prediction.
    """
    protocol = config.classifier.protocol
    if protocol is None:
        return
    splits, targets, classes = items
    pool = splits["train"] if protocol == "holdout" else _pool(splits)
    if not len(pool):
        raise InputError("there is no labelled item to train on; mark some with the split 'train'")
    present = np.unique(targets[pool])
    if len(present) == 1:
        raise InputError(
            f"there is one class to train on, '{classes[present[0]]}', and nothing to tell apart; give labels of two"
        )
    once = _fitted_once(config)  # no epochs to choose
    if protocol == "holdout":
        if not once:
            _must_validate(config, splits, targets)
        return
    if not once and not all(one.training.epochs for one in candidates):
        raise InputError("training.epochs is 0, and this protocol chooses the number of epochs; allow at least one")
    k, n = config.classifier.folds, len(pool)
    _must_deal(n, k, "classifier.folds", "")
    if protocol == "nested":
        _must_deal(n - -(-n // k), config.classifier.inner_folds, "classifier.inner_folds", " left in a training part")


def remarks(config: Config, items: Items) -> list[str]:
    """What someone who trains on these labels should know; none of it changes anything."""
    splits, targets, classes = items
    protocol, pool = config.classifier.protocol, _pool(splits)
    if protocol is None or not len(pool):
        return []
    notes = []
    unchosen = protocol == "holdout" and not len(splits["valid"]) and not config.data.valid_fraction
    if unchosen and not _fitted_once(config):
        notes.append("there are no validation labels, so nothing chooses the epoch: the last one is kept")
    counts = np.bincount(targets[pool], minlength=len(classes))
    if unseen := [name for name, count in zip(classes, counts, strict=True) if not count]:
        what = f"{counted(len(unseen), 'class')} without a training label to learn it from"
        notes.append(f"{what}: {_quoted(unseen)}")
    folds = config.classifier.folds
    rare = [name for name, count in zip(classes, counts, strict=True) if 0 < count < folds]
    if rare and protocol != "holdout":
        what = f"{counted(len(rare), 'class')} with fewer training labels than the {folds} folds"
        notes.append(f"{what}, missing from some of them: {_quoted(rare)}")
    return notes


def _pool(splits: Mapping[str, Numbers]) -> Numbers:
    """All that may be trained on and chosen by."""
    parts = [rows for split, rows in splits.items() if split != "test"]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _fitted_once(config: Config) -> bool:
    baseline = find_baseline(config.classifier.baseline, config.task or "")
    return baseline is not None and isinstance(baseline.how, FitOnce)


def _must_deal(n: int, k: int, setting: str, which: str) -> None:
    if k > n:
        advice = f"set {setting} to {'2' if n == 2 else f'a number from 2 to {n}'}" if n > 1 else "give more labels"
        raise InputError(f"{counted(n, 'example')}{which} cannot be dealt over {k} folds; {advice}")


def _must_validate(config: Config, splits: Mapping[str, Numbers], targets: Numbers) -> None:
    """Where validation labels are to be drawn, there must be one to draw."""
    train, settings = splits["train"], config.data
    if len(splits["valid"]) or not settings.valid_fraction:
        return
    rows = np.column_stack((train, targets[train]))
    if not len(deal(rows, np.random.default_rng(settings.split_seed), settings.valid_fraction, 0.0)[1]):
        raise InputError(
            f"no validation label can be drawn from {counted(len(train), 'training label')}, so nothing would choose "
            f"the epoch; take --protocol refit, raise data.valid_fraction = {settings.valid_fraction}, or set it to 0"
        )


def _quoted(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:_NAMED]) + more
