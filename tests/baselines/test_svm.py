"""The machine: it learns what can be learned, its probabilities are some, and what it says depends on train alone."""

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
def test_what_is_apart_is_told_apart_with_probabilities_that_grow_with_the_distance(classes: int) -> None:
    x, targets = clouds(20, classes, 20.0)
    far = fit_svm([x], targets, Fitting(classes, 3, False, 0)).decide(x)
    assert (far.argmax(1) == targets).all()
    np.testing.assert_allclose(np.exp(far).sum(1), 1)
    x, targets = clouds(20, classes, 1.0)
    near = fit_svm([x], targets, Fitting(classes, 3, False, 0)).decide(x)
    true = np.arange(len(targets)), targets
    assert far[true].mean() > near[true].mean()


@pytest.mark.parametrize("present", [1, 2, 3])
def test_a_class_that_was_never_seen_is_never_chosen(present: int) -> None:
    x, targets = clouds(6, present, 10.0)
    found = fit_svm([x], targets, Fitting(4, 2, False, 0)).decide(x)
    assert found.shape == (len(x), 4)
    assert np.isfinite(found).all()
    assert (found.argmax(1) == targets).all()


def test_one_example_is_enough_to_say_something() -> None:
    found = fit_svm([np.ones((1, 2))], np.array([1]), Fitting(2, 5, False, 0)).decide(np.zeros((3, 2)))
    assert (found.argmax(1) == 1).all()


def test_more_nodes_than_can_be_compared_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svm, "_MOST", 5)
    with pytest.raises(InputError, match="at most 5, and here are 6"):
        fit_svm([np.ones((6, 1))], np.arange(6) % 2, Fitting(2, 2, False, 0))


def test_with_balanced_classes_a_rare_one_counts_as_much() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 1, (90, 1)), rng.normal(1.5, 1, (10, 1))])
    targets = np.repeat([0, 1], [90, 10])
    plain, weighed = (fit_svm([x], targets, Fitting(2, 5, balanced, 0)).decide(x) for balanced in (False, True))
    assert (weighed.argmax(1) == 1).sum() > (plain.argmax(1) == 1).sum()


@pytest.mark.parametrize("seed", range(4))
def test_variant_and_bound_are_the_first_of_the_pairs_that_are_best_over_folds_of_what_it_is_fitted_to(
    seed: int,
) -> None:
    from sklearn.svm import SVC

    rng = np.random.default_rng(seed)
    targets = rng.permutation(np.arange(40) % 2)
    variants = [targets[:, None] * apart + rng.normal(size=(40, 3)) for apart in (0.5, 1.5, 1.0, 1.5)]
    parts = folds(targets, 4, seed)

    def right(x: np.ndarray, bound: float) -> int:
        found = 0
        for part in parts:
            rest = np.delete(np.arange(40), part)
            machine = SVC(C=bound, kernel="linear").fit(x[rest], targets[rest])
            found += int((machine.predict(x[part]) == targets[part]).sum())
        return found

    pairs = [(variant, bound) for variant in range(4) for bound in svm._BOUNDS]
    best = max(pairs, key=lambda pair: right(variants[pair[0]], pair[1]))  # the first of equals
    fit = fit_svm(variants, targets, Fitting(2, 4, False, seed))
    assert (fit.variant, fit.settings["C"]) == best
    alone = fit_svm([variants[fit.variant]], targets, Fitting(2, 4, False, seed))
    np.testing.assert_array_equal(fit.decide(variants[fit.variant]), alone.decide(variants[fit.variant]))


def test_of_variants_that_do_as_well_the_first_is_chosen() -> None:
    x, targets = clouds(10, 2, 10.0)
    noise = np.random.default_rng(1).normal(size=x.shape)
    fit = fit_svm([noise, x, 2 * x, x], targets, Fitting(2, 5, False, 0))
    assert fit.variant == 1
