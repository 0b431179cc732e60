"""The measured parts of docs/fidelity.md: what each deviation costs, what ties do, and what stopping earlier would."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from compgcn.errors import InputError
from compgcn.experiment import Experiment, Row, at_home
from compgcn.pages.differences import difference, difference_tables, rule, small, worth
from compgcn.pages.markup import markdown
from compgcn.report import NOT_RUN, Board
from compgcn.tables import MISSING, Table

NAME = "fidelity"  # of the experiment, and of the page
BEGIN, END = "<!-- compgcn report --all -->\n", "<!-- end of compgcn report --all -->"
_BLOCK = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
_CELL = re.compile(r"(<!-- measured: ([a-z0-9., -]+?) -->)[^|\n]*")  # of a table, up to its end

PATIENCE = (3, 5, 10, 25, 100)
# Rows that show what ties and stopping do: the model of the reference, where it trains for longer and is evaluated more
# often, and those of the paper's headline and of its own loss.
WATCHED = (
    ("encoders", "conve-compgcn-corr"),
    ("link-prediction", "fb15k-237-compgcn"),
    ("encoders", "conve-compgcn-corr-bce"),
    ("link-prediction", "wn18rr-compgcn"),
)
_RULES = ("optimistic", "realistic", "pessimistic")


class Stop(NamedTuple):
    """Where training would have ended: the epoch, None if nothing ended it, and the best figure until then."""

    epoch: int | None
    best: float


def filled(text: str, board: Board) -> str:
    """The page with its measured parts made anew: the cells that name rows, and the block of tables."""
    if len(_BLOCK.findall(text)) != 1:
        raise InputError(f"the page {NAME}.md has no place for tables; give it the lines '{BEGIN.strip()}' and '{END}'")
    experiment = board.experiments[NAME]

    def cell(match: re.Match[str]) -> str:
        rows = [experiment.row(name.strip()) for name in match[2].split(",")]
        return f"{match[1]} {'; '.join(_price(board, experiment, row, len(rows) > 1) for row in rows)} "

    return _BLOCK.sub(lambda _: f"{BEGIN}\n{measured(board)}\n{END}", _CELL.sub(cell, text))


def _price(board: Board, experiment: Experiment, row: Row, named: bool) -> str:
    """The difference of a row to its control, and what it comes to."""
    found, words = difference(board, experiment, row, experiment.metrics[0]), worth(board, experiment, row)
    parts = [part for part in ("" if found is None else small(found.gap), words) if part]
    return f"{row.label}: {', '.join(parts)}" if named else ", ".join(parts)


def measured(board: Board) -> str:
    """All tables, as Markdown."""
    experiment = board.experiments[NAME]
    compared = [row for row in experiment.rows if row.control is not None]
    known = sum(board.real(experiment, row, experiment.metrics[0]) is not None for row in compared)
    run = f"All {known} were run." if known == len(compared) else f"{known} of {len(compared)} were run so far."
    parts: list[str | Table] = ["## The rows", f"{run} {rule(board, experiment)}"]
    for table in difference_tables(board, experiment):
        parts += [f"### {table.title}", table]
    parts += ["## Ties", *_ties(board), "## Stopping", *_stopping(board)]
    return markdown(parts)


def _watched(board: Board) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Name, state and results of each row that is watched; no results if they are of other settings than the row's."""
    found = []
    for name, row in WATCHED:
        if name not in board.experiments:
            continue
        home, own = at_home(board.experiments[name], board.experiments[name].row(row))
        reached = board.ours(home, own, "mrr")
        state = NOT_RUN if reached is None else reached.state
        found.append((f"`{home.name}/{own.name}`", state, [] if state else board.results(home, own)))
    return found


def _ties(board: Board) -> list[str | Table]:
    """The MRR of test by the three rules, means over seeds."""
    lines = []
    for name, state, results in _watched(board):
        cells = [MISSING] * (len(_RULES) + 1)
        if results:
            reports = [result["metrics"]["test"] for result in results]
            rules = [[(report if one == "realistic" else report[one])["mrr"] for report in reports] for one in _RULES]
            widest = max(map(_apart, results))
            cells = [f"{statistics.fmean(values):.5f}".lstrip("0") for values in rules]
            cells.append(f"{widest:.0e}" if widest else "0")
        lines.append([name, ", ".join(str(result["seed"]) for result in results) or state, *cells])
    header = ("row", "seeds", *(f"{one}, MRR" for one in _RULES), "furthest apart")
    text = (
        "MRR of test with every tie taken for the better, for its mean and for the worse, the mean over seeds; and how "
        "far the first and the last are apart in the seed where that is most, to the six digits that results have. "
        "Ranks here are of logits. The released code sorts sigmoids, which are the same, 1, for all logits above 17 in "
        "float32; what ties that makes cannot be told from results."
    )
    return [text, Table("", header, lines), _widest(board)]


def _widest(board: Board) -> str:
    """The row, of all that were run, in which ties matter most."""
    apart = {
        f"`{experiment.name}/{row.name}`": max(_apart(result) for result in board.results(experiment, row))
        for experiment in board.experiments.values()
        for row in experiment.rows
        if row.same_as is None and board.real(experiment, row, "mrr") is not None
    }
    name = max(apart, key=lambda one: apart[one], default=None)
    return "" if name is None else f"Of all {len(apart)} rows of links it is {apart[name]:.0e} at most, in {name}."


def _apart(result: Mapping[str, Any]) -> float:
    """By how much MRR depends on ties."""
    test = result["metrics"]["test"]
    return float(test["optimistic"]["mrr"] - test["pessimistic"]["mrr"])


def stopped(curve: Mapping[str, Sequence[float]], patience: int) -> Stop:
    """Where training stops after so many evaluations without gain, by the validation MRR of a longer training."""
    best, stale = float("-inf"), 0
    for epoch, figure in zip(curve["epoch"], curve["mrr"], strict=True):
        stale = 0 if figure > best else stale + 1
        best = max(best, figure)
        if stale == patience:
            return Stop(int(epoch), best)
    return Stop(None, best)


def _stopping(board: Board) -> list[str | Table]:
    """What each patience would have chosen on the curves there are."""
    lines = []
    for name, state, results in _watched(board):
        lines += [[name, str(one["seed"]), *_stops(one)] for one in results]
        if not results:
            lines.append([name, state, *[MISSING] * (3 + len(PATIENCE))])
    header = ("row", "seed", "evaluations", "every", "best, MRR of valid", *(f"patience {one}" for one in PATIENCE))
    text = (
        "Where training would have stopped after so many evaluations without gain, and what that costs: the validation "
        f"MRR of the weights chosen less that of the best ones. *Never*: it would have gone on to the end; {MISSING}: "
        "there were not more evaluations than that, so that nothing is known."
    )
    return [text, Table("", header, lines)]


def _stops(result: Mapping[str, Any]) -> list[str]:
    curve, training = result["curve"], result["config"]["training"]
    best, epochs = max(curve["mrr"]), training["epochs"]
    cells = [str(len(curve["epoch"])), f"{training['evaluate_every']} epochs", f"{best:.4f}".lstrip("0")]
    for patience in PATIENCE:
        stop = stopped(curve, patience)
        if stop.epoch not in (None, epochs):
            cells.append(f"epoch {stop.epoch} of {epochs}, {small(stop.best - best)}")
        elif curve["epoch"][-1] < epochs:  # a run that its own patience ended says nothing of a greater one
            cells.append("not known")
        else:
            cells.append("never" if len(curve["epoch"]) > patience else MISSING)
    return cells
