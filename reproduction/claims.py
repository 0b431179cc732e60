"""The paper's claims as comparisons of rows, judged by the paper's own numbers and by ours."""

from __future__ import annotations

import json
import math
import operator
import re
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, NamedTuple

from pydantic import Field

from compgcn.config import Section, read_tree
from compgcn.run.report import MISSING, Table
from reproduction.experiment import CLAIMS, Experiment, Row, at_home, chosen
from reproduction.tables import LOWER, Board, number, percent, shown, stated, title

_TOLERANCE = 0.01  # "not worse" is at most this share worse; also the assumed error of a single seed
_TOLERANCE_PARTS = 0.04  # assumed error of a category of relations, by the seeds of the headline model
_ERRORS = 2  # standard errors that chance may explain, about 19 times in 20
_NEAR = 0.03  # "comparable" is at most this share away
_SHARE = 1 / 3  # "around 6 %" is 4 % to 8 %

_LIMITS = {"one": _TOLERANCE, "parts": _TOLERANCE_PARTS, "near": _NEAR}  # names of shares in the rules
_TRAINING = ("decoder.name", "training.loss", "training.epochs")


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
    """The answer to a claim, and its comparisons (None where numbers are missing)."""

    answer: str
    gains: tuple[Gain | None, ...]
    below: tuple[str, ...] = ()  # rows of CompGCN whose numbers in the paper would change the answer
    then: str = ""  # the answer by these numbers


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
    gain is around `gain`; `near`: at most 3 % worse; `count`: better in `count` of the comparisons; `tied`: at least as
    good in `count` of them.
    """

    text: str
    source: str
    kind: Literal["above", "below", "not-below", "gain", "near", "count", "tied"]
    compare: tuple[Comparison, ...] = Field(min_length=1)
    gain: float = 0.0
    count: int = 0


class Claims(Section):
    """A file of claims."""

    rules: tuple[str, ...]  # of the verdicts, with names in braces that `rules` replaces
    evidence: str  # head of the table of the numbers
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
    lower = comparison.metric.endswith(LOWER)
    rows, others = (
        [value(comparison.experiment, name, comparison.metric) for name in names]
        for names in (comparison.rows, comparison.than)
    )
    ours, known = ([one for one in side if one is not None] for side in (rows, others))
    if len(ours) < len(rows) or not known:
        return None
    mine, theirs = _best(ours, lower), _best(known, lower)
    error = max(_ERRORS * _error(comparison, mine, theirs), max(mine.item, theirs.item) / theirs.value)
    some = f" (best of {len(known)} with a number, of {len(others)})" if len(known) < len(others) else ""
    return Gain((mine.value / theirs.value - 1) * (-1 if lower else 1), error, mine, theirs, comparison.metric, some)


def _best(rows: Sequence[Reached], lower: bool) -> Reached:
    """Return the best row on validation, or by its value where a row has no validation metric."""
    best = min if lower else max
    valid = [one.valid for one in rows if one.valid is not None]
    return rows[valid.index(best(valid))] if len(valid) == len(rows) else best(rows, key=lambda one: one.value)


def _error(comparison: Comparison, mine: Reached, theirs: Reached) -> float:
    """Return the standard error of the ratio of two numbers; a row with one seed has the assumed one, a count none."""
    assumed = 0.0 if comparison.metric == "parameters" else _TOLERANCE_PARTS if "/" in comparison.metric else _TOLERANCE
    return math.hypot(*(assumed if one.error is None else one.error / one.value for one in (mine, theirs)))


def judge(claim: Claim, value: Value) -> Judged:
    """Answer a claim in a way that no missing number can change."""
    gains = tuple(gain(comparison, value) for comparison in claim.compare)
    found = [one for one in gains if one is not None]
    left = len(gains) - len(found)
    if claim.kind == "gain" and not left:
        mean, error = _mean(found)
        off, room = mean - claim.gain, _SHARE * claim.gain
        if abs(abs(off) - room) <= error:  # chance may carry the gain across the edge
            return Judged("open", gains)
        return Judged("yes" if abs(off) < room else "more" if off > 0 else "no", gains)
    if claim.kind == "gain":
        return Judged("open", gains)
    if claim.kind in ("count", "tied"):
        sure, possible = _counted(claim, found)
        return Judged("yes" if sure >= claim.count else "no" if possible + left < claim.count else "open", gains)
    answers = {"open"} if left else set()
    for one in found:
        by = _by(claim, one)
        answers.add("yes" if by > one.error else "open" if by >= -one.error and one.error else "no")
    return Judged(min(answers, key=("no", "open", "yes").index), gains)


def _mean(found: Sequence[Gain]) -> tuple[float, float]:
    """Return the mean gain and its error."""
    return statistics.fmean(one.share for one in found), math.hypot(*(one.error for one in found)) / len(found)


def _counted(claim: Claim, found: Sequence[Gain]) -> list[int]:
    """Return in how many comparisons a row is good enough for sure, and possibly."""
    enough = operator.ge if claim.kind == "tied" else operator.gt
    return [sum(enough(one.share, sign * one.error) for one in found) for sign in (1, -1)]


def _by(claim: Claim, one: Gain) -> float:
    """Return how far a gain lies on the side that the claim needs."""
    sides = {"above": one.share, "below": -one.share, "not-below": one.share + _TOLERANCE, "near": one.share + _NEAR}
    return sides[claim.kind]


def decided(claim: Claim, value: Value, paper: Value) -> Judged:
    """Judge a claim by our values, and name the fewest rows of CompGCN whose better numbers in the paper change it."""

    def answer(raised: Sequence[str]) -> str:
        def better(*key: str) -> Reached | None:
            mine, theirs = value(*key), paper(*key)
            if mine is None or theirs is None or mine.label not in raised:
                return mine
            return mine._replace(value=(min if key[-1].endswith(LOWER) else max)(mine.value, theirs.value))

        return judge(claim, better).answer

    rows = [value(one.experiment, row, one.metric) for one in claim.compare for row in (*one.rows, *one.than)]
    judged, raised = judge(claim, value), list({one.label: 0 for one in rows if one and "CompGCN" in one.label})
    if (then := answer(raised)) == judged.answer:
        return judged
    for name in tuple(raised):
        rest = [other for other in raised if other != name]
        raised, then = (rest, answer(rest)) if answer(rest) != judged.answer else (raised, then)
    return judged._replace(below=tuple(raised), then=then)


def reason(claim: Claim, judged: Judged, missing: str) -> str:
    """Say in a sentence what decides a claim; `missing` if that is a missing row."""
    found = [one for one in judged.gains if one is not None]
    undecided = judged.answer == "open"
    if undecided and len(found) < len(judged.gains):
        return missing
    if claim.kind == "gain":
        mean, error = _mean(found)
        words = f"the gain is {percent(mean)}" + (f" ± {100 * error:.1f} %" if undecided else "")
    elif claim.kind in ("count", "tied"):
        sure, possible = _counted(claim, found)
        words = f"{'better or equal' if claim.kind == 'tied' else 'higher'} in {sure} of {len(found)} comparisons"
        words += f"; in {possible - sure} more, chance can explain the gap" if undecided and possible > sure else ""
    else:
        one = min(found, key=lambda one: _by(claim, one) + (one.error if judged.answer == "no" else -one.error))
        points, has = round(100 * one.share, 1), ("is", "better", "worse")
        has = ("has", "fewer parameters", "more parameters") if one.metric == "parameters" else has
        size = f"{has[0]} {abs(points)} % {has[1 if points > 0 else 2]} than" if points else "does not differ from"
        words = f"{one.mine.label} {size} {one.theirs.label}"
        words += f" in {title(one.metric)}" if len({other.metric for other in found}) > 1 else ""
        words = f"in the closest comparison, {words}" if judged.answer == "yes" and len(found) > 1 else words
        if undecided and claim.kind in ("near", "not-below"):
            can = "hide" if (by := _by(claim, one)) > 0 else "explain"
            words += f", but chance (± {100 * one.error:.1f} %) can {can} a loss over {100 * (by - one.share):.0f} %"
        elif undecided and points:
            words += ", which chance can explain"
    words += "; the rows that are not trained cannot change it" if len(found) < len(judged.gains) else ""
    then = f"; by the paper's number for {' and '.join(judged.below)}, the answer would be *{judged.then}*"
    return words + (then if judged.below else "")


def _named(experiment: Experiment, row: Row) -> str:
    """Return the label of a row; where the rows of several graphs have the same labels, with the graph."""
    relations, _, what = row.label.partition(" relations, ")
    label = f"{what} with {relations} relations" if what else row.label
    return f"{label} on {row.group}" if experiment.metrics[0] == "accuracy" else label


def verdicts(board: Board) -> list[tuple[Judged, Judged, str]]:
    """Judge the committed claims by the paper's own numbers and by ours, with the reason for the second."""

    def line(experiment: str, row: str) -> tuple[Experiment, Row]:
        return board.experiments[experiment], board.experiments[experiment].row(row)

    def paper(experiment: str, row: str, metric: str) -> Reached | None:
        made = line(experiment, row)
        return Reached(made[1].paper[metric], 0.0, label=_named(*made)) if metric in made[1].paper else None

    def ours(experiment: str, row: str, metric: str) -> Reached | None:
        made = line(experiment, row)
        found, valid = board.ours(*made, metric), board.ours(*made, metric.rpartition("/")[2], "valid")
        error = found.error if found is not None and found.seeds > 1 else None
        return found and Reached(found.mean, error, valid and valid.mean, found.item, _named(*made))

    made = []
    for claim in committed().claims:
        rows = [(one.experiment, row, one.metric) for one in claim.compare for row in (*one.than, *one.rows)]
        missing = [f"{_named(*line(*key[:2]))} is not trained" for key in rows if ours(*key) is None]
        judged = decided(claim, ours, paper)
        made.append((judge(claim, paper), judged, reason(claim, judged, "".join(missing[-1:]))))
    return made


