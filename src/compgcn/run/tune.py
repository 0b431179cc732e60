"""Search for settings with Optuna: trials chosen by what came of earlier ones, stopped early, judged on validation.

A trial never sees the test part: it is trained on data that have none, so that nothing of it can be shown, stored or
chosen by. A trial's run folder is named after its settings, so that one that was stopped goes on where it was.
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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compgcn.config import PATHS, Config, Range, Space, configure, differences, grid_size, names, to_toml
from compgcn.data import GraphCollection
from compgcn.errors import InputError, unknown
from compgcn.nn.compose import COMPOSITIONS
from compgcn.nn.decoders import DECODERS
from compgcn.nn.encoder import PRESETS
from compgcn.nn.graph import NORMS
from compgcn.run import train
from compgcn.run.build import LEARNED
from compgcn.run.resolve import expand, recommended
from compgcn.tasks.inputs import Dataset
from compgcn.train.folder import default_folder
from compgcn.train.loop import Event, Interrupted
from compgcn.train.storage import replace as replace_file

if TYPE_CHECKING:
    import optuna


# The paper's table of hyper-parameters, which it gives for link prediction; layers are counted in `paper_grid`.
LAYERS = (1, 2, 3)
PAPER: dict[str, tuple[Any, ...]] = {
    "training.lr": (1e-3, 1e-4),
    "training.batch_size": (128, 256),
    "encoder.dropout": (0.0, 0.1, 0.2, 0.3),
}


def paper_grid(config: Config) -> Space:
    """The values the paper searched, as far as the task and the encoder have such a setting, and those of the config.

    For classifications the paper names none; theirs is the same table, with the higher rate that suits few examples,
    and without batches where all nodes are trained on at once.
    """
    dims = config.encoder.dims
    space: Space = {"encoder.dims": tuple((dims[0], *(dims[-1],) * layers) for layers in LAYERS), **PAPER}
    if config.encoder.name == "none":
        space = {path: values for path, values in PAPER.items() if path != "encoder.dropout"}
    elif config.task != "link-prediction":
        space["training.lr"] = (1e-2, *PAPER["training.lr"])
        if config.task != "graph-classification":
            del space["training.batch_size"]
    own = names(config.model_dump())
    return {path: values if own[path] in values else (own[path], *values) for path, values in space.items()}


def without_test(data: Dataset) -> Dataset:
    """The data with an empty test part; a collection of graphs has none to begin with."""
    if isinstance(data, GraphCollection):
        return data
    labels = None if data.labels is None else replace(data.labels, test=data.labels.test[:0])
    return replace(data, test=data.test[:0], labels=labels)


@dataclass(frozen=True)
class Plan:
    """What is searched, in what, and where it is kept.

    Args:
        settings: those given, by name; what is searched comes on top.
        data: what to train on, see `without_test`.
        space: what to search.
        folder: of the study.
        model: a whole system that the settings go over, see `compgcn.train.recipes`.
        budget: settings that bound a trial only, some of `compgcn.config.BUDGET`, by path; they go over the settings.
    """

    settings: Mapping[str, Any]
    data: Dataset
    space: Space
    folder: Path
    model: str | None = None
    budget: Mapping[str, Any] = field(default_factory=dict)

    def config(self, chosen: Mapping[str, Any] | None = None) -> Config:
        """The settings of a trial, filled in."""
        return self.final({**self.budget, **(chosen or {})})

    def final(self, chosen: Mapping[str, Any]) -> Config:
        """The settings with those of a trial, filled in, without what bounded the trials only."""
        named = {PATHS.get(name, name): value for name, value in self.settings.items()}
        return expand(recommended({**named, **chosen}, self.data, self.model), self.data)

    @cached_property
    def goal(self) -> str:
        """The figure of validation that is to rise."""
        config = self.config()
        if config.task == "link-prediction":
            return "mrr"
        own = "accuracy" if config.classifier.protocol == "paper" else "log_likelihood"
        return own


def plan(
    settings: Mapping[str, Any],
    data: Dataset,
    space: Space | None,
    folder: Path | None = None,
    model: str | None = None,
    budget: Mapping[str, Any] | None = None,
) -> Plan:
    """A search that can begin: its settings fit the data, there is something to search and something to judge by.

    Without a space it is the paper's grid, without a folder `runs/<data>-<encoder>-<decoder>-tune`, of a model
    `runs/<data>-<model>-tune`.
    """
    data = without_test(data)
    made = Plan(settings, data, {}, Path(), model, budget or {})
    config = made.config()
    if config.classifier.protocol == "nested":
        raise InputError(
            "the protocol 'nested' chooses within its folds: give the table [search] to compgcn train with --search"
        )
    if config.task == "link-prediction" and not len(data.splits["valid"]):  # type: ignore[union-attr]
        raise InputError(f"'{data.name}' has no validation triples to judge by; split it, or give --valid")
    if config.classifier.protocol == "holdout" and not config.data.valid_fraction and not _validation(data):
        raise InputError(f"'{data.name}' has no validation labels to judge by; raise data.valid_fraction")
    if space is None and config.classifier.baseline is not None:
        raise InputError(f"the paper has no grid for '{config.classifier.baseline}': list values in a table [search]")
    space = paper_grid(config) if space is None else space
    if not space:
        raise InputError("there is nothing to search: list the values of some setting in a table [search]")
    _check_names(space)
    place = default_folder(config, model)
    return replace(made, space=space, folder=folder or place.with_name(f"{place.name.rpartition('-')[0]}-tune"))


def _check_names(space: Space) -> None:
    """Every name that is listed must be one: what else is wrong with a trial may be so only beside its other values."""
    tables: dict[str, Iterable[str]] = {
        "encoder.name": PRESETS,
        "encoder.composition": (*COMPOSITIONS, *LEARNED),
        "encoder.norm": NORMS,
        "decoder.name": DECODERS,
    }
    for path, known in tables.items():
        for name in space.get(path, ()):
            if name is not None and name not in known:
                raise InputError(f"[search]: {unknown(path, name, known)}")


def _validation(data: Dataset) -> int:
    labels = getattr(data, "labels", None)
    return 0 if labels is None else len(labels.valid)


PRUNERS = ("median", "hyperband", "none")
FEWEST = 10  # finished trials from which on it means something which settings mattered


def open_study(plan: Plan, storage: str | None, trials: int, pruner: str = "median") -> optuna.Study:
    """The study of a plan, new or begun; one of other data, settings or values is refused.

    One without a figure so far, whose table [search] was other, begins anew: that table may have been the mistake.

    Args:
        plan: what is searched.
        storage: the URL of a database that workers on several machines share; a file in the folder if not given.
        trials: how many there are to be; if a grid has no more points, every one of them is tried.
        pruner: which stops a trial that falls behind the others.
    """
    library = _optuna()
    if pruner not in PRUNERS:
        raise unknown("pruner", pruner, PRUNERS)
    plan.folder.mkdir(parents=True, exist_ok=True)
    if (plan.folder / "config.toml").is_file():
        raise InputError(f"{plan.folder} is a run folder, not one of a study; choose another --study-dir")
    if storage is None:
        backend = library.storages.journal.JournalFileBackend(str(plan.folder / "study.jsonl"))
        kept: Any = library.storages.JournalStorage(backend)
    else:
        kept = _database(storage)
    study = _study(plan, kept, pruner)
    if _is_void(plan, study):  # the table that it was made of is no more, and nothing came of it
        library.delete_study(study_name=study.study_name, storage=kept)
        study = _study(plan, kept, pruner)
    study.sampler = library.samplers.TPESampler(seed=_seed(plan, study), constant_liar=True)
    described = {"config": plan.config().model_dump_json(), "space": json.dumps(plan.space), "goal": plan.goal}
    if "config" not in study.user_attrs:
        for key, value in described.items():
            study.set_user_attr(key, value)
        _queue_own(plan, study)
    _must_match(plan, study.user_attrs)
    if grid_size(plan.space) <= trials and "queued" not in study.user_attrs:
        study.set_user_attr("queued", True)
        _queue_grid(plan, study)
    return study


def _study(plan: Plan, kept: Any, pruner: str) -> optuna.Study:
    """The study of that name, new or begun."""
    made: optuna.Study = _optuna().create_study(
        study_name=plan.folder.name, storage=kept, direction="maximize", load_if_exists=True, pruner=_pruner(pruner)
    )
    return made


def _is_void(plan: Plan, study: optuna.Study) -> bool:
    """Whether a study is other in its table [search] alone, and has no trial that came to a figure and no worker."""
    kept = study.user_attrs
    if "space" not in kept or json.loads(kept["space"]) == json.loads(json.dumps(plan.space)):
        return False
    if differences(Config.model_validate_json(kept["config"]), plan.config()):
        return False
    states = _optuna().trial.TrialState
    trials = study.get_trials(deepcopy=False)
    at_work = (trial for trial in trials if trial.state == states.RUNNING and not _is_left(trial))
    return not any(trial.state == states.COMPLETE for trial in trials) and not any(at_work)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError("settings are searched with Optuna: pip install 'compgcn[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # what there is to say, the command says
    return optuna


def _database(url: str) -> Any:
    optuna = _optuna()
    try:
        return optuna.storages.RDBStorage(url)
    except Exception as error:  # each database has errors of its own
        what = f"'{url}': {str(error).strip().partition(chr(10))[0]}"
        shown = re.sub(r"(://[^:/@]*:)[^@]*@", r"\1***@", what)  # without the password
        raise InputError(f"could not open the storage {shown}; give a URL such as sqlite:///study.db") from None


def _pruner(name: str) -> Any:
    pruners = _optuna().pruners
    if name == "median":
        return pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2)
    return pruners.HyperbandPruner() if name == "hyperband" else pruners.NopPruner()


def _seed(plan: Plan, study: optuna.Study) -> int:
    """The run's own, but no two workers draw the same."""
    known = study.get_trials(deepcopy=False)
    others = any(trial.state.name == "RUNNING" for trial in known)
    return plan.config().training.seed + len(known) + (os.getpid() if others else 0)


