"""Protocols: from a task to the metrics of a run. A protocol decides what is trained on what, how the number of epochs
is chosen, and which figures may be called those of a test.

A protocol that trains several times does so part by part; a killed run resumes in the part it was in.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from compgcn import processes
from compgcn.config import Config, Training, changes, write_setting
from compgcn.data import KnowledgeGraph
from compgcn.data.collection import folds as dealt
from compgcn.data.columns import Numbers
from compgcn.run.build import build_items, build_links, labelled_items
from compgcn.run.resolve import candidates
from compgcn.tasks.classification import Classification, Graphs, Nodes, Tally, macro_f1, report, tallied, tally
from compgcn.tasks.inputs import Dataset
from compgcn.tasks.link_prediction import sample
from compgcn.tasks.ranking import summary
from compgcn.tasks.sampling import randomness
from compgcn.train.folder import Folder
from compgcn.train.loop import Event, Interrupted, make_step, optimise
from compgcn.train.storage import replace

if TYPE_CHECKING:  # loaded where a config names a baseline
    from compgcn.baselines.fitted import Fitted

Metrics = dict[str, Any]


@dataclass
class Session:
    """A run under way."""

    config: Config  # its resolved settings
    data: Dataset
    folder: Folder  # of the run
    device: torch.device  # of its model
    record: Callable[[Event], None]  # takes every event
    interrupted: Callable[[], bool]  # whether to stop
    seconds: float = field(default=0.0, init=False)  # of training, over all parts

    @property
    def training(self) -> Training:
        return self.config.training

    def pause(self) -> None:
        """Stop between two pieces of work, if the caller asked for it."""
        if self.interrupted():
            raise Interrupted

    def told(self, what: str) -> Callable[[int, int], None]:
        """Return a function that reports the part done and the total of a long piece of work, and may stop it."""

        def notify(done: int, total: int) -> None:
            self.record({"event": "progress", "what": what, "done": done, "total": total})
            self.pause()

        return notify


@dataclass
class LinkSession(Session):
    data: KnowledgeGraph

    def __post_init__(self) -> None:
        self.task = build_links(self.config, self.data, self.device)  # with fresh weights


@dataclass
class ClassSession(Session):
    def __post_init__(self) -> None:
        self._labelled = labelled_items(self.data)
        self.classes = self._labelled.classes
        self.items = self.build(self.config)
        self.splits = {split: self._tensor(rows) for split, rows in self._labelled.splits.items()}
        self.targets = self._tensor(self._labelled.targets)  # the class of each item [n]
        self.candidates = candidates(self.config, self.data)  # to choose among, or the config of the run alone

    def build(self, config: Config) -> Nodes | Graphs | Fitted:
        """Make the items to classify, with fresh weights."""
        return build_items(config, self.data, self.device)

    def _tensor(self, rows: Numbers) -> Tensor:
        return torch.from_numpy(rows).to(self.device)

    def validation(self) -> tuple[Tensor, Tensor]:
        """Return the items that `holdout` trains on, and those it chooses by, drawn from train if there are none."""
        train, valid = map(self._tensor, self._labelled.validation(self.config.data))
        return train, valid

    def pool(self) -> Tensor:
        """Return all items that may be trained on and chosen by."""
        return self._tensor(self._labelled.pool)

    def folds(self, pool: Tensor, number: int, again: int = 0) -> list[Tensor]:
        """Deal items over folds, stratified by class; each time that `again` counts, over others."""
        places = dealt(self.targets[pool].cpu().numpy(), number, self.training.seed + again)
        return [pool[self._tensor(place)] for place in places]

    def metrics(self, epoch: int, valid: Metrics, test: Metrics) -> Metrics:
        protocol, classes = self.config.classifier.protocol, list(self.classes)
        return {"valid": valid, "test": test, "best_epoch": epoch, "protocol": protocol, "classes": classes}

    def report(self, task: Classification, rows: Tensor) -> Metrics:
        """Return the report on some items; {} on none."""
        return report(task.tally(rows), self.classes) if len(rows) else {}


def ranking(session: LinkSession) -> Metrics:
    """Link prediction: train on train, keep the epoch that ranks valid best, then rank test."""
    task, make = session.task, make_step
    if processes.size() > 1:
        from compgcn.shards.step import sharded_step

        make = sharded_step
    progress = optimise(task, session.training, session.folder, session.record, session.interrupted, make=make)
    session.seconds = progress.seconds
    session.folder.restore(task.model)
    session.record({"event": "evaluate", "seconds": round(progress.seconds, 3)})
    metrics: Metrics = {}
    ranked = {split: sample(task.splits[split], session.training.test_sample) for split in ("valid", "test")}
    for split, triples in ranked.items():
        session.pause()
        metrics[split] = summary(task.rank(triples, notify=session.told(f"evaluating {split}")))
    metrics["best_epoch"], metrics["ties"] = progress.best_epoch, "realistic"
    if any(len(triples) < len(task.splits[split]) for split, triples in ranked.items()):
        metrics["ranked"] = {split: len(triples) for split, triples in ranked.items()}
    baseline = task.popular(ranked["test"], session.told("evaluating the popularity baseline"))
    metrics["popularity"] = {"test": summary(baseline)}
    return metrics


def holdout(session: ClassSession) -> Metrics:
    """Train on train, keep the epoch that is best on valid, drawn from train if there is none; then look at test."""
    train, valid = session.validation()
    task = Classification(session.items, train, valid, session.training)
    progress = optimise(task, session.training, session.folder, session.record, session.interrupted)
    session.seconds = progress.seconds
    session.folder.restore(session.items.model)
    reports = (session.report(task, rows) for rows in (valid, session.splits["test"]))
    return session.metrics(progress.best_epoch, *reports) | _fact_counts(session, train)


def refit(session: ClassSession) -> Metrics:
    """Choose the number of epochs by cross-validation within train and valid, train on all of it, then look at test.

    For few labels: a validation split of a few dozen items is too small to choose by.
    """
    parts, pool = Parts(session), session.pool()
    curves = parts.cross_validation("fold", pool, session.config.classifier.folds)
    best, epoch = _best(curves, "log_likelihood", session.training)
    task = parts.final(pool, epoch)
    valid = _over_folds([curve[best] for curve in curves], session.classes)
    return session.metrics(epoch, valid, session.report(task, session.splits["test"])) | _fact_counts(session, pool)


def _fact_counts(session: ClassSession, train: Tensor) -> Metrics:
    """Return the metrics of test of a control without vectors: logistic regression on counts of facts."""
    items, test = session.items, session.splits["test"]
    if not len(test) or not isinstance(items, Nodes):
        return {}
    from compgcn.baselines.facts import fact_counts, logistic_regression

    session.pause()
    hops = min(max(len(items.model.encoder.layers), 1), 2)
    kinds = items.rows if items.rows is not None and items.rows.any() else None  # one row for all tells no kinds
    counts = fact_counts(items.graph, kinds, items.nodes, hops)
    classes, targets = len(session.classes), session.targets.cpu()
    found = logistic_regression(counts, targets, train.cpu(), classes, session.training.seed)
    return {"facts": {"test": report(tallied(found[test.cpu()], targets[test.cpu()]), session.classes)}}


def paper(session: ClassSession) -> Metrics:
    """k-fold cross-validation of the paper: one epoch for all folds, that of the best mean validation accuracy.

    The folds that choose the epoch are those reported, so this is a validation figure, and there is none for test.
    Beside it stands the mean over the folds of the best epoch of each, which is higher for any noise in the curves.
    """
    parts, pool = Parts(session), session.pool()
    curves = parts.cross_validation("fold", pool, session.config.classifier.folds)
    best, epoch = _best(curves, "accuracy", session.training)
    parts.final(pool, epoch)
    valid = _over_folds([curve[best] for curve in curves], session.classes)
    valid["accuracy_each_fold"] = float(np.mean([max(one.accuracy for one in curve) for curve in curves]))
    return session.metrics(epoch, valid, {})


def nested(session: ClassSession) -> Metrics:
    """k-fold cross-validation in which a fold is looked at once, after everything was chosen without it.

    A cross-validation within the other folds chooses the number of epochs and, among candidates, the settings; then a
    model is trained on all of them. The model of the run is trained on everything, with the candidate chosen most
    often, for the median of its numbers of epochs.
    """
    parts, settings, pool = Parts(session), session.config.classifier, session.pool()
    found, chosen = [], []
    for number, fold in enumerate(session.folds(pool, settings.folds), 1):
        rest, name = _without(pool, fold), f"fold {number} of {settings.folds}"
        candidate, epoch = _choose(parts, session, name, rest)
        found.append(parts.train(name, rest, fold, session.candidates[candidate], epoch)[-1])
        chosen.append((candidate, epoch))
    picked = [candidate for candidate, _ in chosen]
    kept = max(sorted(set(picked)), key=picked.count)
    middle = int(np.median([epoch for candidate, epoch in chosen if candidate == kept]))
    parts.final(pool, middle, session.candidates[kept])
    report = _over_folds(found, session.classes)
    metrics = session.metrics(middle, {}, report)
    texts = [", ".join(write_setting(*item) for item in one.items()) for one in settings.candidates]
    for row, (candidate, epoch) in zip(report["folds"], chosen, strict=True):
        row |= {"epochs": epoch} | ({"candidate": texts[candidate]} if texts else {})
    if texts:
        metrics |= {"candidate": texts[kept], "settings": changes(session.config, session.candidates[kept])}
    return metrics


def _choose(parts: Parts, session: ClassSession, name: str, rest: Tensor) -> tuple[int, int]:
    """Return the candidate and its number of epochs with the best mean accuracy over the inner folds.

    The likelihood would stop small collections before the accuracy has risen; it decides among equals.
    """
    found = []
    for number, config in enumerate(session.candidates):
        label = f"{name}, candidate {number + 1}, inner" if len(session.candidates) > 1 else f"{name}, inner"
        curves = parts.cross_validation(label, rest, session.config.classifier.inner_folds, config)
        best, epoch = _best(curves, "accuracy", config.training)
        goals = ((curve[best].accuracy, curve[best].log_likelihood) for curve in curves)
        found.append((*np.mean(list(goals), 0), number, epoch))
    *_, number, epoch = max(found, key=lambda one: one[:2])
    return number, epoch


PROTOCOLS: dict[str, Callable[[ClassSession], Metrics]] = {
    "refit": refit,
    "holdout": holdout,
    "paper": paper,
    "nested": nested,
}


def fitted(session: ClassSession, items: Fitted) -> Metrics:
    """Fit a baseline once, which chooses its own settings within the items it is fitted to; there are no epochs.

    As in `holdout` it is fitted to train, and valid is looked at besides test; as in `refit` it is fitted to train and
    valid, and a cross-validation within these gives the validation figures.
    """
    begun = time.monotonic()

    def tallied_on(others: Tensor, train: Tensor) -> Tally:
        session.pause()
        return tallied(items.fitted_to(train, others), session.targets[others])

    if session.config.classifier.protocol == "holdout":
        pool, valid = session.validation()
        found = report(tallied_on(valid, pool), session.classes) if len(valid) else {}
    else:
        pool = session.pool()
        folds = session.folds(pool, session.config.classifier.folds)
        found = _over_folds([tallied_on(fold, _without(pool, fold)) for fold in folds], session.classes)
    session.pause()
    chosen = items.keep(pool)
    session.folder.keep_best(items.model)
    session.seconds = time.monotonic() - begun
    session.record({"event": "evaluate", "seconds": round(session.seconds, 3)})
    test = session.splits["test"]
    known = report(tally(items, test, session.training.batch_size), session.classes) if len(test) else {}
    return session.metrics(0, found, known) | {"chosen": chosen}


def held_out(session: ClassSession, number: int) -> tuple[Tensor, Tensor]:
    """Return the items to train on and those held out in a fold, counted over repeated cross-validations."""
    again, place = divmod(number, session.config.classifier.folds)
    fold = session.folds(session.pool(), session.config.classifier.folds, again)[place]
    return _without(session.pool(), fold), fold


def likelihood(session: ClassSession, number: int) -> float:
    """Return the geometric mean of the probability of the true class in the first so many folds held out.

    The number of epochs is the best one for these folds together.
    """
    folds, items = session.config.classifier.folds, session.items
    parts, curves = Parts(session), []
    for i in range(number):
        train, fold = held_out(session, i)
        again = f", time {i // folds + 1}" if i >= folds else ""  # the first ones are those of `refit`
        name = f"fold {i % folds + 1} of {folds}{again}"
        if isinstance(items, (Nodes, Graphs)):
            curves.append(parts.train(name, train, fold))
        else:
            session.pause()
            curves.append([tallied(items.fitted_to(train, fold), session.targets[fold])])
    return float(np.exp(np.mean([[one.log_likelihood for one in curve] for curve in curves], 0).max()))


def _best(curves: Sequence[Sequence[Tally]], goal: str, settings: Training) -> tuple[int, int]:
    """Return the evaluation with the best mean over the folds, the first of equals, and its number of epochs."""
    values = np.array([[getattr(found, goal) for found in curve] for curve in curves])  # [k, evaluations]
    best = int(values.mean(0).argmax())
    return best, min((best + 1) * settings.evaluate_every, settings.epochs)


def _over_folds(found: Sequence[Tally], classes: Sequence[str]) -> Metrics:
    """Return the report on all folds together, mean and standard deviation of the accuracy, and each fold's figures."""
    together = Tally(
        float(np.mean([one.log_likelihood for one in found])), torch.stack([one.confusion for one in found]).sum(0)
    )
    accuracies = [one.accuracy for one in found]
    rows = [
        {"accuracy": one.accuracy, "macro_f1": macro_f1(one), "log_likelihood": one.log_likelihood} for one in found
    ]
    mean, deviation = float(np.mean(accuracies)), float(np.std(accuracies))
    return report(together, classes) | {"accuracy": mean, "accuracy_sd": deviation, "folds": rows}


