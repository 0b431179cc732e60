"""A step of a link predictor, in one process or on one of several ranks, with everything that must be equal."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import torch

from compgcn.answers.calibrate import Scaling
from compgcn.answers.links import Links, Query, reliability
from compgcn.config import Config, configure
from compgcn.data import KnowledgeGraph
from compgcn.processes import World
from compgcn.run.build import build_links, build_shard
from compgcn.run.resolve import expand
from compgcn.shards.link_prediction import ENTITY_ROWS
from compgcn.shards.step import add_up, sharded_step
from compgcn.tasks import link_prediction
from compgcn.tasks.link_prediction import LinkPrediction
from compgcn.tasks.ranking import summary
from compgcn.tasks.sampling import randomness
from compgcn.train.loop import make_step
from toy import numbered

CPU = torch.device("cpu")
BASE: dict[str, Any] = {
    "encoder.dims": (8, 8),
    "encoder.dropout": 0.0,
    "encoder.hidden_dropout": 0.0,
    "decoder": "distmult",
    "filters": 4,
    "kernel": 2,
    "margin": 4.0,
    "loss": "cross-entropy",
    "optimiser": "sgd",  # Adam makes steps of gradients that are 0 but for rounding
    "batch_size": 8,
    "negatives": 5,
    "device": "cpu",
}
TOP = 4

# Number of entities, and how many of them have edges: for W = 3 shards of uneven sizes, a shard without a message, an
# empty shard.
SHAPES = {"uneven": (13, 13), "quiet": (13, 9), "empty": (4, 4)}


def graph(shape: str, features: bool = False) -> KnowledgeGraph:
    """Facts drawn at random."""
    N, linked = SHAPES[shape]
    random = np.random.default_rng(0)
    facts = random.permutation(np.unique(random.integers(0, [linked, 3, linked], (40, 3)), axis=0))
    data = numbered(facts[8:], N, 3, valid=facts[:4], test=facts[4:8])
    return data.with_features(nodes=random.normal(size=(N, 8))) if features else data


def _given(settings: dict[str, Any], shape: str) -> tuple[Config, KnowledgeGraph]:
    data = graph(shape, features=settings.get("encoder.input") == "features")
    return expand(configure(Config(), BASE | settings), data), data


def task_of(world: World | None, settings: dict[str, Any], shape: str) -> LinkPrediction:
    """The task in double precision, whole without a world."""
    config, data = _given(settings, shape)
    task = build_links(config, data, CPU) if world is None else build_shard(config, data, CPU, world)
    task.model.double()
    return task


def outcome(world: World | None, settings: dict[str, Any], shape: str) -> dict[str, Any]:
    """Initial weights, loss, gradients, weights after a step, ranks, metrics and best answers, as arrays."""
    with randomness(0, CPU):
        task = task_of(world, settings, shape)
        found: dict[str, Any] = _arrays("initial", dict(task.model.state_dict()))
        task.model.train()
        loss = task.loss(task.examples(0, 0))
        loss.backward()
        weights = dict(task.model.named_parameters())
        if world is not None:
            add_up(world, [weight for name, weight in weights.items() if name not in ENTITY_ROWS])
        gradients = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
        found |= {"loss": loss.item(), **_arrays("gradient", gradients)}
        update = (make_step if world is None else sharded_step)(task, task.settings, 1)
        found["loss of the step"] = update(task.examples(0, 1), 0.05).item()
        found |= _arrays("final", dict(task.model.state_dict()))
    with mock.patch.multiple(link_prediction, _CACHED=1, _QUERIES=2):  # some queries at a time, as of a large graph
        sides = task.ranks("test")
    found |= {"ranks": torch.stack([rank for side in sides for rank in side]).numpy(), "metrics": summary(sides)}
    popular = task.popular(task.splits["test"])
    found |= {"popular": torch.stack([rank for side in popular for rank in side]).numpy()}
    task.model.eval()
    return found | _answers(Links(*_given(settings, shape), task))


def _answers(links: Links) -> dict[str, Any]:
    """The best answers to queries with their scores and probabilities, and facts as the model judges them."""
    data, task = links.data, links.task
    links.scalings = {"entities": Scaling(0.5, 0.1, 0.8, 0.2, True, 0, 0.0, 0.0, 0.0)}
    queries: list[Query] = [(s, r, None) for s, r, _ in data.test.tolist()]
    queries += [(None, r, o) for _, r, o in data.test.tolist()] + [(s, None, o) for s, _, o in data.test.tolist()]
    found = links.answer(queries, TOP) + links.answer(queries[:-4], TOP, new=True, plausible=True)
    numbers = [[one.score, one.probability] for answers in found for one in answers]
    first = reliability(links, "valid", whole=True)
    with torch.inference_mode():
        judged = torch.stack([part.double() for part in links.judge(*task.splits["test"].T)])
    numbers += torch.stack((first.own, first.among), 1).tolist()
    ids = [" ".join(one.id for one in answers) for answers in found]
    return {"answers ids": ids, "answers numbers": np.array(numbers), "answers judged": judged.numpy()}


def held(world: World | None, settings: dict[str, Any], shape: str) -> tuple[Any, int]:
    """The queries and answers of training that a rank has, and how many known answers."""
    task = task_of(world, settings, shape)
    train = task.train
    facts = torch.cat((train.queries.repeat_interleave(train.offsets.diff(), 0), train.answers.unsqueeze(1)), 1)
    return facts.numpy(), len(task.known.answers)


def traffic(world: World, settings: dict[str, Any], shape: str) -> dict[str, int]:
    """The bytes that a rank sends in a step, the second: the first looks the degrees of its halo up too."""
    task = task_of(world, settings, shape)
    update = sharded_step(task, task.settings, 2)
    update(task.examples(0, 0), 0.05)
    world.sent.clear()
    update(task.examples(0, 1), 0.05)
    return dict(world.sent)


def _arrays(what: str, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {f"{what} {name}": value.detach().numpy().copy() for name, value in tensors.items()}


def joined(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """The outcome of several ranks: their rows under each other; everything else must be the same on all."""
    whole = dict(outcomes[0])
    for name, value in whole.items():
        parts = [outcome[name] for outcome in outcomes]
        if name.partition(" ")[2] in ENTITY_ROWS:
            whole[name] = np.concatenate(parts)
        else:
            assert all(np.array_equal(value, part) for part in parts), name
    return whole
