"""Whether the labels there are suffice for a classification as it is asked for, said before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compgcn.baselines import FitOnce, find_baseline
from compgcn.config import Config
from compgcn.data.arrays import Numbers, counted
from compgcn.data.labels import deal
from compgcn.errors import InputError

_NAMED = 3  # classes quoted in a note

Items = tuple[Mapping[str, Numbers], Numbers, Sequence[str]]  # as `TaskRow.items` gives them


def must_suffice(config: Config, candidates: Sequence[Config], items: Items) -> None:
    """Refuse a protocol that would stop half-way: too few items for its folds, no epoch to choose, a single class.

    Args:
        config: of the run, filled in.
        candidates: the configs it chooses among.
        items: which are for what, the class of each, and the names of the classes; nothing for link prediction.
    """
    protocol = config.classifier.protocol
    if protocol is None:
        return
    splits, targets, classes = items
    pool = splits["train"] if protocol == "holdout" else _pool(splits)
    if not len(pool):
        raise InputError("there is no labelled item to train on; mark some with the split 'train'")
    present = np.unique(targets[pool])
    if len(present) == 1:
        raise InputError(
            f"there is one class to train on, '{classes[present[0]]}', and nothing to tell apart; give labels of two"
        )
    once = _fitted_once(config)  # no epochs to choose
    if protocol == "holdout":
        if not once:
            _must_validate(config, splits, targets)
        return
    if not once and not all(one.training.epochs for one in candidates):
        raise InputError("training.epochs is 0, and this protocol chooses the number of epochs; allow at least one")
    k, n = config.classifier.folds, len(pool)
    _must_deal(n, k, "classifier.folds", "")
    if protocol == "nested":
        _must_deal(n - -(-n // k), config.classifier.inner_folds, "classifier.inner_folds", " left in a training part")


def remarks(config: Config, items: Items) -> list[str]:
    """What someone who trains on these labels should know; none of it changes anything."""
    splits, targets, classes = items
    protocol, pool = config.classifier.protocol, _pool(splits)
    if protocol is None or not len(pool):
        return []
    notes = []
    unchosen = protocol == "holdout" and not len(splits["valid"]) and not config.data.valid_fraction
    if unchosen and not _fitted_once(config):
        notes.append("there are no validation labels, so nothing chooses the epoch: the last one is kept")
    counts = np.bincount(targets[pool], minlength=len(classes))
    if unseen := [name for name, count in zip(classes, counts, strict=True) if not count]:
        what = f"{counted(len(unseen), 'class')} without a training label to learn it from"
        notes.append(f"{what}: {_quoted(unseen)}")
    folds = config.classifier.folds
    rare = [name for name, count in zip(classes, counts, strict=True) if 0 < count < folds]
    if rare and protocol != "holdout":
        what = f"{counted(len(rare), 'class')} with fewer training labels than the {folds} folds"
        notes.append(f"{what}, missing from some of them: {_quoted(rare)}")
    return notes


def _pool(splits: Mapping[str, Numbers]) -> Numbers:
    """All that may be trained on and chosen by."""
    parts = [rows for split, rows in splits.items() if split != "test"]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _fitted_once(config: Config) -> bool:
    baseline = find_baseline(config.classifier.baseline, config.task or "")
    return baseline is not None and isinstance(baseline.how, FitOnce)


def _must_deal(n: int, k: int, setting: str, which: str) -> None:
    if k > n:
        advice = f"set {setting} to {'2' if n == 2 else f'a number from 2 to {n}'}" if n > 1 else "give more labels"
        raise InputError(f"{counted(n, 'example')}{which} cannot be dealt over {k} folds; {advice}")


def _must_validate(config: Config, splits: Mapping[str, Numbers], targets: Numbers) -> None:
    """Where validation labels are to be drawn, there must be one to draw."""
    train, settings = splits["train"], config.data
    if len(splits["valid"]) or not settings.valid_fraction:
        return
    rows = np.column_stack((train, targets[train]))
    if not len(deal(rows, np.random.default_rng(settings.split_seed), settings.valid_fraction, 0.0)[1]):
        raise InputError(
            f"no validation label can be drawn from {counted(len(train), 'training label')}, so nothing would choose "
            f"the epoch; take --protocol refit, raise data.valid_fraction = {settings.valid_fraction}, or set it to 0"
        )


def _quoted(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:_NAMED]) + more
