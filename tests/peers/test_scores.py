"""Scores equal those of PyKEEN and of PyTorch Geometric, with the same vectors and weights."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compgcn.nn.decoders import DECODERS, ConvolutionSettings, Decoder, build_decoder

pytestmark = pytest.mark.peers

B, N, D = 5, 9, 24
MARGIN = 4.0
SMALL = ConvolutionSettings(filters=6, kernel=3)


def tables() -> tuple[Tensor, Tensor, Tensor]:
    """Subjects [B, D], relations [B, D] and all entities [N, D]; among the candidates are the subjects themselves."""
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


def planes(v: Tensor) -> Tensor:
    """Complex numbers from real parts followed by imaginary parts."""
    real, imaginary = v.chunk(2, -1)
    return torch.complex(real, imaginary)


def turning(z: Tensor) -> Tensor:
    """Complex numbers of modulus 1."""
    return planes(z) / planes(z).abs()


# PyKEEN


def _transe(modules: ModuleType, decoder: Decoder, x: Tensor, z: Tensor, e: Tensor) -> Tensor:
    return MARGIN + modules.TransEInteraction(p=1)(x, z, e)


def _distmult(modules: ModuleType, decoder: Decoder, x: Tensor, z: Tensor, e: Tensor) -> Tensor:
    return modules.DistMultInteraction()(x, z, e)


def _complex(modules: ModuleType, decoder: Decoder, x: Tensor, z: Tensor, e: Tensor) -> Tensor:
    return modules.ComplExInteraction()(planes(x), planes(z), planes(e))


def _hole(modules: ModuleType, decoder: Decoder, x: Tensor, z: Tensor, e: Tensor) -> Tensor:
    return modules.HolEInteraction()(x, z, e)


def _rotate(modules: ModuleType, decoder: Decoder, x: Tensor, z: Tensor, e: Tensor) -> Tensor:
    """PyKEEN takes the norm of all numbers whatever p is, the paper adds moduli: of one number both are the modulus."""
    each = zip(*(v.split(1, -1) for v in (planes(x), turning(z), planes(e))), strict=True)
    return MARGIN + sum(modules.RotatEInteraction()(*numbers) for numbers in each)


def _conve(modules: ModuleType, decoder: Decoder, x: Tensor, z: Tensor, e: Tensor) -> Tensor:
    """PyKEEN stacks the two vectors where ours, as the released CompGCN, interleaves them: they get the same image."""
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
    assert isinstance(query, nn.Module)
    assert isinstance(similarity, nn.Module)
    theirs = modules.ConvKBInteraction(embedding_dim=D, num_filters=SMALL.filters).eval()
    with torch.no_grad():
        filters = torch.cat((query.filters, similarity.filters.unsqueeze(1)), 1)  # [F, 3]
        theirs.conv.weight.copy_(filters.view(SMALL.filters, 1, 1, 3))
        theirs.conv.bias.copy_(query.bias)
        theirs.linear.weight.copy_(similarity.weight.view(1, -1))
        theirs.linear.bias.fill_(similarity.bias)
    return theirs(x, z, e)


PYKEEN = {
    "transe": _transe,
    "distmult": _distmult,
    "complex": _complex,
    "hole": _hole,
    "rotate": _rotate,
    "conve": _conve,
    "convkb": _convkb,
}


@pytest.mark.parametrize("name", PYKEEN)
def test_scores_are_those_of_pykeen(pykeen: ModuleType, name: str) -> None:
    decoder, (x, z, entities) = ours(name), tables()
    theirs = PYKEEN[name](pykeen.nn.modules, decoder, x.unsqueeze(1), z.unsqueeze(1), entities.unsqueeze(0))
    torch.testing.assert_close(decoder(x, z, entities), theirs.view(B, N), rtol=1e-5, atol=1e-5)


def test_every_decoder_that_pykeen_has_is_compared(pykeen: ModuleType) -> None:
    theirs = {name.removesuffix("Interaction").lower() for name in dir(pykeen.nn.modules)}
    assert {name for name in DECODERS if name.replace("-", "") in theirs} == set(PYKEEN)


# PyTorch Geometric


def score_all(model: Any, **weights: Tensor) -> Tensor:
    """A model's scores of B subjects, each with its own relation, and all N entities."""
    with torch.no_grad():
        for name, value in weights.items():
            getattr(model, name).weight.copy_(value)
        s, o = torch.arange(B).repeat_interleave(N), torch.arange(N).repeat(B)
        scores: Tensor = model(s, s, o)
    return scores.view(B, N)


def _pyg_transe(kge: ModuleType) -> Tensor:
    """PyTorch Geometric scales entities to norm 1 first; so are ours, in `entities_for`."""
    _, z, entities = tables()
    return MARGIN + score_all(kge.TransE(N, B, D, p_norm=1.0), node_emb=entities, rel_emb=z)


def _pyg_distmult(kge: ModuleType) -> Tensor:
    _, z, entities = tables()
    return score_all(kge.DistMult(N, B, D), node_emb=entities, rel_emb=z)


def _pyg_complex(kge: ModuleType) -> Tensor:
    _, z, entities = tables()
    (real, imaginary), (z_real, z_imaginary) = entities.chunk(2, -1), z.chunk(2, -1)
    model = kge.ComplEx(N, B, D // 2)
    return score_all(model, node_emb=real, node_emb_im=imaginary, rel_emb=z_real, rel_emb_im=z_imaginary)


def _pyg_rotate(kge: ModuleType) -> Tensor:
    """One norm over all numbers here too."""
    _, z, entities = tables()
    (real, imaginary), angle = entities.chunk(2, -1), planes(z).angle()
    each = [
        score_all(
            kge.RotatE(N, B, 1, margin=0.0),
            node_emb=real[:, j : j + 1],
            node_emb_im=imaginary[:, j : j + 1],
            rel_emb=angle[:, j : j + 1],
        )
        for j in range(D // 2)
    ]
    return MARGIN + torch.stack(each).sum(0)


def entities_for(name: str, x: Tensor) -> Tensor:
    return nn.functional.normalize(x, p=1.0, dim=-1) if name == "transe" else x


PYG = {"transe": _pyg_transe, "distmult": _pyg_distmult, "complex": _pyg_complex, "rotate": _pyg_rotate}


@pytest.mark.parametrize("name", PYG)
def test_scores_are_those_of_pytorch_geometric(kge: ModuleType, name: str) -> None:
    x, z, entities = tables()
    scores = ours(name)(entities_for(name, x), z, entities_for(name, entities))
    torch.testing.assert_close(scores, PYG[name](kge), rtol=1e-5, atol=1e-5)


def test_every_decoder_that_pytorch_geometric_has_is_compared(kge: ModuleType) -> None:
    assert {name for name in DECODERS if name in {theirs.lower() for theirs in kge.__all__}} == set(PYG)
