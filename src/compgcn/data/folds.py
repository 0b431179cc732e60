"""Folds for cross-validation, the classes spread evenly over them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from compgcn.data.arrays import counted
from compgcn.errors import InputError

Numbers = NDArray[np.int64]


def folds(targets: Sequence[int] | Numbers, k: int, seed: int = 0) -> list[Numbers]:
    """Deal examples over k folds: every example in one, and the members of each class as even as whole numbers allow.

    The examples are laid out class by class, shuffled within each, and dealt like cards; so the folds themselves
    differ by at most one in size too.

    Args:
        targets: [n], the class of each example.
        k: how many folds, 2 to n.
        seed: equal seeds give equal folds.
    """
    classes = np.asarray(targets)
    n = len(classes)
    if not 2 <= k <= n:
        raise InputError(
            f"{counted(n, 'example')} cannot be dealt over {k} folds; give a number from 2 to the number of examples"
        )
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(n), classes))  # by class, within a class by chance
    fold = np.empty(n, dtype=np.int64)
    fold[order] = rng.permutation(k)[np.arange(n) % k]  # which folds get one more is a matter of chance too
    return [np.flatnonzero(fold == i) for i in range(k)]
