"""Linear support vector machine; cross-validation within train chooses features, C and the scale of scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from compgcn.baselines.fitted import Fit, Fitting, Matrix
from compgcn.data.collection import folds
from compgcn.data.columns import Numbers
from compgcn.errors import InputError

_MOST = 10_000  # nodes whose products with each other fit in memory
_BOUNDS = tuple(10.0**power for power in range(-3, 4))  # C
_SCALES = np.logspace(-2, 2, 41)  # factors that turn a margin into a logit

Products = NDArray[np.float64]  # [n, m]
Margins = NDArray[np.float64]  # [n, C], the largest at the predicted class


def fit_svm(variants: Sequence[Matrix], targets: Numbers, fitting: Fitting) -> Fit:
    """Fit to features [m, F] in one of several variants and to classes [m].

    Variant and C are the first pair with the best accuracy over folds. Margins become logits by the factor that makes
    the true classes of the same folds most probable.
    """
    from scipy.special import log_softmax

    if len(targets) > _MOST:
        raise InputError(
            f"an SVM compares every two of the nodes it is fitted to, at most {_MOST:,}, and here are "
            f"{len(targets):,}; use the baseline 'facts', or an encoder"
        )
    variant, bound, scale, most = 0, 1.0, 1.0, -1
    number, true = min(fitting.folds, len(targets)), (np.arange(len(targets)), targets)
    parts = folds(targets, number, fitting.seed) if number > 1 else []
    for place, x in enumerate(variants if parts else ()):
        for strength, margins in _held_out(_products(x, x), targets, parts, fitting):
            right = int((margins.argmax(1) == targets).sum())
            if right > most:
                variant, bound, most, best = place, strength, right, margins
    if parts:
        scale = float(max(_SCALES, key=lambda scale: log_softmax(scale * best, axis=1)[true].mean()))
    x = variants[variant]
    machine = _machine(_products(x, x), targets, bound, fitting)
    return Fit(variant, {"C": bound}, lambda others: log_softmax(scale * machine(_products(others, x)), axis=1))


def _held_out(
    kernel: Products, targets: Numbers, parts: Sequence[Numbers], fitting: Fitting
) -> Iterator[tuple[float, Margins]]:
    """Yield each C with the margins of every fold by a machine fitted to the others."""
    rests = [np.setdiff1d(np.arange(len(targets)), part) for part in parts]
    known = [np.ascontiguousarray(kernel[np.ix_(rest, rest)]) for rest in rests]
    for bound in _BOUNDS:
        found = np.zeros((len(targets), fitting.num_classes))
        for part, rest, products in zip(parts, rests, known, strict=True):
            found[part] = _machine(products, targets[rest], bound, fitting)(kernel[np.ix_(part, rest)])
        yield bound, found


def _products(a: Matrix, b: Matrix) -> Products:
    """Return the products of all rows of one matrix with all rows of another."""
    found = a @ b.T
    return np.ascontiguousarray(found.toarray() if hasattr(found, "toarray") else found)


def _machine(kernel: Products, targets: Numbers, bound: float, fitting: Fitting) -> Callable[[Products], Margins]:
    """Return a function from products with the fitted nodes to margins; a class without nodes is never the best."""
    from sklearn.svm import SVC

    present = np.unique(targets)
    machine = SVC(C=bound, kernel="precomputed")
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
