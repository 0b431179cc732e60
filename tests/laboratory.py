"""The experiments of this repository, and results as their rows would have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from compgcn.config import configure
from reproduction import experiment as lab

ROOT = Path(__file__).parents[1]
EXPERIMENTS = lab.experiments([str(path) for path in (ROOT / "experiments").glob("*.toml") if path.stem != "claims"])


def job(name: str = "encoders", row: str = "distmult-none") -> lab.Job:
    return lab.jobs([EXPERIMENTS[name]], [row], 1)[0]


def write(folder: Path, one: lab.Job, seed: int = 0, settings: Any = (), **more: Any) -> None:
    """A result as a row would have it, with other settings where they are given."""
    config = configure(lab.expected(one.experiment, one.row), dict(settings))
    figures = {metric: 0.25 for _, metric in one.figures if "/" not in metric} | {"mrr": 0.25, "mr": 100.0}
    figures |= {"accuracy": 0.75, "optimistic": {"mrr": 0.25}, "pessimistic": {"mrr": 0.25}}
    result: dict[str, Any] = {
        "seed": seed,
        "hash": str(settings),
        "config": json.loads(config.model_dump_json()),
        "parameters": 7,
        "environment": {"seconds": 1.0, "peak_memory_mib": 123456, "device": "cpu"},
        "metrics": {"valid": figures, "test": figures},
        "curve": {"epoch": []},
    }
    path = one._replace(seed=seed).file(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result | more))
