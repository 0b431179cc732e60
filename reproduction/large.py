"""Benchmark of large graphs: time and peak memory of every stage, from reading to discoveries, against their size."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

import compgcn
from compgcn.answers.discover import discover
from compgcn.answers.links import Links
from compgcn.config import Config
from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.data.columns import Numbers
from compgcn.data.datasets import LARGE_ENCODED, LARGE_RECIPE, large_batch
from compgcn.errors import InputError
from compgcn.run.resolve import recommended, resolve
from compgcn.run.run import fit_probabilities
from compgcn.tasks.link_prediction import LinkTask
from compgcn.train.loop import make_step
from compgcn.train.storage import reason
from reproduction.bench import Report, Say, _peak, _start_peak, environment, free, fresh_task
from reproduction.synthetic import synthetic, write

SIZES = ("100000:20000:100", "1000000:200000:100", "10000000:1000000:500")
_RANKED, _PREDICTED, _WARM_UP = 20_000, 1_000, 5
_WHOLE = 10**7  # triples of a graph up to which every stage is measured whole
_STEPS = 50  # of an epoch of a larger one
_PEER = 16  # queries at a time of PyKEEN's evaluation


def sizes_of(text: str) -> tuple[int, int, int]:
    """Parse TRIPLES:ENTITIES:RELATIONS."""
    parts = text.removesuffix(", large").replace("_", "").split(":")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise InputError(f"'{text}' is no size; write TRIPLES:ENTITIES:RELATIONS, such as 1000000:200000:100")
    triples, entities, relations = map(int, parts)
    return triples, entities, relations


def settings_of(size: str) -> dict[str, Any]:
    """Return the settings of "SIZE, large", the recipe for large graphs whatever the size; none of a size alone."""
    return dict(LARGE_RECIPE) if size.endswith(", large") else {}


def models(data: KnowledgeGraph) -> dict[str, dict[str, Any]]:
    """Return the settings of the models that are measured: both recipes for large graphs."""
    encoder = {"encoder.name": "compgcn", "encoder.dims": (100, 100)}
    batch = {"training.batch_size": large_batch(len(data.train))}
    return {"distmult + compgcn": {**LARGE_ENCODED, **encoder, **batch}, "distmult": dict(LARGE_RECIPE)}


class Stages:
    """Stages of one size, each with its seconds and the GiB at its peak; a stage that fails is recorded as such."""

    def __init__(self, device: torch.device, say: Say, keep: Callable[[], None]) -> None:
        self._device, self._say, self._keep = device, say, keep

    def __call__(self, into: Report, name: str, call: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """Run a stage and return its value; None if it fails."""
        self._say(name)
        value, _ = None, _start_peak(self._device)
        begun, busy = time.perf_counter(), time.process_time()
        try:
            value = call(*given, **options)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            into[name] = {
                "seconds": round(time.perf_counter() - begun, 3),
                "cpu_seconds": round(time.process_time() - busy, 3),  # on a busy machine they tell more
                "gib": round(_peak(self._device) / 1024, 3),
            }
        except Exception as error:  # the other stages go on
            into[name] = {"failed": f"{type(error).__name__}: {reason(error)}"}
        self._keep()
        return value


def bench_large(
    sizes: Sequence[tuple[int, int, int]],
    device: torch.device,
    to: Path | None,
    say: Say,
    *,
    recipe: bool = False,
    peer: bool = False,
) -> Report:
    """Measure graphs of TRIPLES, ENTITIES, RELATIONS; `to` gets the report after every stage, beside its other rows.

    The epoch is one of all training triples, after the steps that compile and record. A graph of more than `_WHOLE`
    triples goes without text and answers, and its epoch is a multiple of `_STEPS` steps. With `recipe`, train the
    recommended model to its end instead; with `peer`, also measure PyKEEN's DistMult.
    """
    report: Report = {"bench": "large", "environment": environment(device), "rows": []}
    if to is not None and to.is_file():
        others = json.loads(to.read_text(encoding="utf-8"))["rows"]
        report["rows"] = [row for row in others if (row["triples"], row["entities"], row["relations"]) not in sizes]

    def keep() -> None:
        if to is not None:
            to.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")

    stage = Stages(device, say, keep)
    for triples, entities, relations in sizes:
        row: Report = {"triples": triples, "entities": entities, "relations": relations, "models": {}}
        row["environment"] = report["environment"]
        report["rows"] = sorted([*report["rows"], row], key=itemgetter("triples"))
        say(f"{triples:,} triples, {entities:,} entities, {relations:,} relations")
        with tempfile.TemporaryDirectory() as folder:
            data = _read(stage, row, Path(folder), device)
            if data is not None and recipe:
                _train(stage, row, data, Path(folder), device)
            elif data is not None:
                for name, settings in models(data).items():
                    _measure(stage, row["models"].setdefault(name, {}), data, settings, device)
                if peer:
                    _measure_peer(stage, row["models"].setdefault("PyKEEN's distmult", {}), data, device)
        keep()
    return report


def _read(stage: Stages, row: Report, folder: Path, device: torch.device) -> KnowledgeGraph | None:
    """Generate, write and read a graph that holds out as many triples as are ranked, or a tenth."""
    sizes = row["triples"], row["entities"], row["relations"]
    made = stage(row, "generate", synthetic, *sizes, device=str(device))
    share, found = min(0.1, 1.05 * _RANKED / row["triples"]), None
    if made is not None and row["triples"] > _WHOLE:
        found = stage(row, "name", _named, made, *sizes[1:], int(share * len(made)))
    elif made is not None:
        stage(row, "write", write, folder / "graph.tsv", made)
        found = stage(row, "read", compgcn.read, folder / "graph.tsv", valid_fraction=share, test_fraction=share)
    return cast(KnowledgeGraph | None, found)


def _named(facts: Numbers, entities: int, relations: int, held_out: int) -> KnowledgeGraph:
    names = Vocabulary("entity", [f"e{i}" for i in range(entities)])
    relation_names = Vocabulary("relation", [f"r{i}" for i in range(relations)])
    valid, test, train = np.split(facts, (held_out, 2 * held_out))
    return KnowledgeGraph("large", names, relation_names, train, valid, test)


def _measure(stage: Stages, into: Report, data: KnowledgeGraph, settings: dict[str, Any], device: torch.device) -> None:
    free(device)
    config = resolve({"data.source": "large.tsv", **settings}, data).config
    task: LinkTask | None = stage(into, "build", fresh_task, config, data, device)
    if task is None:
        return
    whole = len(data.train) <= _WHOLE
    into["parameters"] = sum(p.numel() for p in task.module.parameters())
    into["batch"], into["steps"] = task.batch_size, task.steps_per_epoch
    update = stage(into, "warm up", _warmed, task, config)
    if update is not None:
        taken = task.steps_per_epoch if whole else min(_STEPS, task.steps_per_epoch)
        stage(into, "shuffle", task.examples, 1, 0)
        stage(into, "epoch", lambda: [update(task.examples(1, i), config.training.lr) for i in range(taken)][-1].item())
        for key in ("seconds", "cpu_seconds"):
            if key in into["epoch"]:
                every = into["epoch"][key] * task.steps_per_epoch / taken
                into["epoch"][key] = round(into["shuffle"][key] + every, 3)
    test = task.splits["test"][:_RANKED]
    into["ranked"] = len(test)
    stage(into, "evaluate", task.rank, test)
    if config.encoder.name != "none" or not whole:  # the answers cost the same with an encoder
        return
    links = Links(config, data, task)
    stage(into, "calibrate", fit_probabilities, links)
    queries = [(int(s), int(r), None) for s, r, _ in data.test[:_PREDICTED]]
    stage(into, "predict", links.answer, queries, top=10)
    stage(into, "discover", discover, links, top=100)


def _measure_peer(stage: Stages, into: Report, data: KnowledgeGraph, device: torch.device) -> None:
    """Measure PyKEEN's DistMult with our dimension, batch, optimiser and rate, and a negative for each triple."""
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import DistMult
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import CoreTriplesFactory

    free(device)
    parts = [torch.from_numpy(np.ascontiguousarray(part)) for part in (data.train, data.valid, data.test[:_RANKED])]
    facts = CoreTriplesFactory(parts[0], num_entities=data.num_entities, num_relations=data.num_relations)
    dim, batch, rate = (LARGE_RECIPE[name] for name in ("encoder.dims", "training.batch_size", "training.lr"))
    model = stage(
        into, "build", lambda: DistMult(triples_factory=facts, embedding_dim=dim[0], random_seed=0).to(device)
    )
    if model is None:
        return
    into["parameters"], into["batch"] = sum(p.numel() for p in model.parameters()), batch
    into["version"], into["ranked"] = version("pykeen"), len(parts[2])
    optimiser = torch.optim.Adagrad(model.get_grad_params(), lr=rate)
    loop = SLCWATrainingLoop(model=model, triples_factory=facts, optimizer=optimiser)
    train = partial(loop.train, facts, num_epochs=1, batch_size=batch, use_tqdm=False, use_tqdm_batch=False)
    stage(into, "epoch", train)
    rank = partial(RankBasedEvaluator(filtered=True).evaluate, model, parts[2], use_tqdm=False)
    stage(into, "evaluate", lambda: rank(additional_filter_triples=parts[:2], batch_size=_PEER))


def _warmed(task: LinkTask, config: Config) -> Callable[[torch.Tensor, float], torch.Tensor]:
    update = make_step(task, config.training, steps=1)  # too few to be worth compiling
    for step in range(_WARM_UP):
        update(task.examples(0, step % task.steps_per_epoch), config.training.lr)
    return update


def _train(stage: Stages, row: Report, data: KnowledgeGraph, folder: Path, device: torch.device) -> None:
    """Train the recommended model to its end."""
    settings: dict[str, Any] = {"device": str(device)}
    if not recommended({"data.source": "large.tsv"}, data).training.test_sample:
        settings |= LARGE_RECIPE  # smaller graphs get it too
    run = stage(row, "recipe", compgcn.fit, data, run_dir=folder / "run", **settings)
    if run is not None:
        row["recipe"] |= {"mrr": run.metrics["test"]["mrr"], "best_epoch": run.metrics["best_epoch"]}
        row["recipe"]["popularity"] = run.metrics["popularity"]["test"]["mrr"]
