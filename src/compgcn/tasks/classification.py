"""Classification of the nodes of a graph, or of whole graphs in batches that are disjoint unions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.config import Training
from compgcn.data import GraphCollection
from compgcn.data.columns import Numbers
from compgcn.errors import InputError, must_be_known
from compgcn.nn.encoder import xavier
from compgcn.nn.graph import RelationalGraph
from compgcn.tasks import losses
from compgcn.tasks.sampling import Batches

_KEPT = 4  # batches of graphs that are remembered: those of validation come again in every epoch


def _sum(x: Tensor, graph_of: Tensor, graphs: int) -> Tensor:
    return x.new_zeros(graphs, x.shape[1]).index_add(0, graph_of, x)


def _mean(x: Tensor, graph_of: Tensor, graphs: int) -> Tensor:
    return _sum(x, graph_of, graphs) / torch.bincount(graph_of, minlength=graphs).unsqueeze(1)


def _max(x: Tensor, graph_of: Tensor, graphs: int) -> Tensor:
    start = x.new_full((graphs, x.shape[1]), -torch.inf)
    return start.scatter_reduce(0, graph_of.unsqueeze(1).expand_as(x), x, "amax")


READOUTS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {"mean": _mean, "sum": _sum, "max": _max}
NAMES = (*READOUTS, "attention")


class Readout(nn.Module):
    """x [N, d] and the graph of each node [N] -> [G, d]; every graph has at least one node.

    Args:
        name: "mean", the paper's, "sum", "max", or "attention": a mean weighted by a softmax of a learned linear score.
    """

    gate: nn.Parameter | None

    def __init__(self, name: str, dim: int) -> None:
        super().__init__()
        must_be_known("readout", name, NAMES)
        self.name = name
        self.gate = xavier(dim, 1) if name == "attention" else None

    def forward(self, x: Tensor, graph_of: Tensor, graphs: int) -> Tensor:
        if self.gate is None:
            return READOUTS[self.name](x, graph_of, graphs)
        score = x @ self.gate  # [N, 1]
        weight = (score - _max(score.detach(), graph_of, graphs)[graph_of]).exp()
        return _sum(weight * x, graph_of, graphs) / _sum(weight, graph_of, graphs)


class Classifier(nn.Module):
    """An encoder and a linear map from its vectors to the logits of C classes; for graphs, a readout between them.

    A network that maps graphs to vectors may replace both the encoder and the readout.

    Args:
        encoder: an `Encoder`; or a network from a disjoint union, the rows of its nodes [N] and the number of graphs
            to vectors [graphs, dim].
    """

    encoder: Any

    def __init__(self, encoder: nn.Module, num_classes: int, readout: Readout | None = None) -> None:
        super().__init__()
        self.encoder, self.readout = encoder, readout
        self.head = nn.Linear(self.encoder.dim, num_classes)
        nn.init.xavier_normal_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def vectors(self, graph: RelationalGraph, rows: Tensor, graphs: int) -> Tensor:
        """Return the vectors [graphs, d] of a disjoint union whose nodes start from these rows [N]."""
        if self.readout is None:
            vectors: Tensor = self.encoder(graph, rows, graphs)
        else:
            x, _ = self.encoder(graph, rows)
            vectors = self.readout(x, graph.graph_of_node, graphs)
        return vectors


class LogProbabilities(nn.Module):
    """A table of log probabilities of C classes for each of N nodes, for baselines that are fitted and not trained."""

    def __init__(self, num_nodes: int, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(num_nodes, num_classes, dtype=torch.float64))
        self.head = nn.Identity()


class Items(Protocol):
    """The items to classify: n labelled nodes of a graph, or n graphs."""

    @property
    def model(self) -> Classifier | LogProbabilities: ...

    @property
    def targets(self) -> Tensor: ...  # their classes, int64 [n]

    @property
    def together(self) -> bool: ...  # whether one pass over the graph serves all of them

    def vectors(self, items: Tensor) -> Tensor:
        """Return the input of the head for some items [B], [B, d]."""


class Nodes:
    """Some nodes of a graph and their classes.

    Args:
        model: classifies them, on the graph's device.
        rows: the row of the encoder's input table of each of the N nodes, int64 [N]; None: its own.
        nodes: int64 [n], which of them are classified.
        targets: int64 [n], their classes.
        restrict: make only the vectors that those of the nodes depend on, layer by layer. The result is the same; with
            batch norm, which would see fewer nodes, all vectors are made.
    """

    together = True

    def __init__(
        self,
        model: Classifier,
        graph: RelationalGraph,
        rows: Tensor | None,
        nodes: Tensor,
        targets: Tensor,
        *,
        restrict: bool = True,
    ) -> None:
        self.model, self.graph, self.rows, self.nodes, self.targets = model, graph, rows, nodes, targets
        normalised = any(isinstance(norm, nn.BatchNorm1d) for norm in model.encoder.norms)
        self._layers: RelationalGraph | list[RelationalGraph] = graph
        self._rows, self._places = rows, nodes
        if restrict and not normalised:
            self._layers, kept, self._places = graph.around(nodes, len(model.encoder.layers))
            self._rows = kept if rows is None else rows[kept]

    def vectors(self, items: Tensor) -> Tensor:
        x, _ = self.model.encoder(self._layers, self._rows)
        return F.embedding(self._places[items], x)


class Graphs:
    """The graphs of a collection.

    Args:
        model: classifies them, with a readout or a network of its own.
        rows: the row of the encoder's input table of each node of the collection, int64 [N].
    """

    together = False

    def __init__(self, model: Classifier, collection: GraphCollection, rows: Numbers, device: torch.device) -> None:
        self.model, self.device = model, device
        self.targets = torch.from_numpy(collection.targets).to(device)
        self.smallest = int(np.diff(collection.node_starts).min())  # nodes of the smallest graph
        names = tuple(str(row) for row in range(int(rows.max(initial=-1)) + 1))
        # The rows travel with the nodes as if they were their labels.
        self._collection = replace(collection, node_labels=rows, node_classes=names, node_features=None)
        self._kept = lru_cache(_KEPT)(self._union)

    def batch(self, items: Tensor) -> tuple[RelationalGraph, Tensor]:
        """Return the disjoint union of some of the graphs [B], and the rows of its nodes."""
        return self._kept(items.cpu().numpy().tobytes())

    @torch.inference_mode(False)  # a later training step may use the batch
    def _union(self, chosen: bytes) -> tuple[RelationalGraph, Tensor]:
        part = self._collection.subset(np.frombuffer(chosen, np.int64))
        src, rel, dst = torch.from_numpy(np.ascontiguousarray(part.triples.T)).to(self.device)
        graph_of, rows = (torch.as_tensor(values).to(self.device) for values in (part.graph_of, part.node_labels))
        return RelationalGraph(src, dst, rel, part.num_nodes, part.num_relations, graph_of), rows

    def vectors(self, items: Tensor) -> Tensor:
        return self.model.vectors(*self.batch(items), len(items))


class Tally(NamedTuple):
    """The outcome of classifying some items, from which every figure of a report follows."""

    log_likelihood: float  # the mean log probability of the true class
    confusion: Tensor  # int64 [C, C]: rows are true classes, columns predicted ones

    @property
    def accuracy(self) -> float:
        return int(self.confusion.trace()) / max(int(self.confusion.sum()), 1)


class Classification:
    """The task: cross-entropy on some of the items, a tally of others after every epoch.

    Args:
        train, valid: which of the items, int64 [n]; validation may have none.
        goal: the figure of the report to raise.
    """

    def __init__(
        self, items: Items, train: Tensor, valid: Tensor, settings: Training, goal: str = "log_likelihood"
    ) -> None:
        if not len(train):
            raise InputError("there is no labelled item to train on; mark some with the split 'train'")
        self.items, self.train, self.valid, self.settings, self.goal = items, train, valid, settings, goal
        self.module: nn.Module = items.model
        size = len(train) if items.together else settings.batch_size
        self.batches = Batches(len(train), size, settings.seed, train.device, settings.epoch_size)
        self.steps_per_epoch = self.batches.per_epoch
        self.tallies: list[Tally] = []  # of validation, one after another

    def examples(self, epoch: int, step: int) -> Tensor:
        return self.train[self.batches(epoch, step)]

    def loss(self, examples: Tensor) -> Tensor:
        logits = self.items.model.head(self.items.vectors(examples))
        return losses.cross_entropy(logits, self.items.targets[examples], smoothing=self.settings.label_smoothing)

    def validate(self, notify: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Return the figures of the validation items; they take so little time that `notify` is never called."""
        if not len(self.valid):
            return {}
        tally = self.tally(self.valid)
        self.tallies.append(tally)
        return {"log_likelihood": tally.log_likelihood, "accuracy": tally.accuracy, "macro_f1": macro_f1(tally)}

    def evaluated(self, without_gain: int) -> None:
        """Do nothing: a classifier has no margin."""

    def tally(self, items: Tensor) -> Tally:
        return tally(self.items, items, self.settings.batch_size)


