"""Explain a model conditioned on the query: find the paths from the head to the tail that carried the score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from compgcn.kernels.plan import Segments
from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.nn.graph import Messages, RelationalGraph

Triple = tuple[int, int, int]  # rows (s, r, o); an inverse relation is r + R

_WIDTH = 64  # walks of a length that the search keeps after each layer


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

    importance: float  # mean of those of the steps
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
        """The mean of the slopes: by their sum, a path with idle detours would come before the path itself."""
        return sum(self.slopes) / len(self.slopes)


class QueryScore:
    """The score of a triple (s, r, o) by a model conditioned on the query, as a function of the edges of the graph.

    A fact does not explain itself: `keep` [E] is 0 for the edges that training hides with it, 1 for the others.
    """

    def __init__(self, model: ConditionalCompGCN, graph: RelationalGraph, triple: Triple, keep: Tensor) -> None:
        self.model, self.graph, self.triple, self.keep = model, graph, triple, keep
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
            view = self.model.view(self.graph, self.keep)
            weights = [view.weight.clone().requires_grad_() for _ in self.model.layers]
            views = [view._replace(weight=weight) for weight in weights]
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
        s, r, _ = torch.tensor(self.triple, device=self.graph.src.device).view(3, 1)
        return s, r


def best_walks(messages: Messages, slopes: Tensor, head: int, tail: int, top: int) -> list[Walk]:
    """Return the most important paths from head to tail, by a beam search for each number of messages.

    In every layer a path takes a message or stays where it is. It comes to no entity twice, and between two entities it
    takes the fact of the largest slope, so paths differ in their entities.

    Args:
        slopes: of every message in every layer, -inf where it is not to be taken [K, M].
        head, tail: where paths start and end; if they are the same, paths are cycles.
    """
    if head != tail:  # no path comes back to its head, or goes on from its tail
        slopes = slopes.masked_fill((messages.receiver == head) | (messages.sender == tail), -torch.inf)
    bounds = _bounds(messages, slopes, tail)
    found = [walk for length in range(1, len(slopes) + 1) for walk in _search(messages, slopes, bounds, head, length)]
    return sorted(found, key=lambda walk: walk.importance, reverse=True)[:top]


def _bounds(messages: Messages, slopes: Tensor, tail: int) -> Tensor:
    """Return the largest sum of slopes on any way to the tail, by layer, messages to take and entity [K+1, K+1, N].

    A way may come to an entity twice, so no path exceeds the bound.
    """
    layers = len(slopes)
    bounds = slopes.new_full((layers + 1, layers + 1, messages.num_nodes), -torch.inf)
    bounds[:, 0, tail] = 0.0
    for layer in reversed(range(layers)):
        for left in range(1, layers - layer + 1):
            taken = slopes[layer] + bounds[layer + 1, left - 1][messages.receiver]
            bounds[layer, left] = bounds[layer + 1, left].scatter_reduce(0, messages.sender, taken, "amax")
    return bounds


def _search(messages: Messages, slopes: Tensor, bounds: Tensor, head: int, length: int) -> list[Walk]:
    """Return paths of so many messages; in every layer go on with the walks that can reach the largest sums."""
    sent = messages.receiver_plan().messages.by_sender
    beam = [Walk((), (), (head,))]
    for slope, bound in zip(slopes, bounds[1:], strict=True):
        ends = ([length - len(walk.messages) for walk in beam], [walk.entities[-1] for walk in beam])
        found = dict[tuple[int, ...], tuple[float, Walk]]()  # by entities: the largest sum in reach, and the walk
        for walk, most in zip(beam, bound[ends].tolist() if beam else [], strict=True):  # those that stay
            found[walk.entities] = (sum(walk.slopes) + most, walk)
        for walk in beam:
            if len(walk.messages) < length:
                left = length - len(walk.messages) - 1
                for most, longer in _longer(walk, sent, slope, bound[left], closing=left == 0):
                    if longer.entities not in found or found[longer.entities][0] < most:
                        found[longer.entities] = (most, longer)
        able = sorted((one for one in found.values() if one[0] > -torch.inf), key=lambda one: one[0], reverse=True)
        beam = [walk for _, walk in able[:_WIDTH]]
    return beam


def _longer(walk: Walk, sent: Segments, slope: Tensor, bound: Tensor, *, closing: bool) -> Iterator[tuple[float, Walk]]:
    """Yield the best walks with one message more, each after the largest sum in reach; the last may close a cycle."""
    part = slice(*sent.offsets[walk.entities[-1] :][:2].tolist())
    message, receiver = sent.order[part], sent.left[part]
    visited = torch.tensor(walk.entities[closing:], dtype=torch.long, device=receiver.device)
    most = (slope[message] + bound[receiver]).masked_fill(torch.isin(receiver, visited), -torch.inf)
    best = most.topk(min(_WIDTH, len(most))).indices
    columns = (column[best].tolist() for column in (most, message, receiver, slope[message]))
    for reach, number, entity, value in zip(*columns, strict=True):
        longer = Walk((*walk.messages, number), (*walk.slopes, value), (*walk.entities, entity))
        yield sum(walk.slopes) + reach, longer
