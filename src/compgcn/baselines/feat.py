"""Features as one would make them by hand: which relations a node has, to what kind of node, and to which one."""

from __future__ import annotations

import numpy as np

from compgcn.baselines.counts import Adjacency, Describe, both_ways, sparse, weighings
from compgcn.baselines.fitted import Variant
from compgcn.data import KnowledgeGraph
from compgcn.data.arrays import Numbers
from compgcn.data.types import rows_by_type, typed


def feat_features(graph: KnowledgeGraph, nodes: Numbers, seed: int) -> list[Variant]:
    """Of any nodes, what more than one of these has; how often is weighed in several ways."""
    kinds = rows_by_type(graph) if typed(graph) else np.arange(graph.num_entities)
    edges = both_ways(graph.train, graph.num_entities, graph.num_relations)
    return weighings(sparse(relations(edges, kinds), nodes))


def relations(edges: Adjacency, kinds: Numbers) -> Describe:
    """For each edge of a node three things: its relation, that and the kind [N] of its end, that and the end itself."""
    steps, nodes, sorts = int(edges.step.max(initial=0)) + 1, len(edges.first) - 1, int(kinds.max(initial=0)) + 1

    def describe(chosen: Numbers) -> tuple[Numbers, Numbers]:
        place, edge = edges.follow(chosen)
        step, end = edges.step[edge], edges.end[edge]
        things = (step, steps + step * sorts + kinds[end], steps * (1 + sorts) + step * nodes + end)
        return np.tile(place, len(things)), np.concatenate(things)

    return describe
