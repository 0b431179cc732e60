"""Benchmarks of a training step and of evaluation: ours, with the layers edge by edge, and PyKEEN's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from compgcn.config import Config, Training
from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError
from compgcn.run.build import build_task
from compgcn.run.resolve import expand, recommended
from compgcn.tasks.link_prediction import LinkPrediction
from compgcn.train.loop import make_step
from reproduction.bench.cost import Cost, Report, Say, cost, cost_from_scratch, environment, free_mib
from reproduction.bench.peers import Peer, edge_by_edge, has_pykeen, is_per_edge, is_pykeens, pykeen

PAPER = {"training.loss": "bce", "training.batch_size": 128}  # as in the paper and its released code
TOO_LARGE = "it needs more memory than there is"
_REPEATS = 5


class Row(NamedTuple):
    """A model to measure: its name, its label in a table, and its settings by dotted name."""

    name: str
    label: str
    settings: dict[str, Any]


def bench_step(data: KnowledgeGraph, device: torch.device, settings: dict[str, Any], say: Say) -> Report:
    """Measure a training step of the recommended model, by default with the paper's loss and batches."""
    row = Row("step", data.name, {**PAPER, **settings})
    config = expand(recommended(row.settings, data), data)
    say("the recommended model")
    line = _line(data, device, row, config.training.compile, peer=has_pykeen())
    return {"bench": "step", **_header(data, device), "config": config.model_dump(), **line}


def bench_costs(data: KnowledgeGraph, device: torch.device, rows: Sequence[Row], compiled: bool, say: Say) -> Report:
    """Measure a training step of every row, beside PyKEEN's where it has the same model."""
    lines = []
    for number, row in enumerate(rows, 1):
        say(f"{number} of {len(rows)}, {row.name}")
        lines.append(_line(data, device, row, compiled))
    return {"bench": "costs", **_header(data, device), "compiled": compiled, "rows": lines}


def bench_evaluate(data: KnowledgeGraph, device: torch.device, settings: dict[str, Any], say: Say) -> Report:
    """Measure all filtered ranks of the test split."""
    if not len(data.test):
        raise InputError(f"the data set '{data.name}' has no test triples to rank")
    task = fresh_task(expand(recommended(settings, data), data), data, device)
    say("all ranks of the test split")
    ours, ranks = cost(lambda: task.ranks("test").tail.realistic.sum().item(), device, 3, 1), 2 * len(data.test)
    report = {"bench": "evaluate", **_header(data, device), "ranks": ranks}
    return {**report, "ours": {**ours.as_dict(), "us_per_rank": round(1000 * ours.ms / ranks, 3)}}


def _header(data: KnowledgeGraph, device: torch.device) -> Report:
    return {"data": data.name, "environment": environment(device)}


def _line(data: KnowledgeGraph, device: torch.device, row: Row, compiled: bool, peer: bool = False) -> Report:
    """Measure a row: the steps by who makes them, and notes on those that fail or do not fit into memory.

    On a GPU our step is recorded, and compiled if asked; a row that `PerEdge` computes is measured eagerly and edge by
    edge too. PyKEEN has the row's dimensions if it has the row's model; with `peer` it takes part in any case.
    """
    config = expand(recommended(row.settings, data), data)
    make = partial(fresh_task, config, data, device)
    task = make()
    steps, needed = task.steps_per_epoch, needed_mib(task)
    line: Report = {"row": row.name, "label": row.label, "settings": row.settings, "batch": task.batch_size}
    line |= {"steps_per_epoch": steps, "parameters": sum(p.numel() for p in task.module.parameters())}
    del task
    training = config.training.model_copy(update={"compile": compiled})
    eager = training.model_copy(update={"cuda_graph": False, "compile": False})
    measures: dict[str, Callable[[], Report]] = {"ours": lambda: step_cost(make, training, device).as_dict()}
    if is_per_edge(config):
        if device.type == "cuda":
            measures["ours, eager"] = lambda: step_cost(make, eager, device).as_dict()
        measures["per edge"] = lambda: step_cost(make, eager, device, per_edge=True).as_dict()
    if peer or (has_pykeen() and is_pykeens(config)):
        dims = config.encoder.dims if is_pykeens(config) else (200, 200)
        measures["PyKEEN"] = lambda: _pykeen(data, line["batch"], device, dims)
    found: dict[str, Report] = {}
    left_out: dict[str, str] = {}
    for name, measure in measures.items():
        try:
            if needed.get(name, 0.0) > free_mib(device):  # a CPU would end the process
                raise torch.OutOfMemoryError
            found[name] = measure()
            found[name]["seconds_per_epoch"] = round(steps * found[name]["ms"] / 1000, 4)
        except torch.OutOfMemoryError:
            left_out[name] = TOO_LARGE
        except Exception as error:  # the other measurements go on
            left_out[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return {**line, "steps": found, **({"left_out": left_out} if left_out else {})}


def _pykeen(data: KnowledgeGraph, batch: int, device: torch.device, dims: Sequence[int]) -> Report:
    peers: list[Peer] = []

    def step() -> Callable[[], object]:
        peers.append(pykeen(data, batch, device, dims))
        return peers[0].step

    found = cost_from_scratch(step, device, _REPEATS)
    return {**found.as_dict(), "parameters": peers[0].parameters, "version": peers[0].version}


def fresh_task(config: Config, data: KnowledgeGraph, device: torch.device) -> LinkPrediction:
    """Return the task of a config in training mode, always with the same weights."""
    torch.manual_seed(config.training.seed)
    task: LinkPrediction = build_task(config, data, device)
    task.model.train()
    return task


def step_cost(
    make: Callable[[], LinkPrediction], settings: Training, device: torch.device, *, per_edge: bool = False
) -> Cost:
    """Measure a training step as the mean over a few batches: 10 on a GPU, one on a CPU."""
    taken: list[Tensor] = []

    def prepare() -> Callable[[], object]:
        task = make()
        if per_edge:
            edge_by_edge(task.module)
        update = make_step(task, settings, steps=10**9)
        many = 10 if device.type == "cuda" else 1
        taken.extend(task.examples(0, step) for step in range(min(many, task.steps_per_epoch)))

        def call() -> None:
            for examples in taken:
                update(examples, settings.lr)

        return call

    found = cost_from_scratch(prepare, device, _REPEATS)
    return Cost(found.ms / len(taken), found.mib)


def needed_mib(task: LinkPrediction) -> dict[str, float]:
    """Estimate the MiB that a step keeps, in float32, of all messages edge by edge, and of PyKEEN's scores."""
    encoder = task.model.encoder
    # x, z and phi(x, z) [E, in]; their product with a filter, plain and weighted [E, out]; both directions
    messages = 2 * task.graph.num_edges * sum(3 * inputs + 2 * outputs for inputs, outputs in pairwise(encoder.dims))
    scores = 4 * task.batch_size * encoder.num_nodes * encoder.dims[-1]  # four arrays [B, N, d]
    return {"per edge": messages * 4 / 2**20, "PyKEEN": scores * 4 / 2**20}
