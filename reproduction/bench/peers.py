"""What others compute: the layer edge by edge, and a framework's CompGCN where it is installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from compgcn.config import Config
from compgcn.data import KnowledgeGraph
from compgcn.nn.conv import CompGCNConv
from compgcn.nn.graph import RelationalGraph

PHI: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sub": lambda x, z: x - z,
    "mult": lambda x, z: x * z,
    "corr": lambda x, z: torch.fft.irfft(torch.conj(torch.fft.rfft(x)) * torch.fft.rfft(z), n=x.shape[-1]),
}


class PerEdge(nn.Module):
    """The paper's Eq. node_update read literally, with the weights of a layer: a message per edge, each times W.

    Args:
        layer: filters tied by direction, relation vectors, and a composition of `PHI`.
    """

    def __init__(self, layer: CompGCNConv) -> None:
        super().__init__()
        self.layer = layer
        self.phi = PHI[layer.composition.name]

    def forward(
        self, x: Tensor, rel: Tensor, graph: RelationalGraph, *, keep: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As the layer's."""
        layer = self.layer
        messages = graph.messages(layer.flow, layer.add_inverse)
        weight = messages.weights(layer.norm, layer.self_loop, x.dtype).message
        weight = weight if keep is None else weight * messages.of_edges(keep)
        out = x.new_zeros(len(x), layer.out_channels)
        for direction, name in enumerate(("weight_original", "weight_inverse")):
            part = slice(direction * graph.num_edges, (direction + 1) * graph.num_edges)
            composed = self.phi(x[messages.sender[part]], rel[messages.relation[part]])  # [E, in]
            sent = weight[part].unsqueeze(1) * (composed @ getattr(layer, name))  # [E, out]
            half = torch.zeros_like(out).index_add_(0, messages.receiver[part], sent)
            out = out + torch.dropout(half, layer.dropout, self.training)
        if layer.self_loop:
            assert layer.loop_relation is not None
            loop: Tensor = getattr(layer, layer.filters.loop)
            out = out + self.phi(x, layer.loop_relation) @ loop
        if layer.bias is not None:
            out = out + layer.bias
        assert layer.weight_relation is not None
        return out, rel @ layer.weight_relation


def edge_by_edge(module: nn.Module) -> None:
    """Put `PerEdge` in the place of every layer of a model's encoder; the weights stay the same."""
    layers = module.get_submodule("encoder.layers")
    assert isinstance(layers, nn.ModuleList)
    for index, layer in enumerate(layers):
        assert isinstance(layer, CompGCNConv)
        layers[index] = PerEdge(layer)


def is_per_edge(config: Config) -> bool:
    """Whether `PerEdge` computes the layers of a model, which has some."""
    encoder = config.encoder
    return encoder.name == "compgcn" and encoder.composition in PHI and len(encoder.dims) > 1


class Peer(NamedTuple):
    """A model of a framework: a training step, which gives its loss, how many parameters it has, and a version."""

    step: Callable[[], Tensor]
    parameters: int
    version: str


def is_pykeens(config: Config) -> bool:
    """Whether the model is the one that PyKEEN's CompGCN is unless told otherwise: phi and decoder are products."""
    encoder = config.encoder
    product = (encoder.composition, config.decoder.name) == ("mult", "distmult")
    return is_per_edge(config) and product and not encoder.bases


def has_pykeen() -> bool:
    """Whether PyKEEN is installed."""
    return find_spec("pykeen") is not None


def _pykeen() -> tuple[Any, Any]:
    with warnings.catch_warnings():  # of what it imports in its turn: nobody here can help it
        warnings.simplefilter("ignore", DeprecationWarning)
        from pykeen.models import CompGCN
        from pykeen.triples import CoreTriplesFactory
    return CompGCN, CoreTriplesFactory


def pykeen(data: KnowledgeGraph, batch: int, device: torch.device, dims: Sequence[int] = (200, 200)) -> Peer:
    """PyKEEN's CompGCN (composition and decoder DistMult, one-to-all), with a layer from each dimension to the next."""
    CompGCN, CoreTriplesFactory = _pykeen()
    factory = CoreTriplesFactory(
        torch.from_numpy(data.train), num_entities=data.num_entities, num_relations=data.num_relations,
        create_inverse_triples=True,
    )  # fmt: skip
    layers = {"num_layers": len(dims) - 1, "dims": list(dims[1:])}
    model = CompGCN(triples_factory=factory, embedding_dim=dims[0], encoder_kwargs=layers, random_seed=0).to(device)
    optimiser = torch.optim.Adam(model.parameters())
    triples = torch.from_numpy(np.resize(data.train, (batch, 3))).to(device)  # from the first again where there are few
    labels = torch.zeros(batch, data.num_entities, device=device)
    labels[torch.arange(batch, device=device), triples[:, 2]] = 1.0
    model.train()

    def step() -> Tensor:
        optimiser.zero_grad()
        scores = model.score_t(triples[:, :2])
        loss = nn.functional.binary_cross_entropy_with_logits(scores, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        model.post_parameter_update()
        return loss.detach()

    return Peer(step, sum(p.numel() for p in model.parameters()), version("pykeen"))
