"""Protocols: from a task to the metrics of a run. What is trained on what, how the number of epochs is found, and which
figures may be called those of a test.

A protocol that trains several times does so part by part; a run that was killed goes on in the part it was in.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from compgcn.baselines.facts import fact_counts, logistic_regression
from compgcn.baselines.fitted import Fitted
from compgcn.baselines.popularity import Popularity
from compgcn.config import Config, Training, changes
from compgcn.data.collection import folds as dealt
from compgcn.data.labels import deal
from compgcn.errors import InputError
from compgcn.tasks.classification import Classification, Items, Tally, macro_f1, report, tallied, tally
from compgcn.tasks.link_prediction import LinkPrediction
from compgcn.tasks.ranking import rank_triples, summary
from compgcn.tasks.sampling import randomness
from compgcn.train.folder import Folder
from compgcn.train.loop import Event, Interrupted, optimise
from compgcn.train.storage import replace

Metrics = dict[str, Any]


@dataclass
class Session:
    """A run under way: all that a protocol works with.

    Args:
        config: its settings, filled in.
        built: what is trained: a task, or the items of a classification.
        build: makes another from a config, with fresh weights.
        splits: which items are for what, by split; nothing for link prediction.
        targets: the class of each item [n].
        classes: their names.
        folder: where the run is kept.
        device: where it runs.
        record: takes every event.
        interrupted: whether to stop.
        candidates: the configs to choose among; the one of the run where there is nothing to choose.
    """

    config: Config
    built: Any
    build: Callable[[Config], Any]
    splits: Mapping[str, Tensor]
    targets: Tensor
    classes: Sequence[str]
    folder: Folder
    device: torch.device
    record: Callable[[Event], None]
    interrupted: Callable[[], bool]
    candidates: Sequence[Config] = ()
    seconds: float = field(default=0.0)  # of training, over all parts

    @property
    def training(self) -> Training:
        return self.config.training

    def pause(self) -> None:
        """Between two pieces of work: stop here if that was asked for."""
        if self.interrupted():
            raise Interrupted

    def told(self, what: str) -> Callable[[int, int], None]:
        """Who is told how far a long piece of work is, done and of how many, and stops it if that was asked for."""

        def notify(done: int, total: int) -> None:
            self.record({"event": "progress", "what": what, "done": done, "total": total})
            self.pause()

        return notify


def ranking(session: Session) -> Metrics:
    """Link prediction: train on train, keep the epoch that ranks valid best, then rank test."""
    task: LinkPrediction = session.built
    progress = optimise(task, session.training, session.folder, session.record, session.interrupted)
    session.seconds = progress.seconds
    session.folder.restore(task.model)
    session.record({"event": "evaluate", "seconds": round(progress.seconds, 3)})
    popularity = Popularity(task.train, task.num_entities)
    metrics: Metrics = {}
    for split in ("valid", "test"):
        session.pause()
        metrics[split] = summary(task.ranks(split, notify=session.told(f"evaluating {split}")))
    metrics["best_epoch"], metrics["ties"] = progress.best_epoch, "realistic"
    told = session.told("evaluating the popularity baseline")
    baseline = rank_triples(popularity.score, task.splits["test"], task.known, task.num_entities, notify=told)
    metrics["popularity"] = {"test": summary(baseline)}
    return metrics


def holdout(session: Session) -> Metrics:
    """Train on train, keep the epoch that is best on valid, drawn from train where there is none; then look at test."""
    items: Items = session.built
    train, valid = validation(session)
    goal = session.config.classifier.choose_by or "log_likelihood"
    task = Classification(items, train, valid, session.training, goal, session.config.classifier.class_weights)
    progress = optimise(task, session.training, session.folder, session.record, session.interrupted)
    session.seconds = progress.seconds
    session.folder.restore(items.model)
    chosen = {"valid": valid, "test": session.splits["test"]}
    found = {split: report(task.tally(rows), session.classes) if len(rows) else {} for split, rows in chosen.items()}
    return _metrics(session, progress.best_epoch) | found | _counted(session, train)


def validation(session: Session) -> tuple[Tensor, Tensor]:
    """What `holdout` trains on, and what it chooses by."""
    train, valid = session.splits["train"], session.splits["valid"]
    settings = session.config.data
    if len(valid) or not settings.valid_fraction:
        return train, valid
    rows = torch.stack((train, session.targets[train]), 1).cpu().numpy()
    parts = deal(rows, np.random.default_rng(settings.split_seed), settings.valid_fraction, 0.0)
    train, valid = (torch.from_numpy(np.sort(part[:, 0])).to(train.device) for part in parts[:2])
    return train, valid


def refit(session: Session) -> Metrics:
    """Find the number of epochs by cross-validation within train and valid, train on all of these, then look at test.

    For few labels: a validation split of a few dozen items is too small to choose by.
    """
    parts = Parts(session)
    pool = _chosen_from(session)
    curves = parts.cross_validation("fold", pool, session.config.classifier.folds)
    best, epoch = _best(curves, session.config.classifier.choose_by or "log_likelihood", session.training)
    task = parts.final(pool, epoch)
    test = session.splits["test"]
    return _metrics(session, epoch) | {
        "valid": _over_folds([curve[best] for curve in curves], session.classes),
        "test": report(task.tally(test), session.classes) if len(test) else {},
        **_counted(session, pool),
    }


def _chosen_from(session: Session) -> Tensor:
    """All that may be trained on and chosen by: train and valid."""
    return torch.cat((session.splits["train"], session.splits["valid"])).sort().values


def _counted(session: Session, train: Tensor) -> Metrics:
    """What counting facts would know of test, to stand beside."""
    items, test = session.built, session.splits["test"]
    if not len(test):
        return {}
    session.pause()
    hops = min(max(len(items.model.encoder.layers), 1), 2)
    counts = fact_counts(items.graph, items.rows, items.nodes, hops)
    classes, targets = len(session.classes), session.targets.cpu()
    found = logistic_regression(counts, targets, train.cpu(), classes, session.training.seed)
    return {"facts": {"test": report(tallied(found[test.cpu()], targets[test.cpu()]), session.classes)}}


def paper(session: Session) -> Metrics:
    """k-fold cross-validation as the paper has it: one epoch for all folds, that of the best mean validation accuracy.

    The folds that choose the epoch are those reported, so this is a validation figure, and there is none for test.
    """
    parts = Parts(session)
    pool = torch.cat(list(session.splits.values())).sort().values
    curves = parts.cross_validation("fold", pool, session.config.classifier.folds)
    best, epoch = _best(curves, session.config.classifier.choose_by or "accuracy", session.training)
    parts.final(pool, epoch)
    found = [curve[best] for curve in curves]
    return _metrics(session, epoch) | {"valid": _over_folds(found, session.classes), "test": {}}


def nested(session: Session) -> Metrics:
    """k-fold cross-validation in which a fold is looked at once, after everything was chosen without it.

    Within the other folds the number of epochs, and among candidates the settings, are found by a cross-validation of
    their own; then a model is trained on all of them. The model that is kept is trained on everything, with the
    candidate that was chosen most often, for the median of its numbers of epochs.
    """
    parts, settings = Parts(session), session.config.classifier
    pool = torch.cat(list(session.splits.values())).sort().values
    found, chosen = [], []
    for number, fold in enumerate(_folds(session, pool, settings.folds), 1):
        rest, name = _without(pool, fold), f"fold {number} of {settings.folds}"
        candidate, epoch = _choose(parts, session, name, rest)
        found.append(parts.train(name, rest, fold, epoch, epoch, session.candidates[candidate])[-1])
        chosen.append((candidate, epoch))
    candidates = [candidate for candidate, _ in chosen]
    kept = max(sorted(set(candidates)), key=candidates.count)
    middle = int(np.median([epoch for candidate, epoch in chosen if candidate == kept]))
    parts.final(pool, middle, session.candidates[kept])
    report = _over_folds(found, session.classes, [epoch for _, epoch in chosen])
    metrics = _metrics(session, middle) | {"valid": {}, "test": report}
    if settings.candidates:
        for row, candidate in zip(report["folds"], candidates, strict=True):
            row["candidate"] = settings.candidates[candidate]
        metrics |= {"candidate": settings.candidates[kept]}
        metrics |= {"settings": changes(session.config, session.candidates[kept])}
    return metrics


def _choose(parts: Parts, session: Session, name: str, rest: Tensor) -> tuple[int, int]:
    """Which candidate, after how many epochs, has the best mean over the inner folds; the first of equals."""
    settings = session.config.classifier
    goal = settings.choose_by or "log_likelihood"
    found = []
    for number, config in enumerate(session.candidates):
        label = f"{name}, candidate {number + 1}, inner" if len(session.candidates) > 1 else f"{name}, inner"
        curves = parts.cross_validation(label, rest, settings.inner_folds, config)
        best, epoch = _best(curves, goal, config.training)
        found.append((np.mean([getattr(curve[best], goal) for curve in curves]), number, epoch))
    _, number, epoch = max(found, key=lambda one: one[0])
    return number, epoch


def fitted(session: Session) -> Metrics:
    """A baseline that is fitted once and chooses its own settings within what it is fitted to; there are no epochs.

    As in `holdout` it is fitted to train, and valid is looked at besides test; as in `refit` it is fitted to train and
    valid, and a cross-validation within these says what to expect.
    """
    items: Fitted = session.built
    begun = time.monotonic()

    def held_out(train: Tensor, others: Tensor) -> Tally:
        session.pause()
        return tallied(items.fitted_to(train, others), session.targets[others])

    if session.config.classifier.protocol == "holdout":
        pool, valid = validation(session)
        found = report(held_out(pool, valid), session.classes) if len(valid) else {}
    else:
        pool = _chosen_from(session)
        folds = _folds(session, pool, session.config.classifier.folds)
        found = _over_folds([held_out(_without(pool, fold), fold) for fold in folds], session.classes)
    session.pause()
    chosen = items.keep(pool)
    session.folder.keep_best(items.model)
    session.seconds = time.monotonic() - begun
    session.record({"event": "evaluate", "seconds": round(session.seconds, 3)})
    test = session.splits["test"]
    known = report(tally(session.built, test, session.training.batch_size), session.classes) if len(test) else {}
    return _metrics(session, 0) | {"chosen": chosen, "valid": found, "test": known}


def _metrics(session: Session, epoch: int) -> Metrics:
    """What the metrics of a classification begin with."""
    protocol = session.config.classifier.protocol
    return {"valid": {}, "test": {}, "best_epoch": epoch, "protocol": protocol, "classes": list(session.classes)}


def _best(curves: Sequence[Sequence[Tally]], goal: str, settings: Training) -> tuple[int, int]:
    """Which evaluation has the best mean over the folds, the first of equals; and after how many epochs that was."""
    values = np.array([[getattr(found, goal) for found in curve] for curve in curves])  # [k, evaluations]
    best = int(values.mean(0).argmax())
    return best, min((best + 1) * settings.evaluate_every, settings.epochs)


def _over_folds(found: Sequence[Tally], classes: Sequence[str], epochs: Sequence[int] | None = None) -> Metrics:
    """The report on all folds together, the mean and the standard deviation (over folds) of the accuracy, and each."""
    together = Tally(
        float(np.mean([one.log_likelihood for one in found])), torch.stack([one.confusion for one in found]).sum(0)
    )
    accuracies = [one.accuracy for one in found]
    rows = [
        {"accuracy": one.accuracy, "macro_f1": macro_f1(one), "log_likelihood": one.log_likelihood} for one in found
    ]
    if epochs is not None:
        rows = [{**row, "epochs": epoch} for row, epoch in zip(rows, epochs, strict=True)]
    mean, deviation = float(np.mean(accuracies)), float(np.std(accuracies))
    return report(together, classes) | {"accuracy": mean, "accuracy_sd": deviation, "folds": rows}


def _folds(session: Session, pool: Tensor, number: int) -> list[Tensor]:
    """The items dealt over folds, stratified by class."""
    places = dealt(session.targets[pool].cpu().numpy(), number, session.training.seed)
    return [pool[torch.from_numpy(place).to(pool.device)] for place in places]


def _without(pool: Tensor, part: Tensor) -> Tensor:
    return pool[~torch.isin(pool, part)]


class Parts:
    """The trainings a protocol is made of, one after another; what is finished is kept in the checkpoint."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._path = session.folder.path / "checkpoint" / "parts.json"
        self._finished: dict[str, list[list[float]]] = {}
        if self._path.is_file():
            try:
                kept = json.loads(self._path.read_text(encoding="utf-8"))
                self._finished, session.seconds = kept["parts"], kept["seconds"]
            except (OSError, ValueError, LookupError, TypeError) as error:
                raise session.folder.damaged(error) from None

    def cross_validation(self, name: str, pool: Tensor, number: int, config: Config | None = None) -> list[list[Tally]]:
        """For each fold, how a model trained on the others does on it after every evaluation."""
        config = config or self._session.config
        epochs, every = config.training.epochs, config.training.evaluate_every
        return [
            self.train(f"{name} {i} of {number}", _without(pool, fold), fold, epochs, every, config)
            for i, fold in enumerate(_folds(self._session, pool, number), 1)
        ]

    def train(self, name: str, train: Tensor, valid: Tensor, epochs: int, every: int, config: Config) -> list[Tally]:
        """Train on some items for so many epochs, and look at others every so many."""
        if name not in self._finished:
            with randomness(self._session.training.seed, self._session.device):
                task, seconds = self._train(name, train, valid, epochs, every, config, keep=False)
            self._session.seconds += seconds
            self._finished[name] = [_flat(one) for one in task.tallies]
            kept = json.dumps({"parts": self._finished, "seconds": self._session.seconds})
            replace(self._path, lambda part: part.write_text(kept, encoding="utf-8"))
        return [_tally(row) for row in self._finished[name]]

    def final(self, train: Tensor, epochs: int, config: Config | None = None) -> Classification:
        """The model that is kept, trained on all these items."""
        config = config or self._session.config
        with randomness(self._session.training.seed, self._session.device):
            task, seconds = self._train("final", train, train[:0], epochs, epochs, config, keep=True)
        self._session.seconds += seconds
        self._session.folder.restore(task.items.model)
        self._session.record({"event": "evaluate", "seconds": round(self._session.seconds, 3)})
        return task

    def _train(
        self, name: str, train: Tensor, valid: Tensor, epochs: int, every: int, config: Config, *, keep: bool
    ) -> tuple[Classification, float]:
        session = self._session
        session.pause()
        items: Items = session.build(config)
        settings = config.training.model_copy(
            update={"epochs": epochs, "evaluate_every": every, "patience": epochs + 1}  # all of them, come what may
        )
        if not items.together:  # batches differ in shape, and nothing that is recorded could be replayed
            settings = settings.model_copy(update={"cuda_graph": False, "compile": False})
        goal = config.classifier.choose_by or "log_likelihood"
        task = Classification(items, train, valid, settings, goal, config.classifier.class_weights)
        store = _PartStore(session, task, name, keep)
        progress = optimise(
            task, settings, store, lambda event: session.record({**event, "part": name}), session.interrupted
        )
        return task, progress.seconds


