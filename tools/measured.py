"""What a trained model is good for, as far as it was measured, as a Markdown table: `python tools/measured.py`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
ASKED = {  # of newcomers: what is asked -> its figure
    "new entities, MRR of what is asked about them": "newcomer_given_mrr",
    "new entities, MRR where they are the answer": "newcomer_answer_mrr",
}
PROBABILITIES = ("the ten best entities", "the best entity")  # where the file has them


def load(name: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((BENCHMARKS / name).read_text(encoding="utf-8"))
    return report


def short(figure: float) -> str:
    """Three decimals, as MRR is written."""
    return f"{figure:.3f}".lstrip("0")


def newcomers() -> list[tuple[str, ...]]:
    """Means over the seeds there are."""
    rows = []
    for what, figure in ASKED.items():
        for data, report in load("newcomers.json")["data"].items():
            found = {
                name: mean(row["test"][name][figure] for row in report["rows"])
                for name in ("newcomers", "popularity", "random", "trained")
            }
            beside = f"popularity {short(found['popularity'])}, random {short(found['random'])}"
            rows.append(
                (what, data, short(found["newcomers"]), f"{beside}, trained with them {short(found['trained'])}")
            )
    return rows


def explanations() -> list[tuple[str, ...]]:
    rows = []
    for data, report in load("explanations.json")["data"].items():
        for row in report["rows"]:
            how = "gradient" if row["method"] == "gradient" else f"exact for {row['exact']} of {row['facts']}"
            what = f"score lost without the 3 facts that `explain` names first, {how}"
            listed = f"{row['listed']['drop']:.2f}"
            beside = f"3 random facts {row['drop_random']:.2f}; more in {row['listed']['larger']:.0%} of {row['facts']}"
            rows.append((what, data, listed, beside))
    return rows


def probabilities() -> list[tuple[str, ...]]:
    rows = []
    for row in load("calibration.json").get("rows", []):
        for what in PROBABILITIES:
            found = row.get("answers", {}).get(what, {})
            if {"before", "after"} <= found.keys():
                after, before = (short(found[when]["error"]) for when in ("after", "before"))
                rows.append((f"calibration error, {what}", row["data"], after, f"the model's own {before}"))
    return rows


def discoveries() -> list[tuple[str, ...]]:
    rows = []
    for row in load("discoveries.json")["rows"]:
        found = {one["top"]: one for one in row["fitted"]}
        said = ", ".join(f"{one['in_test']:.0%} of {top:,}" for top, one in found.items() if top > 100)
        what = "facts that `discover` lists first, in a test split that was hidden: of 100"
        rows.append((what, row["data"], f"{found[100]['in_test']:.0%}", f"of 20 {found[20]['in_test']:.0%}; {said}"))
    return rows


def serving() -> list[tuple[str, ...]]:
    report = load("cpu/serving.json")
    what = f"predictions a second of `serve`, {report['connections']} connections, {report['environment']['device']}"
    late = f"99 % within {report['ms']['p99']:.0f} ms, {report['errors']} errors"
    return [(what, report["data"], f"{report['requests_per_second']:.0f}", late)]


def table() -> str:
    names = ("what", "data", "measured", "beside it")
    head = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    rows = [*newcomers(), *explanations(), *probabilities(), *discoveries(), *serving()]
    return "\n".join([*head, *("| " + " | ".join(row) + " |" for row in rows)])


if __name__ == "__main__":
    print(table())