@torch.inference_mode()
def log_probabilities(items: Items, chosen: Tensor, batch_size: int) -> Tensor:
    """Return the log probabilities of the classes of some items [n], in evaluation mode: [n, C]."""
    items.model.eval()
    logits = torch.cat([items.model.head(items.vectors(part)) for part in pieces(items, chosen, batch_size)])
    return logits.double().log_softmax(1)


def pieces(items: Items, chosen: Tensor, batch_size: int) -> tuple[Tensor, ...]:
    """Split some items [n] into batches, or leave them whole where one pass serves all of them."""
    return (chosen,) if items.together else torch.split(chosen, batch_size)


def tally(items: Items, chosen: Tensor, batch_size: int) -> Tally:
    """Classify some items [n], at least one."""
    return tallied(log_probabilities(items, chosen, batch_size), items.targets[chosen])


def tallied(found: Tensor, true: Tensor) -> Tally:
    """Compare log probabilities [n, C] with the true classes [n]."""
    classes = found.shape[1]
    cells = torch.bincount(true * classes + found.argmax(1), minlength=classes**2)
    return Tally(found.gather(1, true.unsqueeze(1)).mean().item(), cells.view(classes, classes).cpu())


def by_class(confusion: Tensor) -> Tensor:
    """Return precision, recall and F1 of each class [C, 3]; 0 where the denominator is 0."""
    right, true, given = confusion.diagonal().double(), confusion.sum(1), confusion.sum(0)
    return torch.stack(
        [right / given.clamp_min(1), right / true.clamp_min(1), 2 * right / (true + given).clamp_min(1)], 1
    )


def macro_f1(tally: Tally) -> float:
    """Return the mean F1 over the classes that occur, truly or as predicted."""
    occurs = tally.confusion.sum(0) + tally.confusion.sum(1) > 0
    return by_class(tally.confusion)[occurs, 2].mean().item()


def report(tally: Tally, classes: Sequence[str]) -> dict[str, Any]:
    """Return accuracy, macro-F1, likelihood, the figures of each class, and the confusion matrix."""
    rows = zip(classes, by_class(tally.confusion).tolist(), tally.confusion.sum(1).tolist(), strict=True)
    return {
        "accuracy": tally.accuracy,
        "macro_f1": macro_f1(tally),
        "log_likelihood": tally.log_likelihood,
        "by_class": {
            name: {"precision": precision, "recall": recall, "f1": f1, "items": items}
            for name, (precision, recall, f1), items in rows
        },
        "confusion": tally.confusion.tolist(),
    }
