"""Filtered ranking of a whole test split."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from compgcn.assembly.settings import expand, recommended
from compgcn.bench.measure import Report, Say, cost, environment
from compgcn.bench.steps import fresh_task
from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError
from compgcn.ranking import filtered_ranks
from compgcn.tasks.link_prediction import LinkPrediction

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
