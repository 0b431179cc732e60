"""What a model got right and what it got wrong, by name: the facts a reader of its page looks at first."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from compgcn.answers.classes import Classified
from compgcn.data import KnowledgeGraph
from compgcn.ranking import SideRanks
from compgcn.run import Run

_POOL = 1000  # facts among which those that were told most clearly are looked for
_ALIKE = 3  # at most so many examples of one relation, asked for the same side
_BLOCK = 2**24  # scores at a time


class Example(NamedTuple):
    """A fact of a split of which one end was asked for."""

    question: str  # with names, and ? for what was asked
    answer: str  # the name of the true one
    rank: float
    probability: float | None  # of the true answer, where it was looked for
    instead: str  # what the model says first that is no fact of the data
    chance: float  # the probability of that


class _Queries(NamedTuple):
    """Every fact twice, asked for its tail and for its head, one after the other [2n]."""

    given: Tensor  # the entity that is known
    relation: Tensor  # R to 2R for heads
    target: Tensor
    rank: Tensor


def told(run: Run, split: str, sides: SideRanks, top: int) -> tuple[list[Example], list[Example]]:
    """The facts whose missing end the model found most clearly, and those where the true answer ranks last."""
    queries = _queries(run, split, sides)
    by_rank = queries.rank.argsort(stable=True)
    pool = by_rank[:_POOL]
    best = pool[_leads(run, queries, pool).argsort(descending=True, stable=True)]
    worst = queries.rank.argsort(descending=True, stable=True)
    good = [_example(run, queries, row, True) for row in _varied(queries, best, top) if queries.rank[row] <= 1]
    bad = [_example(run, queries, row, False) for row in _varied(queries, worst, top) if queries.rank[row] > 1]
    return good, bad


def _queries(run: Run, split: str, sides: SideRanks) -> _Queries:
    s, r, o = run.task.splits[split].unbind(1)
    R = run.task.num_relations
    pairs = ((s, o), (r, r + R), (o, s), (sides.tail.realistic, sides.head.realistic))
    return _Queries(*(torch.stack(pair, 1).flatten() for pair in pairs))


@torch.inference_mode()
def _leads(run: Run, queries: _Queries, rows: Tensor) -> Tensor:
    """By how much the score of each target exceeds the best of those that are no known answer [n]."""
    task, found = run.task, []
    for part in torch.split(rows, max(1, _BLOCK // task.num_entities)):
        given, relation, target = queries.given[part], queries.relation[part], queries.target[part]
        scores = task.model.score(run.encoded, given, relation)  # [B, N]
        own = scores.gather(1, target.unsqueeze(1)).squeeze(1)
        rivals = scores.index_put(task.known.lookup(given, relation), scores.new_tensor(-torch.inf))
        found.append(own - rivals.scatter(1, target.unsqueeze(1), -torch.inf).amax(1))
    return torch.cat(found) if found else rows.double()


def _varied(queries: _Queries, order: Tensor, top: int) -> list[int]:
    """The first of an order, not too many of a kind."""
    chosen: list[int] = []
    counts: dict[int, int] = {}
    for row, relation in zip(order.tolist(), queries.relation[order].tolist(), strict=True):
        counts[relation] = counts.get(relation, 0) + 1
        if counts[relation] <= _ALIKE:
            chosen.append(row)
        if len(chosen) == top:
            break
    return chosen


def _example(run: Run, queries: _Queries, row: int, probable: bool) -> Example:
    """One of them with names; the probability of the true answer is looked for where it stands among the first."""
    assert isinstance(run.data, KnowledgeGraph)
    R, entities, relations = run.data.num_relations, run.data.entities, run.data.relations
    given, relation, target = (int(part[row]) for part in queries[:3])
    rank = float(queries.rank[row])
    tail = relation < R
    asked = partial(run.predict, entities.ids[given] if tail else None, relations.ids[relation % R])
    asked = asked if tail else partial(asked, tail=entities.ids[given])
    shown, told = entities.names[given], relations.names[relation % R]
    question = f"{shown} — {told} — ?" if tail else f"? — {told} — {shown}"
    chance = None
    if probable:  # before it stand those that are known answers too
        known = len(run.task.known.lookup(queries.given[row : row + 1], queries.relation[row : row + 1])[0])
        answers = asked(top=known + int(rank))
        chance = next((one.probability for one in answers if one.entity == entities.ids[target]), None)
    other = asked(top=1, new=True)
    name, its = (other[0].name, other[0].probability) if other else ("", 0.0)
    return Example(question, entities.names[target], rank, chance, name, its)


def classified(run: Run, split: str, top: int) -> tuple[list[Classified], list[Classified]]:
    """The items of a split whose class the model was most certain of, rightly and wrongly."""
    classes = run.classes
    found = run.classify([classes.vocabulary.ids[row] for row in classes.splits[split]])
    found.sort(key=lambda one: -one.probability)
    right, wrong = ([one for one in found if (one.label == one.known) is so] for so in (True, False))
    return right[:top], wrong[:top]
