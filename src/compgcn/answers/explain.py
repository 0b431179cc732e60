"""Which facts of the graph carried a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from compgcn.errors import InputError, unknown
from compgcn.nn.graph import COUNT_SENT, Neighbourhood, RelationalGraph
from compgcn.tasks.link_prediction import LinkPredictor

if TYPE_CHECKING:
    from compgcn.answers.links import Links


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


Method = Literal["auto", "exact", "gradient"]

EXACT_WORK = 2**21  # edges that "auto" goes over to leave out every fact by itself: about a second on a core


class Contribution(NamedTuple):
    """What a fact of the graph does for a score."""

    head: str  # ids
    relation: str
    tail: str
    head_name: str
    relation_name: str
    tail_name: str
    contribution: float  # the score with the fact minus the score without it: exact, or estimated to first order


class Explanation(NamedTuple):
    """A fact, what the model makes of it, and the facts of the graph that this rests on."""

    head: str  # ids
    relation: str
    tail: str
    score: float  # a logit, that of the tail as an answer to (head, relation, ?)
    probability: float
    known: str | None  # the split the fact stands in
    method: Literal["exact", "gradient"]
    edges: int  # how many facts were weighed: exact, all that the score depends on; else those that send it anything
    facts: list[Contribution]  # largest first, whatever their sign

    def is_itself(self, fact: Contribution) -> bool:
        """Whether this is the fact that is explained: one of train is an edge of the graph like any other."""
        return fact[:3] == self[:3]


def explain(links: Links, head: str, relation: str, tail: str, top: int = 5, method: Method = "auto") -> Explanation:
    """The facts of train that carried (head, relation, tail), each with what the score would lose without it.

    The exact method leaves each fact out, with its inverse, and encodes the graph that remains, degrees and all; it
    weighs every fact that the score depends on, those that only count in a sender's degree too. The gradient is the
    slope of the score in the weight of the fact's messages, which is the same to first order with degrees as they are;
    it weighs the facts whose messages reach the score, and says nothing of what further ones do through degrees.

    Args:
        links: what is asked.
        head, relation, tail: by id or name; the fact need not be known.
        top: how many facts.
        method: "auto" is exact where that is little work.
    """
    _must_have_edges(links)
    if not isinstance(top, int) or top < 1:
        raise InputError(f"top must be a whole number from 1 on, not {top!r}")
    if method not in get_args(Method):
        raise unknown("method", method, get_args(Method))
    data = links.data
    s, o = (data.entities.index(text) for text in (head, tail))
    r = data.relations.index(relation)
    answer = links.fact(s, r, o)
    field = receptive_field(links.task.model, links.task.graph, (s, r, o))
    exact = method == "exact" or (method == "auto" and is_small(field))
    weighed, values = contributions(links, (s, r, o), field, exact=exact)
    best = values.abs().sort(descending=True, stable=True).indices[:top]
    return Explanation(
        data.entities.ids[s],
        data.relations.ids[r],
        data.entities.ids[o],
        answer.score,
        answer.probability,
        answer.known,
        "exact" if exact else "gradient",
        len(weighed),
        _named(links, weighed[best], values[best]),
    )


def is_small(field: Field) -> bool:
    """Whether every fact that a score depends on is worth leaving out by itself."""
    return field.work <= EXACT_WORK


def contributions(links: Links, triple: Triple, field: Field, *, exact: bool) -> tuple[Tensor, Tensor]:
    """The edges that are weighed [K] and what each does for the score [K]: left out in turn, or by the slope."""
    model, graph = links.task.model, links.task.graph
    if exact:
        return field.counted, differences(model, graph, triple, field)
    return field.edges, slopes(model, graph, triple, field)


def _named(links: Links, edges: Tensor, values: Tensor) -> list[Contribution]:
    """Edges with their ids and names: edge i of the graph is fact i of train."""
    entities, relations = links.data.entities, links.data.relations
    found = []
    for (s, r, o), value in zip(links.data.train[edges.cpu().numpy()].tolist(), values.tolist(), strict=True):
        ids = entities.ids[s], relations.ids[r], entities.ids[o]
        found.append(Contribution(*ids, entities.names[s], relations.names[r], entities.names[o], value))
    return found


def _must_have_edges(links: Links) -> None:
    """Refuse a model that no fact of the graph takes part in."""
    encoder = links.config.encoder
    if not len(links.task.model.encoder.layers):
        raise InputError(
            f"the encoder '{encoder.name}' sends no messages, so no edge carried this prediction; explain a run with a "
            "graph encoder, such as --encoder compgcn"
        )
    if encoder.graph != "given":
        raise InputError(f"this run was trained with encoder.graph '{encoder.graph}', so its edges are not facts")