class _PartStore:
    """The store of one part: its checkpoint has the evaluations so far too, and its weights are kept if it is the last.

    What is trained in seconds is not saved at every gain, but every `checkpoint_seconds` and when asked to stop.
    """

    def __init__(
        self,
        session: Session,
        task: Classification,
        name: str,
        keep: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session, self._task, self._key, self._keep = session, task, f"evaluations.{name}", keep
        self._clock, self._saved = clock, clock()

    def load(self) -> tuple[dict[str, Tensor], str] | None:
        """The checkpoint, if it is one of this part."""
        found = self._session.folder.load()
        if found is None or self._key not in found[0]:
            return None
        self._task.tallies = [_tally(row) for row in found[0].pop(self._key).tolist()]
        return found

    def damaged(self, reason: Exception) -> InputError:
        return self._session.folder.damaged(reason)

    def save(self, tensors: dict[str, Tensor], note: str) -> None:
        waited = self._clock() - self._saved
        if waited >= self._session.training.checkpoint_seconds or self._session.interrupted():
            rows = [_flat(one) for one in self._task.tallies]
            size = 1 + self._task.items.model.head.out_features**2
            table = torch.tensor(rows, dtype=torch.float64).reshape(-1, size)
            self._session.folder.save({**tensors, self._key: table}, note)
            self._saved = self._clock()

    def keep_best(self, module: nn.Module) -> None:
        if self._keep:
            self._session.folder.keep_best(module)


def _flat(one: Tally) -> list[float]:
    return [one.log_likelihood, *map(float, one.confusion.flatten().tolist())]


def _tally(row: Sequence[float]) -> Tally:
    cells = torch.tensor(row[1:], dtype=torch.float64).round().long()
    size = round(len(cells) ** 0.5)
    return Tally(row[0], cells.view(size, size))
