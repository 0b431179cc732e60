"""Ask a trained link predictor: rank answers to queries, judge facts, and give each answer a probability."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from compgcn.answers.calibrate import Bin, Reliability, Scaling, Weighing, fit_scaling
from compgcn.config import Config
from compgcn.data import KnowledgeGraph
from compgcn.data.columns import Numbers
from compgcn.data.graph import TYPE_RELATIONS
from compgcn.errors import InputError, must_be_known, unknown
from compgcn.nn.compose import Composition
from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.nn.decoders import Decoder
from compgcn.tasks.edge_masking import HiddenEdges
from compgcn.tasks.facts import Answers, Known, known_entities, known_relations
from compgcn.tasks.link_prediction import Encoded, Ranker
from compgcn.tasks.objectives import dual, relation_scores
from compgcn.tasks.ranking import ALL, Candidates, Ranks, Scorer, by_category, by_relation, summary
from compgcn.train.storage import Table

Kind = Literal["entities", "relations"]  # what a query asks for
Progress = Callable[[int, int], None]  # called with the queries answered so far and with their number
Query = tuple[int | None, int | None, int | None]  # rows of head, relation and tail in the vocabularies, one None

_SCORES = {"cuda": 2**26, "cpu": 2**22}  # computed at a time
_QUERIES = 512  # scored at a time: a convolution needs far more memory for a query than its vectors
_CERTAIN = 300.0  # log-odds are cut off here
_SHOWN = 10  # answers to a query that a calibration looks at
_CALIBRATING = 2**28  # scores that a calibration computes, seconds on a CPU
_AT_A_TIME = 64  # propagations through the graph between two reports of progress
PROPAGATED = 1000  # queries that a calibration asks a model conditioned on the query
_FACTS = 20_000  # as many as the sample scores one by one, if the decoder cannot rank relations quickly


class Prediction(NamedTuple):
    """One answer to a query."""

    id: str  # of an entity, or of a relation if the query asks for one
    name: str
    score: float  # a logit
    probability: float  # calibrated if the run is, see `Links.probabilities`
    known: str | None  # the split that holds the fact


class Links:
    """A trained link predictor with its graph."""

    def __init__(self, config: Config, data: KnowledgeGraph, task: Ranker) -> None:
        self.config, self.data, self.task = config, data, task
        self.device = task.graph.src.device
        self.scalings: Mapping[str, Scaling | None] = {}  # the calibration of "entities" and "relations"
        self.weighing: Weighing | None = None  # the calibration of discoveries
        self._firsts: dict[str, Reliability] = {}  # the first answers to the queries of a split

    @cached_property
    def encoded(self) -> Encoded:
        """Vectors of the whole graph, computed once; refused where entities have none."""
        with torch.inference_mode():
            return self.task.encode()

    @cached_property
    def scorer(self) -> Scorer:
        """The function from queries (s, r) to the logits of the candidates."""
        model = self.task.model
        if isinstance(model, ConditionalCompGCN):
            with torch.inference_mode():
                return model.scorer(self.task.graph)
        return partial(self.task.score, self.encoded)

    @cached_property
    def known_entities(self) -> Known:
        """Index of the entities that answer queries (s, r, ?) in any split, by the key s · 2R + r."""
        return known_entities(self.data.splits, self.data.num_entities, self.data.num_relations)

    @cached_property
    def known_relations(self) -> Known:
        """Index of the relations that answer queries (s, ?, o) in any split, by the key s · N + o."""
        return known_relations(self.data.splits, self.data.num_entities, self.data.num_relations)

    @cached_property
    def _ends(self) -> Known:
        """Index of the entities that train has as tails of relations r, and under r + R as their heads."""
        s, r, o = self.data.train.T
        return index(np.concatenate((r, r + self.data.num_relations)), np.concatenate((o, s)), self.data.num_entities)

    def query(self, head: str | None, relation: str | None, tail: str | None) -> Query:
        """Return ids or names as rows of the vocabularies; the part to be found is None."""
        if (missing := [head, relation, tail].count(None)) != 1:
            way = "leave one out, or score the fact from a file with --queries (Python: run.score)"
            given = "" if missing else f"; you gave all three: {way}"
            raise InputError(f"a prediction needs two of head, relation and tail{given}")
        s, o = (None if text is None else self.data.entities.index(text) for text in (head, tail))
        return s, None if relation is None else self.data.relations.index(relation), o

    def is_odd(self, query: Query) -> bool:
        """Tell whether the entity of a query is unlike all entities at its end of the relation.

        Two entities are alike if they share a side, see `sides`. A town is an odd head of `reports to` if all heads of
        that relation are people.
        """
        s, r, o = query
        if r is None:
            return False
        entity, end = (o, 2) if s is None else (s, 0)
        facts = np.concatenate(list(self.data.splits.values()))
        entities, side = sides(self.data, facts)
        alike = entities[np.isin(side, side[entities == entity])]
        return not np.isin(facts[facts[:, 1] == r, end], alike).any()

    def named(self, s: int, r: int, o: int) -> tuple[str, str, str, str, str, str]:
        """Return the three ids of a fact, then its three names."""
        entities, relations = self.data.entities, self.data.relations
        ids = entities.ids[s], relations.ids[r], entities.ids[o]
        return *ids, entities.names[s], relations.names[r], entities.names[o]

    @torch.inference_mode()
    def answer(
        self, queries: Sequence[Query], top: int = 10, new: bool = False, plausible: bool = False
    ) -> list[list[Prediction]]:
        """Return the best answers to many queries, scored in blocks.

        `new` leaves out facts that the data hold already, `plausible` entities that train never has at that end of the
        relation.
        """
        found: list[list[Prediction]] = [[] for _ in queries]
        N, R = self.data.num_entities, self.data.num_relations
        asked: dict[Kind, dict[int, int]] = {"entities": {}, "relations": {}}  # the key of each query
        for i, (s, r, o) in enumerate(queries):
            if r is None:
                asked["relations"][i] = cast(int, s) * N + cast(int, o)
            else:  # (?, r, o) is asked as (o, r + R, ?)
                asked["entities"][i] = cast(int, o) * (2 * R) + r + R if s is None else s * (2 * R) + r
        if plausible and asked["relations"]:
            raise InputError("plausible selects entities, and here a relation is asked for; leave it out")
        for kind, keys in asked.items():
            places = list(keys)
            for block in self.blocks(len(places), kind):
                some = np.array([keys[i] for i in places[block]])
                for i, answers in zip(places[block], self._best(kind, some, top, new, plausible), strict=True):
                    found[i] = answers
        return found

    def _best(self, kind: Kind, keys: Numbers, top: int, new: bool, plausible: bool) -> list[list[Prediction]]:
        """Return the best answers to queries of one kind by their keys [B]."""
        known = self.known_entities if kind == "entities" else self.known_relations
        vocabulary = self.data.entities if kind == "entities" else self.data.relations
        candidates = self.candidates(kind)
        scores = must_be_finite(self.scores(kind, keys))  # [B, C]
        shown = self.without_itself(scores, keys) if kind == "entities" else scores
        ranked = without(shown, known, keys, candidates)
        shown = ranked if new else shown
        if plausible:
            plain = stands(self._ends, keys % (2 * self.data.num_relations), scores, candidates)
            shown = shown.masked_fill(~plain, -torch.inf)
        values, places = candidates.best(shown, top)
        chances = self.probabilities(scores, places, ranked, kind)
        splits = known.of(keys, places.cpu().numpy())
        rows = zip(places.tolist(), values.tolist(), chances.tolist(), splits, strict=True)
        return [
            [
                Prediction(vocabulary.ids[place], vocabulary.names[place], score, chance, split)
                for place, score, chance, split in zip(*row, strict=True)
                if score > -math.inf
            ]
            for row in rows
        ]

    @cached_property
    def _loops(self) -> Tensor:
        """Whether a fact of train with each relation, or its inverse, has one entity at both ends, bool [2R]."""
        s, r, o = self.data.train.T
        found = np.isin(np.arange(self.data.num_relations), r[s == o])
        return torch.from_numpy(np.tile(found, 2)).to(self.device)

    def without_itself(self, scores: Tensor, keys: Numbers) -> Tensor:
        """Return scores [B, C], -inf for the entity that each query is about, unless its relation has such facts."""
        candidates, width = self.task.candidates, 2 * self.data.num_relations
        key = torch.from_numpy(keys).to(self.device).unsqueeze(1)
        itself, loop = key // width, self._loops[key % width]
        return candidates.put(scores, itself, torch.where(loop, candidates.at(scores, itself), -torch.inf))

    def blocks(self, length: int, kind: Kind = "entities") -> Iterator[slice]:
        """Cut so many queries into slices whose scores fit in memory and which take no long time."""
        width = self.data.num_entities if kind == "entities" else self.data.num_relations
        size = min(_QUERIES, _SCORES.get(self.device.type, _SCORES["cpu"]) // max(width, 1))
        if isinstance(self.task.model, ConditionalCompGCN):
            size = min(size, _AT_A_TIME if kind == "entities" else _AT_A_TIME // max(width, 1))
        size = max(1, size)
        return (slice(start, min(start + size, length)) for start in range(0, length, size))

    def candidates(self, kind: Kind) -> Candidates:
        """Return the answers that this process scores: all relations, and all entities or a slice of them."""
        return self.task.candidates if kind == "entities" else ALL

    def scores(self, kind: Kind, keys: Numbers) -> Tensor:
        """Return the logits of the candidates as answers to queries by their keys, [B, C] of [B]."""
        key = torch.from_numpy(keys).to(self.device)
        if kind == "entities":
            width = 2 * self.data.num_relations
            return self.scorer(key // width, key % width)
        N, R = self.data.num_entities, self.data.num_relations
        if isinstance(self.task.model, ConditionalCompGCN):
            return self._scores_by_query(key // N, key % N)
        (x, _), (e, bias) = (self.task.vectors(self.encoded, ids) for ids in (key // N, key % N))
        originals = self.encoded._replace(relations=self.encoded.relations[:R])
        scores = scores_of_relations(self.task.predictor.decoder, originals, x, e)
        return scores if bias is None else scores + bias.unsqueeze(1)

    def _scores_by_query(self, s: Tensor, o: Tensor) -> Tensor:
        """Return the logits of (s, r, o) for every original relation r, [B, R] of entities [B]: a query each."""
        parts = torch.split(torch.arange(self.data.num_relations, device=s.device), _AT_A_TIME)
        rows = ([self.scorer(x.expand_as(some), some)[:, y] for some in parts] for x, y in zip(s, o, strict=True))
        return torch.stack([torch.cat(row) for row in rows])

    def log_odds(self, scores: Tensor, places: Tensor, kind: Kind) -> Tensor:
        """Return the model's own log-odds of some answers [B, k]: by a softmax if it was trained with one."""
        if self.config.training.loss in ("cross-entropy", "sampled-cross-entropy"):
            return log_odds_among(scores, scores, places, self.candidates(kind))
        return self.candidates(kind).at(scores, places).double()

    def probabilities(self, scores: Tensor, places: Tensor, ranked: Tensor, kind: Kind = "entities") -> Tensor:
        """Return the probabilities of the answers at some places [B, k], calibrated if the run is.

        `scores` are the logits of the candidates [B, C], `ranked` the same with -inf at known answers.
        """
        scaling, given = self.scalings.get(kind), (scores, ranked, places, self.candidates(kind))
        if scaling is None:
            return self.log_odds(scores, places, kind).sigmoid()
        odds = log_odds_among(*given) if scaling.among else self.log_odds(scores, places, kind)
        return scaling(odds, unbeaten(*given))

    def judge(self, s: Tensor, r: Tensor, o: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return score, probability and filtered rank of o as the answer to (s, r, ?), all [B].

        A model conditioned on the query judges facts of train on the graph without them, as it was trained: it reads a
        fact that it sees off the graph.
        """
        keys = (s * (2 * self.data.num_relations) + r).cpu().numpy()
        hides = isinstance(self.task.model, ConditionalCompGCN)
        scores = must_be_finite(self._scores_without(s, r, o) if hides else self.scores("entities", keys))  # [B, N]
        candidates, place = self.task.candidates, o.unsqueeze(1)
        ranked, value = without(scores, self.known_entities, keys, candidates), candidates.at(scores, place)
        rivals = candidates.put(ranked, place, torch.full_like(value, -torch.inf))
        ranks = Ranks.from_counts(*(candidates.added(some.sum(1)) for some in (rivals > value, rivals == value)))
        chances = self.probabilities(scores, place, self.without_itself(ranked, keys))  # ranks count every entity
        return value[:, 0], chances[:, 0], ranks.realistic

    def _scores_without(self, s: Tensor, r: Tensor, o: Tensor) -> Tensor:
        """Return the logits of all entities for queries (s, r), each on the graph without its own fact, [B, N].

        Only facts of train are edges of the graph. A pass scores those that hide the same edges, or a score would
        depend on the facts that it is computed with.
        """
        (known, hidden), model = self._train, self.task.model
        assert isinstance(model, ConditionalCompGCN)
        scores = torch.empty(len(s), self.data.num_entities, device=self.device)
        groups = hidden.of_answer[known.positions(s, r, o)[1]]
        for group in torch.unique(groups):
            some, scorer = groups == group, self.scorer
            if group < hidden.groups:
                scorer = model.scorer(self.task.graph, self.keep_without(s[some], r[some], o[some]))
            scores[some] = scorer(s[some], r[some])
        return scores

    def keep_without(self, s: Tensor, r: Tensor, o: Tensor) -> Tensor:
        """Return 0 for the edges that training hides with a fact, 1 for the others, [E]; all 1 if train lacks it."""
        known, hidden = self._train
        return hidden.keep(known.positions(s, r, o)[1])

    @cached_property
    def _train(self) -> tuple[Answers, HiddenEdges]:
        """The training facts, and the edges that leave the graph with each."""
        known = Answers.from_triples(self.task.splits["train"], self.data.num_relations)
        return known, HiddenEdges(self.task.graph, known, self.config.training.hide or "facts")

    @torch.inference_mode()
    def fact(self, s: int, r: int, o: int) -> Prediction:
        """Return the tail of a fact as an answer to (s, r, ?)."""
        score, chance, _ = self.judge(*torch.tensor([[s], [r], [o]], device=self.device))
        ((split,),) = self.known_entities.of(np.array([s * (2 * self.data.num_relations) + r]), np.array([[o]]))
        return Prediction(self.data.entities.ids[o], self.data.entities.names[o], score.item(), chance.item(), split)

    @property
    def reported(self) -> str:
        """The split that a run reports on."""
        return "test"

    def evaluate(
        self, split: str | None = None, by: str | None = None, notify: Progress | None = None
    ) -> dict[str, Any]:
        """Return the filtered metrics of a split, by default test, whole or by relation, category or side."""
        split = split or self.reported
        must_be_known("split", split, self.data.splits)
        if by not in (None, "relation", "category", "side"):
            raise unknown("way to split metrics", by, ("relation", "category", "side"))
        if split == "train" and isinstance(self.task.model, ConditionalCompGCN):
            raise InputError(
                "a model conditioned on the query sees the facts of train, so their ranks say nothing; evaluate valid "
                "or test, or score them as facts"
            )
        sides, relations = self.task.ranks(split, notify=notify), torch.from_numpy(self.data.splits[split])[:, 1]
        if by == "relation":
            return {self.data.relations.ids[r]: report for r, report in by_relation(sides, relations).items()}
        if by == "category":
            train = torch.from_numpy(self.data.train)
            return dict(by_category(sides, relations.to(self.device), train, self.data.num_relations))
        report = summary(sides)
        return report if by is None else {side: report[side] for side in ("head", "tail") if report}

    def calibration(self, split: str = "test", *, calibrated: bool = False) -> list[Bin]:
        """Return how often the best answer to the queries of a split is right, by its probability."""
        scaling = self.scalings.get("entities") if calibrated else None
        if split not in self._firsts:
            self._firsts[split] = reliability(self, split, top=1, whole=True)
        return self._firsts[split].bins(scaling)

    def tables(self) -> list[Table]:
        """Return the vectors of all entities, where they have any, and of all relations, originals before inverses."""
        model, relation = self.task.model, self.data.relations
        ids, names = ([*texts, *(f"{text} (inverse)" for text in texts)] for texts in (relation.ids, relation.names))
        if isinstance(model, ConditionalCompGCN):
            return [Table("relation", ids, names, model.queries.weight.detach().float().cpu().numpy())]
        x, z = self.task.whole(self.encoded.entities), self.encoded.relations
        entities, relations = (vectors.detach().float().cpu().numpy() for vectors in (x, z))
        return [
            Table("entity", list(self.data.entities.ids), list(self.data.entities.names), entities),
            Table("relation", ids, names, relations),
        ]


@torch.inference_mode()
def reliability(
    links: Links,
    split: str,
    kind: Kind = "entities",
    top: int = _SHOWN,
    whole: bool = False,
    notify: Progress | None = None,
) -> Reliability:
    """Return the best answers to the queries of a split, as if its facts were yet to be found, and which are right.

    As many queries are asked as a calibration needs, drawn with a fixed seed; with `whole`, all that take no long time.
    """
    data, known_answers = links.data, known_entities if kind == "entities" else known_relations
    others = {name: triples for name, triples in data.splits.items() if name != split}
    known, true = (
        known_answers(splits, data.num_entities, data.num_relations) for splits in (others, {split: data.splits[split]})
    )
    keys, candidates, each = true.keys, links.candidates(kind), 1 if kind == "entities" else max(1, data.num_relations)
    most = len(keys) if whole else sample_size(data.num_entities if kind == "entities" else data.num_relations)
    if isinstance(links.task.model, ConditionalCompGCN):  # a pass through the graph for every query
        most = min(most, max(1, PROPAGATED // each))
    elif kind == "relations" and not isinstance(links.task.predictor.decoder.phi, Composition):
        most = min(most, max(1, _FACTS // each))
    if len(keys) > most:
        keys = keys[torch.randperm(len(keys), generator=torch.Generator().manual_seed(0))[:most].sort().values.numpy()]
    nothing = torch.zeros(0, dtype=torch.double)
    found = [Reliability(nothing, nothing, nothing.bool(), nothing.bool())]
    for block in links.blocks(len(keys), kind):
        scores = links.scores(kind, keys[block])  # [B, C]
        ranked = without(scores, known, keys[block], candidates)
        ranked = links.without_itself(ranked, keys[block]) if kind == "entities" else ranked
        values, places = candidates.best(ranked, top)
        parts = (
            links.log_odds(scores, places, kind),
            log_odds_among(scores, ranked, places, candidates),
            true.hold(keys[block], places),
            unbeaten(scores, ranked, places, candidates),
        )
        left = values > -torch.inf
        found.append(Reliability(*(part[left].cpu() for part in parts)))
        if notify is not None:
            notify(block.stop, len(keys))
    return Reliability(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def sample_size(answers: int) -> int:
    """Return the number of queries that calibrate, by the answers that each has: 5,000, or 1,000 at least."""
    return min(max(_CALIBRATING // max(answers, 1), 1000), 5000)


def fitted(links: Links, told: Callable[[str], Progress | None] = lambda kind: None) -> dict[str, Scaling | None]:
    """Calibrate a link predictor on validation; `told` gives the progress callback of each kind of answer."""
    kinds: tuple[Kind, ...] = ("entities", "relations")
    return {kind: fit_scaling(reliability(links, "valid", kind, notify=told(kind))) for kind in kinds}


def must_count(name: str, number: int) -> None:
    """Refuse a number of answers that is not 1 or more."""
    if not isinstance(number, int) or number < 1:
        raise InputError(f"{name} must be a whole number from 1 on, not {number!r}")


def must_be_finite(scores: Tensor) -> Tensor:
    """Return the scores, or refuse those that are not finite."""
    # If any score is NaN or infinite, an extreme is; this needs no second array.
    if scores.numel() and not torch.stack(scores.aminmax()).isfinite().all():
        raise InputError("the model's scores are not finite; train again with a lower training.lr")
    return scores


def index(keys: Numbers, values: Numbers, size: int) -> Known:
    """Return an index of pairs without splits; the values lie below `size`."""
    return Known(keys, values, np.zeros_like(keys), [""], size)


def sides(data: KnowledgeGraph, facts: Numbers) -> tuple[Numbers, Numbers]:
    """Return the entities at both ends of facts [n, 3], and the side of a relation that each is on, [2n] both.

    The heads of r are on side r, its tails on r + R. All kinds of entities have a type: those of class o are on 2R + o.
    """
    (s, r, o), R = facts.T, data.num_relations
    types = [row for row, text in enumerate(data.relations.ids) if text in TYPE_RELATIONS]
    return np.concatenate((s, o)), np.concatenate((np.where(np.isin(r, types), 2 * R + o, r), r + R))


def stands(known: Known, keys: Numbers, scores: Tensor, candidates: Candidates) -> Tensor:
    """Return which of the candidates an index holds under some keys [B], bool of the shape of their scores [B, C]."""
    found = torch.zeros_like(scores, dtype=torch.bool)
    rows, ids = (torch.from_numpy(part).to(scores.device) for part in known.pairs(keys))
    mine = candidates.hold(ids)
    found[rows[mine], ids[mine] - candidates.start] = True
    return found


def without(scores: Tensor, known: Known, keys: Numbers, candidates: Candidates) -> Tensor:
    """Return the scores [B, C], -inf at the answers that an index holds."""
    return scores.masked_fill(stands(known, keys, scores, candidates), -torch.inf)


def log_odds_among(scores: Tensor, ranked: Tensor, places: Tensor, candidates: Candidates = ALL) -> Tensor:
    """Return the log-odds of the answers at some places [B, k] by a softmax over each and the unknown answers.

    `scores` are logits [B, C], `ranked` the same with -inf at known answers. The result is in double precision: a float
    cannot tell apart answers that are nearly certain.
    """
    logs = candidates.at(scores, places).double() - candidates.log_sum_exp(ranked.double()).unsqueeze(1)
    new = candidates.at(ranked, places) > -torch.inf  # the sum contains a new answer, and no known one
    odds = torch.where(new, logs - torch.log1p(-logs.exp().clamp_max(1)), logs)
    return odds.clamp(-_CERTAIN, _CERTAIN)


def unbeaten(scores: Tensor, ranked: Tensor, places: Tensor, candidates: Candidates = ALL) -> Tensor:
    """Return whether no new answer scores higher than these, bool [B, k]."""
    return candidates.at(scores, places) >= candidates.highest(ranked).unsqueeze(1)


def scores_of_relations(decoder: Decoder, encoded: Encoded, x: Tensor, e: Tensor) -> Tensor:
    """Return the logits of (s, r, o) for all relations of `encoded`, without the bias of o: [B, R] of [B, d]."""
    if dual(decoder) is not None:
        return relation_scores(decoder, encoded, x, e)
    rows = _QUERIES * (16 if isinstance(decoder.phi, Composition) else 1)  # facts scored at a time
    parts = [encoded._replace(relations=some) for some in torch.split(encoded.relations, rows)]
    pairs = zip(*(torch.split(part, max(1, rows // len(encoded.relations))) for part in (x, e)), strict=True)
    return torch.cat([torch.cat([relation_scores(decoder, some, *pair) for some in parts], 1) for pair in pairs])
