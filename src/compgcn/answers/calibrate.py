"""Calibrate probabilities on validation, and measure how far they can be trusted.

A calibration never changes a rank: among the new answers to a query, and among the known ones, the higher score keeps
the higher probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from compgcn.errors import InputError

_BINS = 10
_DISCOVERIES = "discoveries"  # the key of their calibration in calibration.json
_FEWEST = 10  # right answers, and wrong ones, that a slope and an intercept need


class Bin(NamedTuple):
    """Answers whose probability lies in one of equal intervals of [0, 1]."""

    answers: int
    probability: float  # their mean
    right: float  # the share of right ones


def bins(probability: Tensor, right: Tensor) -> list[Bin]:
    """Group answers by their probability [n], given which are right [n]; leave out empty intervals."""
    probability, right = probability.double().cpu(), right.double().cpu()
    place = (probability * _BINS).long().clamp_max(_BINS - 1)
    found = [(probability[place == k], right[place == k]) for k in range(_BINS)]
    return [Bin(len(given), given.mean().item(), true.mean().item()) for given, true in found if len(given)]


def calibration_error(found: Sequence[Bin]) -> float:
    """Return the expected calibration error: the mean distance between probability and share of right answers."""
    total = sum(one.answers for one in found)
    return sum(one.answers * abs(one.probability - one.right) for one in found) / max(total, 1)


class Scaling(NamedTuple):
    """The probability of an answer as sigmoid(slope · log-odds + intercept), with a positive slope (Platt 1999).

    The first answers, those that no new answer beats, have a slope and an intercept of their own; a first answer never
    gets less than it would among the others. For classes the slope alone counts: it is one over a temperature.
    """

    slope: float
    intercept: float
    first_slope: float
    first_intercept: float
    among: bool  # whether the log-odds compare with unknown answers alone, or are the model's own
    answers: int  # fitted to so many
    log_likelihood: float  # their mean
    error_before: float  # their expected calibration error
    error_after: float

    def __call__(self, log_odds: Tensor, first: Tensor) -> Tensor:
        """Return the probabilities of answers with these log-odds, given which are first."""
        odds = log_odds.double()
        logits = self.slope * odds + self.intercept
        above = torch.maximum(self.first_slope * odds + self.first_intercept, logits)
        return torch.where(first, above, logits).sigmoid()


class Weighing(NamedTuple):
    """The probability of a discovery as sigmoid(slope · log-odds + intercept), with a positive slope.

    The log-odds are those of the answer's probability times the rate of `compgcn.answers.discover.lacking`.
    """

    slope: float
    intercept: float
    answers: int  # fitted to so many
    right: int  # as many of them are right
    log_likelihood: float  # their mean

    def __call__(self, log_odds: Tensor) -> Tensor:
        return torch.sigmoid(self.slope * log_odds.double() + self.intercept)


class Reliability(NamedTuple):
    """Answers that a model would show, and which are right."""

    own: Tensor  # log-odds by the model itself [n]
    among: Tensor  # log-odds among the unknown answers, see `compgcn.answers.links.log_odds_among` [n]
    right: Tensor  # bool [n]
    first: Tensor  # whether no new answer to the same query scores higher, bool [n]

    def bins(self, scaling: Scaling | None = None) -> list[Bin]:
        """Group the answers by their probability: the model's own, or the one of a scaling."""
        if scaling is None:
            return bins(self.own.sigmoid(), self.right)
        return bins(scaling(self.among if scaling.among else self.own, self.first), self.right)

    def where(self, chosen: Tensor) -> Reliability:
        return Reliability(*(part[chosen] for part in self))


def fit_scaling(given: Reliability) -> Scaling | None:
    """Return the most likely scaling of either log-odds, or None if too few answers are right or wrong."""
    if not _enough(given.right) or not torch.isfinite(given.own).all():
        return None
    found = max((_platt(given, among) for among in (False, True)), key=lambda one: one.log_likelihood)
    before, after = (calibration_error(given.bins(scaling)) for scaling in (None, found))
    return found._replace(error_before=before, error_after=after)


def fit_weighing(log_odds: Tensor, right: Tensor) -> Weighing | None:
    """Return the most likely weighing of discoveries [n], or None if too few are right or wrong."""
    if not _enough(right, slopes=2):
        return None
    slope, intercept = _logistic(log_odds, right)
    found = Weighing(slope, intercept, len(right), int(right.sum()), 0.0)
    return found._replace(log_likelihood=_likelihood(found(log_odds), right))


