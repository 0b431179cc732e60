"""Benchmarks of speed and memory: this implementation beside the per-edge definition and PyKEEN.

Each returns a report of plain dictionaries, with the data, the device and the commit, to be kept as JSON.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from compgcn import __version__
from compgcn.config import Config, Training, configure
from compgcn.data import KnowledgeGraph
from compgcn.kernels.reference import update
from compgcn.nn import CompGCNConv
from compgcn.nn.conditional import STATISTICS, ConditionalLayer, View
from compgcn.nn.graph import Norm, RelationalGraph
from compgcn.run.build import build_links
from compgcn.run.plan import measure
from compgcn.run.resolve import resolve
from compgcn.tasks.link_prediction import ConditionalPrediction, LinkTask
from compgcn.train.folder import commit
from compgcn.train.loop import make_step
from compgcn.train.storage import reason
from reproduction.experiment import Row

Report = dict[str, Any]
Say = Callable[[str], None]  # is told which measurement starts


def cost(call: Callable[[], object], device: torch.device, repeats: int = 10, warm_up: int = 2) -> Report:
    """Measure a call after a warm-up: its median milliseconds, and the MiB at its peak above those before it.

    The memory is None if the system does not tell it.
    """
    for _ in range(warm_up):
        call()
    before = _start_peak(device)
    times = [_timed(call, device) for _ in range(repeats)]
    mib = None if before is None else round(max(0.0, _peak(device) - before), 1)
    return {"ms": round(statistics.median(times), 4), "mib": mib}


def cost_from_scratch(make: Callable[[], Callable[[], object]], device: torch.device, repeats: int) -> Report:
    """Measure the call that `make` returns; on a GPU the memory includes everything made for the call."""
    free(device)
    if device.type != "cuda":
        return cost(make(), device, repeats)
    before = _start_peak(device) or 0.0
    call = make()
    call()  # compiles and records
    mib = round(_peak(device) - before, 1)
    return {**cost(call, device, repeats, 1), "mib": mib}


def free(device: torch.device) -> None:
    """Give back the memory of what was measured before."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _timed(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(end))
    before = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - before)


def _start_peak(device: torch.device) -> float | None:
    """Reset the peak memory and return the MiB in use: of torch's allocator on a GPU, else of the process on Linux."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device) / 2**20
    try:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # return freed memory first, or its reuse would not show
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        return _field("/proc/self/status", "VmRSS")
    except (OSError, AttributeError):
        return None


def _peak(device: torch.device) -> float:
    cuda = device.type == "cuda"
    return torch.cuda.max_memory_allocated(device) / 2**20 if cuda else _field("/proc/self/status", "VmHWM")


def _field(path: str, name: str) -> float:
    """Return the MiB of a field of a file in /proc."""
    lines = Path(path).read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def free_mib(device: torch.device) -> float:
    """Return the memory that can still be allocated; infinite if the system does not tell."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + kept) / 2**20
    try:
        return _field("/proc/meminfo", "MemAvailable")
    except OSError:
        return float("inf")


