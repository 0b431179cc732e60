"""Which facts of the graph carried a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from torch import Tensor

from compgcn.errors import InputError, unknown
from compgcn.tasks.edges import Field, Triple, differences, receptive_field, slopes

if TYPE_CHECKING:
    from compgcn.answers.links import Links

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
