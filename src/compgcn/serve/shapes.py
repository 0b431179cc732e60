"""What requests and answers look like; the OpenAPI schema is made of these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from compgcn.serve.middleware import FACTS, NAME, TOP

Name = Annotated[str, Field(min_length=1, max_length=NAME, description="an id or a name")]


class Shape(BaseModel):
    """A JSON object; in a request a key it does not know is an error."""

    model_config = ConfigDict(extra="forbid")


class Problem(Shape):
    """Why there is no answer, in a sentence."""

    detail: str


class Named(Shape):
    """An entity or a relation."""

    id: str
    name: str


# Requests


class PredictRequest(Shape):
    """A fact with one part missing: (head, relation, ?), (?, relation, tail) or (head, ?, tail)."""

    model: Name | None = Field(None, description="the id of a model; the first if left out")
    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None
    top: int = Field(10, ge=1, le=TOP, description="how many answers")
    new: bool = Field(False, description="leave out the facts that stand in the data already")


class ExplainRequest(Shape):
    """A fact, known or predicted."""

    model: Name | None = Field(None, description="the id of a model; the first if left out")
    head: Name
    relation: Name
    tail: Name
    top: int = Field(5, ge=1, le=FACTS, description="how many facts that carried it")


# Answers


class Health(Shape):
    """The server is up."""

    status: Literal["ok"]
    models: int


class Epoch(Shape):
    """One epoch of the training of a model."""

    epoch: int
    loss: float | None
    mrr: float | None


class Example(Shape):
    """A query worth trying."""

    head: Named
    relation: Named


class ModelCard(Shape):
    """What a model is, what it was trained on, and how good it is."""

    id: str
    name: str
    data: str
    task: str
    entities: int
    relations: int
    facts: int
    parameters: int
    metrics: dict[str, Any] = Field(description="of valid and test, as in metrics.json")
    config: dict[str, Any]
    curve: list[Epoch]
    examples: list[Example]
    calibrated: list[str] = Field(description="the kinds of answers whose probabilities are fitted to validation")


class Models(Shape):
    models: list[ModelCard]
    timeout: float = Field(description="seconds after which a question is answered 504")


class FoundEntity(Named):
    degree: int = Field(description="facts it takes part in")


class Entities(Shape):
    entities: list[FoundEntity]


class Relation(Named):
    facts: int


class Relations(Shape):
    relations: list[Relation]


class Answer(Shape):
    rank: int
    entity: str = Field(description="the id of an entity, or of a relation where relations are ranked")
    name: str
    score: float = Field(description="a logit")
    probability: float
    known: str | None = Field(description="the split the fact stands in")


class Predictions(Shape):
    model: str
    answers_are: Literal["entities", "relations"]
    answers: list[Answer]


class ExplainedFact(Shape):
    rank: int
    head: Named
    relation: Named
    tail: Named
    contribution: float = Field(
        description="the score with this fact less the score without it; by gradient a first-order estimate of that, "
        "with degrees as they are"
    )
    itself: bool = Field(description="whether it is the fact that is explained")


class Explained(Shape):
    head: Named
    relation: Named
    tail: Named
    score: float
    probability: float
    known: str | None
    method: str = Field(description="exact, or gradient where the neighbourhood is large")
    edges: int = Field(
        description="edges that were weighed: all it depends on if exact, else those that send it messages"
    )
    facts: list[ExplainedFact]


class Fact(Shape):
    head: Named
    relation: Named
    tail: Named
    split: str


class Neighbourhood(Shape):
    entity: Named
    total: int = Field(description="facts there are in all")
    facts: list[Fact]


class Alike(Shape):
    rank: int
    entity: str
    name: str
    similarity: float = Field(description="the cosine between the vectors")


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
    types: str = Field(description="what the types of the points are")
