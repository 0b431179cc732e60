"""How far the probabilities of a model can be believed: how often the answers it gives some chance are right.

A calibration is fitted to validation and kept with the run. It changes what a score is worth and never which of two is
the larger, so that no rank depends on it.
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
_FEWEST = 10  # right answers, and wrong ones, that two numbers are fitted to


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

    Of classes there is no intercept: their logits are multiplied by the slope, which is one over a temperature.
    """

    slope: float
    intercept: float
    among: bool  # of the log-odds among the answers that are not known, or of the model's own
    answers: int  # that it was fitted to
    log_likelihood: float  # of these, the mean
    error_before: float  # the expected calibration error on these
    error_after: float

    def __call__(self, log_odds: Tensor) -> Tensor:
        return torch.sigmoid(self.slope * log_odds.double() + self.intercept)


class Reliability(NamedTuple):
    """Answers that a model would show, and whether they are right.

    Fields:
        own: what the model says of each, as log-odds [n].
        among: the same among the answers that are not known, see `compgcn.answers.retrieval.log_odds_among` [n].
        right: whether it is [n].
    """

    own: Tensor
    among: Tensor
    right: Tensor

    def bins(self, scaling: Scaling | None = None) -> list[Bin]:
        """By probability: that of the model itself, or as a scaling has it."""
        chances = self.own.sigmoid() if scaling is None else scaling(self.among if scaling.among else self.own)
        return bins(chances, self.right)


def fit_scaling(given: Reliability) -> Scaling | None:
    """The scaling under which the answers are most likely, of either log-odds; None where there are too few to tell."""
    hits, total = int(given.right.sum()), len(given.right)
    if min(hits, total - hits) < _FEWEST or not torch.isfinite(given.own).all():
        return None
    found = max((_platt(given, among) for among in (False, True)), key=lambda one: one.log_likelihood)
    before, after = (calibration_error(given.bins(scaling)) for scaling in (None, found))
    return found._replace(error_before=before, error_after=after)


def _platt(given: Reliability, among: bool) -> Scaling:
    x, right = (given.among if among else given.own).double().clone(), given.right.double()
    hits, total = right.sum(), len(right)
    # Targets a little within 0 and 1, as Platt has them: some scores may tell right from wrong without exception.
    targets = torch.where(right > 0, (hits + 1) / (hits + 2), 1 / (total - hits + 2))
    mean, spread = x.mean().item(), x.std().clamp_min(1e-12).item()
    scaled = (x - mean) / spread

    def loss(at: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(at[0].exp() * scaled + at[1], targets)

    steepness, intercept = _minimum(loss, [0.0, torch.logit(hits / total).item()])
    slope = math.exp(steepness) / spread
    intercept -= slope * mean
    likelihood = -F.binary_cross_entropy_with_logits(slope * x + intercept, right).item()
    return Scaling(slope, intercept, among, total, likelihood, 0.0, 0.0)


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
    return Scaling(slope, 0.0, False, len(true), likelihood, *errors)


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


def stored(calibration: Mapping[str, Scaling | None]) -> dict[str, Any]:
    """What `calibration.json` holds: the split, and a scaling, or null, by what it is the probability of."""
    found = {kind: None if scaling is None else scaling._asdict() for kind, scaling in calibration.items()}
    return {"split": "valid", **found}


def restored(content: Mapping[str, Any]) -> dict[str, Scaling | None]:
    """A calibration from the content of `calibration.json`."""
    kinds = {kind: fields for kind, fields in content.items() if kind != "split"}
    return {kind: None if fields is None else _scaling(fields) for kind, fields in kinds.items()}


def _scaling(fields: Any) -> Scaling:
    try:
        numbers = [float(fields[name]) for name in Scaling._fields]
    except (LookupError, TypeError, ValueError):
        numbers = []
    if not numbers or not all(map(math.isfinite, numbers)) or numbers[0] <= 0:
        expected = f"the numbers {', '.join(Scaling._fields)}, the slope above 0"
        raise InputError(
            f"calibration.json of the run is damaged: expected {expected}, not {fields!r}; remove the file"
        )
    slope, intercept, among, answers, *others = numbers
    return Scaling(slope, intercept, bool(among), int(answers), *others)