def environment(device: torch.device | None = None) -> dict[str, Any]:
    """Return the versions, the commit, the device (by default the CPU) and the date, for a report."""
    cuda = device is not None and device.type == "cuda"
    return {
        "compgcn": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if cuda else f"{torch.get_num_threads()} CPU cores",
        "processor": None if cuda else platform.processor() or platform.machine(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


PHI: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sub": lambda x, z: x - z,
    "mult": lambda x, z: x * z,
    "corr": lambda x, z: torch.fft.irfft(torch.conj(torch.fft.rfft(x)) * torch.fft.rfft(z), n=x.shape[-1]),
}


class PerEdge(nn.Module):
    """The paper's Eq. node_update read literally, with the weights of a layer: one message per edge, each times W.

    The layer has filters by direction, relation vectors and a composition of `PHI`.
    """

    def __init__(self, layer: CompGCNConv) -> None:
        super().__init__()
        self.layer = layer
        self.phi = PHI[layer.composition.name]

    def forward(
        self, x: Tensor, rel: Tensor, graph: RelationalGraph, *, keep: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return what the layer returns."""
        layer = self.layer
        messages = graph.messages(layer.flow, layer.add_inverse)
        weight = messages.weights(Norm(layer.norm, layer.self_loop, x.dtype)).message
        weight = weight if keep is None else weight * messages.of_edges(keep)
        out = x.new_zeros(len(x), layer.out_channels)
        for direction, name in enumerate(("weight_original", "weight_inverse")):
            part = slice(direction * graph.num_edges, (direction + 1) * graph.num_edges)
            composed = self.phi(x[messages.sender[part]], rel[messages.relation[part]])  # [E, in]
            sent = weight[part].unsqueeze(1) * (composed @ getattr(layer, name))  # [E, out]
            half = torch.zeros_like(out).index_add_(0, messages.receiver[part], sent)
            out = out + torch.dropout(half, layer.dropout, self.training)
        if layer.self_loop:
            assert layer.loop_relation is not None
            loop: Tensor = getattr(layer, layer.filters.loop)
            out = out + self.phi(x, layer.loop_relation) @ loop
        if layer.bias is not None:
            out = out + layer.bias
        assert layer.weight_relation is not None
        return out, rel @ layer.weight_relation


class PerEdgeStates(nn.Module):
    """A layer conditioned on the query read literally: one message per edge and query, with the weights of the layer.

    Its composition is one of `PHI`.
    """

    def __init__(self, layer: ConditionalLayer, graph: RelationalGraph) -> None:
        super().__init__()
        self.layer, self.messages = layer, graph.messages("source_to_target")

    def forward(self, state: Tensor, q: Tensor, s: Tensor, view: View, first: bool = False) -> Tensor:
        """Return what the layer returns, [N, B, d]; zero states are no special case here."""
        layer, edges, at = self.layer, self.messages, (s, torch.arange(len(s), device=s.device))
        z = torch.baddbmm(layer.relation_bias, q.expand(len(layer.relations), *q.shape), layer.relations)
        own = torch.zeros_like(state).index_put(at, q.to(state.dtype))  # the message of the query
        sent, by = state.index_select(0, edges.sender), z.to(state.dtype).index_select(0, edges.relation)
        m = PHI[layer.phi.name](sent, by)  # [M, B, d]
        weight = view.weight.to(m.dtype)[:, None, None]
        parts = [own.index_add(0, edges.receiver, weight * m)]
        if layer.statistics == "pna":
            parts.append(own.square().index_add(0, edges.receiver, weight * m.square()))
            index = edges.receiver[:, None, None].expand_as(m)
            ends = {"amax": -torch.inf, "amin": torch.inf}
            parts += [
                own.scatter_reduce(0, index, torch.where(weight != 0, m, none), kind) for kind, none in ends.items()
            ]
        rows = (view.degree, view.scale, layer.weight, layer.norm.weight, layer.norm.bias, layer.bias)
        return update(state, parts, *rows)


def edge_by_edge(task: LinkTask) -> None:
    """Replace every layer of a model by its definition edge by edge, with the same weights."""
    if isinstance(task, ConditionalPrediction):
        task.model.sparse = False
    layers = task.model.get_submodule("layers" if isinstance(task, ConditionalPrediction) else "encoder.layers")
    assert isinstance(layers, nn.ModuleList)
    for index, layer in enumerate(layers):
        if isinstance(layer, ConditionalLayer):
            layers[index] = PerEdgeStates(layer, task.graph)
        else:
            assert isinstance(layer, CompGCNConv)
            layers[index] = PerEdge(layer)


def is_per_edge(config: Config) -> bool:
    """Tell whether `PerEdge` computes the layers of a model."""
    encoder = config.encoder
    return encoder.name == "compgcn" and encoder.composition in PHI and len(encoder.dims) > 1


def pykeen(
    data: KnowledgeGraph, batch: int, device: torch.device, dims: Sequence[int] = (200, 200)
) -> tuple[Callable[[], Tensor], int]:
    """Return the training step of PyKEEN's CompGCN (phi and decoder DistMult, one-to-all) and its parameters."""
    with warnings.catch_warnings():  # from packages that PyKEEN imports
        warnings.simplefilter("ignore", DeprecationWarning)
        from pykeen.models import CompGCN
        from pykeen.triples import CoreTriplesFactory

    sizes: dict[str, Any] = {"num_entities": data.num_entities, "num_relations": data.num_relations}
    factory = CoreTriplesFactory(torch.from_numpy(data.train), **sizes, create_inverse_triples=True)
    layers = {"num_layers": len(dims) - 1, "dims": list(dims[1:])}
    model: Any = CompGCN(triples_factory=factory, embedding_dim=dims[0], encoder_kwargs=layers, random_seed=0).to(
        device
    )
    optimiser = torch.optim.Adam(model.parameters())
    triples = torch.from_numpy(np.resize(data.train, (batch, 3))).to(device)  # repeats where there are few
    labels = torch.zeros(batch, data.num_entities, device=device)
    labels[torch.arange(batch, device=device), triples[:, 2]] = 1.0
    model.train()

    def step() -> Tensor:
        optimiser.zero_grad()
        scores = model.score_t(triples[:, :2])
        loss = nn.functional.binary_cross_entropy_with_logits(scores, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        model.post_parameter_update()
        return loss.detach()

    return step, sum(p.numel() for p in model.parameters())


_SCALES = tuple(10**k for k in range(4, 8))  # messages in both directions
_NODES, _RELATIONS, _DIM = 100_000, 100, 100  # of the growing graphs
_SLOW = 60_000.0  # ms of a call, beyond which no larger graph is measured per edge


def power_law(edges: int, nodes: int, relations: int, device: torch.device) -> RelationalGraph:
    """Return a graph with hubs: the share of nodes and relations falls as a power of their rank."""
    generator = torch.Generator().manual_seed(0)
    names = torch.randperm(nodes, generator=generator)  # a hub may have any index
    src, dst = names[(torch.rand(2, edges, generator=generator) ** 3 * nodes).long()]
    rel = (torch.rand(edges, generator=generator) ** 2 * relations).long()
    return RelationalGraph(src, dst, rel, nodes, relations).to(device)


def bench_kernels(data: KnowledgeGraph, device: torch.device, scaling: bool, say: Say) -> Report:
    """Measure a layer, 100 -> 200, with each composition of the paper, then on growing graphs."""
    triples = torch.from_numpy(data.train).to(device)
    graph = RelationalGraph.from_triples(triples, data.num_entities, data.num_relations)
    report: Report = {**_header("kernels", data, device), "messages": 2 * graph.num_edges, "layer": []}
    for name in PHI:
        say(f"layer, {name}")
        ours, theirs = (layer_cost(name, graph, 100, 200, device, per_edge=one) for one in (False, True))
        report["layer"].append({"composition": name, "ours": ours, "per_edge": theirs})
    if scaling:
        report["scaling"] = _scaling(device, say)
    return report


def layer_cost(
    name: str, graph: RelationalGraph, inputs: int, outputs: int, device: torch.device, *, per_edge: bool
) -> Report:
    """Measure the forward and backward pass of one layer; its plan is made before."""
    layer = CompGCNConv(inputs, outputs, graph.num_relations, composition=name).to(device)
    x = torch.randn(graph.num_nodes, inputs, device=device, requires_grad=True)
    rel = torch.randn(2 * graph.num_relations, inputs, device=device, requires_grad=True)
    module = PerEdge(layer) if per_edge else layer
    leaves = [x, rel, *layer.parameters()]
    slopes = [torch.randn(len(t), outputs, device=device) for t in (x, rel)]

    def call() -> None:
        torch.autograd.grad(module(x, rel, graph), leaves, slopes)

    return cost(call, device, repeats=3 if per_edge and device.type == "cpu" else 7, warm_up=1 if per_edge else 2)


def _scaling(device: torch.device, say: Say) -> list[Report]:
    """Measure a layer (mult, 100 -> 100) on power-law graphs, edge by edge as long as that fits."""
    rows, fits = [], True
    for messages in _SCALES:
        nodes = min(_NODES, messages // 10)
        say(f"layer on {messages:,} messages")
        graph = power_law(messages // 2, nodes, _RELATIONS, device)
        ours = layer_cost("mult", graph, _DIM, _DIM, device, per_edge=False)
        theirs = layer_cost("mult", graph, _DIM, _DIM, device, per_edge=True) if fits else None
        if theirs is not None:  # the next graph is ten times larger
            fits = 10 * theirs["ms"] < _SLOW and 10 * (theirs["mib"] or 0.0) < free_mib(device)
        rows.append({"messages": messages, "nodes": nodes, "ours": ours, "per_edge": theirs})
    return rows


PAPER = {"training.loss": "bce", "training.batch_size": 128}  # as in the paper and its released code
TOO_LARGE = "it needs more memory than there is"
_REPEATS = 5


def bench_step(data: KnowledgeGraph, device: torch.device, settings: dict[str, Any], say: Say) -> Report:
    """Measure a training step of the recommended model, by default with the paper's loss and batches."""
    settings = {**PAPER, **settings}
    config = resolve(settings, data).config
    say("the recommended model")
    line = _line(data, device, settings, config.training.step, any_model=True)
    stream = round(measure(device).stream / 1e9, 1)  # a plan needs it, see `reproduction.blocks.rates`
    return {**_header("step", data, device), "config": config.model_dump(), "copy_gb_s": stream, **line}


def bench_costs(
    data: KnowledgeGraph, device: torch.device, rows: Sequence[tuple[Row, dict[str, Any]]], compiled: bool, say: Say
) -> Report:
    """Measure a training step of every row with its settings, beside PyKEEN's where it has the same model."""
    lines = []
    for number, (row, settings) in enumerate(rows, 1):
        say(f"{number} of {len(rows)}, {row.name}")
        line = _line(data, device, settings, "compiled" if compiled else "recorded")
        lines.append({"row": row.name, "label": row.label, **line})
    return {**_header("costs", data, device), "compiled": compiled, "rows": lines}


def bench_evaluate(data: KnowledgeGraph, device: torch.device, settings: dict[str, Any], say: Say) -> Report:
    """Measure all filtered ranks of the test split."""
    task = fresh_task(resolve(settings, data).config, data, device)
    say("all ranks of the test split")
    ours, ranks = cost(lambda: task.ranks("test").tail.realistic.sum().item(), device, 3, 1), 2 * len(data.test)
    return {**_header("evaluate", data, device), "ranks": ranks, "ours": ours}


_RANKED = {"cuda": None, "cpu": 100}  # triples of test to rank; None: all


def bench_conditional(data: KnowledgeGraph, device: torch.device, settings: dict[str, Any], say: Say) -> Report:
    """Measure a step of the model conditioned on the query, by its statistics, and the ranks of test."""
    rows = []
    for kind in STATISTICS if "encoder.statistics" not in settings else (settings["encoder.statistics"],):
        say(f"step, {kind}")
        asked = {"encoder.name": "conditional", "encoder.statistics": kind, **settings}
        config = resolve(asked, data).config
        line = _line(data, device, asked, "auto")
        say(f"step edge by edge, {kind}")
        line["per_edge"] = fewer_queries(config, data, device)
        task = fresh_task(config, data, device)
        triples = task.splits["test"][: _RANKED.get(device.type)]
        say(f"{2 * len(triples):,} ranks of the test split, {kind}")
        ours = cost(partial(task.rank, triples), device, 3, 1)
        rows.append({**line, "ranks": {"number": 2 * len(triples), **ours}})
    return {**_header("conditional", data, device), "rows": rows}


def attempt(measured: Callable[[], Report], needed: float, device: torch.device) -> Report:
    """Return a measurement, or the reason why it is left out, so that the others go on."""
    try:
        if needed > free_mib(device):  # a CPU would end the process
            raise torch.OutOfMemoryError
        return measured()
    except torch.OutOfMemoryError:
        return {"left_out": TOO_LARGE}
    except Exception as error:
        return {"left_out": f"{type(error).__name__}: {reason(error)}"}


def fewer_queries(config: Config, data: KnowledgeGraph, device: torch.device) -> Report:
    """Measure a step edge by edge, and halve its queries until it fits into memory."""
    queries, found = config.training.batch_size, Report({"left_out": TOO_LARGE})
    while queries and found.get("left_out") == TOO_LARGE:
        made = configure(config, {"training.batch_size": queries, "training.step": "eager"})
        make = partial(fresh_task, made, data, device)
        step = partial(step_cost, make, made.training, device, per_edge=True)
        found = {"queries": queries, **attempt(step, needed_mib(make())["per edge"], device)}
        queries //= 2
    return found


BY_SETTINGS = {"step": bench_step, "evaluate": bench_evaluate, "conditional": bench_conditional}


def _header(bench: str, data: KnowledgeGraph, device: torch.device) -> Report:
    return {"bench": bench, "data": data.name, "environment": environment(device)}


def _line(
    data: KnowledgeGraph, device: torch.device, settings: dict[str, Any], step: str, any_model: bool = False
) -> Report:
    """Measure a model: the steps by who makes them, and notes on those that fail or do not fit into memory.

    On a GPU our step is recorded, and compiled if asked; a model that `PerEdge` computes is measured eagerly and edge
    by edge too. PyKEEN has the model's dimensions if it has the model; with `any_model` it has 200 otherwise.
    """
    config = resolve(settings, data).config
    make = partial(fresh_task, config, data, device)
    task = make()
    steps, needed = task.steps_per_epoch, needed_mib(task)
    line: Report = {"settings": settings, "batch": task.batch_size, "steps_per_epoch": steps}
    line["parameters"] = sum(p.numel() for p in task.module.parameters())
    del task
    training = config.training.model_copy(update={"step": step})
    eager = training.model_copy(update={"step": "eager"})
    measures: dict[str, Callable[[], Report]] = {"ours": lambda: step_cost(make, training, device)}
    if is_per_edge(config):
        if device.type == "cuda":
            measures["ours, eager"] = lambda: step_cost(make, eager, device)
        measures["per edge"] = lambda: step_cost(make, eager, device, per_edge=True)
    made_of = (config.encoder.composition, config.decoder.name, config.encoder.bases)
    same = is_per_edge(config) and made_of == ("mult", "distmult", 0)  # PyKEEN's default CompGCN
    if find_spec("pykeen") is not None and (any_model or same):
        dims = config.encoder.dims if same else (200, 200)
        measures["PyKEEN"] = lambda: _pykeen(data, line["batch"], device, dims)
    found = {name: attempt(one, needed.get(name, 0.0), device) for name, one in measures.items()}
    left_out = {name: one["left_out"] for name, one in found.items() if "left_out" in one}
    made = {
        name: {**one, "seconds_per_epoch": round(steps * one["ms"] / 1000, 4)}
        for name, one in found.items()
        if name not in left_out
    }
    return {**line, "steps": made, **({"left_out": left_out} if left_out else {})}


def _pykeen(data: KnowledgeGraph, batch: int, device: torch.device, dims: Sequence[int]) -> Report:
    found = cost_from_scratch(lambda: pykeen(data, batch, device, dims)[0], device, _REPEATS)
    return {**found, "parameters": pykeen(data, batch, device, dims)[1], "version": version("pykeen")}


def fresh_task(config: Config, data: KnowledgeGraph, device: torch.device) -> LinkTask:
    """Return the task of a config in training mode, always with the same weights."""
    torch.manual_seed(config.training.seed)
    task = build_links(config, data, device)
    task.model.train()
    return task


def step_cost(
    make: Callable[[], LinkTask], settings: Training, device: torch.device, *, per_edge: bool = False
) -> Report:
    """Measure a training step as the mean over a few batches: 10 on a GPU, one on a CPU and edge by edge."""
    taken: list[Tensor] = []

    def prepare() -> Callable[[], object]:
        task = make()
        if per_edge:
            edge_by_edge(task)
        update = make_step(task, settings, steps=10**9)
        many = 10 if device.type == "cuda" and not per_edge else 1
        taken.extend(task.examples(0, step) for step in range(min(many, task.steps_per_epoch)))

        def call() -> None:
            for examples in taken:
                update(examples, settings.lr)

        return call

    found = cost_from_scratch(prepare, device, _REPEATS)
    return {"ms": round(found["ms"] / len(taken), 4), "mib": found["mib"]}


def needed_mib(task: LinkTask) -> dict[str, float]:
    """Estimate the MiB that a step keeps, in float32, of all messages edge by edge, and of PyKEEN's scores."""
    if isinstance(task, ConditionalPrediction):
        layer = task.model.layers[0]
        assert isinstance(layer, ConditionalLayer)
        # x, z, phi(x, z) and its product with the weight [M, B, d]; for pna also its square, its extremes and gradients
        arrays = len(task.model.layers) * (4 if layer.statistics == "mean" else 10)
        size = 2 * task.graph.num_edges * task.batch_size * task.model.dim * task.model.dtype.itemsize
        return {"per edge": arrays * size / 2**20}
    encoder = task.model.encoder
    # x, z and phi(x, z) [E, in]; their product with a filter, plain and weighted [E, out]; both directions
    messages = 2 * task.graph.num_edges * sum(3 * inputs + 2 * outputs for inputs, outputs in pairwise(encoder.dims))
    scores = 4 * task.batch_size * encoder.num_nodes * encoder.dims[-1]  # four arrays [B, N, d]
    return {"per edge": messages * 4 / 2**20, "PyKEEN": scores * 4 / 2**20}
