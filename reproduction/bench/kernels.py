"""Benchmark of the sum over edges, and of a layer made of it, on graphs of growing size."""

from __future__ import annotations

import torch

from compgcn import kernels
from compgcn.data import KnowledgeGraph
from compgcn.nn import CompGCNConv
from compgcn.nn.compose import resolve
from compgcn.nn.graph import Norm, RelationalGraph
from reproduction.bench.cost import Cost, Report, Say, cost, device_cost, environment, free_mib
from reproduction.bench.peers import PHI, PerEdge

_SCALES = tuple(10**k for k in range(4, 8))  # messages in both directions
_NODES, _RELATIONS, _DIM = 100_000, 100, 100  # of the growing graphs
_SLOW = 60_000.0  # ms per call beyond which a CPU does not try a larger graph per edge


def power_law(edges: int, nodes: int, relations: int, device: torch.device) -> RelationalGraph:
    """Return a graph with hubs: the share of nodes and relations falls as a power of their rank."""
    generator = torch.Generator().manual_seed(0)
    names = torch.randperm(nodes, generator=generator)  # a hub may have any index
    src, dst = names[(torch.rand(2, edges, generator=generator) ** 3 * nodes).long()]
    rel = (torch.rand(edges, generator=generator) ** 2 * relations).long()
    return RelationalGraph(src, dst, rel, nodes, relations).to(device)


def bench_kernels(data: KnowledgeGraph, device: torch.device, scaling: bool, say: Say) -> Report:
    """Measure `aggregate` and a layer, 100 -> 200, with each composition of the paper, then growing graphs."""
    triples = torch.from_numpy(data.train).to(device)
    graph = RelationalGraph.from_triples(triples, data.num_entities, data.num_relations)
    report: Report = {"bench": "kernels", "data": data.name, "environment": environment(device)}
    report |= {"messages": 2 * graph.num_edges, "plan_ms": plan_ms(graph, device), "aggregate": [], "layer": []}
    for name in PHI:
        say(f"aggregate and layer, {name}")
        report["aggregate"] += _aggregate(name, graph, device)
        ours, theirs = (layer_cost(name, graph, 100, 200, device, per_edge=one) for one in (False, True))
        report["layer"].append({"composition": name, **_beside(ours, theirs)})
    if scaling:
        report["scaling"] = _scaling(device, say)
    return report


def plan_ms(graph: RelationalGraph, device: torch.device) -> float:
    """Time the sorting of the messages of a new graph."""
    return round(cost(lambda: graph.to(device).messages().plan(Norm("symmetric")), device, 3, 1).ms, 4)


def _aggregate(name: str, graph: RelationalGraph, device: torch.device) -> list[Report]:
    """Measure the sum over edges and both its gradients, d = 100."""
    phi = resolve(name)
    plan = graph.messages().plan(Norm("symmetric"))
    x = phi.lift(torch.randn(graph.num_nodes, 100, device=device))
    z = phi.lift_relation(torch.randn(2 * graph.num_relations, 100, device=device))
    g = torch.randn(2 * graph.num_nodes, x.shape[1], device=device)
    calls = {
        "forward": lambda: kernels.aggregate(x, z, None, plan, phi.combine),
        "gradient by x": lambda: kernels.gradient_by_x(g, z, plan.by_sender.weight, plan.by_sender, phi.combine),
        "gradient by z": lambda: kernels.gradient_by_z(g, x, z, plan.by_relation.weight, plan.by_relation, phi.combine),
    }
    return [{"composition": name, "what": k, **device_cost(call, device).as_dict()} for k, call in calls.items()]


def layer_cost(
    name: str, graph: RelationalGraph, inputs: int, outputs: int, device: torch.device, *, per_edge: bool
) -> Cost:
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


def _beside(ours: Cost, theirs: Cost | None) -> Report:
    report: Report = {"ours": ours.as_dict(), "per_edge": None if theirs is None else theirs.as_dict()}
    if theirs is not None:
        report["times_faster"] = round(theirs.ms / ours.ms, 2)
        if ours.mib and theirs.mib:
            report["times_less_memory"] = round(theirs.mib / ours.mib, 2)
    return report


def _scaling(device: torch.device, say: Say) -> list[Report]:
    """Measure a layer (mult, 100 -> 100) on power-law graphs, edge by edge as long as that fits."""
    rows, fits = [], True
    for messages in _SCALES:
        nodes = min(_NODES, messages // 10)
        say(f"layer on {messages:,} messages")
        graph = power_law(messages // 2, nodes, _RELATIONS, device)
        sizes = {"messages": messages, "nodes": nodes, "plan_ms": plan_ms(graph, device)}
        ours, theirs = layer_cost("mult", graph, _DIM, _DIM, device, per_edge=False), None
        if fits:
            try:
                theirs = layer_cost("mult", graph, _DIM, _DIM, device, per_edge=True)
            except torch.OutOfMemoryError:
                fits = False
        if theirs is not None and device.type == "cpu":  # the next graph is ten times larger
            fits = 10 * theirs.ms < _SLOW and 10 * (theirs.mib or 0.0) < free_mib(device)
        rows.append({**sizes, **_beside(ours, theirs)})
    return rows
