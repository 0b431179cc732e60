"""The models that a search compares on a graph, and the judges that train them, of links and of classes of nodes."""

from __future__ import annotations

import hashlib
import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from compgcn import processes
from compgcn.config import PATHS, Config, configure, names
from compgcn.data import DATASETS, KnowledgeGraph
from compgcn.data.columns import counted
from compgcn.errors import InputError, out_of_memory
from compgcn.nn.conditional import find_pace
from compgcn.run.build import TASKS, build_graph, build_links, find_device
from compgcn.run.protocols import ClassSession, held_out, likelihood
from compgcn.run.resolve import must_suffice, resolve, task_of, trial_inputs
from compgcn.run.run import Run, open_session, train
from compgcn.run.search import JOURNAL, OF_FOLDS, Budget, Cost, Journal, Search, ended_by, journalled
from compgcn.tasks.classification import Classification, Nodes
from compgcn.tasks.inputs import INPUTS, Dataset
from compgcn.tasks.objectives import OBJECTIVES
from compgcn.tasks.sampling import randomness
from compgcn.train.folder import EVENTS, MODEL, Folder, default_folder
from compgcn.train.loop import Event, Interrupted, Progress, make_step, optimise
from compgcn.train.recipes import CONDITIONAL_ON_CPU, MINUTES, Candidate, node_portfolio, portfolio
from compgcn.train.storage import replace as replace_file

BEST: Mapping[str | None, str] = {"link-prediction": "best", "node-classification": "best-labels"}
# Settings of a model, which a search chooses, but for these.
_CHOSEN = ("encoder.", "decoder.", "training.", "classifier.")
_FREE = {"training.seed", "training.device", "training.deterministic", "training.checkpoint_seconds"}
_MOST = 10**11  # facts · entities of a graph to compare models on by default
_MOST_EDGES = 2 * 10**5  # of a graph to compare classifiers of nodes on by default
_REPEATS = 2  # cross-validations of a classifier that wins
_LONG = 10.0  # seconds of one, from which on a single fold is enough for the first comparison
_FEW = 10  # validation triples to choose a model by
_FINAL = 0.15  # share of the time for the metrics and the calibration of the winner
_PROBE = 1.5  # seconds of training that tell its pace
_STEPS = 4  # and the fewest steps
_FORWARD = 0.4  # time of ranking a query, as a share of that of training on it


def budget(
    minutes: float | None, trials: int | None, settings: Mapping[str, Any], data: Dataset, model: str | None = None
) -> Budget | str:
    """Return the budget of a search, or why one model is trained in its place.

    Minutes or trials are refused where no search can choose the model. Without them, models are compared on one's own
    graph within minutes; the reason against it is "" where nobody would expect a search: a data set with a recipe, or
    settings of one model.
    """
    if minutes is not None and trials is not None:
        raise InputError("minutes and trials both bound the search; give one of them")
    why = _obstacle(settings, data, model)
    if minutes is not None or trials is not None:
        what, bound, kind = ("trials", trials, Integral) if minutes is None else ("minutes", minutes, Real)
        if why:
            raise InputError(f"{what} bound a comparison of models, and {why}")
        if not isinstance(bound, kind) or not 0 < bound < math.inf:
            raise InputError(f"{what} should be a positive {'whole ' * (kind is Integral)}number, not {bound!r}")
        return Budget(None if minutes is None else 60 * float(minutes), None if trials is None else int(trials))
    if why or settings.get("data.source") in DATASETS or not isinstance(data, KnowledgeGraph):
        return ""
    links = task_of(configure(Config(), settings), data) == "link-prediction"
    size, most = (data.num_entities * len(data.train), _MOST) if links else (len(data.train), _MOST_EDGES)
    if size > most:
        return "the graph is too large to compare models within minutes"
    if links and len(data.valid) < _FEW:
        return f"validation has only {counted(len(data.valid), 'triple')}, too few to compare models by"
    return Budget(60 * MINUTES)


