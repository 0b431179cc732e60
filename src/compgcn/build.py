"""From settings to objects: here names become models and tasks, and nowhere below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.compose import resolve
from compgcn.config import Config, configure
from compgcn.config import Encoder as EncoderSettings
from compgcn.data import DATASETS, OWN_RECIPE, KnowledgeGraph
from compgcn.decoders import DECODERS, ConvESettings, build_decoder
from compgcn.encoders import Encoder, preset
from compgcn.errors import InputError, unknown
from compgcn.graph import NORMS, RelationalGraph
from compgcn.sampling import seeded
from compgcn.step import chosen_precision
from compgcn.tasks.link_prediction import LinkPrediction, LinkPredictor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu, "none": lambda x: x}


def recommended(settings: Mapping[str, Any]) -> Config:
    """The defaults, then what the data set's recipe (or that for one's own files) recommends, then the settings."""
    asked = configure(Config(), settings)
    recipe = dict(DATASETS[asked.data.source].recipe if asked.data.source in DATASETS else OWN_RECIPE)
    if preset(asked.encoder.name).composition is not None:  # an encoder that has its own
        recipe.pop("encoder.composition", None)
    return configure(configure(Config(), recipe), settings)


def expand(config: Config, data: KnowledgeGraph) -> Config:
    """Fill in what a preset, a decoder or the data decide, and refuse names that are none."""
    row = preset(config.encoder.name)
    if config.decoder.name not in DECODERS:
        raise unknown("decoder", config.decoder.name, DECODERS)
    if config.encoder.norm is not None and config.encoder.norm not in NORMS:
        raise unknown("norm", config.encoder.norm, NORMS)
    composition = config.encoder.composition or row.composition or "corr"
    resolve(composition)
    if row.composition not in (None, composition):
        raise InputError(f"encoder '{config.encoder.name}' has composition '{row.composition}'; leave composition out")
    if row.bases is None and config.encoder.bases:
        raise InputError(f"encoder '{config.encoder.name}' has no bases; leave encoder.bases out")
    dims = _dims(config.encoder, data)
    for dim in dims[:-1]:
        resolve(composition)(torch.zeros(1, dim), torch.zeros(1, dim))  # not every one takes every dimension
    fingerprint = data.fingerprint()
    if config.data.fingerprint not in (None, fingerprint):
        raise InputError(
            f"the data are not those the config was written for: data.fingerprint is {fingerprint}, not "
            f"{config.data.fingerprint}; leave it out to train on them anyway"
        )
    bias = config.decoder.entity_bias
    return configure(
        config,
        {
            "data.fingerprint": fingerprint,
            "encoder.composition": composition,
            "encoder.norm": config.encoder.norm or row.norm,
            "encoder.dims": dims,
            "encoder.bases": config.encoder.bases or row.bases or 0,
            "decoder.entity_bias": DECODERS[config.decoder.name].entity_bias if bias is None else bias,
        },
    )


def _dims(encoder: EncoderSettings, data: KnowledgeGraph) -> tuple[int, ...]:
    """The dimensions in use: features that are given decide the first, and without layers there is only one."""
    dims = encoder.dims[-1:] if encoder.name == "none" else encoder.dims
    tables = (data.node_features, data.relation_features if preset(encoder.name).relations == "vectors" else None)
    given = [table for table in tables if table is not None]
    return (given[0].shape[1], *dims[1:]) if given else dims


def build_task(config: Config, data: KnowledgeGraph, device: torch.device) -> LinkPrediction:
    """The model and the task a config describes, with fresh weights."""
    splits = {name: torch.from_numpy(triples).to(device) for name, triples in data.splits.items()}
    graph = RelationalGraph.from_triples(splits["train"], data.num_entities, data.num_relations)
    if config.encoder.graph == "none":
        graph = graph.without_edges()
    elif config.encoder.graph == "random":
        graph = graph.randomised(seeded(config.training.seed))
    mixed = chosen_precision(config.training.precision, device) == "mixed"
    model = build_model(config, data, half_query=mixed).to(device)
    margin = (config.decoder.margin_decay, config.decoder.margin_patience)
    return LinkPrediction(model, graph, splits, config.training, margin)


def build_model(config: Config, data: KnowledgeGraph, *, half_query: bool = False) -> LinkPredictor:
    """The encoder and the decoder a config describes."""
    e, d = config.encoder, config.decoder
    features = [None if f is None else torch.as_tensor(f) for f in (data.node_features, data.relation_features)]
    encoder = Encoder(
        data.num_entities,
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
        tie_inverse=e.tie_inverse,
        node_features=features[0],
        relation_features=features[1],
    )
    conve = ConvESettings(
        filters=d.filters,
        kernel=d.kernel,
        feature_dropout=d.feature_dropout,
        hidden_dropout=d.hidden_dropout,
        height=d.height,
    )
    decoder = build_decoder(
        d.name,
        data.num_entities,
        e.dims[-1],
        entity_bias=d.entity_bias,
        margin=d.margin,
        conve=conve,
        half_query=half_query,
    )
    return LinkPredictor(encoder, decoder, tie_inverse=e.tie_inverse)


def default_folder(config: Config) -> Path:
    """runs/<data>-<encoder>-<decoder>-<seed>"""
    source = Path(config.data.source).name.split(".")[0] or "graph"
    return Path("runs") / f"{source}-{config.encoder.name}-{config.decoder.name}-{config.training.seed}"


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


def must_fill_batches(task: LinkPrediction) -> None:
    """Refuse batches of one query where the decoder normalises over the batch."""
    normalises = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in task.model.decoder.modules())
    if normalises and task.batch_size < 2:
        raise InputError(
            f"with training.batch_size = {task.settings.batch_size} a batch can hold a single query, and this decoder "
            "normalises over the batch; raise batch_size"
        )
