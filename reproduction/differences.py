"""Differences between rows that the paper has no numbers for: the price of every deviation from it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from compgcn.config import write_setting
from compgcn.errors import unknown
from compgcn.run.report import MISSING, Table, markdown
from reproduction.experiment import Experiment, Row, at_home, chosen
from reproduction.tables import COSTS, LOWER, NOT_RUN, TRIAL, Board, costs, grouped, shown, title

FIDELITY = "fidelity"  # the experiment of deviations, and its page in docs/
NOISE = "within the noise of seeds"
_RULE = (
    "Differences are between models of the same seed. Seeds alone move {metric} by a standard deviation of {spreads}; a "
    "difference smaller than that is *within the noise of seeds*. *By chance* is the size that a difference exceeds once "
    "in 20 if only chance differs: Student's t times √2 times that deviation, for one seed. A difference up to that size "
    "is *undecided*, a larger one *better* or *worse*; of {rows} rows, chance alone would make about {wrong:.1f} so."
)
_NO_RULE = "The noise of seeds is not known yet, so no difference is called better or worse."


class Spread(NamedTuple):
    """Standard deviation over seeds of models with one decoder, pooled from several rows, and its degrees of freedom."""

    sd: float
    freedom: int
    rows: tuple[str, ...]

    def by_chance(self, seeds: int) -> float:
        """Return the size that a mean difference over some seeds exceeds once in 20 by chance (Student's t)."""
        from scipy.stats import t

        return round(float(t.ppf(0.975, self.freedom)), 2) * self.sd * math.sqrt(2 / seeds)


class Difference(NamedTuple):
    """How much higher the metric of a row is than that of its control, over the seeds that both have."""

    gap: float
    seeds: int


def changed(experiment: Experiment, row: Row) -> dict[str, Any]:
    """Return the settings in which a row differs from its control."""
    if row.control is None:
        return {}
    before, after = (chosen(*at_home(experiment, one)) for one in (experiment.row(row.control), row))
    return {name: value for name, value in after.items() if name not in before or before[name] != value}


def difference(board: Board, experiment: Experiment, row: Row, metric: str) -> Difference | None:
    """Compare a row with its control; None unless both have results of one seed."""
    rows = [] if row.control is None else [row, experiment.row(row.control)]
    if not rows or any(board.real(experiment, one, metric) is None for one in rows):
        return None
    ours, other = (board.by_seed(experiment, one, metric) for one in rows)
    gaps = [ours[seed] - other[seed] for seed in ours.keys() & other.keys()]
    return Difference(statistics.fmean(gaps), len(gaps)) if gaps else None


def spread(board: Board, experiment: Experiment, decoder: str) -> Spread | None:
    """Pool the deviation over seeds of the rows of `seeds_of` with a decoder; None if none has two seeds."""
    found = {}
    for name in experiment.seeds_of:
        home, _, row = name.partition("/")
        if home not in board.experiments:
            raise unknown("experiment", home, board.experiments)
        place = board.experiments[home], board.experiments[home].row(row)
        figure = board.real(*place, experiment.metrics[0], experiment.split)
        if _decoder(*place) == decoder and figure is not None and figure.seeds > 1:
            found[name] = figure
    freedom = sum(one.seeds - 1 for one in found.values())
    if not freedom:
        return None
    return Spread(math.sqrt(sum((one.seeds - 1) * one.sd**2 for one in found.values()) / freedom), freedom, (*found,))


def _decoder(experiment: Experiment, row: Row) -> str:
    return str(chosen(*at_home(experiment, row))["decoder.name"])


def limit(board: Board, experiment: Experiment, row: Row) -> float | None:
    """Return the size that the difference of a row may reach by chance; None if that is unknown."""
    found = difference(board, experiment, row, experiment.metrics[0])
    noise = spread(board, experiment, _decoder(experiment, row))
    return None if found is None or noise is None else noise.by_chance(found.seeds)


def worth(board: Board, experiment: Experiment, row: Row) -> str:
    """Judge a difference in words, or say why there is none."""
    metric = experiment.metrics[0]
    ours = board.ours(experiment, row, metric)
    if ours is None or ours.trial:
        return NOT_RUN if ours is None else TRIAL
    if row.control is None:
        return ""
    found, most = difference(board, experiment, row, metric), limit(board, experiment, row)
    noise = spread(board, experiment, _decoder(experiment, row))
    if found is None:
        return f"`{row.control}` has no result of its seeds"
    if most is None or noise is None:
        return ""
    if abs(found.gap) <= most:
        return NOISE if abs(found.gap) < noise.sd else "undecided"
    return "better" if (found.gap > 0) != (metric.rpartition("/")[2] in LOWER) else "worse"


def rule(board: Board, experiment: Experiment) -> str:
    """Explain when a difference counts."""
    spreads = []
    for decoder in dict.fromkeys(_decoder(experiment, row) for row in experiment.rows):
        noise = spread(board, experiment, decoder)
        if noise is not None:
            names = ", ".join(f"`{name}`" for name in noise.rows)
            freedom = f"{noise.freedom} degrees of freedom"
            spreads.append(f"{_digits(noise.sd)} with `{decoder}` ({freedom}, pooled from {names})")
    if not spreads:
        return _NO_RULE
    rows = sum(row.control is not None for row in experiment.rows)
    return _RULE.format(metric=title(experiment.metrics[0]), spreads="; ".join(spreads), rows=rows, wrong=rows / 20)


def difference_tables(board: Board, experiment: Experiment) -> list[Table]:
    """Return a table for each group of rows."""
    figures = [name for metric in experiment.metrics for name in (title(metric), "difference")]
    chance = f"{title(experiment.metrics[0])}, by chance"
    header = ("model", "row", "against", "with", *figures, chance, "", *COSTS)
    made = []
    for group, rows in grouped(experiment.rows).items():
        lines = [_line(board, experiment, row) for row in rows]
        made.append(Table(group, header, lines))
    return made


def _line(board: Board, experiment: Experiment, row: Row) -> list[str]:
    settings = ", ".join(f"`{write_setting(*one)}`" for one in changed(experiment, row).items())
    cells = [row.label, f"`{row.name}`", f"`{row.control}`" if row.control else MISSING, settings or MISSING]
    for metric in experiment.metrics:
        found = difference(board, experiment, row, metric)
        cells += [shown(board.ours(experiment, row, metric), metric), signed(found.gap) if found else MISSING]
    most = limit(board, experiment, row)
    cells += [MISSING if most is None else _digits(most), worth(board, experiment, row)]
    return [*cells, *costs(board.results(experiment, row))]


def signed(value: float) -> str:
    """Format a difference with its sign."""
    return ("+" if value >= 0 else "−") + _digits(abs(value))


def _digits(value: float) -> str:
    return f"{value:.4f}".removeprefix("0")


def price(board: Board, rows: Sequence[str]) -> str:
    """Return the differences of some deviations in words, for a cell of the page."""
    experiment, prices = board.experiments[FIDELITY], []
    for row in map(experiment.row, rows):
        found = difference(board, experiment, row, experiment.metrics[0])
        words = ", ".join(filter(None, ("" if found is None else signed(found.gap), worth(board, experiment, row))))
        prices.append(f"{row.label}: {words}" if len(rows) > 1 else words)
    return "; ".join(prices)


# The page of deviations

PATIENCE = (3, 5, 10, 25, 100)
WATCHED = (  # rows that show the effect of ties and of early stopping
    ("encoders", "conve-compgcn-corr"),
    ("link-prediction", "fb15k-237-compgcn"),
    ("encoders", "conve-compgcn-corr-bce"),
    ("link-prediction", "wn18rr-compgcn"),
)
_TIES = ("optimistic", "realistic", "pessimistic")


def deviations(board: Board) -> str:
    """Return the measured sections of the page of deviations as Markdown."""
    experiment = board.experiments[FIDELITY]
    compared = [row for row in experiment.rows if row.control is not None]
    known = sum(board.real(experiment, row, experiment.metrics[0]) is not None for row in compared)
    run = f"All {known} rows were trained." if known == len(compared) else f"{known} of {len(compared)} rows so far."
    parts: list[str | Table] = ["## The rows", f"{run} {rule(board, experiment)}"]
    for table in difference_tables(board, experiment):
        parts += [f"### {table.title}", table]
    watched = []
    for home, name in WATCHED:
        place = board.experiments[home], board.experiments[home].row(name)
        watched.append((f"`{home}/{name}`", [] if board.real(*place, "mrr") is None else board.results(*place)))
    return markdown([*parts, *_ties(board, watched), *_stopping(watched)])


_Watched = Sequence[tuple[str, list[dict[str, Any]]]]


def _ties(board: Board, watched: _Watched) -> list[str | Table]:
    """Return the test MRR under the three tie rules."""
    lines = []
    for name, results in watched:
        reports = [result["metrics"]["test"] for result in results]
        rules = [[(report if one == "realistic" else report[one])["mrr"] for report in reports] for one in _TIES]
        cells = [f"{statistics.fmean(one):.5f}".lstrip("0") if one else MISSING for one in rules]
        cells.append(f"{max(map(_apart, results)):.0e}".replace("0e+00", "0") if results else MISSING)
        lines.append([name, ", ".join(str(result["seed"]) for result in results) or NOT_RUN, *cells])
    apart = {
        f"`{experiment.name}/{row.name}`": max(map(_apart, board.results(experiment, row)))
        for experiment in board.experiments.values()
        for row in experiment.rows
        if row.same_as is None and board.real(experiment, row, "mrr") is not None
    }
    text = (
        "Test MRR with every tie ranked best, at its mean and worst, as means over seeds, and the largest distance of "
        "best from worst in one seed, to the six digits that results have. Our ranks compare logits. The released code "
        "sorts sigmoids, which are 1 for every logit above 17 in float32; results cannot show the ties this makes."
    )
    header = ("row", "seeds", *(f"{one}, MRR" for one in _TIES), "largest distance")
    widest = max(apart, key=lambda one: apart[one], default="")
    last = (
        [f"Of all {len(apart)} rows of link prediction it is {apart[widest]:.0e} at most, in {widest}."]
        if apart
        else []
    )
    return ["## Ties", text, Table("", header, lines), *last]


def _apart(result: Mapping[str, Any]) -> float:
    """Return how far the MRR depends on ties."""
    test = result["metrics"]["test"]
    return float(test["optimistic"]["mrr"] - test["pessimistic"]["mrr"])


def stopped(curve: Mapping[str, Sequence[float]], patience: int) -> tuple[int | None, float]:
    """Return the epoch where early stopping would end a training, None if nowhere, and the best MRR until then."""
    best, stale = float("-inf"), 0
    for epoch, value in zip(curve["epoch"], curve["mrr"], strict=True):
        stale = 0 if value > best else stale + 1
        best = max(best, value)
        if stale == patience:
            return int(epoch), best
    return None, best


def _stopping(watched: _Watched) -> list[str | Table]:
    """Return what each patience would have cost on the curves of the watched rows."""
    lines = []
    for name, results in watched:
        lines += [[name, str(one["seed"]), *_stops(one)] for one in results]
    text = (
        "Early stopping after a number of evaluations without gain would have ended training at this epoch, and cost "
        "this much validation MRR against the best weights. *Never*: training would have run to its end. "
        f"{MISSING}: the curve is too short to tell."
    )
    header = ("row", "seed", "evaluations", "every", "best, validation MRR", *(f"patience {one}" for one in PATIENCE))
    return ["## Stopping", text, Table("", header, lines)]


def _stops(result: Mapping[str, Any]) -> list[str]:
    curve, training = result["curve"], result["config"]["training"]
    best, epochs = max(curve["mrr"]), training["epochs"]
    cells = [str(len(curve["epoch"])), f"{training['evaluate_every']} epochs", f"{best:.4f}".lstrip("0")]
    for patience in PATIENCE:
        epoch, reached = stopped(curve, patience)
        if epoch not in (None, epochs):
            cells.append(f"epoch {epoch} of {epochs}, {signed(reached - best)}")
        else:
            whole = curve["epoch"][-1] == epochs and len(curve["epoch"]) > patience
            cells.append("never" if whole else MISSING)
    return cells
