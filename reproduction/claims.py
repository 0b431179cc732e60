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
from reproduction.experiment import CLAIMS, at_home
from reproduction.tables import LOWER, NOT_RUN, Board, not_run, verdict

_TOLERANCE = 0.01  # "not worse" is at most this share worse; also the assumed error of a single seed
_TOLERANCE_PARTS = 0.04  # assumed error of a category of relations, by the seeds of the headline model
_ERRORS = 2  # standard errors that chance may explain, about 19 times in 20
_NEAR = 0.03  # "comparable" is at most this share away
_SHARE = 1 / 3  # "around 6 %" is 4 % to 8 %

RULE = (
    "Gains are relative; for a mean rank, lower is better. If several rows stand for one model, ours is the one with "
    f"the best validation metric. *Undecided*: {_ERRORS} standard errors over seeds leave the claim open; we assume "
    f"{100 * _TOLERANCE:.0f} % for a row with one seed, and {100 * _TOLERANCE_PARTS:.0f} % for a category of "
    "relations. A gain is *around* the claimed one if it lies at most a third away, and undecided if its error reaches "
    "that range. The table also names rows of CompGCN below the paper's number: such a verdict judges our training as "
    "much as the claim."
)


class Reached(NamedTuple):
    """A number, its standard error over seeds (None: one seed), and the validation metric that chooses among rows."""

    value: float
    error: float | None = None
    valid: float | None = None


class Gain(NamedTuple):
    """The relative gain of some rows over others, the part that chance may explain, and words about both."""

    share: float
    error: float
    note: str = ""
    label: str = ""


Value = Callable[[str, str, str], Reached | None]  # of an experiment, a row and a metric


class Comparison(Section):
    """The best of some rows, or their mean, against the best of others of one experiment."""

    experiment: str
    rows: tuple[str, ...] = Field(min_length=1)
    than: tuple[str, ...] = Field(min_length=1)
    metric: str = "mrr"
    mean: bool = False


