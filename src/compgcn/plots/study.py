"""The figure of a search for settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compgcn.plots.figure import COLOURS, INK, THIN, check_figure, heading, save, short


def draw_study(result: Mapping[str, Any], history: Sequence[tuple[int, float | None]], path: str | Path) -> None:
    """The figures of the trials of a search one after another, and how much each setting mattered, in one file.

    Args:
        result: of the study, see `compgcn.tune.result`.
        history: number and figure of each trial; None for one without.
        path: the file.
    """
    panels: list[Callable[[Any], None]] = [lambda axes: _history(axes, result, history)]
    if result["importance"]:
        panels.append(lambda axes: _importance(axes, result["importance"]))
    save(panels, f"{result['study']}  ·  {result['trials']} trials", check_figure(path))


def _history(axes: Any, result: Mapping[str, Any], history: Sequence[tuple[int, float | None]]) -> None:
    numbers, values = np.array([pair for pair in history if pair[1] is not None], dtype=float).T
    axes.plot(numbers, values, "o", color=COLOURS[0], markersize=4, alpha=0.7, label="trial")
    axes.step(
        numbers, np.maximum.accumulate(values), where="post", color=COLOURS[3], linewidth=1.5, label="best so far"
    )
    for number in (number for number, value in history if value is None):
        axes.axvline(number, ymax=0.03, color=INK, linewidth=0.8)
    axes.grid(axis="y")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("trial; a tick for one that was stopped early")
    axes.set_ylabel(f"validation {result['goal']}")
    axes.legend(frameon=False, loc="lower right")
    heading(axes, "History", f"best {result['best']['value']:.4f} in trial {result['best']['trial']}")


def _importance(axes: Any, shares: Mapping[str, float]) -> None:
    drawn = axes.barh(range(len(shares)), [100 * share for share in shares.values()], height=0.74, color=COLOURS[0])
    axes.bar_label(drawn, [f"{100 * share:.0f}" for share in shares.values()], padding=3, fontsize=8)
    axes.set_yticks(range(len(shares)), [short(name) for name in shares])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(len(shares), THIN) - 0.5, -0.5)
    axes.set_xlim(0, 110)
    axes.grid(axis="x")
    axes.set_xlabel("% of the difference between trials")
    heading(axes, "Importance", "what a setting explains of the figures reached")
