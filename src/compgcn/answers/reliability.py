"""Which of the answers that a link predictor would show are right: what its calibration is fitted to and judged by.

An answer counts as right if the fact stands in the split; facts of the other splits are left out, as in filtered ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from compgcn.answers.calibration import Reliability, Scaling, fit_scaling
from compgcn.answers.known import Known, known_entities, known_relations
from compgcn.answers.retrieval import Progress, best, blocks, log_odds_among, scores_of_relations, unbeaten
from compgcn.compose import Composition

if TYPE_CHECKING:
    from compgcn.answers.links import Links

SHOWN = 10  # answers to a query
_MOST = 5000  # queries
_FACTS = 20_000  # scored one by one, where a decoder has no quicker way to rank relations


@torch.inference_mode()
def of_entities(
    links: Links, split: str, top: int = SHOWN, most: int | None = _MOST, notify: Progress | None = None
) -> Reliability:
    """The best answers to the queries of a split, from both sides; to `most` of them, drawn with a fixed seed.

    `notify` is called with the queries answered so far, and how many there are.
    """
    data, R = links.data, links.data.num_relations
    others = {name: triples for name, triples in data.splits.items() if name != split}
    known, wanted = (known_entities(some, data.num_entities, R) for some in (others, {split: data.splits[split]}))
    keys = _some(torch.from_numpy(wanted.keys), most)
    found = []
    for block in blocks(len(keys), data.num_entities):
        key = keys[block].to(links.device)
        scores = links.task.model.score(links.encoded, key // (2 * R), key % (2 * R))  # [B, N]
        found.append(_answers(links, scores, keys[block], known, wanted, top))
        if notify is not None:
            notify(block.stop, len(keys))
    return _joined(found)


@torch.inference_mode()
def of_relations(
    links: Links, split: str, top: int = SHOWN, most: int | None = _MOST, notify: Progress | None = None
) -> Reliability:
    """The best relations between the entities of a split's triples; where they are scored one by one, of fewer.

    `notify` is called as by `of_entities`.
    """
    data, N, R = links.data, links.data.num_entities, links.data.num_relations
    others = {name: triples for name, triples in data.splits.items() if name != split}
    known, wanted = (known_relations(some, N, R) for some in (others, {split: data.splits[split]}))
    if most is not None and not isinstance(links.task.model.decoder.phi, Composition):
        most = min(most, max(1, _FACTS // R))
    keys = _some(torch.from_numpy(wanted.keys), most)
    found = []
    for block in blocks(len(keys), R):
        key = keys[block].to(links.device)
        scores = scores_of_relations(links.task.model, links.encoded, key // N, key % N, R)  # [B, R]
        found.append(_answers(links, scores, keys[block], known, wanted, top))
        if notify is not None:
            notify(block.stop, len(keys))
    return _joined(found)


def fitted(links: Links, told: Callable[[str], Progress | None] = lambda kind: None) -> dict[str, Scaling | None]:
    """The calibration of a link predictor on validation; `told` has, for a kind of answers, whom to tell how far."""
    return {
        kind: fit_scaling(of(links, "valid", notify=told(kind)))
        for kind, of in (("entities", of_entities), ("relations", of_relations))
    }


def _some(keys: Tensor, most: int | None) -> Tensor:
    if most is None or len(keys) <= most:
        return keys
    return keys[torch.randperm(len(keys), generator=torch.Generator().manual_seed(0))[:most].sort().values]


def _answers(links: Links, scores: Tensor, keys: Tensor, known: Known, wanted: Known, top: int) -> Reliability:
    """Of queries [B] with these scores [B, C]; one with fewer than `top` answers left has as many as it can."""
    ranked = links.without_known(scores, keys.numpy(), known)
    places = best(ranked, top)
    cells = tuple(torch.from_numpy(part).to(scores.device) for part in wanted.pairs(keys.numpy()))
    true = torch.zeros_like(scores, dtype=torch.bool).index_put(cells, torch.tensor(True, device=scores.device))
    left = ranked.gather(1, places) > -torch.inf
    odds = links.log_odds(scores, places), log_odds_among(scores, ranked, places)
    parts = *odds, true.gather(1, places), unbeaten(scores, ranked, places)
    return Reliability(*(part[left].cpu() for part in parts))


def _joined(found: list[Reliability]) -> Reliability:
    nothing = torch.zeros(0, dtype=torch.double)
    nobody = Reliability(nothing, nothing, nothing.bool(), nothing.bool())
    return Reliability(*(torch.cat(parts) for parts in zip(nobody, *found, strict=True)))
