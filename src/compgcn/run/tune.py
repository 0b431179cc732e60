"""Search for settings with Optuna (the extra `tune`), judged on validation alone.

Trials train on data without a test part. A trial's run folder is named after its settings, so that a stopped trial
resumes from its checkpoint.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import platform
import random
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from compgcn.config import PATHS, Config, Range, Space, configure, differences, grid_size, names, to_toml
from compgcn.data import GraphCollection
from compgcn.errors import InputError, must_be_known, out_of_memory, unknown
from compgcn.run.build import CONDITIONAL
from compgcn.run.resolve import NAMES, resolve, trial_inputs
from compgcn.run.run import train
from compgcn.tasks.inputs import Dataset
from compgcn.train.folder import default_folder
from compgcn.train.loop import Event, Interrupted
from compgcn.train.recipes import known_as
from compgcn.train.storage import append, reason
from compgcn.train.storage import replace as replace_file

optuna.logging.set_verbosity(optuna.logging.CRITICAL)

# The paper's table of hyper-parameters for link prediction; `paper_grid` adds the number of layers.
PAPER: dict[str, tuple[Any, ...]] = {
    "training.lr": (1e-3, 1e-4),
    "training.batch_size": (128, 256),
    "encoder.dropout": (0.0, 0.1, 0.2, 0.3),
}
CONDITIONAL_GRID: dict[str, tuple[Any, ...]] = {  # beside the number of layers
    "training.lr": (2e-3, 5e-3, 1e-2),
    "training.hidden_answers": (1, 4, 16),
    "training.batch_size": (32, 64),
}
PRUNERS: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
    "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2),
    "hyperband": optuna.pruners.HyperbandPruner,
    "none": optuna.pruners.NopPruner,
}
FEWEST = 10  # finished trials from which on the importance of a setting means something


def paper_grid(config: Config) -> Space:
    """Return the values the paper searched, as far as the task and the encoder use them, and those of the config.

    The paper lists none for classification; there the grid has a higher learning rate too, and no batches of nodes. A
    model conditioned on the query has the grid of its own training.
    """
    dims, own = config.encoder.dims, names(config.model_dump())
    space: Space = {"encoder.dims": tuple((dims[0], *(dims[-1],) * layers) for layers in (1, 2, 3)), **PAPER}
    if config.encoder.name == CONDITIONAL:
        space = {**CONDITIONAL_GRID, "encoder.dims": tuple((dims[0],) * (1 + layers) for layers in (3, 4, 6))}
    elif config.encoder.name == "none":
        space = {path: values for path, values in PAPER.items() if path != "encoder.dropout"}
    elif config.task != "link-prediction":
        space["training.lr"] = (1e-2, *PAPER["training.lr"])
        if config.task != "graph-classification":
            del space["training.batch_size"]
    return {path: values if own[path] in values else (own[path], *values) for path, values in space.items()}


@dataclass(frozen=True)
class Plan:
    """A search: the settings and values to try, the data, and the study's folder."""

    settings: Mapping[str, Any]  # by name
    data: Dataset  # without a test part
    space: Space
    folder: Path
    model: str | None = None  # a whole system beneath the settings, see `compgcn.train.recipes`
    budget: Mapping[str, Any] = field(default_factory=dict)  # settings that bound the trials alone, by path

    def config(self, chosen: Mapping[str, Any] | None = None) -> Config:
        """Return the resolved settings of a trial."""
        return self.final({**self.budget, **(chosen or {})})

    def final(self, chosen: Mapping[str, Any]) -> Config:
        """Return the resolved settings with the values of a trial, without the budget of the trials."""
        named = {PATHS.get(name, name): value for name, value in self.settings.items()}
        return resolve({**named, **chosen}, self.data, self.model).config

    @cached_property
    def goal(self) -> str:
        """The validation metric to maximise."""
        config = self.config()
        if config.task == "link-prediction":
            return "mrr"
        return "accuracy" if config.classifier.protocol == "paper" else "log_likelihood"


