"""Folds are a partition, even over the classes, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.data.collection import folds
from compgcn.errors import InputError

cases = st.lists(st.integers(0, 4), min_size=2, max_size=80).flatmap(
    lambda targets: st.tuples(st.just(targets), st.integers(2, len(targets)), st.integers(0, 99))
)


@given(cases)
def test_every_example_is_in_one_fold_and_folds_differ_by_at_most_one(case: tuple[list[int], int, int]) -> None:
    targets, k, seed = case
    parts = folds(targets, k, seed)
    assert len(parts) == k
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(targets)))
    assert np.ptp([len(part) for part in parts]) <= 1
    counts = np.array([np.bincount(np.array(targets)[part], minlength=5) for part in parts])
    assert (np.ptp(counts, axis=0) <= 1).all()


@pytest.mark.parametrize("k", [-1, 0, 1, 4])
def test_a_number_of_folds_that_cannot_be_is_refused(k: int) -> None:
    with pytest.raises(InputError, match=f"3 examples cannot be dealt over {k} folds"):
        folds([0, 1, 1], k, 0)
