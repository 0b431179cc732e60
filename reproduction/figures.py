"""Figures of experiments and of speed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compgcn.run.plots import COLOURS, FAINT, INK, PANEL, Panel, check_figure, save, short
from reproduction.differences import difference, limit
from reproduction.experiment import Experiment
from reproduction.tables import Board, relative, title

_LETTERS = 48  # most letters of a label
_WIDE = 10  # ratio of the last x to the first that asks for a log axis


def draw(board: Board, experiment: Experiment, path: Path) -> bool:
    """Draw an experiment and return True, or return False if it has nothing to draw."""
    panels = {"table": _rows, "differences": _differences, "figure": _lines}
    panel = panels[experiment.kind](board, experiment) if experiment.kind in panels else None
    if panel is None:
        return False
    long = experiment.kind != "figure"
    height = max(PANEL[1], 0.3 * len(experiment.rows)) if long else PANEL[1]
    save([panel], experiment.title, check_figure(path), height=height)
    return True


def _label_rows(axes: Any, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [short(label, _LETTERS) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="x")


def _rows(board: Board, experiment: Experiment) -> Panel | None:
    """Draw the rows of a table below each other: the paper's number, and ours with its deviation."""
    metric = experiment.metrics[0]
    ours = [board.real(experiment, row, metric) for row in experiment.rows]
    reached = [(figure.mean, figure.sd, k) for k, figure in enumerate(ours) if figure is not None]
    quoted = [(row.paper[metric], k) for k, row in enumerate(experiment.rows) if metric in row.paper]
    labels = [f"{row.label}, {row.group}" if row.group not in row.label else row.label for row in experiment.rows]

    def panel(axes: Any) -> None:
        if quoted:
            axes.plot(*zip(*quoted, strict=True), "o", color="none", markeredgecolor=INK, label="paper")
        means, deviations, places = zip(*reached, strict=True)
        axes.errorbar(means, places, xerr=deviations, fmt="D", color=COLOURS[0], markersize=5, capsize=3, label="ours")
        _label_rows(axes, labels)
        axes.set_xlabel(title(metric))
        axes.legend(frameon=False)

    return panel if reached else None


def _differences(board: Board, experiment: Experiment) -> Panel | None:
    """Draw the difference of each row to its control over a bar of the size that chance explains."""
    metric = experiment.metrics[0]
    found = [(row, difference(board, experiment, row, metric)) for row in experiment.rows]
    rows = [(row.label, one.gap, limit(board, experiment, row) or 0.0) for row, one in found if one is not None]

    def panel(axes: Any) -> None:
        axes.axvline(0, color=INK, linewidth=0.8)
        left, wide = [-most for _, _, most in rows], [2 * most for _, _, most in rows]
        axes.barh(range(len(rows)), wide, 0.6, left, color=FAINT, label="chance alone, 19 times in 20")
        axes.plot([gap for _, gap, _ in rows], range(len(rows)), "D", color=COLOURS[0], markersize=6, label="measured")
        _label_rows(axes, [label for label, _, _ in rows])
        axes.set_xlabel(f"change of {title(metric)}")
        axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, -0.12), ncols=2)  # covers no row

    return panel if rows else None


def _lines(board: Board, experiment: Experiment) -> Panel | None:
    """Draw each series as a line of changes relative to the reference, with deviations over seeds."""
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for row in experiment.rows:
        change = relative(board, experiment, row)
        if change is not None and row.x is not None:
            lines.setdefault(row.series, []).append((row.x, 100 * change[0], 100 * change[1]))

    def panel(axes: Any) -> None:
        for k, (name, points) in enumerate(lines.items()):
            x, y, spread = zip(*sorted(points), strict=True)
            axes.errorbar(x, y, spread if any(spread) else None, fmt="o-", capsize=3, color=COLOURS[k], label=name)
        places = sorted({x for points in lines.values() for x, _, _ in points})
        if places[0] > 0 and places[-1] / places[0] > _WIDE:
            axes.set_xscale("log")
            axes.set_xticks(places, [f"{x:,g}" for x in places], minor=False)
            axes.minorticks_off()
        axes.set_xlabel(experiment.axis)
        axes.set_ylabel(f"{title(experiment.metrics[0])} relative to {experiment.reference}, %")
        axes.grid()
        if any(lines):
            axes.legend(frameon=False)

    return panel if lines else None


def draw_speed(reports: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw time and memory of a layer against the number of messages, ours and edge by edge, for each machine."""

    def panel(report: dict[str, Any], key: str, label: str) -> Panel:
        def axes_of(axes: Any) -> None:
            for name, colour, legend in (("per_edge", COLOURS[3], "per edge"), ("ours", COLOURS[0], "this package")):
                points = [
                    (row["messages"], row[name][key]) for row in report["scaling"] if row[name] and row[name][key]
                ]
                axes.plot(*zip(*points, strict=True), "o-", color=colour, label=legend, markersize=4)
            axes.set(xscale="log", yscale="log", xlabel="messages (both directions)", ylabel=label)
            axes.set_title(report["environment"]["device"])
            axes.grid()
            axes.legend(frameon=False)

        return axes_of

    panels = [panel(report, *one) for report in reports for one in (("ms", "time, ms"), ("mib", "peak memory, MiB"))]
    save(panels, "One layer (mult, 100 → 100), forward and backward", check_figure(path), height=3.2)
