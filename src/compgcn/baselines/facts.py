"""Features made by hand, and a logistic regression on them: which relations a node has, to which kinds of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from compgcn.baselines.fitted import Adjacency, Describe, Fit, Fitting, Variant, both_ways, counter, sparse, weighings
from compgcn.data import KnowledgeGraph
from compgcn.data.collection import folds
from compgcn.data.columns import Numbers
from compgcn.data.graph import rows_by_type, typed
from compgcn.nn.graph import RelationalGraph

_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # penalties that cross-validation chooses among
_FOLDS = 5
_BUSY = 1000  # a second hop from a node with more edges says the same of everyone
_ITERATIONS = 100


def feat_features(graph: KnowledgeGraph, nodes: Numbers, seed: int) -> list[Variant]:
    """Return the features of the baseline `feat`, in a variant for each weighing."""
    edges = both_ways(graph.train, graph.num_entities, graph.num_relations)
    return weighings(sparse(relations(edges, _kinds(graph)), nodes))


def fact_features(graph: KnowledgeGraph, nodes: Numbers, seed: int) -> list[Variant]:
    """Return the features of the baseline `facts`: counts of paths of up to two relations to each RDF type."""
    edges = both_ways(graph.train, graph.num_entities, graph.num_relations)
    return [Variant({}, _table(_paths(edges, _kinds(graph), 2 * graph.num_relations, 2), nodes))]


def fact_counts(graph: RelationalGraph, kinds: Tensor | None, nodes: Tensor, hops: int = 2) -> Tensor:
    """Return log(1 + count), scaled to [0, 1], of the paths of 1 or 2 hops that more than one node has, [n, F] of [n].

    A path is told by its relations and by the kind of its end [N]; by default every node is of its own kind.
    """
    kind = np.arange(graph.num_nodes) if kinds is None else kinds.cpu().numpy()
    triples = torch.stack((graph.src, graph.rel, graph.dst), 1).cpu().numpy()
    edges, chosen = both_ways(triples, graph.num_nodes, graph.num_relations), nodes.cpu().numpy()
    return torch.from_numpy(_table(_paths(edges, kind, 2 * graph.num_relations, hops), chosen)(chosen))


def _kinds(graph: KnowledgeGraph) -> Numbers:
    """Return a number for the RDF types of each node, or for the node itself if the graph has no types [N]."""
    return rows_by_type(graph) if typed(graph) else np.arange(graph.num_entities)


def relations(edges: Adjacency, kinds: Numbers) -> Describe:
    """Describe each edge of a node by its relation, that with the kind of its end, and that with the end itself."""
    steps, nodes, sorts = int(edges.step.max(initial=0)) + 1, len(edges.first) - 1, int(kinds.max(initial=0)) + 1

    def describe(chosen: Numbers) -> tuple[Numbers, Numbers]:
        place, edge = edges.follow(chosen)
        step, end = edges.step[edge], edges.end[edge]
        things = (step, steps + step * sorts + kinds[end], steps * (1 + sorts) + step * nodes + end)
        return np.tile(place, len(things)), np.concatenate(things)

    return describe


def _paths(edges: Adjacency, kind: Numbers, steps: int, hops: int) -> Describe:
    """Describe the paths of one or two hops from a node by their relations and the kind of their end."""
    kinds = int(kind.max(initial=0)) + 1

    def paths(nodes: Numbers) -> tuple[Numbers, Numbers]:
        owner, edge = edges.follow(nodes)
        step, near = edges.step[edge], edges.end[edge]
        one = step * kinds + kind[near]
        if hops == 1:
            return owner, one
        calm = (edges.first[near + 1] - edges.first[near]) <= _BUSY
        place, further = edges.follow(near[calm])
        both = steps + step[calm][place] * steps + edges.step[further]  # numbered after single relations
        two = both * kinds + kind[edges.end[further]]
        return np.concatenate([owner, owner[calm][place]]), np.concatenate([one, two])

    return paths


def _table(describe: Describe, known: Numbers) -> Callable[[Numbers], NDArray[np.float64]]:
    """Return a function that makes log(1 + count) over the largest value of a known node [n, F]."""
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


def fit_regression(variants: Sequence[Any], targets: Numbers, fitting: Fitting) -> Fit:
    """Fit a logistic regression to features [m, F] in one variant with the penalty that does best over folds."""
    (features,) = variants
    x, true = _some(torch.from_numpy(features)), torch.from_numpy(targets)
    number, basis = min(fitting.folds, len(x)), None
    if x.shape[1] > len(x) and x.any():  # the penalty is the same after a rotation, which puts m rows into m columns
        values, vectors = torch.linalg.eigh(x @ x.T)
        kept = values > 1e-12 * values[-1]
        basis = x.T @ (vectors[:, kept] / values[kept].sqrt())  # orthonormal columns [F, at most m]
        x = x @ basis
    parts = [torch.from_numpy(part) for part in folds(targets, number, fitting.seed)] if number > 1 else []

    def cost(strength: float) -> float:
        found = 0.0
        for part in parts:
            rest = torch.ones(len(x), dtype=torch.bool)
            rest[part] = False
            model = _fit(x[rest], true[rest], fitting.num_classes, strength)
            with torch.no_grad():
                found += F.cross_entropy(model(x[part]), true[part], reduction="sum").item()
        return found

    best = min(_STRENGTHS, key=cost)
    model = _fit(x, true, fitting.num_classes, best)
    if basis is not None:
        model.weight = torch.nn.Parameter(model.weight.detach() @ basis.T)

    @torch.no_grad()
    def decide(others: NDArray[np.float64]) -> NDArray[np.float64]:
        logits: Tensor = model(_some(torch.from_numpy(others)))
        return logits.log_softmax(1).numpy()

    return Fit(0, {"penalty": best}, decide)


def _some(x: Tensor) -> Tensor:
    """Return the features, or a column of zeros if there are none: only the frequency of classes is left."""
    return x if x.shape[1] else x.new_zeros(len(x), 1)


@torch.enable_grad()
def _fit(x: Tensor, targets: Tensor, num_classes: int, strength: float) -> torch.nn.Linear:
    make: Any = torch.nn.utils.skip_init  # a random start would draw from the caller's generator
    model: torch.nn.Linear = make(torch.nn.Linear, x.shape[1], num_classes, dtype=torch.float64)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), targets) + strength * model.weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return model


def logistic_regression(x: Tensor, targets: Tensor, train: Tensor, num_classes: int, seed: int = 0) -> Tensor:
    """Fit to some rows [m] of features [n, F] and classes [n]; return the log probabilities of all rows [n, C]."""
    fit = fit_regression([x[train].numpy()], targets[train].numpy(), Fitting(num_classes, _FOLDS, seed))
    return torch.from_numpy(fit.decide(x.numpy()))