def _without(pool: Tensor, part: Tensor) -> Tensor:
    return pool[~torch.isin(pool, part)]


class Parts:
    """The trainings of a protocol, one after another; the checkpoint keeps the outcome of finished ones."""

    def __init__(self, session: ClassSession) -> None:
        self._session = session
        self._path = session.folder.path / "checkpoint" / "parts.json"
        self._finished: dict[str, list[Tally]] = {}
        if self._path.is_file():
            try:
                kept = json.loads(self._path.read_text(encoding="utf-8"))
                self._finished = {name: [_tally(row) for row in rows] for name, rows in kept["parts"].items()}
                session.seconds = float(kept["seconds"])
            except (OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError) as error:
                raise session.folder.bad_checkpoint(error, self._path) from None

    def cross_validation(self, name: str, pool: Tensor, number: int, config: Config | None = None) -> list[list[Tally]]:
        """Return for each fold the tallies, after every evaluation, of a model trained on the others."""
        folds = enumerate(self._session.folds(pool, number), 1)
        return [self.train(f"{name} {i} of {number}", _without(pool, fold), fold, config) for i, fold in folds]

    def train(
        self, name: str, train: Tensor, valid: Tensor, config: Config | None = None, epochs: int | None = None
    ) -> list[Tally]:
        """Train on some items and tally others after every evaluation, or once, after so many epochs."""
        if name not in self._finished:
            task = self._train(name, train, valid, config, epochs, keep=False)
            self._finished[name] = task.tallies
            parts = {name: [_flat(one) for one in tallies] for name, tallies in self._finished.items()}
            kept = json.dumps({"parts": parts, "seconds": self._session.seconds})
            replace(self._path, lambda part: part.write_text(kept, encoding="utf-8"))
        return self._finished[name]

    def final(self, train: Tensor, epochs: int, config: Config | None = None) -> Classification:
        """Train the model of the run on all these items."""
        task = self._train("final", train, train[:0], config, epochs, keep=True)
        self._session.folder.restore(task.items.model)
        self._session.record({"event": "evaluate", "seconds": round(self._session.seconds, 3)})
        return task

    def _train(
        self, name: str, train: Tensor, valid: Tensor, config: Config | None, epochs: int | None, *, keep: bool
    ) -> Classification:
        session, config = self._session, config or self._session.config
        with randomness(session.training.seed, session.device):
            session.pause()
            items = session.build(config)
            update: dict[str, Any] = {} if epochs is None else {"epochs": epochs, "evaluate_every": epochs}
            update["patience"] = update.get("epochs", config.training.epochs) + 1  # never stop early
            if not items.together:  # batches differ in shape, so no recorded step could be replayed
                update["step"] = "eager"
            settings = config.training.model_copy(update=update)
            task = Classification(items, train, valid, settings)
            store = _PartStore(session, task, name, keep)
            progress = optimise(
                task, settings, store, lambda event: session.record({**event, "part": name}), session.interrupted
            )
        session.seconds += progress.seconds
        return task


