"""Explain a model conditioned on the query: find the paths from the head to the tail that carried the score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.nn.graph import Messages, RelationalGraph
from compgcn.tasks.edge_masking import keep_without

Triple = tuple[int, int, int]  # rows (s, r, o); an inverse relation is r + R

_WIDTH = 128  # walks that the search keeps after each layer


class Step(NamedTuple):
    """A fact on a path."""

    head: str  # ids, then names
    relation: str
    tail: str
    head_name: str
    relation_name: str
    tail_name: str
    forward: bool  # whether the path goes from its head to its tail
    importance: float  # slope of the score in the weight of this message in its layer


class Path(NamedTuple):
    """Facts that lead from the head of a prediction to its tail."""

    importance: float  # sum of those of the steps
    steps: list[Step]

    def arrows(self, names: Callable[[Step], Sequence[str]] = lambda step: step[3:6]) -> str:
        """Return the path as a text, such as Ada -knows-> Bob <-employs- Acme."""
        parts = list[str]()
        for step in self.steps:
            head, relation, tail = names(step)
            start, end = (head, tail) if step.forward else (tail, head)
            parts += [*([] if parts else [start]), f"-{relation}->" if step.forward else f"<-{relation}-", end]
        return " ".join(parts)


class Walk(NamedTuple):
    """The messages that a path takes, one in each of some layers."""

    messages: tuple[int, ...]
    slopes: tuple[float, ...]  # of the messages
    entities: tuple[int, ...]  # one more than messages

    @property
    def importance(self) -> float:
        """The sum of the slopes."""
        return sum(self.slopes)


class QueryScore:
    """The score of a triple (s, r, o) by a model conditioned on the query, as a function of the edges of the graph.

    A fact does not explain itself: if it is an edge of the graph, that edge is hidden as it was in training.

    Args:
        model: the model.
        graph: of E edges, 2E messages.
        triple: the prediction.
        hide: the rule of `HiddenEdges`.
    """

    def __init__(self, model: ConditionalCompGCN, graph: RelationalGraph, triple: Triple, hide: str) -> None:
        self.model, self.graph, self.triple = model, graph, triple
        self.keep = keep_without(graph, *triple, hide)  # [E]
        every = torch.arange(graph.num_edges, device=graph.src.device)
        near = graph.around(torch.tensor([triple[2]], device=every.device), len(model.layers))
        edges = near.layers[0].of_whole(every)
        self.edges = edges[self.keep[edges] > 0]  # those that the score depends on, ascending [F]

    @property
    def hidden(self) -> int:
        """The number of edges that are hidden."""
        return int((self.keep == 0).sum())

    @torch.no_grad()
    def scores(self, without: Tensor) -> Tensor:
        """Return the scores of all entities on the graph without some edges, degrees and all, [1, N]."""
        view = self.model.view(self.graph, self.keep.index_fill(0, without, 0.0))
        scores: Tensor = self.model(view, *self._query())
        return scores

    def scores_without(self, deletions: Sequence[Tensor]) -> Tensor:
        """Return the score of the triple on the graph without each of n sets of edges, [n]."""
        return torch.stack([self.scores(edges)[0, self.triple[2]] for edges in deletions])

    def slopes(self) -> Tensor:
        """Return d score / d weight of every message in every layer, [K, 2E], with degrees as they are."""
        with torch.inference_mode(False), torch.enable_grad():
            messages = self.graph.messages("source_to_target")
            view, kept = self.model.view(self.graph, self.keep), messages.of_edges(self.keep)
            weights = [kept.clone().requires_grad_() for _ in self.model.layers]
            views = [view._replace(plan=messages.receiver_plan(), weight=weight) for weight in weights]
            score = self.model(views, *self._query())[0, self.triple[2]]
            return torch.stack(torch.autograd.grad(score, weights))

    def contributions(self, slopes: Tensor, leave_out: int = 0) -> tuple[Tensor, Tensor]:
        """Return edges and the contribution of each to the score, both [n].

        A contribution is the slope in the weight of an edge in all layers and both directions; with `leave_out`, the
        score lost without the edge, for so many edges of the largest slopes.
        """
        slope = slopes.sum(0).view(2, -1).sum(0)[self.edges]
        if not leave_out:
            return self.edges, slope
        edges = self.edges[slope.abs().sort(descending=True, stable=True).indices[:leave_out]]
        scores = self.scores_without([edges[:0], *torch.split(edges, 1)])
        return edges, scores[0] - scores[1:]

    def walks(self, slopes: Tensor, top: int) -> list[Walk]:
        """Return the most important paths from s to o, see `best_walks`."""
        messages = self.graph.messages("source_to_target")
        seen = slopes.masked_fill(messages.of_edges(self.keep) == 0, -torch.inf)
        return best_walks(messages, seen, self.triple[0], self.triple[2], top)

    def _query(self) -> tuple[Tensor, Tensor]:
        s, r, _ = torch.tensor(self.triple, device=self.graph.src.device).split(1)
        return s, r


def best_walks(messages: Messages, slopes: Tensor, head: int, tail: int, top: int) -> list[Walk]:
    """Return the paths from head to tail with the largest sums of slopes, largest first, by a beam search.

    In every layer a path takes a message or stays where it is, which costs nothing. It comes to no entity twice, so no
    path is listed again with a detour, and between two entities it takes the fact of the largest slope. The search
    judges a walk by its sum so far and the most that any way on can add.

    Args:
        messages: of the graph, M.
        slopes: of every message in every layer, -inf where it is not to be taken [K, M].
        head, tail: where paths start and end; if they are the same, paths are cycles.
        top: how many.
    """
    bounds = _bounds(messages, slopes, tail)
    sent = messages.receiver_plan().by_sender
    beam = [Walk((), (), (head,))]
    for slope, bound in zip(slopes, bounds[1:], strict=True):
        found = {walk.entities: walk for walk in beam}  # those that stay
        for walk in beam:
            at = walk.entities[-1]
            if walk.messages and at == tail:
                continue
            part = slice(int(sent.offsets[at]), int(sent.offsets[at + 1]))
            message, receiver = sent.order[part], sent.left[part]
            visited = torch.tensor([one for one in walk.entities if one != tail], device=receiver.device)
            reach = (slope[message] + bound[receiver]).masked_fill(torch.isin(receiver, visited), -torch.inf)
            best = reach.topk(min(_WIDTH, len(reach))).indices
            columns = (column[best].tolist() for column in (message, receiver, slope[message], reach))
            for number, entity, value, most in zip(*columns, strict=True):
                longer = Walk((*walk.messages, number), (*walk.slopes, value), (*walk.entities, entity))
                if most > -torch.inf:
                    known = found.get(longer.entities, longer)  # by other facts, or in other layers
                    found[longer.entities] = max(known, longer, key=lambda each: each.importance)
        ends = bound[torch.tensor([walk.entities[-1] for walk in found.values()], device=bound.device)].tolist()
        reached = {walk: walk.importance + end for walk, end in zip(found.values(), ends, strict=True)}
        beam = sorted(reached, key=reached.__getitem__, reverse=True)[:_WIDTH]
        beam = [walk for walk in beam if reached[walk] > -torch.inf]
    return [walk for walk in beam if walk.messages][:top]


def _bounds(messages: Messages, slopes: Tensor, tail: int) -> list[Tensor]:
    """Return the largest sum of slopes on any way from each entity to the tail, from each layer on, K + 1 times [N]."""
    bound = torch.full((messages.num_nodes,), -torch.inf, device=slopes.device, dtype=slopes.dtype)
    bound[tail] = 0.0
    bounds = [bound]
    for slope in slopes.flip(0):
        bounds.append(bounds[-1].scatter_reduce(0, messages.sender, slope + bounds[-1][messages.receiver], "amax"))
    return bounds[::-1]
