"""Decoders: a query made of (s, r), and its similarity with every entity.

score(s, r, o) = similarity(query(x_s, z_r), e_o) [+ bias_o] [+ margin]. Scores are logits. A decoder is one row of
`DECODERS`: a composition or a module with parameters as its query, and a function or a module as its similarity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compgcn.errors import InputError, pick
from compgcn.kernels import l1_distance
from compgcn.nn.compose import COMPOSITIONS, Composition
from compgcn.nn.convolutional import (
    ConvEQuery,
    ConvKBQuery,
    ConvKBSimilarity,
    ConvolutionSettings,
    ConvRQuery,
    ConvTransEQuery,
    HypERQuery,
)


def dot(q: Tensor, e: Tensor) -> Tensor:
    """qᵀe."""
    if e.ndim == 2:
        # Tensor cores load 8 numbers at a time, so rows of scores should begin at a multiple of 8.
        turned = e.is_cuda and e.requires_grad and len(e) % 8 != 0
        return (e @ q.t()).t() if turned else q @ e.t()
    return (e @ q.unsqueeze(-1)).squeeze(-1)  # [B, C, d] @ [B, d, 1]


def negative_l1(q: Tensor, e: Tensor) -> Tensor:
    """−‖q − e‖₁; shared candidates need no array [B, C, d]."""
    return -l1_distance(q, e) if e.ndim == 2 else -(q.unsqueeze(1) - e).abs().sum(-1)


def negative_complex_l1(q: Tensor, e: Tensor) -> Tensor:
    """−‖q − e‖₁ of complex vectors, the sum of the moduli; real parts first, then imaginary parts."""
    if e.ndim == 2:
        return -l1_distance(q, e, planar=True)
    real, imaginary = (q.unsqueeze(1) - e).chunk(2, -1)
    squares = real * real + imaginary * imaginary
    return -squares.clamp_min(torch.finfo(e.dtype).tiny).sqrt().sum(-1)  # so that the gradient at 0 is 0, not nan


Similarity = Callable[[Tensor, Tensor], Tensor]
Query = Composition | Callable[[Tensor, Tensor], Tensor]  # from an entity and a relation, by a composition or a module


def biases(of_all: Tensor, entities: Tensor) -> Tensor:
    """Return the biases of some entities; threads would add up the gradient of `of_all[entities]` in any order."""
    return F.embedding(entities, of_all.unsqueeze(1)).squeeze(-1)


class Decoder(nn.Module):
    """score(s, r, o) = similarity(phi(x_s, z_r), e_o) + bias_o + margin, the last two where asked for.

    Args:
        phi: (x [B, d], z [B, d]) -> q [B, d], or of another width that the similarity takes; a composition or a module.
        similarity: (q [B, d], e [C, d] or [B, C, d]) -> [B, C]; a function or a module.
        entity_bias: whether each entity has a learned bias, zero at first.
        half_query: in training, make the queries in bfloat16 where autocast finds it safe.
        margin: added to every score, or None. The buffer `margin` is saved with the weights; a schedule changes it in
            place.
    """

    margin: Tensor | None
    entity_bias: nn.Parameter | None

    def __init__(
        self,
        phi: Query,
        similarity: Similarity,
        num_entities: int,
        *,
        entity_bias: bool = False,
        margin: float | None = None,
        half_query: bool = False,
    ) -> None:
        super().__init__()
        self.phi = phi
        self.similarity = similarity
        self.num_entities, self.half_query = num_entities, half_query
        self.register_parameter("entity_bias", nn.Parameter(torch.zeros(num_entities)) if entity_bias else None)
        self.register_buffer("margin", None if margin is None else torch.tensor(float(margin)))

    def query(self, x_s: Tensor, z_r: Tensor) -> Tensor:
        """Return the point the answers should lie near: entities [B, d] and relations [B, d] -> [B, d]."""
        if not (self.half_query and self.training):
            return self.phi(x_s, z_r)
        with torch.autocast(x_s.device.type, torch.bfloat16, cache_enabled=False):
            return self.phi(x_s, z_r).to(x_s.dtype)

    def forward(
        self,
        x_s: Tensor,
        z_r: Tensor,
        entities: Tensor,
        candidates: Tensor | None = None,
        nodes: Tensor | None = None,
    ) -> Tensor:
        """Return the logits [B, C] of candidates for each query (x_s, z_r).

        Args:
            x_s: vectors of the queries' entities [B, d].
            z_r: vectors of their relations [B, d].
            entities: the whole table [N, d].
            candidates: None for every entity; a list shared by all queries [C]; or a list for each query [B, C].
            nodes: where the table has some entities only, which ones [n]; candidates are rows of the table.
        """
        return self.scores(self.query(x_s, z_r), entities, candidates, nodes)

    def scores(
        self, q: Tensor, entities: Tensor, candidates: Tensor | None = None, nodes: Tensor | None = None
    ) -> Tensor:
        """Score candidates for finished queries: q [B, d] -> logits [B, C], else as `forward`."""
        self._check(q, entities, candidates, nodes)
        bias: Tensor | None = self.entity_bias
        if bias is not None and nodes is not None:
            bias = biases(bias, nodes)
        if candidates is not None:
            bias = None if bias is None else biases(bias, candidates)
            entities = F.embedding(candidates, entities)  # [C, d] or [B, C, d]
        return self.between(q, entities, bias)

    def between(self, q: Tensor, e: Tensor, bias: Tensor | None) -> Tensor:
        """Score vectors e [C, d] or [B, C, d], with their biases, for finished queries: q [B, d] -> logits [B, C]."""
        scores = self.similarity(q, e)
        if bias is not None:
            scores = scores + bias
        return scores if self.margin is None else scores + self.margin

    def pairs(self, x_s: Tensor, z_r: Tensor, x_o: Tensor, o: int) -> Tensor:
        """Return logits [B] of one answer per query, whose vectors [B, d] are all of entity `o`."""
        bias = None if self.entity_bias is None else self.entity_bias[o]
        return self.between(self.query(x_s, z_r), x_o.unsqueeze(1), bias).squeeze(1)

    def _check(self, q: Tensor, entities: Tensor, candidates: Tensor | None, nodes: Tensor | None) -> None:
        B, given, size = len(q), list(entities.shape), self.num_entities if nodes is None else len(nodes)
        if len(entities) != size:
            raise InputError(f"this decoder scores {size} entities, but the table has shape {given}")
        shape = [B] if candidates is None else list(candidates.shape)
        if len(shape) != 1 and (len(shape) != 2 or shape[0] != B):
            raise InputError(f"candidates must have shape [C], or [{B}, C] for {B} queries, not {shape}")

    def extra_repr(self) -> str:
        margin = "" if self.margin is None else f", margin={self.margin.item():g}"
        return f"num_entities={self.num_entities}, entity_bias={self.entity_bias is not None}{margin}"


class Row(NamedTuple):
    """A decoder as data.

    With the vectors `backwards` of inverse relations, z [R, d] -> [R, d], a triple read backwards has the same score.
    """

    query: str | Callable[[int, ConvolutionSettings], nn.Module]  # a composition, or made of dimension and settings
    similarity: Similarity | type[nn.Module]  # a function, or a class of modules built like the query
    entity_bias: bool = False  # whether entities have a bias by default
    margin: bool = False  # whether the score is margin + similarity
    description: str = ""
    reference: str = ""
    settings: ConvolutionSettings = ConvolutionSettings()  # the default number of filters and size of kernel
    backwards: Callable[[Tensor], Tensor] | None = None


def _conjugate(z: Tensor) -> Tensor:
    real, imaginary = z.chunk(2, -1)
    return torch.cat((real, -imaginary), -1)


def _turned(z: Tensor) -> Tensor:
    """z_0, z_{d−1}, .., z_1: circular correlation read backwards."""
    return z.flip(-1).roll(1, -1)


DECODERS: dict[str, Row] = {
    "transe": Row(
        query="add",
        similarity=negative_l1,
        margin=True,
        description="margin − ‖x + z − e‖₁: a relation moves its subject to its object",
        reference="Bordes et al., Translating Embeddings for Modeling Multi-relational Data, NeurIPS 2013",
        backwards=torch.neg,
    ),
    "distmult": Row(
        query="mult",
        similarity=dot,
        description="(x · z)ᵀe: a relation weighs the dimensions; it cannot tell subject from object",
        reference="Yang et al., Embedding Entities and Relations for Learning and Inference in Knowledge Bases, "
        "ICLR 2015",
        backwards=torch.clone,
    ),
    "complex": Row(
        query="cmul",
        similarity=dot,
        description="Re⟨x, z, conj(e)⟩: DistMult of complex numbers, which tells subject from object",
        reference="Trouillon et al., Complex Embeddings for Simple Link Prediction, ICML 2016",
        backwards=_conjugate,
    ),
    "hole": Row(
        query="conv",
        similarity=dot,
        description="zᵀ(x ⋆ e) = (x ∗ z)ᵀe: a relation weighs the circular correlation of subject and object",
        reference="Nickel et al., Holographic Embeddings of Knowledge Graphs, AAAI 2016",
        backwards=_turned,
    ),
    "rotate": Row(
        query="rotate",
        similarity=negative_complex_l1,
        margin=True,
        description="margin − ‖x ∘ z/|z| − e‖₁ of complex numbers: a relation turns its subject to its object",
        reference="Sun et al., RotatE: Knowledge Graph Embedding by Relational Rotation in Complex Space, ICLR 2019",
        backwards=_conjugate,
    ),
    "conve": Row(
        query=ConvEQuery,
        similarity=dot,
        entity_bias=True,
        description="conv([x; z])ᵀe + bias: a convolution over the two vectors laid out as an image",
        reference="Dettmers et al., Convolutional 2D Knowledge Graph Embeddings, AAAI 2018",
    ),
    "convkb": Row(
        query=ConvKBQuery,
        similarity=ConvKBSimilarity,
        description="w · relu(ω ∗ [x, z, e]): filters over the whole triple, dimension by dimension",
        reference="Nguyen et al., A Novel Embedding Model for Knowledge Base Completion Based on Convolutional Neural "
        "Network, NAACL 2018",
        settings=ConvolutionSettings(filters=64),
    ),
    "conv-transe": Row(
        query=ConvTransEQuery,
        similarity=dot,
        description="conv([x; z])ᵀe: filters along the two vectors one above the other, which keeps TransE's alignment",
        reference="Shang et al., End-to-End Structure-Aware Convolutional Networks for Knowledge Base Completion, "
        "AAAI 2019",
        settings=ConvolutionSettings(filters=100, kernel=3),
    ),
    "hyper": Row(
        query=HypERQuery,
        similarity=dot,
        entity_bias=True,
        description="(ω(z) ∗ x)ᵀe + bias: a hypernetwork makes of the relation the filters that run along the subject",
        reference="Balažević et al., Hypernetwork Knowledge Graph Embeddings, ICANN 2019",
        settings=ConvolutionSettings(filters=32, kernel=9),
    ),
    "convr": Row(
        query=ConvRQuery,
        similarity=dot,
        description="conv(x by ω(z))ᵀe: the relation is the filters, the subject the image",
        reference="Jiang et al., Adaptive Convolution for Multi-Relational Learning, NAACL 2019",
        settings=ConvolutionSettings(filters=100, kernel=3),
    ),
}


def build_decoder(
    name: str,
    num_entities: int,
    dim: int,
    *,
    entity_bias: bool | None = None,
    margin: float = 9.0,
    settings: ConvolutionSettings | None = None,
    half_query: bool = False,
) -> Decoder:
    """Build the decoder of that name for N entities of dimension d.

    Args:
        entity_bias: whether entities have a bias; None leaves it to the row.
        margin: the initial margin of a decoder that has one.
        settings: the sizes of a convolution; None leaves them to the row.
        half_query: as in `Decoder`.
    """
    row = pick("decoder", name, DECODERS)
    settings = settings or row.settings
    query = COMPOSITIONS[row.query] if isinstance(row.query, str) else row.query(dim, settings)
    return Decoder(
        query,
        row.similarity(dim, settings) if isinstance(row.similarity, type) else row.similarity,
        num_entities,
        entity_bias=row.entity_bias if entity_bias is None else entity_bias,
        margin=margin if row.margin else None,
        half_query=half_query,
    )