class _PartStore(Folder):
    """The store of one part. Its checkpoint holds the evaluations so far; the last part keeps its weights.

    Parts take seconds, so checkpoints are saved every `checkpoint_seconds` and not at every gain.
    """

    def __init__(self, session: ClassSession, task: Classification, name: str, keep: bool) -> None:
        super().__init__(session.folder.path)
        self._session, self._task, self._key, self._keep = session, task, f"evaluations.{name}", keep
        self._saved = time.monotonic()

    def load(self) -> tuple[dict[str, Tensor], str] | None:
        """Return the checkpoint, if it is one of this part."""
        found = super().load()
        if found is None or self._key not in found[0]:
            return None
        self._task.tallies = [_tally(row) for row in found[0].pop(self._key).tolist()]
        return found

    def save(self, tensors: dict[str, Tensor], note: str) -> None:
        """Replace the checkpoint, if the last one is old enough."""
        waited = time.monotonic() - self._saved
        if waited >= self._session.training.checkpoint_seconds or self._session.interrupted():
            rows = [_flat(one) for one in self._task.tallies]
            super().save({**tensors, self._key: torch.tensor(rows, dtype=torch.float64)}, note)
            self._saved = time.monotonic()

    def keep_best(self, module: nn.Module) -> None:
        """Replace the weights of the run, in its last part alone."""
        if self._keep:
            super().keep_best(module)


def _flat(one: Tally) -> list[float]:
    return [one.log_likelihood, *map(float, one.confusion.flatten().tolist())]


def _tally(row: Sequence[float]) -> Tally:
    cells = torch.tensor(row[1:], dtype=torch.float64).round().long()
    size = round(len(cells) ** 0.5)
    return Tally(row[0], cells.view(size, size))
