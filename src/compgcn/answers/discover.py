"""Discover the most probable facts that no split holds, over many queries and in bounded memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compgcn.answers.calibrate import Weighing, fit_weighing
from compgcn.answers.links import (
    PROPAGATED,
    Links,
    Progress,
    index,
    must_be_finite,
    must_count,
    sample_size,
    sides,
    without,
)
from compgcn.data import KnowledgeGraph
from compgcn.data.columns import Numbers
from compgcn.nn.conditional import ConditionalCompGCN, find_pace
from compgcn.tasks.facts import Known, known_entities
from compgcn.tasks.ranking import best

log = logging.getLogger(__name__)

Rates = NDArray[np.float64]

STRANGER, PEER, HEAD = range(3)  # the kinds of entities, for a relation

_SHARE = 0.5  # of the entities with a place must be heads
_PRIOR = 2  # entities of the average relation that each relation is taken to have besides its own
# About a minute on a GPU, or on two cores: queries or messages of a model conditioned on the query, scores of another
_ASKED, _SENT = 2**16, 3 * 2**33
_SCORED = {"cuda": 2**36, "cpu": 2**31}
_SHOWN = 10  # answers to a query that a weighing is fitted to


class Discovery(NamedTuple):
    """A fact that no split holds."""

    head: str  # ids, then names
    relation: str
    tail: str
    head_name: str
    relation_name: str
    tail_name: str
    score: float
    probability: float  # that it holds, see `discover`


def discover(
    links: Links,
    relation: str | None = None,
    top: int = 100,
    per_relation: int | None = None,
    *,
    all_heads: bool = False,
    notify: Progress | None = None,
) -> list[Discovery]:
    """Return the most probable facts (head, relation, ?) that no split holds, best first.

    The order is that of the answer's probability times the rate at which such entities lack a tail, see `lacking`. The
    probability is this product, calibrated by `weighing` if the run is. The heads of the highest rates are asked about,
    as many as take about a minute, at least 1,000; a warning tells how many.

    Args:
        relation: the only relation to ask about.
        top, per_relation: how many facts in all, and of each relation at most.
        all_heads: ask about every entity, not only about heads and their peers, see `Peers`.
    """
    must_count("top", top)
    must_count("per_relation", top if per_relation is None else per_relation)
    data = links.data
    relations = range(data.num_relations) if relation is None else [data.relations.index(relation)]
    peers, rates = Peers(data), lacking(data, Peers(data, "valid"))
    search = _Search(links, links.known_entities, rates)
    counts = peers.counts(relations, strangers=all_heads)  # [R', 3]
    shares = quotas(counts, rates[list(relations)], most_queries(links), evenly=per_relation is not None)
    total, every = int(shares.sum()), int(counts.sum())
    if total < every:
        more = "; name a relation to ask about it alone" if relation is None else ""
        log.warning(f"{total:,} of {every:,} queries asked, about heads that most often lack a tail{more}")
    done, most = 0, min(top, per_relation or top)
    nothing = found = torch.zeros(0, 5, dtype=torch.double, device=links.device)
    for r, share in zip(relations, shares, strict=True):
        kept, queries = nothing, some(peers.of(r, strangers=all_heads), share)
        for block in links.blocks(len(queries)):
            kept = _best(torch.cat((kept, search.facts(queries[block], most))), most)
            done += len(queries[block])
            if notify is not None:
                notify(done, total)
        found = _best(torch.cat((found, kept)), top)
    return [
        Discovery(*links.named(*(int(row) for row in fact)), score, chance) for chance, score, *fact in found.tolist()
    ]


@torch.inference_mode()
def weighing(links: Links, notify: Progress | None = None) -> Weighing | None:
    """Calibrate discoveries on validation; None if it has too few facts.

    Discoveries are made as if validation were yet to be found, for a sample of the heads and peers that `lacking`
    counts, and looked up in it.
    """
    data, R = links.data, links.data.num_relations
    others = _facts(data, "valid")
    if not len(data.valid) or not len(others):
        return None
    known, right = (known_entities({"known": facts}, data.num_entities, R) for facts in (others, data.valid))
    peers = Peers(data, "valid")
    size = PROPAGATED if isinstance(links.task.model, ConditionalCompGCN) else sample_size(data.num_entities)
    search, pairs = _Search(links, known, lacking(data, peers)), peers.sample(size)
    odds, hits = [], []
    for block in links.blocks(len(pairs)):
        tails, scores, found = search.tails(pairs[block], _SHOWN)
        true = right.hold(pairs[block, 0] * (2 * R) + pairs[block, 1], tails)
        left = scores > -torch.inf
        odds.append(found[left].cpu())
        hits.append(true[left].cpu())
        if notify is not None:
            notify(block.stop, len(pairs))
    return fit_weighing(torch.cat(odds), torch.cat(hits))


def lacking(data: KnowledgeGraph, peers: Peers) -> Rates:
    """Return the rate at which strangers, peers and heads lack a tail of each relation [R, 3].

    It is the share of them that have a tail in validation, so that a relation of one tail each is not offered a second.
    `peers` must hide validation: then they are the entities that `discover` asks about, and the ones whose only tails
    validation holds. Rates of few entities are drawn to those of all relations; without validation all are 1.
    """
    N, R = data.num_entities, data.num_relations
    if not len(data.valid):
        return np.ones((R, 3))
    there, lack = np.zeros((2, R, 3))
    having = index(data.valid[:, 1], data.valid[:, 0], N)  # the heads of each relation in valid
    for r in range(R):
        (entities, _, kinds), (_, asking) = peers.of(r).T, having.pairs(np.array([r]))
        heads = np.count_nonzero(kinds == HEAD)
        there[r] = N - len(kinds), len(kinds) - heads, heads
        _, peers_, heads_ = np.bincount(kinds[np.isin(entities, asking)], minlength=3)
        lack[r] = len(asking) - peers_ - heads_, peers_, heads_
    usual = np.maximum(lack.sum(0), 0.5) / np.maximum(there.sum(0), 1)  # above 0
    rates: Rates = np.minimum((lack + _PRIOR * usual) / (there + _PRIOR), 1.0)
    return rates


class Peers:
    """The heads of each relation, and their peers; an entity whose only tails are in the split `hidden` is no head.

    An entity has a place for each relation that it is the head of, and for each that it is the tail of. A peer of the
    heads of a relation is no head itself, but shares a place with them: at least half of the entities there are heads.
    If nearly everyone who works somewhere lives somewhere, a person who works and lives nowhere is a peer. The places
    are those of all splits, so that a hidden split changes no peer into a stranger: near one half, it would change all.
    Places are the sides of `compgcn.answers.links.sides`; nobody is a peer of the heads of a type.
    """

    def __init__(self, data: KnowledgeGraph, hidden: str = "") -> None:
        self.num_entities = data.num_entities
        self.num_relations, known = data.num_relations, _facts(data, hidden)
        entity, place = sides(data, _facts(data))
        number = max(2 * data.num_relations, int(place.max(initial=-1)) + 1)
        self._heads = index(known[:, 1], known[:, 0], data.num_entities)
        self._places, self._having = index(entity, place, number), index(place, entity, data.num_entities)
        self._lengths = np.bincount(self._having.pairs(np.arange(number))[0], minlength=number)  # entities of a place
        self._counts: dict[int, tuple[int, int]] = {}  # peers and heads of the relations that `of` has looked at

    def of(self, relation: int, *, strangers: bool = False) -> Numbers:
        """Return the heads of a relation and their peers, or every entity, ascending: entity, relation, kind [n, 3]."""
        (_, heads), (_, every) = (held.pairs(np.array([relation])) for held in (self._heads, self._having))
        common = np.bincount(self._places.pairs(every)[1], minlength=len(self._lengths))  # heads with each place
        common[relation] = 0  # it would tell the hidden heads
        telling = np.flatnonzero(common >= np.maximum(_SHARE * self._lengths, 1))
        entities = np.sort(np.concatenate((heads, self._having.pairs(telling)[1])))  # `np.unique` would hash: slow
        entities = entities[np.diff(entities, prepend=-1) > 0]
        kinds = np.full(len(entities), PEER)
        kinds[np.searchsorted(entities, heads)] = HEAD
        self._counts[relation] = len(entities) - len(heads), len(heads)
        if strangers:
            everyone = np.full(self.num_entities, STRANGER)
            everyone[entities] = kinds
            entities, kinds = np.arange(self.num_entities), everyone
        return np.stack((entities, np.full_like(entities, relation), kinds), 1)

    def counts(self, relations: Iterable[int], *, strangers: bool = False) -> Numbers:
        """Return the number of strangers, if they count, of peers and of heads of each relation [n, 3]."""
        rows = []
        for r in relations:
            if r not in self._counts:
                self.of(r)
            peers, heads = self._counts[r]
            rows.append((self.num_entities - peers - heads if strangers else 0, peers, heads))
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    def sample(self, size: int) -> Numbers:
        """Draw so many heads and peers of all relations, or all if there are fewer: entity, relation, kind [n, 3]."""
        ends = np.cumsum(self.counts(range(self.num_relations)).sum(1))
        draw = np.random.default_rng(0)
        chosen = np.sort(draw.choice(ends[-1], min(size, ends[-1]), replace=False, shuffle=False))
        rows = [np.empty((0, 3), dtype=np.int64)]
        parts = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
        for r, (end, places) in enumerate(zip(ends, parts, strict=True)):
            if len(places):
                queries = self.of(r)
                rows.append(queries[places - (end - len(queries))])
        return np.concatenate(rows)


def most_queries(links: Links) -> int:
    """Return how many queries take about a minute on the device of a model."""
    model, device = links.task.model, links.device.type
    if not isinstance(model, ConditionalCompGCN):
        return max(PROPAGATED, _SCORED.get(device, _SCORED["cpu"]) // max(1, links.data.num_entities))
    if device != "cpu":
        return _ASKED
    return max(PROPAGATED, int(_SENT / find_pace(links.task.graph, len(model.layers), sparse=model.sparse).time))


def quotas(counts: Numbers, rates: Rates, limit: int, *, evenly: bool) -> Numbers:
    """Deal a limit of queries over kinds of heads of each relation [R, 3]: those of the highest rates come first.

    Kinds of one rate share what is left of the limit by their counts [R, 3]. `evenly` gives every relation the same
    share of the limit.
    """
    if evenly and len(counts) > 1:
        share = max(1, limit // len(counts))
        rows = zip(np.split(counts, len(counts)), np.split(rates, len(rates)), strict=True)
        return np.concatenate([quotas(*row, share, evenly=False) for row in rows])
    sizes, found = counts.ravel(), np.zeros(counts.size, dtype=np.int64)
    order = np.argsort(-rates, axis=None, kind="stable")
    for level in np.split(order, np.flatnonzero(np.diff(rates.ravel()[order])) + 1):  # kinds of one rate
        ends = np.cumsum(sizes[level])
        room = min(limit, ends[-1])
        found[level] = np.diff(ends * room // max(ends[-1], 1), prepend=0)
        limit -= room
    return found.reshape(counts.shape)


def some(queries: Numbers, share: Numbers) -> Numbers:
    """Return as many rows of head, relation and kind [n, 3] of each kind as `share` says [3], drawn with one seed."""
    if share.sum() == len(queries):
        return queries
    draw, kinds = np.random.default_rng(0), queries[:, 2]
    parts = [draw.choice(np.flatnonzero(kinds == kind), size, replace=False) for kind, size in enumerate(share) if size]
    chosen: Numbers = queries[np.sort(np.concatenate([np.empty(0, dtype=np.int64), *parts]))]
    return chosen


def _facts(data: KnowledgeGraph, hidden: str = "") -> Numbers:
    return np.concatenate([facts for name, facts in data.splits.items() if name != hidden])


def _best(facts: Tensor, top: int) -> Tensor:
    """Return the facts of largest probability, the first column, ties in their order."""
    return facts[best(facts[:, 0].unsqueeze(0), top)[0]]


class _Search:
    """A search for facts outside an index of known ones, with the rates of `lacking` [R, 3]."""

    def __init__(self, links: Links, known: Known, rates: Rates) -> None:
        self._links, self._known, self._rates = links, known, torch.from_numpy(rates).to(links.device)

    @torch.inference_mode()
    def tails(self, asked: Numbers, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best new tails for rows of head, relation and kind [B, 3], with scores and log-odds, all [B, k].

        The score is -inf where a query has fewer than k.
        """
        links, candidates = self._links, self._links.candidates("entities")
        keys = asked[:, 0] * (2 * links.data.num_relations) + asked[:, 1]
        _, r, kind = torch.from_numpy(asked).to(links.device).unbind(1)
        scores = must_be_finite(links.scores("entities", keys))  # [B, C]
        ranked = links.without_itself(without(scores, self._known, keys, candidates), keys)
        values, places = candidates.best(ranked, most)  # [B, k]: the best by score are the best by probability
        chances = links.probabilities(scores, places, ranked) * self._rates[r, kind].unsqueeze(1)
        return places, values, torch.logit(chances, 1e-12)

    def facts(self, asked: Numbers, most: int) -> Tensor:
        """Return the best new facts for rows of head, relation and kind: probability, score, s, r and o [n, 5]."""
        (tails, scores, odds), weighed = self.tails(asked, most), self._links.weighing
        chances = odds.sigmoid() if weighed is None else weighed(odds)
        queries = torch.from_numpy(asked).to(tails.device).unsqueeze(1).expand(-1, tails.shape[1], -1)  # [B, k, 3]
        columns = torch.stack((chances, scores.double(), queries[..., 0], queries[..., 1], tails), 2)
        return _best(columns[scores > -torch.inf], most)
