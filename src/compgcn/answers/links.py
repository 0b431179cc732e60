"""What a link predictor answers: missing facts with their names, ranks of known ones, vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from compgcn.answers.calibrate import Bin, Reliability, Scaling, Weighing, fit_scaling
from compgcn.answers.explain import Explanation, Method, explain
from compgcn.config import Config
from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.data.columns import Numbers
from compgcn.errors import InputError, unknown
from compgcn.nn.compose import Composition
from compgcn.tasks.facts import Known, known_entities, known_relations
from compgcn.tasks.link_prediction import Encoded, LinkPredictor, Ranker
from compgcn.tasks.objectives import dual, relation_scores
from compgcn.tasks.ranking import by_category, by_relation, summary
from compgcn.train.storage import Table

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


Query = tuple[int | None, int | None, int | None]  # head, relation, tail: rows of the vocabularies, one None


class Prediction(NamedTuple):
    """One answer to a query, best first in a list of them."""

    entity: str  # its id; a relation's where a relation was asked for
    name: str
    score: float  # a logit
    probability: float  # to be right: calibrated, or else of the score alone, see `Links.log_odds`
    known: str | None  # the split the fact already stands in


class Links:
    """A trained link predictor.

    Args:
        config: of the run.
        data: its graph.
        task: with the weights of the run.
        metrics: what the run reached.
    """

    def __init__(self, config: Config, data: KnowledgeGraph, task: Ranker, metrics: Mapping[str, Any]) -> None:
        self.config, self.data, self.task = config, data, task
        self.device = task.graph.src.device
        self.scalings: Mapping[str, Scaling | None] = {}  # of "entities" and "relations", where they are calibrated
        self.weighing: Weighing | None = None  # of discoveries, likewise

    @cached_property
    def encoded(self) -> Encoded:
        """Vectors of the whole graph, made once."""
        with torch.inference_mode():
            return self.task.model.encode(self.task.graph)

    def query(self, head: str | None, relation: str | None, tail: str | None) -> Query:
        """Ids or names as rows, the one that is asked for as None."""
        if [head, relation, tail].count(None) != 1:
            raise InputError("a prediction needs two of head, relation and tail; the third is what it finds")
        entities, relations = self.data.entities, self.data.relations
        return (
            None if head is None else entities.index(head),
            None if relation is None else relations.index(relation),
            None if tail is None else entities.index(tail),
        )

    def answer(
        self, queries: Sequence[Query], top: int = 10, new: bool = False, plausible: bool = False
    ) -> list[list[Prediction]]:
        """The best answers to many queries, each with one of its three rows None; scored together, block by block.

        With `new`, facts that stand in the data already are left out. With `plausible`, so are entities that train has
        in no fact of the relation at the end that is asked for; scores and probabilities stay as they are.
        """
        sizes = self.data.num_entities, self.data.num_relations, self.data.num_entities
        for query in queries:
            rows = [(row, size) for row, size in zip(query, sizes, strict=True) if row is not None]
            if len(rows) != 2 or not all(0 <= row < size for row, size in rows):
                raise InputError(f"a query is two rows of the vocabularies and None for the third, not {query}")
        entities = [i for i, query in enumerate(queries) if query[1] is not None]
        relations = [i for i, query in enumerate(queries) if query[1] is None]
        if plausible and relations:
            raise InputError("plausible chooses entities by their relation, and here a relation is asked for")
        found: list[list[Prediction]] = [[] for _ in queries]
        for places, width, rank in (
            (entities, self.data.num_entities, self._best_entities),
            (relations, self.data.num_relations, self._best_relations),
        ):
            for block in blocks(len(places), width):
                answers = rank([queries[i] for i in places[block]], top, new, plausible)
                for i, some in zip(places[block], answers, strict=True):
                    found[i] = some
        return found

    def explain(self, head: str, relation: str, tail: str, top: int = 5, method: Method = "auto") -> Explanation:
        """The facts that carried a prediction, see `compgcn.answers.explain.explain`."""
        return explain(self, head, relation, tail, top, method)

    @torch.inference_mode()
    def _best_entities(self, queries: Sequence[Query], top: int, new: bool, plausible: bool) -> list[list[Prediction]]:
        """Of (s, r, None) or (None, r, o), the latter asked as (o, r + R, ?)."""
        R = self.data.num_relations
        asked = [(s, r) if o is None else (o, cast(int, r) + R) for s, r, o in queries]
        s, r = torch.tensor(asked, device=self.device).view(-1, 2).unbind(1)
        scores = must_be_finite(self.task.model.score(self.encoded, s, r))  # [B, N]
        keys = (s * (2 * R) + r).cpu().numpy()
        among = self._plausible(r) if plausible else None
        return self._predictions(scores, keys, self.known_entities, self.data.entities, top, new, among)

    @torch.inference_mode()
    def _best_relations(self, queries: Sequence[Query], top: int, new: bool, _: bool) -> list[list[Prediction]]:
        """Of (s, None, o)."""
        s, o = torch.tensor([(s, o) for s, _, o in queries], device=self.device).view(-1, 2).unbind(1)
        R = self.data.num_relations
        scores = must_be_finite(scores_of_relations(self.task.model, self.encoded, s, o, R))  # [B, R]
        keys = (s * self.data.num_entities + o).cpu().numpy()
        return self._predictions(scores, keys, self.known_relations, self.data.relations, top, new)

    @torch.inference_mode()
    def fact(self, s: int, r: int, o: int) -> Prediction:
        """The tail of one fact as an answer to (s, r, ?): its score, its probability, and the split it stands in."""
        query, place = torch.tensor([[s, r]], device=self.device).unbind(1), torch.tensor([[o]], device=self.device)
        scores = must_be_finite(self.task.model.score(self.encoded, *query))  # [1, N]
        keys = np.array([s * (2 * self.data.num_relations) + r])
        ranked = self.without_known(scores, keys, self.known_entities)
        chance = self.probabilities(scores, place, ranked).item()
        ((split,),) = self.known_entities.of(keys, np.array([[o]]))
        return Prediction(self.data.entities.ids[o], self.data.entities.names[o], scores[0, o].item(), chance, split)

    def without_known(self, scores: Tensor, keys: Numbers, known: Known) -> Tensor:
        """The scores [B, C], -inf where an answer stands in the data."""
        cells = tuple(torch.from_numpy(part).to(self.device) for part in known.pairs(keys))
        return scores.index_put(cells, scores.new_tensor(-torch.inf))

    def _plausible(self, r: Tensor) -> Tensor:
        """Which entities stand, in train, where an answer to (?, r, ?) does, r running to 2R: bool [B, N] of [B]."""
        cells = tuple(torch.from_numpy(part).to(self.device) for part in self.places.pairs(r.cpu().numpy()))
        none = torch.zeros(len(r), self.data.num_entities, dtype=torch.bool, device=self.device)
        return none.index_put(cells, torch.tensor(True, device=self.device))

    def _predictions(
        self,
        scores: Tensor,
        keys: Numbers,
        known: Known,
        vocabulary: Vocabulary,
        top: int,
        new: bool,
        among: Tensor | None = None,
    ) -> list[list[Prediction]]:
        """The best of each row of scores [B, C], by the keys [B] under which `known` has what stands in the data.

        Where it is said which are to be chosen from [B, C], no others are.
        """
        ranked = self.without_known(scores, keys, known)
        shown = ranked if new else scores
        shown = shown if among is None else shown.masked_fill(~among, -torch.inf)
        places = best(shown, top)
        kind = "entities" if vocabulary is self.data.entities else "relations"
        kept = shown.gather(1, places)
        chances = self.probabilities(scores, places, ranked, kind)
        splits = known.of(keys, places.cpu().numpy())
        ids, names = vocabulary.ids, vocabulary.names
        rows = zip(places.tolist(), kept.tolist(), chances.tolist(), splits, strict=True)
        return [
            [
                Prediction(ids[o], names[o], score, chance, split)
                for o, score, chance, split in zip(*row, strict=True)
                if score > -math.inf  # else it is left out: known, or not plausible
            ]
            for row in rows
        ]

    def log_odds(self, scores: Tensor, places: Tensor) -> Tensor:
        """Of the answers at these places [B, k]: among all [B, C] where training weighed them so, else each alone."""
        if self.config.training.loss in ("cross-entropy", "sampled-cross-entropy"):
            return log_odds_among(scores, scores, places)
        return scores.gather(1, places).double()

    def probabilities(self, scores: Tensor, places: Tensor, ranked: Tensor, kind: str = "entities") -> Tensor:
        """Of the answers at these places [B, k] to be right, calibrated where the run has a calibration of the kind.

        Args:
            scores: of all answers [B, C].
            places: which of them [B, k].
            ranked: the scores, those of known answers -inf [B, C].
            kind: of the answers, "entities" or "relations".
        """
        scaling = self.scalings.get(kind)
        if scaling is None:
            return self.log_odds(scores, places).sigmoid()
        odds = log_odds_among(scores, ranked, places) if scaling.among else self.log_odds(scores, places)
        return scaling(odds, unbeaten(scores, ranked, places))

    @cached_property
    def known_entities(self) -> Known:
        """Which entities answer which queries in the data."""
        return known_entities(self.data.splits, self.data.num_entities, self.data.num_relations)

    @cached_property
    def known_relations(self) -> Known:
        """Which relations hold between which entities in the data."""
        return known_relations(self.data.splits, self.data.num_entities, self.data.num_relations)

    @cached_property
    def places(self) -> Known:
        """Which entities are tails of which relations r in train, and under r + R their heads."""
        s, r, o = self.data.train.T
        keys, values = np.concatenate((r, r + self.data.num_relations)), np.concatenate((o, s))
        return Known(keys, values, np.zeros_like(keys), ["train"], self.data.num_entities)

    @property
    def reported(self) -> str:
        """The split that a run reports on."""
        return "test"

    def evaluate(self, split: str | None = None, by: str | None = None) -> dict[str, Any]:
        """Filtered metrics of a split, test if none is named: of all of it, or by relation, category or side."""
        split = split or self.reported
        if by == "class":
            raise InputError("by class is a way to split classes, and this run predicts links; try by relation")
        if split not in self.data.splits:
            raise unknown("split", split, self.data.splits)
        triples = torch.from_numpy(self.data.splits[split])
        sides = self.task.ranks(split)
        if by is None or by == "side":
            report = summary(sides)
            return report if by is None else {side: report[side] for side in ("head", "tail") if report}
        if by == "relation":
            reports = by_relation(sides, triples[:, 1])
            return {self.data.relations.ids[index]: report for index, report in reports.items()}
        if by == "category":
            train = torch.from_numpy(self.data.train)
            return dict(by_category(sides, triples[:, 1].to(self.device), train, self.data.num_relations))
        raise unknown("way to split metrics", by, ("relation", "category", "side"))

    def calibration(self, split: str = "test", *, calibrated: bool = False) -> list[Bin]:
        """The best answer to every query of a split that is no fact of the other splits, and how often it is right.

        The probabilities are those of the model itself unless they are asked for as the run's calibration has them.
        """
        return of_entities(self, split, top=1, most=None).bins(self.scalings.get("entities") if calibrated else None)

    def tables(self) -> list[Table]:
        """The vectors of all entities and of all relations, originals, then inverses."""
        entities, relations = (vectors.detach().float().cpu().numpy() for vectors in self.encoded)
        relation = self.data.relations
        ids, names = ([*texts, *(f"{text} (inverse)" for text in texts)] for texts in (relation.ids, relation.names))
        return [
            Table("entity", list(self.data.entities.ids), list(self.data.entities.names), entities),
            Table("relation", ids, names, relations),
        ]
