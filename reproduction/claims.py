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
from compgcn.run.report import MISSING, Table
from reproduction.experiment import CLAIMS, Experiment, Row
from reproduction.tables import LOWER, Board, number, percent, title, verdict

_TOLERANCE = 0.01  # "not worse" is at most this share worse; also the assumed error of a single seed
_TOLERANCE_PARTS = 0.04  # assumed error of a category of relations, by the seeds of the headline model
_ERRORS = 2  # standard errors that chance may explain, about 19 times in 20
_NEAR = 0.03  # "comparable" is at most this share away
_SHARE = 1 / 3  # "around 6 %" is 4 % to 8 %

RULE = (
    "*Yes* and *no*: the claim holds, or does not. *More*: the gain is larger than claimed. *Open*: rows are missing, "
    f"or a change of {_ERRORS} standard errors over seeds would change the answer.",
    f"A gain is relative, and its ± is {_ERRORS} standard errors. In mean rank and parameters, lower is a gain.",
    "If several of our rows could represent a system, the one with the best validation value of that metric counts. "
    "This holds for CompGCN and for the others.",
    f"A row with one seed gets a standard error of {100 * _TOLERANCE:.0f} %, a category of relations one of "
    f"{100 * _TOLERANCE_PARTS:.0f} %. An error is never less than one item of a classification.",
    "A claim of *around* x % holds if the gain is within a third of x. "
    f"*Comparable*: at most {100 * _NEAR:.0f} % worse. *Does not lower*: at most {100 * _TOLERANCE:.0f} % worse.",
    "Where a CompGCN of ours is below the paper's number, the answer judges our training as much as the claim.",
)


class Reached(NamedTuple):
    """A number that a row reached."""

    value: float
    error: float | None = None  # its standard error over seeds; None: one seed
    valid: float | None = None  # the validation metric that chooses among rows
    item: float = 0.0  # the difference that one item makes
    label: str = ""  # of the row


class Gain(NamedTuple):
    """The relative gain of a row over another, the part that chance may explain, both rows, and the metric."""

    share: float
    error: float
    mine: Reached
    theirs: Reached
    metric: str
    known: str = ""  # which of the others have a number, if not all


class Judged(NamedTuple):
    """The answer to a claim, its comparisons (None where numbers are missing), and rows below the paper's number."""

    answer: str
    gains: tuple[Gain | None, ...]
    below: tuple[str, ...] = ()


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
    mine, theirs = _best(ours, lower), _best(known, lower)
    above, beneath = (theirs.value, mine.value) if lower else (mine.value, theirs.value)
    error = max(_ERRORS * _error(comparison, mine, theirs), max(mine.item, theirs.item) / beneath)
    some = f" (best of {len(known)} with a number, of {len(others)})" if len(known) < len(others) else ""
    return Gain(above / beneath - 1, error, mine, theirs, comparison.metric, some)


def _best(rows: Sequence[Reached], lower: bool) -> Reached:
    """Return the best row on validation, or by its value where a row has no validation metric."""
    best = min if lower else max
    valid = [one.valid for one in rows if one.valid is not None]
    return rows[valid.index(best(valid))] if len(valid) == len(rows) else best(rows, key=lambda one: one.value)


def _error(comparison: Comparison, mine: Reached, theirs: Reached) -> float:
    """Return the standard error of the ratio of two numbers; a row with one seed has the assumed one."""
    assumed = _TOLERANCE_PARTS if "/" in comparison.metric else _TOLERANCE
    return math.hypot(*(assumed if one.error is None else one.error / one.value for one in (mine, theirs)))


def judge(claim: Claim, value: Value) -> Judged:
    """Answer a claim in a way that no missing number can change."""
    gains = tuple(gain(comparison, value) for comparison in claim.compare)
    found = [one for one in gains if one is not None]
    left = len(gains) - len(found)
    if claim.kind == "gain" and not left:
        mean, error = _mean(found)
        off, room = mean - claim.gain, _SHARE * claim.gain
        if abs(off) <= room:
            return Judged("yes" if abs(mean) > error else "open", gains)
        return Judged("open" if abs(off) <= room + error else "more" if off > 0 else "no", gains)
    if claim.kind == "gain":
        return Judged("open", gains)
    if claim.kind == "count":
        sure, possible = _counted(found)
        return Judged("yes" if sure >= claim.count else "no" if possible + left < claim.count else "open", gains)
    answers = {"open"} if left else set()
    for one in found:
        by = _by(claim, one)
        answers.add("yes" if by > one.error else "open" if by >= -one.error and one.error else "no")
    return Judged(min(answers, key=("no", "open", "yes").index), gains)


def _mean(found: Sequence[Gain]) -> tuple[float, float]:
    """Return the mean gain and its error."""
    return statistics.fmean(one.share for one in found), math.hypot(*(one.error for one in found)) / len(found)


def _counted(found: Sequence[Gain]) -> list[int]:
    """Return in how many comparisons a row is as good for sure, and possibly."""
    return [sum(one.share >= sign * one.error for one in found) for sign in (1, -1)]


