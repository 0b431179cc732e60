"""A relational graph, the messages that its edges carry, and the weights (norms) of those messages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, TypeVar, TypeVarTuple, cast, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from compgcn.errors import InputError, must_be_known
from compgcn.kernels import Groups, PairPlan, Plan, make_groups, make_pair_plan, make_plan


class Weights(NamedTuple):
    """The weights of messages and self-loops in the sums at their receivers."""

    message: Tensor  # [M]
    loop: Tensor | None  # [N]; None: 1 each


class Norm(NamedTuple):
    """The weights to use: a name of `NORMS`, whether there are self-loops, and the dtype of the computation."""

    name: str
    self_loop: bool = True
    dtype: torch.dtype = torch.float32


def _degrees(m: Messages, end: Tensor, dtype: torch.dtype) -> Tensor:
    """Count the messages that each node has at this end, its sender or receiver [M], by direction: [N G]."""
    key = end * m.num_directions + m.direction
    whole = torch.zeros(m.num_nodes * m.num_directions, dtype=torch.long, device=key.device)
    counts = whole.scatter_add_(0, key, torch.ones_like(key)).to(dtype)
    return counts if m.complete is None else m.complete(counts.view(-1, m.num_directions)).flatten()


def _received(m: Messages, dtype: torch.dtype) -> Tensor:
    """Count, per message, the messages that its receiver gets in its direction."""
    return _degrees(m, m.receiver, dtype)[m.receiver * m.num_directions + m.direction]


def _none(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """1: the bare sum of the paper's Eq. node_update."""
    return Weights(torch.ones(m.sender.shape, dtype=dtype, device=m.sender.device), None)