def rules(board: Board) -> list[str]:
    """Return the rules of the verdicts, with the claims that compare each kind of training."""
    made, trained, systems = committed(), dict[str, dict[str, None]](), board.experiments["link-prediction"]
    for place, claim in enumerate(made.claims, 1):
        for one in claim.compare if place > 2 else ():  # the first two compare systems
            home = board.experiments[one.experiment]
            for asked in (chosen(*at_home(home, home.row(name))) for name in (*one.rows, *one.than)):
                trained.setdefault(" ".join(str(asked.get(name)) for name in _TRAINING), {})[str(place)] = None
    row = systems.row("fb15k-237-complex")
    named = {"complex": shown(board.ours(systems, row, "mrr"), "mrr"), "quoted": stated(row, "mrr")}
    named |= {name: f"{100 * share:.0f} %" for name, share in _LIMITS.items()} | {"number": f"{len(made.claims)}"}
    named |= {how: ", ".join(places) for how, places in trained.items()} | {"errors": str(_ERRORS)}
    return [f"- {text.format_map(named)}" for text in made.rules]


def claims_tables(board: Board) -> list[Table]:
    """Return the claims with their answers, and the numbers behind them."""
    answers, evidence = [], []
    for place, (claim, found) in enumerate(zip(committed().claims, verdicts(board), strict=True), 1):
        paper, ours, because = found
        by_paper = paper.answer if any(paper.gains) else MISSING
        answers.append([str(place), claim.text, placed(claim.source), by_paper, f"**{ours.answer}**", because])
        for compared, *sides in zip(claim.compare, paper.gains, ours.gains, strict=True):
            name = board.experiments[compared.experiment].title
            link = f"[{name}](#{re.sub(r'[^a-z0-9 -]', '', name.lower()).replace(' ', '-')})"
            lines: dict[tuple[str, ...], list[str]] = {}
            for side, one in enumerate(sides):
                if one is not None:
                    both = f"{one.mine.label} against {one.theirs.label}{one.known}"
                    cell = lines.setdefault((title(one.metric), both), [MISSING, MISSING])
                    values = ", ".join(number(row.value, one.metric) for row in (one.mine, one.theirs))
                    cell[side] = f"{percent(one.share)} ({values})"
            evidence += [[str(place), *key, *cells, link] for key, cells in lines.items()]
    asked = ("claim", "statement", "where in the paper", "by its numbers", "by ours", "reason for ours")
    behind = ("claim", "metric", "compared", "gain by the paper", "gain by ours", "trainings")
    return [Table(asked, answers), Table(behind, evidence, "The numbers behind the claims")]
