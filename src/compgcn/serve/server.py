"""The server around the application: where it listens, for whom, and how it stops."""

from __future__ import annotations

import asyncio
import ipaddress
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
from compgcn.serve.middleware import LOCAL, Limits
from compgcn.serve.models import Served

VARIABLE = "COMPGCN_API_KEY"
_SHORTEST = 16  # letters of a key


class Protocol(H11Protocol):
    """A connection that is closed on a client too slow to send the head of a request, or to take an answer.

    Uvicorn itself would wait for ever.
    """

    read_seconds = write_seconds = 10.0
    _reading: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._reading = self.loop.call_later(self.read_seconds, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # the head is there; the gate watches over the body
            self._reading = _cancelled(self._reading)
        elif self._reading is None:  # that of another request has begun
            self._reading = self.loop.call_later(self.read_seconds, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(self.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._writing = _cancelled(self._writing)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading, self._writing = _cancelled(self._reading), _cancelled(self._writing)
        super().connection_lost(exc)


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """No timer any longer."""
    if timer is not None:
        timer.cancel()
    return None


def read_key(file: Path | None) -> str | None:
    """The key in a file, else in the environment; None if there is neither."""
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
    """Whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def must_be_guarded(host: str, key: str | None, no_key: bool) -> None:
    """Refuse to serve strangers by oversight."""
    if no_key and key is not None:
        raise InputError(f"--no-key was given, and a key too, by --api-key-file or {VARIABLE}; leave one out")
    if key is None and not no_key and not is_local(host):
        raise InputError(
            f"on {host} others can reach the server: give a key with --api-key-file or {VARIABLE}, "
            "or say --no-key if everyone may ask"
        )


def listen(host: str, port: int) -> socket.socket:
    """A socket at that address; port 0 takes a free one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"could not listen on {host} port {port}: {reason}; try another --port") from None


def build(
    models: Mapping[str, Served], at: socket.socket, limits: Limits, key: str | None = None, no_key: bool = False
) -> uvicorn.Server:
    """The server over these models; run with the same socket, it answers until SIGINT or SIGTERM.

    Without a key, and not by `no_key` open to others than this machine, it goes by the names of this machine alone.
    """
    address = at.getsockname()[0]
    hosts = None if key is not None or (no_key and not is_local(address)) else (*LOCAL, address)
    seconds = {"read_seconds": limits.read_seconds, "write_seconds": limits.write_seconds}
    settings: dict[str, Any] = {
        "http": type("Timed", (Protocol,), seconds),
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "log_level": "error",  # what clients do wrong is theirs to know
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "limit_concurrency": limits.connections,
        "timeout_keep_alive": limits.idle_seconds,
        "timeout_graceful_shutdown": limits.stop_seconds,
        "h11_max_incomplete_event_size": 16 * 1024,
    }
    return uvicorn.Server(uvicorn.Config(create_app(models, limits, key, hosts), **settings))
