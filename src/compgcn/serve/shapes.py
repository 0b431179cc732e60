"""JSON shapes of requests and answers; FastAPI builds the OpenAPI schema from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

TOP = 1000  # answers to a query
FOUND = 100  # entities of a search
FACTS = 500  # facts of a neighbourhood or an explanation
POINTS = 20_000  # points of the map
NAME = 2000  # characters of a name; an IRI can be long

Name = Annotated[str, Field(min_length=1, max_length=NAME, description="id or name")]
Chosen = Annotated[Name | None, Field(description="id of a model; the first by default")]


class Shape(BaseModel):
    """A JSON object without other keys than these."""

    model_config = ConfigDict(extra="forbid")


class Problem(Shape):
    """The reason why there is no answer, in one sentence."""

    detail: str


class Named(Shape):
    """An entity or a relation."""

    id: str
    name: str


class NamedFact(Shape):
    """A triple."""

    head: Named
    relation: Named
    tail: Named


# Requests


class PredictRequest(Shape):
    """A fact with one part missing: (head, relation, ?), (?, relation, tail) or (head, ?, tail)."""

    model: Chosen = None
    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None
    top: int = Field(10, ge=1, le=TOP, description="number of answers")
    new: bool = Field(False, description="leave out facts that are in the data already")


class ExplainRequest(Shape):
    """A fact, known or predicted."""

    model: Chosen = None
    head: Name
    relation: Name
    tail: Name
    top: int = Field(5, ge=1, le=FACTS, description="number of facts behind the prediction")


# Answers


class Health(Shape):
    status: Literal["ok"]
    models: int


class Epoch(Shape):
    epoch: int
    loss: float | None
    mrr: float | None = Field(description="validation MRR, where this epoch was evaluated")


class Example(Shape):
    """A query to try."""

    head: Named
    relation: Named


class ModelCard(Shape):
    """A model: its data, settings, metrics and training curve."""

    id: str
    name: str
    data: str
    task: str
    entities: int
    relations: int
    facts: int
    parameters: int
    metrics: dict[str, Any] = Field(description="on valid and test, as in metrics.json")
    config: dict[str, Any]
    curve: list[Epoch]
    examples: list[Example]
    vectors: bool = Field(description="whether entities have vectors, which /api/similar and /api/map need")
    calibrated: list[str] = Field(description="kinds of answers with probabilities calibrated on validation")


class Models(Shape):
    models: list[ModelCard]
    timeout: float = Field(description="seconds until an unanswered question gets 504")


class FoundEntity(Named):
    degree: int = Field(description="number of facts about it")


class Entities(Shape):
    entities: list[FoundEntity]


class Relation(Named):
    facts: int


class Relations(Shape):
    relations: list[Relation]


class Answer(Named):
    rank: int
    score: float = Field(description="logit")
    probability: float
    known: str | None = Field(description="split that contains the fact")


class Predictions(Shape):
    model: str
    answers_are: Literal["entities", "relations"]
    answers: list[Answer]


class ExplainedFact(NamedFact):
    rank: int
    contribution: float = Field(
        description="score with this fact minus score without it; by gradient, a first-order estimate with the "
        "degrees unchanged"
    )
    itself: bool = Field(description="whether this is the explained fact itself")


class PathStep(NamedFact):
    forward: bool = Field(description="whether the path goes from the head of this fact to its tail")
    importance: float = Field(description="slope of the score in the weight of this message in its layer")


class ExplainedPath(Shape):
    rank: int
    importance: float = Field(description="mean of those of the steps")
    steps: list[PathStep]


class Explained(NamedFact):
    score: float
    probability: float
    known: str | None
    method: str = Field(description="exact, or gradient where the neighbourhood is large")
    edges: int = Field(description="number of edges compared: the receptive field if exact, else the last layer's")
    facts: list[ExplainedFact]
    paths: list[ExplainedPath] = Field(description="from head to tail, if the model is conditioned on the query")
    hidden: int = Field(description="number of training facts hidden, so that a known fact does not explain itself")


class Fact(NamedFact):
    split: str


class Neighbourhood(Shape):
    entity: Named
    total: int = Field(description="number of facts in all")
    facts: list[Fact]


class Alike(Named):
    rank: int
    similarity: float = Field(description="cosine of the two vectors")


class SimilarEntities(Shape):
    entity: Named
    answers: list[Alike]


class Point(Named):
    x: float
    y: float
    degree: int
    type: str


class Map(Shape):
    points: list[Point]
    explained: list[float] = Field(description="share of the variance along each axis")
    types: str = Field(description="source of the points' types")
