"""Features as one would make them by hand: which relations a node has, to what kind of node, and to which one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from compgcn.baselines.fitted import (
    Adjacency,
    Describe,
    Features,
    Fit,
    Fitting,
    Matrix,
    Scores,
    Variant,
    both_ways,
    counter,
    sparse,
    weighings,
)
from compgcn.data import KnowledgeGraph
from compgcn.data.collection import folds
from compgcn.data.columns import Numbers
from compgcn.data.graph import rows_by_type, typed
from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.classification import balanced

_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # of the penalty, chosen among by cross-validation
_FOLDS = 5
_BUSY = 1000  # a second hop is not followed from a node with more edges: it would say the same of everyone
_ITERATIONS = 100


def fact_counts(graph: RelationalGraph, kinds: Tensor | None, nodes: Tensor, hops: int = 2) -> Tensor:
    """log(1 + count) of the paths of up to so many relations from each node, by where they lead [n, F], in [0, 1].

    Args:
        graph: of N nodes.
        kinds: the kind of each [N]; None: every node is one of its own.
        nodes: [n], those to describe.
        hops: 1 or 2.

    A path that only one of the nodes has is left out: nothing can be learned from it.
    """
    kind = np.arange(graph.num_nodes) if kinds is None else kinds.cpu().numpy()
    triples = torch.stack((graph.src, graph.rel, graph.dst), 1).cpu().numpy()
    edges, chosen = both_ways(triples, graph.num_nodes, graph.num_relations), nodes.cpu().numpy()
    return torch.from_numpy(_table(_paths(edges, kind, 2 * graph.num_relations, hops), chosen)(chosen))


def fact_features(graph: KnowledgeGraph, nodes: Numbers, seed: int) -> list[Variant]:
    """The counts of any nodes, of the paths that more than one of these has: one hop and two, to each RDF type."""
    kind = rows_by_type(graph) if typed(graph) else np.arange(graph.num_entities)
    edges = both_ways(graph.train, graph.num_entities, graph.num_relations)
    return [Variant({}, _table(_paths(edges, kind, 2 * graph.num_relations, 2), nodes))]


def _paths(edges: Adjacency, kind: Numbers, steps: int, hops: int) -> Describe:
    """The paths of one hop of any nodes, and of two, by their relations and the kind of their end."""
    kinds = int(kind.max(initial=0)) + 1

    def paths(nodes: Numbers) -> tuple[Numbers, Numbers]:
        owner, edge = edges.follow(nodes)
        one, near = edges.step[edge] * kinds + kind[edges.end[edge]], edges.end[edge]
        if hops == 1:
            return owner, one
        calm = (edges.first[near + 1] - edges.first[near]) <= _BUSY
        place, further = edges.follow(near[calm])
        both = steps + edges.step[edge][calm][place] * steps + edges.step[further]  # after those of one
        two = both * kinds + kind[edges.end[further]]
        return np.concatenate([owner, owner[calm][place]]), np.concatenate([one, two])

    return paths


def _table(describe: Describe, known: Numbers) -> Features:
    """log(1 + count) of what more than one of the known nodes has, over the most that one of these has, [n, F]."""
    counts, width = counter(describe, known)
    _, column, count = counts(known)
    most = np.zeros(width)
    np.maximum.at(most, column, np.log1p(count))

    def features(nodes: Numbers) -> NDArray[np.float64]:
        row, column, count = counts(nodes)
        table = np.zeros((len(nodes), width))
        table[row, column] = np.log1p(count) / most[column]
        return table

    return features


def fit_regression(variants: Sequence[Matrix], targets: Numbers, fitting: Fitting) -> Fit:
    """Logistic regression on features [m, F], in one variant; the penalty is chosen within them."""
    (x,) = variants
    model, penalty = _regression(torch.from_numpy(x), torch.from_numpy(targets), fitting)

    def decide(others: Matrix) -> Scores:
        with torch.no_grad():
            logits: Tensor = model(_some(torch.from_numpy(others)))
        return logits.log_softmax(1).numpy()

    return Fit(0, {"penalty": penalty}, decide)


def logistic_regression(x: Tensor, targets: Tensor, train: Tensor, num_classes: int, seed: int = 0) -> Tensor:
    """Log probabilities of all rows of x, [n, C], fitted to those for training; the penalty is chosen within these.

    Args:
        x: [n, F].
        targets: classes [n].
        train: which rows, int64 [m].
        num_classes: C.
        seed: of the folds.
    """
    fitting = Fitting(num_classes, _FOLDS, balanced=False, seed=seed)
    with torch.no_grad():
        model, _ = _regression(x[train], targets[train], fitting)
        logits: Tensor = model(_some(x))
        return logits.log_softmax(1)


def _some(x: Tensor) -> Tensor:
    """Where nothing was counted, only how frequent the classes are is left."""
    return x if x.shape[1] else x.new_zeros(len(x), 1)


def _regression(x: Tensor, targets: Tensor, fitting: Fitting) -> tuple[torch.nn.Linear, float]:
    """Fitted to features [m, F] and classes [m]; of the penalties the one that does best over folds of these."""
    x, number, basis = _some(x), min(fitting.folds, len(x)), None
    if x.shape[1] > len(x) and x.any():  # a penalty on squares sees no rotation, and one puts m rows into m columns
        values, vectors = torch.linalg.eigh(x @ x.T)
        kept = values > 1e-12 * values[-1]
        basis = x.T @ (vectors[:, kept] / values[kept].sqrt())  # [F, at most m], orthonormal columns
        x = x @ basis
    weights = balanced(targets, fitting.num_classes).double() if fitting.balanced else None
    parts = [torch.from_numpy(part) for part in folds(targets.numpy(), number, fitting.seed)] if number > 1 else []

    def cost(strength: float) -> float:
        found = 0.0
        for part in parts:
            rest = torch.ones(len(x), dtype=torch.bool)
            rest[part] = False
            with torch.enable_grad():
                model = _fit(x[rest], targets[rest], weights, fitting.num_classes, strength)
            with torch.no_grad():
                found += F.cross_entropy(model(x[part]), targets[part], weights, reduction="sum").item()
        return found

    best = min(_STRENGTHS, key=cost)
    with torch.enable_grad():
        model = _fit(x, targets, weights, fitting.num_classes, best)
    if basis is not None:
        model.weight = torch.nn.Parameter(model.weight.detach() @ basis.T)
    return model, best


def _fit(x: Tensor, targets: Tensor, weights: Tensor | None, num_classes: int, strength: float) -> torch.nn.Linear:
    model = torch.nn.Linear(x.shape[1], num_classes, dtype=torch.float64)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), targets, weights) + strength * model.weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return model


def feat_features(graph: KnowledgeGraph, nodes: Numbers, seed: int) -> list[Variant]:
    """Of any nodes, what more than one of these has; how often is weighed in several ways."""
    kinds = rows_by_type(graph) if typed(graph) else np.arange(graph.num_entities)
    edges = both_ways(graph.train, graph.num_entities, graph.num_relations)
    return weighings(sparse(relations(edges, kinds), nodes))


def relations(edges: Adjacency, kinds: Numbers) -> Describe:
    """For each edge of a node three things: its relation, that and the kind [N] of its end, that and the end itself."""
    steps, nodes, sorts = int(edges.step.max(initial=0)) + 1, len(edges.first) - 1, int(kinds.max(initial=0)) + 1

    def describe(chosen: Numbers) -> tuple[Numbers, Numbers]:
        place, edge = edges.follow(chosen)
        step, end = edges.step[edge], edges.end[edge]
        things = (step, steps + step * sorts + kinds[end], steps * (1 + sorts) + step * nodes + end)
        return np.tile(place, len(things)), np.concatenate(things)

    return describe
