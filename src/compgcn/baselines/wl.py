"""The Weisfeiler-Lehman kernel for RDF: nodes are alike whose neighbourhoods hold the same subtrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compgcn.baselines.fitted import Adjacency, Describe, Variant, outgoing, sparse, weighings
from compgcn.data import KnowledgeGraph
from compgcn.data.columns import Numbers
from compgcn.data.graph import rows_by_type, typed

DEPTHS = (1, 2, 3, 4)  # steps along outgoing edges that a neighbourhood goes


def wl_features(graph: KnowledgeGraph, nodes: Numbers, seed: int) -> list[Variant]:
    """How often each subtree occurs in the neighbourhood of any nodes, if it does in that of more than one of these.

    In variants: how deep, whether the kind of a node is that of its types or every node is one of its own, and how
    counts are weighed.
    """
    edges = outgoing(graph.train, graph.num_entities)
    starts = {"types": rows_by_type(graph)} if typed(graph) else {}
    starts["nodes"] = np.arange(graph.num_entities)
    labels = {start: refined(edges, kinds, DEPTHS[-1]) for start, kinds in starts.items()}
    return [
        variant
        for depth in DEPTHS
        for start, known in labels.items()
        for variant in weighings(sparse(subtrees(edges, known[: depth + 1]), nodes), depth=depth, start=start)
    ]


def refined(edges: Adjacency, kinds: Numbers, depth: int) -> list[Numbers]:
    """The subtree of each node down to 0, 1, .. depth, as a number, [N] each.

    Down to 0 it is the kind [N] of the node, and down to i + 1 the same with its edges, the subtree of an edge being
    its relation and that of its end down to i.
    """
    relations = int(edges.step.max(initial=0)) + 1
    labels = [kinds]
    for _ in range(depth):
        labels.append(_relabelled(edges, labels[-1], relations))
    return labels


def subtrees(edges: Adjacency, labels: Sequence[Numbers]) -> Describe:
    """What hangs from the nodes and the edges of a neighbourhood, down to a depth in all: that of the last labels.

    A node counts once, however many ways lead to it; at a distance of k from the root its subtrees down to depth - k
    are looked at, and those of its edges a step less.
    """
    depth, relations = len(labels) - 1, int(edges.step.max(initial=0)) + 1
    sizes = np.array([int(label.max(initial=0)) + 1 for label in labels])
    starts = np.concatenate([[0], np.cumsum(sizes * (1 + relations))])  # nodes, then edges, of each depth

    def describe(nodes: Numbers) -> tuple[Numbers, Numbers]:
        root, at = np.arange(len(nodes)), nodes
        seen = _pairs(root, at, len(edges.first))
        rows, things = [], []
        for distance in range(depth + 1):
            for down in range(depth - distance + 1):
                rows.append(root)
                things.append(starts[down] + labels[down][at])
            if distance == depth:
                break
            place, edge = edges.follow(at)
            for down in range(depth - distance):
                rows.append(root[place])
                code = edges.step[edge] * sizes[down] + labels[down][edges.end[edge]]
                things.append(starts[down] + sizes[down] + code)
            new = np.setdiff1d(_pairs(root[place], edges.end[edge], len(edges.first)), seen)
            seen = np.union1d(seen, new)
            root, at = new // len(edges.first), new % len(edges.first)
        return np.concatenate(rows), np.concatenate(things)

    return describe


def _pairs(root: Numbers, at: Numbers, size: int) -> Numbers:
    return root * size + at


def _relabelled(edges: Adjacency, label: Numbers, relations: int) -> Numbers:
    """A new label for each node [N]: one for each pair of a label and a multiset of (relation, label of the end)."""
    nodes = len(edges.first) - 1
    owner, edge = edges.follow(np.arange(nodes))
    code = label[edges.end[edge]] * relations + edges.step[edge]
    code = code[np.lexsort((code, owner))]
    number: dict[tuple[int, bytes], int] = {}
    sets = [part.tobytes() for part in np.split(code, edges.first[1:-1])]
    keys = zip(label.tolist(), sets, strict=True)
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
