"""The most probable facts that are not in the graph, over many queries, in bounded memory.

How probable they are is told by discoveries made as if validation were yet to be found, and looked up in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from compgcn.answers.calibrate import Weighing, fit_weighing
from compgcn.answers.links import Links, Progress, best, blocks, must_be_finite
from compgcn.answers.peers import HEAD, Peers, Rows, distinct_pairs
from compgcn.data import KnowledgeGraph
from compgcn.data.columns import Numbers
from compgcn.errors import InputError
from compgcn.tasks.facts import Known, known_entities

Rates = NDArray[np.float64]

_HEADS = 10  # of the average relation, that each is taken to have besides its own
_SAMPLE, _SHOWN = 5000, 10  # queries that a weighing is fitted to, and answers to each


class Discovery(NamedTuple):
    """A fact that is in no split of the data."""

    head: str  # ids, then names
    relation: str
    tail: str
    head_name: str
    relation_name: str
    tail_name: str
    score: float
    probability: float  # that it holds, see `discover`


SCHEMA = pa.schema(
    [
        ("rank", pa.int32()),
        *((name, pa.string()) for name in Discovery._fields[:6]),
        *((name, pa.float64()) for name in Discovery._fields[6:]),
    ]
)  # of a table of them


class _Asked(NamedTuple):
    """What discoveries are made with.

    Fields:
        known: the tails that are no discoveries.
        missing: how likely one of a kind has another, see `lacking` [R, 3].
        loops: whether a relation has facts of an entity with itself [R].
    """

    known: Known
    missing: Tensor
    loops: Tensor


class _Answers(NamedTuple):
    """The best new tails of some queries [B, k]: which, with their scores, and the log-odds that they are lacking.

    Where a query has fewer than k of them, the scores of the others are -inf.
    """

    tails: Tensor
    scores: Tensor
    odds: Tensor


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

    They are ordered by the probability of the answer times how often such an entity lacks a tail of the relation. What
    is told is that product as `weighing` has fitted it, or itself where there was nothing to fit to. A fact of an
    entity with itself counts only in relations that have such facts.

    Args:
        links: what answers.
        relation: only of this one.
        top: how many.
        per_relation: at most so many of each relation.
        all_heads: ask of every entity, not only of the heads a relation has and their peers, see `heads.Peers`.
        notify: called with the queries answered so far, and how many there are.
    """
    for name, value in (("top", top), ("per_relation", per_relation)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InputError(f"{name} must be a whole number from 1 on, not {value!r}")
    relations = range(links.data.num_relations) if relation is None else [links.data.relations.index(relation)]
    facts = np.concatenate(list(links.data.splits.values()))
    peers = Peers(facts, links.data.num_entities, links.data.num_relations)
    asked = _asked(links, links.known_entities)
    total, done, found = int(peers.sizes(relations, strangers=all_heads).sum()), 0, _nothing(links)
    for r in relations:
        entities, kinds = peers.of(r, strangers=all_heads)
        kept, most = _nothing(links), min(top, per_relation or top)
        for block in blocks(len(entities), links.data.num_entities):
            some, kind = (torch.from_numpy(part[block]).to(links.device) for part in (entities, kinds))
            kept, done = kept.and_(_best_facts(links, some, kind, r, asked, most)).best(most), done + len(some)
            if notify is not None:
                notify(done, total)
        found = found.and_(kept).best(top)
    return _named(links, found)


@torch.inference_mode()
def weighing(links: Links, notify: Progress | None = None) -> Weighing | None:
    """How the probability of an answer and the rate of those asked make one together; None where valid has too little.

    As if valid were yet to be found: of a sample of the heads of relations by the other splits and their peers, drawn
    with a fixed seed, the best tails that stand in none of these are looked up in valid.

    Args:
        links: what answers.
        notify: called with the relations looked at and the queries answered so far, and how many there are at most.
    """
    data, R = links.data, links.data.num_relations
    others = _but_valid(data)
    if not len(data.valid) or not len(others):
        return None
    known, right = (known_entities({"known": facts}, data.num_entities, R) for facts in (others, data.valid))
    peers = Peers(others, data.num_entities, R)
    asked = _asked(links, known, peers, None if notify is None else lambda done, _: notify(done, R + _SAMPLE))
    pairs = peers.sample(range(R), _SAMPLE, seed=0)
    found = []
    for block in blocks(len(pairs), data.num_entities):
        some = pairs[block]
        s, r, kind = torch.from_numpy(some).to(links.device).unbind(1)
        answers = _best_tails(links, s, r, kind, asked, _SHOWN)
        splits = right.of(some[:, 0] * (2 * R) + some[:, 1], answers.tails.cpu().numpy())
        hits = torch.tensor([[split is not None for split in row] for row in splits], device=links.device)
        left = answers.scores > -torch.inf
        found.append([part[left].cpu() for part in (answers.odds, hits)])
        if notify is not None:
            notify(R + block.stop, R + len(pairs))
    odds, hits = (torch.cat(parts) for parts in zip(*found, strict=True))
    return fit_weighing(odds, hits)


def lacking(data: KnowledgeGraph, peers: Peers | None = None, notify: Progress | None = None) -> Rates:
    """How likely an entity has a tail of a relation that is not in the data [R, 3]: a stranger, a peer, and a head.

    As often as those that are so by the other splits have one in valid, so that a relation of one tail each is not
    offered a second. Rates of few entities are drawn to those of all relations; without facts in valid all are 1.

    Args:
        data: the graph.
        peers: by the facts of the splits but valid, where the caller has them.
        notify: called with the relations looked at so far, and how many there are.
    """
    N, R = data.num_entities, data.num_relations
    if not len(data.valid):
        return np.ones((R, 3))
    there, lack = np.zeros((2, R, 3))
    peers = peers or Peers(_but_valid(data), N, R)
    having = Rows(*distinct_pairs(data.valid[:, 1], data.valid[:, 0], N), R)  # the heads of each relation in valid
    for r in range(R):
        asked = peers.of(r)
        heads = np.count_nonzero(asked.kinds == HEAD)
        there[r] = N - len(asked.kinds), len(asked.kinds) - heads, heads
        lack[r] = np.bincount(asked.kinds_of(having.of(np.array([r]))), minlength=3)
        if notify is not None:
            notify(r + 1, R)
    usual = np.maximum(lack.sum(0), 0.5) / np.maximum(there.sum(0), 1)  # above 0, however little there is
    rates: Rates = np.minimum((lack + _HEADS * usual) / (there + _HEADS), 1.0)
    return rates


def _but_valid(data: KnowledgeGraph) -> Numbers:
    return np.concatenate([facts for name, facts in data.splits.items() if name != "valid"])


def _nothing(links: Links) -> _Found:
    facts = torch.zeros(0, 3, dtype=torch.long, device=links.device)
    return _Found(facts, facts.new_zeros(0, dtype=torch.double), facts.new_zeros(0, dtype=torch.float))


def _asked(links: Links, known: Known, peers: Peers | None = None, notify: Progress | None = None) -> _Asked:
    data, device = links.data, links.device
    facts = np.concatenate(list(data.splits.values()))
    loops = np.isin(np.arange(data.num_relations), facts[facts[:, 0] == facts[:, 2], 1])
    missing = lacking(data, peers, notify)
    return _Asked(known, torch.from_numpy(missing).to(device), torch.from_numpy(loops).to(device))


@torch.inference_mode()
def _best_tails(links: Links, s: Tensor, r: Tensor, kind: Tensor, asked: _Asked, most: int) -> _Answers:
    """The best new tails of (s, r, ?), where s is of a kind for r; all [B]."""
    scores = must_be_finite(links.task.model.score(links.encoded, s, r))  # [B, N]
    keys = (s * (2 * links.data.num_relations) + r).cpu().numpy()
    ranked = links.without_known(scores, keys, asked.known)
    itself = torch.where(asked.loops[r].unsqueeze(1), ranked.gather(1, s.unsqueeze(1)), -torch.inf)
    hidden = ranked.scatter(1, s.unsqueeze(1), itself)
    # Of one query the best by score are the best by probability, so that no other can be among those kept.
    places = best(hidden, most)  # [B, k]
    chances = links.probabilities(scores, places, ranked) * asked.missing[r, kind].unsqueeze(1)
    return _Answers(places, hidden.gather(1, places), torch.logit(chances, 1e-12))


def _best_facts(links: Links, heads: Tensor, kinds: Tensor, r: int, asked: _Asked, most: int) -> _Found:
    """The best new facts of a relation and some heads [B]."""
    found = _best_tails(links, heads, torch.full_like(heads, r), kinds, asked, most)
    chances = found.odds.sigmoid() if links.weighing is None else links.weighing(found.odds)
    chances = chances.masked_fill(found.scores == -torch.inf, -torch.inf).flatten()
    chosen = best(chances.unsqueeze(0), most)[0]
    chosen = chosen[chances[chosen] > -torch.inf]
    s, o = heads[chosen // found.tails.shape[1]], found.tails.flatten()[chosen]
    facts = torch.stack((s, torch.full_like(o, r), o), 1)
    return _Found(facts, chances[chosen], found.scores.flatten()[chosen].float())


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
