"""Differences between rows that the paper has no numbers for: the price of every deviation from it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from compgcn.config import write_setting
from compgcn.run.report import MISSING, Table
from reproduction.experiment import Experiment, Row, at_home, chosen
from reproduction.tables import COSTS, LOWER, Board, costs, grouped, markdown, shown, title

FIDELITY = "fidelity"  # the experiment of deviations, and its page in docs/
NOISE = "within the noise of seeds"
NOT_RUN = "not run yet"


class Spread(NamedTuple):
    """Standard deviation over seeds of models with one decoder, pooled from some rows, and its degrees of freedom."""

    sd: float
    freedom: int
    rows: tuple[str, ...]

    def by_chance(self, seeds: int) -> float:
        """Return the size that a mean difference over some seeds exceeds once in 20 by chance."""
        from scipy.stats import t  # of the extra `baselines`

        return round(float(t.ppf(0.975, self.freedom)), 2) * self.sd * math.sqrt(2 / seeds)


class Compared(NamedTuple):
    """A row beside its control: the difference, the size that chance may reach, and a verdict, or why there is none."""

    gap: float | None
    by_chance: float | None
    verdict: str


def compared(board: Board, experiment: Experiment, row: Row) -> Compared:
    """Compare a row with its control by the first metric."""
    metric = experiment.metrics[0]
    ours = board.ours(experiment, row, metric)
    found = gaps(board, experiment, row, metric)
    if not found:
        return Compared(None, None, NOT_RUN if ours is None else "")
    gap, noise = statistics.fmean(found), spread(board, experiment, _decoder(experiment, row))
    if noise is None:
        return Compared(gap, None, "")
    most = noise.by_chance(len(found))
    if abs(gap) <= most:
        return Compared(gap, most, NOISE if abs(gap) < noise.sd else "undecided")
    return Compared(gap, most, "better" if (gap > 0) != (metric.rpartition("/")[2] in LOWER) else "worse")


def gaps(board: Board, experiment: Experiment, row: Row, metric: str) -> list[float]:
    """Return how much higher the metric of a row is than its control's, for each seed that both have."""
    if row.control is None:
        return []
    ours, other = (board.by_seed(experiment, one, metric) for one in (row, experiment.row(row.control)))
    return [ours[seed] - other[seed] for seed in ours.keys() & other.keys()]


def spread(board: Board, experiment: Experiment, decoder: str) -> Spread | None:
    """Pool the deviation over seeds of the rows of `seeds_of` with a decoder; None if none has two seeds."""
    found = {}
    for name in experiment.seeds_of:
        home, _, row = name.partition("/")
        place = board.experiments[home], board.experiments[home].row(row)
        figure = board.ours(*place, experiment.metrics[0], experiment.split)
        if _decoder(*place) == decoder and figure is not None and figure.seeds > 1:
            found[name] = figure
    freedom = sum(one.seeds - 1 for one in found.values())
    if not freedom:
        return None
    return Spread(math.sqrt(sum((one.seeds - 1) * one.sd**2 for one in found.values()) / freedom), freedom, (*found,))


def _decoder(experiment: Experiment, row: Row) -> str:
    return str(chosen(*at_home(experiment, row))["decoder.name"])


def rule(board: Board, experiment: Experiment) -> list[str | Table]:
    """Explain when a difference counts, and show the noise of seeds."""
    lines = []
    for decoder in dict.fromkeys(_decoder(experiment, row) for row in experiment.rows):
        noise = spread(board, experiment, decoder)
        if noise is not None:
            names = ", ".join(f"`{name}`" for name in noise.rows)
            lines.append([f"`{decoder}`", _digits(noise.sd), str(noise.freedom), names])
    rows, metric = sum(row.control is not None for row in experiment.rows), title(experiment.metrics[0])
    table = Table(("decoder", f"seeds move {metric} by", "degrees of freedom", "pooled from"), lines)
    return [experiment.rule.format(metric=metric, rows=rows, wrong=rows / 20), table]


def difference_tables(board: Board, experiment: Experiment) -> list[Table]:
    """Return a table for each group of rows."""
    figures = [name for metric in experiment.metrics for name in (title(metric), "difference")]
    chance = f"{title(experiment.metrics[0])}, by chance"
    header = ("model", "row", "against", "with", *figures, chance, "", *COSTS)
    groups = grouped(experiment.rows).items()
    return [Table(header, [_line(board, experiment, row) for row in rows], group) for group, rows in groups]


def _line(board: Board, experiment: Experiment, row: Row) -> list[str]:
    settings = ", ".join(f"`{write_setting(*one)}`" for one in changed(experiment, row).items())
    cells = [row.label, f"`{row.name}`", f"`{row.control}`" if row.control else MISSING, settings or MISSING]
    for metric in experiment.metrics:
        found = gaps(board, experiment, row, metric)
        cells.append(shown(board.ours(experiment, row, metric), metric))
        cells.append(signed(statistics.fmean(found)) if found else MISSING)
    _, most, verdict = compared(board, experiment, row)
    cells += [MISSING if most is None else _digits(most), verdict]
    return [*cells, *costs(board.results(experiment, row))]


def changed(experiment: Experiment, row: Row) -> dict[str, Any]:
    """Return the settings in which a row differs from its control."""
    if row.control is None:
        return {}
    before, after = (chosen(*at_home(experiment, one)) for one in (experiment.row(row.control), row))
    return {name: value for name, value in after.items() if name not in before or before[name] != value}


def signed(value: float) -> str:
    """Format a difference with its sign."""
    return ("+" if value >= 0 else "−") + _digits(abs(value))


def _digits(value: float) -> str:
    return f"{value:.4f}".removeprefix("0")


def price(board: Board, rows: Sequence[str]) -> str:
    """Return the differences of some deviations in words, for a cell of the page."""
    experiment, prices = board.experiments[FIDELITY], []
    for row in map(experiment.row, rows):
        gap, _, verdict = compared(board, experiment, row)
        words = verdict if gap is None else ", ".join(filter(None, (signed(gap), verdict)))
        prices.append(f"{row.label}: {words}" if len(rows) > 1 else words)
    return "; ".join(prices)


def deviations(board: Board) -> str:
    """Return the measured sections of the page of deviations as Markdown."""
    experiment = board.experiments[FIDELITY]
    parts: list[str | Table] = ["## The rows", *rule(board, experiment)]
    for table in difference_tables(board, experiment):
        parts += [f"### {table.title}", table]
    return markdown([*parts, "## Ties", _ties(board)])


def _ties(board: Board) -> str:
    """Say how far the MRR depends on ties at most."""
    apart: dict[str, float] = {}
    for experiment in board.experiments.values():
        for row in experiment.rows:
            if row.same_as is None and board.ours(experiment, row, "mrr") is not None:
                tests = [result["metrics"]["test"] for result in board.results(experiment, row)]
                bounds = [one["optimistic"]["mrr"] - one["pessimistic"]["mrr"] for one in tests]
                apart[f"`{experiment.name}/{row.name}`"] = max(bounds)
    widest = max(apart, key=lambda one: apart[one])
    return (
        f"Among all {len(apart)} rows of link prediction, the test MRR with all ties ranked best exceeds the one with "
        f"all ranked worst by {apart[widest]:.0e} at most, in {widest}. Our ranks compare logits. The released code "
        "sorts sigmoids, which are 1 for every logit above 17 in float32; results cannot show the ties this makes."
    )
