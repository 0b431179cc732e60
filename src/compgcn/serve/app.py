"""The application: every endpoint, and what is answered when something is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response

from compgcn import __version__
from compgcn.errors import InputError
from compgcn.serve import shapes
from compgcn.serve.batching import BusyError, Lane, LateError
from compgcn.serve.documents import add_documents, describe_key
from compgcn.serve.middleware import FACTS, FOUND, NAME, POINTS, TOP, Counters, Gate, Limits, Watch
from compgcn.serve.models import Served, UnknownError, as_json

Model = Annotated[str | None, Query(max_length=NAME, description="the id of a model; the first if left out")]
Entity = Annotated[str, Query(min_length=1, max_length=NAME, description="an id or a name")]

_REASONS = {
    400: "What is asked does not make sense, such as a name that several share.",
    401: "The key is missing or wrong.",
    403: "A page of another site asked.",
    404: "Nothing is called that.",
    408: "The request was not sent whole in time.",
    413: "The request is too large.",
    422: "The request is not of the shape described.",
    503: "Too many wait already; ask again in a second.",
    504: "The answer took too long.",
}


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": shapes.Problem, "description": _REASONS[status]} for status in statuses}


_LOOK = _problems(400, 401, 403, 404, 413, 422)
_ASK = _problems(400, 401, 403, 404, 408, 413, 422, 503, 504)


class Reply(Response):
    """JSON, of what is JSON already or is made so."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else as_json(content)


