"""How far the probabilities of a model can be believed: how often the answers it gives some chance are right.

A calibration is fitted to validation and kept with the run. It changes what a score is worth and no rank: of the new
answers to a query, and of the known ones, the one with the higher score never has the lower probability. A new answer
and a known one can be the other way round, for a known one is weighed against the new ones alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from compgcn.errors import InputError

BINS = 10
_DISCOVERIES = "discoveries"  # under which calibration.json has their weighing
_FEWEST = 10  # right answers, and wrong ones, that a slope and an intercept are fitted to


class Bin(NamedTuple):
    """Answers whose probability lies in one of equal intervals of [0, 1]."""

    answers: int
    probability: float  # their mean
    right: float  # the share of them that is right


def bins(probability: Tensor, right: Tensor) -> list[Bin]:
    """The intervals that have an answer, from the lowest on.

    Args:
        probability: of each answer, in [0, 1] [n].
        right: whether it is [n].
    """
    probability, right = probability.double().cpu(), right.double().cpu()
    place = (probability * BINS).long().clamp_max(BINS - 1)
    found = [(probability[place == k], right[place == k]) for k in range(BINS)]
    return [Bin(len(given), given.mean().item(), true.mean().item()) for given, true in found if len(given)]


def calibration_error(found: Sequence[Bin]) -> float:
    """The expected calibration error: how far probability and share lie apart, over the intervals by their answers."""
    total = sum(one.answers for one in found)
    return sum(one.answers * abs(one.probability - one.right) for one in found) / max(total, 1)


class Scaling(NamedTuple):
    """The probability of an answer as the sigmoid of slope · log-odds + intercept; the slope is positive (Platt 1999).

    What no new answer beats, the first, has a slope and an intercept of its own, and is never below what it would be
    among the others. Of classes there is no intercept: their logits are multiplied by the slope, which is one over a
    temperature.
    """

    slope: float
    intercept: float
    first_slope: float
    first_intercept: float
    among: bool  # of the log-odds among the answers that are not known, or of the model's own
    answers: int  # that it was fitted to
    log_likelihood: float  # of these, the mean
    error_before: float  # the expected calibration error on these
    error_after: float

    def __call__(self, log_odds: Tensor, first: Tensor) -> Tensor:
        """Of answers with these log-odds, of which some are first."""
        odds = log_odds.double()
        logits = self.slope * odds + self.intercept
        above = torch.maximum(self.first_slope * odds + self.first_intercept, logits)
        return torch.where(first, above, logits).sigmoid()


class Weighing(NamedTuple):
    """The probability of a discovery: the sigmoid of slope · log-odds + intercept, the slope being positive.

    The log-odds are of the probability of the answer times how often such an entity lacks a tail of the relation, see
    `compgcn.answers.discover.lacking`; the order of discoveries stays that of this product.
    """

    slope: float
    intercept: float
    answers: int  # that it was fitted to
    right: int  # of these
    log_likelihood: float  # of these, the mean

    def __call__(self, log_odds: Tensor) -> Tensor:
        return torch.sigmoid(self.slope * log_odds.double() + self.intercept)


class Reliability(NamedTuple):
    """Answers that a model would show, and whether they are right.

    Fields:
        own: what the model says of each, as log-odds [n].
        among: the same among the answers that are not known, see `compgcn.answers.links.log_odds_among` [n].
        right: whether it is [n].
        first: whether no new answer to its query has a higher score [n].
    """

    own: Tensor
    among: Tensor
    right: Tensor
    first: Tensor

    def bins(self, scaling: Scaling | None = None) -> list[Bin]:
        """By probability: that of the model itself, or as a scaling has it."""
        if scaling is None:
            return bins(self.own.sigmoid(), self.right)
        return bins(scaling(self.among if scaling.among else self.own, self.first), self.right)

    def where(self, chosen: Tensor) -> Reliability:
        """Some of them [n]."""
        return Reliability(*(part[chosen] for part in self))


def fit_scaling(given: Reliability) -> Scaling | None:
    """The scaling under which the answers are most likely, of either log-odds; None where there are too few to tell."""
    if not _enough(given.right) or not torch.isfinite(given.own).all():
        return None
    found = max((_platt(given, among) for among in (False, True)), key=lambda one: one.log_likelihood)
    before, after = (calibration_error(given.bins(scaling)) for scaling in (None, found))
    return found._replace(error_before=before, error_after=after)


def _enough(right: Tensor, numbers: int = 1) -> bool:
    """Whether so many slopes can be fitted to these answers."""
    hits = int(right.sum())
    return min(hits, len(right) - hits) >= numbers * _FEWEST


def _platt(given: Reliability, among: bool) -> Scaling:
    odds, right, first = given.among if among else given.own, given.right, given.first
    if _enough(right[first]) and _enough(right[~first]):
        fits = [logistic(odds[part].unsqueeze(1), right[part]) for part in (~first, first)]
    else:  # one for all
        fits = [logistic(odds.unsqueeze(1), right)] * 2
    ((slope,), intercept), ((first_slope,), first_intercept) = fits
    found = Scaling(slope, intercept, first_slope, first_intercept, among, len(right), 0.0, 0.0, 0.0)
    return found._replace(log_likelihood=_likelihood(found(odds, first), right))


def _likelihood(chances: Tensor, right: Tensor) -> float:
    tiny = torch.finfo(torch.double).tiny
    return torch.where(right, chances, 1 - chances).clamp_min(tiny).log().mean().item()


def fit_weighing(log_odds: Tensor, right: Tensor) -> Weighing | None:
    """The weighing under which discoveries [n] are most likely; None where too few are right, or wrong, to tell."""
    if not _enough(right, 2):
        return None
    (slope,), intercept = logistic(log_odds.unsqueeze(1), right)
    found = Weighing(slope, intercept, len(right), int(right.sum()), 0.0)
    return found._replace(log_likelihood=_likelihood(found(log_odds), right))


@torch.inference_mode(False)
def logistic(features: Tensor, right: Tensor) -> tuple[list[float], float]:
    """Positive slopes of features [n, k], and an intercept: the most likely ones, given which of the answers are right.

    Targets lie a little within 0 and 1, as Platt has them: some features tell right from wrong without exception.
    """
    x, true = features.double().clone(), right.double()
    hits, total = true.sum(), len(true)
    targets = torch.where(true > 0, (hits + 1) / (hits + 2), 1 / (total - hits + 2))
    mean, spread = x.mean(0), x.std(0)
    spread = torch.where(spread > 1e-9, spread, 1.0)  # a feature that is the same everywhere keeps its weight
    scaled = (x - mean) / spread

    def loss(at: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(scaled @ at[:-1].exp() + at[-1], targets)

    *steepness, intercept = _minimum(loss, [0.0] * x.shape[1] + [torch.logit(hits / total).item()])
    slopes = torch.tensor(steepness, dtype=torch.double).exp() / spread.cpu()
    return slopes.tolist(), intercept - (slopes @ mean.cpu()).item()


def fit_temperature(log_probabilities: Tensor, targets: Tensor) -> Scaling | None:
    """As `fit_scaling`, of the classes [n, C] of items whose true ones [n] are known: one number for all classes."""
    found, true = log_probabilities.double().cpu().clone(), targets.cpu()
    if len(true) < _FEWEST or not torch.isfinite(found).all():
        return None
    (steepness,) = _minimum(lambda at: F.cross_entropy(at.exp() * found, true), [0.0])
    slope = math.exp(steepness)
    errors = []
    for one in (found, slope * found):
        best = one.softmax(1).max(1)
        errors.append(calibration_error(bins(best.values, best.indices == true)))
    likelihood = -F.cross_entropy(slope * found, true).item()
    return Scaling(slope, 0.0, slope, 0.0, False, len(true), likelihood, *errors)


def _minimum(loss: Callable[[Tensor], Tensor], start: Sequence[float]) -> list[float]:
    """Where a smooth function of a few numbers is least; logarithms of scales stay within reason."""
    with torch.inference_mode(False), torch.enable_grad():
        at = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([at], max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimiser.zero_grad()
            value = loss(at) + 1e-6 * at.square().sum()  # what the answers leave open stays finite
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimiser.step(closure)  # type: ignore[no-untyped-call]
    return [float(value) for value in at.detach()]


def stored(calibration: Mapping[str, Scaling | None], discoveries: Weighing | None = None) -> dict[str, Any]:
    """What `calibration.json` holds: the split, and a scaling, or null, by what it is the probability of."""
    found = {kind: None if scaling is None else scaling._asdict() for kind, scaling in calibration.items()}
    return {"split": "valid", **found, **({} if discoveries is None else {_DISCOVERIES: discoveries._asdict()})}


def restored(content: Mapping[str, Any]) -> dict[str, Scaling | None]:
    """A calibration from the content of `calibration.json`."""
    kinds = {kind: fields for kind, fields in content.items() if kind not in ("split", _DISCOVERIES)}
    return {kind: None if fields is None else _scaling(fields) for kind, fields in kinds.items()}


def restored_weighing(content: Mapping[str, Any]) -> Weighing | None:
    """That of the discoveries from the content of `calibration.json`, where it has one.

    One with a `rate` is of an earlier build, which asked others, and says nothing of those who are asked now.
    """
    fields = content.get(_DISCOVERIES)
    if fields is None or (isinstance(fields, dict) and "rate" in fields):
        return None
    slope, intercept, answers, right, likelihood = _numbers(fields, Weighing._fields, 1)
    return Weighing(slope, intercept, int(answers), int(right), likelihood)


def _scaling(fields: Any) -> Scaling:
    if isinstance(fields, dict) and "first_slope" not in fields:  # as they once were, all answers alike
        fields = {**fields, "first_slope": fields.get("slope"), "first_intercept": fields.get("intercept")}
    slope, intercept, first_slope, first_intercept, among, answers, *others = _numbers(fields, Scaling._fields, 1)
    return Scaling(slope, intercept, first_slope, first_intercept, bool(among), int(answers), *others)


def _numbers(fields: Any, names: Sequence[str], positive: int) -> list[float]:
    """The numbers of these names, of which the first ones are above 0."""
    try:
        numbers = [float(fields[name]) for name in names]
    except (LookupError, TypeError, ValueError):
        numbers = []
    if not numbers or not all(map(math.isfinite, numbers)) or min(numbers[:positive]) <= 0:
        expected = f"the numbers {', '.join(names)}, {' and '.join(names[:positive])} above 0"
        raise InputError(
            f"calibration.json of the run is damaged: expected {expected}, not {fields!r}; remove the file"
        )
    return numbers
