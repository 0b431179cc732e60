"""What others compute: the layer edge by edge, and a framework's CompGCN where it is installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from compgcn.data import KnowledgeGraph
from compgcn.graph import RelationalGraph
from compgcn.layers import CompGCNConv

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
            loop: Tensor = getattr(layer, layer.tying.loop)
            out = out + self.phi(x, layer.loop_relation) @ loop
        if layer.bias is not None:
            out = out + layer.bias
        assert layer.weight_relation is not None
        return out, rel @ layer.weight_relation


def pykeen_step(data: KnowledgeGraph, batch: int, device: torch.device) -> Callable[[], object] | None:
    """One training step of PyKEEN's CompGCN (composition and decoder DistMult, d 200, one-to-all), if installed."""
    try:
        with warnings.catch_warnings():  # of what it imports in its turn: nobody here can help it
            warnings.simplefilter("ignore", DeprecationWarning)
            from pykeen.models import CompGCN
            from pykeen.triples import CoreTriplesFactory
    except ImportError:
        return None
    factory = CoreTriplesFactory(
        torch.from_numpy(data.train), num_entities=data.num_entities, num_relations=data.num_relations,
        create_inverse_triples=True,
    )  # fmt: skip
    model: Any = CompGCN(triples_factory=factory, embedding_dim=200, encoder_kwargs={"num_layers": 1}).to(device)
    optimiser = torch.optim.Adam(model.parameters())
    queries = torch.from_numpy(data.train[:batch, :2].copy()).to(device)
    labels = torch.zeros(batch, data.num_entities, device=device)
    labels[torch.arange(batch), torch.from_numpy(data.train[:batch, 2].copy())] = 1.0
    model.train()

    def step() -> None:
        optimiser.zero_grad()
        scores = model.score_t(queries)
        nn.functional.binary_cross_entropy_with_logits(scores, labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        model.post_parameter_update()

    return step
