"""A batch's own facts, taken out of the graph it is encoded from."""

from __future__ import annotations

import torch
from torch import Tensor

from compgcn.graph import RelationalGraph
from compgcn.queries import Answers


class BatchEdges:
    """Which edges of a graph a batch asks about: known beforehand, so that a step only looks them up.

    An edge (s, r, o) is asked about by the examples of (s, r, ?) and of (o, r + R, ?). Shapes do not depend on the
    batch, and nothing waits for the device.

    Args:
        graph: of E edges; those that are no training triples are never taken out.
        train: the training triples as questions and answers.
        by_query: whether an example is a question with all its answers, or a single answer.
    """

    def __init__(self, graph: RelationalGraph, train: Answers, *, by_query: bool) -> None:
        self.size = len(train) if by_query else len(train.answers)
        asked = (graph.src, graph.rel, graph.dst), (graph.dst, graph.rel + graph.num_relations, graph.src)
        places = [_place(train, *triples) for triples in asked]
        self.examples = torch.stack([query if by_query else answer for query, answer in places])  # [2, E]

    def keep(self, examples: Tensor) -> Tensor:
        """0 for the edges that examples [B] ask about and 1 for the others, [E]."""
        others = torch.ones(self.size + 1, device=examples.device)
        return others.index_fill_(0, examples, 0.0)[self.examples].amin(0)


def _place(train: Answers, s: Tensor, r: Tensor, o: Tensor) -> tuple[Tensor, Tensor]:
    """Where the question (s, r, ?) stands and where its answer o does, [E] each; one past the last where it does not.

    A search by halves among the answers of each question, which ascend.
    """
    if not len(train):
        return torch.zeros_like(s), torch.zeros_like(s)
    key = s * (2 * train.num_relations) + r
    query = torch.searchsorted(train.keys, key).clamp_(max=len(train) - 1)
    low, end = train.offsets[query], train.offsets[query + 1]
    high, last = end, len(train.answers) - 1
    for _ in range(int((end - low).max()).bit_length() if len(s) else 0):
        middle = (low + high) // 2
        below = (low < high) & (train.answers[middle.clamp(max=last)] < o)
        low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
    there = (train.keys[query] == key) & (low < end) & (train.answers[low.clamp(max=last)] == o)
    return torch.where(there, query, len(train)), torch.where(there, low, len(train.answers))
