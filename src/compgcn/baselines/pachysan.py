"""PATCHY-SAN: learning convolutional neural networks for graphs (Niepert et al., 2016)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.baselines.networks import GraphNetwork, classifier, extra, neighbours
from compgcn.config import Config
from compgcn.data import GraphCollection
from compgcn.data.columns import Numbers
from compgcn.errors import InputError
from compgcn.nn.dropout import dropout as drop_out
from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.classification import GraphClassifier
from compgcn.tasks.inputs import Start

_FIELD = 10  # places the second convolution sees
_KEPT = 2**14  # graphs whose fields are remembered: they come again in every epoch

Neighbours = list[list[int]]


class PachySAN(GraphNetwork):
    """A graph as a sequence of w nodes, each with the k nodes around it in an order of their own, and convolutions.

    The order does not depend on how the nodes are numbered, so that the convolutions find the same part of two graphs
    in the same place; see `receptive_fields`. What kind an edge is makes no difference.

    Args:
        num_rows, node_features: what nodes start from.
        width: w, the length of the sequence; a graph with fewer nodes is padded with zeros.
        field: k, the size of a receptive field.
        filters: of the two convolutions, the first over one field at a time and the second over ten.
        hidden: the dimension of the dense layer, whose output is the vector of a graph.
        dropout: on that vector.
    """

    def __init__(
        self,
        num_rows: int,
        node_features: Tensor | None = None,
        *,
        width: int,
        field: int = 10,
        filters: tuple[int, int] = (16, 8),
        hidden: int = 128,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(num_rows, node_features, hidden)
        extra("pynauty")  # what is missing is said before anything is trained
        self.width, self.field, self.dropout = max(width, _FIELD), field, dropout
        # Nodes of different kinds are told apart; those with the same features are of one kind.
        self._kinds = (
            None if node_features is None else torch.unique(node_features, dim=0, return_inverse=True)[1].cpu()
        )
        self.first = nn.Linear(field * self.inputs, filters[0])  # a convolution over one field at a time
        self.second = nn.Conv1d(*filters, _FIELD)
        self.dense = nn.Linear(filters[1] * (self.width - _FIELD + 1), hidden)

    def forward(self, graph: RelationalGraph, rows: Tensor, graphs: int) -> Tensor:
        places = self._places(graph, rows, graphs).to(rows.device)  # [G, w * k], N where there is no node
        x = self.start(rows)
        x = torch.cat((x, x.new_zeros(1, x.shape[1])))  # [N + 1, f]
        fields = F.embedding(places, x).view(graphs, self.width, -1)  # [G, w, k * f]
        line = self.first(fields).relu().transpose(1, 2)  # [G, filters, w]
        found = self.second(line).relu().flatten(1)
        return drop_out(self.dense(found).relu(), self.dropout, self.training)

    def _places(self, graph: RelationalGraph, rows: Tensor, graphs: int) -> Tensor:
        """The nodes of every receptive field, one field after another."""
        assert graph.graph_of_node is not None
        ends = neighbours(graph).cpu().numpy()
        kinds = (rows.cpu() if self._kinds is None else self._kinds[rows.cpu()]).numpy()
        numbers = np.arange(graphs + 1)
        nodes = np.searchsorted(graph.graph_of_node.cpu().numpy(), numbers)  # where those of each graph start
        edges = np.searchsorted(ends[0], nodes)
        places = np.full((graphs, self.width * self.field), graph.num_nodes)
        for g in range(graphs):
            first, last = nodes[g], nodes[g + 1]
            inside = np.ascontiguousarray(ends[:, edges[g] : edges[g + 1]] - first)
            fields = _remembered(inside.tobytes(), kinds[first:last].tobytes(), self.width, self.field)
            places[g, : fields.size] = np.where(fields < 0, graph.num_nodes, fields + first).ravel()
        return torch.from_numpy(places)


@lru_cache(_KEPT)
def _remembered(edges: bytes, kinds: bytes, width: int, field: int) -> Numbers:
    sources, targets = np.frombuffer(edges, dtype=np.int64).reshape(2, -1)
    return receptive_fields(sources, targets, np.frombuffer(kinds, dtype=np.int64), width, field)


def receptive_fields(sources: Numbers, targets: Numbers, kinds: Numbers, width: int, field: int) -> Numbers:
    """The first nodes of a graph, at most `width`, and the nodes around each, [w, field]; -1 where there are no more.

    Nodes come in the order of their Weisfeiler-Lehman colours, those of high degree first; in a field, by their
    distance to its first node, and then by colour. Where that leaves a tie, a canonical labelling decides: so the kinds
    of the nodes in the fields are the same however the nodes are numbered.

    Args:
        sources, targets: [E], the edges in both directions, sorted by source.
        kinds: of the nodes [N].
    """
    starts = np.searchsorted(sources, np.arange(len(kinds) + 1))
    around: Neighbours = [targets[starts[v] : starts[v + 1]].tolist() for v in range(len(kinds))]
    colours = refine(around)
    kind_of = kinds.tolist()
    order = canonical(around, [(colour, kind) for colour, kind in zip(colours, kind_of, strict=True)])
    rank = dict(zip(order, range(len(order)), strict=True))
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
    """Weisfeiler-Lehman colours, numbered such that a node of higher degree has a smaller one; until they stay."""
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
    """The distance of the nodes around a root, whole rings of them, until there are enough or no more."""
    distance, ring, depth = {root: 0}, {root}, 0
    while ring and len(distance) < enough:
        depth += 1
        ring = {u for v in ring for u in around[v]} - distance.keys()
        distance |= dict.fromkeys(ring, depth)
    return distance


def canonical(around: Neighbours, keys: list[tuple[int, ...]]) -> list[int]:
    """The nodes of a graph in the order of their keys; of equals, in that of the graph's canonical labelling."""
    groups: dict[tuple[int, ...], set[int]] = {}
    for v, key in enumerate(keys):
        groups.setdefault(key, set()).add(v)
    if len(groups) == len(keys):  # nothing is left to break
        return sorted(range(len(keys)), key=keys.__getitem__)
    nauty = extra("pynauty")
    cells = [groups[key] for key in sorted(groups)]
    order: list[int] = nauty.canon_label(
        nauty.Graph(len(keys), adjacency_dict=dict(enumerate(around)), vertex_coloring=cells)
    )
    return order


def build_pachysan(config: Config, data: GraphCollection, start: Start) -> GraphClassifier:
    """The classifier of a config; `encoder.dims` are those of the input, the convolutions and the dense layer.

    The sequence is as long as the graphs have nodes on average.
    """
    e, width = config.encoder, -(-data.num_nodes // len(data))
    if len(e.dims) != 4:
        raise InputError(
            f"encoder.dims = {list(e.dims)}: pachysan takes four, of the input (any number: the data decide), its two "
            "convolutions and its dense layer, such as [1, 16, 8, 128]"
        )
    _, *filters, hidden = e.dims
    network = PachySAN(
        start.size,
        start.vectors,
        width=width,
        filters=(filters[0], filters[1]),
        hidden=hidden,
        dropout=e.hidden_dropout,
    )
    return classifier(network, data)
