"""From a whole config to a graph and the model over it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from compgcn.assembly.compositions import find_composition
from compgcn.config import Config
from compgcn.data import KnowledgeGraph
from compgcn.data.arrays import Numbers
from compgcn.decoders import DECODERS, ConvolutionSettings, build_decoder
from compgcn.encoders import Backwards, Encoder
from compgcn.graph import RelationalGraph
from compgcn.inputs import INPUTS, Dataset, num_nodes
from compgcn.sampling import seeded
from compgcn.tasks.link_prediction import LinkPredictor
from compgcn.tasks.samplers import SAMPLERS, Adversary

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
