"""A whole training step: ours, the same with the layer edge by edge, and a framework's.

Where nodes are classified, a step is an epoch: all labelled nodes at once.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from compgcn.assembly.settings import expand, recommended
from compgcn.assembly.tasks import build_task
from compgcn.bench.measure import Cost, Report, Say, copy_bandwidth, cost, environment
from compgcn.bench.peers import PHI, PerEdge, pykeen_step
from compgcn.config import Config
from compgcn.data import KnowledgeGraph
from compgcn.layers import CompGCNConv
from compgcn.tasks.classification import Classification
from compgcn.tasks.link_prediction import LinkPrediction
from compgcn.train import Task, make_step

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
    costs = {"ours": _step_cost(make, config, device)}
    if device.type == "cuda":
        say("ours, operation by operation")
        costs["ours, eager"] = _step_cost(make, config, device, eager=True)
    if classify:
        say("ours, on the whole graph")
        costs["ours, whole graph"] = _step_cost(lambda: make(True), config, device)
    if config.encoder.composition in PHI and config.encoder.name == "compgcn":
        say("the same with the layer edge by edge")
        costs["per edge"] = _step_cost(lambda: make(True), config, device, eager=True, per_edge=True)
    theirs = None if classify else pykeen_step(data, report["batch"], device)
    if theirs is not None:
        say("PyKEEN's CompGCN")
        costs["PyKEEN"] = cost(theirs, device, 5)
    report["steps"] = {name: taken.as_dict() for name, taken in costs.items()}
    return report


def fresh_task(config: Config, data: KnowledgeGraph, device: torch.device) -> LinkPrediction:
    """The task of a config, in training mode, always with the same weights."""
    torch.manual_seed(config.training.seed)
    task: LinkPrediction = build_task(config, data, device)
    task.model.train()
    return task


def fresh_classification(config: Config, data: KnowledgeGraph, device: torch.device, whole: bool) -> Classification:
    """As `fresh_task`, to classify the training nodes; with `whole`, making the vectors of all nodes on the way."""
    torch.manual_seed(config.training.seed)
    assert data.labels is not None
    items, nodes = build_task(config, data, device, whole=whole), data.labels.train[:, 0]
    train = torch.from_numpy(nodes).to(device) if whole else torch.arange(len(nodes), device=device)
    items.model.train()
    return Classification(items, train, train[:0], config.training)


def _step_cost(
    make: Callable[[], Task], config: Config, device: torch.device, *, eager: bool = False, per_edge: bool = False
) -> Cost:
    """The mean over a few batches; the memory is all of it on a GPU, model and data included, else what a step adds."""
    on_gpu = device.type == "cuda"
    gc.collect()
    before = torch.cuda.memory_allocated(device) if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    task = make()
    if per_edge:
        layers = task.module.get_submodule("encoder.layers")
        assert isinstance(layers, nn.ModuleList)
        for index, layer in enumerate(layers):
            assert isinstance(layer, CompGCNConv)
            layers[index] = PerEdge(layer)
    settings = config.training.model_copy(update={"cuda_graph": False, "compile": False} if eager else {})
    update = make_step(task, settings, steps=10**9)
    batches = [task.examples(0, step) for step in range(min(_BATCHES if on_gpu else 2, task.steps_per_epoch))]

    def call() -> None:
        for examples in batches:
            update(examples, settings.lr)

    call()  # compiled and recorded on the way
    peak = torch.cuda.max_memory_allocated(device) - before if on_gpu else 0
    taken = cost(call, device, repeats=20 if on_gpu else 3, warm_up=1)
    return Cost(taken.ms / len(batches), peak / 2**20 if on_gpu else taken.mib)


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
