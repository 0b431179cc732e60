"""What a classifier answers: the classes of nodes or graphs, how often it is right, vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compgcn.answers.calibrate import Bin, Scaling, bins
from compgcn.answers.peers import distinct_pairs
from compgcn.config import Config
from compgcn.data import GraphCollection, KnowledgeGraph, Vocabulary
from compgcn.errors import InputError, unknown
from compgcn.tasks.classification import Graphs, Items, LogProbabilities, log_probabilities, pieces, report, tally
from compgcn.tasks.inputs import INPUTS
from compgcn.train.storage import Table


class Classified(NamedTuple):
    """The most probable class of a node or a graph."""

    item: str  # its id
    name: str
    label: str
    probability: float
    known: str | None  # the class it has in the data


class Classes:
    """A trained classifier.

    Args:
        config: of the run.
        data: its graph with labels, or its graphs.
        items: all of them, with the weights of the run.
        metrics: what the run reached.
    """

    def __init__(
        self, config: Config, data: KnowledgeGraph | GraphCollection, items: Items, metrics: Mapping[str, Any]
    ) -> None:
        self.config, self.data, self.items, self.metrics = config, data, items, metrics
        self._batch_size = config.training.batch_size
        self.scalings: Mapping[str, Scaling | None] = {}  # of "classes", where they are calibrated
        if isinstance(data, GraphCollection):
            self.vocabulary, self.classes = Vocabulary("graph", data.graph_ids), data.classes
            self.splits = {"train": np.arange(len(data))}
        else:
            assert data.labels is not None
            self.vocabulary, self.classes = data.entities, data.labels.classes
            self.splits = {split: rows[:, 0] for split, rows in data.labels.splits.items()}

    @cached_property
    def _log_probabilities(self) -> Tensor:
        """Of the classes of all items, [n, C], made once."""
        everything = torch.arange(len(self.vocabulary), device=self.items.targets.device)
        return log_probabilities(self.items, everything, self._batch_size)

    def classify(self, names: Sequence[str] | GraphCollection | None = None) -> list[Classified]:
        """The class of each of these nodes or graphs, by id or name; of those without a label, if none are given.

        A collection of other graphs can be given too; they must have the relations and the node labels of the run's.
        """
        if isinstance(names, GraphCollection):
            return self._classify_others(names)
        targets = self.items.targets.tolist()
        if names is None:
            if isinstance(self.data, GraphCollection):
                raise InputError("every graph of this run has a class; name those to classify, or give other graphs")
            rows = [row for row, target in enumerate(targets) if target < 0]
        else:
            rows = [self.vocabulary.index(name) for name in ([names] if isinstance(names, str) else names)]
        known = [self.classes[targets[row]] if targets[row] >= 0 else None for row in rows]
        ids, shown = ([texts[row] for row in rows] for texts in (self.vocabulary.ids, self.vocabulary.names))
        return self._answers(ids, shown, self._log_probabilities[rows], known)

    def alike(self) -> set[str]:
        """The ids of nodes without a label that are like those with one: of what a class may be the class of.

        Such a node stands in at least half of the places, subject or object of a relation, in which at least half of
        the labelled nodes stand.
        """
        assert isinstance(self.data, KnowledgeGraph)
        labelled = self.items.targets.cpu().numpy() >= 0
        (s, r, o), places = self.data.train.T, 2 * self.data.num_relations
        node, place = distinct_pairs(np.concatenate((s, o)), np.concatenate((r, r + self.data.num_relations)), places)
        usual = np.bincount(place[labelled[node]], minlength=places) * 2 >= max(1, labelled.sum())
        share = np.bincount(node[usual[place]], minlength=len(labelled)) * 2 >= usual.sum()
        return {self.vocabulary.ids[row] for row in np.flatnonzero(share & ~labelled)}

    def _answers(
        self, ids: Sequence[str], names: Sequence[str], found: Tensor, known: Sequence[str | None]
    ) -> list[Classified]:
        if not torch.isfinite(found).all():
            raise InputError("the model's scores are not finite; train again with a lower training.lr")
        best = self._chances(found).max(1) if len(found) else None
        values, places = ([], []) if best is None else (best.values.tolist(), best.indices.tolist())
        rows = zip(ids, names, places, values, known, strict=True)
        return [Classified(item, name, self.classes[place], value, true) for item, name, place, value, true in rows]

    def _chances(self, found: Tensor) -> Tensor:
        """The probabilities of classes from their logarithms [n, C], calibrated where the run has what it takes."""
        scaling = self.scalings.get("classes")
        return found.exp() if scaling is None else (scaling.slope * found).softmax(1)

    def _classify_others(self, graphs: GraphCollection) -> list[Classified]:
        if not isinstance(self.items, Graphs) or not isinstance(self.data, GraphCollection):
            raise InputError("this run classifies the nodes of its own graph; give their names, not other graphs")
        start = self.config.encoder.input
        if start not in ("labels", "shared"):
            raise InputError("this run learned from features of its own nodes; it cannot tell those of other graphs")
        others = _translated(graphs, self.data, start)
        rows = INPUTS[start].start(others).rows
        assert rows is not None
        items = self.items.of(others, rows)
        found = log_probabilities(
            items, torch.arange(len(graphs), device=items.device), self.config.training.batch_size
        )
        known = [graphs.classes[target] for target in graphs.targets]
        return self._answers(graphs.graph_ids, graphs.graph_ids, found, known)

    def calibration(self, split: str = "test", *, calibrated: bool = False) -> list[Bin]:
        """The most probable class of every item of a split, and how often it is right.

        The probabilities are those of the model itself unless they are asked for as the run's calibration has them.
        """
        rows = torch.from_numpy(self.splits[split]).to(self.items.targets.device)
        if not len(rows):
            return []
        found = self._log_probabilities[rows]
        best = (self._chances(found) if calibrated else found.exp()).max(1)
        return bins(best.values, best.indices == self.items.targets[rows])

    @property
    def reported(self) -> str:
        """The split that the protocol reports on: test, unless only validation has figures."""
        return "valid" if self.metrics.get("valid") and not self.metrics.get("test") else "test"

    def evaluate(self, split: str | None = None, by: str | None = None) -> dict[str, Any]:
        """The report on a split, the one the protocol reports on if none is named, or its part by class.

        What chose the number of epochs, and a k-fold protocol, are not done again: their report is that of the run.
        """
        if by in ("relation", "category", "side"):
            raise InputError(f"by {by} is a way to split links, and this run classifies; split its metrics by class")
        if by not in (None, "class"):
            raise unknown("way to split metrics", str(by), ("class",))
        split = split or self.reported
        if split not in ("train", "valid", "test"):
            raise unknown("split", split, ("train", "valid", "test"))
        if split == "train" or (split == "test" and "test" in self.splits):
            rows = torch.from_numpy(self.splits[split]).to(self.items.targets.device)
            found = report(tally(self.items, rows, self._batch_size), self.classes) if len(rows) else {}
        else:
            found = dict(self.metrics.get(split, {}))
        return found if by is None else dict(found.get("by_class", {}))

    @torch.inference_mode()
    def vectors(self) -> Tensor:
        """What the classes are read off, for every node or graph, [n, d]."""
        self.items.model.eval()
        everything = torch.arange(len(self.vocabulary), device=self.items.targets.device)
        return torch.cat([self.items.vectors(part) for part in pieces(self.items, everything, self._batch_size)])

    def tables(self) -> list[Table]:
        """The vectors of all nodes, or of all graphs."""
        if isinstance(self.items.model, LogProbabilities):
            raise InputError(
                f"the baseline '{self.config.classifier.baseline}' keeps no vectors, only the classes it predicts"
            )
        vectors = self.vectors().float().cpu().numpy()
        return [Table(self.vocabulary.kind, list(self.vocabulary.ids), list(self.vocabulary.names), vectors)]


def _translated(graphs: GraphCollection, known: GraphCollection, start: str) -> GraphCollection:
    """Other graphs in terms of the relations and node labels of known ones."""
    relations = _places("relation", graphs.relations.ids, known.relations.ids)
    triples = graphs.triples.copy()
    triples[:, 1] = relations[triples[:, 1]]
    labels = graphs.node_labels
    if start == "labels":
        if labels is None:
            raise InputError(f"the graphs of '{graphs.name}' have no node labels, and the model was trained with them")
        labels = _places("node label", graphs.node_classes, known.node_classes)[labels]
    return replace(
        graphs, relations=known.relations, triples=triples, node_labels=labels, node_classes=known.node_classes
    )


def _places(kind: str, given: Sequence[str], known: Sequence[str]) -> Any:
    for text in given:
        if text not in known:
            raise unknown(f"{kind} in the graphs", text, known)
    return np.array([known.index(text) for text in given], dtype=np.int64)
