"""Filtered ranks of true answers, and the metrics made of them.

Ranks are 1-based. Entities known to answer the query are left out; the target stays in. Reports use the realistic rank,
the mean of the optimistic and the pessimistic one, so that constant scores gain nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from compgcn.errors import InputError
from compgcn.kernels.backend import kernels
from compgcn.tasks.facts import Answers

Scorer = Callable[[Tensor, Tensor], Tensor]
Watch = Callable[[int, int], None]  # called with the triples ranked so far and their number; may raise to stop
Metrics = dict[str, float]
Report = dict[str, float | Metrics]

METRICS: dict[str, Callable[[Tensor], Tensor]] = {  # of ranks [n] in float64, in the order of every table
    "mrr": lambda ranks: ranks.reciprocal().mean(),
    "mr": torch.mean,
    "hits@1": lambda ranks: (ranks <= 1).double().mean(),
    "hits@3": lambda ranks: (ranks <= 3).double().mean(),
    "hits@10": lambda ranks: (ranks <= 10).double().mean(),
}
CATEGORIES = ("1-1", "1-N", "N-1", "N-N")
UNSEEN = "unseen"


class Ranks(NamedTuple):
    """The rank of each target among the candidates [B], under the three readings of a tie."""

    optimistic: Tensor  # the target first among its equals: 1 + the candidates with a greater score, int64
    realistic: Tensor  # the mean of the other two: the expected rank if equals are in random order, float64
    pessimistic: Tensor  # the target last among its equals: optimistic + the candidates with an equal score, int64

    @classmethod
    def from_counts(cls, greater: Tensor, equal: Tensor) -> Ranks:
        """Make ranks from the numbers of candidates that score more and the same, the target not counted."""
        return cls(1 + greater, 1 + greater + equal.double() / 2, 1 + greater + equal)


class SideRanks(NamedTuple):
    """Ranks of the same triples [n], in their order, from both sides."""

    tail: Ranks  # of o, asked (s, r, ?)
    head: Ranks  # of s, asked (?, r, o)


class Candidates:
    """The candidates that a process scores, [B, C]: here all, and of several processes a slice each; ids [B, k]."""

    start = 0  # the id of the first
    chunk = 0  # the most that a process has; 0: all

    def hold(self, ids: Tensor) -> Tensor:
        """Return which ids are of this process."""
        return torch.ones_like(ids, dtype=torch.bool)

    def chosen(self, scores: Tensor, row: Tensor, ids: Tensor) -> Tensor:
        """Return the scores at rows and ids [m]; 0 where another process has them."""
        return scores[row, ids]

    def at(self, scores: Tensor, ids: Tensor) -> Tensor:
        """Return the scores of some candidates, of whichever process, [B, k]."""
        return scores.gather(1, ids)

    def put(self, scores: Tensor, ids: Tensor, values: Tensor) -> Tensor:
        """Return the scores with other values [B, k] of some candidates."""
        return scores.scatter(1, ids, values)

    def best(self, scores: Tensor, top: int) -> tuple[Tensor, Tensor]:
        """Return the largest scores and their ids, [B, k], ties in the order of the ids."""
        ids = best(scores, top)
        return scores.gather(1, ids), ids

    def log_sum_exp(self, scores: Tensor) -> Tensor:
        """Return log Σ exp of all scores, [B]."""
        return scores.logsumexp(1)

    def highest(self, scores: Tensor) -> Tensor:
        """Return the highest score, [B]."""
        return scores.amax(1)

    def added(self, numbers: Tensor) -> Tensor:
        """Return numbers about the candidates, those of all processes added up."""
        return numbers


ALL = Candidates()


@torch.no_grad()
def rank_triples(
    score: Scorer,
    triples: Tensor,
    known: Answers,
    num_entities: int,
    *,
    max_elements: int = 2**26,
    notify: Watch | None = None,
    owned: Candidates = ALL,
) -> SideRanks:
    """Rank the object and the subject of each triple among the entities not known to answer; score each query once.

    Args:
        score: (s [q], r [q]) -> logits of every entity [q, N]; r runs to 2R, a subject being asked for by the inverse
            relation, (o, r + R).
        triples: (s, r, o) [n, 3], on the device of the scores.
        known: the answers to leave out, those in all splits, with inverses, on the same device.
        max_elements: bound on q·N; memory holds two such blocks of scores.
        owned: the entities that this process scores, all or a slice; `score` and N are of that slice.
    """
    s, r, o = triples.long().unbind(1)
    width = 2 * known.num_relations
    key = torch.cat((s * width + r, o * width + r + known.num_relations))  # [2n], first all tails
    target = torch.cat((o, s))
    keys, owner, sizes = torch.unique(key, return_inverse=True, return_counts=True)  # [Q], [2n], [Q]
    order = owner.argsort(stable=True)  # the triples of one query next to each other
    ends = [0, *sizes.cumsum(0).tolist()]
    greater, equal = torch.empty_like(target), torch.empty_like(target)
    step = max(1, max_elements // max(1, owned.chunk or num_entities))  # the same on every process
    for first in range(0, len(keys), step):
        chunk = keys[first : first + step]
        mine = order[ends[first] : ends[first + len(chunk)]]  # positions in [2n] that this chunk answers
        subject, relation = chunk // width, chunk % width
        scores = score(subject, relation)
        if scores.shape != (len(chunk), num_entities):
            raise InputError(
                f"scoring {len(chunk)} queries must give shape [{len(chunk)}, {num_entities}], not {list(scores.shape)}"
            )
        if scores.numel() and not torch.isfinite(torch.stack(scores.aminmax())).all():
            raise InputError("some scores are not finite: the model has diverged; train again at a lower training.lr")
        answers = known.lookup(subject, relation)
        greater[mine], equal[mine] = _count(owned, scores, owner[mine] - first, target[mine], *answers)
        if notify is not None:
            notify(ends[first + len(chunk)] // 2, len(triples))  # of two ranks each
    n = len(triples)
    ranks = Ranks.from_counts(greater, equal)
    return SideRanks(tail=Ranks(*(x[:n] for x in ranks)), head=Ranks(*(x[n:] for x in ranks)))


def _count(owned: Candidates, scores: Tensor, row: Tensor, target: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """Count the rivals that score more than, and the same as, targets at rows, without known (rows, cols): [2, m]."""
    # The value before the known answers, the target among them, become -inf.
    value = owned.added(owned.chosen(scores, row, target))
    scores = scores.index_put((rows, cols - owned.start), scores.new_tensor(-torch.inf))
    # A target that was not known still stands there.
    itself = owned.hold(target) & (owned.chosen(scores, row, target) == value)
    greater, equal = kernels(scores.device.type).count_rivals(scores, row, value)
    return owned.added(torch.stack((greater, equal - itself.long())))


def best(scores: Tensor, top: int) -> Tensor:
    """Return the places of the `top` largest scores of each row, ties in the order of the row, [B, k] of [B, C]."""
    k = min(top, scores.shape[1])
    if 2 * k >= scores.shape[1]:
        return scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    values, places = scores.topk(k, 1)
    # topk picks any of several that equal the last: sort those rows whole.
    last = values[:, -1:]
    cut = ((scores == last).sum(1) > (values == last).sum(1)) & (last[:, 0] > -torch.inf)
    if cut.any():
        places[cut] = scores[cut].sort(dim=1, descending=True, stable=True).indices[:, :k]
    places = places.sort(1).values
    order = scores.gather(1, places).sort(dim=1, descending=True, stable=True).indices
    return places.gather(1, order)


def metrics(ranks: Tensor) -> Metrics:
    """Return `METRICS` of ranks [n]; {} for no ranks."""
    return {name: metric(ranks.double()).item() for name, metric in METRICS.items()} if ranks.numel() else {}


def summary(sides: SideRanks) -> Report:
    """Return the metrics of both sides together on realistic ranks, then the other readings of ties and each side.

    `{"mrr", "mr", "hits@k", "optimistic": {..}, "pessimistic": {..}, "head": {..}, "tail": {..}}`; {} for no triples.
    """
    if not sides.tail.realistic.numel():
        return {}
    both = Ranks(*(torch.cat(pair) for pair in zip(sides.tail, sides.head, strict=True)))
    return {
        **metrics(both.realistic),
        "optimistic": metrics(both.optimistic),
        "pessimistic": metrics(both.pessimistic),
        "head": metrics(sides.head.realistic),
        "tail": metrics(sides.tail.realistic),
    }


def by_relation(sides: SideRanks, relation: Tensor) -> dict[int, Report]:
    """Return realistic metrics of each relation [n] that occurs: `{"triples", "mrr", .., "head": {..}, "tail": ..}`."""
    relations, counts = torch.unique(relation.cpu(), return_counts=True)
    order = relation.cpu().argsort(stable=True)
    head, tail = sides.head.realistic.cpu()[order], sides.tail.realistic.cpu()[order]
    parts = zip(relations.tolist(), torch.split(head, counts.tolist()), torch.split(tail, counts.tolist()), strict=True)
    return {
        name: {
            "triples": len(head),
            **metrics(torch.cat((head, tail))),
            "head": metrics(head),
            "tail": metrics(tail),
        }
        for name, head, tail in parts
    }


def by_category(sides: SideRanks, relation: Tensor, train: Tensor, num_relations: int) -> dict[str, Report]:
    """Return realistic metrics of each category of relation that occurs, as `by_relation` does.

    The training triples [m, 3] decide the category, see `relation_categories`; relations without one are "unseen".
    """
    category = relation_categories(train, num_relations).to(relation.device)[relation]
    reports = by_relation(sides, category)
    names = dict(enumerate(CATEGORIES)) | {-1: UNSEEN}
    return {names[index]: reports[index] for index in names if index in reports}


def relation_categories(train: Tensor, num_relations: int, threshold: float = 1.5) -> Tensor:
    """Return for each relation its position in `CATEGORIES`, or -1 where no training triple has it [R].

    A side is N where the mean number of its entities per entity of the other side reaches the threshold, else 1;
    Bordes et al. (2013) take 1.5. In a 1-N relation the tail query has many answers and the head query one.
    """
    answers = Answers.from_triples(train, num_relations)
    relation = answers.queries[:, 1]
    queries = torch.bincount(relation, minlength=2 * num_relations)  # [2R], with the inverses asking for heads
    found = torch.bincount(relation, weights=answers.offsets.diff().double(), minlength=2 * num_relations)
    many = found >= threshold * queries
    category = 2 * many[num_relations:].long() + many[:num_relations].long()  # [R], heads then tails
    return torch.where(queries[:num_relations] > 0, category, -1)


class Popularity:
    """A baseline: score(s, r, o) = the distinct training triples with relation r and object o, whatever s is.

    Args:
        answers: of training, to the queries about the candidates: (o, r inverse) has one for each such triple.
        num_entities: the number of candidates.
        start: the first of them.
    """

    def __init__(self, answers: Answers, num_entities: int, start: int = 0) -> None:
        self.num_entities, R = num_entities, answers.num_relations
        relation, order = ((answers.queries[:, 1] + R) % (2 * R)).sort(stable=True)
        self.objects, self.counts = answers.queries[order, 0] - start, answers.offsets.diff()[order].float()
        steps = torch.arange(2 * R + 1, device=order.device)
        self.offsets = torch.searchsorted(relation, steps)  # of each relation in objects and counts

    def score(self, s: Tensor, r: Tensor) -> Tensor:
        """Return the scores of all entities for queries (s, r), [B, N] of [B]."""
        relations, row = torch.unique(r, return_inverse=True)
        table = torch.zeros(len(relations), self.num_entities, device=r.device)
        ends = zip(self.offsets[relations].tolist(), self.offsets[relations + 1].tolist(), strict=True)
        for i, (start, end) in enumerate(ends):
            table[i, self.objects[start:end]] = self.counts[start:end]
        return table[row]
