"""The command `python -m reproduction` inside this process."""

from __future__ import annotations

from pathlib import Path

import pytest

import toy
from reproduction.__main__ import main


@pytest.fixture
def reproduction(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> toy.Command:
    """Run `python -m reproduction ARGUMENTS` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return toy.command(monkeypatch, capfd, main)