def _by(claim: Claim, one: Gain) -> float:
    """Return how far a gain lies on the side that the claim needs."""
    sides = {"above": one.share, "below": -one.share, "not-below": one.share + _TOLERANCE, "near": one.share + _NEAR}
    return sides[claim.kind]


def reason(claim: Claim, judged: Judged, missing: str) -> str:
    """Say in a sentence what decides a claim; `missing` if that is a missing row."""
    found = [one for one in judged.gains if one is not None]
    if judged.answer == "open" and len(found) < len(judged.gains):
        return missing
    if claim.kind == "gain":
        mean, error = _mean(found)
        words = f"the gain is {percent(mean)}" + (f" ± {100 * error:.1f} %" if judged.answer == "open" else "")
    elif claim.kind == "count":
        sure, possible = _counted(found)
        words = f"better or equal in {sure} of {len(found)} comparisons"
        more = f"; in {possible - sure} more, chance can explain the gap"
        words += more if judged.answer == "open" and possible > sure else ""
    else:
        one = min(found, key=lambda one: _by(claim, one) - one.error)
        points = round(100 * one.share, 1)
        size = f"is {abs(points)} % {'better' if points > 0 else 'worse'} than" if points else "does not differ from"
        words = f"{one.mine.label} {size} {one.theirs.label}"
        words += f" in {title(one.metric)}" if len({other.metric for other in found}) > 1 else ""
        words = f"in the closest comparison, {words}" if judged.answer == "yes" and len(found) > 1 else words
        words += ", which chance can explain" if judged.answer == "open" and points else ""
    words += "; the rows that are not trained cannot change it" if len(found) < len(judged.gains) else ""
    return words + "".join(f"; our {label} is below the paper's number" for label in judged.below)


def _named(experiment: Experiment, row: Row) -> str:
    """Return the label of a row; where the rows of several data sets have the same labels, with the data set."""
    return f"{row.label} on {row.group}" if experiment.metrics[0] == "accuracy" else row.label


def verdicts(board: Board) -> list[tuple[Judged, Judged, str]]:
    """Judge the committed claims by the paper's own numbers and by ours, with the reason for the second."""

    def paper(experiment: str, row: str, metric: str) -> Reached | None:
        made = board.experiments[experiment]
        line = made.row(row)
        return Reached(line.paper[metric], 0.0, label=_named(made, line)) if metric in line.paper else None

    def ours(experiment: str, row: str, metric: str) -> Reached | None:
        made = board.experiments[experiment]
        line = made.row(row)
        found = board.ours(made, line, metric)
        valid = board.ours(made, line, metric.rpartition("/")[2], "valid")
        if found is None:
            return None
        chosen = None if valid is None else valid.mean
        return Reached(found.mean, found.error if found.seeds > 1 else None, chosen, found.item, _named(made, line))

    made = []
    for claim in committed().claims:
        judged, below, missing = judge(claim, ours), list[str](), ""
        for one, found in zip(claim.compare, judged.gains, strict=True):
            experiment = board.experiments[one.experiment]
            metric = one.metric if "/" in one.metric else experiment.metrics[0]
            for row in map(experiment.row, (*one.than, *one.rows)):
                reached, label = board.ours(experiment, row, metric), _named(experiment, row)
                if reached is None:
                    missing = f"{label} is not trained" if row.missing else missing
                elif found is not None and label == found.mine.label and label not in below:
                    below += [label] if verdict(experiment, row, metric, reached).startswith("below") else []
        judged = judged._replace(below=tuple(below))
        made.append((judge(claim, paper), judged, reason(claim, judged, missing)))
    return made


def claims_tables(board: Board) -> list[Table]:
    """Return the claims with their answers, and the numbers behind them."""
    answers, evidence = [], []
    for place, (claim, found) in enumerate(zip(committed().claims, verdicts(board), strict=True), 1):
        paper, ours, because = found
        stated = paper.answer if any(paper.gains) else MISSING
        answers.append([str(place), claim.text, placed(claim.source), stated, f"**{ours.answer}**", because])
        for sides in zip(paper.gains, ours.gains, strict=True):
            lines: dict[tuple[str, ...], list[str]] = {}
            for side, one in enumerate(sides):
                if one is not None:
                    compared = f"{one.mine.label} against {one.theirs.label}{one.known}"
                    cell = lines.setdefault((title(one.metric), compared), [MISSING, MISSING])
                    values = ", ".join(number(row.value, one.metric) for row in (one.mine, one.theirs))
                    cell[side] = f"{percent(one.share)} ({values})"
            evidence += [[str(place), *key, *cells] for key, cells in lines.items()]
    return [
        Table("", ("claim", "the paper says", "where", "in its numbers", "in ours", "reason for ours"), answers),
        Table("The numbers behind the claims", ("claim", "metric", "compared", "paper", "ours"), evidence),
    ]
