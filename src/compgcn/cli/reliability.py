"""What `evaluate` says of the probabilities of a link predictor: how far they can be believed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from compgcn.cli.console import out
from compgcn.errors import InputError
from compgcn.plots.reliability import draw_reliability

if TYPE_CHECKING:
    from compgcn.answers.calibration import Bin
    from compgcn.run import Run


def show(run: Run, split: str) -> None:
    """The expected calibration error on a split, of the model's own probabilities and of the calibrated ones."""
    from compgcn.answers.calibration import calibration_error

    found = _bins(run, split)
    if not found:
        return
    before, *after = (calibration_error(some) for some in found.values())
    what = f"{before:.4f} before, {after[0]:.4f} after calibration on valid" if after else f"{before:.4f}"
    answers = sum(one.answers for one in next(iter(found.values())))
    out.print(f"expected calibration error {what} (of {answers:,} answers, the ten best to a query)")


def draw(run: Run, split: str, path: Path) -> None:
    """The reliability diagram of a split."""
    found = _bins(run, split)
    if not found:
        raise InputError(f"the {split} split of the run {run.path} is empty, so there is nothing to draw")
    draw_reliability(f"{run.data.name}  ·  {run.model_name}  ·  {split}", found, path)


def _bins(run: Run, split: str) -> dict[str, list[Bin]]:
    """By what the probabilities are."""
    from compgcn.answers.links import Links
    from compgcn.answers.reliability import of_entities

    links = run.answers
    assert isinstance(links, Links)
    given, scaling = of_entities(links, split), links.scalings.get("entities")
    found = {"as trained": given.bins()} if len(given.right) else {}
    if found and scaling is not None:
        found["calibrated on valid"] = given.bins(scaling)
    return found
