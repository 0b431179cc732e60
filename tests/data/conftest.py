"""Fixtures of the data tests: files written on the spot, and the benchmarks where they are at hand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from clock import HANGS
from compgcn.data import download
from server import Server, serving
from toy import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of the given name and content, byte for byte."""

    def writer(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return writer


@pytest.fixture
def benchmarks() -> Path:
    """The folder of the published data sets."""
    folder = os.environ.get("COMPGCN_DATA")
    if not folder:
        pytest.skip("COMPGCN_DATA is not set: the published data sets are not at hand")
    return Path(folder)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A web server on this machine, reached without a proxy, with time to answer."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "TIMEOUT", HANGS)
    with serving() as server:
        yield server
