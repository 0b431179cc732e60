"""The paper's claims as comparisons of rows, judged by any set of figures: the paper's own, or ours."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from compgcn.config import Section, read_tree
from compgcn.errors import InputError

Value = Callable[[str, str, str], float | None]  # of experiment, row and metric

_AROUND = 0.01  # "around 6 %" is 5 % and more
_NEAR = 0.03  # "comparable" is at most this share away


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
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path}: {where}: {first['msg'][0].lower()}{first['msg'][1:]}") from None


def gain(comparison: Comparison, value: Value) -> float | None:
    """How much better the rows are, as a share; None if a figure is missing."""
    lower = comparison.metric.rpartition("/")[2] == "mr"
    rows, others = (
        [value(comparison.experiment, name, comparison.metric) for name in names]
        for names in (comparison.rows, comparison.than)
    )
    ours, known = ([one for one in values if one is not None] for values in (rows, others))
    if len(ours) < len(rows) or len(known) < len(others):
        return None
    best = min if lower else max
    mine, theirs = statistics.fmean(ours) if comparison.mean else best(ours), best(known)
    return theirs / mine - 1 if lower else mine / theirs - 1


def judge(claim: Claim, value: Value, missing: str) -> str:
    """Whether the claim holds by some figures, and the evidence; `missing` where they are not all there."""
    gains = [gain(comparison, value) for comparison in claim.compare]
    found = [one for one in gains if one is not None]
    if len(found) < len(gains):
        return f"{missing}; so far {_evidence(found)}" if found else missing
    holds = {
        "above": min(found) > 0,
        "below": max(found) < 0,
        "not-below": min(found) >= -_AROUND,
        "gain": statistics.fmean(found) >= claim.gain - _AROUND,
        "near": max(abs(one) for one in found) <= _NEAR,
        "count": sum(one >= 0 for one in found) >= claim.count,
    }[claim.kind]
    return f"{'holds' if holds else '*does not hold*'}: {_evidence(found)}"


def _evidence(gains: list[float]) -> str:
    return ", ".join(f"{100 * one:+.1f} %" for one in gains)
