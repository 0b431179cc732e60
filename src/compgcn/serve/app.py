"""The web application: every endpoint, the page, and the answers to mistakes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from compgcn import __version__
from compgcn.errors import InputError, unknown
from compgcn.serve import shapes
from compgcn.serve.middleware import Limits, Observer, require_key, require_same_origin
from compgcn.serve.models import ServedModel, as_json
from compgcn.serve.shapes import FACTS, FOUND, NAME, POINTS, TOP

PAGE = Path(__file__).parent / "page"
TEMPLATES = Jinja2Templates(PAGE)

_PROBLEMS = {
    400: "The question makes no sense; for example, several entities share the name.",
    401: "The key is missing or wrong.",
    403: "A page of another site asked.",
    404: "No model, entity or relation has this name.",
    413: "The request is too large.",
    422: "The request does not match the schema.",
    503: "Too many questions wait already; ask again in a second.",
    504: "The answer took too long.",
}


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": shapes.Problem, "description": _PROBLEMS[status]} for status in statuses}


async def find_model(
    request: Request,
    model: Annotated[str | None, Query(max_length=NAME, description="id of a model; the first by default")] = None,
) -> ServedModel:
    """Return a model by its id, or the first one."""
    models: Mapping[str, ServedModel] = request.app.state.models
    if model and model not in models:
        raise HTTPException(404, str(unknown("model", model, models)))
    return models[model] if model else next(iter(models.values()))


Model = Annotated[ServedModel, Depends(find_model)]
Entity = Annotated[str, Query(min_length=1, max_length=NAME, description="id or name")]


public = APIRouter()  # tells nothing about a model, so needs no key
guarded = APIRouter(responses=_problems(401, 403, 413))
_ASK = _problems(400, 404, 422, 503, 504)


@public.get("/health", response_model=shapes.Health)
async def health(request: Request) -> Response:
    """Report that the server is up; needs no key."""
    return as_json({"status": "ok", "models": len(request.app.state.models)})


@guarded.get("/api/models", response_model=shapes.Models)
async def models(request: Request) -> Response:
    """List the models, each with its data, metrics, training curve and example queries."""
    cards = [model.card for model in request.app.state.models.values()]
    return as_json({"models": cards, "timeout": request.app.state.limits.seconds})


@guarded.get("/api/entities", response_model=shapes.Entities, responses=_ASK)
async def entities(
    model: Model,
    q: Annotated[str, Query(max_length=NAME, description="beginning or part of a name")] = "",
    limit: Annotated[int, Query(ge=1, le=FOUND)] = 10,
) -> Response:
    """Search entities: names that begin with the text come first; without a text, the best connected entities."""
    return await model.look(model.search, q.strip(), limit)


@guarded.get("/api/relations", response_model=shapes.Relations, responses=_ASK)
async def relations(model: Model) -> Response:
    """List all relations with their numbers of facts."""
    return as_json({"relations": model.relations})


@guarded.post("/api/predict", response_model=shapes.Predictions, responses=_ASK)
async def predict(request: Request, asked: shapes.PredictRequest) -> Response:
    """Predict the tails of (head, relation, ?), heads of (?, relation, tail) or relations of (head, ?, tail)."""
    if [asked.head, asked.relation, asked.tail].count(None) != 1:
        raise InputError("give two of head, relation and tail; the server predicts the third")
    model = await find_model(request, asked.model)
    query = (
        None if asked.head is None else await model.entity(asked.head),
        None if asked.relation is None else await model.relation(asked.relation),
        None if asked.tail is None else await model.entity(asked.tail),
    )
    model.must_answer(query)
    found = await model.predictions.ask((query, asked.top, asked.new))
    answers = [{"rank": rank, **answer._asdict()} for rank, answer in enumerate(found, 1)]
    kind = "relations" if asked.relation is None else "entities"
    return as_json({"model": model.name, "answers_are": kind, "answers": answers})


@guarded.post("/api/explain", response_model=shapes.Explained, responses=_ASK)
async def explain(request: Request, asked: shapes.ExplainRequest) -> Response:
    """Explain a prediction: the facts behind it, with their signed contributions to its score."""
    model = await find_model(request, asked.model)
    fact = await model.entity(asked.head), await model.relation(asked.relation), await model.entity(asked.tail)
    return await model.explanations.ask(partial(model.explain, fact, asked.top))


@guarded.get("/api/neighbourhood", response_model=shapes.Neighbourhood, responses=_ASK)
async def neighbourhood(entity: Entity, model: Model, limit: Annotated[int, Query(ge=1, le=FACTS)] = 50) -> Response:
    """List the facts about an entity, each with its split."""
    return await model.look(model.neighbourhood, await model.entity(entity), limit)


@guarded.get("/api/similar", response_model=shapes.SimilarEntities, responses=_ASK)
async def similar(entity: Entity, model: Model, top: Annotated[int, Query(ge=1, le=TOP)] = 10) -> Response:
    """List the nearest neighbours of an entity, by the cosine of their vectors."""
    return await model.look(model.similar, await model.entity(entity), top)


@guarded.get("/api/map", response_model=shapes.Map, responses=_ASK)
async def embedding_map(model: Model, limit: Annotated[int, Query(ge=1, le=POINTS)] = 5000) -> Response:
    """Place the best connected entities on the first two principal components of their vectors."""
    return await model.look(model.map, limit)


@guarded.get("/metrics", response_class=Response)
async def metrics() -> Response:
    """Report counters in the text format of Prometheus."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


