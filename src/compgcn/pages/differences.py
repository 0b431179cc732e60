"""What it does to a model to change one setting: rows beside their controls, held against how far seeds lie apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from compgcn.config import write_setting
from compgcn.errors import unknown
from compgcn.experiment import Experiment, Row, at_home, chosen
from compgcn.report import COSTS, LOWER, MISSING, NOT_RUN, Board, Table, costs, shown, title

BELOW = "below the spread of seeds"
# Beyond so many standard errors lies chance alone once in 20: Student's t, by the degrees of freedom.
_QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18)
_RULE = (
    "*Below the spread of seeds* is a difference smaller than the standard deviation of {figure} over seeds, {sd}, as "
    "pooled from {rows}; that of other models is taken to be the same. *Undecided* is one within {times:.2f} standard "
    "errors of a difference between two such models, which chance exceeds once in 20 by Student's t with {freedom} "
    "degrees of freedom; the standard error is √2 times that deviation where each has one seed. *Better* and *worse* "
    "are beyond both."
)
_NO_RULE = "How far seeds lie apart is not known yet{why}, and no difference is called better or worse."


class Spread(NamedTuple):
    """How far seeds of a model lie apart: the standard deviation, and by how many degrees of freedom it is known."""

    sd: float
    freedom: int

    @property
    def times(self) -> float:
        """How many standard errors a difference must exceed."""
        return _QUANTILES[min(self.freedom, len(_QUANTILES)) - 1]


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
    gap, chance, least = (
        difference(board, experiment, row, metric),
        _spread(board, experiment),
        limit(board, experiment, row),
    )
    if gap is None:
        return f"`{row.control}` is {NOT_RUN}"
    if chance is None or least is None:
        return ""
    if abs(gap) < chance.sd:
        return BELOW
    if abs(gap) <= least:
        return "undecided"
    return "better" if (gap > 0) != (metric.rpartition("/")[2] in LOWER) else "worse"


def limit(board: Board, experiment: Experiment, row: Row) -> float | None:
    """How large a difference of a row to its control may be by chance; None where that is not known."""
    chance = _spread(board, experiment)
    if row.control is None or chance is None:
        return None
    ours, other = (board.real(experiment, one, experiment.metrics[0]) for one in (row, experiment.row(row.control)))
    if ours is None or other is None:
        return None
    return chance.times * chance.sd * math.sqrt(1 / ours.seeds + 1 / other.seeds)


def rule(board: Board, experiment: Experiment) -> str:
    """When a difference is one."""
    chance = _spread(board, experiment)
    if chance is None:
        names = ", ".join(f"`{name}`" for name in experiment.seeds_of)
        return _NO_RULE.format(why=f": none of {names} has two seeds" if names else "")
    rows: dict[str, list[str]] = {}
    for name in experiment.seeds_of:
        seeds = [str(result["seed"]) for result in board.results(*_seeds_of(board, name))]
        if len(seeds) > 1:
            rows.setdefault(", ".join(seeds), []).append(f"`{name}`")
    return _RULE.format(
        figure=title(experiment.metrics[0]),
        sd=small(chance.sd)[1:],
        rows="; ".join(f"seeds {seeds} of {', '.join(names)}" for seeds, names in rows.items()),
        times=chance.times,
        freedom=chance.freedom,
    )


def _seeds_of(board: Board, name: str) -> tuple[Experiment, Row]:
    home, _, row = name.partition("/")
    if home not in board.experiments:
        raise unknown("experiment", home, board.experiments)
    return board.experiments[home], board.experiments[home].row(row)


def _spread(board: Board, experiment: Experiment) -> Spread | None:
    """The pooled deviation of the rows of `seeds_of`, by the figure that verdicts go by; None: none has two seeds."""
    rows = (_seeds_of(board, name) for name in experiment.seeds_of)
    found = [board.real(*row, experiment.metrics[0], experiment.split) for row in rows]
    several = [figure for figure in found if figure is not None and figure.seeds > 1]
    if not several:
        return None
    freedom = sum(figure.seeds - 1 for figure in several)
    return Spread(math.sqrt(sum((figure.seeds - 1) * figure.sd**2 for figure in several) / freedom), freedom)


def small(value: float) -> str:
    """A difference, which may be too small for the digits that figures have."""
    return ("+" if value >= 0 else "−") + f"{abs(value):.4f}".removeprefix("0")
