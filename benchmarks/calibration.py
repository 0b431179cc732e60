"""How far probabilities can be believed, before calibration and after: `python benchmarks/calibration.py [RUN ...]`.

Trains the recommended model on `world`, calibrated on validation as every run is, and counts on test how often its
answers are right; further run folders can be named. The committed `benchmarks/calibration.json` has besides `world` the
run of FB15k-237 that `benchmarks/discoveries.py` says how to train.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from reproduction.bench.measure import environment

import compgcn
from compgcn.answers.calibrate import Reliability, Scaling, calibration_error
from compgcn.answers.links import Links, fitted, reliability
from compgcn.config import read_tree
from compgcn.run import Run

RESULT = Path(__file__).with_suffix(".json")
ASKED = {  # question -> the kind of answer, and how many of the best
    "the ten best entities": ("entities", 10),
    "the best entity": ("entities", 1),
    "the ten best relations": ("relations", 10),
    "the best relation": ("relations", 1),
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
    links.scalings = links.scalings or fitted(links)  # a run of an earlier build may have none
    rows = {
        what: compared(reliability(links, "test", kind, top), links.scalings.get(kind))
        for what, (kind, top) in ASKED.items()
    }
    scalings = {kind: None if one is None else one._asdict() for kind, one in links.scalings.items()}
    about = {"data": run.data.name, "model": run.model_name, "loss": run.config.training.loss, "split": "test"}
    made = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    trained = {key: made[key] for key in ("compgcn", "commit", "python", "torch", "device", "seed", "time")}
    figures = {"mrr": round(run.metrics["test"]["mrr"], 4), "fit": scalings, "answers": rows}
    return {**about, **figures, "config": read_tree(run.path / "config.toml"), "trained": trained}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(compgcn.fit(compgcn.load("world"), run_dir=Path(folder) / "world", device="cpu"))]
    rows += [measure(compgcn.open_run(path, "cpu")) for path in sys.argv[1:]]
    for row in rows:
        for what, found in row["answers"].items():
            print(f"{row['data']}, {what}: {found['before']['error']:.4f} before, {found['after']['error']:.4f} after")
    result = {"command": "python benchmarks/calibration.py RUN", "environment": environment(torch.device("cpu"))}
    RESULT.write_text(json.dumps({**result, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
