"""Hidden edges: train on a graph without the facts that a batch asks about."""

from __future__ import annotations

import torch
from torch import Tensor

from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.facts import Answers, search


class HiddenEdges:
    """The edges that leave the graph with hidden answers: the facts themselves, or all edges between the same entities.

    A fact is hidden whichever of its two readings is asked, and both of its messages go.

    Args:
        train: the training triples, with inverses.
        rule: "facts" or "pairs".
    """

    def __init__(self, graph: RelationalGraph, train: Answers, rule: str) -> None:
        self._size, self._relations, self._rule = graph.num_nodes, graph.num_relations, rule
        groups, self.of_edge = torch.unique(self._key(graph.src, graph.rel, graph.dst), return_inverse=True)  # [E]
        s, r = train.queries[torch.repeat_interleave(train.offsets.diff())].unbind(1)
        place, found = search(groups, self._key(s, r, train.answers))
        self.of_answer = torch.cat((torch.where(found, place, len(groups)), place.new_tensor([len(groups)])))  # [A + 1]
        self.groups = len(groups)

    def keep(self, places: Tensor) -> Tensor:
        """Return 0 for the edges that go with the answers at places of `train`, 1 for the others, [E]; A is padding."""
        stay = torch.ones(self.groups + 1, device=places.device)
        return stay.index_fill_(0, self.of_answer[places].flatten(), 0.0)[self.of_edge]

    def _key(self, s: Tensor, r: Tensor, o: Tensor) -> Tensor:
        if self._rule == "pairs":
            return torch.minimum(s, o) * self._size + torch.maximum(s, o)
        return facts(s, r, o, self._relations, self._size)


def facts(s: Tensor, r: Tensor, o: Tensor, num_relations: int, num_nodes: int) -> Tensor:
    """Return one number for each fact, whichever of its two readings is given, [n] of [n]."""
    inverse = r >= num_relations
    head, tail = torch.where(inverse, o, s), torch.where(inverse, s, o)
    return (head * num_relations + r % num_relations) * num_nodes + tail


def linked(triples: Tensor, train: Tensor) -> float:
    """Return the share of triples [n, 3] whose two entities are joined in train [m, 3] by another fact."""
    if not len(triples) or not len(train):
        return 0.0
    train = torch.unique(train, dim=0)
    every, number = torch.unique(torch.cat((triples, train)), dim=0, return_inverse=True)  # facts by one number
    ends = torch.stack((every[:, [0, 2]].amin(1), every[:, [0, 2]].amax(1)), 1)
    pair = torch.unique(ends, dim=0, return_inverse=True)[1]  # [facts]
    asked, known = number[: len(triples)], number[len(triples) :]
    joined = torch.bincount(pair[known], minlength=len(every))[pair[asked]]
    return float((joined > torch.isin(asked, known).long()).double().mean())