def _queue_own(plan: Plan, study: optuna.Study) -> None:
    """Try the settings as they are first, where the space has them: what is found is no worse than they are."""
    own = names(plan.config().model_dump())
    point: dict[str, Any] = {}
    for path, values in plan.space.items():
        if not isinstance(values, Range):
            known = [text for text, value in _texts(values).items() if value == own[path]]
        else:  # a number, if it is set
            known = [own[path]] if own[path] is not None and values.low <= own[path] <= values.high else []
        point |= {path: known[0]} if known else {}
    if len(point) == len(plan.space):
        study.enqueue_trial(point, skip_if_exists=True)


def _queue_grid(plan: Plan, study: optuna.Study) -> None:
    """Queue every point of a grid, in an order that is random and the same for all workers."""
    names = [list(_texts(values)) for values in plan.space.values()]
    points = [dict(zip(plan.space, point, strict=True)) for point in itertools.product(*names)]
    random.Random(plan.config().training.seed).shuffle(points)
    for point in points:
        study.enqueue_trial(point, skip_if_exists=True)


def _must_match(plan: Plan, kept: Mapping[str, Any]) -> None:
    changed = differences(Config.model_validate_json(kept["config"]), plan.config())
    if json.loads(kept["space"]) != json.loads(json.dumps(plan.space)):
        changed.append("another table [search]")
    if changed:
        raise InputError(
            f"{plan.folder} holds a study of something else ({'; '.join(changed)}); take another --study-dir"
        )


