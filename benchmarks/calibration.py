"""How far probabilities can be believed, before calibration and after: `python benchmarks/calibration.py [RUN ...]`.

Trains the recommended model on `world`, calibrated on validation as every run is, and counts on test how often its
answers are right; further run folders can be named. The result is `benchmarks/calibration.json`.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import compgcn
from compgcn.answers.calibration import Reliability, Scaling, calibration_error
from compgcn.answers.links import Links
from compgcn.answers.reliability import of_entities, of_relations
from compgcn.run import Run

RESULT = Path(__file__).with_suffix(".json")
ASKED = {  # what is asked -> the kind of answer, what counts them, and how many of the best there are
    "the ten best entities": ("entities", of_entities, 10),
    "the best entity": ("entities", of_entities, 1),
    "the ten best relations": ("relations", of_relations, 10),
    "the best relation": ("relations", of_relations, 1),
}


def compared(found: Reliability, scaling: Scaling | None) -> dict[str, Any]:
    """The error before and after, and the share of the answers that is right in each interval of probability."""
    row: dict[str, Any] = {"answers": len(found.right), "right": round(found.right.double().mean().item(), 4)}
    for name, one in (("before", None), ("after", scaling)):
        bins = found.bins(one)
        row[name] = {
            "error": round(calibration_error(bins), 4),
            "bins": [{key: round(value, 4) for key, value in some._asdict().items()} for some in bins],
        }
    return row


def measure(run: Run) -> dict[str, Any]:
    """A run on test."""
    links = run.answers
    assert isinstance(links, Links)
    rows = {what: compared(of(links, "test", top), links.scalings.get(kind)) for what, (kind, of, top) in ASKED.items()}
    scalings = {kind: None if one is None else one._asdict() for kind, one in links.scalings.items()}
    about = {"data": run.data.name, "model": run.model_name, "loss": run.config.training.loss, "split": "test"}
    return {**about, "mrr": round(run.metrics["test"]["mrr"], 4), "fit": scalings, "answers": rows}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(compgcn.fit(compgcn.load("world"), run_dir=Path(folder) / "world", device="cpu"))]
    rows += [measure(compgcn.open_run(path)) for path in sys.argv[1:]]
    for row in rows:
        for what, found in row["answers"].items():
            print(f"{row['data']}, {what}: {found['before']['error']:.4f} before, {found['after']['error']:.4f} after")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=RESULT.parent, check=False
    )
    result = {
        "command": "python benchmarks/calibration.py",
        "hardware": f"{os.cpu_count()} CPU cores, {platform.machine()}",
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit.stdout.strip(),
        "rows": rows,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
