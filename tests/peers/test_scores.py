"""Scores equal those of PyKEEN, with the same vectors and weights."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from compgcn.nn.decoders import DECODERS, ConvolutionSettings, Decoder, build_decoder

pytestmark = pytest.mark.peers

B, N, D = 5, 9, 24
MARGIN = 4.0
SMALL = ConvolutionSettings(filters=6, kernel=3)


def tables() -> tuple[Tensor, Tensor, Tensor]:
    """Return subjects [B, D], relations [B, D] and all entities [N, D], the subjects among them."""
    generator = torch.Generator().manual_seed(0)
    entities, z = torch.randn(N, D, generator=generator), torch.randn(B, D, generator=generator)
    return entities[:B].clone(), z, entities


def ours(name: str) -> Decoder:
    torch.manual_seed(0)
    decoder = build_decoder(name, N, D, margin=MARGIN, settings=SMALL)
    with torch.no_grad():
        for value in decoder.state_dict().values():  # running statistics too
            if value.is_floating_point() and value.ndim:
                value.add_(torch.rand_like(value))
    return decoder.eval()


def numbers(v: Tensor) -> Tensor:
    """Return complex numbers from real parts followed by imaginary parts."""
    real, imaginary = v.chunk(2, -1)
    return torch.complex(real, imaginary)


def _rotate(modules: ModuleType, decoder: Decoder, x: Tensor, z: Tensor, e: Tensor) -> Tensor:
    """Add PyKEEN's scores of single numbers: over several it takes one norm, where the paper adds moduli."""
    turning = numbers(z) / numbers(z).abs()
    each = zip(*(v.split(1, -1) for v in (numbers(x), turning, numbers(e))), strict=True)
    return MARGIN + sum(modules.RotatEInteraction()(*some) for some in each)


def _conve(modules: ModuleType, decoder: Decoder, x: Tensor, z: Tensor, e: Tensor) -> Tensor:
    """Give PyKEEN our image: it stacks the two vectors, and we interleave them as the released CompGCN does."""
    query: Any = decoder.phi
    theirs = modules.ConvEInteraction(
        output_channels=SMALL.filters, embedding_height=query.height, embedding_width=query.width,
        kernel_width=SMALL.kernel, kernel_height=SMALL.kernel, embedding_dim=D,
    ).eval()  # fmt: skip
    image_norm, _, convolution, feature_norm, *_ = theirs.hr2d
    linear, _, query_norm, _ = theirs.hr1d
    image_norm.load_state_dict(query.image_norm.state_dict())
    feature_norm.load_state_dict(query.feature_norm.state_dict())
    query_norm.load_state_dict(query.query_norm.state_dict())
    by_filter = query.linear.weight.unflatten(1, (-1, SMALL.filters)).transpose(1, 2).flatten(1)
    with torch.no_grad():
        convolution.weight.copy_(query.convolution.weight)
        convolution.bias.zero_()
        linear.weight.copy_(by_filter)
        linear.bias.copy_(query.linear.bias)
    rows = query.image(x[:, 0], z[:, 0]).flatten(1)  # [B, 2 D]
    top, bottom = (half.unsqueeze(1) for half in rows.chunk(2, 1))
    return theirs(top, bottom, (e, decoder.entity_bias))


def _convkb(modules: ModuleType, decoder: Decoder, x: Tensor, z: Tensor, e: Tensor) -> Tensor:
    query, similarity = decoder.phi, decoder.similarity
    theirs = modules.ConvKBInteraction(embedding_dim=D, num_filters=SMALL.filters).eval()
    with torch.no_grad():
        filters = torch.cat((query.filters, similarity.filters.unsqueeze(1)), 1)  # [F, 3]
        theirs.conv.weight.copy_(filters.view(SMALL.filters, 1, 1, 3))
        theirs.conv.bias.copy_(query.bias)
        theirs.linear.weight.copy_(similarity.weight.view(1, -1))
        theirs.linear.bias.fill_(similarity.bias)
    return theirs(x, z, e)


PYKEEN: dict[str, Callable[[ModuleType, Decoder, Tensor, Tensor, Tensor], Tensor]] = {
    "transe": lambda modules, _, x, z, e: MARGIN + modules.TransEInteraction(p=1)(x, z, e),
    "distmult": lambda modules, _, x, z, e: modules.DistMultInteraction()(x, z, e),
    "complex": lambda modules, _, *vectors: modules.ComplExInteraction()(*map(numbers, vectors)),
    "hole": lambda modules, _, x, z, e: modules.HolEInteraction()(x, z, e),
    "rotate": _rotate,
    "conve": _conve,
    "convkb": _convkb,
}


@pytest.mark.parametrize("name", PYKEEN)
def test_scores_are_those_of_pykeen(pykeen: ModuleType, name: str) -> None:
    decoder, (x, z, entities) = ours(name), tables()
    theirs = PYKEEN[name](pykeen.nn.modules, decoder, x.unsqueeze(1), z.unsqueeze(1), entities.unsqueeze(0))
    torch.testing.assert_close(decoder(x, z, entities), theirs.view(B, N), rtol=1e-5, atol=1e-5)


def test_every_decoder_of_pykeen_is_compared(pykeen: ModuleType) -> None:
    theirs = {name.removesuffix("Interaction").lower() for name in dir(pykeen.nn.modules)}
    assert {name for name in DECODERS if name.replace("-", "") in theirs} == set(PYKEEN)
