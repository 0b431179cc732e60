"""The models that a search compares on a graph, and the judge that trains them for link prediction."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compgcn.config import PATHS, Config, configure, names
from compgcn.data import DATASETS, KnowledgeGraph
from compgcn.errors import InputError
from compgcn.run.build import build_links, find_device
from compgcn.run.resolve import resolve
from compgcn.run.run import Run, train
from compgcn.run.search import JOURNAL, Budget, Candidate, Cost, Journal, Search
from compgcn.tasks.inputs import Dataset, without_test
from compgcn.tasks.sampling import randomness
from compgcn.train.folder import MODEL, Folder, default_folder
from compgcn.train.loop import Event, Interrupted, Progress, optimise
from compgcn.train.recipes import portfolio
from compgcn.train.storage import replace as replace_file

# Settings of a model, which a search chooses, but for these.
_CHOSEN = ("encoder.", "decoder.", "training.", "classifier.")
_FREE = {"training.seed", "training.device", "training.deterministic", "training.checkpoint_seconds"}
_MOST = {False: 10**9, True: 10**11}  # facts · entities of a graph to compare models on by default; on a GPU
_FEW = 10  # validation triples to choose a model by
_FINAL = 0.15  # share of the time for the metrics and the calibration of the winner
_PROBE = 1.5  # seconds of training that tell its pace
_STEPS = 4  # and the fewest steps
_FORWARD = 0.4  # time of ranking a query, as a share of that of training on it


def budget(
    minutes: float | None, trials: int | None, settings: Mapping[str, Any], data: Dataset, model: str | None = None
) -> Budget:
    """Return the budget of a search, or refuse it beside a model, settings or data that leave no choice."""
    if minutes is not None and trials is not None:
        raise InputError("minutes and trials both bound the search; give one of them")
    if why := obstacle(settings, data, model):
        raise InputError(f"{'trials' if minutes is None else 'minutes'} bound a comparison of models, and {why}")
    return Budget(None if minutes is None else 60 * minutes, trials)


def obstacle(settings: Mapping[str, Any], data: Dataset, model: str | None = None) -> str:
    """Return why no search can choose the model, as the end of a sentence; "" where it can."""
    if model is not None:
        return f"'{model}' is one model; leave either out"
    chosen = [path for name in settings if (path := PATHS.get(name, name)) not in _FREE and path.startswith(_CHOSEN)]
    if chosen:
        return f"{chosen[0]} is a setting of one; leave either out"
    task = resolve(settings, data).config.task
    if task != "link-prediction" or not isinstance(data, KnowledgeGraph):
        return f"only those of link prediction are compared, not those of {task}; leave it out"
    return "" if len(data.valid) else f"'{data.name}' has no validation triples to judge by; split it, or give --valid"


def suits(settings: Mapping[str, Any], data: Dataset) -> bool:
    """Return whether to search by default: on one's own triples, if models can be trained within minutes."""
    if settings.get("data.source") in DATASETS or not isinstance(data, KnowledgeGraph) or obstacle(settings, data):
        return False
    on_gpu = find_device(configure(Config(), settings).training.device).type == "cuda"
    return len(data.valid) >= _FEW and data.num_entities * len(data.train) <= _MOST[on_gpu]


