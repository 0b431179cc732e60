"""The committed benchmarks as Markdown tables and a chart: `python tools/benchmarks.py [costs | chart.svg]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
MACHINES = ("h200", "cpu")
BLUE, RED = "#0072b2", "#d55e00"  # told apart by everybody


def load(machine: str, name: str) -> dict[str, Any] | None:
    """One report, if it was measured on that machine."""
    path = BENCHMARKS / machine / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def cell(cost: dict[str, float] | None) -> str:
    """Time and memory."""
    if cost is None:
        return "–"
    ms = cost["ms"]
    time = f"{ms:.2f} ms" if ms < 10 else f"{ms:,.0f} ms" if ms < 10_000 else f"{ms / 1000:,.1f} s"
    return time if cost.get("mib") is None else f"{time}, {cost['mib']:,.0f} MiB"


def line(
    what: str, report: dict[str, Any], ours: dict[str, float], theirs: dict[str, float] | None, peer: str = "–"
) -> str:
    """One row of the table."""
    faster = "–" if theirs is None else f"{theirs['ms'] / ours['ms']:,.0f}×"
    cells = [what, report["environment"]["device"], cell(ours), cell(theirs), faster, peer]
    return "| " + " | ".join(cells) + " |"


def rows(machine: str) -> list[str]:
    """All rows of one machine."""
    lines = []
    for data in ("fb15k-237", "wn18rr"):
        if report := load(machine, f"step-{data}"):
            config, steps = report["config"], report["steps"]
            model = f"{config['decoder']['name']} + {config['encoder']['name']} ({config['encoder']['composition']})"
            what = f"training step, {data}, {model}, batch {report['batch']}"
            recorded = "ours, eager" in steps
            eager = steps["ours, eager"] if recorded else steps["ours"]
            lines.append(line(what, report, eager, steps.get("per edge"), cell(steps.get("PyKEEN"))))
            if recorded:
                lines.append(line("the same, compiled and recorded as one CUDA graph", report, steps["ours"], None))
    if report := load(machine, "costs-fb15k-237"):
        lines += beside_pykeen(report)
    if report := load(machine, "kernels"):
        for row in report["layer"]:
            what = f"layer, forward and backward, {report['data']}, {row['composition']}, 100 → 200"
            lines.append(line(what, report, row["ours"], row["per_edge"]))
        last = report["scaling"][-1]
        what = f"the same on {last['messages']:,} messages, mult, 100 → 100"
        lines.append(line(what, report, last["ours"], last["per_edge"]))
    if report := load(machine, "evaluate"):
        what = f"filtered test evaluation, {report['data']}, {report['ranks']:,} ranks"
        lines.append(line(what, report, {"ms": report["ours"]["ms"]}, None))
    return lines


def beside_pykeen(report: dict[str, Any]) -> list[str]:
    """The row of the costs that PyKEEN has too."""
    lines = []
    for row in report["rows"]:
        steps = row["steps"]
        if "PyKEEN" in steps and "ours" in steps:
            what = f"training step, {report['data']}, {row['label']}, batch {row['batch']}"
            plain = steps.get("ours, eager", steps["ours"])
            lines.append(line(what, report, plain, steps.get("per edge"), cell(steps["PyKEEN"])))
            if "ours, eager" in steps:
                how = "compiled and recorded" if report["compiled"] else "recorded"
                lines.append(line(f"the same, {how} as one CUDA graph", report, steps["ours"], None))
    return lines


def costs() -> str:
    """What every scoring function with every encoder costs, a table for each machine that measured it."""
    reports = [report for machine in MACHINES if (report := load(machine, "costs-fb15k-237"))]
    return "\n\n".join(map(cost_table, reports)) or "Not measured yet."


def cost_table(report: dict[str, Any]) -> str:
    """The rows of one report; a cell is a step, an epoch of such steps and the peak memory."""
    made = report["environment"]
    recorded = any("ours, eager" in row["steps"] for row in report["rows"])
    kinds = ["ours", *(["ours, eager"] if recorded else []), "per edge", "PyKEEN"]
    names = {"ours": "ours, recorded" if recorded else "ours", "ours, eager": "ours, operation by operation"}
    header = ["model", "batch", "parameters", *(names.get(kind, kind) for kind in kinds)]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in report["rows"]:
        cells = [row["label"], f"{row['batch']:,}", f"{row['parameters']:,}"]
        cells += [cost_cell(row, kind) for kind in kinds]
        lines.append("| " + " | ".join(cells) + " |")
    how = ", compiled" if report["compiled"] else ""
    title = f"{report['data']}, {made['device']}, torch {made['torch']}{how}, {made['date']}:"
    return "\n".join([title, "", *lines])


def cost_cell(row: dict[str, Any], kind: str) -> str:
    """A step, an epoch and the peak memory; parameters where they are not the row's."""
    if kind not in row["steps"]:
        return row.get("left_out", {}).get(kind, "–")
    found = row["steps"][kind]
    time, _, memory = cell(found).partition(", ")
    parts = [time, f"{found['seconds_per_epoch']:,.2f} s", memory]
    parts += [f"{found['parameters']:,} parameters"] if "parameters" in found else []
    return ", ".join(part for part in parts if part)


def table() -> str:
    """Every row, the faster machine first."""
    names = ("what", "on", "ours", "per edge", "faster", "PyKEEN, DistMult, d 200")
    head = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join(head + [row for machine in MACHINES for row in rows(machine)])


def draw(path: Path) -> None:
    """Time and memory of a layer against the number of messages, ours and edge by edge."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    matplotlib.rcParams.update({"svg.hashsalt": "compgcn", "svg.fonttype": "path", "font.size": 9})
    reports = [report for machine in MACHINES if (report := load(machine, "kernels"))]
    figure, axes = plt.subplots(2, len(reports), figsize=(4.4 * len(reports), 5.2), sharex=True, squeeze=False)
    for column, report in zip(axes.T, reports, strict=True):
        for axis, key, label in zip(column, ("ms", "mib"), ("time, ms", "peak memory, MiB"), strict=True):
            for name, colour, legend in (("per_edge", RED, "per edge"), ("ours", BLUE, "this package")):
                points = [(r["messages"], r[name][key]) for r in report["scaling"] if r[name] and r[name][key]]
                axis.plot(*zip(*points, strict=True), "o-", color=colour, label=legend, markersize=4, linewidth=1.5)
            axis.set(xscale="log", yscale="log", ylabel=label)
            axis.grid(True, which="major", color="#e6e6e6", linewidth=0.8)
            axis.set_axisbelow(True)
            axis.spines[["top", "right"]].set_visible(False)
        column[0].set_title(report["environment"]["device"], fontsize=10)
        column[1].set_xlabel("messages (both directions)")
    axes[0, 0].legend(frameon=False)
    figure.suptitle("One layer (mult, 100 → 100), forward and backward", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    if sys.argv[1:] == ["costs"]:
        print(costs())
    elif len(sys.argv) > 1:
        draw(Path(sys.argv[1]))
    else:
        print(table())
