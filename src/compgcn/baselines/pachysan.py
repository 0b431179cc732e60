"""PATCHY-SAN: convolutions over a canonical sequence of nodes (Niepert et al., 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.baselines.networks import GraphNetwork, extra, neighbours
from compgcn.config import Config
from compgcn.data import GraphCollection
from compgcn.data.columns import Numbers
from compgcn.errors import InputError
from compgcn.nn.dropout import dropout as drop_out
from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.inputs import Start

_FIELD = 10  # nodes of a receptive field, and fields that the second convolution sees
_KEPT = 2**14  # graphs whose fields are cached: they come again in every epoch

Neighbours = list[list[int]]


class PachySAN(GraphNetwork):
    """A sequence of w nodes, each with the k nodes around it in canonical order, and convolutions over it.

    The order does not depend on the numbering of the nodes, see `receptive_fields`; the kinds of edges make no
    difference.

    Args:
        width: w; a graph with fewer nodes is padded with zeros.
        dims: of the two convolutions, over one field and over ten, and of the vector of a graph.
        dropout: on the vector of a graph.
    """

    def __init__(self, start: Start, *, width: int, dims: Sequence[int], dropout: float = 0.5) -> None:
        one, two, hidden = dims
        super().__init__(start)
        extra("pynauty")  # refuse early if it is missing
        self.width, self.dim, self.dropout = max(width, _FIELD), hidden, dropout
        self._kinds: Tensor | None = None  # nodes with the same features are of one kind
        if self.node_features is not None:
            self._kinds = torch.unique(self.node_features, dim=0, return_inverse=True)[1].cpu()
        self.first = nn.Linear(_FIELD * self.inputs, one)  # a convolution over one field at a time
        self.second = nn.Conv1d(one, two, _FIELD)
        self.dense = nn.Linear(two * (self.width - _FIELD + 1), hidden)

    def forward(self, graph: RelationalGraph, rows: Tensor, graphs: int) -> Tensor:
        places = self._places(graph, rows, graphs).to(rows.device)  # [G, w * k], N where there is no node
        x = self.start(rows)
        x = torch.cat((x, x.new_zeros(1, x.shape[1])))  # [N + 1, f]
        fields = F.embedding(places, x).view(graphs, self.width, -1)  # [G, w, k * f]
        line = self.first(fields).relu().transpose(1, 2)  # [G, filters, w]
        found = self.second(line).relu().flatten(1)
        return drop_out(self.dense(found).relu(), self.dropout, self.training)

    def _places(self, graph: RelationalGraph, rows: Tensor, graphs: int) -> Tensor:
        """Return the nodes of every receptive field, one field after another [G, w * k]."""
        assert graph.graph_of_node is not None
        ends = neighbours(graph).cpu().numpy()
        kinds = (rows.cpu() if self._kinds is None else self._kinds[rows.cpu()]).numpy()
        nodes = np.searchsorted(graph.graph_of_node.cpu().numpy(), np.arange(graphs + 1))  # the first of each graph
        edges = np.searchsorted(ends[0], nodes)
        places = np.full((graphs, self.width * _FIELD), graph.num_nodes)
        for g in range(graphs):
            first, last = nodes[g], nodes[g + 1]
            inside = np.ascontiguousarray(ends[:, edges[g] : edges[g + 1]] - first)
            fields = _cached(inside.tobytes(), kinds[first:last].tobytes(), self.width)
            places[g, : fields.size] = np.where(fields < 0, graph.num_nodes, fields + first).ravel()
        return torch.from_numpy(places)


@lru_cache(_KEPT)
def _cached(edges: bytes, kinds: bytes, width: int) -> Numbers:
    sources, targets = np.frombuffer(edges, dtype=np.int64).reshape(2, -1)
    return receptive_fields(sources, targets, np.frombuffer(kinds, dtype=np.int64), width, _FIELD)


def receptive_fields(sources: Numbers, targets: Numbers, kinds: Numbers, width: int, field: int) -> Numbers:
    """Return the first nodes of a graph, at most `width`, with the nodes around each, -1 if there are too few.

    Nodes are ordered by Weisfeiler-Lehman colour, high degree first, and inside a field by distance and then colour. A
    canonical labelling breaks ties, so the kinds of the nodes in the fields do not depend on the numbering.
    The edges [E] go in both directions, sorted by source.
    """
    starts = np.searchsorted(sources, np.arange(len(kinds) + 1))
    around: Neighbours = [targets[starts[v] : starts[v + 1]].tolist() for v in range(len(kinds))]
    colours, kind_of = refine(around), kinds.tolist()
    order = canonical(around, list(zip(colours, kind_of, strict=True)))
    rank = {v: i for i, v in enumerate(order)}
    fields = np.full((min(width, len(order)), field), -1)
    for row, root in zip(fields, order, strict=False):
        distance = nearest(around, root, field)
        chosen = sorted(distance, key=lambda v: (distance[v], rank[v]))[:field]
        place = {v: i for i, v in enumerate(chosen)}
        within = [[place[u] for u in around[v] if u in place] for v in chosen]
        found = canonical(within, [(distance[v], colours[v], kind_of[v]) for v in chosen])
        row[: len(chosen)] = [chosen[i] for i in found]
    return fields


def refine(around: Neighbours) -> list[int]:
    """Return stable Weisfeiler-Lehman colours, smaller for nodes of higher degree."""
    colours = _numbered([(-len(near),) for near in around])
    while True:
        finer = _numbered([(colours[v], *sorted(colours[u] for u in near)) for v, near in enumerate(around)])
        if max(finer, default=0) == max(colours, default=0):
            return colours
        colours = finer


def _numbered(keys: list[tuple[int, ...]]) -> list[int]:
    numbers = {key: i for i, key in enumerate(sorted(set(keys)))}
    return [numbers[key] for key in keys]


def nearest(around: Neighbours, root: int, enough: int) -> dict[int, int]:
    """Return the distances of whole rings of nodes around a root, until there are enough or no more."""
    distance, ring, depth = {root: 0}, {root}, 0
    while ring and len(distance) < enough:
        depth += 1
        ring = {u for v in ring for u in around[v]} - distance.keys()
        distance |= dict.fromkeys(ring, depth)
    return distance


def canonical(around: Neighbours, keys: list[tuple[int, ...]]) -> list[int]:
    """Return the nodes of a graph in the order of their keys, ties in that of a canonical labelling."""
    import pynauty

    groups: dict[tuple[int, ...], set[int]] = {}
    for v, key in enumerate(keys):
        groups.setdefault(key, set()).add(v)
    if len(groups) == len(keys):
        return sorted(range(len(keys)), key=keys.__getitem__)
    cells = [groups[key] for key in sorted(groups)]
    graph = pynauty.Graph(len(keys), adjacency_dict=dict(enumerate(around)), vertex_coloring=cells)
    order: list[int] = pynauty.canon_label(graph)
    return order


def build_pachysan(config: Config, data: GraphCollection, start: Start) -> PachySAN:
    """Build the network of a config; the sequence is as long as the graphs have nodes on average."""
    e, width = config.encoder, -(-data.num_nodes // len(data))
    if len(e.dims) != 4:
        raise InputError(
            f"encoder.dims = {list(e.dims)}: pachysan takes four, of the input (any number: the data decide), its two "
            "convolutions and its dense layer, such as [1, 16, 8, 128]"
        )
    return PachySAN(start, width=width, dims=e.dims[1:], dropout=e.hidden_dropout)