class Claim(Section):
    """A sentence of the paper, and the condition under which it holds.

    `above`: better in every comparison; `below`: worse in every one; `not-below`: at most 1 % worse; `gain`: the mean
    gain is around `gain`; `near`: at most 3 % away; `count`: at least as good in `count` of the comparisons.
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
    """Return the gain of the rows over the others that have a number; None if a row, or every other, has none.

    Among several rows the best on validation counts, if all have a validation metric; among the others the best.
    """
    lower = comparison.metric.rpartition("/")[2] in LOWER
    best = min if lower else max
    rows, others = (
        {name: value(comparison.experiment, name, comparison.metric) for name in names}
        for names in (comparison.rows, comparison.than)
    )
    ours = {name: one for name, one in rows.items() if one is not None}
    known = [one for one in others.values() if one is not None]
    if len(ours) < len(rows) or not known:
        return None
    notes = [f"against {len(known)} of {len(others)}"] if len(known) < len(others) else []
    if comparison.mean:
        mine = _mean(list(ours.values()))
    else:
        validated = all(one.valid is not None for one in ours.values())
        if validated:
            name = max(ours, key=lambda one: ours[one].valid or 0.0)
        else:
            name = best(ours, key=lambda one: ours[one].value)
        mine = ours[name]
        notes = [name + (" by validation" if validated else ""), *notes] if len(ours) > 1 else notes
    theirs = best(known, key=lambda one: one.value)
    above, beneath = (theirs.value, mine.value) if lower else (mine.value, theirs.value)
    share = above / beneath - 1 if beneath else math.copysign(math.inf, above) if above else 0.0
    return Gain(share, _ERRORS * _error(comparison, mine, theirs), ", ".join(notes), _label(comparison))


def _mean(rows: Sequence[Reached]) -> Reached:
    errors = [one.error for one in rows if one.error is not None]
    error = math.hypot(*errors) / len(rows) if len(errors) == len(rows) else None
    return Reached(statistics.fmean(one.value for one in rows), error)


def _error(comparison: Comparison, mine: Reached, theirs: Reached) -> float:
    """Return the standard error of the ratio of two numbers; at least the assumed one where a row has one seed."""
    rows = (mine, theirs)
    known = math.hypot(*(one.error / one.value if one.value else math.inf for one in rows if one.error))
    assumed = _TOLERANCE_PARTS if "/" in comparison.metric else _TOLERANCE
    return known if all(one.error is not None for one in rows) else max(known, assumed)


def _label(comparison: Comparison) -> str:
    """Tell a comparison from others of its claim: by the metric unless it is the MRR, else by the rows."""
    *parts, metric = comparison.metric.split("/")
    what = [*parts[1:], *([] if metric in ("mrr", "accuracy") else [metric.replace("hits", "H").replace("mr", "MR")])]
    who = [comparison.rows[0]] if len(comparison.rows) == 1 else []
    who += [f"over {comparison.than[0]}"] if len(comparison.than) == 1 else []
    return " ".join(what or who[:1])


def judge(claim: Claim, value: Value, missing: str) -> str:
    """Return the verdict on a claim and its evidence; `missing` where numbers are missing."""
    gains = [gain(comparison, value) for comparison in claim.compare]
    found = [one for one in gains if one is not None]
    several = len({one.label for one in found}) > 1
    parts = []
    for one in found:
        label = f"{one.label or 'MRR'} " if several else ""
        parts.append(f"{label}{100 * one.share:+.1f} %" + (f" ({one.note})" if one.note else ""))
    evidence = ", ".join(parts)
    if len(found) < len(gains):
        return f"{missing}; so far {evidence}" if found else missing
    return f"{_answer(claim, found)}: {evidence}"


def _answer(claim: Claim, found: Sequence[Gain]) -> str:
    if claim.kind == "gain":
        mean = statistics.fmean(one.share for one in found)
        error = math.hypot(*(one.error for one in found)) / len(found)
        off, room = mean - claim.gain, _SHARE * claim.gain
        if abs(off) <= room:
            return "holds" if abs(mean) > error else "undecided"
        return "undecided" if abs(off) <= room + error else "*more than claimed*" if off > 0 else "*does not hold*"
    if claim.kind == "count":
        sure, possible = (sum(one.share >= sign * one.error for one in found) for sign in (1, -1))
        return "holds" if sure >= claim.count else "*does not hold*" if possible < claim.count else "undecided"
    verdicts = set()
    for share, error, *_ in found:
        sides = {"above": share, "below": -share, "not-below": share + _TOLERANCE, "near": _NEAR - abs(share)}
        by = sides[claim.kind]  # how far the gain lies on the side that the claim needs
        verdicts.add("holds" if by > error else "undecided" if by >= -error and error else "*does not hold*")
    return min(verdicts, key=("*does not hold*", "undecided", "holds").index)


def claims_table(board: Board, claims: Sequence[Claim] | None = None) -> Table:
    """Judge claims, by default the committed ones, by the paper's own numbers and by ours."""

    def paper(experiment: str, row: str, metric: str) -> Reached | None:
        found = board.experiments[experiment].row(row).paper.get(metric)
        return None if found is None else Reached(found, 0.0)

    def ours(experiment: str, row: str, metric: str) -> Reached | None:
        made = board.experiments[experiment]
        line = made.row(row)
        if at_home(made, line)[1].settings is None:  # quoted
            return Reached(line.paper[metric]) if metric in line.paper else None
        found = board.ours(made, line, metric)
        valid = board.ours(made, line, made.metrics[0].rpartition("/")[2], "valid")
        if found is None:
            return None
        return Reached(found.mean, found.error if found.seeds > 1 else None, None if valid is None else valid.mean)

    lines = []
    for claim in committed().claims if claims is None else claims:
        missing, below = NOT_RUN, dict[str, None]()
        for one in claim.compare:
            experiment = board.experiments[one.experiment]
            metric = one.metric if "/" in one.metric else experiment.metrics[0]
            for row in map(experiment.row, one.rows):
                missing = f"undecided: `{row.name}` is {not_run(row)}" if row.missing else missing
                reached = board.ours(experiment, row, metric)
                if reached is not None and verdict(experiment, row, metric, reached).startswith("below"):
                    below[row.name] = None
        judged = judge(claim, ours, missing) + (f"; below the paper: {', '.join(below)}" if below else "")
        lines.append([claim.text, placed(claim.source), judge(claim, paper, "no numbers given"), judged])
    return Table("Claims", ("the paper says", "where", "by its numbers", "by ours"), lines)
