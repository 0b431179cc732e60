"""The sum over edges, and the layer made of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from compgcn import kernels
from compgcn.data import KnowledgeGraph
from compgcn.nn import CompGCNConv
from compgcn.nn.compose import COMPOSITIONS
from compgcn.nn.encoder import Encoder
from compgcn.nn.graph import Norm, RelationalGraph
from reproduction.bench.measure import Cost, Report, Say, copy_bandwidth, cost, device_cost, environment, free_mib
from reproduction.bench.peers import PHI, PerEdge

_SCALES = tuple(10**k for k in range(4, 8))  # messages, inverses counted
_SCALED_NODES, _SCALED_RELATIONS, _SCALED_DIM = 100_000, 100, 100
_RELATIONS = (10, 100, 1_000, 10_000)
_RELATIONAL = ("compgcn", "rgcn", "rgcn-basis", "rgcn-block")  # encoders that know relations apart
_RELATIONAL_NODES, _RELATIONAL_EDGES, _RELATIONAL_DIM = 5_000, 50_000, 16
_SLOW = 60_000.0  # ms a call: a larger graph is not tried per edge on a CPU


def power_law(edges: int, nodes: int, relations: int, device: torch.device) -> RelationalGraph:
    """A graph with hubs: the share of the first nodes and relations falls as a power of their number."""
    generator = torch.Generator().manual_seed(0)
    names = torch.randperm(nodes, generator=generator)  # a hub may have any number
    src, dst = names[(torch.rand(2, edges, generator=generator) ** 3 * nodes).long()]
    rel = (torch.rand(edges, generator=generator) ** 2 * relations).long()
    return RelationalGraph(src, dst, rel, nodes, relations).to(device)


def bench_kernels(
    data: KnowledgeGraph, device: torch.device, *, scaling: bool = True, say: Say = lambda _: None
) -> Report:
    """aggregate and a layer, 100 -> 200, for each composition of the paper; and graphs of growing size.

    These are a layer on more and more messages, and encoders of one layer on more and more relations.
    """
    triples = torch.from_numpy(data.train).to(device)
    graph = RelationalGraph.from_triples(triples, data.num_entities, data.num_relations)
    report: Report = {"bench": "kernels", "data": data.name, "environment": environment(device)}
    report["messages"] = 2 * graph.num_edges
    report["copy_gb_s"] = round(copy_bandwidth(device), 1)
    say("building the plan")
    report["plan_ms"] = plan_cost(graph, device).as_dict()["ms"]
    report["aggregate"], report["layer"] = [], []
    for name in PHI:
        say(f"aggregate, {name}")
        report["aggregate"] += _aggregate(name, graph, device)
        say(f"a layer, {name}")
        report["layer"].append({"composition": name} | _layer(name, graph, 100, 200, device))
    if scaling:
        report["scaling"] = _scaling(device, say)
        report["relations"] = _relations(device, say)
    return report


def plan_cost(graph: RelationalGraph, device: torch.device) -> Cost:
    """What sorting the messages of a new graph costs."""
    return cost(lambda: graph.to(device).messages().plan(Norm("symmetric")), device, 3, 1)


def _aggregate(name: str, graph: RelationalGraph, device: torch.device) -> list[Report]:
    """Forward and both gradients of the sum over edges, d = 100."""
    phi = COMPOSITIONS[name]
    plan = graph.messages().plan(Norm("symmetric"))
    x = phi.lift(torch.randn(graph.num_nodes, 100, device=device))
    z = phi.lift_relation(torch.randn(2 * graph.num_relations, 100, device=device))
    g = torch.randn(2 * graph.num_nodes, x.shape[1], device=device)
    calls: dict[str, Callable[[], Tensor]] = {
        "forward": lambda: kernels.aggregate(x, z, None, plan, phi.combine),
        "gradient by x": lambda: kernels.gradient_by_x(g, z, plan.by_sender.weight, plan.by_sender, phi.combine),
        "gradient by z": lambda: kernels.gradient_by_z(g, x, z, plan.by_relation.weight, plan.by_relation, phi.combine),
    }
    rows = []
    for what, call in calls.items():
        operands = 1 if name == "sub" and what != "forward" else 2  # the gradients of x - z gather one row a message
        moved = 2 * graph.num_edges * (operands * x.shape[1] * 4 + 12)  # rows, two indices and a weight
        taken = device_cost(call, device)
        rows.append(
            {"composition": name, "what": what, **taken.as_dict(), "gathered_gb_s": round(moved / taken.ms / 1e6)}
        )
    return rows


def _layer(name: str, graph: RelationalGraph, inputs: int, outputs: int, device: torch.device) -> Report:
    """Forward and backward of a layer, ours and edge by edge."""
    ours = layer_cost(name, graph, inputs, outputs, device, per_edge=False)
    theirs = layer_cost(name, graph, inputs, outputs, device, per_edge=True)
    return _beside(ours, theirs)


def _beside(ours: Cost, theirs: Cost | None) -> Report:
    report: Report = {"ours": ours.as_dict(), "per_edge": None if theirs is None else theirs.as_dict()}
    if theirs is not None:
        report["times_faster"] = round(theirs.ms / ours.ms, 2)
        if ours.mib and theirs.mib:
            report["times_less_memory"] = round(theirs.mib / ours.mib, 2)
    return report


def layer_cost(
    name: str, graph: RelationalGraph, inputs: int, outputs: int, device: torch.device, *, per_edge: bool
) -> Cost:
    """What the forward and backward pass of one layer costs; its plan is made before."""
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
    """A layer (mult, 100 -> 100) on power-law graphs, edge by edge as long as that fits."""
    rows, fits = [], True
    for messages in _SCALES:
        nodes = min(_SCALED_NODES, messages // 10)
        say(f"a layer on {messages:,} messages")
        graph = power_law(messages // 2, nodes, _SCALED_RELATIONS, device)
        plan = plan_cost(graph, device)
        ours = layer_cost("mult", graph, _SCALED_DIM, _SCALED_DIM, device, per_edge=False)
        theirs = None
        if fits:
            try:
                theirs = layer_cost("mult", graph, _SCALED_DIM, _SCALED_DIM, device, per_edge=True)
            except torch.OutOfMemoryError:
                theirs = None
            fits = theirs is not None and (device.type == "cuda" or _affordable(theirs))
        rows.append({"messages": messages, "nodes": nodes, "plan_ms": plan.as_dict()["ms"], **_beside(ours, theirs)})
    return rows


def _relations(device: torch.device, say: Say) -> list[Report]:
    """Encoders of one layer, forward and backward, on power-law graphs of the same size but for their relations."""
    rows = []
    for relations in _RELATIONS:
        graph = power_law(_RELATIONAL_EDGES, _RELATIONAL_NODES, relations, device)
        for name in _RELATIONAL:
            say(f"{name} with {relations:,} relations")
            ours = _encoder_cost(name, graph, device)
            rows.append(
                {"encoder": name, "relations": relations, "messages": 2 * graph.num_edges, **_beside(ours, None)}
            )
    return rows


def _encoder_cost(name: str, graph: RelationalGraph, device: torch.device) -> Cost:
    composition = "mult" if name == "compgcn" else None
    dims = [_RELATIONAL_DIM, _RELATIONAL_DIM]
    encoder = Encoder(graph.num_nodes, graph.num_relations, dims, name, composition=composition).to(device)

    def call() -> None:
        encoder.zero_grad()
        encoder(graph)[0].sum().backward()

    return cost(call, device, repeats=7, warm_up=2)


def _affordable(last: Cost) -> bool:
    """Whether ten times as much is still worth measuring on a CPU, and fits."""
    free = free_mib(torch.device("cpu"))
    return 10 * last.ms < _SLOW and (free is None or last.mib is None or 10 * last.mib < free)
