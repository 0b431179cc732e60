"""Objectives of link prediction: the loss of a batch, a regulariser and a loss over relations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from compgcn.config import Training
from compgcn.errors import InputError
from compgcn.nn.compose import COMPOSITIONS, Composition
from compgcn.nn.decoders import Decoder, dot, negative_complex_l1, negative_l1
from compgcn.nn.filters import AGAIN
from compgcn.tasks import losses
from compgcn.tasks.sampling import SAMPLERS

if TYPE_CHECKING:
    from compgcn.tasks.link_prediction import Batch, Encoded, LinkPrediction


_NUMBERS = 2**22  # numbers in the queries of a batch that are made at a time: 16 MiB of float32

Loss = Callable[["LinkPrediction", "Encoded", "Batch", "Vectors"], Tensor]
OfScores = Callable[["LinkPrediction", Tensor, Tensor], Tensor]


class Vectors(NamedTuple):
    """Vectors of a batch's subjects and relations and, where a term needs them, of its answers, [B, d] each.

    Gathered once: the gradient of every gather is as large as the whole table.
    """

    x: Tensor
    z: Tensor
    e: Tensor | None


def _gathered(task: LinkPrediction, encoded: Encoded, batch: Batch) -> Vectors:
    z = F.embedding(batch.r, encoded.relations)
    if task.settings.regulariser == "none" and not task.settings.relation_prediction:
        return Vectors(F.embedding(batch.s, encoded.entities), z, None)
    x, e = F.embedding(torch.stack((batch.s, batch.answer)), encoded.entities)  # [2, B, d]
    return Vectors(x, z, e)


class Objective(NamedTuple):
    """A loss and its examples; every triple is an example from both sides, as (s, r, o) and as (o, r + R, s)."""

    by_query: bool  # examples are distinct queries with all their answers, and not single triples
    loss: Loss
    of_scores: OfScores | None = None  # where it takes negatives: the loss of true answers [B] and of these [B, K]

    @property
    def samples(self) -> bool:
        """Whether it takes negatives."""
        return self.of_scores is not None


def _bce(task: LinkPrediction, encoded: Encoded, batch: Batch, of: Vectors) -> Tensor:
    settings = task.settings
    floor = losses.SMOOTHING_FLOORS[settings.smoothing_floor](settings.label_smoothing, task.num_entities)
    logits = task.model.decoder(of.x, of.z, encoded.entities)
    return losses.binary_cross_entropy(logits, batch.row, batch.answer, smoothing=settings.label_smoothing, floor=floor)


def _cross_entropy(task: LinkPrediction, encoded: Encoded, batch: Batch, of: Vectors) -> Tensor:
    logits = task.model.decoder(of.x, of.z, encoded.entities)
    return losses.cross_entropy(logits, batch.answer, smoothing=task.settings.label_smoothing)


def _sampled(
    task: LinkPrediction, encoded: Encoded, batch: Batch, of: Vectors
) -> tuple[Tensor, Tensor, Tensor | float]:
    """Return the scores of the true answers [B] and of negatives [B, K], and the loss of an adversary, if any."""
    negatives = batch.negatives or task.sampler.draw(task, batch)
    if negatives.entities.ndim == 1:  # one list for all, without a copy of its vectors for every triple
        decoder, answer = task.model.decoder, batch.answer.unsqueeze(1)
        q = decoder.query(of.x, of.z)
        entities, nodes = encoded.entities, encoded.nodes
        positive, negative = (decoder.scores(q, entities, some, nodes) for some in (answer, negatives.entities))
        return positive.squeeze(1), negative, 0.0
    candidates = torch.cat((batch.answer.unsqueeze(1), negatives.entities), 1)  # [B, 1 + K]
    scores = task.model.decoder(of.x, of.z, encoded.entities, candidates, encoded.nodes)
    lesson: Tensor | float = 0.0
    if negatives.log_probability is not None and task.model.adversary is not None:
        lesson = task.model.adversary.lesson(negatives.log_probability, scores[:, 1])
    return scores[:, 0], scores[:, 1:], lesson


def _of_samples(loss: OfScores) -> Objective:
    def total(task: LinkPrediction, encoded: Encoded, batch: Batch, of: Vectors) -> Tensor:
        positive, negative, lesson = _sampled(task, encoded, batch, of)
        return loss(task, positive, negative) + lesson

    return Objective(by_query=False, loss=total, of_scores=loss)


OBJECTIVES: dict[str, Objective] = {
    "bce": Objective(by_query=True, loss=_bce),
    "cross-entropy": Objective(by_query=False, loss=_cross_entropy),
    "margin": _of_samples(lambda task, *scores: losses.margin_ranking(*scores, margin=task.settings.loss_margin)),
    "self-adversarial": _of_samples(lambda task, *scores: losses.self_adversarial(*scores)),
    "sampled-cross-entropy": _of_samples(
        lambda task, *scores: losses.sampled_cross_entropy(*scores, num_entities=task.num_entities)
    ),
}


def _n3(decoder: Decoder, x: Tensor, z: Tensor, e: Tensor) -> Tensor:
    phi = decoder.phi
    if isinstance(phi, Composition) and phi.is_complex:
        return losses.n3(x, phi.lift_relation(z), e, planes=True)
    return losses.n3(x, z, e)


def _dura(decoder: Decoder, x: Tensor, z: Tensor, e: Tensor) -> Tensor:
    return losses.dura(x, e, decoder.query(x, z), decoder.query(e, z))


# By the vectors of subjects, relations and objects [B, d].
REGULARISERS: dict[str, Callable[[Decoder, Tensor, Tensor, Tensor], Tensor]] = {"n3": _n3, "dura": _dura}


def dual(decoder: Decoder) -> Composition | None:
    """Return psi with score(s, r, o) = z_r · psi(x_s, e_o) + a constant in r; None where there is none."""
    if isinstance(decoder.phi, Composition) and decoder.similarity is dot:
        return decoder.phi.transposed
    return None


def relation_scores(decoder: Decoder, encoded: Encoded, x: Tensor, e: Tensor) -> Tensor:
    """Return the scores of (s, r, o) for every relation r, inverses too, without the bias of o: [B, 2R].

    One product where the decoder is linear in the relation, up to a constant in r; one table of distances where the
    relation is added; else a query for each relation. Subjects and objects have the vectors x and e [B, d].
    """
    psi = dual(decoder)
    if psi is not None:
        scores = dot(psi(x, e), encoded.relations)
    elif decoder.phi == COMPOSITIONS["add"] and decoder.similarity in (negative_l1, negative_complex_l1):
        scores = decoder.similarity(e - x, encoded.relations)  # the distance of x + z from e is that of z from e − x
    else:
        scores = _by_query(decoder, encoded.relations, x, e)
    return scores if decoder.margin is None else scores + decoder.margin


def _by_query(decoder: Decoder, relations: Tensor, x: Tensor, e: Tensor) -> Tensor:
    """Return the similarities of e [B, d] with the queries of x [B, d] by every relation [C, d]: [B, C].

    Relations go in slices within `_NUMBERS`, which are computed again for the gradient.
    """
    B, d = x.shape

    def part(x: Tensor, e: Tensor, some: Tensor) -> Tensor:
        each = (B, len(some), d)
        queries = decoder.query(*(v.expand(each).flatten(0, 1) for v in (x.unsqueeze(1), some)))  # [B c, d]
        answers = e.unsqueeze(1).expand(each).reshape(-1, 1, d)  # [B c, 1, d]
        return decoder.similarity(queries, answers).view(each[:2])

    slices = torch.split(relations, max(1, _NUMBERS // max(1, B * d)))
    if len(slices) == 1:
        return part(x, e, relations)
    return torch.cat([checkpoint(part, x, e, some, **AGAIN) for some in slices], 1)


def batch_loss(task: LinkPrediction, encoded: Encoded, batch: Batch) -> Tensor:
    """Return the loss of a batch, plus the weighted regulariser and the weighted loss over relations."""
    of = _gathered(task, encoded, batch)
    loss = task.objective.loss(task, encoded, batch, of)
    return add_terms(loss, task, encoded, of, batch.r)


def add_terms(loss: Tensor, task: LinkPrediction, encoded: Encoded, of: Vectors, r: Tensor) -> Tensor:
    """Add to the loss of triples their weighted regulariser and weighted loss over relations, as the settings ask."""
    settings, decoder = task.settings, task.model.decoder
    if of.e is not None and settings.regulariser != "none":
        loss = loss + settings.regularisation * REGULARISERS[settings.regulariser](decoder, of.x, of.z, of.e)
    if of.e is not None and settings.relation_prediction:
        scores = relation_scores(decoder, encoded, of.x, of.e)
        loss = loss + settings.relation_prediction * losses.cross_entropy(scores, r)
    return loss


def rows_alone(settings: Training) -> bool:
    """Return whether a step updates the vectors of its own entities alone, with the numbers of the whole table.

    The loss samples, and the optimiser leaves a row without a gradient as it is.
    """
    still = settings.optimiser == "adagrad" and not settings.weight_decay and settings.grad_clip is None
    return still and OBJECTIVES[settings.loss].samples


def must_agree(settings: Training, decoder: Decoder) -> None:
    """Refuse settings of training that contradict each other."""
    objective = OBJECTIVES[settings.loss]
    if objective.by_query and (settings.regulariser != "none" or settings.relation_prediction):
        raise InputError(
            f"training.regulariser and training.relation_prediction need a loss over triples, not '{settings.loss}'; "
            f"use {', '.join(name for name, one in OBJECTIVES.items() if not one.by_query)}"
        )
    if settings.regulariser == "dura" and dual(decoder) is None:
        raise InputError("the regulariser 'dura' needs a decoder that is a product, such as complex; use n3, or none")
    if settings.relation_prediction and not isinstance(decoder.phi, Composition):
        raise InputError("training.relation_prediction needs a decoder without convolutions, such as complex")
    if SAMPLERS[settings.sampler].adversary and not objective.samples:
        raise InputError(
            f"the loss '{settings.loss}' takes no negatives, and the sampler '{settings.sampler}' makes them; "
            f"take --set loss= and one of {', '.join(name for name, one in OBJECTIVES.items() if one.samples)}"
        )
