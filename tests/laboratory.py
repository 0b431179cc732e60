"""The committed experiments, and results as their rows would have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from compgcn.config import configure
from reproduction.experiment import Job, experiments, jobs_of
from reproduction.training import expected

ROOT = Path(__file__).parents[1]
EXPERIMENTS = experiments()


def job(name: str = "encoders", row: str = "distmult-none") -> Job:
    return jobs_of([EXPERIMENTS[name]], [row], 1)[0]


def write(folder: Path, one: Job, seed: int = 0, mrr: float = 0.25, settings: Any = (), **more: Any) -> None:
    """Write a result of a row with an MRR, with other settings where they are given."""
    config = configure(expected(one.experiment, one.row), dict(settings))
    metrics = {"mrr": mrr, "mr": 100.0, "hits@1": mrr, "hits@3": mrr, "hits@10": mrr, "accuracy": 0.75}
    metrics |= {"optimistic": {"mrr": mrr + 1e-5}, "pessimistic": {"mrr": mrr}}
    result: dict[str, Any] = {
        "seed": seed,
        "config": json.loads(config.model_dump_json()),
        "parameters": 7,
        "environment": {"seconds": 1.0, "peak_memory_mib": 123456, "device": "cpu"},
        "metrics": {"valid": metrics, "test": metrics},
    }
    path = one._replace(seed=seed).file(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result | more))