def plan(
    settings: Mapping[str, Any],
    data: Dataset,
    space: Space | None,
    folder: Path | None = None,
    model: str | None = None,
    budget: Mapping[str, Any] | None = None,
) -> Plan:
    """Return a search that can begin, or refuse one with nothing to search or nothing to judge by.

    The space is the paper's grid by default, the folder `runs/<data>-<encoder>-<decoder>-tune`, or
    `runs/<data>-<model>-tune` with a model.
    """
    settings, data = trial_inputs(settings, data)
    made = Plan(settings, data, {}, Path(), model, budget or {})
    config = made.config()
    classifier = config.classifier
    if classifier.protocol == "nested":
        raise InputError(
            "the protocol 'nested' chooses within its folds: give the table [search] to compgcn train with --search"
        )
    if not isinstance(data, GraphCollection):
        if config.task == "link-prediction" and not len(data.valid):
            raise InputError(f"'{data.name}' has no validation triples to judge by; split it, or give --valid")
        labelled = data.labels is not None and len(data.labels.valid)
        if classifier.protocol == "holdout" and not config.data.valid_fraction and not labelled:
            raise InputError(f"'{data.name}' has no validation labels to judge by; raise data.valid_fraction")
    if space is None and classifier.baseline is not None:
        raise InputError(f"the paper has no grid for '{classifier.baseline}': list values in a table [search]")
    space = paper_grid(config) if space is None else space
    if not space:
        raise InputError("there is nothing to search: list the values of some setting in a table [search]")
    for path in space.keys() & NAMES.keys():
        for name in space[path]:
            if name is not None and name not in NAMES[path]:
                raise InputError(f"[search]: {unknown(path, str(name), NAMES[path])}")
    place = default_folder(config, known_as(model, config))
    return replace(made, space=space, folder=folder or place.with_name(f"{place.name.rpartition('-')[0]}-tune"))


# The study


def open_study(plan: Plan, storage: str | None, trials: int, pruner: str = "median") -> optuna.Study:
    """Open or create the study of a plan; refuse one of other data, settings or values.

    The storage is the URL of a database, or None for a file in the folder. A grid of at most `trials` points is tried
    whole.
    """
    must_be_known("pruner", pruner, PRUNERS)
    plan.folder.mkdir(parents=True, exist_ok=True)
    if (plan.folder / "config.toml").is_file():
        raise InputError(f"{plan.folder} is a run folder, not one of a study; choose another --study-dir")
    study = optuna.create_study(
        study_name=plan.folder.name,
        storage=_storage(plan, storage),
        direction="maximize",
        load_if_exists=True,
        pruner=PRUNERS[pruner](),
    )
    config = plan.config()
    seed = config.training.seed + len(study.get_trials(deepcopy=False))
    others = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))  # must not draw the same
    study.sampler = optuna.samplers.TPESampler(seed=seed + (os.getpid() if others else 0), constant_liar=True)
    if "config" not in study.user_attrs:  # written last: a kill on the way loses nothing
        study.set_user_attr("space", json.dumps(plan.space))
        _queue_own(plan, study)
        study.set_user_attr("config", config.model_dump_json())
    changed = differences(Config.model_validate_json(study.user_attrs["config"]), config)
    if json.loads(study.user_attrs["space"]) != json.loads(json.dumps(plan.space)):
        changed.append("another table [search]")
    if changed:
        raise InputError(f"{plan.folder} holds another study ({'; '.join(changed)}); choose another --study-dir")
    if grid_size(plan.space) <= trials:
        ahead = (TrialState.WAITING, TrialState.RUNNING)
        texts = [list(_texts(values)) for values in plan.space.values()]
        points = [dict(zip(plan.space, point, strict=True)) for point in itertools.product(*texts)]
        random.Random(config.training.seed).shuffle(points)
        for point in points:
            known = (*study.get_trials(deepcopy=False, states=ahead), *finished(study))  # other workers queue too
            if point not in map(_values, known):
                study.enqueue_trial(point)
    return study


def _storage(plan: Plan, url: str | None) -> optuna.storages.BaseStorage:
    if url is None:
        file = plan.folder / "study.jsonl"
        try:
            return optuna.storages.JournalStorage(_StudyFile(file))
        except (ValueError, LookupError, TypeError) as error:
            raise InputError(f"the study {file} is damaged ({reason(error)}); choose another --study-dir") from None
    try:
        return optuna.storages.RDBStorage(url)
    except Exception as error:  # each database has errors of its own
        what = f"'{url}': {str(error).strip().partition(chr(10))[0]}"
        shown = re.sub(r"(://[^:/@]*:)[^@]*@", r"\1***@", what)  # without the password
        raise InputError(f"could not open the storage {shown}; give a URL such as sqlite:///study.db") from None


