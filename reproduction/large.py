"""Benchmark of large graphs: time and peak memory of every stage, from reading to discoveries, against their size."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import compgcn
from compgcn.answers.discover import discover
from compgcn.answers.links import Links
from compgcn.config import Config
from compgcn.data import LARGE_ENCODED, LARGE_RECIPE, KnowledgeGraph, large_batch
from compgcn.errors import InputError
from compgcn.run.resolve import expand, recommended
from compgcn.run.run import fit_probabilities
from compgcn.tasks.link_prediction import LinkTask
from compgcn.train.loop import make_step
from reproduction.bench import Report, Say, _peak, _start_peak, environment, fresh_task
from reproduction.synthetic import synthetic, write

SIZES = ("100000:20000:100", "1000000:200000:100", "10000000:1000000:500")
_RANKED, _PREDICTED, _WARM_UP = 20_000, 1_000, 5


def sizes_of(text: str) -> tuple[int, int, int]:
    """Parse TRIPLES:ENTITIES:RELATIONS."""
    parts = text.replace("_", "").split(":")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise InputError(f"'{text}' is no size; write TRIPLES:ENTITIES:RELATIONS, such as 1000000:200000:100")
    triples, entities, relations = map(int, parts)
    return triples, entities, relations


def models(data: KnowledgeGraph) -> dict[str, dict[str, Any]]:
    """Return the settings of the models that are measured: both recipes for large graphs."""
    encoder = {"encoder.name": "compgcn", "encoder.dims": (100, 100)}
    batch = {"training.batch_size": large_batch(len(data.train))}
    return {"distmult + compgcn": {**LARGE_ENCODED, **encoder, **batch}, "distmult": dict(LARGE_RECIPE)}


class Stages:
    """Stages of one size, each with its seconds and the GiB at its peak; a stage that fails is recorded as such."""

    def __init__(self, device: torch.device, say: Say, keep: Callable[[], None]) -> None:
        self._device, self._say, self._keep = device, say, keep

    def __call__(self, into: Report, name: str, call: Callable[[], Any]) -> Any:
        """Run a stage and return its value; None if it fails."""
        self._say(name)
        value, _ = None, _start_peak(self._device)
        begun, busy = time.perf_counter(), time.process_time()
        try:
            value = call()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            into[name] = {
                "seconds": round(time.perf_counter() - begun, 3),
                "cpu_seconds": round(time.process_time() - busy, 3),  # on a busy machine they tell more
                "gib": round(_peak(self._device) / 1024, 3),
            }
        except Exception as error:  # the other stages go on
            into[name] = {"failed": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
        self._keep()
        return value


def bench_large(
    sizes: Sequence[tuple[int, int, int]], device: torch.device, to: Path | None, recipe: bool, say: Say
) -> Report:
    """Measure synthetic graphs of these sizes; `to` gets the report after every stage.

    The epoch is one of all training triples, after the steps that compile and record. With `recipe` the recommended
    model is trained to its end too.
    """
    report: Report = {"bench": "large", "environment": environment(device), "rows": []}

    def keep() -> None:
        if to is not None:
            to.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")

    stage = Stages(device, say, keep)
    for triples, entities, relations in sizes:
        row: Report = {"triples": triples, "entities": entities, "relations": relations, "models": {}}
        report["rows"].append(row)
        say(f"{triples:,} triples, {entities:,} entities, {relations:,} relations")
        with tempfile.TemporaryDirectory() as folder:
            data = _read(stage, row, Path(folder))
            if data is None:
                continue
            for name, settings in models(data).items():
                _measure(stage, row["models"].setdefault(name, {}), data, settings, device)
            if recipe:
                _train(stage, row, data, Path(folder), device)
                keep()
    return report


def _read(stage: Stages, row: Report, folder: Path) -> KnowledgeGraph | None:
    """Generate, write and read a graph that holds out as many triples as are ranked, or a tenth."""
    file, sizes = folder / "graph.tsv", (row["triples"], row["entities"], row["relations"])
    made = stage(row, "generate", lambda: synthetic(*sizes))
    if made is None:
        return None
    stage(row, "write", lambda: write(file, made))
    share = min(0.1, 1.05 * _RANKED / row["triples"])
    found: KnowledgeGraph | None = stage(
        row, "read", lambda: compgcn.read(file, valid_fraction=share, test_fraction=share)
    )
    return found


def _measure(stage: Stages, into: Report, data: KnowledgeGraph, settings: dict[str, Any], device: torch.device) -> None:
    config = expand(recommended({"data.source": "large.tsv", **settings}, data), data)
    task: LinkTask | None = stage(into, "build", lambda: fresh_task(config, data, device))
    if task is None:
        return
    into["parameters"] = sum(p.numel() for p in task.module.parameters())
    into["batch"], into["steps"] = task.batch_size, task.steps_per_epoch
    update = stage(into, "warm up", lambda: _warmed(task, config))
    if update is not None:
        lr = config.training.lr
        every = range(task.steps_per_epoch)
        stage(into, "epoch", lambda: [update(task.examples(1, i), lr) for i in every][-1].item())
    test = task.splits["test"][:_RANKED]
    into["ranked"] = len(test)
    stage(into, "evaluate", lambda: task.rank(test))
    if config.encoder.name != "none":  # the answers cost the same without one
        return
    links = Links(config, data, task)
    stage(into, "calibrate", lambda: fit_probabilities(links))
    queries = [(int(s), int(r), None) for s, r, _ in data.test[:_PREDICTED]]
    stage(into, "predict", lambda: links.answer(queries, top=10))
    stage(into, "discover", lambda: discover(links, top=100))


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
    run = stage(row, "recipe", lambda: compgcn.fit(data, run_dir=folder / "run", **settings))
    if run is not None:
        row["recipe"] |= {"mrr": run.metrics["test"]["mrr"], "best_epoch": run.metrics["best_epoch"]}
        row["recipe"]["popularity"] = run.metrics["popularity"]["test"]["mrr"]
