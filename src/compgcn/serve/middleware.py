"""Checks and records of every request: limits, key, origin, safety headers, counters."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple

from fastapi import HTTPException, Request, Security
from fastapi.responses import JSONResponse
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import Counter, Histogram
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Limits(NamedTuple):
    """Bounds on what the server accepts at once, and on how long it waits."""

    batch: int = 64  # queries scored together
    queue: int = 512  # questions that wait for a model; the next one gets 503
    seconds: float = 30.0  # for an answer, waiting included; then 504
    body: int = 64 * 1024  # bytes of a request body; then 413
    read_seconds: float = 10.0  # for a client to send a request
    write_seconds: float = 30.0  # for a client to take its answer
    idle_seconds: int = 15  # for an open connection without a request
    connections: int = 1000  # open at once; the last one gets 503
    stop_seconds: int = 40  # for the requests in flight when the server stops


REQUESTS = Counter("compgcn_requests", "Requests answered; status 0 is a broken connection.", ("route", "status"))
SECONDS = Histogram(
    "compgcn_request_seconds",
    "Seconds from request to answer.",
    ("route",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
# Only this server may supply parts of the page; plotly alone needs inline style elements.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_BEARER = HTTPBearer(scheme_name="bearer", auto_error=False)
_HEADER = APIKeyHeader(name="X-API-Key", scheme_name="header", auto_error=False)
_log = logging.getLogger(__name__)


class Observer:
    """Add the safety headers to every answer, count it, and turn an unexpected error into a 500 without details."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # uvicorn sends no body in answer to it
            scope = {**scope, "method": "GET"}
        begun, status = time.perf_counter(), 0

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._app(scope, receive, respond)
        except Exception:
            _log.exception("a request failed")
            if status:  # the answer has begun: uvicorn closes the connection
                raise
            detail = "something went wrong on the server; see the server's log"
            await JSONResponse({"detail": detail}, 500)(scope, receive, respond)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            REQUESTS.labels(route, status).inc()
            SECONDS.labels(route).observe(time.perf_counter() - begun)


async def require_same_origin(request: Request) -> None:
    """Refuse a request that a browser makes for a page of another site."""
    if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        raise HTTPException(403, "a page of another site asked; ask from this server's own page, or from a program")


def require_key(key: str) -> Callable[..., Awaitable[None]]:
    """Return a dependency that refuses requests without the key, given as a bearer token or as X-API-Key."""

    async def check(
        bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
        header: Annotated[str | None, Security(_HEADER)],
    ) -> None:
        given = bearer.credentials if bearer else "", header or ""
        if not any(secrets.compare_digest(one.encode(), key.encode()) for one in given):
            detail = "give the key of this server as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
            raise HTTPException(401, detail, {"WWW-Authenticate": "Bearer"})

    return check
