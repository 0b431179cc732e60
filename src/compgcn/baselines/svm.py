"""Support vector machines; features, the bound on weights and the scale of scores are chosen within train."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from compgcn.baselines.fitted import Fit, Fitting, Matrix, Scores
from compgcn.data.collection import folds
from compgcn.data.columns import Numbers
from compgcn.errors import InputError

_MOST = 10_000  # nodes whose products with each other are kept
_BOUNDS = tuple(10.0**power for power in range(-3, 4))  # C
_SCALES = np.logspace(-2, 2, 41)  # what a score is multiplied by before it is called a logit

Products = NDArray[np.float64]  # [n, m]
Margins = NDArray[np.float64]  # [n, C], the largest at the class that is chosen


class Choice(NamedTuple):
    """Which variant and which C; how many were right when others were fitted, and the scores from then."""

    variant: int = 0
    bound: float = 1.0
    right: int = -1
    held_out: Margins | None = None


def fit_svm(variants: Sequence[Matrix], targets: Numbers, fitting: Fitting) -> Fit:
    """A linear machine, fitted to features [m, F] in one of several variants and to classes [m].

    Variant and C are the pair with the best accuracy over folds of these, the first variant and the smallest C of
    equals. Its scores become logits by a factor that makes the true classes of the same folds most probable; the
    class that is chosen stays the same.
    """
    if len(targets) > _MOST:
        raise InputError(
            f"an SVM compares every two of the nodes it is fitted to, at most {_MOST:,}, and here are "
            f"{len(targets):,}; use the baseline 'facts', or an encoder"
        )
    choice = _chosen(variants, targets, fitting)
    scale = 1.0 if choice.held_out is None else _scale(choice.held_out, targets)
    x = variants[choice.variant]
    machine = _machine(_products(x, x), targets, choice.bound, fitting)
    return Fit(choice.variant, {"C": choice.bound}, lambda others: _log_softmax(scale * machine(_products(others, x))))


def _chosen(variants: Sequence[Matrix], targets: Numbers, fitting: Fitting) -> Choice:
    """The best of all pairs over the same folds; without folds, the first variant."""
    number, best = min(fitting.folds, len(targets)), Choice()
    parts = folds(targets, number, fitting.seed) if number > 1 else []
    rests = [np.setdiff1d(np.arange(len(targets)), part) for part in parts]
    for variant, x in enumerate(variants if parts else ()):
        kernel = _products(x, x)  # made once: nodes with labels are few
        known = [np.ascontiguousarray(kernel[np.ix_(rest, rest)]) for rest in rests]
        for bound in _BOUNDS:
            found = np.zeros((len(targets), fitting.num_classes))
            for part, rest, products in zip(parts, rests, known, strict=True):
                machine = _machine(products, targets[rest], bound, fitting)
                found[part] = machine(kernel[np.ix_(part, rest)])
            if (right := int((found.argmax(1) == targets).sum())) > best.right:
                best = Choice(variant, bound, right, found)
    return best


def _products(a: Matrix, b: Matrix) -> Products:
    """Of all rows of one with all rows of the other."""
    found = a @ b.T
    return np.ascontiguousarray(found.toarray() if hasattr(found, "toarray") else found)


def _machine(kernel: Products, targets: Numbers, bound: float, fitting: Fitting) -> Callable[[Products], Margins]:
    """From products with what it is fitted to, the scores of all classes; one that is not among these is never best."""
    from sklearn.svm import SVC

    present = np.unique(targets)
    weights = "balanced" if fitting.balanced else None
    machine = SVC(C=bound, kernel="precomputed", class_weight=weights)
    if len(present) > 1:
        machine.fit(kernel, targets)

    def margins(products: Products) -> Margins:
        if len(present) == 1 or not len(products):
            scores = np.zeros((len(products), len(present)))
        else:
            scores = machine.decision_function(products)
            scores = np.stack([-scores, scores], 1) / 2 if scores.ndim == 1 else scores
        table = np.repeat(scores.min(1, keepdims=True) - 1, fitting.num_classes, 1)
        table[:, present] = scores
        return table

    return margins


def _scale(margins: Margins, targets: Numbers) -> float:
    true = np.arange(len(targets)), targets
    return float(max(_SCALES, key=lambda scale: _log_softmax(scale * margins)[true].mean()))


def _log_softmax(logits: NDArray[np.float64]) -> Scores:
    shifted = logits - logits.max(1, keepdims=True)
    found: Scores = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return found
