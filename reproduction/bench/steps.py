"""A whole training step: ours, the same with the layer edge by edge, and a framework's.

Where nodes are classified, a step is an epoch: all labelled nodes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from compgcn.config import Config, Training
from compgcn.data import KnowledgeGraph
from compgcn.run.build import build_items, build_links
from compgcn.run.resolve import expand, recommended
from compgcn.tasks.classification import Classification
from compgcn.tasks.link_prediction import LinkPrediction
from compgcn.train.loop import Task, make_step
from reproduction.bench.measure import Cost, Report, Say, copy_bandwidth, cost_from_scratch, environment
from reproduction.bench.peers import edge_by_edge, has_pykeen, is_per_edge, pykeen

_BATCHES = 10

_PAPERS = {"training.loss": "bce", "training.batch_size": 128}  # how links are learned there, and by its released code


def bench_step(
    data: KnowledgeGraph, device: torch.device, settings: dict[str, Any], *, say: Say = lambda _: None
) -> Report:
    """A training step of the recommended model: as `fit` makes it, eagerly, edge by edge, and PyKEEN's CompGCN.

    That of links has the loss and the batches of the paper unless told otherwise, whatever the recipe has.
    """
    given = {**_PAPERS, **settings} if data.labels is None else settings
    config = expand(recommended(given, data), data)
    report: Report = {"bench": "step", "data": data.name, "environment": environment(device)}
    report["copy_gb_s"] = round(copy_bandwidth(device), 1)
    report["config"] = config.model_dump()
    say("what there is to do")
    classify = config.task == "node-classification"

    def make(whole: bool = False) -> LinkPrediction | Classification:
        return fresh_classification(config, data, device, whole) if classify else fresh_task(config, data, device)

    task = make()
    report["batch"] = len(task.examples(0, 0))
    report["parameters"] = sum(p.numel() for p in task.module.parameters())
    if isinstance(task, LinkPrediction):
        report["floor_ms"] = round(_floor_bytes(task, config) / report["copy_gb_s"] / 1e6, 3)
    del task
    say("ours")
    costs = {"ours": step_cost(make, config.training, device)}
    if device.type == "cuda":
        say("ours, operation by operation")
        costs["ours, eager"] = step_cost(make, eager(config.training), device)
    if classify:
        say("ours, on the whole graph")
        costs["ours, whole graph"] = step_cost(lambda: make(True), config.training, device)
    if is_per_edge(config):
        say("the same with the layer edge by edge")
        costs["per edge"] = step_cost(lambda: make(True), eager(config.training), device, per_edge=True)
    if not classify and has_pykeen():
        say("PyKEEN's CompGCN")
        with suppress(ImportError):  # of something that it needs
            costs["PyKEEN"] = cost_from_scratch(lambda: pykeen(data, report["batch"], device).step, device, 5)
    report["steps"] = {name: taken.as_dict() for name, taken in costs.items()}
    return report


def fresh_task(config: Config, data: KnowledgeGraph, device: torch.device) -> LinkPrediction:
    """The task of a config, in training mode, always with the same weights."""
    torch.manual_seed(config.training.seed)
    task = build_links(config, data, device)
    task.model.train()
    return task


def fresh_classification(config: Config, data: KnowledgeGraph, device: torch.device, whole: bool) -> Classification:
    """As `fresh_task`, to classify the training nodes; with `whole`, making the vectors of all nodes on the way."""
    torch.manual_seed(config.training.seed)
    assert data.labels is not None
    items, nodes = build_items(config, data, device, whole=whole), data.labels.train[:, 0]
    train = torch.from_numpy(nodes).to(device) if whole else torch.arange(len(nodes), device=device)
    items.model.train()
    return Classification(items, train, train[:0], config.training)


def step_cost(
    make: Callable[[], Task],
    settings: Training,
    device: torch.device,
    *,
    per_edge: bool = False,
    batches: int | None = None,
    repeats: int | None = None,
) -> Cost:
    """The mean over a few batches; the memory as in `cost_from_scratch`.

    Args:
        make: the task, anew.
        settings: of training, which say how the step is made.
        device: where.
        per_edge: with the layers edge by edge.
        batches: how many different ones; by default 10 on a GPU and 2 elsewhere.
        repeats: how often they are taken, for a median; by default 20 and 3.
    """
    on_gpu = device.type == "cuda"
    taken: list[Tensor] = []

    def prepare() -> Callable[[], object]:
        task = make()
        if per_edge:
            edge_by_edge(task.module)
        update = make_step(task, settings, steps=10**9)
        many = batches or (_BATCHES if on_gpu else 2)
        taken.extend(task.examples(0, step) for step in range(min(many, task.steps_per_epoch)))

        def call() -> None:
            for examples in taken:
                update(examples, settings.lr)

        return call

    found = cost_from_scratch(prepare, device, repeats or (20 if on_gpu else 3))
    return Cost(found.ms / len(taken), found.mib)


def eager(settings: Training) -> Training:
    """The same, operation by operation."""
    return settings.model_copy(update={"step": "eager"})


def _floor_bytes(task: LinkPrediction, config: Config) -> float:
    """What a step cannot but move: every number written once and read once, forward and backward.

    That is the weights with their gradients and two moments, 32 bytes a parameter, and the entity vectors, feature maps
    and logits. What messages gather comes from a cache and does not count.
    """
    encoder, decoder = task.model.encoder, task.model.decoder
    parameters = sum(p.numel() for p in task.model.parameters())
    whole = 2 if config.training.precision == "bfloat16" else 4  # bytes of a number
    half = 2 if decoder.half_query else whole
    vectors = sum(encoder.dims[1:]) * encoder.num_nodes
    logits = task.batch_size * encoder.num_nodes
    linear = getattr(decoder.phi, "linear", None)
    maps = 0 if linear is None else task.batch_size * linear.in_features
    return 32 * parameters + 4 * whole * (vectors + logits) + 4 * half * maps