def _obstacle(settings: Mapping[str, Any], data: Dataset, model: str | None) -> str:
    """Return why no search can choose the model, as the end of a sentence; "" where it can."""
    if processes.size() > 1:
        return "several processes train one; name a --model, or start a single process"
    if model is not None:
        return f"'{model}' is one model; leave either out"
    chosen = [path for name in settings if (path := PATHS.get(name, name)) not in _FREE and path.startswith(_CHOSEN)]
    if chosen:
        return f"it chooses {chosen[0].removesuffix('.name')} itself; leave either out"
    task = task_of(configure(Config(), settings), data)
    if not isinstance(data, KnowledgeGraph):
        return f"only those of links and nodes are compared, not those of {task}; leave it out"
    if task == "link-prediction" and not len(data.valid):
        return f"'{data.name}' has no validation triples to judge by; split it, give --valid, or leave either out"
    return ""


@dataclass
class _FolderJudge:
    """Trains candidates in a folder each."""

    settings: Mapping[str, Any]  # of the user, by name
    data: KnowledgeGraph  # without test
    folder: Path  # of all candidates
    notify: Callable[[Event], None] = lambda event: None  # takes the events of training
    interrupted: Callable[[], bool] = lambda: False  # whether to stop
    clock: Callable[[], float] = time.monotonic  # in seconds

    def config(self, candidate: Candidate, share: float = 1.0, data: KnowledgeGraph | None = None) -> Config:
        """Return the settings of a candidate for a share of its epochs."""
        whole = resolve({**self.settings, **candidate.settings}, data or self.data).config
        return configure(whole, {"training.epochs": max(1, round(share * whole.training.epochs))})

    def place(self, candidate: Candidate) -> Folder:
        place = Folder(self.folder / "".join(c if c.isalnum() or c in "-." else "-" for c in candidate.name.lower()))
        (place.path / "checkpoint").mkdir(parents=True, exist_ok=True)
        return place

    def drop(self, candidate: Candidate) -> None:
        """Remove the weights of a candidate that has lost."""
        shutil.rmtree(self.place(candidate).path, ignore_errors=True)

    def _hand_over(self, candidate: Candidate, run: Folder, *files: str) -> None:
        """Copy the state of a candidate into the folder of the run."""
        (run.path / "checkpoint").mkdir(exist_ok=True)
        for name in files:
            kept = self.place(candidate).path / name
            if kept.is_file():
                replace_file(run.path / name, lambda path, kept=kept: shutil.copyfile(kept, path))  # type: ignore[misc]


