"""What a link predictor answers: missing facts with their names, ranks of known ones, vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from compgcn.answers.calibration import Bin, Scaling, Weighing
from compgcn.answers.explanations import Explanation, Method, explain
from compgcn.answers.known import Known, known_entities, known_relations
from compgcn.answers.reliability import of_entities
from compgcn.answers.retrieval import best, blocks, log_odds_among, must_be_finite, scores_of_relations, unbeaten
from compgcn.config import Config
from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.data.arrays import Numbers
from compgcn.errors import InputError, unknown
from compgcn.ranking import by_category, by_relation, summary
from compgcn.storage import Table
from compgcn.tasks.link_prediction import Encoded, LinkPrediction

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

    def __init__(self, config: Config, data: KnowledgeGraph, task: LinkPrediction, metrics: Mapping[str, Any]) -> None:
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
        """The facts that carried a prediction, see `compgcn.answers.explanations.explain`."""
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
