"""Ask a trained classifier: the classes of nodes or graphs, how often they are right, and vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compgcn.answers.calibrate import Bin, Scaling, bins
from compgcn.answers.links import index, must_be_finite
from compgcn.config import Config
from compgcn.data import GraphCollection, KnowledgeGraph, Vocabulary
from compgcn.data.columns import SPLITS, Numbers
from compgcn.errors import InputError, must_be_known, unknown
from compgcn.tasks.classification import Graphs, Items, Nodes, log_probabilities, pieces, report, tally
from compgcn.tasks.inputs import INPUTS
from compgcn.train.storage import Table


class Classified(NamedTuple):
    """The most probable class of a node or a graph."""

    item: str  # its id
    name: str
    label: str
    probability: float
    known: str | None  # its class in the data


class Classes:
    """A trained classifier with all its nodes or graphs."""

    def __init__(
        self, config: Config, data: KnowledgeGraph | GraphCollection, items: Items, metrics: Mapping[str, Any]
    ) -> None:
        self.config, self.data, self.items, self.metrics = config, data, items, metrics
        self._batch_size = config.training.batch_size
        self.scalings: Mapping[str, Scaling | None] = {}  # the calibration of "classes"
        if isinstance(data, GraphCollection):
            self.vocabulary, self.classes = Vocabulary("graph", data.graph_ids), data.classes
            self.splits = {"train": np.arange(len(data))}
        else:
            assert data.labels is not None
            self.vocabulary, self.classes = data.entities, data.labels.classes
            self.splits = {split: rows[:, 0] for split, rows in data.labels.splits.items()}
        self._every = torch.arange(len(self.vocabulary), device=items.targets.device)

    @cached_property
    def _log_probabilities(self) -> Tensor:
        """Log probabilities of the classes of all items [n, C], computed once."""
        return log_probabilities(self.items, self._every, self._batch_size)

    def classify(self, names: str | Sequence[str] | GraphCollection | None = None) -> list[Classified]:
        """Return the class of each node or graph given by id or name, by default of all nodes without a label.

        A run that classifies graphs takes a collection of other graphs too, with its own relations and node labels.
        """
        if isinstance(names, GraphCollection):
            return self._classify_others(names)
        targets = self.items.targets.tolist()
        if names is not None:
            rows = [self.vocabulary.index(name) for name in ([names] if isinstance(names, str) else names)]
        elif isinstance(self.data, GraphCollection):
            raise InputError("every graph of this run has a class; name those to classify, or give other graphs")
        else:
            rows = [row for row, target in enumerate(targets) if target < 0]
        known = [self.classes[targets[row]] if targets[row] >= 0 else None for row in rows]
        ids, shown = ([texts[row] for row in rows] for texts in (self.vocabulary.ids, self.vocabulary.names))
        return self._answers(ids, shown, self._log_probabilities[rows], known)

    def _classify_others(self, graphs: GraphCollection) -> list[Classified]:
        if not isinstance(self.items, Graphs) or not isinstance(self.data, GraphCollection):
            raise InputError("this run classifies the nodes of its own graph; give their names, not other graphs")
        start = self.config.encoder.input
        if start not in ("labels", "shared"):
            raise InputError("this run learned from features of its own nodes and cannot classify other graphs")
        others = _translated(graphs, self.data, start)
        rows = INPUTS[start].start(others).rows
        assert rows is not None
        every = torch.arange(len(graphs), device=self.items.device)
        items = Graphs(self.items.model, others, rows, self.items.device)
        found = log_probabilities(items, every, self._batch_size)
        known = [graphs.classes[target] for target in graphs.targets]
        return self._answers(graphs.graph_ids, graphs.graph_ids, found, known)

    def _answers(
        self, ids: Sequence[str], names: Sequence[str], found: Tensor, known: Sequence[str | None]
    ) -> list[Classified]:
        """Return the most probable classes by their log probabilities [n, C]."""
        if not len(found):
            return []
        chances, places = (part.tolist() for part in self._chances(must_be_finite(found)).max(1))
        labels = [self.classes[place] for place in places]
        return [Classified(*row) for row in zip(ids, names, labels, chances, known, strict=True)]

    def _chances(self, found: Tensor) -> Tensor:
        """Return the probabilities of classes by their logarithms [n, C], calibrated if the run is."""
        scaling = self.scalings.get("classes")
        return found.exp() if scaling is None else (scaling.slope * found).softmax(1)

    def alike(self) -> set[str]:
        """Return the ids of nodes without a label that are like those with one.

        They stand in at least half of the places, subject or object of a relation, that at least half of the labelled
        nodes stand in.
        """
        assert isinstance(self.data, KnowledgeGraph)
        labelled = self.items.targets.cpu().numpy() >= 0
        (s, r, o), places = self.data.train.T, 2 * self.data.num_relations
        standing = index(np.concatenate((s, o)), np.concatenate((r, r + self.data.num_relations)), places)
        node, place = standing.pairs(np.arange(len(labelled)))
        usual = np.bincount(place[labelled[node]], minlength=places) * 2 >= max(1, labelled.sum())
        share = np.bincount(node[usual[place]], minlength=len(labelled)) * 2 >= usual.sum()
        return {self.vocabulary.ids[row] for row in np.flatnonzero(share & ~labelled)}

    def calibration(self, split: str = "test", *, calibrated: bool = False) -> list[Bin]:
        """Return how often the most probable class of the items of a split is right, by its probability."""
        rows = torch.from_numpy(self.splits[split]).to(self.items.targets.device)
        found = self._log_probabilities[rows]
        best = (self._chances(found) if calibrated else found.exp()).max(1)
        return bins(best.values, best.indices == self.items.targets[rows])

    @property
    def reported(self) -> str:
        """The split that a run reports on: test, unless only validation has metrics."""
        return "valid" if self.metrics.get("valid") and not self.metrics.get("test") else "test"

    def evaluate(self, split: str | None = None, by: str | None = None) -> dict[str, Any]:
        """Return the report on a split, by default the one the run reports on, or its part by class.

        Validation and k-fold protocols are not run again: their report is that of the run.
        """
        if by not in (None, "class"):
            raise unknown("way to split metrics", str(by), ("class",))
        split = split or self.reported
        must_be_known("split", split, SPLITS)
        if split == "train" or (split == "test" and "test" in self.splits):
            rows = torch.from_numpy(self.splits[split]).to(self.items.targets.device)
            found = report(tally(self.items, rows, self._batch_size), self.classes) if len(rows) else {}
        else:
            found = dict(self.metrics.get(split, {}))
        return found if by is None else dict(found.get("by_class", {}))

    @torch.inference_mode()
    def vectors(self) -> Tensor:
        """Return the vectors that the classes of all nodes or graphs are read off [n, d]."""
        self.items.model.eval()
        return torch.cat([self.items.vectors(part) for part in pieces(self.items, self._every, self._batch_size)])

    def tables(self) -> list[Table]:
        """Return the vectors of all nodes, or of all graphs."""
        if not isinstance(self.items, (Nodes, Graphs)):
            baseline = self.config.classifier.baseline
            raise InputError(f"the baseline '{baseline}' keeps no vectors, only the classes it predicts")
        vectors = self.vectors().float().cpu().numpy()
        return [Table(self.vocabulary.kind, list(self.vocabulary.ids), list(self.vocabulary.names), vectors)]


def _translated(graphs: GraphCollection, known: GraphCollection, start: str) -> GraphCollection:
    """Return graphs with the relation and node label numbers of a known collection."""
    triples, labels = graphs.triples.copy(), graphs.node_labels
    triples[:, 1] = _places("relation", graphs.relations.ids, known.relations.ids)[triples[:, 1]]
    if start == "labels":
        if labels is None:
            raise InputError(f"the graphs of '{graphs.name}' have no node labels, and the model was trained with them")
        labels = _places("node label", graphs.node_classes, known.node_classes)[labels]
    return replace(
        graphs, relations=known.relations, triples=triples, node_labels=labels, node_classes=known.node_classes
    )


def _places(kind: str, given: Sequence[str], known: Sequence[str]) -> Numbers:
    for text in given:
        must_be_known(f"{kind} in the graphs", text, known)
    return np.array([known.index(text) for text in given], dtype=np.int64)