@dataclass
class LinkJudge(_FolderJudge):
    """Trains link predictors and compares them by the MRR of validation."""

    goal = "mrr"
    # Seconds of a whole training, by everything but the regulariser's weight.
    _paces: dict[str, float] = field(default_factory=dict, init=False)

    def cost(self, candidate: Candidate) -> Cost:
        """Train for a moment, and take the time of a step."""
        config = self.config(candidate)
        described = names(config.model_dump()) | {"training.regularisation": None}
        trained, pace = False, self._paces.get(str(described))
        if pace is None:
            trained, pace = self._probe(candidate, config)
            self._paces[str(described)] = pace
        return Cost(0.0, 1.0) if trained else Cost(pace, 1 / config.training.epochs)

    def _probe(self, candidate: Candidate, config: Config) -> tuple[bool, float]:
        """Return whether a candidate is trained already, and the seconds of a whole training."""
        steps: list[tuple[int, float, int]] = []  # done, the time, and all

        def enough() -> bool:
            return len(steps) >= _STEPS and steps[-1][1] - steps[0][1] >= _PROBE

        def listen(event: Event) -> None:
            self.notify(event)
            if event["event"] in ("step", "epoch"):
                steps.append((event["step"], self.clock(), event["steps"]))

        try:
            progress = self._train(candidate, config, listen, lambda: enough() or self.interrupted())
            return True, progress.seconds
        except Interrupted:
            if not enough():
                raise
        gaps = sorted((two[1] - one[1]) / max(two[0] - one[0], 1) for one, two in pairwise(steps))
        step = gaps[len(gaps) // 4]  # a few of the first steps compile kernels
        t, judged = config.training, min(len(self.data.valid), config.training.valid_sample or len(self.data.valid))
        ranked = t.epochs / t.evaluate_every * 2 * judged / t.batch_size  # as queries of so many steps
        if OBJECTIVES[t.loss].samples:
            ranked *= self.data.num_entities / t.negatives
        return False, step * (steps[0][2] + _FORWARD * ranked)

    def train(self, candidate: Candidate, share: float, *, final: bool) -> tuple[float, float]:
        """Train a candidate on, up to a share of its epochs; at a constant rate, if more will follow."""
        config = self.config(candidate, share)
        if not final:
            config = configure(config, {"training.schedule": "constant"})
        progress = self._train(candidate, config, self.notify, self.interrupted)
        while math.isinf(progress.best):  # `cost` has trained so far already, without an evaluation
            config = configure(config, {"training.epochs": config.training.epochs + 1})
            progress = self._train(candidate, config, self.notify, self.interrupted)
        return progress.best, 1.0 if progress.stopped else share

    def _train(
        self, candidate: Candidate, config: Config, notify: Callable[[Event], None], interrupted: Callable[[], bool]
    ) -> Progress:
        device, place = find_device(config.training.device), self.place(candidate)
        try:
            with randomness(config.training.seed, device):
                task = build_links(config, self.data, device)
                return optimise(task, config.training, place, place.recorded(notify), interrupted, self.clock)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            raise InputError("it does not fit into memory") from None

    def keep(self, candidate: Candidate, share: float, run: Folder, data: KnowledgeGraph) -> None:
        """Make the winner, as far as it is trained, a run on the whole data that only lacks its metrics."""
        self._hand_over(candidate, run, "checkpoint/state.safetensors", MODEL, EVENTS)
        config = self.config(candidate, share, data)
        trained = [event["epoch"] for event in run.events() if event["event"] == "epoch"]  # more, if stopped in a rung
        run.create(configure(config, {"training.epochs": max(config.training.epochs, *trained)}), data)


@dataclass
class NodeJudge(_FolderJudge):
    """Cross-validates classifiers of nodes within train and valid, and compares them by the likelihood.

    A whole training is `_REPEATS` cross-validations with folds of their own. The likelihood is the geometric mean of
    the probability of the true class, after the number of epochs that is best for all folds so far.
    """

    goal = OF_FOLDS
    _sessions: dict[str, ClassSession] = field(default_factory=dict, init=False)
    _slow: set[str] = field(default_factory=set, init=False)  # candidates that a single fold has to judge at first

    def _session(self, candidate: Candidate) -> ClassSession:
        if candidate.name not in self._sessions:
            config = self.config(candidate)
            device = find_device(config.training.device)
            with randomness(config.training.seed, device):
                record = (place := self.place(candidate)).recorded(self.notify)
                session = open_session(config, self.data, place, device, record, self.interrupted)
            assert isinstance(session, ClassSession)
            self._sessions[candidate.name] = session
        return self._sessions[candidate.name]

    def cost(self, candidate: Candidate) -> Cost:
        """Estimate by the time of a fold."""
        session = self._session(candidate)
        with randomness(session.training.seed, session.device):
            fold = self._fold(session)
        folds = session.config.classifier.folds
        if folds * fold > _LONG:
            self._slow.add(candidate.name)
        return Cost(_REPEATS * folds * fold, self._least(candidate, folds) / (_REPEATS * folds))

    def _fold(self, session: ClassSession) -> float:
        """Return the seconds of a fold, by a few steps, or by the first one where there are none."""
        begun = self.clock()
        if isinstance(session.items, Nodes):
            task = Classification(session.build(session.config), *held_out(session, 0), session.training)
            step = make_step(task, session.training, session.training.epochs)
            for epoch in range(_STEPS):
                begun = begun if epoch > 1 else self.clock()  # the first step compiles
                step(task.examples(epoch, 0), session.training.lr).item()
                task.validate()
            return (self.clock() - begun) / (_STEPS - 1) * session.training.epochs
        likelihood(session, 1)
        return self.clock() - begun

    def train(self, candidate: Candidate, share: float, *, final: bool) -> tuple[float, float]:
        """Cross-validate a candidate on up to a share of the folds; beyond one cross-validation, whole ones alone."""
        session = self._session(candidate)
        folds = session.config.classifier.folds
        number = max(self._least(candidate, folds), round(share * _REPEATS * folds))
        return likelihood(session, number if number < folds else number // folds * folds), share

    def _least(self, candidate: Candidate, folds: int) -> int:
        """Return the fewest folds that judge a candidate."""
        return 1 if candidate.name in self._slow else folds

    def drop(self, candidate: Candidate) -> None:
        self._sessions.pop(candidate.name, None)
        super().drop(candidate)

    def keep(self, candidate: Candidate, share: float, run: Folder, data: KnowledgeGraph) -> None:
        """Make the winner a run on the whole data, which takes over the folds of the first cross-validation."""
        self._hand_over(candidate, run, "checkpoint/parts.json", EVENTS)
        run.create(self.config(candidate, data=data), data)


def search(
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
    settings, hidden = trial_inputs(settings, data)
    assert isinstance(hidden, KnowledgeGraph)
    base = resolve(settings, hidden).config
    run = Folder(run_dir or default_folder(base, BEST[base.task]))
    notify = notify or (lambda event: None)
    searching = run.path / "search"
    if run.is_run and not overwrite and journalled(run.path) is None:
        raise InputError(f"{run.path} holds a run without a search; choose another --run-dir, or say --overwrite")
    must_suffice(base, hidden)
    kind = LinkJudge if base.task == "link-prediction" else NodeJudge
    judge = kind(settings, hidden, searching, notify, interrupted, clock)
    ends = None if overwrite else ended_by(run.path, budget)
    budget = ends or budget
    candidates = _candidates(base, hidden, budget)
    about: dict[str, Any] = {"triples": replace(data, labels=None).fingerprint()}
    about |= {"labels": data.labels and hashlib.sha256(data.labels.content()).hexdigest()}
    about |= {"goal": judge.goal, "budget": budget, "seed": base.training.seed}
    with run.lock():
        if overwrite:
            run.clear()
        journal = Journal(searching / JOURNAL, about | {"candidates": candidates})
        if len(journal.lines) > 1:
            how = "has ended; its winner is evaluated and calibrated next" if run.is_run else "resumes"
            how = "is finished; --overwrite searches anew" if run.is_calibrated else how
            notify({"event": "search", "note": f"the search in {run.path} {how}"})
        if not run.is_run:
            bounded = budget._replace(seconds=0.0 if ends else budget.seconds and (1 - _FINAL) * budget.seconds)
            try:
                outcome = Search(candidates, judge, bounded, journal, notify, clock).run()
            except InputError:  # no model was found: another budget begins anew
                shutil.rmtree(searching, ignore_errors=True)  # somebody may have removed it
                raise
            best = outcome.trials[0]
            judge.keep(next(one for one in candidates if one.name == best.name), best.share, run, data)
        for place in searching.iterdir():
            if place.is_dir():
                shutil.rmtree(place)
    found = journalled(run.path)
    assert found is not None  # the run has a winner
    notify({"event": "winner", "name": found.trials[0].name})
    return train(run.config(), data, run.path, notify, interrupted)


def _candidates(base: Config, data: KnowledgeGraph, budget: Budget) -> list[Candidate]:
    if base.task == "link-prediction":
        device, layers = find_device(base.training.device), len(CONDITIONAL_ON_CPU["encoder.dims"]) - 1
        on_gpu = device.type == "cuda"
        sizes = data.num_entities, len(data.train), budget.seconds, on_gpu
        if on_gpu:
            return portfolio(*sizes)
        pace = find_pace(build_graph(base, data.train, data, device), layers)
        return portfolio(*sizes, pace.time, not pace.sparse)
    given = [name for name in TASKS["node-classification"].inputs if INPUTS[name].there(data)]
    return node_portfolio(given, fitted=find_spec("sklearn") is not None)
