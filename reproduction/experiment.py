"""Reproduce a table or a figure: a TOML says what the paper has and how each row is trained; a result is a small JSON.

A result holds all that any report needs, so that reports are made without training and without the data. Results of
several machines are merged by copying files.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, ValidationError

from compgcn.baselines import BASELINES, FitOnce
from compgcn.config import PATHS, Config, Section, configure, in_file, names, read_tree
from compgcn.data import DATASETS, GraphCollection, KnowledgeGraph, Labels, Vocabulary, datasets, find
from compgcn.data.graph import restricted, top_relations
from compgcn.errors import InputError, unknown
from compgcn.run import Run, train
from compgcn.run.report import curve, parameters
from compgcn.run.resolve import expand, recommended
from compgcn.tasks.inputs import Dataset
from compgcn.train.loop import Event
from compgcn.train.recipes import model as find_model
from compgcn.train.storage import replace as replace_file

_DIGITS = 6


def kept(run: Run) -> dict[str, Any]:
    """All that any report needs of a run: models are large and stay where they were trained."""
    config = json.loads(run.config.model_dump_json())
    environment = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    text = json.dumps({**config, "training": {**config["training"], "seed": None, "device": None}}, sort_keys=True)
    found: dict[str, Any] = {
        "hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        "config": config,
        "parameters": parameters(run.task),
        "environment": environment,
        "metrics": run.metrics,
        "curve": curve(run.path / "events.jsonl"),
    }
    if run.config.task == "link-prediction" and run.metrics["test"]:
        found["by_category"] = run.evaluate("test", "category")
        found["by_relation"] = {name: _short(report) for name, report in run.evaluate("test", "relation").items()}
    if run.config.classifier.protocol in (None, "refit", "holdout") and run.metrics["test"]:
        found["calibration"] = [one._asdict() for one in run.answers.calibration("test")]
    rounded: dict[str, Any] = _rounded(found)
    return rounded


def _short(report: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of each of hundreds of relations."""
    sides = {side: report[side]["mrr"] for side in ("head", "tail")}
    return {"triples": report["triples"], "mrr": report["mrr"], "hits@10": report["hits@10"], **sides}


