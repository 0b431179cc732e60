"""The committed results as Markdown tables, for the README: `python tools/results.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")
# The paper's accuracy, and what it is an accuracy on.
PAPER = {
    "mutag": {
        "compgcn": "85.3 ± 1.2",
        "dgcn": "74.8 ± 5.5",  # SynGCN
        "wgcn": "77.9 ± 3.2",
        "rgcn": "73.2",
        "feat": "77.9",
        "wl": "80.9",
        "rdf2vec": "67.2",
    },
    "mutag-graph": {
        "compgcn": "89.0 ± 11.1 (validation)",
        "pachysan": "92.6 ± 4.2",
        "dgcnn": "85.8",
        "gin": "89.4 ± 4.7 (validation)",
    },
    "ptc": {
        "compgcn": "71.6 ± 12.0 (validation)",
        "pachysan": "60.0 ± 4.8",
        "dgcnn": "58.6",
        "gin": "64.6 ± 7.0 (validation)",
    },
}


def ranking(path: Path, result: dict[str, Any]) -> list[str]:
    """One result of link prediction: what was trained, its test metrics, and what it took."""
    encoder, decoder, test = result["config"]["encoder"], result["config"]["decoder"], result["metrics"]["test"]
    figures = [f"{test[name]:.0f}" if name == "mr" else f"{test[name]:.4f}".lstrip("0") for name in METRICS]
    environment = result["environment"]
    model = f"{encoder['name']} ({encoder['composition']}) + {decoder['name']}"
    cells = [result["data"], model, str(environment["seed"]), *figures, f"{environment['seconds']:.0f} s"]
    return [*cells, environment["device"], link(path)]


def classification(path: Path, result: dict[str, Any]) -> list[str]:
    """One result of a classification: mean over seeds; ± over the folds where there are any, else over seeds."""
    encoder, accuracy, seeds = result["config"]["encoder"], result["accuracy"], result["seeds"]
    over = "folds" if accuracy["sd_over_folds"] else "seeds"
    figure = f"{100 * accuracy['mean']:.1f} ± {100 * accuracy[f'sd_over_{over}']:.1f} ({over})"
    baseline = result["config"]["classifier"].get("baseline")
    plain = f"{baseline}, baseline" if baseline else encoder["name"]
    model = plain if baseline or encoder["composition"] == "copy" else f"{plain} ({encoder['composition']})"
    seconds = sum(run["seconds"] for run in result["runs"]) / len(seeds)
    what = {"valid": "validation", "test": "test"}[result["split"]]
    paper = PAPER.get(result["data"], {}).get(baseline or encoder["name"], "")
    cells = [result["data"], model, result["protocol"], f"{seeds[0]}–{seeds[-1]}", what, figure]
    cells += [f"{result['macro_f1']['mean']:.3f}", paper, f"{seconds:.0f} s a seed", result["environment"]["device"]]
    return [*cells, link(path)]


def link(path: Path) -> str:
    return f"[file]({path.relative_to(RESULTS.parent)})"


def table(names: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (names, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(names), *lines[1:]])


def tables() -> str:
    """Link prediction, test metrics on filtered realistic ranks; then classification."""
    found = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(RESULTS.rglob("*.json"))]
    ranked = [ranking(path, result) for path, result in found if "protocol" not in result]
    classified = [classification(path, result) for path, result in found if "protocol" in result]
    names = ["data", "model", "seed", *(name.upper() for name in METRICS), "training", "on", ""]
    others = ["data", "model", "protocol", "seeds", "split", "accuracy, %", "macro F1", "paper", "training", "on", ""]
    return f"{table(names, ranked)}\n\n{table(others, classified)}"


if __name__ == "__main__":
    print(tables())
