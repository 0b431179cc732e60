"""What it does to a model to change one setting: rows beside their controls, held against how far seeds lie apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from compgcn.config import write_setting
from compgcn.errors import unknown
from compgcn.experiment import Experiment, Row, at_home, chosen
from compgcn.report import COSTS, LOWER, NOT_RUN, Board, Figure, costs, shown, title
from compgcn.tables import MISSING, Table

BELOW = "below the spread of seeds"
# Beyond so many standard errors lies chance alone once in 20: Student's t, by the degrees of freedom. With more of them
# it hardly falls, and the last is taken.
_QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18)
_RULE = (
    "Differences are between models of the same seed. Seeds alone move {figure} by a standard deviation of {spreads}; "
    "a difference smaller than that is *below the spread of seeds*. *By chance* is what a difference exceeds once in "
    "20 where nothing differs but chance: Student's t times √2 times that deviation, of one seed. Up to there it is "
    "*undecided*, beyond *better* or *worse*; of {rows} rows about {wrong:.1f} would be that by chance."
)
_NO_RULE = "How far seeds lie apart is not known yet{why}, and no difference is called better or worse."


class Spread(NamedTuple):
    """How far seeds of a model lie apart: the standard deviation, and by how many degrees of freedom it is known."""

    sd: float
    freedom: int

    def by_chance(self, seeds: int) -> float:
        """How large a difference over so many pairs of models may be that differ in nothing.

        Models of one seed see the same batches, and lie closer together than this takes them to.
        """
        times = _QUANTILES[min(self.freedom, len(_QUANTILES)) - 1]
        return times * self.sd * math.sqrt(2 / seeds)


class Difference(NamedTuple):
    """How much higher the figure of a row is than that of its control, over the seeds that both have."""

    gap: float
    seeds: int


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
            found = difference(board, experiment, row, metric)
            cells += [shown(board.ours(experiment, row, metric), metric), small(found.gap) if found else MISSING]
        most = limit(board, experiment, row)
        cells += [MISSING if most is None else digits(most), worth(board, experiment, row)]
        lines.append([*cells, *costs(board.results(experiment, row))])
    figures = [name for metric in experiment.metrics for name in (title(metric), "difference")]
    chance = f"{title(experiment.metrics[0])}, by chance"
    return Table(group, ("model", "row", "against", "with", *figures, chance, "", *COSTS), lines)


def changed(experiment: Experiment, row: Row) -> dict[str, Any]:
    """The settings that a row has otherwise than its control."""
    if row.control is None:
        return {}
    before, after = (chosen(*at_home(experiment, one)) for one in (experiment.row(row.control), row))
    return {name: value for name, value in after.items() if name not in before or before[name] != value}


def difference(board: Board, experiment: Experiment, row: Row, metric: str) -> Difference | None:
    """A row against its control; None unless both were run with a seed."""
    if row.control is None:
        return None
    ours, other = (board.by_seed(experiment, one, metric) for one in (row, experiment.row(row.control)))
    gaps = [ours[seed] - other[seed] for seed in ours.keys() & other.keys()]
    return Difference(statistics.fmean(gaps), len(gaps)) if gaps else None


def worth(board: Board, experiment: Experiment, row: Row) -> str:
    """What a difference comes to, in words; or why there is none."""
    metric = experiment.metrics[0]
    ours = board.ours(experiment, row, metric)
    if ours is None or ours.state:
        return NOT_RUN if ours is None else ours.state
    if row.control is None:
        return ""
    found, chance = difference(board, experiment, row, metric), _spread(board, experiment, row)
    if found is None:
        run = board.real(experiment, experiment.row(row.control), metric) is not None
        return f"`{row.control}` {'has none of its seeds' if run else f'is {NOT_RUN}'}"
    if chance is None:
        return ""
    if abs(found.gap) < chance.sd:
        return BELOW
    if abs(found.gap) <= chance.by_chance(found.seeds):
        return "undecided"
    return "better" if (found.gap > 0) != (metric.rpartition("/")[2] in LOWER) else "worse"


def limit(board: Board, experiment: Experiment, row: Row) -> float | None:
    """How large the difference of a row to its control may be by chance; None where that is not known."""
    found, chance = difference(board, experiment, row, experiment.metrics[0]), _spread(board, experiment, row)
    return None if found is None or chance is None else chance.by_chance(found.seeds)


def rule(board: Board, experiment: Experiment) -> str:
    """When a difference is one."""
    spreads = []
    for decoder in dict.fromkeys(_decoder(experiment, row) for row in experiment.rows):
        several = _several(board, experiment, decoder)
        if several:
            chance, names = _pooled(several.values()), ", ".join(f"`{name}`" for name in several)
            spreads.append(
                f"{digits(chance.sd)} with `{decoder}` ({chance.freedom} degrees of freedom, pooled from {names})"
            )
    if not spreads:
        names = ", ".join(f"`{name}`" for name in experiment.seeds_of)
        return _NO_RULE.format(why=f": none of {names} has two seeds" if names else "")
    rows = sum(row.control is not None for row in experiment.rows)
    return _RULE.format(figure=title(experiment.metrics[0]), spreads="; ".join(spreads), rows=rows, wrong=rows / 20)


def _spread(board: Board, experiment: Experiment, row: Row) -> Spread | None:
    """How far seeds of models with the scoring function of a row lie apart; None: none of them has two."""
    several = _several(board, experiment, _decoder(experiment, row))
    return _pooled(several.values()) if several else None


def _several(board: Board, experiment: Experiment, decoder: str) -> dict[str, Figure]:
    """The rows of `seeds_of` with a scoring function and more than one seed, by the figure that verdicts go by."""
    found = {}
    for name in experiment.seeds_of:
        home, _, row = name.partition("/")
        if home not in board.experiments:
            raise unknown("experiment", home, board.experiments)
        place = board.experiments[home], board.experiments[home].row(row)
        figure = board.real(*place, experiment.metrics[0], experiment.split)
        if _decoder(*place) == decoder and figure is not None and figure.seeds > 1:
            found[name] = figure
    return found


def _pooled(several: Iterable[Figure]) -> Spread:
    """The deviation about the mean of each, of all together."""
    figures = list(several)
    freedom = sum(one.seeds - 1 for one in figures)
    return Spread(math.sqrt(sum((one.seeds - 1) * one.sd**2 for one in figures) / freedom), freedom)


def _decoder(experiment: Experiment, row: Row) -> str:
    return str(chosen(*at_home(experiment, row))["decoder.name"])


def small(value: float) -> str:
    """A difference, which may be too small for the digits that figures have."""
    return ("+" if value >= 0 else "−") + digits(abs(value))


def digits(value: float) -> str:
    """One without a sign."""
    return f"{value:.4f}".removeprefix("0")
