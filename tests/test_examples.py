"""The examples run, each in an empty folder; those that train do so for fewer epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(("name", "most"), [("layer.py", 15), ("link_prediction.py", 10)])
def test_an_example_is_short_and_runs(
    name: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    code = text.split('"""')[2].splitlines()
    assert sum(bool(line.strip()) and not line.strip().startswith("#") for line in code) <= most
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(text.replace("epochs=10", "epochs=2"), name, "exec"), {"__name__": "__main__"})
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    if name == "layer.py":
        losses = [float(line.split()[-1]) for line in lines]
        assert losses[-1] < losses[0]
    else:
        assert lines[0].startswith("test MRR 0.")
        assert len(lines) == 6
        assert (tmp_path / "runs" / "example" / "metrics.json").is_file()
