"""The best answers to many queries at once, in bounded memory: scores of blocks of queries, and the top of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from compgcn.compose import Composition
from compgcn.errors import InputError
from compgcn.tasks.link_prediction import Encoded, LinkPredictor
from compgcn.tasks.objectives import dual, relation_scores

Progress = Callable[[int, int], None]  # queries answered, of so many

_SCORES = 2**22  # at a time
_CERTAIN = 300.0  # log-odds beyond which nothing is told apart
_QUERIES = 512  # at a time: what a convolution lays out for one query is far larger than its vectors


def blocks(length: int, width: int) -> Iterator[slice]:
    """Rows in pieces whose scores [rows, width] fit in memory together."""
    size = max(1, min(_QUERIES, _SCORES // max(width, 1)))
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def must_be_finite(scores: Tensor) -> Tensor:
    """The scores, or an error: what is no number has no rank."""
    # The extremes are no numbers if any score is none, and are found without an array of answers.
    if scores.numel() and not torch.stack(scores.aminmax()).isfinite().all():
        raise InputError("the model's scores are not finite; train again with a lower training.lr")
    return scores


def best(scores: Tensor, top: int) -> Tensor:
    """Where the `top` largest of each row stand, the largest first and of equals the first: [B, k] of [B, C]."""
    k = min(top, scores.shape[1])
    if 2 * k >= scores.shape[1]:
        return scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    values, places = scores.topk(k, 1)
    # Which of several that equal the last was taken is left to chance: those rows are sorted whole.
    last = values[:, -1:]
    cut = ((scores == last).sum(1) > (values == last).sum(1)) & (last[:, 0] > -torch.inf)
    if cut.any():
        places[cut] = scores[cut].sort(dim=1, descending=True, stable=True).indices[:, :k]
        values = scores.gather(1, places)
    by_place = places.argsort(1)
    order = by_place.gather(1, values.gather(1, by_place).sort(dim=1, descending=True, stable=True).indices)
    return places.gather(1, order)


def log_odds_among(scores: Tensor, ranked: Tensor, places: Tensor | None = None) -> Tensor:
    """Log-odds of answers by the softmax in which no other known answer takes part, as none does in filtered ranks.

    Args:
        scores: logits [B, C].
        ranked: the same, those of known answers -inf.
        places: which answers [B, k]; all of them if not given.

    Returns:
        In double precision [B, k] or [B, C]: a float cannot tell apart what is nearly certain.
    """
    others = ranked.double().logsumexp(1, keepdim=True)
    chosen, new = (part if places is None else part.gather(1, places) for part in (scores, ranked > -torch.inf))
    logs = chosen.double() - others
    # A new answer is among those that were summed, a known one is not.
    odds = torch.where(new, logs - torch.log1p(-logs.exp().clamp_max(1)), logs)
    return odds.clamp(-_CERTAIN, _CERTAIN)


def unbeaten(scores: Tensor, ranked: Tensor, places: Tensor) -> Tensor:
    """Whether no new answer has a higher score than these [B, k], of scores [B, C] and the same without known ones."""
    return scores.gather(1, places) >= ranked.amax(1, keepdim=True)


def scores_of_relations(model: LinkPredictor, encoded: Encoded, s: Tensor, o: Tensor, num_relations: int) -> Tensor:
    """Logits of (s, r, o) for every original relation r: [B, R] of entities [B]."""
    decoder, x, e = model.decoder, F.embedding(s, encoded.entities), F.embedding(o, encoded.entities)
    if dual(decoder) is not None:
        originals = Encoded(encoded.entities, encoded.relations[:num_relations])
        scores = relation_scores(decoder, originals, x, e, o)
        # The product has all but what no relation changes.
        scores = scores if decoder.entity_bias is None else scores + decoder.entity_bias[o].unsqueeze(1)
        return scores if decoder.margin is None else scores + decoder.margin
    rows = _QUERIES * (16 if isinstance(decoder.phi, Composition) else 1)  # (s, r, o) at a time
    several, found = max(1, rows // num_relations), []
    for begin in range(0, len(s), several):
        part = slice(begin, begin + several)
        parts = [
            Encoded(encoded.entities, encoded.relations[first : min(first + rows, num_relations)])
            for first in range(0, num_relations, rows)
        ]
        found.append(torch.cat([relation_scores(decoder, some, x[part], e[part], o[part]) for some in parts], 1))
    return torch.cat(found) if found else x.new_zeros(0, num_relations)
