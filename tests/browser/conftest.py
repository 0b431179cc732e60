"""A browser in front of `compgcn serve`; pytest skips these tests unless COMPGCN_BROWSER is 1."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import compgcn
from clock import HANGS

HERE = Path(__file__).parent
# Keep Chromium quiet, and let it run as root in a container.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ODD = '<img src=x onerror="document.title=1">'  # a name with markup


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in (item for item in items if HERE in item.path.parents):
        item.add_marker("browser")
        if os.environ.get("COMPGCN_BROWSER") != "1":
            item.add_marker(pytest.mark.skip(reason="needs a browser; run make test-browser"))


class Server:
    """`compgcn serve` in its own process, always at the same address.

    Args:
        runs: run folders.
    """

    def __init__(self, *runs: Path) -> None:
        self.runs, self.log = runs, runs[0].with_suffix(".log")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-m", "compgcn", "serve", *map(str, self.runs), "--port", str(self.port)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*words, "--device", "cpu"], stdout=log, stderr=log)
        until = time.monotonic() + HANGS
        while not self.is_up():
            if self.process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise AssertionError(f"the server did not start: {self.log.read_text()}")
            time.sleep(0.1)

    def is_up(self) -> bool:
        try:
            self.ask("/health")
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """Kill the server at once."""
        self.process.kill()
        self.process.wait()

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the server's answer without the browser."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=HANGS) as answer:
            return json.load(answer)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three models: one of `world`, one of a small graph with markup in a name, one conditioned on the query."""
    folder = tmp_path_factory.mktemp("runs")
    settings = {"epochs": 2, "dims": [32, 32], "batch_size": 1024, "device": "cpu"}
    compgcn.fit(compgcn.load("world"), run_dir=folder / "world", **settings)
    facts = folder / "odd.tsv"
    people = [ODD, *(f"person {i}" for i in range(12))]
    facts.write_text("".join(f"{a}\tknows\t{b}\n" for a in people for b in people if a != b), encoding="utf-8")
    compgcn.fit(compgcn.read(facts), run_dir=folder / "odd", **settings)
    family = folder / "family.tsv"
    family.write_text(
        "".join(f"{a}\tknows\t{b}\n" for a, b in pairwise("abcdefgh")) + "x\temploys\tb\n", encoding="utf-8"
    )
    small = {"model": "conditional", "epochs": 1, "dims": [8, 8, 8, 8], "batch_size": 8, "device": "cpu"}
    compgcn.fit(compgcn.read(family), run_dir=folder / "conditional", **small)
    served = Server(folder / "world", folder / "odd", folder / "conditional")
    yield served
    served.kill()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium from the variable CHROMIUM, or from the path."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert program is not None, "there is no chromium on the path; install it, or set CHROMIUM"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield opened
        opened.close()


class Tab:
    """A browser tab with its own storage and a list of its errors."""

    def __init__(self, browser: Any, server: Server, **options: Any) -> None:
        self.context = browser.new_context(base_url=server.address, reduced_motion="reduce", **options)
        self.context.set_default_timeout(1000 * HANGS)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._note)

    def _note(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:  # tests provoke refusals
            self.errors.append(message.text)

    def open(self, state: str = "#/") -> Any:
        self.page.goto(f"/{state}")
        return self.page


@pytest.fixture
def tab(browser: Any, server: Server, request: pytest.FixtureRequest) -> Iterator[Tab]:
    """A tab that must end without errors; parametrise it with options of the browser context."""
    opened = Tab(browser, server, **getattr(request, "param", {"viewport": {"width": 1280, "height": 800}}))
    yield opened
    opened.context.close()
    assert opened.errors == []
