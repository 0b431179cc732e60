"""The command `python -m reproduction` inside this process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import toy
from reproduction.__main__ import main


@pytest.fixture
def reproduction(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> toy.Command:
    """Run `python -m reproduction ARGUMENTS` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> toy.Result:
        monkeypatch.setattr(sys, "argv", ["reproduction", *map(str, arguments)])
        capfd.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        captured = capfd.readouterr()
        return toy.Result(code if isinstance(code, int) else int(code is not None), captured.out, captured.err)

    return run