class _StudyFile(JournalFileBackend):
    """The file of a study; its lock ends with its process, and a line cut short is replaced by the next.

    Optuna's own lock outlives a process that is killed, and a line cut short makes its study unreadable.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path, self._alone = path, FileLock(path.with_name(".lock"))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with self._alone:
            append(self._path, "".join(json.dumps(log) + "\n" for log in logs))


def _queue_own(plan: Plan, study: optuna.Study) -> None:
    """Queue the given settings first, if the space has them."""
    own = names(plan.config().model_dump())

    def inside(path: str, values: tuple[Any, ...] | Range) -> bool:
        if isinstance(values, Range):
            return own[path] is not None and values.low <= own[path] <= values.high
        return own[path] in values

    if all(inside(path, values) for path, values in plan.space.items()):
        study.enqueue_trial({path: _text(own[path]) for path in plan.space}, skip_if_exists=True)


def _values(trial: FrozenTrial) -> dict[str, Any]:
    """Return the values that a trial has drawn, or is to take, as Optuna has them."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}


def _text(value: Any) -> Any:
    """Return a value as Optuna takes it: itself, or the JSON text of a list."""
    return json.dumps(value) if isinstance(value, tuple) else value


def _texts(values: tuple[Any, ...] | Range) -> dict[Any, Any]:
    return {_text(value): value for value in values}


# Trials


def work(
    plan: Plan,
    study: optuna.Study,
    trials: int,
    timeout: float | None = None,
    notify: Callable[[Event], None] = lambda event: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> None:
    """Run trials until the study has enough, over all workers and calls, or begin none after `timeout` seconds.

    `notify` gets every event of a trial's training, with the trial's number in it. After every step `interrupted` may
    stop the trial with `compgcn.train.loop.Interrupted`.
    """
    trials = int(min(trials, grid_size(plan.space)))
    for left in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if _is_left(left):  # its process died: queue it again
            study.tell(left.number, state=TrialState.FAIL)
            study.enqueue_trial(_values(left))

    def enough() -> bool:
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return len(finished(study)) + len(running) >= trials

    begun = time.monotonic()
    while not enough() and (timeout is None or time.monotonic() - begun < timeout):
        trial = study.ask()
        trial.set_user_attr("worker", [platform.node(), os.getpid()])
        try:
            study.tell(trial, _try(plan, study, trial, notify, interrupted))
        except optuna.TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)
        except Exception as error:
            if too_large := out_of_memory(error):
                trial.set_user_attr("error", "it does not fit into memory")
            study.tell(trial, state=TrialState.FAIL)
            if not too_large and not isinstance(error, InputError):
                raise


