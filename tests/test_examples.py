"""The examples run as they stand, each in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def run(example: Path, folder: Path) -> list[str]:
    # One thread each: the tests themselves run side by side.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", str(example)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


def test_there_are_examples() -> None:
    assert [path.name for path in EXAMPLES] == ["layer.py", "link_prediction.py"]


@pytest.mark.parametrize(("name", "most"), [("layer.py", 15), ("link_prediction.py", 10)])
def test_an_example_is_short(name: str, most: int) -> None:
    path = next(path for path in EXAMPLES if path.name == name)
    code = path.read_text(encoding="utf-8").split('"""')[2].splitlines()
    assert sum(bool(line.strip()) and not line.strip().startswith("#") for line in code) <= most


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_prints(example: Path, tmp_path: Path) -> None:
    lines = run(example, tmp_path)
    if example.name == "layer.py":
        losses = [float(line.split()[-1]) for line in lines]
        assert losses[-1] < losses[0]
    else:
        assert lines[0].startswith("test MRR 0.")
        assert len(lines) == 6
        assert (tmp_path / "runs" / "example" / "metrics.json").is_file()
