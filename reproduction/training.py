"""Train a row of an experiment and keep its result: a small JSON with everything a report needs.

Reports need neither the model nor the data. Copy result files into one folder to merge several machines.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from compgcn.baselines import BASELINES, FitOnce
from compgcn.cli.train import stop_requests
from compgcn.config import Config, configure, names
from compgcn.data import DATASETS, GraphCollection, KnowledgeGraph, Labels, datasets, find
from compgcn.data.graph import restricted, top_relations
from compgcn.errors import InputError
from compgcn.nn.conditional import ConditionalCompGCN, ConditionalLayer, View
from compgcn.nn.graph import RelationalGraph
from compgcn.run.report import curve, parameters
from compgcn.run.resolve import expand, recommended, resolve
from compgcn.run.run import Run, train
from compgcn.tasks.facts import Answers
from compgcn.tasks.inputs import Dataset
from compgcn.tasks.ranking import SideRanks, by_category, by_relation, summary
from compgcn.train.storage import replace as replace_file
from reproduction.experiment import Experiment, Job, Row, at_home, chosen

# Settings that change no result: the seed and the data, which a result names, and where and how fast training runs.
_FREE = {
    *("fingerprint", "training.seed", "training.device", "training.checkpoint_seconds"),
    *("training.step", "training.deterministic", "data.literals"),  # a data set is read in its own way
}
_BY_DATA = {"encoder.input": None, "training.precision": "auto"}  # before data are read


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
    """Train a row in a folder of `runs`, or resume it, and write its result; return at once if the result exists.

    `smoke` trains a small model on a small graph; `beside` records how many other rows share the device.
    """
    path = job.file(folder)
    if is_done(job, folder, smoke=smoke):
        return path
    settings = {**chosen(job.experiment, job.row), "training.seed": job.seed, "training.device": device}
    wanted = configure(Config(), settings)
    data = trial_data(wanted) if smoke else find(wanted.data, wanted.task)
    config = resolve(settings, data, job.row.model).config
    if smoke:
        config = expand(configure(config, trial_settings(config)), data)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()  # the peak of this row alone
    run = train(config, data, runs / job.experiment.name / job.name, None, interrupted)
    asked = run
    if (other := f"{config.data.source}-ind") in DATASETS:
        asked = run.with_graph(data if smoke and isinstance(data, KnowledgeGraph) else other)
    result = {"experiment": job.experiment.name, "row": job.row.name, "seed": job.seed, **kept(run, asked)}
    if beside:
        result["environment"]["beside"] = beside
    if smoke:
        result["smoke"] = True
        shutil.rmtree(run.path, ignore_errors=True)  # the next trial may run other code
    path.parent.mkdir(parents=True, exist_ok=True)
    text = re.sub(
        r"[\[{]\n[^\[\]{}]*[\]}]", lambda match: re.sub(r"\n\s*", " ", match[0]), json.dumps(result, indent=1)
    )
    replace_file(path, lambda part: part.write_text(text + "\n", encoding="utf-8"))
    return path


def train_job(job: Job, **options: Any) -> None:
    """Train a row until a signal stops it; a process of its own can import this."""
    with stop_requests() as stopped, VARIANTS[job.row.variant]:
        train_row(job, interrupted=stopped, **options)


def kept(run: Run, asked: Run) -> dict[str, Any]:
    """Return everything a report needs from a run; `asked` is the run on the graph that answers for its test split."""
    found: dict[str, Any] = {
        "config": json.loads(run.config.model_dump_json()),
        "parameters": parameters(run.task),
        "environment": run.folder.environment(),
        "metrics": run.metrics,
        "curve": curve(run.folder.events()),
    }
    if run.config.task == "link-prediction" and run.metrics["test"]:
        task, data = asked.ranker, asked.data
        sides, relation = task.ranks("test"), task.splits["test"][:, 1]
        if asked is not run:
            test = {**summary(sides), AMONG: among(sides, task.splits["test"], task.known, task.num_entities)}
            found["metrics"] = {**run.metrics, "same graph": run.metrics["test"], "test": test}
        found["by_category"] = by_category(sides, relation, task.splits["train"], task.num_relations)
        assert isinstance(data, KnowledgeGraph)
        found["by_relation"] = {
            data.relations.ids[name]: {key: one[key] for key in ("triples", "mrr", "hits@10")}
            | {side: dict(one[side])["mrr"] for side in ("head", "tail")}
            for name, one in dict[int, Any](by_relation(sides, relation)).items()
        }
    if run.config.classifier.protocol in (None, "refit", "holdout") and run.metrics["test"]:
        found["calibration"] = [one._asdict() for one in asked.answers.calibration("test")]
    rounded: dict[str, Any] = json.loads(json.dumps(found), parse_float=lambda text: float(f"{float(text):.6g}"))
    return rounded


AMONG = "hits@10 (50)"


def among(sides: SideRanks, triples: Tensor, known: Answers, num_entities: int, size: int = 50, top: int = 10) -> float:
    """Return the expected hits@`top` of each true answer among `size` candidates: itself and negatives drawn at random.

    With n negatives of which b score higher, the number drawn among the b is hypergeometric. NBFNet estimates the same
    from its ranks, with draws that may repeat.
    """
    from scipy.stats import hypergeom  # of the extra `baselines`

    s, r, o = triples.unbind(1)
    queries = torch.cat((torch.stack((s, r), 1), torch.stack((o, r + known.num_relations), 1)))  # as the ranks below
    rows, _ = known.lookup(*queries.unbind(1))
    n = num_entities - np.bincount(rows.cpu(), minlength=len(queries))  # the true answer is known too
    better = torch.cat((sides.tail.realistic, sides.head.realistic)).cpu().numpy() - 1
    bounds = np.floor(better), np.ceil(better)  # a tie is half above and half below
    return float(np.mean([hypergeom.cdf(top - 1, n, b, np.minimum(n, size - 1)) for b in bounds]))


def results(folder: Path, experiment: Experiment, row: Row) -> list[dict[str, Any]]:
    """Return the results of a row by seed: those made with its present settings, trial runs apart."""
    home, own = at_home(experiment, row)
    files = [path for path in (folder / home.name).glob("*.json") if path.stem.rpartition("-")[0] == own.name]
    found = sorted((json.loads(path.read_text(encoding="utf-8")) for path in files), key=lambda one: int(one["seed"]))
    return [one for one in found if not one.get("smoke") and _matches(home, own, one)]


def is_done(job: Job, folder: Path, *, smoke: bool = False) -> bool:
    """Tell whether a result with the row's present settings exists; for a trial run, whether one of a trial exists."""
    path = job.file(folder)
    if not path.is_file():
        return False
    result = json.loads(path.read_text(encoding="utf-8"))
    if smoke or result.get("smoke"):
        return smoke and bool(result.get("smoke"))
    return _matches(job.experiment, job.row, result)


