"""The HTTP server: address, key, limits on connections, and a graceful stop."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from compgcn.errors import InputError
from compgcn.serve.app import create_app
from compgcn.serve.middleware import Limits
from compgcn.serve.models import ServedModel

VARIABLE = "COMPGCN_API_KEY"
LOCAL = ("localhost", "127.0.0.1", "[::1]")
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 20\r\n"
    b"retry-after: 1\r\nconnection: close\r\n\r\ntoo many connections"
)
_SHORTEST = 16  # characters of a key
_log = logging.getLogger(__name__)


def read_key(file: Path | None) -> str | None:
    """Return the key from a file, else from the environment, else None."""
    if file is not None:
        try:
            key, where = file.read_text(encoding="utf-8").strip(), str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"could not read the key in {file}: {error}") from None
    elif VARIABLE in os.environ:
        key, where = os.environ[VARIABLE].strip(), VARIABLE
    else:
        return None
    if len(key) < _SHORTEST or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(f"the key in {where} must be {_SHORTEST} or more letters and digits without a space")
    return key


def is_local(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def must_be_guarded(host: str, key: str | None, no_key: bool) -> None:
    """Refuse to serve other machines without a key, unless the user says so."""
    if no_key and key is not None:
        raise InputError(f"--no-key contradicts the key given by --api-key-file or {VARIABLE}; leave one out")
    if key is None and not no_key and not is_local(host):
        raise InputError(
            f"other machines can reach the server on {host}: give a key with --api-key-file or {VARIABLE}, "
            "or --no-key to let everyone ask"
        )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"could not listen on {host} port {port}: {reason}; try another --port") from None


def most_connections(at: socket.socket, wanted: int) -> int:
    """Return how many connections the server can hold, if not as many as wanted.

    A third of the free file descriptors is for connections, one for the files sent over them, and one for connections
    that the server is about to refuse.
    """
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return wanted
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, (limit - at.fileno()) // 3))  # the latest descriptor counts those in use


def build(
    models: Mapping[str, ServedModel], at: socket.socket, limits: Limits, key: str | None = None, no_key: bool = False
) -> uvicorn.Server:
    """Return the server over these models; run it with the same socket, until SIGINT or SIGTERM.

    Without a key it accepts only requests addressed to this machine's own names, unless `no_key` opens it to others.
    """
    address = at.getsockname()[0]
    hosts = None if key is not None or (no_key and not is_local(address)) else (*LOCAL, address)
    limits = limits._replace(connections=most_connections(at, limits.connections))
    settings: dict[str, Any] = {
        "http": type("Connection", (LimitedProtocol,), {"limits": limits}),
        "backlog": max(1, limits.connections // 4),  # accepted at once, and refused a few turns of the loop later
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "log_level": "error",  # not the mistakes of clients
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": limits.idle_seconds,
        "timeout_graceful_shutdown": limits.stop_seconds,
        "h11_max_incomplete_event_size": 16 * 1024,
    }
    return Server(uvicorn.Config(create_app(models, limits, key, hosts), **settings))


class Server(uvicorn.Server):
    """A server whose clients wait in a long queue, however few connections it accepts at once."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for at in sockets or []:
            at.listen(2048)


class LimitedProtocol(H11Protocol):
    """A connection that ends when it is one too many, or when the client sends a request or takes an answer too slowly.

    By itself uvicorn accepts connections until there is no file descriptor left, and waits for clients forever.
    """

    limits = Limits()
    told = False  # that a connection was refused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) >= self.limits.connections:
            if not self.told:
                type(self).told = True
                _log.warning("%d connections are open at once; more get 503", self.limits.connections - 1)
            transport.write(FULL)
            transport.close()
            return
        self._reading = self.loop.call_later(self.limits.read_seconds, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):  # the request is complete
            self._reading.cancel()
        else:
            self._await_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        state = self.conn.their_state  # of a request that came with the one answered
        if state is h11.SEND_BODY or (state is h11.IDLE and self.conn.trailing_data[0]):
            self._await_request()
        else:
            self._reading.cancel()

    def _await_request(self) -> None:
        """Disconnect the client unless the request that has begun is complete in time."""
        if self._reading.cancelled():
            self._reading = self.loop.call_later(self.limits.read_seconds, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(self.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._writing.cancel()
        super().resume_writing()