def _is_left(trial: FrozenTrial) -> bool:
    """Return whether the process of a running trial has ended, or is this one."""
    if "worker" not in trial.user_attrs:  # it has not begun yet, or never will
        return trial.datetime_start is None or datetime.now() - trial.datetime_start > timedelta(minutes=1)
    machine, process = trial.user_attrs["worker"]
    if machine != platform.node():
        return False
    try:
        os.kill(process, 0)
    except OSError as error:  # a PermissionError is about another user's process
        return isinstance(error, ProcessLookupError)
    return bool(process == os.getpid())


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that are complete, pruned or refused; not those that were interrupted."""
    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    trials = study.get_trials(deepcopy=False)
    return [trial for trial in trials if trial.state in ended or "error" in trial.user_attrs]


def complete(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that trained to their end."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def suggest(trial: optuna.Trial, space: Space) -> dict[str, Any]:
    """Return the settings of a trial, by path."""
    chosen: dict[str, Any] = {}
    for path, values in space.items():
        if not isinstance(values, Range):
            texts = _texts(values)
            chosen[path] = texts[trial.suggest_categorical(path, list(texts))]
        elif isinstance(values.low, int) and isinstance(values.high, int):
            chosen[path] = trial.suggest_int(path, values.low, values.high, log=values.log)
        else:
            chosen[path] = trial.suggest_float(path, values.low, values.high, log=values.log)
    return chosen


def _try(
    plan: Plan,
    study: optuna.Study,
    trial: optuna.Trial,
    notify: Callable[[Event], None],
    interrupted: Callable[[], bool],
) -> float:
    """Train with the settings of a trial; return the best validation metric."""
    chosen = suggest(trial, plan.space)
    text = json.dumps(chosen, sort_keys=True)
    folder = plan.folder / "trials" / hashlib.sha256(text.encode()).hexdigest()[:12]
    others = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    if any(other.params == trial.params and other.number < trial.number for other in others):
        raise optuna.TrialPruned

    best: dict[str, float] = {}  # of each fold so far
    hopeless = False

    def tell(event: Event) -> None:
        """Report every evaluation of a training; in a cross-validation every fold, by the mean of the best of each."""
        nonlocal hopeless
        notify({**event, "trial": trial.number, "settings": chosen})
        value = event.get("valid", {}).get(plan.goal)
        if event["event"] != "epoch" or value is None:
            return
        step = event["epoch"]
        if part := event.get("part"):
            best[part] = max(best.get(part, -math.inf), value)
            if step < event["epochs"]:
                return
            value, step = sum(best.values()) / len(best), len(best)
        trial.report(value, step)
        hopeless = trial.should_prune()

    try:
        run = train(plan.config(chosen), plan.data, folder, tell, lambda: hopeless or interrupted())
    except Interrupted:
        if not hopeless:
            study.enqueue_trial(trial.params)  # the next worker resumes it
            raise
        shutil.rmtree(folder, ignore_errors=True)
        raise optuna.TrialPruned from None
    except OSError:  # a full disk is no fault of the settings
        study.enqueue_trial(trial.params)
        raise
    except InputError as error:  # these settings do not go together, or the loss is not finite
        trial.set_user_attr("error", str(error))
        raise
    trial.set_user_attr("epoch", run.metrics["best_epoch"])
    return float(run.metrics["valid"][plan.goal])


# Results


def result(plan: Plan, study: optuna.Study) -> dict[str, Any]:
    """Return how many trials ended how or run elsewhere, the best of them, and the importance of each setting."""
    ended = finished(study)
    states = [trial.state for trial in ended]
    if not (whole := complete(study)):
        reasons = [trial.user_attrs["error"] for trial in ended if "error" in trial.user_attrs]
        raise InputError(f"no trial came to an end{f': {reasons[0]}' if reasons else '; run the command again'}")
    best = max(whole, key=lambda trial: (trial.value, -trial.number))
    return {
        "study": str(plan.folder),
        "goal": plan.goal,
        "trials": len(ended),
        "complete": len(whole),
        "pruned": states.count(TrialState.PRUNED),
        "refused": states.count(TrialState.FAIL),
        "running": len(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))),
        "best": {
            "trial": best.number,
            "value": best.value,
            "epoch": best.user_attrs["epoch"],
            "settings": settings_of(best, plan.space),
        },
        "importance": importance(study),
    }


def settings_of(trial: FrozenTrial, space: Space) -> dict[str, Any]:
    """Return the settings that a finished trial tried, by path."""
    return {
        path: value if isinstance(space[path], Range) else _texts(space[path])[value]
        for path, value in trial.params.items()
    }


def importance(study: optuna.Study) -> dict[str, float]:
    """Return how much of the differences between the trials each setting explains, 1 in all.

    Empty if there are fewer than `FEWEST` complete trials, or all have the same value.
    """
    values = [trial.value for trial in complete(study)]
    if len(values) < FEWEST or len(set(values)) < 2:
        return {}
    return {path: float(share) for path, share in optuna.importance.get_param_importances(study).items()}


def history(study: optuna.Study) -> list[tuple[int, float | None]]:
    """Return number and metric of every trial that ended; None for one that was pruned or refused."""
    return [(trial.number, trial.value) for trial in finished(study)]


def write_best(plan: Plan, study: optuna.Study) -> Path:
    """Write the settings of the best trial, without the budget of the trials, to `best.toml` in the study's folder."""
    path = plan.folder / "best.toml"
    best = plan.final(result(plan, study)["best"]["settings"])
    text = to_toml(configure(best, {"fingerprint": None}))  # the trials had data without a test part
    replace_file(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path
