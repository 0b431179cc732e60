"""Train a row of an experiment and keep its result: a small JSON with everything a report needs.

Reports need neither the model nor the data. Copy result files into one folder to merge several machines.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from compgcn.config import Config, configure, names
from compgcn.data import find
from compgcn.errors import InputError
from compgcn.run import Run, train
from compgcn.run.report import curve, parameters
from compgcn.run.resolve import expand, recommended
from compgcn.tasks.inputs import Dataset
from compgcn.train.storage import replace
from reproduction.experiment import Experiment, Job, Row, at_home, chosen
from reproduction.trial import task_of, trial_data, trial_settings

_DIGITS = 6

# Settings that change no result: the seed and the data, which a result names, and where and how fast training runs.
_FREE = {
    *("data.fingerprint", "training.seed", "training.device", "training.checkpoint_seconds", "training.max_shard_mib"),
    *("training.cuda_graph", "training.compile", "training.deterministic"),
}
_BY_DATA = {"encoder.input": None, "encoder.add_inverse": None, "training.precision": "auto"}  # before data are read


def train_row(
    job: Job,
    folder: Path,
    runs: Path,
    *,
    smoke: bool = False,
    device: str = "auto",
    beside: int = 0,
    interrupted: Callable[[], bool] = lambda: False,
) -> Path:
    """Train a row, or resume it, and write its result; return at once if the result exists.

    Args:
        job: the row and the seed.
        folder: folder of results.
        runs: folder of run folders, which can be removed once results are written.
        smoke: train a small model on a small graph, to check that everything works.
        device: device to train on.
        beside: number of other rows trained on the device at the same time, recorded beside the seconds.
        interrupted: see `compgcn.run.train`.
    """
    path = job.file(folder)
    if is_done(job, folder, smoke=smoke):
        return path
    settings = {**chosen(job.experiment, job.row), "training.seed": job.seed, "training.device": device}
    asked = configure(Config(), settings)
    data = trial_data(asked) if smoke else find(asked.data, asked.task)
    config = expand(recommended(settings, data, job.row.model), data)
    if smoke:
        config = expand(configure(config, trial_settings(config)), data)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()  # the peak of this row alone
    run = train(config, data, runs / job.experiment.name / job.name, None, interrupted)
    result = {"experiment": job.experiment.name, "row": job.row.name, "seed": job.seed, **kept(run)}
    if beside:
        result["environment"]["beside"] = beside
    if smoke:
        result["smoke"] = True
        shutil.rmtree(run.path, ignore_errors=True)  # the next trial may run other code
    path.parent.mkdir(parents=True, exist_ok=True)
    text = re.sub(
        r"[\[{]\n[^\[\]{}]*[\]}]", lambda match: re.sub(r"\n\s*", " ", match[0]), json.dumps(result, indent=1)
    )
    replace(path, lambda part: part.write_text(text + "\n", encoding="utf-8"))
    return path


def kept(run: Run) -> dict[str, Any]:
    """Return everything a report needs from a run."""
    config = json.loads(run.config.model_dump_json())
    text = json.dumps({**config, "training": {**config["training"], "seed": None, "device": None}}, sort_keys=True)
    found: dict[str, Any] = {
        "hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        "config": config,
        "parameters": parameters(run.task),
        "environment": json.loads((run.path / "environment.json").read_text(encoding="utf-8")),
        "metrics": run.metrics,
        "curve": curve(run.path / "events.jsonl"),
    }
    if run.config.task == "link-prediction" and run.metrics["test"]:
        found["by_category"] = run.evaluate("test", "category")
        relations = run.evaluate("test", "relation")
        found["by_relation"] = {
            name: {key: one[key] for key in ("triples", "mrr", "hits@10")}
            | {side: one[side]["mrr"] for side in ("head", "tail")}
            for name, one in relations.items()
        }
    if run.config.classifier.protocol in (None, "refit", "holdout") and run.metrics["test"]:
        found["calibration"] = [one._asdict() for one in run.answers.calibration("test")]
    rounded: dict[str, Any] = _rounded(found)
    return rounded


def _rounded(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _rounded(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_rounded(value) for value in tree]
    return float(f"{tree:.{_DIGITS}g}") if isinstance(tree, float) else tree


def results(folder: Path, experiment: Experiment, row: Row) -> list[dict[str, Any]]:
    """Return the results of a row by seed: those made with its present settings, else those of trial runs."""
    home, own = at_home(experiment, row)
    pattern = re.compile(re.escape(own.name) + r"-\d+\.json")
    files = (folder / home.name).glob(f"{own.name}-*.json")
    found = sorted((_load(path) for path in files if pattern.fullmatch(path.name)), key=lambda one: int(one["seed"]))
    real = [one for one in found if not one.get("smoke") and _matches(home, own, one)]
    return real or [one for one in found if one.get("smoke")]


def is_done(job: Job, folder: Path, *, smoke: bool = False) -> bool:
    """Tell whether a result with the row's present settings exists; for a trial run, whether one of a trial exists."""
    path = job.file(folder)
    if not path.is_file():
        return False
    result = _load(path)
    if smoke or result.get("smoke"):
        return smoke and bool(result.get("smoke"))
    return _matches(job.experiment, job.row, result)


def _load(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not {"config", "metrics", "seed", "environment"} <= found.keys():
            raise ValueError("a key is missing")
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); remove it and train the row again") from None
    return found


def _matches(experiment: Experiment, row: Row, result: Mapping[str, Any]) -> bool:
    """Tell whether a result was made with all settings that the row has now, given or by default."""
    wanted = names(expected(experiment, row).model_dump())
    made = names(Config.model_validate_json(json.dumps(result["config"])).model_dump())
    free = set(_FREE) | {path for path, unknown in _BY_DATA.items() if wanted[path] == unknown}
    if made["task"] != "link-prediction":  # classification has neither a decoder nor a choice of loss
        free |= {"training.loss", *(path for path in wanted if path.startswith("decoder."))}
    if wanted["task"] is None:
        free.add("task")
    if len(wanted["encoder.dims"]) == len(made["encoder.dims"]) > 1 and made["encoder.input"] != "learned":
        for config in (wanted, made):  # the data may set the first dimension
            config["encoder.dims"] = config["encoder.dims"][1:]
    return all(made[path] == value for path, value in wanted.items() if path not in free)


def expected(experiment: Experiment, row: Row) -> Config:
    """Return the config of a row, as far as it is known without the data."""
    settings = chosen(experiment, row)
    sample = _sample(task_of(configure(Config(), settings)))
    config = recommended(settings, sample, row.model)
    try:
        whole = expand(config, sample)
    except InputError:  # for example a baseline whose libraries are not installed
        return config
    leaves = names(config.model_dump())
    return configure(whole, {path: leaves[path] for path in ("encoder.input", "encoder.add_inverse")})


@cache
def _sample(task: str) -> Dataset:
    """Return small data of a task: recommended settings depend on nothing else."""
    return trial_data(configure(Config(), {"task": task}))
