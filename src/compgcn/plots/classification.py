"""The figure of a classification."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compgcn.answers.plane import principal_plane
from compgcn.plots.figure import BARS, COLOURS, DARK, check_figure, heading, save, short

Points = tuple[NDArray[np.float32], NDArray[np.int64]]


def draw_report(
    title: str, report: Mapping[str, Any], classes: Sequence[str], points: Points, path: str | Path
) -> None:
    """The confusion matrix of a classification, the accuracy of each fold, and a picture of the vectors, in one file.

    Args:
        title: what it is of.
        report: of a split, see `compgcn.tasks.classification.report`.
        classes: their names.
        points: vectors [n, d] of what was classified, and its classes [n]; -1 for one without.
        path: the file.
    """
    panels: list[Callable[[Any], None]] = [lambda axes: confusion(axes, np.array(report["confusion"]), classes)]
    if "folds" in report:
        panels.append(lambda axes: _folds(axes, report))
    panels.append(lambda axes: _plane(axes, points, classes))
    save(panels, title, check_figure(path))


def confusion(axes: Any, counts: NDArray[np.int64], classes: Sequence[str]) -> None:
    """How many of each class (a row) were given each class (a column), coloured by their share of the row."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(classes) <= BARS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.5 else DARK
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour, fontsize=9)
    names = [short(name) for name in classes]
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    right = 100 * counts.trace() / max(counts.sum(), 1)
    heading(axes, "Confusion matrix", f"{counts.trace():,} of {counts.sum():,} right, {right:.1f} %")


def _folds(axes: Any, report: Mapping[str, Any]) -> None:
    values = [100 * fold["accuracy"] for fold in report["folds"]]
    drawn = axes.bar(range(1, len(values) + 1), values, color=COLOURS[0], width=0.8)
    axes.bar_label(drawn, [f"{value:.0f}" for value in values], padding=2, fontsize=8)
    mean, deviation = 100 * report["accuracy"], 100 * report["accuracy_sd"]
    axes.axhline(mean, color=COLOURS[3], linewidth=1.5)
    axes.set_ylim(0, 108)
    axes.set_xticks(range(1, len(values) + 1))
    axes.grid(axis="y")
    axes.set_xlabel("fold")
    axes.set_ylabel("accuracy, %")
    heading(axes, "Folds", f"mean {mean:.1f} ± {deviation:.1f} %")


def _plane(axes: Any, points: Points, classes: Sequence[str]) -> None:
    vectors, targets = points
    places, shares = principal_plane(vectors)
    for number in range(len(classes)):
        chosen = places[targets == number]
        colour, mark = COLOURS[number % len(COLOURS)], "os^Dv"[number // len(COLOURS) % 5]
        axes.plot(*chosen.T, mark, color=colour, markersize=4, alpha=0.7, label=short(classes[number]))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(frameon=False, fontsize=8)
    heading(axes, "Vectors", f"the two principal axes, {100 * sum(shares):.0f} % of the variance")
