"""What it does to a model to change one setting: rows beside their controls, held against how far seeds lie apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compgcn.config import write_setting
from compgcn.errors import unknown
from compgcn.experiment import Experiment, Row, at_home, chosen
from compgcn.report import COSTS, LOWER, MISSING, NOT_RUN, Board, Figure, Table, costs, shown, title

BELOW = "below the spread of seeds"
# Beyond so many standard errors lies chance alone once in 20: Student's t, by how many seeds more than one there are.
_QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
_RULE = (
    "*Below the spread of seeds* is a difference smaller than the standard deviation of {figure} over seeds {seeds} of "
    "`{row}`, {sd}; that of other models is taken to be the same. *Undecided* is one within {times:.2f} standard "
    "errors of a difference between two such models, which chance exceeds once in 20 by Student's t; the standard "
    "error is √2 times that deviation where each has one seed. *Better* and *worse* are beyond both."
)
_NO_RULE = "How far seeds lie apart is not known yet{why}, and no difference is called better or worse."


def difference_tables(board: Board, experiment: Experiment) -> list[Table]:
    """A table for each group of rows."""
    groups: dict[str, list[Row]] = {}
    for row in experiment.rows:
        groups.setdefault(row.group, []).append(row)
    return [_table(board, experiment, group, rows) for group, rows in groups.items()]


def _table(board: Board, experiment: Experiment, group: str, rows: Sequence[Row]) -> Table:
    lines = []
    for row in rows:
        settings = ", ".join(f"`{write_setting(*one)}`" for one in changed(experiment, row).items())
        against = f"`{row.control}`" if row.control else MISSING
        cells = [row.label, f"`{row.name}`", against, settings or MISSING]
        for metric in experiment.metrics:
            gap = difference(board, experiment, row, metric)
            cells += [shown(board.ours(experiment, row, metric), metric), MISSING if gap is None else small(gap)]
        lines.append([*cells, worth(board, experiment, row), *costs(board.results(experiment, row))])
    figures = [name for metric in experiment.metrics for name in (title(metric), "difference")]
    return Table(group, ("model", "row", "against", "with", *figures, "", *COSTS), lines)


def changed(experiment: Experiment, row: Row) -> dict[str, Any]:
    """The settings that a row has otherwise than its control."""
    if row.control is None:
        return {}
    before, after = (chosen(*at_home(experiment, one)) for one in (experiment.row(row.control), row))
    return {name: value for name, value in after.items() if name not in before or before[name] != value}


def difference(board: Board, experiment: Experiment, row: Row, metric: str) -> float | None:
    """How much higher the figure of a row is than that of its control; None unless both were run."""
    if row.control is None:
        return None
    ours, other = (board.real(experiment, one, metric) for one in (row, experiment.row(row.control)))
    return None if ours is None or other is None else ours.mean - other.mean


def worth(board: Board, experiment: Experiment, row: Row) -> str:
    """What a difference comes to, in words; or why there is none."""
    metric = experiment.metrics[0]
    ours = board.ours(experiment, row, metric)
    if ours is None or ours.state:
        return NOT_RUN if ours is None else ours.state
    if row.control is None:
        return ""
    other, chance = board.real(experiment, experiment.row(row.control), metric), _spread(board, experiment)
    if other is None:
        return f"`{row.control}` is {NOT_RUN}"
    gap = ours.mean - other.mean
    if chance is None:
        return ""
    if abs(gap) < chance.sd:
        return BELOW
    if abs(gap) <= _times(chance) * chance.sd * math.sqrt(1 / ours.seeds + 1 / other.seeds):
        return "undecided"
    return "better" if (gap > 0) != (metric.rpartition("/")[2] in LOWER) else "worse"


def _times(chance: Figure) -> float:
    """How many standard errors a difference must exceed."""
    return _QUANTILES[min(chance.seeds - 1, len(_QUANTILES)) - 1]


def rule(board: Board, experiment: Experiment) -> str:
    """When a difference is one."""
    chance = _spread(board, experiment)
    if chance is None:
        return _NO_RULE.format(why=f": `{experiment.seeds_of}` has fewer than two seeds" if experiment.seeds_of else "")
    home, row = _seeds_of(board, experiment)
    seeds = ", ".join(str(result["seed"]) for result in board.results(home, row))
    figure = title(experiment.metrics[0])
    sd, times = small(chance.sd)[1:], _times(chance)
    return _RULE.format(figure=figure, seeds=seeds, row=experiment.seeds_of, sd=sd, times=times)


def _seeds_of(board: Board, experiment: Experiment) -> tuple[Experiment, Row]:
    home, _, name = experiment.seeds_of.partition("/")
    if home not in board.experiments:
        raise unknown("experiment", home, board.experiments)
    return board.experiments[home], board.experiments[home].row(name)


def _spread(board: Board, experiment: Experiment) -> Figure | None:
    """What the row of `seeds_of` reached over several seeds, by the figure that verdicts go by."""
    if not experiment.seeds_of:
        return None
    found = board.real(*_seeds_of(board, experiment), experiment.metrics[0], experiment.split)
    return None if found is None or found.seeds < 2 else found


def small(value: float) -> str:
    """A difference, which may be too small for the digits that figures have."""
    return ("+" if value >= 0 else "−") + f"{abs(value):.4f}".removeprefix("0")