class LinkJudge:
    """Trains link predictors in a folder each, and compares them by the MRR of validation.

    Args:
        settings: of the user, by name.
        data: without test.
        folder: of all candidates.
        notify: takes the events of training.
        interrupted: whether to stop.
        clock: in seconds.
    """

    goal = "mrr"

    def __init__(
        self,
        settings: Mapping[str, Any],
        data: KnowledgeGraph,
        folder: Path,
        notify: Callable[[Event], None] = lambda event: None,
        interrupted: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self.data, self.folder = settings, data, folder
        self.notify, self.interrupted, self.clock = notify, interrupted, clock
        self._paces: dict[str, float] = {}  # seconds of a whole training, by everything but the regulariser's weight

    def config(self, candidate: Candidate, share: float = 1.0, data: KnowledgeGraph | None = None) -> Config:
        """Return the settings of a candidate for a share of its epochs."""
        whole = resolve({**self.settings, **candidate.settings}, data or self.data).config
        return configure(whole, {"training.epochs": max(1, round(share * whole.training.epochs))})

    def place(self, candidate: Candidate) -> Folder:
        """Return the folder of a candidate."""
        place = Folder(self.folder / "".join(c if c.isalnum() or c in "-." else "-" for c in candidate.name.lower()))
        (place.path / "checkpoint").mkdir(parents=True, exist_ok=True)
        return place

    def cost(self, candidate: Candidate) -> Cost:
        """Train for a moment, and take the time of a step."""
        config = self.config(candidate)
        described = names(config.model_dump()) | {"training.regularisation": None}
        if str(described) not in self._paces:
            self._paces[str(described)] = self._probe(candidate, config)
        return Cost(self._paces[str(described)], 1 / config.training.epochs)

    def _probe(self, candidate: Candidate, config: Config) -> float:
        steps: list[tuple[int, float]] = []
        events: list[Event] = []

        def enough() -> bool:
            return len(steps) >= _STEPS and steps[-1][1] - steps[0][1] >= _PROBE

        def listen(event: Event) -> None:
            self.notify(event)
            if event["event"] in ("step", "epoch"):
                steps.append((event["step"], self.clock()))
                events.append(event)

        try:
            progress = self._train(candidate, config, listen, lambda: enough() or self.interrupted())
            return progress.seconds  # it is trained already
        except Interrupted:
            if not enough():
                raise
        (first, begun), (last, ended) = steps[0], steps[-1]
        step = (ended - begun) / max(last - first, 1)
        t, judged = config.training, min(len(self.data.valid), config.training.valid_sample or len(self.data.valid))
        ranked = t.epochs / t.evaluate_every * 2 * judged / t.batch_size
        return step * (events[0]["steps"] + _FORWARD * ranked)

    def train(self, candidate: Candidate, share: float, *, final: bool) -> float:
        """Train a candidate on, up to a share of its epochs; at a constant rate, if more will follow."""
        config = self.config(candidate, share)
        if not final:
            config = configure(config, {"training.schedule": "constant"})
        return self._train(candidate, config, self.notify, self.interrupted).best

    def _train(
        self, candidate: Candidate, config: Config, notify: Callable[[Event], None], interrupted: Callable[[], bool]
    ) -> Progress:
        device = find_device(config.training.device)
        with randomness(config.training.seed, device):
            task = build_links(config, self.data, device)
            return optimise(task, config.training, self.place(candidate), notify, interrupted, self.clock)

    def drop(self, candidate: Candidate) -> None:
        """Remove the weights of a candidate that has lost."""
        shutil.rmtree(self.place(candidate).path, ignore_errors=True)

    def keep(self, candidate: Candidate, share: float, run: Folder, data: KnowledgeGraph) -> None:
        """Make the winner, as far as it is trained, a run on the whole data that only lacks its metrics."""
        place = self.place(candidate)
        (run.path / "checkpoint").mkdir(exist_ok=True)
        for name in ("checkpoint/state.safetensors", MODEL):
            replace_file(run.path / name, lambda path, name=name: shutil.copyfile(place.path / name, path))  # type: ignore[misc]
        run.create(self.config(candidate, share, data), data)


def search_links(
    settings: Mapping[str, Any],
    data: KnowledgeGraph,
    budget: Budget,
    run_dir: str | Path | None = None,
    notify: Callable[[Event], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    overwrite: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Run:
    """Train the portfolio on a graph within a budget, and keep the model that is best on validation as a run.

    The same call resumes a search that was stopped, and opens the run of a finished one.
    """
    run = Folder(run_dir or default_folder(configure(Config(), settings), "best"))
    notify = notify or (lambda event: None)
    searching = run.path / "search"
    if run.is_run and not overwrite and not (searching / JOURNAL).is_file():
        raise InputError(f"{run.path} holds a run without a search; choose another --run-dir, or say --overwrite")
    hidden = without_test(data)
    assert isinstance(hidden, KnowledgeGraph)
    judge = LinkJudge(settings, hidden, searching, notify, interrupted, clock)
    training = configure(Config(), settings).training
    on_gpu = find_device(training.device).type == "cuda"
    candidates = [Candidate(*one) for one in portfolio(data.num_entities, len(data.train), budget.seconds, on_gpu)]
    about = {"goal": judge.goal, "budget": budget, "seed": training.seed, "data": data.fingerprint()}
    with run.lock():
        if overwrite:
            run.clear()
        journal = Journal(searching / JOURNAL, about | {"candidates": candidates})
        if not run.is_run:
            bounded = budget._replace(seconds=budget.seconds and (1 - _FINAL) * budget.seconds)
            outcome = Search(candidates, judge, bounded, journal, notify, clock).run()
            best = outcome.trials[0]
            judge.keep(next(one for one in candidates if one.name == best.name), best.share, run, data)
        for place in searching.iterdir():
            if place.is_dir():
                shutil.rmtree(place)
    return train(run.config(), data, run.path, notify, interrupted)