class PageFiles(StaticFiles):
    """The files of the page and plotly's own; a browser keeps them, and asks each time whether they have changed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


@public.get("/", include_in_schema=False)
async def page() -> Response:
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})


@public.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    return TEMPLATES.TemplateResponse(request, "docs.html", {"schema": request.app.openapi()})


def create_app(
    models: Mapping[str, ServedModel],
    limits: Limits | None = None,
    key: str | None = None,
    hosts: tuple[str, ...] | None = None,
) -> FastAPI:
    """Return the application; clients must know the key, if any, and address the server by one of `hosts`, if given.

    The check of hosts stops a web site that points its own name to this server.
    """
    app = FastAPI(
        title="compgcn",
        version=__version__,
        description="Trained models over HTTP: predict, explain, look around.",
        lifespan=_lifespan,
        docs_url=None,  # FastAPI's page loads scripts from another server
        redoc_url=None,
    )
    app.state.models, app.state.limits = models, limits or Limits()
    app.include_router(public)
    app.mount("/static", PageFiles(directory=PAGE, packages=[("plotly", "package_data")]))
    guards = [require_same_origin] if key is None else [require_same_origin, require_key(key)]
    app.include_router(guarded, dependencies=[Depends(guard) for guard in guards])
    app.add_exception_handler(RequestValidationError, _misshapen)
    app.add_exception_handler(InputError, _senseless)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=app.state.limits.body)
    if hosts is not None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    app.add_middleware(Observer)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the queues; when the server stops, answer the questions that wait."""
    queues = [queue for model in app.state.models.values() for queue in model.queues]
    for queue in queues:
        queue.open()
    yield
    for queue in queues:
        await queue.close()


async def _senseless(_: Request, error: Exception) -> Response:
    return JSONResponse({"detail": str(error)}, 400)


async def _misshapen(_: Request, error: Exception) -> Response:
    """Answer a malformed request with one sentence about the first mistake."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    detail = f"{where}: {first['msg']}"
    if first["type"] == "json_invalid":
        detail = f"the body is not JSON: {first['ctx']['error']}"
    elif isinstance(error.body, bytes):
        detail = "the body is not marked as JSON; send the header 'content-type: application/json'"
    return JSONResponse({"detail": detail}, 422)
