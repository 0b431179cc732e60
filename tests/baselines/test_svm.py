"""The machine learns separable classes, gives probabilities, and chooses by train alone."""

from __future__ import annotations

import numpy as np
import pytest

from compgcn.baselines import svm
from compgcn.baselines.fitted import Fitting
from compgcn.baselines.svm import fit_svm
from compgcn.data.collection import folds
from compgcn.errors import InputError

pytest.importorskip("sklearn")


def clouds(per_class: int, classes: int, apart: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    targets = np.arange(per_class * classes) % classes
    return apart * np.eye(classes)[targets] + rng.normal(size=(len(targets), classes)), targets


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_grow_with_the_distance_of_classes(classes: int) -> None:
    likelihoods = []
    for apart in (1.0, 20.0):
        x, targets = clouds(20, classes, apart)
        found = fit_svm([x], targets, Fitting(classes, 3, 0)).decide(x)
        np.testing.assert_allclose(np.exp(found).sum(1), 1)
        likelihoods.append(found[np.arange(len(targets)), targets].mean())
    assert (found.argmax(1) == targets).all()
    assert likelihoods[0] < likelihoods[1]


@pytest.mark.parametrize("present", [1, 2, 3])
def test_a_class_without_nodes_is_never_chosen(present: int) -> None:
    x, targets = clouds(6, present, 10.0)
    found = fit_svm([x], targets, Fitting(4, 2, 0)).decide(x)
    assert found.shape == (len(x), 4)
    assert np.isfinite(found).all()
    assert (found.argmax(1) == targets).all()


def test_one_example_suffices_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fit_svm([np.ones((1, 2))], np.array([1]), Fitting(2, 5, 0)).decide(np.zeros((3, 2)))
    assert (found.argmax(1) == 1).all()
    monkeypatch.setattr(svm, "_MOST", 5)
    with pytest.raises(InputError, match="at most 5, and here are 6"):
        fit_svm([np.ones((6, 1))], np.arange(6) % 2, Fitting(2, 2, 0))


def test_variant_and_bound_are_the_first_pair_that_is_best_over_folds() -> None:
    from sklearn.svm import SVC

    rng = np.random.default_rng(0)
    targets = rng.permutation(np.arange(40) % 2)
    variants = [targets[:, None] * apart + rng.normal(size=(40, 3)) for apart in (0.5, 1.5, 1.0)]
    variants.append(variants[1])
    parts = folds(targets, 4, 0)

    def right(x: np.ndarray, bound: float) -> int:
        found = 0
        for part in parts:
            rest = np.delete(np.arange(40), part)
            machine = SVC(C=bound, kernel="linear").fit(x[rest], targets[rest])
            found += int((machine.predict(x[part]) == targets[part]).sum())
        return found

    pairs = [(variant, bound) for variant in range(4) for bound in svm._BOUNDS]
    best = max(pairs, key=lambda pair: right(variants[pair[0]], pair[1]))  # the first of equals
    fit = fit_svm(variants, targets, Fitting(2, 4, 0))
    assert (fit.variant, fit.settings["C"]) == best
    alone = fit_svm([variants[fit.variant]], targets, Fitting(2, 4, 0))
    np.testing.assert_array_equal(fit.decide(variants[fit.variant]), alone.decide(variants[fit.variant]))
