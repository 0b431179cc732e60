"""What `evaluate` says of the probabilities of a link predictor: how far they can be believed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from compgcn.cli.console import out
from compgcn.errors import InputError
from compgcn.plots.reliability import draw_reliability

if TYPE_CHECKING:
    from compgcn.answers.calibration import Bin, Reliability, Scaling
    from compgcn.run import Run


def show(run: Run, split: str) -> None:
    """The expected calibration error on a split, of the model's own probabilities and of the calibrated ones.

    Of the ten best answers to a query, and of the first alone: most of ten are wrong and easily known to be.
    """
    from compgcn.answers.calibration import calibration_error

    given, scaling = _shown(run, split)
    for what, some in (("the ten best to a query", given), ("the first to each", given.where(given.first))):
        if not len(some.right):
            return
        text = f"{calibration_error(some.bins()):.4f}"
        if scaling is not None:
            text += f" before, {calibration_error(some.bins(scaling)):.4f} after calibration on valid"
        out.print(f"expected calibration error {text} (of {len(some.right):,} answers, {what})")


def draw(run: Run, split: str, path: Path) -> None:
    """The reliability diagram of a split."""
    found = _bins(run, split)
    if not found:
        raise InputError(f"the {split} split of the run {run.path} is empty, so there is nothing to draw")
    draw_reliability(f"{run.data.name}  ·  {run.model_name}  ·  {split}", found, path)


def _bins(run: Run, split: str) -> dict[str, list[Bin]]:
    """By what the probabilities are."""
    given, scaling = _shown(run, split)
    found = {"as trained": given.bins()} if len(given.right) else {}
    if found and scaling is not None:
        found["calibrated on valid"] = given.bins(scaling)
    return found


def _shown(run: Run, split: str) -> tuple[Reliability, Scaling | None]:
    """The ten best entities for each query of a split, and their calibration."""
    from compgcn.answers.links import Links
    from compgcn.answers.reliability import of_entities

    links = run.answers
    assert isinstance(links, Links)
    return of_entities(links, split), links.scalings.get("entities")
