"""What is kept of a run that was trained for a table or a figure: a small JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compgcn.baselines.fitted import Fitted
from compgcn.run import Run
from compgcn.storage import replace

_FOLD = re.compile(r"fold \d+ of \d+")
_DIGITS = 6


def kept(run: Run) -> dict[str, Any]:
    """All that any report needs of a run: models are large and stay where they were trained."""
    config = json.loads(run.config.model_dump_json())
    environment = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    text = json.dumps({**config, "training": {**config["training"], "seed": None, "device": None}}, sort_keys=True)
    found: dict[str, Any] = {
        "hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        "config": config,
        "parameters": parameters(run.task),
        "environment": environment,
        "metrics": run.metrics,
        "curve": curve(run.path / "events.jsonl"),
    }
    if run.config.task == "link-prediction" and run.metrics["test"]:
        found["by_category"] = run.evaluate("test", "category")
        found["by_relation"] = {name: _short(report) for name, report in run.evaluate("test", "relation").items()}
    if run.config.classifier.protocol in (None, "refit", "holdout") and run.metrics["test"]:
        found["calibration"] = [one._asdict() for one in run.answers.calibration("test")]
    rounded: dict[str, Any] = _rounded(found)
    return rounded


def parameters(task: Any) -> int:
    """How many numbers were trained of those that score; none of what was fitted, nor of what chose the negatives."""
    if isinstance(task, Fitted):
        return 0
    scoring = (one for name, one in task.model.named_parameters() if not name.startswith("adversary."))
    return sum(weights.numel() for weights in scoring)


def _short(report: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of each of hundreds of relations."""
    sides = {side: report[side]["mrr"] for side in ("head", "tail")}
    return {"triples": report["triples"], "mrr": report["mrr"], "hits@10": report["hits@10"], **sides}


def curve(path: Path) -> dict[str, list[float]]:
    """Loss and validation figures of the epochs that were evaluated; of a cross-validation their means over folds."""
    rows: dict[int, list[dict[str, float]]] = {}
    for event in _events(path):
        if event.get("event") == "epoch" and _FOLD.fullmatch(event.get("part", "fold 1 of 1")):
            rows.setdefault(event["epoch"], []).append({"loss": event["loss"], **event["valid"]})
    columns: dict[str, list[float]] = {"epoch": []}
    seen = {key for many in rows.values() for one in many for key in one}
    keys = [key for key in ("loss", "mrr", "accuracy", "log_likelihood") if key in seen]
    for epoch in sorted(rows):
        if all(key in one for one in rows[epoch] for key in keys):
            columns["epoch"].append(epoch)
            for key in keys:
                values = [one[key] for one in rows[epoch]]
                columns.setdefault(key, []).append(sum(values) / len(values))
    return columns


def _events(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # cut short by a kill
            continue


def _rounded(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _rounded(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_rounded(value) for value in tree]
    return float(f"{tree:.{_DIGITS}g}") if isinstance(tree, float) else tree


def write(path: Path, result: Mapping[str, Any]) -> None:
    """A result as JSON, with a list of numbers, or an object of them, on one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _compact(json.dumps(result, indent=1))
    replace(path, lambda part: part.write_text(text + "\n", encoding="utf-8"))


def _compact(text: str) -> str:
    return re.sub(r"[\[{]\n[^\[\]{}]*[\]}]", lambda match: re.sub(r"\n\s*", " ", match[0]), text)