class Application:
    """The endpoints over some models.

    Args:
        models: by their ids; the first answers where none is named.
        limits: what the server takes on.
    """

    def __init__(self, models: Mapping[str, Served], limits: Limits) -> None:
        self.models, self.limits, self.counters = models, limits, Counters()
        self.lanes: dict[tuple[str, str], Lane] = {
            (name, lane): at for name, model in models.items() for lane, at in model.lanes.items()
        }
        cards = [model.card for model in models.values()]
        self._cards = as_json({"models": cards, "timeout": limits.seconds})

    @asynccontextmanager
    async def life(self, _: FastAPI) -> AsyncIterator[None]:
        """Lanes are open while the server is up; when it stops, what waits in them is answered first."""
        for lane in self.lanes.values():
            lane.open()
        yield
        for lane in self.lanes.values():
            await lane.close()

    def model(self, name: str | None) -> Served:
        """The model of that id."""
        if name is None or name == "":
            return next(iter(self.models.values()))
        if name not in self.models:
            raise UnknownError("model", name)
        return self.models[name]

    async def _view(self, model: Served, call: Callable[[], bytes]) -> Response:
        return Reply(await model.views.ask(call, self.limits.seconds))

    async def health(self) -> Response:  # on the event loop: threads may all be busy
        """Whether the server is up; needs no key."""
        return Reply({"status": "ok", "models": len(self.models)})

    async def metrics(self) -> Response:
        """Counters in the text format of Prometheus."""
        return Response(self.counters.text(self.lanes), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def list_models(self) -> Response:
        """The models, with what they were trained on, how good they are, their curves and queries worth trying."""
        return Reply(self._cards)

    async def entities(
        self,
        model: Model = None,
        q: Annotated[str, Query(max_length=NAME, description="the beginning or a part of a name")] = "",
        limit: Annotated[int, Query(ge=1, le=FOUND)] = 10,
    ) -> Response:
        """Entities by a part of their names, those that begin with it first; without one, the best connected."""
        chosen = self.model(model)
        return await self._view(chosen, partial(chosen.found, q.strip(), limit))

    async def relations(self, model: Model = None) -> Response:
        """All relations, with the number of their facts."""
        return Reply(self.model(model).relations)

    async def predict(self, request: shapes.PredictRequest) -> Response:
        """The best tails of (head, relation, ?), heads of (?, relation, tail) or relations of (head, ?, tail)."""
        if [request.head, request.relation, request.tail].count(None) != 1:
            raise InputError("give two of head, relation and tail; the third is what is predicted")
        model = self.model(request.model)
        query = (
            None if request.head is None else model.entity(request.head),
            None if request.relation is None else model.relation(request.relation),
            None if request.tail is None else model.entity(request.tail),
        )
        found = await model.predictions.ask((query, request.top, request.new), self.limits.seconds)
        answers = [
            {"rank": rank, "entity": entity, "name": name, "score": score, "probability": chance, "known": known}
            for rank, (entity, name, score, chance, known) in enumerate(found, 1)
        ]
        kind = "relations" if request.relation is None else "entities"
        return Reply({"model": model.name, "answers_are": kind, "answers": answers})

    async def explain(self, request: shapes.ExplainRequest) -> Response:
        """The facts that carried a prediction, with signed contributions to its score."""
        model = self.model(request.model)
        fact = model.entity(request.head), model.relation(request.relation), model.entity(request.tail)
        found = await model.explanations.ask(partial(model.explain, fact, request.top), self.limits.seconds)
        return Reply(found)

    async def neighbourhood(
        self, entity: Entity, model: Model = None, limit: Annotated[int, Query(ge=1, le=FACTS)] = 50
    ) -> Response:
        """The facts that an entity takes part in, and the split each stands in."""
        chosen = self.model(model)
        return await self._view(chosen, partial(chosen.neighbourhood, chosen.entity(entity), limit))

    async def similar(
        self, entity: Entity, model: Model = None, top: Annotated[int, Query(ge=1, le=TOP)] = 10
    ) -> Response:
        """The entities whose vectors point the same way."""
        chosen = self.model(model)
        return await self._view(chosen, partial(chosen.similar, chosen.entity(entity), top))

    async def map(self, model: Model = None, limit: Annotated[int, Query(ge=1, le=POINTS)] = 5000) -> Response:
        """The best connected entities in the principal plane of their vectors."""
        chosen = self.model(model)
        return await self._view(chosen, partial(chosen.map, limit))


def create_app(
    models: Mapping[str, Served],
    limits: Limits | None = None,
    key: str | None = None,
    hosts: tuple[str, ...] | None = None,
) -> FastAPI:
    """The FastAPI application over these models; `key` and `hosts` as in `Gate`."""
    limits = limits or Limits()
    routes = Application(models, limits)
    app = FastAPI(
        title="compgcn",
        version=__version__,
        description="Trained models over HTTP: predict, explain, look around.",
        lifespan=routes.life,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
    )
    for path, call, method, shape, problems in (
        ("/health", routes.health, "GET", shapes.Health, {}),
        ("/api/models", routes.list_models, "GET", shapes.Models, _problems(401, 403, 413)),
        ("/api/entities", routes.entities, "GET", shapes.Entities, _ASK),
        ("/api/relations", routes.relations, "GET", shapes.Relations, _LOOK),
        ("/api/predict", routes.predict, "POST", shapes.Predictions, _ASK),
        ("/api/explain", routes.explain, "POST", shapes.Explained, _ASK),
        ("/api/neighbourhood", routes.neighbourhood, "GET", shapes.Neighbourhood, _ASK),
        ("/api/similar", routes.similar, "GET", shapes.SimilarEntities, _ASK),
        ("/api/map", routes.map, "GET", shapes.Map, _ASK),
    ):
        app.add_api_route(path, call, methods=[method], response_model=shape, responses=problems)
    app.add_api_route(
        "/metrics", routes.metrics, methods=["GET"], response_class=Response, responses=_problems(401, 403, 413)
    )
    add_documents(app)
    if key is not None:
        describe_key(app)
    for kind, answer in _ANSWERS.items():
        app.add_exception_handler(kind, answer)
    app.add_middleware(Gate, limits=limits, key=key, hosts=hosts)
    app.add_middleware(Watch, counters=routes.counters)
    return app


async def _misshapen(_: Request, error: Exception) -> Response:
    """The first thing wrong with a request, in a sentence."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return Reply({"detail": f"the body is not JSON: {first.get('ctx', {}).get('error', 'it cannot be read')}"}, 422)
    if first["loc"] == ("body",) and isinstance(error.body, bytes):  # no header says that it is JSON
        return Reply({"detail": "this is not marked as JSON; send the header 'content-type: application/json'"}, 422)
    where = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    return Reply({"detail": f"{where}: {first['msg']}"}, 422)


async def _nothing(_: Request, error: Exception) -> Response:
    """What nothing is called, and what may have been meant."""
    assert isinstance(error, UnknownError)
    return Reply({"detail": await error.sentence()}, 404)


def _sentence(status: int, detail: str | None = None, **headers: str) -> Callable[[Request, Exception], Any]:
    """Answers an exception: with its own sentence, or with this."""

    async def answer(_: Request, error: Exception) -> Response:
        return Reply({"detail": detail or str(error)}, status, headers)

    return answer


_ANSWERS: dict[type[Exception], Callable[[Request, Exception], Any]] = {
    RequestValidationError: _misshapen,
    UnknownError: _nothing,
    InputError: _sentence(400),
    BusyError: _sentence(503, "too many questions wait already; ask again in a second", **{"Retry-After": "1"}),
    LateError: _sentence(504, "the answer took too long; ask for less, or again when the server is less busy"),
}