def _matches(experiment: Experiment, row: Row, result: Mapping[str, Any]) -> bool:
    """Tell whether a result was made with all settings that the row has now, given or by default."""
    wanted = names(expected(experiment, row).model_dump(mode="json"))
    made = names(Config().model_dump(mode="json")) | names(result["config"])  # newer settings have their defaults
    free = set(_FREE) | {path for path, unknown in _BY_DATA.items() if wanted.get(path) == unknown}
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
    sample = trial_data(configure(Config(), {"task": task_of(configure(Config(), settings))}))
    config = recommended(settings, sample, row.model)
    try:
        whole = expand(config, sample)
    except InputError:  # for example a baseline whose libraries are not installed
        return config
    return configure(whole, {"encoder.input": config.encoder.input})


_DIMENSION = 16
_RELATIONS = ("borders", "speaks", "uses_currency", "capital", "on_continent")


def task_of(config: Config) -> str:
    """Return the task of a config; without one, that of its data set."""
    known = DATASETS.get(config.data.source)
    return config.task or (known.task if known is not None else "link-prediction")


@cache
def _countries() -> KnowledgeGraph:
    """Return the facts of the embedded graph about 40 countries, of five relations."""
    whole = datasets.load_world()
    relations = [whole.relations.index(name) for name in _RELATIONS]
    chosen = whole.train[whole.train[:, 1] == relations[-1]][:40, 0]
    splits = whole.splits.items()
    return restricted(whole, {k: np.isin(v[:, 1], relations) & np.isin(v[:, 0], chosen) for k, v in splits})


def trial_data(config: Config) -> Dataset:
    """Return a small graph for the task of a config: facts about countries, or whether each lies in Europe."""
    task, graph = task_of(config), _countries()
    if task == "link-prediction":
        wanted = config.data.top_relations
        return graph if wanted is None else top_relations(graph, min(wanted, graph.num_relations))
    rows = np.concatenate(list(graph.splits.values()))
    located = rows[:, 1] == graph.relations.index("on_continent")
    nodes, facts = rows[located, 0], rows[~located]
    classes = (rows[located, 2] == graph.entities.index("Europe")).astype(np.int64)
    names = ("elsewhere", "Europe")
    if task == "graph-classification":  # a star for each country: the country, and a node for each of its facts
        owner = np.concatenate([np.full(1 + (facts[:, 0] == node).sum(), k) for k, node in enumerate(nodes)])
        kinds = np.concatenate([[0, *(1 + facts[facts[:, 0] == node, 1])] for node in nodes])
        leaves, centre = np.flatnonzero(kinds), np.flatnonzero(kinds == 0)
        triples = np.column_stack([centre[owner[leaves]], kinds[leaves] - 1, leaves])
        shown = owner, triples, classes, kinds, ("country", *graph.relations.ids)
        return GraphCollection("countries", graph.relations, names, *shown)
    labelled, third = np.column_stack([nodes, classes]), len(nodes) // 3
    labels = Labels(names, labelled[third:], labelled[:0], labelled[:third])
    return replace(graph, train=facts, valid=facts[:0], test=facts[:0], labels=labels)


def trial_settings(config: Config) -> dict[str, Any]:
    """Return the settings that make a model of the same kind small and its training short."""
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


# Variants of the conditional model for ablations: they are worse, so no setting offers them.

_view = ConditionalCompGCN.view
_relations = ConditionalLayer.relation_vectors
_reset = ConditionalLayer.reset_parameters


def _degrees_kept(self: ConditionalCompGCN, graph: RelationalGraph, keep: Tensor | None = None) -> View:
    """Return a view whose degrees count hidden edges too."""
    whole = _view(self, graph)
    return _view(self, graph, keep)._replace(degree=whole.degree, scale=whole.scale)


def _free_relations(self: ConditionalLayer, q: Tensor) -> Tensor:
    """Return the same vectors for every query."""
    return _relations(self, torch.zeros_like(q))


def _free_reset(self: ConditionalLayer) -> None:
    """Start them as torch starts the vectors of an embedding."""
    _reset(self)
    nn.init.normal_(self.relation_bias)


VARIANTS: dict[str, AbstractContextManager[Any]] = {
    "": nullcontext(),
    "degrees kept": patch.object(ConditionalCompGCN, "view", _degrees_kept),
    "free relations": patch.multiple(ConditionalLayer, relation_vectors=_free_relations, reset_parameters=_free_reset),
}
