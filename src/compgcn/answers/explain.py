"""Explain a prediction: find the facts of train that carried its score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from compgcn.answers.links import Links, must_count
from compgcn.answers.paths import Path, QueryScore, Step, Triple, Walk
from compgcn.errors import InputError, must_be_known
from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.nn.graph import COUNT_SENT, Neighbourhood, RelationalGraph
from compgcn.tasks.link_prediction import LinkPredictor

Method = Literal["auto", "exact", "gradient"]

EXACT_WORK = 2**21  # edges that "auto" goes over to leave out every fact by itself: about a second on a core
_TRIED = 32  # facts of the largest slopes that are left out, at least, if the model is conditioned on the query
_EDGES = 2**19  # of all copies of a neighbourhood that are scored at a time


class Contribution(NamedTuple):
    """A fact of train and its effect on a score."""

    head: str  # ids, then names
    relation: str
    tail: str
    head_name: str
    relation_name: str
    tail_name: str
    contribution: float  # the score with the fact minus the score without it, exact or to first order


class Explanation(NamedTuple):
    """A fact, its score, and the facts of train that the score rests on."""

    head: str  # ids
    relation: str
    tail: str
    score: float  # the logit of the tail as an answer to (head, relation, ?)
    probability: float
    known: str | None  # the split that holds the fact
    method: Literal["exact", "gradient"]
    edges: int  # as many facts were weighed
    facts: list[Contribution]  # by size, whatever their sign
    paths: list[Path]  # of a model conditioned on the query, most important first
    hidden: int  # number of training facts hidden, so that the fact does not explain itself

    def is_itself(self, fact: Contribution) -> bool:
        """Return whether a contribution is that of the explained fact itself."""
        return fact[:3] == self[:3]


class Field(NamedTuple):
    """The edges of a graph that the score of a triple depends on."""

    near: Neighbourhood  # of s and o
    edges: Tensor  # those whose messages reach the score, ascending [F]
    counted: Tensor  # all that the score depends on, ascending: a norm may count edges at a sender too [C]
    kind: Tensor  # edges of one kind have the same effect [C]
    one: Tensor  # the first edge of each kind [G]


def explain(links: Links, head: str, relation: str, tail: str, top: int = 5, method: Method = "auto") -> Explanation:
    """Return the facts of train that carried (head, relation, tail), each with its contribution to the score.

    The exact method leaves out each fact in turn, with its inverse, and encodes the remaining graph, degrees and all.
    The gradient method takes the slope of the score in the weight of a fact's messages: the same to first order, with
    degrees as they are. The method "auto" is exact if that is little work.

    A model conditioned on the query has paths too, from the head to the tail; there the exact method leaves out the
    facts of the largest slopes alone. If train holds the fact, it is hidden as in training: the score is without it.
    """
    must_count("top", top)
    must_be_known("method", method, get_args(Method))
    encoder, data = links.config.encoder, links.data
    if encoder.graph != "given":
        raise InputError(f"this run was trained with encoder.graph '{encoder.graph}', so its edges are not facts")
    s, r, o = triple = data.entities.index(head), data.relations.index(relation), data.entities.index(tail)
    answer, walks, hidden = links.fact(*triple), list[Walk](), 0
    if isinstance(links.task.model, ConditionalCompGCN):
        asked = score_of(links, triple)
        hidden = asked.hidden
        slopes, number = asked.slopes(), left_out(asked, top, method)
        weighed, values = asked.contributions(slopes, number)
        walks, exact = asked.walks(slopes, top), number > 0
    else:
        if not len(links.task.predictor.encoder.layers):
            raise InputError(
                "this model has no graph encoder: it answers by a learned vector of each entity, so no fact carried "
                "the prediction; train one that has, such as --model conditional or --encoder compgcn"
            )
        field = receptive_field(links.task.predictor, links.task.graph, triple)
        exact = method == "exact" or (method == "auto" and is_small(field))
        weighed, values = contributions(links, triple, field, exact=exact)
    best = values.abs().sort(descending=True, stable=True).indices[:top]
    rows = data.train[weighed[best].cpu().numpy()].tolist()  # edge i of the graph is fact i of train
    return Explanation(
        *links.named(s, r, o)[:3],
        *(answer.score, answer.probability, answer.known),
        "exact" if exact else "gradient",
        len(weighed),
        [Contribution(*links.named(*row), value) for row, value in zip(rows, values[best].tolist(), strict=True)],
        [_path(links, walk) for walk in walks],
        hidden,
    )


def score_of(links: Links, triple: Triple) -> QueryScore:
    """Return the score of a triple by a model conditioned on the query."""
    model = links.task.model
    assert isinstance(model, ConditionalCompGCN)
    keep = links.keep_without(*torch.tensor(triple, device=links.device).view(3, 1))
    return QueryScore(model, links.task.graph, triple, keep)


def left_out(asked: QueryScore, top: int, method: Method) -> int:
    """Return how many facts a method leaves out one by one: 0 for the gradient."""
    number = max(_TRIED, top)
    work = number * len(asked.model.layers) * asked.graph.num_edges
    return number if method == "exact" or (method == "auto" and work <= EXACT_WORK) else 0


def _path(links: Links, walk: Walk) -> Path:
    facts = links.data.train
    steps = [
        Step(*links.named(*facts[message % len(facts)].tolist()), message < len(facts), slope)
        for message, slope in zip(walk.messages, walk.slopes, strict=True)
    ]
    return Path(walk.importance, steps)


def is_small(field: Field) -> bool:
    """Return whether "auto" leaves out every fact of a field by itself."""
    return len(field.one) * len(field.counted) <= EXACT_WORK


def receptive_field(model: LinkPredictor, graph: RelationalGraph, triple: Triple) -> Field:
    """Return the edges of the graph that the score of a triple depends on."""
    s, _, o = triple
    near = graph.around(torch.tensor([s, o], device=graph.src.device), len(model.encoder.layers))
    every = torch.arange(graph.num_edges, device=graph.src.device)
    edges = near.layers[0].of_whole(every)
    if not any(layer.norm in COUNT_SENT for layer in model.encoder.layers):
        return Field(near, edges, edges, torch.arange(len(edges), device=every.device), edges)
    outside = graph.num_nodes
    end = torch.full((outside,), outside, device=every.device)  # a node itself, if it is near [N]
    end[near.nodes] = near.nodes
    counted = (torch.minimum(end[graph.src], end[graph.dst]) < outside).nonzero().squeeze(1)
    # Between the rim and the outside, or along the rim, only the ends at the rim matter.
    ends = end[graph.src[counted]] * (outside + 1) + end[graph.dst[counted]]
    key = torch.where(torch.isin(counted, edges), -1 - counted, ends)
    keys, kind = torch.unique(key, return_inverse=True)
    one = torch.full_like(keys, graph.num_edges).scatter_reduce(0, kind, counted, "amin")
    return Field(near, edges, counted, kind, one)


def contributions(links: Links, triple: Triple, field: Field, *, exact: bool) -> tuple[Tensor, Tensor]:
    """Return the edges that are weighed and the contribution of each to the score, both [K]."""
    model, graph = links.task.predictor, links.task.graph
    if not exact:
        return field.edges, slopes(model, graph, triple, field)
    scores = scores_without(model, graph, triple, field, [field.one[:0], *torch.split(field.one, 1)])
    return field.counted, (scores[0] - scores[1:])[field.kind]


def slopes(model: LinkPredictor, graph: RelationalGraph, triple: Triple, field: Field) -> Tensor:
    """Return d score / d weight for each edge of the field [F]; a weight multiplies both messages of an edge."""
    with torch.inference_mode(False), torch.enable_grad():
        keep = torch.ones(graph.num_edges, device=graph.src.device, requires_grad=True)
        score = _scores(model, field.near, field.near.nodes, triple, keep)
        (slope,) = torch.autograd.grad(score.sum(), keep, materialize_grads=True)
    return slope[field.edges]


@torch.no_grad()
def scores_without(
    model: LinkPredictor, graph: RelationalGraph, triple: Triple, field: Field, deletions: Sequence[Tensor]
) -> Tensor:
    """Return the scores of a triple on the graph without some edges, for each of K sets of edge numbers [K].

    The scores are those of encoding each smaller graph as a whole, norms included. Only the neighbourhood is copied,
    once for each set, and the copies are scored side by side.
    """
    src, dst, rel = (ends[field.counted] for ends in (graph.src, graph.dst, graph.rel))
    ends = torch.tensor(triple, device=src.device)[[0, 2]]
    nodes = torch.unique(torch.cat((src, dst, ends)))  # of one copy, ascending [n]
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
    return torch.cat(found)


def _scores(
    model: LinkPredictor, near: Neighbourhood, rows: Tensor, triple: Triple, keep: Tensor | None = None
) -> Tensor:
    """Return the scores of a triple in copies of its neighbourhood [K], whose places are s, o, s, o, .. [2K]."""
    _, r, o = triple
    x, z = model.encoder(near.layers, rows, keep)
    relations = z if model.relations is None else model.relations()
    subjects, objects = x[near.places].view(-1, 2, x.shape[1]).unbind(1)  # [K, d]
    return model.decoder.pairs(subjects, relations[r].expand(len(subjects), -1), objects, o)
