"""What every request passes on its way in and out: host, key and size are checked, headers set, and all is counted."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from pydantic_core import to_json

from compgcn.serve.batching import Lane

TOP = 1000  # answers to one query
FOUND = 100  # entities of a search
FACTS = 500  # facts of a neighbourhood, or of an explanation
POINTS = 20_000  # of the map
NAME = 2000  # letters of a name that is asked for; an IRI may be long


class Limits(NamedTuple):
    """What the server takes on at once, and how long it waits."""

    batch: int = 64  # queries scored together
    queue: int = 512  # questions that wait for a model; one more is answered 503
    seconds: float = 30.0  # for an answer, waiting included; after that it is 504
    body: int = 64 * 1024  # bytes of a request; more is 413
    read_seconds: float = 10.0  # for a client to send a request whole
    write_seconds: float = 30.0  # for a client that does not take its answer
    idle_seconds: int = 15  # a connection may stay open without a request
    connections: int = 1000  # open at once; one more is answered 503
    stop_seconds: int = 40  # for what is in flight when the server is told to stop


BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds, of the histogram

Family = tuple[str, str, str, list[tuple[str, float]]]  # name, kind, help, (labels, value)


class Counters:
    """Requests by route and status, and how long they took by route; only the event loop counts."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def count(self, route: str, status: int, seconds: float) -> None:
        """One more request."""
        self._requests[route, status] += 1
        buckets = self._buckets.setdefault(route, [0] * (len(BOUNDS) + 1))
        buckets[bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def text(self, lanes: Mapping[tuple[str, str], Lane]) -> str:
        """All of it; `lanes` by model and name."""
        lines = []
        for name, kind, what, values in (*self._of_requests(), *_of_lanes(lanes)):
            lines += [f"# HELP compgcn_{name} {what}", f"# TYPE compgcn_{name} {kind}"]
            lines += [f"compgcn_{suffix} {value}" for suffix, value in values]
        return "\n".join(lines) + "\n"

    def _of_requests(self) -> Iterator[Family]:
        served = [
            (f'requests_total{{route="{_escaped(route)}",status="{status}"}}', float(n))
            for (route, status), n in sorted(self._requests.items())
        ]
        yield "requests_total", "counter", "Requests answered; status 0 is a connection that broke.", served
        rows: list[tuple[str, float]] = []
        for route, buckets in sorted(self._buckets.items()):
            label, below = f'route="{_escaped(route)}"', 0
            for bound, n in zip((*BOUNDS, "+Inf"), buckets, strict=True):
                below += n
                rows.append((f'request_seconds_bucket{{{label},le="{bound}"}}', below))
            rows += [(f"request_seconds_sum{{{label}}}", self._seconds[route])]
            rows += [(f"request_seconds_count{{{label}}}", below)]
        yield "request_seconds", "histogram", "Seconds from request to answer.", rows


def _of_lanes(lanes: Mapping[tuple[str, str], Lane]) -> Iterator[Family]:
    labels = {key: f'{{model="{_escaped(key[0])}",lane="{key[1]}"}}' for key in lanes}
    for name, kind, what in (
        ("waiting", "gauge", "Questions in the queue."),
        ("batches", "counter", "Batches worked on."),
        ("answered", "counter", "Questions answered by them."),
    ):
        suffix = "_total" if kind == "counter" else ""
        values = [(f"{name}{suffix}{labels[key]}", float(getattr(lane, name))) for key, lane in lanes.items()]
        yield f"{name}{suffix}", kind, what, values


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# The page and what describes the interface hold nothing of a model, and a browser sends no key when it opens them.
OPEN = ("/", "/health", "/docs", "/openapi.json")
ELSEWHERE = (b"cross-site", b"same-site")  # what a browser says of a request that a page of another origin makes
LOCAL = ("localhost", "127.0.0.1", "[::1]")
# Everything from this server alone; the style elements that plotly makes are the one thing inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
UNKEPT = (b"cache-control", b"no-store")  # unless an answer says otherwise

_log = logging.getLogger(__name__)


class Watch:
    """Sets the headers of every answer, counts it, and answers 500 with a sentence to what nobody foresaw."""

    def __init__(self, app: App, counters: Counters) -> None:
        self._app, self._counters = app, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = message.get("headers", ())
                kept = () if any(name == b"cache-control" for name, _ in given) else (UNKEPT,)
                message["headers"] = [*given, *HEADERS, *kept]
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except Exception:
            _log.exception("a request failed")
            if status:  # too late for another answer; the connection is closed
                raise
            await refuse(answer, 500, "something went wrong on the server; its log says what")
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._counters.count(route, status, time.perf_counter() - begun)


class Gate:
    """Refuses what must not reach the application, and reads the body of the rest, up to a size and a time.

    Args:
        app: what is behind it.
        limits: of size and time.
        key: what a client must know, or None.
        hosts: by which names the server may be called; None for any. A page of another site that has its own name lead
            here is refused so; one that asks under the server's name is told apart by its browser.
    """

    def __init__(self, app: App, limits: Limits, key: str | None, hosts: tuple[str, ...] | None) -> None:
        self._app, self._limits, self._hosts = app, limits, hosts
        self._key = None if key is None else key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a websocket: there are none
            await send({"type": "websocket.close", "code": 1000})
            return
        headers = dict(scope["headers"])
        if self._hosts is not None and _host(headers.get(b"host", b"")) not in self._hosts:
            await refuse(send, 400, "this server is for localhost; start it with --host and a key for others")
            return
        if headers.get(b"sec-fetch-site") in ELSEWHERE and not _is_open(scope["path"]):
            await refuse(send, 403, "a page of another site asked; ask from this server's own page, or from a program")
            return
        if self._key is not None and not _is_open(scope["path"]) and not self._knows(headers):
            what = "give the key of this server as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
            await refuse(send, 401, what, [(b"www-authenticate", b"Bearer")])
            return
        try:
            async with asyncio.timeout(self._limits.read_seconds):
                body = await self._read(headers, receive)
        except TimeoutError:
            await refuse(send, 408, "the request was not sent whole in time", [(b"connection", b"close")])
            return
        if body is None:
            what = f"the request is larger than {self._limits.body} bytes"
            await refuse(send, 413, what, [(b"connection", b"close")])
            return
        await self._app(scope, _replay(body, receive), send)

    def _knows(self, headers: dict[bytes, bytes]) -> bool:
        assert self._key is not None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            given = b""
        # Both are compared, each in constant time.
        return hmac.compare_digest(given.strip(), self._key) | hmac.compare_digest(
            headers.get(b"x-api-key", b""), self._key
        )

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """The body, or None if it is too large; a length that is announced is not waited for."""
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._limits.body:
            return None
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return body  # nobody will read the answer
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._limits.body:
                return None
        return body


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith("/static/")


def _host(header: bytes) -> str:
    """The name in a Host header, without its port."""
    text = header.decode("latin-1").lower()
    return text.rpartition(":")[0] if text.rpartition(":")[2].isdigit() else text


def _replay(body: bytes, receive: Receive) -> Receive:
    """What the application receives: the body that was read, then whatever comes."""
    waiting = True

    async def replayed() -> Message:
        nonlocal waiting
        if waiting:
            waiting = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replayed


async def refuse(send: Send, status: int, detail: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """Answer with a sentence."""
    body = to_json({"detail": detail})
    fields = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *(headers or ())]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})
