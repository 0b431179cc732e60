"""The panels of the page of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compgcn.answers.calibration import Bin
from compgcn.plots.figure import BARS, COLOURS, FAINT, heading, short

_NAMES = {"loss": "loss", "mrr": "MRR", "accuracy": "accuracy", "log_likelihood": "log likelihood"}


def training(axes: Any, epochs: Sequence[float], values: Sequence[float], figure: str, best: int | None) -> None:
    """One figure against the epoch; the epoch whose weights were kept is marked."""
    colour = COLOURS[1] if figure == "loss" else COLOURS[0]
    axes.plot(epochs, values, color=colour, linewidth=1.8, marker="o" if len(epochs) < 60 else None, markersize=3.5)
    if best is not None and figure != "loss" and best in epochs:
        axes.plot([best], [values[list(epochs).index(best)]], "D", color=COLOURS[3], markersize=7)
    axes.grid()
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("epoch")
    name = _NAMES.get(figure, figure)
    if figure == "loss":
        heading(axes, "Training loss", f"from {values[0]:.4g} to {values[-1]:.4g}")
    else:
        if 0 <= min(values) <= max(values) <= 1:
            axes.set_ylim(top=min(axes.get_ylim()[1], 1.01))
        kept = f", the epoch kept is {best}" if best else ""
        heading(axes, f"Validation {name}", f"highest {max(values):.4g}{kept}")


def calibration(axes: Any, found: Mapping[str, Sequence[Bin]]) -> None:
    """How often answers are right against how probable they are said to be; a larger point stands for more answers."""
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1.5)
    for k, (name, bins) in enumerate(found.items()):
        chances, right = [one.probability for one in bins], [one.right for one in bins]
        sizes = 20 + 180 * np.array([one.answers for one in bins]) / max(one.answers for one in bins)
        axes.plot(chances, right, color=COLOURS[k], linewidth=1.2)
        axes.scatter(chances, right, s=sizes, color=COLOURS[k], alpha=0.85, linewidths=0, label=name)
    axes.set_xlim(-0.04, 1.04)
    axes.set_ylim(-0.04, 1.04)
    axes.grid()
    axes.set_xlabel("probability of the best answer")
    axes.set_ylabel("share that is right")
    if len(found) > 1:
        axes.legend(frameon=False, loc="upper left", fontsize=8)
    heading(axes, "Calibration", "on the line, a probability means what it says")


def sides(axes: Any, title: str, parts: Mapping[str, Mapping[str, Any]]) -> None:
    """The MRR of heads and of tails, two bars for each part; of many, the first."""
    names = list(parts)[:BARS]
    for k, side in enumerate(("head", "tail")):
        at = np.arange(len(names)) + (k - 0.5) * 0.4
        values = [parts[name][side]["mrr"] for name in names]
        drawn = axes.barh(at, values, height=0.36, color=COLOURS[k], label=f"{side}s")
        axes.bar_label(drawn, [f"{value:.2f}" for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 1.1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.grid(axis="x")
    axes.set_xlabel("MRR")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8)
    more = f"the {BARS} most frequent of {len(parts):,}" if len(parts) > BARS else "asked for heads and for tails"
    heading(axes, title, more)
