"""The server itself: who is let in, clients that are slow or vanish, and how it stops."""

from __future__ import annotations

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

import toy
from compgcn.errors import InputError
from compgcn.run import Run
from compgcn.serve import server
from compgcn.serve.documents import static_files
from compgcn.serve.middleware import Limits
from compgcn.serve.models import Served

BODY = json.dumps({"head": "p0", "relation": "lives", "top": 3}).encode()
HEAD = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
REQUEST = HEAD % len(BODY) + BODY
IMPATIENT = Limits(read_seconds=0.5, write_seconds=0.5, idle_seconds=1, connections=3)


@contextmanager
def serving(models: dict[str, Served], limits: Limits, *, no_key: bool = False) -> Iterator[int]:
    """A server in a thread; its port."""
    at = server.listen("127.0.0.1", 0)
    built = server.build(models, at, limits, no_key=no_key)
    thread = threading.Thread(target=built.run, args=([at],))
    thread.start()
    try:
        yield at.getsockname()[1]
    finally:
        built.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


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
    with serving(models, IMPATIENT) as port, connect(port) as head, connect(port) as body:
        head.sendall(REQUEST[:20])
        body.sendall(REQUEST[:-5])
        begun = time.monotonic()
        assert answer(body).startswith(b"HTTP/1.1 408")
        assert answer(head) == b""
        assert time.monotonic() - begun < 5
        assert asked(port).startswith(b"HTTP/1.1 200")
        with connect(port) as silent:
            assert answer(silent) == b""  # not a word from either side
        with connect(port) as again:
            for _ in range(2):  # the time for a head is counted anew for every request
                again.sendall(REQUEST)
                assert answer(again).startswith(b"HTTP/1.1 200")
            again.sendall(REQUEST[:20])
            assert answer(again) == b""


def test_a_client_that_takes_no_answer_is_let_go(models: dict[str, Served]) -> None:
    script = static_files()["plotly.min.js"].stat().st_size
    times = 1 + 64 * 2**20 // script  # far more than the buffers of a connection hold
    with serving(models, IMPATIENT) as port:
        with connect(port) as connection:
            connection.sendall(b"GET /static/plotly.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * times)
            time.sleep(1)
            got = 0
            with suppress(ConnectionResetError):
                while more := connection.recv(2**20):
                    got += len(more)
            assert got < times * script
        assert asked(port).startswith(b"HTTP/1.1 200")


def test_a_client_that_vanishes_and_one_that_speaks_no_http_harm_nobody(models: dict[str, Served]) -> None:
    with serving(models, IMPATIENT) as port:
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
    with serving(models, IMPATIENT) as port, connect(port), connect(port):
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
            connection.sendall(REQUEST.replace(b"Host", b"Expect: 100-continue\r\nHost").removesuffix(BODY))
            assert connection.recv(1024).startswith(b"HTTP/1.1 100")  # the server is at it
            process.send_signal(signal.SIGTERM)
            assert answer(idle) == b""  # nothing is in flight there
            with pytest.raises(OSError, match="refused"):
                connect(port)
            connection.sendall(BODY)
            assert answer(connection).startswith(b"HTTP/1.1 200")
        assert process.wait(20) in (0, -signal.SIGTERM)
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
    with serving(models, Limits(), no_key=True) as port:
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