def _texts(values: tuple[Any, ...] | Range) -> dict[Any, Any]:
    """What Optuna calls a value -> the value: itself, or its text where it is a list."""
    return {json.dumps(value) if isinstance(value, tuple) else value: value for value in values}


def suggest(trial: optuna.Trial, space: Space) -> dict[str, Any]:
    """The settings of a trial, by path."""
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


def work(
    plan: Plan,
    study: optuna.Study,
    trials: int,
    timeout: float | None = None,
    notify: Callable[[Event], None] = lambda event: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> None:
    """Take trials one after another until the study has so many, or the time is over.

    Args:
        plan: what is searched.
        study: from `open_study`; other processes may be at work on it.
        trials: how many it is to have, over all workers and calls; no more than its grid has points.
        timeout: seconds after which no new one is begun.
        notify: called with every event of a trial's training, and the trial's number in it.
        interrupted: asked after every step; True stops cleanly with `compgcn.train.loop.Interrupted`.
    """
    trials = int(min(trials, grid_size(plan.space)))
    _take_over(study)

    def enough(study: optuna.Study, _: Any = None) -> None:
        if _begun(study) >= trials:
            study.stop()

    def objective(trial: optuna.Trial) -> float:
        trial.set_user_attr("worker", [platform.node(), os.getpid()])
        return _try(plan, study, trial, notify, interrupted)

    if _begun(study) < trials:
        study.optimize(objective, timeout=timeout, callbacks=[enough], catch=(InputError,))


def finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """The trials that came to an end: complete, stopped early, or refused; not those that were interrupted."""
    states = _optuna().trial.TrialState
    ended = (states.COMPLETE, states.PRUNED)
    trials = study.get_trials(deepcopy=False)
    return [trial for trial in trials if trial.state in ended or "error" in trial.user_attrs]


def _begun(study: optuna.Study) -> int:
    """How many trials have ended or are under way."""
    return len(finished(study)) + len(study.get_trials(deepcopy=False, states=(_optuna().trial.TrialState.RUNNING,)))


def _take_over(study: optuna.Study) -> None:
    """Queue again what a process that is no more left half done; its run goes on from its checkpoint."""
    states = _optuna().trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
        if _is_left(trial):
            study.tell(trial.number, state=states.FAIL)
            study.enqueue_trial(trial.params)


def _is_left(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether the process that had a trial under way is no more, or is this one."""
    machine, process = trial.user_attrs.get("worker", ("", 0))
    return bool(machine == platform.node() and (process == os.getpid() or not _alive(process)))


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # there, and another user's
        return True
    return True


def _try(
    plan: Plan,
    study: optuna.Study,
    trial: optuna.Trial,
    notify: Callable[[Event], None],
    interrupted: Callable[[], bool],
) -> float:
    """Train with the settings of a trial; the best figure of validation."""
    chosen = suggest(trial, plan.space)
    text = json.dumps(chosen, sort_keys=True)
    folder = plan.folder / "trials" / hashlib.sha256(text.encode()).hexdigest()[:12]
    watch = _Watch(trial, plan.goal)
    if _at_work(study, trial):
        raise _optuna().TrialPruned  # another worker is trying the same

    def tell(event: Event) -> None:
        watch(event)
        notify({**event, "trial": trial.number, "settings": chosen})

    try:
        run = train(plan.config(chosen), plan.data, folder, tell, lambda: watch.hopeless or interrupted())
    except Interrupted:
        if not watch.hopeless:
            study.enqueue_trial(trial.params)  # the next worker goes on with it
            raise
        shutil.rmtree(folder, ignore_errors=True)
        raise _optuna().TrialPruned from None
    except InputError as error:  # these settings do not go together, or the loss is not finite
        trial.set_user_attr("error", str(error))
        raise
    trial.set_user_attr("epoch", run.metrics["best_epoch"])
    return float(run.metrics["valid"][plan.goal])


def _at_work(study: optuna.Study, trial: optuna.Trial) -> bool:
    running = (_optuna().trial.TrialState.RUNNING,)
    others = study.get_trials(deepcopy=False, states=running)
    return any(other.params == trial.params and other.number < trial.number for other in others)


class _Watch:
    """Reports the validation curve of a trial, and sees when it falls behind the others.

    Of one training every evaluation counts; of a cross-validation, every fold: the mean of the best of each so far.
    """

    def __init__(self, trial: optuna.Trial, goal: str) -> None:
        self._trial, self._goal = trial, goal
        self._folds: dict[str, float] = {}
        self.hopeless = False

    def __call__(self, event: Event) -> None:
        value = event.get("valid", {}).get(self._goal)
        if event["event"] != "epoch" or value is None:
            return
        if "part" not in event:
            self._report(value, event["epoch"])
            return
        part = event["part"]
        self._folds[part] = max(self._folds.get(part, -math.inf), value)
        if event["epoch"] == event["epochs"]:
            self._report(sum(self._folds.values()) / len(self._folds), len(self._folds))

    def _report(self, value: float, step: int) -> None:
        self._trial.report(value, step)
        self.hopeless = self._trial.should_prune()


def result(plan: Plan, study: optuna.Study) -> dict[str, Any]:
    """What came of a study so far: how many trials ended how, the best of them, and which settings mattered."""
    states = _optuna().trial.TrialState
    ended = finished(study)
    complete = [trial for trial in ended if trial.state == states.COMPLETE]
    if not complete:
        reasons = [trial.user_attrs["error"] for trial in ended if "error" in trial.user_attrs]
        raise InputError(f"no trial came to an end{f': {reasons[0]}' if reasons else '; run the command again'}")
    best = max(complete, key=lambda trial: (trial.value, -trial.number))
    return {
        "study": str(plan.folder),
        "goal": plan.goal,
        "trials": len(ended),
        "complete": len(complete),
        "pruned": sum(trial.state == states.PRUNED for trial in ended),
        "refused": sum(trial.state == states.FAIL for trial in ended),
        "best": {
            "trial": best.number,
            "value": best.value,
            "epoch": best.user_attrs["epoch"],
            "settings": settings_of(best, plan.space),
        },
        "importance": importance(study),
    }


def settings_of(trial: optuna.trial.FrozenTrial, space: Space) -> dict[str, Any]:
    """What a trial tried, by path."""
    chosen = {}
    for path, value in trial.params.items():
        values = space[path]
        chosen[path] = value if isinstance(values, Range) else _texts(values)[value]
    return chosen


def importance(study: optuna.Study) -> dict[str, float]:
    """How much of what the trials reached each setting explains, all together 1; nothing if it cannot be told.

    That takes `FEWEST` finished trials, and not all of them alike.
    """
    optuna = _optuna()
    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if len(complete) < FEWEST or len({trial.value for trial in complete}) < 2:
        return {}
    return {path: float(share) for path, share in optuna.importance.get_param_importances(study).items()}


def history(study: optuna.Study) -> list[tuple[int, float | None]]:
    """Of every trial that ended its number and its figure, None where it was stopped early or refused."""
    return [(trial.number, trial.value) for trial in finished(study)]


def best_config(plan: Plan, study: optuna.Study) -> Config:
    """The settings of the best trial, for the whole data: a file of them is what `compgcn train` takes.

    What bounded the trials only, see `Plan`, is not among them.
    """
    return configure(plan.final(result(plan, study)["best"]["settings"]), {"data.fingerprint": None})


def write_best(plan: Plan, study: optuna.Study) -> Path:
    """Write these settings into the folder of the study, all or nothing."""
    path = plan.folder / "best.toml"
    text = to_toml(best_config(plan, study))
    replace_file(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path
