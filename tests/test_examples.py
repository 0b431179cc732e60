"""The examples run as they stand, each in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(("name", "most"), [("layer.py", 15), ("link_prediction.py", 10)])
def test_an_example_is_short_and_runs(name: str, most: int, tmp_path: Path) -> None:
    code = (EXAMPLES / name).read_text(encoding="utf-8").split('"""')[2].splitlines()
    assert sum(bool(line.strip()) and not line.strip().startswith("#") for line in code) <= most
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}  # tests run side by side
    command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    if name == "layer.py":
        losses = [float(line.split()[-1]) for line in lines]
        assert losses[-1] < losses[0]
    else:
        assert lines[0].startswith("test MRR 0.")
        assert len(lines) == 6
        assert (tmp_path / "runs" / "example" / "metrics.json").is_file()
