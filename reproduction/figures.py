"""The figures of a table and of a figure of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compgcn.run.plots import COLOURS, FAINT, INK, PANEL, check_figure, heading, save, short

Compared = tuple[str, float | None, tuple[float, float] | None]  # label, paper, and ours: mean and deviation
Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # label -> x and y

_LETTERS = 48  # of a row's label: what tells it from the next may be in the middle
_WIDE = 10  # times the first x is the last, from which on they stand on a log axis


def draw_rows(
    title: str, rows: Sequence[Compared], metric: str, curves: Curves, calibration: Curves, path: str | Path
) -> None:
    """The rows of a table, one below the other: what the paper has, and what was reached here.

    Args:
        title: what it is of.
        rows: of the table.
        metric: what is shown.
        curves: validation figures against the epoch, of the best rows.
        calibration: how often an answer is right against how probable it is said to be, of the same.
        path: the file.
    """
    panels: list[Callable[[Any], None]] = [lambda axes: _rows(axes, rows, metric)]
    colours = {name: COLOURS[k % len(COLOURS)] for k, name in enumerate({**curves, **calibration})}  # alike in both
    if curves:
        panels.append(lambda axes: _curves(axes, curves, metric, colours))
    if calibration:
        panels.append(lambda axes: _calibration(axes, calibration, colours))
    save(panels, title, check_figure(path), height=max(PANEL[1], 0.3 * len(rows)))


def _rows(axes: Any, rows: Sequence[Compared], metric: str) -> None:
    quoted = [(paper, k) for k, (_, paper, _) in enumerate(rows) if paper is not None]
    reached = [(*ours, k) for k, (_, _, ours) in enumerate(rows) if ours is not None]
    if quoted:
        axes.plot(*zip(*quoted, strict=True), "o", color="none", markeredgecolor=INK, label="paper")
    means, deviations, places = zip(*reached, strict=True)
    axes.errorbar(means, places, xerr=deviations, fmt="D", color=COLOURS[0], markersize=5, capsize=3, label="ours")
    axes.set_yticks(range(len(rows)), [short(label, _LETTERS) for label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid()
    axes.set_xlabel(metric)
    axes.legend(frameon=False)


def _curves(axes: Any, curves: Curves, metric: str, colours: Mapping[str, str]) -> None:
    for name, (epochs, values) in curves.items():
        axes.plot(epochs, values, color=colours[name], linewidth=1.5, label=short(name, _LETTERS))
    axes.grid()
    axes.set_xlabel("epoch")
    axes.set_ylabel(f"validation {metric}")
    _below(axes)
    heading(axes, "Training", "the best of the rows with a curve, their first seed")


def _calibration(axes: Any, calibration: Curves, colours: Mapping[str, str]) -> None:
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1.5)
    for name, (chances, right) in calibration.items():
        axes.plot(chances, right, "o-", color=colours[name], markersize=4, label=short(name, _LETTERS))
    axes.grid()
    axes.set_xlabel("probability of the best answer")
    axes.set_ylabel("share of answers that are right")
    _below(axes)
    heading(axes, "The models' own probabilities", "before they are calibrated; on the line one means what it says")


def _below(axes: Any) -> None:
    """The legend under the axes, where it covers no line."""
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.12), ncols=2)


def draw_differences(
    title: str, rows: Sequence[tuple[str, float, float | None]], metric: str, path: str | Path
) -> None:
    """What it does to change a setting, one row below the other; a bar says how much of that chance alone may do.

    Args:
        title: what it is of.
        rows: a label, the difference, and how large it may be by chance; None where that is not known.
        metric: what differs.
        path: the file.
    """

    def panel(axes: Any) -> None:
        axes.axvline(0, color=INK, linewidth=0.8)
        bars = [(k, by_chance) for k, (_, _, by_chance) in enumerate(rows) if by_chance is not None]
        if bars:
            places, reach = zip(*bars, strict=True)
            wide = [2 * most for most in reach]
            axes.barh(places, wide, 0.6, [-most for most in reach], color=FAINT, label="chance alone, 19 times in 20")
        axes.plot([gap for _, gap, _ in rows], range(len(rows)), "D", color=COLOURS[0], markersize=6, label="measured")
        axes.set_yticks(range(len(rows)), [short(label, _LETTERS) for label, _, _ in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(f"change of {metric}")
        axes.grid(axis="x")
        axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, -0.12), ncols=2)  # no row is covered

    save([panel], title, check_figure(path), height=max(PANEL[1], 0.3 * len(rows)))


def draw_lines(
    title: str, lines: Mapping[str, Sequence[tuple[float, float, float]]], labels: tuple[str, str], path: str | Path
) -> None:
    """The lines of a figure, each a series of points x, y and the spread of y, 0 if there is none; what x and y are."""

    def panel(axes: Any) -> None:
        for k, (name, points) in enumerate(lines.items()):
            x, y, spread = zip(*sorted(points), strict=True)
            bars = spread if any(spread) else None
            axes.errorbar(x, y, bars, fmt="o-", capsize=3, color=COLOURS[k % len(COLOURS)], label=name or None)
        places = sorted({x for points in lines.values() for x, _, _ in points})
        if places[0] > 0 and places[-1] / places[0] > _WIDE:
            axes.set_xscale("log")
            axes.set_xticks(places, [f"{x:,g}" for x in places], minor=False)
            axes.minorticks_off()
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.grid()
        if any(lines):
            axes.legend(frameon=False)

    save([panel], title, check_figure(path))
