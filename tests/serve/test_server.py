"""The server: key and address, slow and broken clients, the graceful stop."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import plotly
import pytest
import uvicorn

import toy
from clock import HANGS, Clock, until
from compgcn.errors import InputError
from compgcn.run.run import Run
from compgcn.serve import server
from compgcn.serve.middleware import Limits
from compgcn.serve.models import ServedModel

BODY = json.dumps({"head": "p0", "relation": "lives", "top": 3}).encode()
HEAD = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
REQUEST = HEAD % len(BODY) + BODY
# A request that asks for permission to send the body.
AWAITED = REQUEST.replace(b"Host", b"Expect: 100-continue\r\nHost").removesuffix(BODY)
PATIENT = Limits(seconds=1e4, read_seconds=1e4, write_seconds=1e4, idle_seconds=10_000)


@contextmanager
def serving(
    models: Mapping[str, ServedModel], limits: Limits = PATIENT, clock: Clock | None = None, *, no_key: bool = False
) -> Iterator[tuple[uvicorn.Server, int]]:
    """Run a server in a thread, with this clock; yield it and its port."""
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


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=HANGS)


def answer(connection: socket.socket) -> bytes:
    """Return everything until the answer is complete or the connection closed."""
    got = b""
    while more := connection.recv(1):  # no byte of the next answer
        got += more
        head, found, body = got.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if found and length is not None and len(body) >= int(length[1]):
            break
    return got


def asked(port: int) -> bytes:
    """Return the answer to a question on a new connection."""
    with connect(port) as connection:
        connection.sendall(REQUEST)
        return answer(connection)


def test_slow_clients_are_disconnected_and_others_served(models: Mapping[str, ServedModel]) -> None:
    limits, clock = PATIENT._replace(read_seconds=1000), Clock()
    with (
        serving(models, limits, clock) as (_, port),
        connect(port) as silent,
        connect(port) as head,
        connect(port) as body,
        connect(port) as again,
    ):
        head.sendall(REQUEST[:20])
        body.sendall(AWAITED)
        assert body.recv(1024).startswith(b"HTTP/1.1 100")
        body.sendall(BODY[:-5])
        again.sendall(REQUEST)
        assert answer(again).startswith(b"HTTP/1.1 200")
        clock.leap(1001)
        assert [answer(slow) for slow in (silent, head, body)] == [b""] * 3
        for begun in (REQUEST[:20], AWAITED):  # a request that comes with the one before it
            with connect(port) as piped:
                piped.sendall(3 * REQUEST + begun)
                for _ in range(3):
                    assert answer(piped).startswith(b"HTTP/1.1 200")
                assert asked(port).startswith(b"HTTP/1.1 200")
                clock.leap(1001)
                while piped.recv(1024):
                    pass
        again.sendall(REQUEST)  # each request has its own time
        assert answer(again).startswith(b"HTTP/1.1 200")
        again.sendall(REQUEST[:20])
        assert asked(port).startswith(b"HTTP/1.1 200")  # so the server has read those 20 bytes
        clock.leap(1001)
        assert answer(again) == b""


def test_a_client_that_takes_no_answer_is_disconnected(models: Mapping[str, ServedModel]) -> None:
    script = (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").stat().st_size
    times = 1 + 64 * 2**20 // script  # far more than the buffers of a connection hold
    limits, clock = PATIENT._replace(read_seconds=1e9, write_seconds=1000, idle_seconds=10**9), Clock()
    with serving(models, limits, clock) as (built, port):
        with connect(port) as connection:
            connection.sendall(b"GET /static/plotly.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * times)
            connections = built.server_state.connections
            until(lambda: connections)
            until(lambda: clock.leap(1001) or not connections)  # the buffers take the beginning of the answer
            got = 0
            with suppress(ConnectionResetError):
                while more := connection.recv(2**20):
                    got += len(more)
            assert got < times * script
        assert asked(port).startswith(b"HTTP/1.1 200")


def test_head_is_answered_as_get_without_a_body(models: Mapping[str, ServedModel]) -> None:
    with serving(models) as (_, port), closing(HTTPConnection("127.0.0.1", port, timeout=HANGS)) as connection:
        for path in ("/", "/health", "/api/models", "/api/predict"):
            got = []
            for method in ("GET", "HEAD"):
                connection.request(method, path)
                answered = connection.getresponse()
                got.append((answered.status, {**answered.headers} | {"date": ""}, bool(answered.read())))
            assert got[1] == (*got[0][:2], False), path


def test_one_connection_too_many_gets_503(models: Mapping[str, ServedModel]) -> None:
    with serving(models, PATIENT._replace(connections=3)) as (_, port), connect(port), connect(port):
        assert asked(port).startswith(b"HTTP/1.1 503")


@contextmanager
def started(run: Run, files: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the command with a limit on open files; yield its process and its port."""
    command = [sys.executable, "-m", "compgcn", "serve", str(run.path), "--port", "0", "--device", "cpu"]
    command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=toy.ENVIRONMENT)
    try:
        said = process.stdout.readline()
        assert said.startswith("serving toy-run at http://127.0.0.1:")
        yield process, int(re.findall(r":(\d+) ", said)[0])
    finally:
        process.kill()
        process.communicate()


