"""Baselines that are fitted once: features of nodes, and a classifier on them.

What such a baseline leaves behind is the log probability of every class for every node of the graph. It can tell
nothing else: its features are of nodes in a graph it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from compgcn.config import Classifier, Config, Training, differences
from compgcn.data import KnowledgeGraph
from compgcn.data.arrays import Numbers
from compgcn.errors import InputError

_CHUNK = 1024  # nodes whose features are made at a time

Matrix = Any  # [n, F]: an array, or a sparse one of scipy
Scores = NDArray[np.float64]  # log probabilities [n, C]
Features = Callable[[Numbers], Matrix]  # of some nodes [n]
Decide = Callable[[Matrix], Scores]


class Fitting(NamedTuple):
    """How a classifier is fitted."""

    num_classes: int
    folds: int  # of the cross-validation that chooses its own settings
    balanced: bool  # whether every class counts the same, however rare
    seed: int


class Variant(NamedTuple):
    """One way to make features, of those that a fit chooses among.

    Fields:
        settings: what makes it this one.
        table: of some nodes, what is counted or measured; variants may share it, and it is then made once.
        weigh: from that to the features.
    """

    settings: dict[str, Any]
    table: Features
    weigh: Callable[[Matrix], Matrix] = lambda table: table


class Fit(NamedTuple):
    """A classifier that is fitted: which variant it chose, its own settings, and what it says of others."""

    variant: int
    settings: dict[str, Any]
    decide: Decide


class FitOnce(NamedTuple):
    """A baseline in two steps.

    Fields:
        features: from the graph, the labelled nodes [n], train or not, and the seed, to the features of any nodes, in
            one variant or more, the simplest first. The classes of nodes are not theirs to see.
        classifier: fitted to the features of some nodes in every variant and their classes [m], of which it chooses one
            by these nodes alone, it tells the classes of others.
    """

    features: Callable[[KnowledgeGraph, Numbers, int], Sequence[Variant]]
    classifier: Callable[[Sequence[Matrix], Numbers, Fitting], Fit]


def must_not_train(config: Config) -> None:
    """Refuse settings that mean nothing where nothing is trained epoch by epoch."""
    c, t = config.classifier, config.training
    used = Classifier(
        baseline=c.baseline,
        protocol=c.protocol,
        folds=c.folds,
        inner_folds=c.inner_folds,
        class_weights=c.class_weights,
    )
    plain = Config(
        task=config.task,
        data=config.data,
        classifier=used,
        training=Training(seed=t.seed, max_shard_mib=t.max_shard_mib),
    )
    for change in differences(plain, config):
        setting = change.partition(":")[0]
        raise InputError(f"the baseline '{c.baseline}' is fitted once and has no {setting}; leave it out")


class LogProbabilities(nn.Module):
    """Those of C classes for each of N nodes, as a model like any other; its head has nothing left to do."""

    def __init__(self, num_nodes: int, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(num_nodes, num_classes, dtype=torch.float64))
        self.head = nn.Identity()


class Fitted:
    """Some nodes of a graph and their classes, as `compgcn.tasks.classification.Items`, for a baseline.

    Args:
        how: the baseline.
        graph: of N nodes, with labels.
        nodes, targets: which are classified, and their classes, int64 [n].
        fitting: how.
        device: where the answers are kept; features are made on the CPU.
    """

    together = True

    def __init__(
        self,
        how: FitOnce,
        graph: KnowledgeGraph,
        nodes: Tensor,
        targets: Tensor,
        fitting: Fitting,
        device: torch.device,
    ) -> None:
        self._how, self._graph, self._fitting = how, graph, fitting
        self.nodes, self.targets = nodes.to(device), targets.to(device)
        self.model = LogProbabilities(graph.num_entities, fitting.num_classes).to(device)

    @cached_property
    def _variants(self) -> Sequence[Variant]:
        return self._how.features(self._graph, self.nodes.cpu().numpy(), self._fitting.seed)

    @cached_property
    def _known(self) -> list[Matrix]:
        """Features of the nodes in every variant, [n, F]."""
        nodes = self.nodes.cpu().numpy()
        tables = {table: table(nodes) for table in dict.fromkeys(variant.table for variant in self._variants)}
        return [variant.weigh(tables[variant.table]) for variant in self._variants]

    def _fit(self, train: Tensor) -> Fit:
        if not len(train):
            raise InputError("there is no labelled item to train on; mark some with the split 'train'")
        rows = train.cpu().numpy()
        return self._how.classifier([x[rows] for x in self._known], self.targets.cpu().numpy()[rows], self._fitting)

    def fitted_to(self, train: Tensor, others: Tensor) -> Tensor:
        """Fitted to some of the nodes [m], the log probabilities of others [k], [k, C]."""
        fit = self._fit(train)
        return torch.from_numpy(fit.decide(self._known[fit.variant][others.cpu().numpy()])).to(self.targets.device)

    def keep(self, train: Tensor) -> dict[str, Any]:
        """Fit to some of the nodes [m], fill the model with what that says of all nodes, and return what was chosen."""
        fit, everything = self._fit(train), np.arange(self._graph.num_entities)
        variant = self._variants[fit.variant]
        chunks = (everything[i : i + _CHUNK] for i in range(0, len(everything), _CHUNK))
        parts = [fit.decide(variant.weigh(variant.table(chunk))) for chunk in chunks]
        table = self.model.get_buffer("table")
        table.copy_(torch.from_numpy(np.concatenate(parts)))
        return variant.settings | fit.settings

    def vectors(self, items: Tensor) -> Tensor:
        """Of some of the nodes [B], their log probabilities, [B, C]."""
        return self.model.get_buffer("table")[self.nodes[items]]
