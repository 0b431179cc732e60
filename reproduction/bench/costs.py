"""Filtered ranking of a whole test split."""

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
from compgcn.run.resolve import expand, recommended
from compgcn.tasks.link_prediction import LinkPrediction
from compgcn.tasks.ranking import filtered_ranks
from reproduction.bench.measure import Report, Say, cost, cost_from_scratch, environment, free_mib
from reproduction.bench.peers import Peer, has_pykeen, is_per_edge, is_pykeens, pykeen
from reproduction.bench.steps import eager, fresh_task, step_cost

_REPEATS = 3
_MANY, _FEW = 10, 3  # batches on a GPU, and of a step edge by edge there; elsewhere, where it takes long, one

TOO_LARGE = "it needs more memory than there is"


class Row(NamedTuple):
    """A model to be measured: its name, what to call it in a table, and its settings by dotted name."""

    name: str
    label: str
    settings: dict[str, Any]


def bench_costs(
    data: KnowledgeGraph,
    device: torch.device,
    rows: Sequence[Row],
    *,
    compiled: bool = False,
    say: Say = lambda _: None,
) -> Report:
    """A training step of every row, as training makes it, and what an epoch of such steps takes.

    On a GPU that is a recorded step. Beside it stand, operation by operation: the same, where there is something to
    compare it with; with the layers edge by edge, where `PerEdge` computes them; and PyKEEN's CompGCN of the same
    dimensions and batches, where the row is that model. What does not fit into the memory, or fails, is left out
    with a note.

    Args:
        data: what the rows are trained on.
        device: where.
        rows: for link prediction.
        compiled: compile every step first, as long runs do, which takes 5 to 15 seconds a row.
        say: told what comes next.
    """
    report: Report = {"bench": "costs", "data": data.name, "environment": environment(device), "compiled": compiled}
    report["rows"] = []
    for number, row in enumerate(rows, 1):
        report["rows"].append(_line(data, device, row, compiled, say, f"{number} of {len(rows)}, {row.name}"))
    return report


