"""The most probable facts that are not in the graph, over many queries, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from compgcn.answers.links import Links
from compgcn.answers.retrieval import best, blocks, must_be_finite
from compgcn.data import KnowledgeGraph
from compgcn.data.arrays import Numbers
from compgcn.errors import InputError

Progress = Callable[[int, int], None]  # queries answered, of so many
Rates = NDArray[np.float64]

_HEADS = 10  # of the average relation, that each is taken to have besides its own


class Discovery(NamedTuple):
    """A fact that is in no split of the data."""

    head: str  # ids, then names
    relation: str
    tail: str
    head_name: str
    relation_name: str
    tail_name: str
    score: float
    probability: float  # that the head lacks a tail, and that this is one


SCHEMA = pa.schema(
    [
        ("rank", pa.int32()),
        *((name, pa.string()) for name in Discovery._fields[:6]),
        *((name, pa.float64()) for name in Discovery._fields[6:]),
    ]
)  # of a table of them


class _Found(NamedTuple):
    """Facts, the most probable first [n, 3], with their probabilities and scores [n]."""

    facts: Tensor
    chances: Tensor
    scores: Tensor

    def best(self, top: int) -> _Found:
        """Those of them; of equals the first."""
        chosen = best(self.chances.unsqueeze(0), top)[0]
        return _Found(*(part[chosen] for part in self))

    def and_(self, other: _Found) -> _Found:
        return _Found(*(torch.cat(parts) for parts in zip(self, other, strict=True)))


def discover(
    links: Links,
    relation: str | None = None,
    top: int = 100,
    per_relation: int | None = None,
    *,
    all_heads: bool = False,
    notify: Progress | None = None,
) -> list[Discovery]:
    """The most probable of all facts (head, relation, ?) that stand in no split, best first.

    A probability here is that of the answer times the chance that there is one to find, see `lacking`. A fact of an
    entity with itself counts only in relations that have such facts.

    Args:
        links: what answers.
        relation: only of this one.
        top: how many.
        per_relation: at most so many of each relation.
        all_heads: ask of every entity, not only of those that are the head of some fact of the relation.
        notify: called with the queries answered so far, and how many there are.
    """
    for name, value in (("top", top), ("per_relation", per_relation)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InputError(f"{name} must be a whole number from 1 on, not {value!r}")
    data = links.data
    wanted = range(data.num_relations) if relation is None else [data.relations.index(relation)]
    facts = np.concatenate(list(data.splits.values()))
    everyone = np.arange(data.num_entities)
    heads = {r: everyone if all_heads else np.unique(facts[facts[:, 1] == r, 0]) for r in wanted}
    total, done, found = sum(map(len, heads.values())), 0, _nothing(links)
    missing = lacking(data)
    for r in wanted:
        loops = bool(((facts[:, 1] == r) & (facts[:, 0] == facts[:, 2])).any())
        kept, most = _nothing(links), min(top, per_relation or top)
        for block in blocks(len(heads[r]), data.num_entities):
            some = heads[r][block]
            kept, done = kept.and_(_candidates(links, r, some, missing[r], loops, most)).best(most), done + len(some)
            if notify is not None:
                notify(done, total)
        found = found.and_(kept).best(top)
    return _named(links, found)


def lacking(data: KnowledgeGraph) -> Rates:
    """How likely a head has a tail that is not in the data [R, 2]: one without any known tail, and one with some.

    As often as heads by what train has of them have one in valid, so that a relation of one tail each is not offered a
    second. Rates of few heads are drawn to those of all relations; without facts in valid all are 1.
    """
    if not len(data.valid):
        return np.ones((data.num_relations, 2))
    train, valid = (np.unique(facts[:, :2], axis=0) for facts in (data.train, data.valid))  # pairs of head, relation
    keys = [pairs[:, 0] * data.num_relations + pairs[:, 1] for pairs in (train, valid)]
    again = np.isin(keys[1], keys[0])
    counts = [np.bincount(r, minlength=data.num_relations) for r in (train[:, 1], valid[~again, 1], valid[again, 1])]
    heads = np.stack((data.num_entities - counts[0], counts[0]), 1)  # [R, 2]
    lack = np.stack(counts[1:], 1)
    usual = np.maximum(lack.sum(0), 0.5) / np.maximum(heads.sum(0), 1)  # above 0, however little there is
    rates: Rates = np.minimum((lack + _HEADS * usual) / (heads + _HEADS), 1.0)
    return rates


def _nothing(links: Links) -> _Found:
    facts = torch.zeros(0, 3, dtype=torch.long, device=links.device)
    return _Found(facts, facts.new_zeros(0, dtype=torch.double), facts.new_zeros(0, dtype=torch.float))


@torch.inference_mode()
def _candidates(links: Links, r: int, heads: Numbers, missing: Rates, loops: bool, most: int) -> _Found:
    """The best new facts of a relation and some heads [B], which lack one as `missing` has it [2]."""
    s = torch.from_numpy(heads).to(links.device)
    scores = must_be_finite(links.task.model.score(links.encoded, s, torch.full_like(s, r)))  # [B, N]
    known = links._known_entities.pairs(heads * (2 * links.data.num_relations) + r)
    cells = tuple(torch.from_numpy(part).to(links.device) for part in known)
    ranked = scores.index_put(cells, scores.new_tensor(-torch.inf))
    hidden = ranked if loops else ranked.scatter(1, s.unsqueeze(1), -torch.inf)
    # Of one query the best by score are the best by probability, so that no other can be among those kept.
    places = best(hidden, most)  # [B, k]
    some = torch.zeros_like(s).index_fill(0, cells[0], 1)  # whether a head has a known tail
    chances = links._probabilities(scores, places, ranked) * torch.from_numpy(missing).to(s.device)[some].unsqueeze(1)
    chances = chances.masked_fill(hidden.gather(1, places) == -torch.inf, -torch.inf).flatten()
    chosen = best(chances.unsqueeze(0), most)[0]
    chosen = chosen[chances[chosen] > -torch.inf]
    row, o = chosen // places.shape[1], places.flatten()[chosen]
    facts = torch.stack((s[row], torch.full_like(o, r), o), 1)
    return _Found(facts, chances[chosen], scores[row, o].float())


def _named(links: Links, found: _Found) -> list[Discovery]:
    entities, relations = links.data.entities, links.data.relations
    columns = (part.tolist() for part in (found.facts, found.scores, found.chances))
    return [
        Discovery(
            *(entities.ids[s], relations.ids[r], entities.ids[o]),
            *(entities.names[s], relations.names[r], entities.names[o]),
            score,
            chance,
        )
        for (s, r, o), score, chance in zip(*columns, strict=True)
    ]
