"""What the edges of a graph do for the score of a triple: leave them out and score again, or take a slope at once.

The edges that can carry anything to the score of (s, r, o) are those at the nodes fewer hops than the encoder has
layers away from s or o. Where a norm counts what a sender sends, the edges at those that send from the rim act on the
score as well, through these degrees alone. Leaving an edge out removes its message and that of its inverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from compgcn.graph import Neighbourhood, RelationalGraph
from compgcn.norms import COUNT_SENT
from compgcn.tasks.link_prediction import LinkPredictor

_EDGES = 2**19  # edges of all copies of a neighbourhood that are scored at a time

Triple = tuple[int, int, int]  # (s, r, o) by rows; r may be an inverse, from R on


class Field(NamedTuple):
    """The receptive field of a triple's score in a graph of N nodes and E edges."""

    near: Neighbourhood  # of s and o
    edges: Tensor  # [F], those whose messages can reach the score, ascending
    counted: Tensor  # [C], all that the score depends on, ascending: these, and those that a norm counts at a sender
    kind: Tensor  # [C], of each of `counted`: to leave out one or another of a kind is the same
    one: Tensor  # [G], the first edge of each kind

    @property
    def work(self) -> int:
        """How many edges leaving out each one by itself goes over."""
        return len(self.one) * len(self.counted)


def receptive_field(model: LinkPredictor, graph: RelationalGraph, triple: Triple) -> Field:
    """Which edges of the graph the score of a triple depends on."""
    s, _, o = triple
    near = graph.around(torch.tensor([s, o], device=graph.src.device), len(model.encoder.layers))
    every = torch.arange(graph.num_edges, device=graph.src.device)
    edges = near.layers[0].of_whole(every) if near.layers else every[:0]
    if not any(layer.norm in COUNT_SENT for layer in model.encoder.layers):
        return Field(near, edges, edges, torch.arange(len(edges), device=every.device), edges)
    outside = graph.num_nodes
    end = torch.full((outside,), outside, device=every.device)  # [N], a node itself, if it is near
    end[near.nodes] = near.nodes
    counted = (torch.minimum(end[graph.src], end[graph.dst]) < outside).nonzero().squeeze(1)
    # Between the rim and what lies outside, or along the rim, only the ends at the rim matter.
    ends = end[graph.src[counted]] * (outside + 1) + end[graph.dst[counted]]
    key = torch.where(torch.isin(counted, edges), -1 - counted, ends)
    keys, kind = torch.unique(key, return_inverse=True)
    one = torch.full_like(keys, graph.num_edges).scatter_reduce(0, kind, counted, "amin")
    return Field(near, edges, counted, kind, one)


def _scores(
    model: LinkPredictor, near: Neighbourhood, rows: Tensor, triple: Triple, keep: Tensor | None = None
) -> Tensor:
    """The scores of a triple in copies of its neighbourhood [K]; the nodes asked for are s, o, s, o, .. [2K]."""
    _, r, o = triple
    x, z = model.encoder(near.layers, rows, keep)
    relations = z if model.relations is None else model.relations()
    subjects, objects = x[near.places].view(-1, 2, x.shape[1]).unbind(1)  # [K, d]
    return model.decoder.pairs(subjects, relations[r].expand(len(subjects), -1), objects, o)


def slopes(model: LinkPredictor, graph: RelationalGraph, triple: Triple, field: Field) -> Tensor:
    """d score / d weight of each edge of the field [F], where a weight multiplies both messages of an edge, at 1.

    To first order that is what the score loses without the edge, if the norm of the others stays as it is.
    """
    with torch.inference_mode(False), torch.enable_grad():
        keep = torch.ones(graph.num_edges, device=graph.src.device, requires_grad=True)
        score = _scores(model, field.near, field.near.nodes, triple, keep)
        (slope,) = torch.autograd.grad(score.sum(), keep, materialize_grads=True)
    return slope[field.edges]


def differences(model: LinkPredictor, graph: RelationalGraph, triple: Triple, field: Field) -> Tensor:
    """The score of the triple minus its score without each edge of `field.counted` in turn [C]."""
    scores = scores_without(model, graph, triple, field, [field.one[:0], *torch.split(field.one, 1)])
    return (scores[0] - scores[1:])[field.kind]


@torch.no_grad()
def scores_without(
    model: LinkPredictor, graph: RelationalGraph, triple: Triple, field: Field, deletions: Sequence[Tensor]
) -> Tensor:
    """The score of the triple on the graph without some edges, for each of K sets of them [K].

    All is computed anew, norms too: the scores are those that encoding each smaller graph as a whole would give. Only
    the neighbourhood is copied, once per set, and the copies are scored side by side.

    Args:
        model, graph, triple, field: as in `receptive_field`.
        deletions: K sets of edges, by their number in the graph; those outside `field.counted` make no difference.
    """
    src, dst, rel = (ends[field.counted] for ends in (graph.src, graph.dst, graph.rel))
    ends = torch.tensor(triple, device=src.device)[[0, 2]]
    nodes = torch.unique(torch.cat((src, dst, ends)))  # [n], what a copy has, ascending
    src, dst, ends = (torch.searchsorted(nodes, part) for part in (src, dst, ends))
    local = torch.full((graph.num_edges,), -1, device=src.device)
    local[field.counted] = torch.arange(len(src), device=src.device)
    step = max(1, _EDGES // max(1, len(src)))
    found = []
    for first in range(0, len(deletions), step):
        sets = deletions[first : first + step]
        stay = torch.ones(len(sets), len(src), dtype=torch.bool, device=src.device)
        for row, edges in zip(stay, sets, strict=True):
            gone = local[edges]
            row[gone[gone >= 0]] = False
        shift = len(nodes) * torch.arange(len(sets), device=src.device).unsqueeze(1)  # [K, 1]
        copies = RelationalGraph(
            (src + shift)[stay],
            (dst + shift)[stay],
            rel.expand(len(sets), -1)[stay],
            len(sets) * len(nodes),
            graph.num_relations,
        )
        near = copies.around((ends + shift).flatten(), len(model.encoder.layers))
        found.append(_scores(model, near, nodes[near.nodes % len(nodes)], triple))
    return torch.cat(found) if found else torch.empty(0, device=src.device)
