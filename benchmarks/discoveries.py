"""How often what `discover` finds is so: `python benchmarks/discoveries.py [RUN ...]`.

Trains the recommended model on `world` and opens the runs whose folders are named. Test is taken out of each: what is
fitted is fitted without it, and the facts found as if train and valid were all there is are looked up in it. A fact
that holds and stands in no split counts as wrong. The committed `benchmarks/discoveries.json` has besides `world` a run
of FB15k-237, trained on a GPU with

    compgcn train fb15k-237 --composition mult --decoder distmult --set encoder.dims=[100,200] --set loss=cross-entropy
        --set batch_size=1000 --set lr=0.002 --set epochs=30 --set evaluate_every=10 --set schedule=cosine
        --set schedule_start=0.3
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from reproduction.bench.measure import environment

import compgcn
from compgcn.answers import discover
from compgcn.answers.links import Links, fitted
from compgcn.config import read_tree
from compgcn.data import KnowledgeGraph
from compgcn.run import Run

RESULT = Path(__file__).with_suffix(".json")
TOP = (20, 100, 500, 2000)


def without_test(run: Run) -> Links:
    """What the run answers, its test split empty, calibrated anew."""
    links = run.answers
    assert isinstance(links, Links)
    assert isinstance(run.data, KnowledgeGraph)
    left = Links(run.config, dataclasses.replace(run.data, test=run.data.test[:0]), links.task, run.metrics)
    left.scalings = fitted(left)
    left.weighing = discover.weighing(left)
    return left


def found_in_test(links: Links, test: set[tuple[int, ...]]) -> list[dict[str, Any]]:
    """Of the best discoveries, how many stand in test, and what their mean probability is."""
    entities, relations = links.data.entities.index, links.data.relations.index
    found = discover.discover(links, top=max(TOP))
    right = [(entities(fact.head), relations(fact.relation), entities(fact.tail)) in test for fact in found]
    chances = [fact.probability for fact in found]
    return [
        {
            "top": top,
            "in_test": round(float(np.mean(right[:top])), 4),
            "probability": round(float(np.mean(chances[:top])), 4),
        }
        for top in TOP
    ]


def measure(run: Run) -> dict[str, Any]:
    """A run: as fitted, and by the answers alone."""
    links = without_test(run)
    fit = None if links.weighing is None else links.weighing._asdict()
    test = {tuple(fact) for fact in run.data.splits["test"].tolist()}
    ways: dict[str, list[dict[str, Any]]] = {"fitted": found_in_test(links, test)}
    links.weighing = None
    with patch.object(discover, "lacking", lambda data, *_: np.ones((data.num_relations, 3))):
        ways["without the rate"] = found_in_test(links, test)
    about = {"data": run.data.name, "model": run.model_name, "mrr": round(run.metrics["test"]["mrr"], 4)}
    made = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    trained = {key: made[key] for key in ("compgcn", "commit", "python", "torch", "device", "seed", "time")}
    sizes = {name: len(facts) for name, facts in run.data.splits.items()}
    config = read_tree(run.path / "config.toml")
    return {**about, "facts": sizes, "fit": fit, **ways, "config": config, "trained": trained}


def main() -> None:
    here = environment(torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(compgcn.fit(compgcn.load("world"), run_dir=Path(folder) / "world", device="cpu"))]
    rows += [measure(compgcn.open_run(path, "cpu")) for path in sys.argv[1:]]
    for row in rows:
        for way in ("fitted", "without the rate"):
            print(row["data"], way, *(f"{one['top']}: {one['in_test']} {one['probability']}" for one in row[way]))
    result = {"command": "python benchmarks/discoveries.py RUN", "environment": here}
    RESULT.write_text(json.dumps({**result, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
