"""The committed results as a Markdown table, for the README: `python tools/results.py`."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "results"
METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")


def row(path: Path) -> str:
    """One result: what was trained, its test metrics, and what it took."""
    result = json.loads(path.read_text(encoding="utf-8"))
    encoder, decoder, test = result["config"]["encoder"], result["config"]["decoder"], result["metrics"]["test"]
    figures = [f"{test[name]:.0f}" if name == "mr" else f"{test[name]:.4f}".lstrip("0") for name in METRICS]
    environment = result["environment"]
    model = f"{encoder['name']} ({encoder['composition']}) + {decoder['name']}"
    cells = [result["data"], model, str(environment["seed"]), *figures, f"{environment['seconds']:.0f} s"]
    return "| " + " | ".join([*cells, environment["device"], f"[file]({path.relative_to(RESULTS.parent)})"]) + " |"


def table() -> str:
    """All results, test metrics on filtered realistic ranks."""
    names = ["data", "model", "seed", *(name.upper() for name in METRICS), "training", "on", ""]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + [row(path) for path in sorted(RESULTS.rglob("*.json"))])


if __name__ == "__main__":
    print(table())