def fit_temperature(log_probabilities: Tensor, targets: Tensor) -> Scaling | None:
    """Return the most likely temperature of classes [n, C] with known targets [n], or None if there are too few."""
    found, true = log_probabilities.double().cpu().clone(), targets.cpu()
    if len(true) < _FEWEST or not torch.isfinite(found).all():
        return None
    (steepness,) = _minimum(lambda at: F.cross_entropy(at.exp() * found, true), [0.0])
    slope = math.exp(steepness)
    best = [one.softmax(1).max(1) for one in (found, slope * found)]
    errors = [calibration_error(bins(one.values, one.indices == true)) for one in best]
    likelihood = -F.cross_entropy(slope * found, true).item()
    return Scaling(slope, 0.0, slope, 0.0, False, len(true), likelihood, *errors)


def _enough(right: Tensor, slopes: int = 1) -> bool:
    hits = int(right.sum())
    return min(hits, len(right) - hits) >= slopes * _FEWEST


def _platt(given: Reliability, among: bool) -> Scaling:
    odds, right, first = given.among if among else given.own, given.right, given.first
    parts = [~first, first]
    if not all(_enough(right[part]) for part in parts):
        parts = [torch.ones_like(first)] * 2  # one fit for all
    others, firsts = (_logistic(odds[part], right[part]) for part in parts)
    found = Scaling(*others, *firsts, among, len(right), 0.0, 0.0, 0.0)
    return found._replace(log_likelihood=_likelihood(found(odds, first), right))


def _likelihood(chances: Tensor, right: Tensor) -> float:
    tiny = torch.finfo(torch.double).tiny
    return torch.where(right, chances, 1 - chances).clamp_min(tiny).log().mean().item()


@torch.inference_mode(False)
def _logistic(log_odds: Tensor, right: Tensor) -> tuple[float, float]:
    """Return the most likely slope, a positive one, and intercept, given log-odds [n] and which answers are right [n].

    The targets lie a little within 0 and 1, as in Platt's paper, so that perfect separation keeps the slope finite.
    """
    x, true = log_odds.double().unsqueeze(1).clone(), right.double()  # [n, 1], [n]
    hits, total = true.sum(), len(true)
    targets = torch.where(true > 0, (hits + 1) / (hits + 2), 1 / (total - hits + 2))
    mean, spread = x.mean(0), x.std(0)
    spread = torch.where(spread > 1e-9, spread, 1.0)
    scaled = (x - mean) / spread

    def loss(at: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(scaled @ at[:1].exp() + at[1], targets)

    steepness, intercept = _minimum(loss, [0.0, torch.logit(hits / total).item()])
    slope = (torch.tensor(steepness, dtype=torch.double).exp() / spread.cpu()).item()
    return slope, intercept - slope * mean.item()


def _minimum(loss: Callable[[Tensor], Tensor], start: Sequence[float]) -> list[float]:
    """Minimise a smooth function of a few numbers."""
    with torch.inference_mode(False), torch.enable_grad():
        at = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([at], max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimiser.zero_grad()
            value = loss(at) + 1e-6 * at.square().sum()  # keeps directions without data finite
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimiser.step(closure)  # type: ignore[no-untyped-call]
    return [float(value) for value in at.detach()]


def stored(calibration: Mapping[str, Scaling | None], discoveries: Weighing | None = None) -> dict[str, Any]:
    """Return the content of calibration.json: the split, and a scaling or null for each kind of answer."""
    found = {kind: None if scaling is None else scaling._asdict() for kind, scaling in calibration.items()}
    return {"split": "valid", **found, **({} if discoveries is None else {_DISCOVERIES: discoveries._asdict()})}


def restored(content: Mapping[str, Any]) -> tuple[dict[str, Scaling | None], Weighing | None]:
    """Return the scalings in the content of calibration.json, and the weighing of discoveries if it has one."""
    kinds = {kind: fields for kind, fields in content.items() if kind not in ("split", _DISCOVERIES)}
    try:
        weighing = Weighing(**content[_DISCOVERIES]) if _DISCOVERIES in content else None
        scalings = {kind: None if fields is None else Scaling(**fields) for kind, fields in kinds.items()}
        for number in (number for fit in (*scalings.values(), weighing) for number in fit or ()):
            if not isinstance(number, (int, float)):
                raise TypeError(f"{number!r} is no number")
        return scalings, weighing
    except TypeError as error:
        raise InputError(f"calibration.json of the run is damaged ({error}); remove the file") from None
