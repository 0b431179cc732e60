"""The paper's claims as comparisons of rows, judged by any set of figures: the paper's own, or ours."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, ValidationError

from compgcn.config import Section, in_file, read_tree

_AROUND = 0.01  # "not worse" is at most this share worse, and a single seed is known no better
_AROUND_PARTS = 0.04  # of the categories of relations: so far apart are the seeds of the headline model
_ERRORS = 2  # standard errors that chance may make: about 19 times in 20
_NEAR = 0.03  # "comparable" is at most this share away
_SHARE = 1 / 3  # "around 6 %" is 4 % to 8 %

RULE = (
    "Gains are relative; of a mean rank, lower is better. Of several rows that stand for one model, ours is the one of "
    f"the best validation figure. *Undecided* is what {_ERRORS} standard errors over seeds leave open, one being taken "
    f"for {100 * _AROUND:.0f} % where a row has one seed, and {100 * _AROUND_PARTS:.0f} % for a category of relations; "
    "a gain is *around* the claimed one if at most a third of it away, and undecided beyond as far as its error goes."
)


class Reached(NamedTuple):
    """A figure, its standard error, and what is chosen by.

    Fields:
        value: the figure.
        error: its standard error over seeds; None: of one seed, and not known.
        valid: the figure on the validation part by which one of several rows is chosen; None: not given.
    """

    value: float
    error: float | None = None
    valid: float | None = None


class Gain(NamedTuple):
    """How much better some rows are: as a share, what of it may be chance; and which row, against how many of whom."""

    share: float
    error: float
    note: str = ""
    label: str = ""


Value = Callable[[str, str, str], Reached | None]  # of experiment, row and metric


class Comparison(Section):
    """Some rows against others of one experiment: the best of them, or their mean, against the best of the others."""

    experiment: str
    rows: tuple[str, ...] = Field(min_length=1)
    than: tuple[str, ...] = Field(min_length=1)
    metric: str = "mrr"
    mean: bool = False


class Claim(Section):
    """What the paper says, and when it holds.

    `above`: in every comparison; `below`: the same, worse; `not-below`: at least as good, within 1 %; `gain`: the mean
    gain is about `gain`; `near`: at most 3 % away; `count`: best or as good in at least `count` of the comparisons.
    """

    text: str
    source: str
    kind: Literal["above", "below", "not-below", "gain", "near", "count"]
    compare: tuple[Comparison, ...] = Field(min_length=1)
    gain: float = 0.0
    count: int = 0


class Claims(Section):
    """The file of them."""

    claims: tuple[Claim, ...]


def read_claims(path: Path) -> tuple[Claim, ...]:
    """The claims in a TOML file."""
    try:
        return Claims.model_validate_json(json.dumps(read_tree(path))).claims
    except ValidationError as error:
        raise in_file(error, path) from None


def gain(comparison: Comparison, value: Value) -> Gain | None:
    """How much better the rows are than those of the others that have a figure; None if a row, or all others, lack it.

    Of several rows the best on the validation part is taken, where all have a figure there; of the others the best.
    """
    lower = comparison.metric.rpartition("/")[2] == "mr"
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
        name = _chosen(ours, lower)
        mine = ours[name]
        notes = [name + (" by validation" if mine.valid is not None else ""), *notes] if len(ours) > 1 else notes
    theirs = (min if lower else max)(known, key=lambda one: one.value)
    share = _ratio(theirs.value, mine.value) if lower else _ratio(mine.value, theirs.value)
    alone = _AROUND_PARTS if "/" in comparison.metric else _AROUND
    return Gain(share, _ERRORS * _error(mine, theirs, alone), ", ".join(notes), _label(comparison))


def _label(comparison: Comparison) -> str:
    """What tells a comparison from others of its claim: the figure, if it is no MRR, or who is compared with."""
    *parts, figure = comparison.metric.split("/")
    what = [*parts[1:], *([] if figure in ("mrr", "accuracy") else [figure.replace("hits", "H").replace("mr", "MR")])]
    who = [comparison.rows[0]] if len(comparison.rows) == 1 else []
    who += [f"over {comparison.than[0]}"] if len(comparison.than) == 1 else []
    return " ".join(what or who[:1])


def _chosen(rows: dict[str, Reached], lower: bool) -> str:
    """The row with the best validation figure, which is an MRR or an accuracy; else with the best figure."""
    if all(one.valid is not None for one in rows.values()):
        return max(rows, key=lambda name: rows[name].valid or 0.0)
    return (min if lower else max)(rows, key=lambda name: rows[name].value)


def _mean(rows: Sequence[Reached]) -> Reached:
    errors = [one.error for one in rows if one.error is not None]
    error = math.hypot(*errors) / len(rows) if len(errors) == len(rows) else None
    return Reached(statistics.fmean(one.value for one in rows), error)


def _ratio(a: float, b: float) -> float:
    """By what share a is above b; without bound where b is 0."""
    return a / b - 1 if b else math.copysign(math.inf, a) if a else 0.0


def _error(mine: Reached, theirs: Reached, alone: float) -> float:
    """The standard error of the ratio of two figures; at least `alone` where one is of a single seed."""
    rows = (mine, theirs)
    known = math.hypot(*(one.error / one.value if one.value else math.inf for one in rows if one.error))
    return known if all(one.error is not None for one in rows) else max(known, alone)


def judge(claim: Claim, value: Value, missing: str) -> str:
    """Whether the claim holds by some figures, and the evidence; `missing` where they are not all there."""
    gains = [gain(comparison, value) for comparison in claim.compare]
    found = [one for one in gains if one is not None]
    if len(found) < len(gains):
        return f"{missing}; so far {_evidence(found)}" if found else missing
    return f"{_answer(claim, found)}: {_evidence(found)}"


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
    ahead = [(_ahead(claim.kind, one.share), one.error) for one in found]
    if all(by > error for by, error in ahead):
        return "holds"
    certain = any(by < -error or (by <= 0 and not error) for by, error in ahead)
    return "*does not hold*" if certain else "undecided"


def _ahead(kind: str, share: float) -> float:
    """By how much a gain is on the side of a claim that it should be on."""
    if kind == "near":
        return _NEAR - abs(share)
    return {"above": share, "below": -share, "not-below": share + _AROUND}[kind]


def _evidence(gains: Sequence[Gain]) -> str:
    several = len({one.label for one in gains}) > 1
    parts = []
    for one in gains:
        label = f"{one.label or 'MRR'} " if several else ""
        parts.append(f"{label}{100 * one.share:+.1f} %" + (f" ({one.note})" if one.note else ""))
    return ", ".join(parts)
