"""The paper's claims as comparisons of rows, judged by the paper's own numbers and by ours."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, NamedTuple

from pydantic import Field

from compgcn.config import Section, read_tree
from compgcn.run.report import Table
from reproduction.experiment import CLAIMS, Experiment, Row, at_home
from reproduction.tables import LOWER, NOT_RUN, Board, not_run, title, verdict

_TOLERANCE = 0.01  # "not worse" is at most this share worse; also the assumed error of a single seed
_TOLERANCE_PARTS = 0.04  # assumed error of a category of relations, by the seeds of the headline model
_ERRORS = 2  # standard errors that chance may explain, about 19 times in 20
_NEAR = 0.03  # "comparable" is at most this share away
_SHARE = 1 / 3  # "around 6 %" is 4 % to 8 %

RULE = (
    "Gains are relative; a mean rank and a number of parameters are better when lower. If several rows stand for one "
    "side of a comparison, the one with the best validation metric counts, for CompGCN and for the others alike. "
    f"*Undecided*: {_ERRORS} standard errors over seeds leave the claim open; we assume {100 * _TOLERANCE:.0f} % for a "
    f"row with one seed, {100 * _TOLERANCE_PARTS:.0f} % for a category of relations, and never less than one item of a "
    "classification. A gain is *around* the claimed one if it lies at most a third away, and undecided if its error "
    f"reaches that range. *Comparable* is at most {100 * _NEAR:.0f} % worse. A verdict that no missing row can change "
    "is given already. The table names rows of CompGCN below the paper's number: such a verdict judges our training as "
    "much as the claim."
)


class Reached(NamedTuple):
    """A number, its standard error over seeds (None: one seed), the validation metric that chooses among rows, the
    difference that one item makes, and the label of its row."""

    value: float
    error: float | None = None
    valid: float | None = None
    item: float = 0.0
    label: str = ""


class Gain(NamedTuple):
    """The relative gain of a row over another, the part that chance may explain, the row, and words about both."""

    share: float
    error: float
    row: str
    note: str
    label: str


Value = Callable[[str, str, str], Reached | None]  # of an experiment, a row and a metric


class Comparison(Section):
    """The best of some rows against the best of others of one experiment."""

    experiment: str
    rows: tuple[str, ...] = Field(min_length=1)
    than: tuple[str, ...] = Field(min_length=1)
    metric: str = "mrr"


class Claim(Section):
    """A sentence of the paper, and the condition under which it holds.

    `above`: better in every comparison; `below`: worse in every one; `not-below`: at most 1 % worse; `gain`: the mean
    gain is around `gain`; `near`: at most 3 % worse; `count`: at least as good in `count` of the comparisons.
    """

    text: str
    source: str
    kind: Literal["above", "below", "not-below", "gain", "near", "count"]
    compare: tuple[Comparison, ...] = Field(min_length=1)
    gain: float = 0.0
    count: int = 0


class Claims(Section):
    """A file of claims."""

    claims: tuple[Claim, ...]
    places: dict[str, str] = Field(default_factory=dict)  # label in the paper's source -> place in the printed paper


@cache
def committed() -> Claims:
    """Return the committed claims."""
    return Claims.model_validate_json(json.dumps(read_tree(CLAIMS)))


def placed(source: str) -> str:
    """Replace the labels in a text by their places in the printed paper."""
    places = committed().places
    return re.sub(r"\b(?:tbl|table|fig|sec|eqn):\w+", lambda match: places.get(match[0], match[0]), source)


def gain(comparison: Comparison, value: Value) -> Gain | None:
    """Return the gain of the rows over the others that have a number; None if a row, or every other, has none."""
    lower = comparison.metric.rpartition("/")[2] in LOWER
    rows, others = (
        [value(comparison.experiment, name, comparison.metric) for name in names]
        for names in (comparison.rows, comparison.than)
    )
    ours, known = ([one for one in side if one is not None] for side in (rows, others))
    if len(ours) < len(rows) or not known:
        return None
    (mine, by), (theirs, _) = _best(ours, lower), _best(known, lower)
    notes = [mine.label + by] if len(ours) > 1 else []
    notes += [f"against {theirs.label}"]
    notes += [f"{len(known)} of {len(others)} have numbers"] if len(known) < len(others) else []
    above, beneath = (theirs.value, mine.value) if lower else (mine.value, theirs.value)
    share = above / beneath - 1 if beneath else math.copysign(math.inf, above) if above else 0.0
    item = max(mine.item, theirs.item) / beneath if beneath else 0.0
    error = max(_ERRORS * _error(comparison, mine, theirs), item)
    *parts, metric = comparison.metric.split("/")
    return Gain(share, error, mine.label, ", ".join(notes), " ".join((*parts[1:], title(metric))))


def _best(rows: Sequence[Reached], lower: bool) -> tuple[Reached, str]:
    """Return the best row on validation, or by its value where a row has no validation metric, and say which."""
    best = min if lower else max
    valid = [one.valid for one in rows if one.valid is not None]
    if len(valid) < len(rows):
        return best(rows, key=lambda one: one.value), ""
    return rows[valid.index(best(valid))], " by validation"


def _error(comparison: Comparison, mine: Reached, theirs: Reached) -> float:
    """Return the standard error of the ratio of two numbers; at least the assumed one where a row has one seed."""
    rows = (mine, theirs)
    known = math.hypot(*(one.error / one.value if one.value else math.inf for one in rows if one.error))
    assumed = _TOLERANCE_PARTS if "/" in comparison.metric else _TOLERANCE
    return known if all(one.error is not None for one in rows) else max(known, assumed)


def judge(claim: Claim, value: Value, missing: str) -> str:
    """Return the verdict on a claim and its evidence; `missing` where numbers that may change it are missing."""
    gains = [gain(comparison, value) for comparison in claim.compare]
    found = [one for one in gains if one is not None]
    metrics, rows, notes = ({getattr(one, name) for one in found} for name in ("label", "row", "note"))
    parts = []
    for one in found:
        words = [one.label] * (len(metrics) > 1) + [one.row] * (len(rows) > 1 and not one.note.startswith(one.row))
        percent = round(100 * one.share, 1) + 0.0  # no -0.0
        parts.append(" ".join((*words, f"{percent:+.1f} %")) + (f" ({one.note})" if len(notes) > 1 else ""))
    evidence = ", ".join(parts) + (f" ({found[0].note})" if len(notes) == 1 else "")
    if not found:
        return missing
    answer, left = _answer(claim, found, len(gains) - len(found)), len(found) < len(gains)
    if left and answer == "undecided":
        return f"{missing}; so far {evidence}"
    return f"{answer}{' whatever the missing rows reach' * left}: {evidence}"


def _answer(claim: Claim, found: Sequence[Gain], left: int = 0) -> str:
    """Return the verdict that holds whatever the `left` comparisons without numbers will show."""
    if claim.kind == "gain":
        if left:
            return "undecided"
        mean = statistics.fmean(one.share for one in found)
        error = math.hypot(*(one.error for one in found)) / len(found)
        off, room = mean - claim.gain, _SHARE * claim.gain
        if abs(off) <= room:
            return "holds" if abs(mean) > error else "undecided"
        return "undecided" if abs(off) <= room + error else "*more than claimed*" if off > 0 else "*does not hold*"
    if claim.kind == "count":
        sure, possible = (sum(one.share >= sign * one.error for one in found) for sign in (1, -1))
        return "holds" if sure >= claim.count else "*does not hold*" if possible + left < claim.count else "undecided"
    verdicts = {"undecided"} if left else set()
    for share, error, *_ in found:
        sides = {"above": share, "below": -share, "not-below": share + _TOLERANCE, "near": share + _NEAR}
        by = sides[claim.kind]  # how far the gain lies on the side that the claim needs
        verdicts.add("holds" if by > error else "undecided" if by >= -error and error else "*does not hold*")
    return min(verdicts, key=("*does not hold*", "undecided", "holds").index)


def _named(experiment: Experiment, row: Row) -> str:
    """Return the label of a row; where the rows of several data sets have the same labels, with the data set."""
    return f"{row.label} on {row.group}" if experiment.metrics[0] == "accuracy" else row.label


def claims_table(board: Board, claims: Sequence[Claim] | None = None) -> Table:
    """Judge claims, by default the committed ones, by the paper's own numbers and by ours."""

    def paper(experiment: str, row: str, metric: str) -> Reached | None:
        made = board.experiments[experiment]
        line = made.row(row)
        return Reached(line.paper[metric], 0.0, label=_named(made, line)) if metric in line.paper else None

    def ours(experiment: str, row: str, metric: str) -> Reached | None:
        made = board.experiments[experiment]
        line = made.row(row)
        if at_home(made, line)[1].settings is None:  # quoted
            return Reached(line.paper[metric], label=_named(made, line)) if metric in line.paper else None
        found = board.ours(made, line, metric)
        valid = board.ours(made, line, metric.rpartition("/")[2], "valid")
        if found is None:
            return None
        chosen = None if valid is None else valid.mean
        return Reached(found.mean, found.error if found.seeds > 1 else None, chosen, found.item, _named(made, line))

    lines = []
    for claim in committed().claims if claims is None else claims:
        missing, below = NOT_RUN, dict[str, None]()
        for one in claim.compare:
            experiment, found = board.experiments[one.experiment], gain(one, ours)
            metric = one.metric if "/" in one.metric else experiment.metrics[0]
            for row in map(experiment.row, (*one.than, *one.rows)):
                reached, label = board.ours(experiment, row, metric), _named(experiment, row)
                if reached is None and row.missing:
                    missing = f"undecided: {label} is {not_run(row)}"
                stands = found is not None and label == found.row
                if stands and verdict(experiment, row, metric, reached).startswith("below"):
                    below[label] = None
        judged = judge(claim, ours, missing) + (f"; below the paper: {', '.join(below)}" if below else "")
        lines.append([claim.text, placed(claim.source), judge(claim, paper, "no numbers given"), judged])
    return Table("Claims", ("the paper says", "where", "by its numbers", "by ours"), lines)