def _line(data: KnowledgeGraph, device: torch.device, row: Row, compiled: bool, say: Say, place: str) -> Report:
    """One row: its sizes, the costs of its steps by who makes them, and why some of them are not there."""
    config = expand(recommended(row.settings, data), data)
    task = fresh_task(config, data, device)
    steps, needed = task.steps_per_epoch, {"per edge": per_edge_mib(task), "PyKEEN": pykeen_mib(task)}
    line: Report = {
        "row": row.name,
        "label": row.label,
        "settings": row.settings,
        "batch": task.batch_size,
        "steps_per_epoch": steps,
        "parameters": sum(p.numel() for p in task.module.parameters()),
    }
    del task
    costs: dict[str, Report] = {}
    left_out: dict[str, str] = {}
    for name, measure in _measures(data, device, config, line["batch"], compiled).items():
        say(f"{place}: {name}")
        free = free_mib(device)
        try:
            if free is not None and needed.get(name, 0.0) > free:  # a CPU's is not refused: the process would be ended
                raise torch.OutOfMemoryError
            costs[name] = measure()
        except torch.OutOfMemoryError:
            left_out[name] = TOO_LARGE
            continue
        except Exception as error:  # whatever it is, the others are measured all the same
            left_out[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            continue
        costs[name]["seconds_per_epoch"] = round(steps * costs[name]["ms"] / 1000, 4)
    return {**line, "steps": costs, **({"left_out": left_out} if left_out else {})}


def _measures(
    data: KnowledgeGraph, device: torch.device, config: Config, batch: int, compiled: bool
) -> dict[str, Callable[[], Report]]:
    """What is measured of a row, by name, and how."""
    on_gpu, comparable = device.type == "cuda", is_per_edge(config)
    many, few = (_MANY, _FEW) if on_gpu else (1, 1)
    as_trained = config.training.model_copy(update={"compile": compiled})
    make = partial(fresh_task, config, data, device)

    def taken(settings: Training, batches: int, *, per_edge: bool = False) -> Report:
        found = step_cost(make, settings, device, per_edge=per_edge, batches=batches, repeats=_REPEATS)
        return dict(found.as_dict())

    measures: dict[str, Callable[[], Report]] = {"ours": lambda: taken(as_trained, many)}
    if comparable and on_gpu:
        measures["ours, eager"] = lambda: taken(eager(as_trained), many)
    if comparable:
        measures["per edge"] = lambda: taken(eager(as_trained), few, per_edge=True)
    if is_pykeens(config) and has_pykeen():
        measures["PyKEEN"] = lambda: _pykeen(data, batch, device, config.encoder.dims)
    return measures


def _pykeen(data: KnowledgeGraph, batch: int, device: torch.device, dims: Sequence[int]) -> Report:
    """PyKEEN's step, its parameters and its version."""
    peers: list[Peer] = []

    def make() -> Callable[[], object]:
        peers.append(pykeen(data, batch, device, dims))
        return peers[0].step

    found = cost_from_scratch(make, device, _REPEATS)
    return {**found.as_dict(), "parameters": peers[0].parameters, "version": peers[0].version}


def per_edge_mib(task: LinkPrediction) -> float:
    """About what a step keeps of all messages edge by edge, in numbers of 4 bytes and in both directions.

    That is x, z and phi(x, z) [E, in], and its product with a filter, as it is and weighted [E, out].
    """
    numbers = sum(3 * inputs + 2 * outputs for inputs, outputs in pairwise(task.model.encoder.dims))
    return 2 * task.graph.num_edges * numbers * 4 / 2**20


def pykeen_mib(task: LinkPrediction) -> float:
    """About what PyKEEN's step keeps of the scores of all entities: four arrays [B, N, d]."""
    encoder = task.model.encoder
    return 4 * task.batch_size * encoder.num_nodes * encoder.dims[-1] * 4 / 2**20


_SAMPLE = (200, 500)  # triples the definition is measured on, on a CPU and on a GPU


def bench_evaluate(
    data: KnowledgeGraph, device: torch.device, settings: dict[str, Any], *, say: Say = lambda _: None
) -> Report:
    """All filtered ranks of the test split; and the definition, triple by triple, on some of them."""
    if not len(data.test):
        raise InputError(f"the data set '{data.name}' has no test triples to rank")
    task = fresh_task(expand(recommended(settings, data), data), data, device)
    test, R = task.splits["test"], data.num_relations
    say("all ranks of the test split")
    ours = cost(lambda: task.ranks("test").tail.realistic.sum().item(), device, 3 if device.type == "cuda" else 2, 1)
    sample = test[: _SAMPLE[device.type == "cuda"]]
    say(f"the definition, on {len(sample)} triples")
    theirs = cost(lambda: ranks_by_definition(task, sample), device, 1, 0)
    queries = torch.cat((test[:, :2], torch.stack((test[:, 2], test[:, 1] + R), 1)))
    return {
        "bench": "evaluate",
        "data": data.name,
        "environment": environment(device),
        "ranks": 2 * len(test),
        "queries": len(torch.unique(queries, dim=0)),
        "ours": {**ours.as_dict(), "us_per_rank": round(1000 * ours.ms / (2 * len(test)), 3)},
        "definition": {"ranks": 2 * len(sample), "us_per_rank": round(1000 * theirs.ms / (2 * len(sample)), 3)},
    }


@torch.inference_mode()
def ranks_by_definition(task: LinkPrediction, triples: Tensor) -> Tensor:
    """Realistic ranks, [2n]: for every triple two queries scored, and a mask made of their known answers."""
    task.model.eval()
    encoded, R = task.model.encode(task.graph), task.num_relations
    ranks = []
    for s, r, o in triples.tolist():
        for subject, relation, target in ((s, r, o), (o, r + R, s)):
            query = torch.tensor([subject], device=triples.device), torch.tensor([relation], device=triples.device)
            scores = task.model.score(encoded, *query)
            known = torch.zeros_like(scores, dtype=torch.bool)
            known[0, task.known.lookup(*query)[1]] = True
            ranks.append(filtered_ranks(scores, torch.tensor([target], device=triples.device), known).realistic)
    return torch.cat(ranks)
