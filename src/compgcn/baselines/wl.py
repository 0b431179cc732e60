"""The Weisfeiler-Lehman kernel for RDF: nodes are alike if their neighbourhoods hold the same subtrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compgcn.baselines.fitted import Adjacency, Describe, Variant, outgoing, sparse, weighings
from compgcn.data import KnowledgeGraph
from compgcn.data.columns import Numbers
from compgcn.data.graph import rows_by_type, typed

DEPTHS = (1, 2, 3, 4)  # steps along outgoing edges that a neighbourhood goes


def wl_features(graph: KnowledgeGraph, nodes: Numbers, seed: int) -> list[Variant]:
    """Return counts of the subtrees in the neighbourhood of nodes.

    The variants differ in depth, in the kind of a node, by its types or the node itself, and in the weighing.
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
    """Return the subtree of each node down to 0, 1, .. depth as a number, [N] each.

    The subtree down to 0 is the kind of the node. The one down to i + 1 adds, for all edges of the node, the relation
    and the subtree of the other end down to i.
    """
    relations, nodes = int(edges.step.max(initial=0)) + 1, len(edges.first) - 1
    labels = [kinds]
    for _ in range(depth):
        owner, edge = edges.follow(np.arange(nodes))
        code = labels[-1][edges.end[edge]] * relations + edges.step[edge]
        code = code[np.lexsort((code, owner))]
        sets = [part.tobytes() for part in np.split(code, edges.first[1:-1])]
        number: dict[tuple[int, bytes], int] = {}
        keys = zip(labels[-1].tolist(), sets, strict=True)
        labels.append(np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64))
    return labels


def subtrees(edges: Adjacency, labels: Sequence[Numbers]) -> Describe:
    """Describe a node by the subtrees of the nodes and edges around it, down to the depth of the last labels.

    A node counts once, however many ways lead to it. At distance k from the root its subtrees down to depth - k count,
    and those of its edges down to one less.
    """
    depth, relations, size = len(labels) - 1, int(edges.step.max(initial=0)) + 1, len(edges.first)
    sizes = np.array([int(label.max(initial=0)) + 1 for label in labels])
    starts = np.concatenate([[0], np.cumsum(sizes * (1 + relations))])  # numbers of nodes, then edges, of each depth

    def describe(nodes: Numbers) -> tuple[Numbers, Numbers]:
        root, at = np.arange(len(nodes)), nodes
        seen = root * size + at  # pairs of a root and a node
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
            new = np.setdiff1d(root[place] * size + edges.end[edge], seen)
            seen = np.union1d(seen, new)
            root, at = new // size, new % size
        return np.concatenate(rows), np.concatenate(things)

    return describe
