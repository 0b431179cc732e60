"""How often the answers that get some probability are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compgcn.plots.figure import COLOURS, FAINT, INK, check_figure, heading, save, thousands

if TYPE_CHECKING:
    from compgcn.answers.calibration import Bin


def draw_reliability(title: str, found: Mapping[str, Sequence[Bin]], path: str | Path) -> None:
    """A reliability diagram, before calibration and after, and how many answers have which probability.

    Args:
        title: what it is of.
        found: the answers by their probability, under what the probabilities are; see `compgcn.answers.calibration`.
        path: the file.
    """
    save([lambda axes: _shares(axes, found), lambda axes: _counts(axes, found)], title, check_figure(path))


def _shares(axes: Any, found: Mapping[str, Sequence[Bin]]) -> None:
    from compgcn.answers.calibration import calibration_error

    axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=":", label="as it should be")
    for (name, some), colour, mark in zip(found.items(), (COLOURS[1], COLOURS[0]), "so", strict=False):
        label = f"{name}, error {calibration_error(some):.3f}"
        axes.plot([one.probability for one in some], [one.right for one in some], f"{mark}-", color=colour, label=label)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.grid(color=FAINT)
    axes.set_xlabel("mean probability")
    axes.set_ylabel("share that is right")
    axes.legend(frameon=False, fontsize=8)
    heading(axes, "Reliability", "the ten best answers to each query that are no fact of the other splits")


def _counts(axes: Any, found: Mapping[str, Sequence[Bin]]) -> None:
    width = 0.8 / 10 / max(len(found), 1)
    for place, ((name, some), colour) in enumerate(zip(found.items(), (COLOURS[1], COLOURS[0]), strict=False)):
        starts = [min(int(one.probability * 10), 9) / 10 + 0.01 + place * width for one in some]
        axes.bar(starts, [one.answers for one in some], width, align="edge", color=colour, label=name)
    axes.set_yscale("log")
    thousands(axes.yaxis)
    axes.set_xlim(0, 1)
    axes.grid(axis="y")
    axes.set_xlabel("probability")
    axes.set_ylabel("answers")
    axes.legend(frameon=False, fontsize=8)
    heading(axes, "Answers")
