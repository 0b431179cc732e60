"""The server itself: who is let in, clients that are slow or vanish, and how it stops."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import uvicorn

import toy
from clock import HANGS, Clock
from compgcn.errors import InputError
from compgcn.run import Run
from compgcn.serve import server
from compgcn.serve.documents import static_files
from compgcn.serve.middleware import Limits
from compgcn.serve.models import Served

BODY = json.dumps({"head": "p0", "relation": "lives", "top": 3}).encode()
HEAD = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
REQUEST = HEAD % len(BODY) + BODY
AWAITED = REQUEST.replace(b"Host", b"Expect: 100-continue\r\nHost").removesuffix(BODY)  # asks whether to go on
PATIENT = Limits(seconds=1e4, read_seconds=1e4, write_seconds=1e4, idle_seconds=10_000)


@contextmanager
def running(
    models: dict[str, Served], limits: Limits, clock: Clock | None = None, *, no_key: bool = False
) -> Iterator[tuple[uvicorn.Server, int]]:
    """A server in a thread, by the clock if there is one; and its port."""
    at = server.listen("127.0.0.1", 0)
    built = server.build(models, at, limits, no_key=no_key)
    runner = asyncio.Runner(loop_factory=(clock or Clock()).loop)
    thread = threading.Thread(target=lambda: runner.run(built.serve([at])))
    thread.start()
    try:
        yield built, at.getsockname()[1]
    finally:
        built.should_exit = True
        thread.join(HANGS)
        assert not thread.is_alive()
        runner.close()


@contextmanager
def serving(
    models: dict[str, Served], limits: Limits = PATIENT, clock: Clock | None = None, *, no_key: bool = False
) -> Iterator[int]:
    """The port of a server in a thread."""
    with running(models, limits, clock, no_key=no_key) as (_, port):
        yield port


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=HANGS)


def answer(connection: socket.socket) -> bytes:
    """All that comes until the answer is whole or the connection closed."""
    got = b""
    while more := connection.recv(65536):
        got += more
        head, found, body = got.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if found and length is not None and len(body) >= int(length[1]):
            break
    return got


def asked(port: int) -> bytes:
    """The answer to a question on a new connection."""
    with connect(port) as connection:
        connection.sendall(REQUEST)
        return answer(connection)


def test_slow_clients_are_let_go_and_the_others_served(models: dict[str, Served]) -> None:
    limits, clock = PATIENT._replace(read_seconds=1000), Clock()
    with serving(models, limits, clock) as port, connect(port) as head, connect(port) as body:
        head.sendall(REQUEST[:20])
        body.sendall(AWAITED)
        assert body.recv(1024).startswith(b"HTTP/1.1 100")  # the server waits for the rest
        body.sendall(BODY[:-5])
        clock.leap(1001)
        assert answer(body).startswith(b"HTTP/1.1 408")
        assert answer(head) == b""
        assert asked(port).startswith(b"HTTP/1.1 200")
        with connect(port) as silent:
            assert asked(port).startswith(b"HTTP/1.1 200")  # the connection before this one is made, too
            clock.leap(1001)
            assert answer(silent) == b""  # not a word from either side
        with connect(port) as again:
            for _ in range(2):  # the time for a head is counted anew for every request
                again.sendall(REQUEST)
                assert answer(again).startswith(b"HTTP/1.1 200")
                clock.leap(900)
            again.sendall(REQUEST[:20])
            assert asked(port).startswith(b"HTTP/1.1 200")  # the server has read what was sent before
            clock.leap(1001)
            assert answer(again) == b""


def test_a_client_that_takes_no_answer_is_let_go(models: dict[str, Served]) -> None:
    script = static_files()["plotly.min.js"].stat().st_size
    times = 1 + 64 * 2**20 // script  # far more than the buffers of a connection hold
    limits, clock = PATIENT._replace(read_seconds=1e9, write_seconds=1000, idle_seconds=10**9), Clock()
    with running(models, limits, clock) as (built, port):
        with connect(port) as connection:
            connection.sendall(b"GET /static/plotly.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * times)
            connections = built.server_state.connections
            while not connections:
                time.sleep(0.01)
            while connections:  # some of the answer goes into buffers first
                clock.leap(1001)
                time.sleep(0.01)
            got = 0
            with suppress(ConnectionResetError):
                while more := connection.recv(2**20):
                    got += len(more)
            assert got < times * script
        assert asked(port).startswith(b"HTTP/1.1 200")


def test_a_client_that_vanishes_and_one_that_speaks_no_http_harm_nobody(models: dict[str, Served]) -> None:
    with serving(models) as port:
        for sent in (REQUEST, REQUEST[:-5]):
            with connect(port) as connection:
                connection.sendall(sent)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closed by a reset
        with connect(port) as connection:
            connection.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
            assert answer(connection).startswith(b"HTTP/1.1 400")
        with connect(port) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000)
            assert answer(connection).startswith(b"HTTP/1.1 4")
        assert asked(port).startswith(b"HTTP/1.1 200")


def test_more_connections_than_allowed_are_answered_503(models: dict[str, Served]) -> None:
    with serving(models, PATIENT._replace(connections=3)) as port, connect(port), connect(port):
        assert asked(port).startswith(b"HTTP/1.1 503")


def test_the_command_answers_what_is_in_flight_when_it_is_told_to_stop(run: Run) -> None:
    command = [sys.executable, "-m", "compgcn", "serve", str(run.path), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=toy.ENVIRONMENT)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("serving toy-run at http://127.0.0.1:")
        port = int(re.findall(r":(\d+) ", said)[0])
        with connect(port) as connection, connect(port) as idle:
            idle.sendall(REQUEST)
            assert answer(idle).startswith(b"HTTP/1.1 200")
            connection.sendall(AWAITED)
            assert connection.recv(1024).startswith(b"HTTP/1.1 100")  # the server is at it
            process.send_signal(signal.SIGTERM)
            assert answer(idle) == b""  # nothing is in flight there
            with pytest.raises(OSError, match="refused"):
                connect(port)
            connection.sendall(BODY)
            assert answer(connection).startswith(b"HTTP/1.1 200")
        assert process.wait(HANGS) in (0, -signal.SIGTERM)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def test_others_than_this_machine_are_served_with_a_key_or_on_purpose_only() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        server.must_be_guarded(host, None, no_key=False)
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org"):
        with pytest.raises(InputError, match="others can reach the server: give a key"):
            server.must_be_guarded(host, None, no_key=False)
        server.must_be_guarded(host, "k" * 16, no_key=False)
        server.must_be_guarded(host, None, no_key=True)
    with pytest.raises(InputError, match="leave one out"):
        server.must_be_guarded("0.0.0.0", "k" * 16, no_key=True)


def test_on_this_machine_the_host_is_checked_with_no_key_too(models: dict[str, Served]) -> None:
    with serving(models, no_key=True) as port:
        assert asked(port).startswith(b"HTTP/1.1 200")
        with connect(port) as connection:
            connection.sendall(REQUEST.replace(b"Host: localhost", b"Host: evil.example"))
            assert answer(connection).startswith(b"HTTP/1.1 400")


def test_a_key_comes_from_a_file_or_the_environment_and_must_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("one-of-16-letters\n")
    monkeypatch.delenv(server.VARIABLE, raising=False)
    assert server.read_key(None) is None
    assert server.read_key(file) == "one-of-16-letters"
    monkeypatch.setenv(server.VARIABLE, "another-of-16-letters")
    assert server.read_key(None) == "another-of-16-letters"
    for bad in ("", "short", "with a space in it", "sechzehn-und-mehr-ä"):
        file.write_text(bad, encoding="utf-8")
        with pytest.raises(InputError, match="must be 16 or more"):
            server.read_key(file)
    with pytest.raises(InputError, match="could not read the key"):
        server.read_key(tmp_path / "nothing")


def test_the_command_says_what_is_wrong_in_a_sentence(
    command: toy.Command, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.refused(command("serve", "nowhere"), "there is no run folder nowhere")
    toy.refused(command("serve", str(run.path), "--host", "0.0.0.0"), "others can reach the server")
    with server.listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        toy.refused(command("serve", str(run.path), "--port", port), f"could not listen on 127.0.0.1 port {port}")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    toy.refused(command("serve", run.path), "pip install 'compgcn[serve]'")
