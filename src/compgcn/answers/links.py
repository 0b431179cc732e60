"""What a link predictor answers: missing facts with their names, ranks of known ones, vectors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from compgcn.answers.calibration import Bin, bins
from compgcn.answers.explanations import Explanation, Method, explain
from compgcn.config import Config
from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError, unknown
from compgcn.queries import Answers
from compgcn.ranking import by_category, by_relation, summary
from compgcn.storage import Table
from compgcn.tasks.link_prediction import Encoded, LinkPrediction


class Prediction(NamedTuple):
    """One answer to a query, best first in a list of them."""

    entity: str  # its id
    name: str
    score: float  # a logit
    probability: float  # the sigmoid of the score, or its softmax after training with cross-entropy
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

    @cached_property
    def encoded(self) -> Encoded:
        """Vectors of the whole graph, made once."""
        with torch.inference_mode():
            return self.task.model.encode(self.task.graph)

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        *,
        new: bool = False,
    ) -> list[Prediction]:
        """The most probable tails of (head, relation, ?), or heads of (?, relation, tail); ids and names both work.

        With `new`, facts that stand in the data already are left out.
        """
        if relation is None or (head is None) == (tail is None):
            raise InputError("a prediction needs a relation and either a head or a tail")
        if not isinstance(top, int) or top < 1:
            raise InputError(f"top must be a whole number from 1 on, not {top!r}")
        r = self.data.relations.index(relation)
        if head is not None:
            s = self.data.entities.index(head)
        else:
            assert tail is not None
            s, r = self.data.entities.index(tail), r + self.data.num_relations
        with torch.inference_mode():
            query = (torch.tensor([i], device=self.device) for i in (s, r))
            scores = self.task.model.score(self.encoded, *query)[0]  # [N]
        if not torch.isfinite(scores).all():
            raise InputError("the model's scores are not finite; train again with a lower training.lr")
        known = self._known(s, r)
        best = scores.sort(descending=True, stable=True).indices.tolist()
        best = [o for o in best if o not in known][:top] if new else best[:top]
        probability = self._probabilities(scores)
        ids, names = self.data.entities.ids, self.data.entities.names
        values, chances = scores[best].tolist(), probability[best].tolist()
        rows = zip(best, values, chances, strict=True)
        return [Prediction(ids[o], names[o], score, chance, known.get(o)) for o, score, chance in rows]

    def explain(self, head: str, relation: str, tail: str, top: int = 5, method: Method = "auto") -> Explanation:
        """The facts that carried a prediction, see `compgcn.answers.explanations.explain`."""
        return explain(self, head, relation, tail, top, method)

    def _probabilities(self, scores: Tensor) -> Tensor:
        """Of entities [.., N]: among all where training weighed them against each other, else each for itself."""
        together = self.config.training.loss == "cross-entropy"
        return scores.double().softmax(-1) if together else scores.double().sigmoid()

    def _known(self, s: int, r: int) -> dict[int, str]:
        """Answers of a query that stand in the data -> their split."""
        inverse = r >= self.data.num_relations
        r, given, wanted = (r - self.data.num_relations, 2, 0) if inverse else (r, 0, 2)
        found: dict[int, str] = {}
        for split, triples in self.data.splits.items():
            rows = triples[(triples[:, 1] == r) & (triples[:, given] == s)]
            found = dict.fromkeys(rows[:, wanted].tolist(), split) | found
        return found

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

    @torch.inference_mode()
    def calibration(self, split: str = "test", batch: int = 512) -> list[Bin]:
        """The best answer to every query of a split that is no fact of the other splits, and how often it is right."""
        task = self.task
        others = [triples for part, triples in task.splits.items() if part != split]
        known, wanted = (
            Answers.from_triples(triples, self.data.num_relations)
            for triples in (torch.cat(others), task.splits[split])
        )
        chances, right = [], []
        for s, r in (queries.unbind(1) for queries in torch.split(wanted.queries, batch)):
            scores = task.model.score(self.encoded, s, r)  # [B, N]
            best = scores.index_put(known.lookup(s, r), scores.new_tensor(-torch.inf)).argmax(1)
            places = torch.arange(len(s), device=s.device)
            chances.append(self._probabilities(scores)[places, best])
            true = torch.zeros_like(scores, dtype=torch.bool)
            true[wanted.lookup(s, r)] = True
            right.append(true[places, best])
        return bins(torch.cat(chances), torch.cat(right)) if chances else []

    def tables(self) -> list[Table]:
        """The vectors of all entities and of all relations, originals, then inverses."""
        entities, relations = (vectors.detach().float().cpu().numpy() for vectors in self.encoded)
        relation = self.data.relations
        ids, names = ([*texts, *(f"{text} (inverse)" for text in texts)] for texts in (relation.ids, relation.names))
        return [
            Table("entity", list(self.data.entities.ids), list(self.data.entities.names), entities),
            Table("relation", ids, names, relations),
        ]