def _rounded(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _rounded(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_rounded(value) for value in tree]
    return float(f"{tree:.{_DIGITS}g}") if isinstance(tree, float) else tree


def write(path: Path, result: Mapping[str, Any]) -> None:
    """A result as JSON, with a list of numbers, or an object of them, on one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _compact(json.dumps(result, indent=1))
    replace_file(path, lambda part: part.write_text(text + "\n", encoding="utf-8"))


def _compact(text: str) -> str:
    return re.sub(r"[\[{]\n[^\[\]{}]*[\]}]", lambda match: re.sub(r"\n\s*", " ", match[0]), text)


_COUNTRIES = 40
_DIMENSION = 16
_ABOUT = ("borders", "speaks", "uses_currency", "capital", "on_continent")


def smoke_data(config: Config) -> Dataset:
    """A small graph for the task of a config's data: countries; their continents to tell; a graph around each."""
    known = DATASETS.get(config.data.source)
    task = config.task or (known.task if known is not None else "link-prediction")
    if task == "node-classification":
        return _nodes()
    if task == "graph-classification":
        return _graphs()
    graph = countries()
    wanted = config.data.top_relations
    return graph if wanted is None else top_relations(graph, min(wanted, graph.num_relations))


def countries() -> KnowledgeGraph:
    """What the embedded graph says of some countries."""
    whole = datasets.load_world()
    about = [whole.relations.index(name) for name in _ABOUT]
    continent = whole.train[whole.train[:, 1] == about[-1]]
    chosen = continent[:_COUNTRIES, 0]
    return restricted(
        whole,
        {part: np.isin(rows[:, 1], about) & np.isin(rows[:, 0], chosen) for part, rows in whole.splits.items()},
    )


def _by_continent(graph: KnowledgeGraph) -> tuple[Any, Any, Any]:
    """Countries, whether each is in Europe, and all other facts of them."""
    rows = np.concatenate(list(graph.splits.values()))
    told = rows[:, 1] == graph.relations.index("on_continent")
    places = rows[told]
    return places[:, 0], (places[:, 2] == graph.entities.index("Europe")).astype(np.int64), rows[~told]


def _nodes() -> KnowledgeGraph:
    graph = countries()
    nodes, classes, facts = _by_continent(graph)
    rows = np.column_stack([nodes, classes])
    third = len(rows) // 3
    labels = Labels(("elsewhere", "Europe"), rows[third:], rows[:0], rows[:third])
    empty = np.empty((0, 3), dtype=np.int64)
    return replace(graph, train=facts, valid=empty, test=empty, labels=labels)


def _graphs() -> GraphCollection:
    graph = countries()
    nodes, classes, facts = _by_continent(graph)
    triples, graph_of, labels, start = [], [], [], 0
    for number, node in enumerate(nodes):
        around = facts[facts[:, 0] == node]
        triples += [(start, int(r), start + 1 + k) for k, (_, r, _) in enumerate(around)]
        graph_of += [number] * (1 + len(around))
        labels += [0, *(1 + int(r) for r in around[:, 1])]
        start += 1 + len(around)
    return GraphCollection(
        "countries",
        Vocabulary("relation", graph.relations.ids),
        ("elsewhere", "Europe"),
        graph_of=np.array(graph_of),
        triples=np.array(triples, dtype=np.int64),
        targets=classes,
        node_labels=np.array(labels),
        node_classes=("country", *graph.relations.ids),
        graph_ids=tuple(graph.entities.ids[node] for node in nodes),
    )


def smoke_settings(config: Config) -> dict[str, Any]:
    """What makes a model of the same kind small and its training short."""
    few: dict[str, Any] = {}
    if config.task != "link-prediction":
        few |= {"classifier.folds": 2, "classifier.inner_folds": 2}
    baseline = BASELINES.get(config.classifier.baseline or "")
    if baseline is not None and isinstance(baseline.how, FitOnce):
        return few
    few |= {
        "encoder.dims": tuple(min(dim, _DIMENSION) for dim in config.encoder.dims),
        "encoder.bases": min(config.encoder.bases, 2),
        "training.epochs": 1 if config.task == "link-prediction" else 2,
        "training.evaluate_every": 1,
        "training.batch_size": 64,
    }
    if config.decoder.name == "conve":
        few |= {"decoder.filters": 4, "decoder.kernel": 3}
    return few


FOLDER = "experiments"
_HERE = Path(__file__).parents[2] / FOLDER  # of a checkout
_EMPTY: Any = Field(default_factory=dict)

OLDER = "older settings"  # of results that were made with other settings than the row has now
TRIAL = "trial run"  # of results of small models on a small graph

# What makes no other result: whose turn it is, where it runs and how often it saves; of the data, their names do.
_FREE = {
    *("data.fingerprint", "training.seed", "training.device", "training.checkpoint_seconds"),
    *("training.step", "training.deterministic"),
}
_BY_DATA = {"encoder.input": None, "training.precision": "auto"}  # until they are known


class Row(Section):
    """A row of a table, or a point of a figure."""

    name: str = Field(pattern=r"^[a-z0-9.-]+$")  # also that of its files
    label: str
    source: str  # the label of the paper's table, or the work a figure is quoted from
    group: str = ""  # rows of one group stand together, and only they are compared
    paper: dict[str, float] = _EMPTY  # what the paper has, by figure: "mrr", "category/1-1/head/mrr", "accuracy" in %
    also: dict[str, float] = _EMPTY  # what it has in another place, where it contradicts itself
    spread: dict[str, float] = _EMPTY  # its ±
    model: str | None = None  # a whole system, see `compgcn.train.recipes`; settings come on top
    settings: dict[str, Any] | None = None  # of training; None: quoted, and not run here
    same_as: str | None = None  # "experiment/row", whose results these are
    control: str | None = None  # the row of the same decoder without an encoder; of differences, the row it changes
    x: float | None = None  # of a point
    series: str = ""
    missing: str = ""  # why it was not run
    note: str = ""


class Experiment(Section):
    """A table or a figure of the paper, or differences between rows that it has no figures of."""

    title: str
    source: str  # its label in the paper
    kind: Literal["table", "figure", "generated", "differences"] = "table"
    ranks: str = ""  # how the paper takes ranks, as far as it says
    metrics: tuple[str, ...] = ()  # the figures, the first being the one that verdicts go by
    split: Literal["valid", "test"] = "test"  # what the paper's figures are of
    seeds: int = Field(1, ge=1)
    folds: int = Field(1, ge=1)  # what the paper's ± is over, if not over seeds
    settings: dict[str, Any] = _EMPTY  # common to all rows
    rows: tuple[Row, ...] = ()
    reference: str = ""  # of a figure: the row, or the series, that its points are relative to
    axis: str = ""  # of a figure: what x is
    seeds_of: tuple[str, ...] = ()  # of differences: each an "experiment/row", whose seeds say how far chance goes
    note: str = ""
    name: str = ""  # that of its file

    def row(self, name: str) -> Row:
        """The row of that name."""
        found = {row.name: row for row in self.rows}
        if name not in found:
            raise unknown(f"row of {self.name}", name, found)
        return found[name]


def read_experiment(path: Path) -> Experiment:
    """The experiment in a TOML file."""
    tree = read_tree(path)
    try:
        made = Experiment.model_validate_json(json.dumps({**tree, "name": path.stem}))
    except ValidationError as error:
        raise in_file(error, path) from None
    for row in made.rows:
        if row.settings is not None:
            configure(Config(), chosen(made, row), f"{path}, row '{row.name}': ")
    return made


def find_folder() -> Path:
    """Where the experiments are: in the current folder, or in the checkout the package runs from."""
    for folder in (Path(FOLDER), _HERE):
        if folder.is_dir():
            return folder
    raise InputError(f"there is no folder '{FOLDER}' here; run this in a checkout of the project, or name a .toml file")


def known() -> dict[str, Path]:
    """The files of all, by name."""
    return {path.stem: path for path in sorted(find_folder().glob("*.toml")) if path.stem != "claims"}


def experiments(names: Sequence[str] = ()) -> dict[str, Experiment]:
    """Those of the given names or files, or all."""
    if any(name.endswith(".toml") for name in names):
        return {path.stem: read_experiment(path) for path in map(Path, names)}
    paths = known()
    for name in names:
        if name not in paths:
            raise unknown("experiment", name, paths, listed=len(paths))
    return {name: read_experiment(paths[name]) for name in names or paths}


def chosen(experiment: Experiment, row: Row) -> dict[str, Any]:
    """The settings a row asks for, by dotted name."""
    system = {} if row.model is None else find_model(row.model).settings
    return {**system, **names(experiment.settings), **names(row.settings or {})}


# From a row to its result


class Job(NamedTuple):
    """A row to be trained with a seed."""

    experiment: Experiment
    row: Row
    seed: int
    figures: frozenset[tuple[str, str]] = frozenset()  # splits and metrics that some experiment has of it

    @property
    def name(self) -> str:
        return f"{self.row.name}-{self.seed}"

    def file(self, results: Path) -> Path:
        """Where its result is."""
        return results / self.experiment.name / f"{self.name}.json"


def rows_of(experiment: Experiment, names: Iterable[str]) -> list[str]:
    """Of names such as 'conve-none', of a row of any experiment, and 'encoders/conve-none', those of this one."""
    parts = [name.rpartition("/") for name in names]
    return [row for home, _, row in parts if home in ("", experiment.name)]


def jobs(found: Iterable[Experiment], rows: Sequence[str] = (), seeds: int | None = None) -> list[Job]:
    """What there is to train for some experiments: of the named rows, or all that are not quoted; every one once."""
    found = list(found)
    made: dict[tuple[str, str, int], Job] = {}
    asked = _figures(found)
    pairs = [(experiment, row) for experiment in found for row in experiment.rows]
    if rows:  # in the order in which they are named
        pairs = [(one, one.row(name)) for asked_for in rows for one in found for name in rows_of(one, [asked_for])]
    for experiment, row in pairs:
        home, own = at_home(experiment, row)
        if own.settings is None:
            if rows:
                raise InputError(f"row '{row.name}' is quoted from {row.source}; there is nothing to train")
            continue
        for seed in range(seeds or experiment.seeds):
            job = Job(home, own, seed, frozenset(asked.get((home.name, own.name), ())))
            made.setdefault((home.name, own.name, seed), job)
    return list(made.values())


def _figures(found: Sequence[Experiment]) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """The splits and metrics that any experiment, of those given or of the project, has of a row, by its home."""
    own = {experiment.name: experiment for experiment in found}
    every = (experiments() if any(folder.is_dir() for folder in (Path(FOLDER), _HERE)) else {}) | own
    asked: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for experiment in every.values():
        for row in experiment.rows:
            home, _, name = (row.same_as or f"{experiment.name}/{row.name}").partition("/")
            asked.setdefault((home, name), set()).update((experiment.split, metric) for metric in experiment.metrics)
    return asked


def at_home(experiment: Experiment, row: Row) -> tuple[Experiment, Row]:
    """The experiment and the row whose results a row has."""
    if row.same_as is None:
        return experiment, row
    home, _, name = row.same_as.partition("/")
    other = experiments([home])[home]
    return other, other.row(name)


def control_of(experiment: Experiment, row: Row) -> tuple[Experiment, Row] | None:
    """The control of a row, or that of the row whose results it has, and the experiment where it stands."""
    home = experiment
    if row.control is None:
        home, row = at_home(experiment, row)
    return None if row.control is None else (home, home.row(row.control))


def results(folder: Path, experiment: Experiment, row: Row) -> tuple[str, list[dict[str, Any]]]:
    """The results of a row, one for each seed, and what they are.

    "": of the settings the row has now. Where there are none, `OLDER`: of other settings, the same for all of them; or
    `TRIAL`. Results of different kinds are never mixed.
    """
    home, own = at_home(experiment, row)
    files = sorted((folder / home.name).glob(f"{own.name}-*.json"))
    pattern = re.compile(re.escape(own.name) + r"-\d+\.json")
    found = [_load(path) for path in files if pattern.fullmatch(path.name)]
    found.sort(key=lambda one: int(one["seed"]))
    real = [one for one in found if not one.get("smoke")]
    now = [one for one in real if _matches(home, own, one)]
    if now or not found:
        return "", now
    if real:
        return OLDER, [one for one in real if one.get("hash") == real[0].get("hash")]
    return TRIAL, found


def is_done(job: Job, folder: Path, *, smoke: bool = False) -> bool:
    """Whether there is a result of the settings the row has now, with all figures that experiments have of it.

    A trial run is done by a result of one, and nothing else is.
    """
    path = job.file(folder)
    if not path.is_file():
        return False
    result = _load(path)
    if bool(result.get("smoke")) != smoke or not all(_holds(result, *figure) for figure in job.figures):
        return False
    return smoke or _matches(job.experiment, job.row, result)


def _holds(result: Mapping[str, Any], split: str, metric: str) -> bool:
    """Whether a result has a figure, or would have it if the data had such relations."""
    *parts, last = metric.split("/")
    return bool(result.get(f"by_{parts[0]}")) if parts else last in result["metrics"].get(split, {})


def _load(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not {"config", "metrics", "seed", "environment"} <= found.keys():
            raise ValueError("it is no result of a row")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); remove it and run the row again") from None
    return found


def _matches(experiment: Experiment, row: Row, result: Mapping[str, Any]) -> bool:
    """Whether a result was made with all the settings that the row has now, given or by default."""
    wanted, kept = _leaves(expected(experiment, row)), _leaves(_config(result))
    free = set(_FREE) | {path for path, unknown in _BY_DATA.items() if wanted[path] == unknown}
    if kept["task"] != "link-prediction":  # which has no decoder, and no choice of loss
        free |= {"training.loss", *(path for path in wanted if path.startswith("decoder."))}
    if wanted["task"] is None:
        free.add("task")
    if len(wanted["encoder.dims"]) == len(kept["encoder.dims"]) > 1 and kept["encoder.input"] != "learned":
        for config in (wanted, kept):  # the first may be that of the data
            config["encoder.dims"] = config["encoder.dims"][1:]
    return all(kept[path] == value for path, value in wanted.items() if path not in free)


def expected(experiment: Experiment, row: Row) -> Config:
    """The config a row has now, as far as it can be told without the data."""
    settings = chosen(experiment, row)
    asked = configure(Config(), settings)
    known = DATASETS.get(asked.data.source)
    sample = _sample(asked.task or (known.task if known is not None else "link-prediction"))
    config = recommended(settings, sample, row.model)
    try:
        whole = expand(config, sample)
    except InputError:  # a baseline whose libraries are not installed, say
        return config
    return configure(whole, {"encoder.input": config.encoder.input})


@cache
def _sample(task: str) -> Dataset:
    """Small data of a task: what is recommended depends on no more of them."""
    return smoke_data(configure(Config(), {"task": task}))


def _leaves(config: Config) -> dict[str, Any]:
    return names(config.model_dump())


def _config(result: Mapping[str, Any]) -> Config:
    """The config of a result; settings that have come since take their defaults, and those that went are dropped."""
    kept = {path: value for path, value in names(result["config"]).items() if path in PATHS and value is not None}
    return configure(Config(), kept)


def reproduce(
    job: Job,
    folder: Path,
    runs: Path,
    *,
    smoke: bool = False,
    device: str = "auto",
    beside: int = 0,
    notify: Callable[[Event], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Path:
    """Train a row, or go on where it was stopped, and write its result; nothing if it is there already.

    Args:
        job: which row, with which seed.
        folder: of results.
        runs: where the run folders are; they can be removed when the results are written.
        smoke: on a small graph that comes with the package and with small models, to see that everything works.
        device: where to train.
        beside: how many other rows are trained there at the same time at most; its seconds are to be read so.
        notify, interrupted: see `compgcn.run.train`.
    """
    path = job.file(folder)
    if is_done(job, folder, smoke=smoke):
        return path
    settings = {**chosen(job.experiment, job.row), "training.seed": job.seed, "training.device": device}
    asked = configure(Config(), settings)
    data = smoke_data(asked) if smoke else find(asked.data, asked.task)
    config = expand(recommended(settings, data, job.row.model), data)
    if smoke:
        config = expand(configure(config, smoke_settings(config)), data)
    if torch.cuda.is_available():  # the peak of this row, and not of those before
        torch.cuda.reset_peak_memory_stats()
    run = train(config, data, runs / job.experiment.name / job.name, notify, interrupted)
    result = {"experiment": job.experiment.name, "row": job.row.name, "seed": job.seed, **kept(run)}
    if beside:
        result["environment"]["beside"] = beside
    if smoke:
        result["smoke"] = True
    write(path, result)
    if smoke:  # the next trial run may be one of other code
        shutil.rmtree(run.path, ignore_errors=True)
    return path