def _symmetric(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """1/sqrt(received by the receiver * sent by the sender), both in the message's direction."""
    sent = _degrees(m, m.sender, dtype)[m.sender * m.num_directions + m.direction]
    return Weights((_received(m, dtype) * sent).rsqrt(), None)


def _mean(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """1/received, in the message's direction."""
    return Weights(_received(m, dtype).reciprocal(), None)


def _relation_mean(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """R-GCN's 1/|N_v^r|: the mean over the neighbours of a receiver by one relation."""
    _, pair, count = torch.unique(m.receiver * m.num_relations + m.relation, return_inverse=True, return_counts=True)
    return Weights(count[pair].to(dtype).reciprocal(), None)


def _kipf(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """D^-1/2 (A + I) D^-1/2 over both directions and the loop, D the row sums of A + I."""
    degree = _degrees(m, m.receiver, dtype).view(-1, m.num_directions).sum(1) + float(self_loop)  # [N]
    inverse = torch.where(degree > 0, degree.reciprocal(), 0.0)
    root = inverse.sqrt()
    return Weights(root[m.receiver] * root[m.sender], inverse)


def _released(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """The released code: both degrees counted on the receiving side, and the three sums divided by 3.

    A sender that receives nothing in the direction of a message has degree 0 there, and the message vanishes.
    """
    degree = _degrees(m, m.receiver, dtype)
    root = torch.where(degree > 0, degree.rsqrt(), 0.0)
    receiver, sender = (end * m.num_directions + m.direction for end in (m.receiver, m.sender))
    return Weights(root[receiver] * root[sender] / 3, root.new_full((m.num_nodes,), 1 / 3))


Complete = Callable[[Tensor], Tensor]

NORMS: dict[str, Callable[[Messages, bool, torch.dtype], Weights]] = {
    "none": _none,
    "symmetric": _symmetric,
    "mean": _mean,
    "relation-mean": _relation_mean,
    "kipf": _kipf,
    "released": _released,
}

# Norms whose weights depend on other messages of the sender.
COUNT_SENT = ("symmetric", "kipf", "released")


_Args = TypeVarTuple("_Args")
_T = TypeVar("_T")


def lasting(make: Callable[[], _T]) -> _T:
    """Make tensors that outlive an evaluation: training refuses those made in inference mode."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return make()
    with torch.inference_mode(False), torch.no_grad():
        return make()


def _once(make: Callable[[Messages, *_Args], _T]) -> Callable[[Messages, *_Args], _T]:
    """Keep what a method returns with the messages: the same arguments give the same tensors."""
    name = make.__name__

    @wraps(make)
    def get(self: Messages, *args: *_Args) -> _T:
        key = (name, *args)
        if key not in self._kept:
            self._kept[key] = lasting(lambda: make(self, *args))
        return cast(_T, self._kept[key])

    return get


class Contents(NamedTuple):
    """The distinct contents of messages, for a composition without factors: it is computed once for each."""

    sender: Tensor  # [P]
    relation: Tensor  # [P]
    messages: Messages  # the same messages, each sent by the pair it carries


class Pairs(NamedTuple):
    """Sums per (relation, receiver), for filters that differ by relation: sum first, multiply by W_r, sum again."""

    gather: Plan  # messages -> pairs
    groups: Groups  # which pairs belong to which relation
    scatter: Plan  # pairs -> receivers


@dataclass(eq=False, repr=False)
class Messages:
    """The directed messages of a graph: originals (direction 0), then inverses (direction 1).

    Plans and weights are made on first use and kept, so sorting happens once per graph. Messages of a part of a graph
    have their weights in the whole: `part_of` holds the messages of the whole, which of them these are [M], and which
    of its nodes receive here [num_receivers].
    """

    sender: Tensor  # [M]
    receiver: Tensor  # [M]
    relation: Tensor  # [M], inverses offset by the number of relations
    direction: Tensor  # [M]
    num_nodes: int
    num_receivers: int  # nodes 0 to here receive: all, but in a part of a graph
    num_relations: int  # rows of the relation table: 2R with inverses, R without
    num_directions: int
    num_senders: int  # rows of the table that senders are rows of
    part_of: tuple[Messages, Tensor | slice, Tensor | slice] | None = None
    edge: Tensor | None = None  # [M], over both directions; None: each one in its place
    loops: bool = False  # whether the last direction are loops, see `with_loops`
    scale: Tensor | None = None  # [M], factors of the weights of a sample
    complete: Complete | None = None  # see `RelationalGraph.complete`
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    @_once
    def plan(self, norm: Norm | None) -> Plan:
        """Return the plan whose rows are (receiver, direction), so that one pass sums both directions.

        Without a norm it has no weights: every call brings its own.
        """
        if norm is not None:
            return self.plan(None).weighted(self.weights(norm).message)
        return self._plan(self.sender, self.num_senders, self.relation, self.num_relations)

    @_once
    def relation_plan(self, norm: Norm | None) -> Plan:
        """Return the plan of the same rows in which every message sends a row of a relation table (D-GCN's biases)."""
        if norm is not None:
            return self.relation_plan(None).weighted(self.weights(norm).message)
        return self._plan(self.relation, self.num_relations, torch.zeros_like(self.relation), 1)

    def _plan(self, sender: Tensor, senders: int, relation: Tensor, relations: int) -> Plan:
        row = self.receiver * self.num_directions + self.direction
        rows = self.num_receivers * self.num_directions
        return make_plan(row, sender, relation, rows=rows, senders=senders, relations=relations)

    @_once
    def receiver_plan(self) -> PairPlan:
        """Return the plan whose rows are receivers, both directions in one sum; every call brings its weights."""
        sizes = {"rows": self.num_receivers, "senders": self.num_senders, "relations": self.num_relations}
        return make_pair_plan(self.receiver, self.sender, self.relation, **sizes)

    @_once
    def pairs(self, norm: Norm | None) -> Pairs:
        """Return the distinct (relation, receiver) pairs, in order of relation."""
        if norm is not None:
            pairs = self.pairs(None)
            return pairs._replace(gather=pairs.gather.weighted(self.weights(norm).message))
        N, Z = self.num_nodes, self.num_relations
        key, pair = torch.unique(self.relation * N + self.receiver, return_inverse=True)  # sorted: by relation first
        P, index = key.numel(), torch.arange(key.numel(), device=key.device)
        gather = make_plan(pair, self.sender, self.relation, rows=P, senders=self.num_senders, relations=Z)
        scatter = make_plan(key % N, index, torch.zeros_like(key), rows=self.num_receivers, senders=P, relations=1)
        ones = torch.ones(key.shape, device=key.device)
        return Pairs(gather, make_groups(key // N, Z), scatter.weighted(ones))

    @_once
    def contents(self) -> Contents:
        """Return the distinct (sender, relation) pairs, in order of sender."""
        key, pair = torch.unique(self.sender * self.num_relations + self.relation, return_inverse=True)
        messages = self._derived(sender=pair, num_senders=key.numel())
        return Contents(key // self.num_relations, key % self.num_relations, messages)

    @_once
    def with_loops(self) -> Messages:
        """Return the messages and a loop at every receiver, as one more direction and one more relation."""
        every = torch.arange(self.num_receivers, device=self.sender.device)
        return self._derived(
            sender=torch.cat((self.sender, every)),
            receiver=torch.cat((self.receiver, every)),
            relation=torch.cat((self.relation, torch.full_like(every, self.num_relations))),
            direction=torch.cat((self.direction, torch.full_like(every, self.num_directions))),
            num_relations=self.num_relations + 1,
            num_directions=self.num_directions + 1,
            loops=True,
        )

    def _derived(self, **changes: Any) -> Messages:
        """Return these messages in another form, with the weights they have here unless the changes say otherwise."""
        return replace(self, **{"part_of": (self, slice(None), slice(None)), "scale": None, **changes}, _kept={})

    @_once
    def weights(self, norm: Norm) -> Weights:
        """Return the weights of a row of `NORMS`."""
        if self.part_of is None:
            return NORMS[norm.name](self, norm.self_loop, norm.dtype)
        whole, messages, nodes = self.part_of
        weights = whole.weights(norm)
        if self.loops:
            loop = weights.message.new_ones(self.num_receivers) if weights.loop is None else weights.loop
            return Weights(torch.cat((weights.message, loop)), None)
        message = weights.message[messages]
        message = message if self.scale is None else message * self.scale.to(message.dtype)
        return Weights(message, None if weights.loop is None else weights.loop[nodes])

    def of_edges(self, values: Tensor) -> Tensor:
        """Repeat values of the edges of the graph [E] for every message [M]; a loop, which is no edge, has 1."""
        if self.loops and self.part_of is not None:
            return F.pad(self.part_of[0].of_edges(values), (0, self.num_receivers), value=1.0)
        both = values.repeat(self.num_directions)
        return both if self.edge is None else both[self.edge]

    def sample(self, nodes: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Return at most so many messages to each of some nodes [n], and factors of their weights, [m] both."""
        by_row, directions = self.plan(None).by_row, self.num_directions  # the messages of a receiver stand together
        start = by_row.offsets[nodes * directions]
        count = by_row.offsets[(nodes + 1) * directions] - start  # [n]
        taken = count.clamp_max(most)
        row = torch.repeat_interleave(taken)  # [m]
        nth = torch.arange(len(row), device=row.device) - (taken.cumsum(0) - taken)[row]
        at = (nth + torch.rand(len(row), device=row.device).double()) * count[row] / taken[row]
        return by_row.order[start[row] + at.long()], (count / taken)[row]


Flow = Literal["source_to_target", "target_to_source"]
FLOWS: tuple[Flow, ...] = get_args(Flow)


def _places(ids: Tensor, among: Tensor) -> Tensor:
    """Return where each id [m] stands among distinct ones [n], -1 where it does not; no tensor is longer than these."""
    ordered, order = among.sort()
    at = torch.searchsorted(ordered, ids).clamp_max(len(among) - 1)
    return torch.where(ordered[at] == ids, order[at], -1)


class Neighbourhood(NamedTuple):
    """The surroundings of some nodes, hop by hop; see `RelationalGraph.around`."""

    layers: list[RelationalGraph]  # the input of each layer; its nodes are the receivers of the one before
    nodes: Tensor  # [N'], the nodes of the whole that the first one has, by distance
    places: Tensor  # [n], where the asked nodes stand among the receivers of the last


class RelationalGraph:
    """Edges src -> dst by rel over `num_nodes` nodes and `num_relations` relations, inverses and loops not included.

    Args:
        src, dst, rel: int64 tensors [E].
        graph_of_node: [N], the graph of a disjoint union that each node belongs to; None for a single graph.
    """

    def __init__(
        self,
        src: Tensor,
        dst: Tensor,
        rel: Tensor,
        num_nodes: int,
        num_relations: int,
        graph_of_node: Tensor | None = None,
    ) -> None:
        self.src, self.dst, self.rel = src, dst, rel
        self.num_nodes, self.num_relations = num_nodes, num_relations
        self.num_receivers = num_nodes  # fewer in a part of a graph, see `around`
        self.graph_of_node = graph_of_node
        self.complete: Complete | None = None  # maps counts of edges here [N, G] to those in all parts of a graph
        self._messages: dict[tuple[Flow, bool], Messages] = {}
        self._part_of: tuple[RelationalGraph, Tensor, Tensor] | None = None  # a graph, its edges, its receivers
        if not torch.compiler.is_compiling():
            self._check()

    def _check(self) -> None:
        shapes = tuple(tuple(t.shape) for t in (self.src, self.dst, self.rel))
        if len(set(shapes)) > 1 or len(shapes[0]) != 1:
            raise InputError(f"src, dst and rel must be vectors of one length, not of shapes {shapes}")
        wrong = sorted(str(t.dtype) for t in (self.src, self.dst, self.rel) if t.dtype != torch.int64)
        if wrong:
            raise InputError(f"node and relation indices must be torch.int64, not {wrong[0]}; convert with .long()")
        batch = self.graph_of_node
        if batch is not None and (batch.dtype != torch.int64 or batch.shape != (self.num_nodes,)):
            given = f"{batch.dtype} of shape {list(batch.shape)}"
            raise InputError(f"graph_of_node must be torch.int64 of shape [{self.num_nodes}], not {given}")
        if self.src.numel():
            _check_range("node index", torch.stack((self.src, self.dst)), self.num_nodes)
            _check_range("relation index", self.rel, self.num_relations)

    @classmethod
    def from_triples(cls, triples: Tensor, num_nodes: int, num_relations: int) -> RelationalGraph:
        """Make a graph of rows (s, r, o), [n, 3]."""
        if triples.dim() != 2 or triples.shape[1] != 3:
            raise InputError(f"triples must have shape [n, 3], not {list(triples.shape)}")
        src, rel, dst = triples.T.contiguous()
        return cls(src, dst, rel, num_nodes, num_relations)

    @classmethod
    def from_pyg(cls, data: Any, num_relations: int | None = None) -> RelationalGraph:
        """Make a graph of a PyG `Data` with edge_index [2, E] and edge_type [E], or of a `HeteroData`.

        The nodes of a `HeteroData` stand one type after the other; a relation is the middle name of an edge type.

        Args:
            data: the graph; the `batch` [N] of a `Data` is the graph that each node belongs to.
            num_relations: R; None for the `num_relations` of the `Data`, which `to_pyg` writes, or else the number
                that its edges have.
        """
        if hasattr(type(data), "edge_types"):
            return cls._from_hetero(data, num_relations)
        edge_index, edge_type = (getattr(data, name, None) for name in ("edge_index", "edge_type"))
        if edge_index is None or edge_type is None:
            raise InputError("a PyG graph needs edge_index [2, E] and edge_type [E], the relation of each edge")
        src, dst = edge_index.contiguous()
        if num_relations is None and (own := getattr(data, "num_relations", None)) is not None:
            num_relations = int(torch.as_tensor(own).max())  # a batch has one of each of its graphs
        if num_relations is None:
            num_relations = int(edge_type.max()) + 1 if edge_type.numel() else 0
        return cls(src, dst, edge_type, int(data.num_nodes), num_relations, getattr(data, "batch", None))

    @classmethod
    def _from_hetero(cls, data: Any, num_relations: int | None) -> RelationalGraph:
        sizes = {kind: int(data[kind].num_nodes) for kind in data.node_types}
        start = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
        relation = {name: i for i, name in enumerate(dict.fromkeys(kind[1] for kind in data.edge_types))}
        if not relation:
            raise InputError("the PyG graph has no edges")
        edges = []
        for kind in data.edge_types:
            src, dst = data[kind].edge_index
            for end, node_type in ((src, kind[0]), (dst, kind[2])):
                if end.numel():
                    _check_range(f"node index of type '{node_type}' in the edges {kind}", end, sizes[node_type])
            edges.append((src + start[kind[0]], dst + start[kind[2]], torch.full_like(src, relation[kind[1]])))
        src, dst, rel = (torch.cat(parts) for parts in zip(*edges, strict=True))
        return cls(src, dst, rel, sum(sizes.values()), len(relation) if num_relations is None else num_relations)

    def to_pyg(self) -> Any:
        """Return a PyG `Data` with edge_index, edge_type, num_nodes, num_relations and, for a union, batch [N]."""
        try:
            from torch_geometric.data import Data
        except ImportError:
            raise InputError("to_pyg needs PyG: install it with pip install torch-geometric") from None
        more = {"num_nodes": self.num_nodes, "num_relations": self.num_relations}
        batch = {} if self.graph_of_node is None else {"batch": self.graph_of_node}
        return Data(edge_index=torch.stack((self.src, self.dst)), edge_type=self.rel, **more, **batch)

    @classmethod
    def from_networkx(cls, graph: Any, relation: str = "relation") -> RelationalGraph:
        """Make a graph of a NetworkX DiGraph or MultiDiGraph; nodes and relations are numbered as they are met.

        Args:
            relation: the edge attribute that holds the relation; an edge without one has its key, if that is text.
        """
        node = {name: i for i, name in enumerate(graph)}
        rows = networkx_edges(graph, relation)
        number = {name: i for i, name in enumerate(dict.fromkeys(r for _, r, _ in rows))}
        triples = torch.tensor([(node[s], number[r], node[o]) for s, r, o in rows], dtype=torch.int64).reshape(-1, 3)
        return cls.from_triples(triples, len(node), len(number))

    @property
    def num_edges(self) -> int:
        return self.src.numel()

    def to(self, device: torch.device | str) -> RelationalGraph:
        """Return the whole graph on a device; refuse a part of one."""
        if self._part_of is not None:
            raise InputError("a part of a graph cannot move to a device; move the whole graph and take the part again")
        parts = (self.src.to(device), self.dst.to(device), self.rel.to(device))
        batch = None if self.graph_of_node is None else self.graph_of_node.to(device)
        return RelationalGraph(*parts, self.num_nodes, self.num_relations, batch)

    def without_edges(self) -> RelationalGraph:
        """Return the ablation 'no graph': the same nodes and relations, no edge."""
        none = self.rel[:0]
        return RelationalGraph(none, none, none, self.num_nodes, self.num_relations, self.graph_of_node)

    def randomised(self, generator: torch.Generator) -> RelationalGraph:
        """Return the ablation 'random graph': as many edges of each relation, between nodes drawn uniformly."""
        src, dst = torch.randint(self.num_nodes, (2, self.num_edges), generator=generator).to(self.src.device)
        return RelationalGraph(src, dst, self.rel, self.num_nodes, self.num_relations, self.graph_of_node)

    def around(self, nodes: Tensor, hops: int) -> Neighbourhood:
        """Return the part of the graph that some nodes [n] hear of in so many layers.

        Messages keep their weights in the whole graph, so the layers give `nodes` the vectors they have there.
        """
        distance = torch.full((self.num_nodes,), hops + 1, device=self.src.device)
        distance[nodes] = 0
        for hop in range(1, hops + 1):
            near = distance < hop
            ends = torch.cat((self.src[near[self.dst]], self.dst[near[self.src]]))
            distance[ends[distance[ends] > hop]] = hop
        order = torch.argsort(distance, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(self.num_nodes, device=order.device)
        sizes = [int((distance <= hop).sum()) for hop in range(hops + 1)]
        parts = [self._part(order, place, senders, receivers) for receivers, senders in pairwise(sizes)]
        return Neighbourhood(parts[::-1], order[: sizes[-1]], place[nodes])

    def sampled(self, nodes: Tensor, fanout: Sequence[int], flow: Flow = "source_to_target") -> Neighbourhood:
        """Return what distinct nodes [n] hear of in as many layers as `fanout` has, from a sample of the messages.

        A node that receives c messages takes k = min(c, fan-out) of them: one at random from each of k equal stretches
        of its list, with c / k times its weight. The expected sum is that of all messages. A fan-out of c or more gives
        this sum itself.
        """
        parts, places = [], torch.arange(len(nodes), device=nodes.device)
        for most in reversed(fanout):  # from the last layer, whose receivers are the nodes asked for
            whole = self.messages(flow)
            chosen, scale = whole.sample(nodes, most)
            senders = whole.sender[chosen]
            every = torch.cat((nodes, torch.unique(senders[_places(senders, nodes) < 0])))
            none = self.rel[:0]
            part = RelationalGraph(none, none, none, len(every), self.num_relations)
            part.num_receivers = len(nodes)
            part._messages[flow, True] = whole._derived(
                sender=_places(senders, every),
                receiver=_places(whole.receiver[chosen], nodes),
                relation=whole.relation[chosen],
                direction=whole.direction[chosen],
                num_nodes=len(every),
                num_receivers=len(nodes),
                num_senders=len(every),
                part_of=(whole, chosen, nodes),
                scale=scale,
            )
            parts.append(part)
            nodes = every
        return Neighbourhood(parts[::-1], nodes, places)

    def senders(self, x: Tensor) -> Tensor:
        """Return the vectors of all nodes, for those x of the nodes that are kept here: the same, unless shared out."""
        return x

    def of_whole(self, values: Tensor) -> Tensor:
        """Select from values of every edge of the whole graph those of the edges here [E]."""
        return values if self._part_of is None else values[self._part_of[1]]

    def _part(self, order: Tensor, place: Tensor, senders: int, receivers: int) -> RelationalGraph:
        """Return the first nodes of an order, and all edges at the first receivers among them."""
        src, dst = place[self.src], place[self.dst]
        edge = (torch.minimum(src, dst) < receivers).nonzero().squeeze(1)
        batch = None if self.graph_of_node is None else self.graph_of_node[order[:senders]]
        part = RelationalGraph(src[edge], dst[edge], self.rel[edge], senders, self.num_relations, batch)
        part.num_receivers, part._part_of = receivers, (self, edge, order[:receivers])
        return part

    def messages(self, flow: Flow = "source_to_target", add_inverse: bool = True) -> Messages:
        """Return the messages of one convention, made once and kept.

        With "source_to_target" an edge carries relation r from src to dst, and its inverse R + r from dst to src; with
        "target_to_source" both run the other way.
        """
        if (flow, add_inverse) not in self._messages:
            self._messages[flow, add_inverse] = lasting(lambda: self._make_messages(flow, add_inverse))
        return self._messages[flow, add_inverse]

    def _make_messages(self, flow: Flow, add_inverse: bool) -> Messages:
        must_be_known("flow", flow, FLOWS)
        tail, head = (self.src, self.dst) if flow == "source_to_target" else (self.dst, self.src)
        sender, receiver, relation, direction = tail, head, self.rel, torch.zeros_like(self.rel)
        if add_inverse:
            sender, receiver = torch.cat((tail, head)), torch.cat((head, tail))
            relation = torch.cat((self.rel, self.rel + self.num_relations))
            direction = torch.cat((direction, torch.ones_like(direction)))
        directions = 2 if add_inverse else 1
        origin, edge = None, None
        if self._part_of is not None:
            whole, edges, nodes = self._part_of
            both = torch.cat([edges + half * whole.num_edges for half in range(directions)])
            edge = (receiver < self.num_receivers).nonzero().squeeze(1)
            origin = (whole.messages(flow, add_inverse), both[edge], nodes)
            sender, receiver, relation, direction = (t[edge] for t in (sender, receiver, relation, direction))
        sizes = self.num_nodes, self.num_receivers, directions * self.num_relations, directions, self.num_nodes
        return Messages(sender, receiver, relation, direction, *sizes, origin, edge, complete=self.complete)


def _check_range(what: str, values: Tensor, size: int) -> None:
    low, high = (int(bound) for bound in values.aminmax())
    if low < 0 or high >= size:
        raise InputError(f"{what} {low if low < 0 else high} is outside [0, {size})")


def networkx_edges(graph: Any, relation: str = "relation") -> list[tuple[Any, str, Any]]:
    """Return source, relation and target of each edge of a directed NetworkX graph, see `from_networkx`."""
    if not hasattr(graph, "is_directed"):
        raise InputError(f"expected a NetworkX graph, not {type(graph).__name__}")
    if not graph.is_directed():
        raise InputError("the NetworkX graph is undirected; graph.to_directed() has each edge both ways")
    edges = []
    for source, target, *keys, attributes in graph.edges(data=True, **{"keys": True} if graph.is_multigraph() else {}):
        name = attributes.get(relation, next((key for key in keys if isinstance(key, str)), None))
        if name is None:
            what = f"the edge from {source!r} to {target!r}"
            raise InputError(f"{what} has no attribute '{relation}' that names its relation")
        edges.append((source, str(name), target))
    return edges