def test_a_server_short_of_file_descriptors_refuses_connections_and_says_so_once(run: Run) -> None:
    with started(run, files=100) as (process, port):
        with ExitStack() as stack:
            many = [stack.enter_context(connect(port)) for _ in range(200)]
            assert answer(many[-1]).startswith(b"HTTP/1.1 503")
        answers = (asked(port) for _ in range(10_000))  # at first it has yet to see that they left
        assert any(found.startswith(b"HTTP/1.1 200") for found in answers)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS) in (0, -signal.SIGTERM)
        assert re.fullmatch(r"\d+ connections are open at once; more get 503\n", process.stderr.read())


def test_a_stopping_server_answers_the_requests_in_flight(run: Run) -> None:
    with started(run, files=256) as (process, port):
        with connect(port) as connection, connect(port) as idle:
            idle.sendall(REQUEST)
            assert answer(idle).startswith(b"HTTP/1.1 200")
            connection.sendall(AWAITED)
            assert connection.recv(1024).startswith(b"HTTP/1.1 100")  # the server waits for the body
            process.send_signal(signal.SIGTERM)
            assert answer(idle) == b""  # an idle connection closes
            with pytest.raises(OSError, match="refused"):
                connect(port)
            connection.sendall(BODY)
            assert answer(connection).startswith(b"HTTP/1.1 200")
        assert process.wait(HANGS) in (0, -signal.SIGTERM)
        assert "Traceback" not in process.stderr.read()


def test_other_machines_are_served_only_with_a_key_or_no_key() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        server.must_be_guarded(host, None, no_key=False)
    for host in ("0.0.0.0", "::", "example.org"):
        with pytest.raises(InputError, match=r"other machines can reach the server on .*: give a key"):
            server.must_be_guarded(host, None, no_key=False)
        server.must_be_guarded(host, "k" * 16, no_key=False)
        server.must_be_guarded(host, None, no_key=True)
    with pytest.raises(InputError, match="leave one out"):
        server.must_be_guarded("0.0.0.0", "k" * 16, no_key=True)


def test_no_key_on_this_machine_still_checks_the_host(models: Mapping[str, ServedModel]) -> None:
    with serving(models, no_key=True) as (_, port):
        assert asked(port).startswith(b"HTTP/1.1 200")
        with connect(port) as connection:
            connection.sendall(REQUEST.replace(b"Host: localhost", b"Host: evil.example"))
            assert answer(connection).startswith(b"HTTP/1.1 400")


def test_the_key_comes_from_a_file_or_the_environment_and_must_be_long(
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


def test_the_command_explains_mistakes_in_a_sentence(
    command: toy.Command, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.refused(command("serve", "nowhere"), "there is no run folder nowhere")
    toy.refused(command("serve", str(run.path), "--host", "0.0.0.0"), "other machines can reach the server")
    with server.listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        toy.refused(command("serve", str(run.path), "--port", port), f"could not listen on 127.0.0.1 port {port}")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    toy.refused(command("serve", run.path), "pip install 'compgcn[serve]'")
