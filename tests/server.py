"""A local web server that misbehaves on request, and archives made in memory."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from clock import HANGS

Answer = Callable[["Request"], object]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zipped(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def tarred(members: Mapping[str, bytes], *others: tarfile.TarInfo) -> bytes:
    """Return a gzipped tar of files, followed by other members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
        for info in others:
            file.addfile(info)
    return buffer.getvalue()


class Request(BaseHTTPRequestHandler):
    """One request; an answer is a function of it."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.close_connection = True
        self.server.seen.append((self.path, dict(self.headers)))
        answer = self.server.answers.get(self.path.partition("?")[0])
        if answer is None:
            self.send(b"nothing here", status=404)
        else:
            answer(self)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def head(self, status: int, headers: Mapping[str, Any]) -> None:
        self.send_response(status)
        for name, value in {"Connection": "close", **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()

    def send(self, data: bytes, status: int = 200, kind: str = "application/octet-stream") -> None:
        self.head(status, {"Content-Type": kind, "Content-Length": len(data)})
        self.wfile.write(data)

    def send_range(self, data: bytes, most: int | None = None) -> bytes:
        """Send at most so many bytes from the requested start; return the rest."""
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.head(206 if start else 200, {"Content-Length": len(data) - start})
        end = len(data) if most is None else start + most
        self.wfile.write(data[start:end])
        return data[end:]


class Server(ThreadingHTTPServer):
    """Paths and their answers.

    Attributes:
        answers: a function of the request for each path.
        seen: path and headers of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.answers: dict[str, Answer] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def url(self, path: str, who: str = "") -> str:
        return f"http://{who}127.0.0.1:{self.port}{path}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # some clients leave early


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


# Answers


def whole(data: bytes, kind: str = "application/octet-stream") -> Answer:
    """Send the whole file, whatever the range."""
    return lambda request: request.send(data, kind=kind)


def resumable(data: bytes) -> Answer:
    """Send the file from the requested start; refuse a start at its end."""

    def answer(request: Request) -> None:
        if request.headers.get("Range") == f"bytes={len(data)}-":
            request.head(416, {"Content-Length": 0})
        else:
            request.send_range(data)

    return answer


def cut(data: bytes, each: int) -> Answer:
    """Send at most `each` bytes from the requested start, then close the connection."""
    return lambda request: request.send_range(data, each)


def silent(request: Request) -> None:
    """Send nothing until the client leaves."""
    request.rfile.read(1)


def held(data: bytes, first: int, go: threading.Event) -> Answer:
    """Send `first` bytes from the requested start, and the rest once `go` is set."""

    def answer(request: Request) -> None:
        rest = request.send_range(data, first)
        if go.wait(HANGS):
            request.wfile.write(rest)

    return answer


def redirect(target: str) -> Answer:
    return lambda request: request.head(302, {"Location": target, "Content-Length": 0})
