"""Edge masking: encode a batch without the edges that the batch itself asks about."""

from __future__ import annotations

import torch
from torch import Tensor

from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.facts import Answers


class EdgeMask:
    """Which edges of a graph the examples of a batch ask about, found beforehand.

    The examples of (s, r, ?) and of (o, r + R, ?) ask about the edge (s, r, o). No shape depends on the batch.

    Args:
        graph: of E edges; those that are no training triples are never masked.
        train: the training triples.
        by_query: whether an example is a query with all its answers, or a single answer.
    """

    def __init__(self, graph: RelationalGraph, train: Answers, *, by_query: bool) -> None:
        self.size = len(train) if by_query else len(train.answers)
        asked = (graph.src, graph.rel, graph.dst), (graph.dst, graph.rel + graph.num_relations, graph.src)
        self.examples = torch.stack([train.positions(*triples)[0 if by_query else 1] for triples in asked])  # [2, E]

    def keep(self, examples: Tensor) -> Tensor:
        """Return 0 for the edges that examples [B] ask about and 1 for the others, [E]."""
        others = torch.ones(self.size + 1, device=examples.device)
        return others.index_fill_(0, examples, 0.0)[self.examples].amin(0)
