"""What counting facts already knows: logistic regression on how often a node has each relation to each kind of node.

A control for node classification, learned without any vectors: a graph encoder should know more.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from compgcn.data.folds import folds
from compgcn.graph import RelationalGraph

Numbers = NDArray[np.int64]

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
    src, dst, rel = (part.cpu().numpy() for part in (graph.src, graph.dst, graph.rel))
    kind = np.arange(graph.num_nodes) if kinds is None else kinds.cpu().numpy()
    start, end = np.concatenate([src, dst]), np.concatenate([dst, src])
    step = np.concatenate([rel, rel + graph.num_relations])  # inverses after originals
    order = np.argsort(start, kind="stable")
    end, step = end[order], step[order]
    first = np.searchsorted(start[order], np.arange(graph.num_nodes + 1))
    steps, kinds_there = 2 * graph.num_relations, int(kind.max(initial=0)) + 1

    def follow(at: Numbers) -> tuple[Numbers, Numbers]:
        """For each place, its edges: which place they are of, and which edges they are."""
        sizes = first[at + 1] - first[at]
        before = np.cumsum(sizes) - sizes
        return np.repeat(np.arange(len(at)), sizes), np.arange(sizes.sum()) + np.repeat(first[at] - before, sizes)

    owner, edge = follow(nodes.cpu().numpy())
    tables = [_table(owner, step[edge] * kinds_there + kind[end[edge]], len(nodes))]
    if hops == 2:
        near = end[edge]
        calm = (first[near + 1] - first[near]) <= _BUSY
        owner, step_one, near = owner[calm], step[edge][calm], near[calm]
        place, edge = follow(near)
        path = (step_one[place] * steps + step[edge]) * kinds_there + kind[end[edge]]
        tables.append(_table(owner[place], path, len(nodes)))
    return torch.cat(tables, 1)


def _table(owner: Numbers, path: Numbers, size: int) -> Tensor:
    pairs, counts = np.unique(path * size + owner, return_counts=True)
    _, column, shared = np.unique(pairs // size, return_inverse=True, return_counts=True)
    kept = shared[column] > 1
    column = np.unique(column[kept], return_inverse=True)[1]
    table = torch.zeros(size, int(column.max(initial=-1)) + 1, dtype=torch.float64)
    table[pairs[kept] % size, column] = torch.from_numpy(np.log1p(counts[kept]))
    return table / table.amax(0).clamp_min(1e-12) if table.shape[1] else table


def logistic_regression(x: Tensor, targets: Tensor, train: Tensor, num_classes: int, seed: int = 0) -> Tensor:
    """Log probabilities of all rows of x, [n, C], fitted to those for training; the penalty is chosen within these.

    Args:
        x: [n, F].
        targets: classes [n].
        train: which rows, int64 [m].
        num_classes: C.
        seed: of the folds.
    """
    if not x.shape[1]:
        x = x.new_zeros(len(x), 1)  # nothing was counted: only how frequent the classes are is left
    if x.shape[1] > len(x):  # a penalty on squares sees no rotation, and one puts n rows into n columns
        values, vectors = torch.linalg.eigh(x @ x.T)
        x = vectors * values.clamp_min(0).sqrt()
    chosen = targets[train]
    number = min(_FOLDS, len(train))
    parts = [torch.from_numpy(part) for part in folds(chosen.numpy(), number, seed)] if number > 1 else []

    def cost(strength: float) -> float:
        found = 0.0
        for part in parts:
            rest = torch.ones(len(train), dtype=torch.bool)
            rest[part] = False
            logits = _fit(x[train][rest], chosen[rest], num_classes, strength)(x[train][part])
            found += F.cross_entropy(logits, chosen[part], reduction="sum").item()
        return found

    best = min(_STRENGTHS, key=cost)
    with torch.no_grad():
        logits: Tensor = _fit(x[train], chosen, num_classes, best)(x)
        return logits.log_softmax(1)


def _fit(x: Tensor, targets: Tensor, num_classes: int, strength: float) -> torch.nn.Linear:
    model = torch.nn.Linear(x.shape[1], num_classes, dtype=torch.float64)
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
