"""CompGCN conditioned on the query: every entity has a state for each query, and none has a vector of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from compgcn import processes
from compgcn.errors import InputError, must_be_known
from compgcn.kernels import Combine, Own, PairPlan, Plan, Segments, aggregate, make_plan, statistics, update
from compgcn.nn.compose import Composition, find
from compgcn.nn.graph import RelationalGraph

STATISTICS = ("mean", "pna")

_ANSWERING = {"cuda": 2**28, "cpu": 2**24}  # numbers in the states answered at a time; more would not be faster
_COPIES = 6  # tables of states that a layer keeps for its gradient
_SHARE = 4  # activations of a step take at most the memory of the device divided by this


def memory(device: torch.device) -> int:
    """Return the bytes of memory that a device has."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**33


def most_queries(num_nodes: int, dim: int, layers: int, device: torch.device) -> int:
    """Return how many queries a step can train on within the memory of a device, with layers computed again."""
    tables = layers + _COPIES  # the state before each layer, and all that one layer keeps
    return max(1, memory(device) // (_SHARE * tables * max(1, num_nodes) * dim * torch.float32.itemsize))


class View(NamedTuple):
    """A graph as the layers see it: the messages with their weights, and the degrees without hidden messages."""

    plan: Plan  # with the weights, for sums alone
    pairs: PairPlan  # the same messages without them
    weight: Tensor  # 0 hides a message, 1 keeps it, [M]; where it requires a gradient, the plan is not used
    degree: Tensor  # messages received and the boundary's, [N]
    scale: Tensor  # log(1 + degree) over its mean in the training graph, [N]


class Reach(NamedTuple):
    """The entities that queries reach in each layer, as pairs of a query and an entity in the order of the layers.

    Layer k sends the first `sent[k]` messages, from the first `reached[k]` pairs to the first `reached[k + 1]`.
    """

    query: Tensor  # of each pair [P]
    entity: Tensor  # of each pair [P]
    reached: list[int]  # K + 1
    sent: list[int]  # K
    sender: Tensor  # pair that sends each message [M]
    receiver: Tensor  # pair that gets it [M]
    message: Tensor  # its number in the graph [M]
    relation: Tensor  # [M]


class ConditionalCompGCN(nn.Module):
    r"""Score every entity as the answer to a query (s, r, ?).

    .. math::
        h^0_v = [v = s]\, q_r, \qquad z^k_{r'} = A^k_{r'} q_r + b^k_{r'}, \qquad
        h^{k+1}_v = h^k_v + \mathrm{relu}(\mathrm{LN}(W_k [h^k_v;\, t;\, t s_v;\, t / s_v])), \qquad
        \mathrm{score}(v) = \mathrm{MLP}[h^K_v; q_r]

    where t are statistics (their mean, or mean, standard deviation, maximum and minimum) of the messages
    phi(h^k_u, z^k_{r'}) that v receives and of h^0_v, and s_v = log(1 + degree) over its mean. With B queries the
    states are a table [N, B d] and the relations a table [2R, B d], so `compgcn.kernels.aggregate` sums the messages.

    No parameter belongs to an entity: the model answers about any graph with the same relations.

    Args:
        num_relations, dim, layers: R without inverses, d and K.
        composition: phi, a name of `compgcn.nn.compose.COMPOSITIONS`.
        statistics: "mean" or "pna".
        bias: add a learned vector to W_k [..] and to LN. Without them, an entity that no path of up to k edges leads to
            has the state h^k = 0 if t is the mean and phi a product; a CPU then computes only the other states.
        half: keep states in bfloat16; parameters and sums are float32.

    Shapes:
        s, r: int64 [B]; r from R on is an inverse. Scores: [B, N].
    """

    mean_log_degree: Tensor

    def __init__(
        self,
        num_relations: int,
        dim: int = 32,
        layers: int = 6,
        composition: str | Composition = "mult",
        statistics: str = "mean",
        *,
        bias: bool = True,
        half: bool = False,
    ) -> None:
        super().__init__()
        phi = find(composition)
        if not isinstance(phi, Composition):
            raise InputError(f"the composition '{phi.name}' has parameters; take one without, such as mult or corr")
        must_be_known("statistics", statistics, STATISTICS)
        phi(torch.zeros(1, dim), torch.zeros(1, dim))  # not every composition takes every dimension
        if statistics == "pna" and phi.transforms:
            raise InputError(f"pna takes messages as they are, which '{phi.name}' transforms; use mean, or mult")
        self.num_relations, self.dim, self.statistics = num_relations, dim, statistics
        self.dtype = torch.bfloat16 if half else torch.float32
        self.queries = nn.Embedding(2 * num_relations, dim)
        self.layers = nn.ModuleList(
            ConditionalLayer(num_relations, dim, phi, statistics, bias=bias) for _ in range(layers)
        )
        self.sparse = is_sparse(phi, statistics, bias=bias)
        self.hidden = nn.Linear(2 * dim, 2 * dim)
        self.out = nn.Linear(2 * dim, 1)
        self.register_buffer("mean_log_degree", torch.ones(()))

    def measure(self, graph: RelationalGraph) -> None:
        """Set the mean of log(1 + degree) of the training graph, which scales the degrees of every view."""
        degree = torch.bincount(torch.cat((graph.src, graph.dst)), minlength=graph.num_nodes)
        self.mean_log_degree.copy_((degree + 2.0).log().mean())

    def view(self, graph: RelationalGraph, keep: Tensor | None = None) -> View:
        """Return a graph without the edges whose `keep` [E] is 0: they are out of the sums and of the degrees."""
        messages = graph.messages("source_to_target")
        keep = torch.ones(graph.num_edges, device=graph.src.device) if keep is None else keep
        weight = messages.of_edges(keep.to(self.mean_log_degree.dtype))
        degree = torch.ones(graph.num_nodes, dtype=weight.dtype, device=weight.device)
        degree = degree.index_add(0, messages.receiver, weight.detach())
        pairs, scale = messages.receiver_plan(), (degree + 1).log() / self.mean_log_degree
        plan = pairs.messages if self.statistics == "pna" else pairs.messages.weighted(weight)
        return View(plan, pairs, weight, degree, scale)

    def forward(self, view: View | Sequence[View], s: Tensor, r: Tensor) -> Tensor:
        """Return the logits of all entities for queries (s, r), [B, N].

        Each layer may have a view of its own, with other weights but the same hidden messages.
        """
        views = [view] * len(self.layers) if isinstance(view, View) else view
        q = self.queries(r)  # [B, d]
        if self.sparse and s.device.type == "cpu":
            reach = find_reach(views[0].pairs.messages.by_sender, views[0].weight, s, len(self.layers))
            if reach is not None:
                return self._reached_scores(reach, views, q)
        state = self._boundary(views[0], s, q)
        kept = len(self.layers) * _COPIES * state.numel() * state.element_size()
        again = torch.is_grad_enabled() and kept > memory(state.device) // _SHARE
        for number, (layer, seen) in enumerate(zip(self.layers, views, strict=True)):
            given = (state, q, s, seen, number == 0)
            state = checkpoint(layer, *given, use_reentrant=False, preserve_rng_state=False) if again else layer(*given)
        return self._scores(state, q)

    def _reached_scores(self, reach: Reach, views: Sequence[View], q: Tensor) -> Tensor:
        """Return `forward` by the states of the pairs that are reached; all other states are zero."""
        state = q.to(self._dtype(q))  # of pairs [P, d], first the queries at the entities asked about
        for number, (layer, view) in enumerate(zip(self.layers, views, strict=True)):
            assert isinstance(layer, ConditionalLayer)
            state = layer.reached(state, q, reach, number, view)
        own, asked = torch.split(self.hidden.weight, self.dim, 1)
        base = F.linear(q, asked, self.hidden.bias)  # [B, 2d]
        hidden = F.linear(state.to(q.dtype), own) + base.index_select(0, reach.query)
        hidden = torch.cat((base, hidden))  # of zero, then of each pair
        found = F.linear(F.relu(hidden), self.out.weight, self.out.bias).squeeze(-1)
        scores = found[: len(q), None].expand(-1, len(views[0].degree))  # [B, N]
        return scores.index_put((reach.query, reach.entity), found[len(q) :])

    def scorer(self, graph: RelationalGraph, keep: Tensor | None = None) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the function from queries (s, r) to the logits of all entities; states at a time are bounded.

        `keep` as for `view`.
        """
        view = self.view(graph, keep)
        device = graph.src.device
        states = min(_ANSWERING.get(device.type, 2**24), memory(device) // (_SHARE * _COPIES * self.dtype.itemsize))
        step = max(1, states // max(1, graph.num_nodes * self.dim))

        def scores(s: Tensor, r: Tensor) -> Tensor:
            return torch.cat(
                [self(view, *part) for part in zip(torch.split(s, step), torch.split(r, step), strict=True)]
            )

        return processes.shared_out(scores)

    def _boundary(self, view: View, s: Tensor, q: Tensor) -> Tensor:
        """Return h^0 [N, B, d]: the query vector at the entity that is asked about, zero elsewhere."""
        number = torch.arange(len(s), device=s.device)
        empty = torch.zeros(len(view.degree), *q.shape, dtype=self._dtype(q), device=q.device)
        return empty.index_put_((s, number), q.to(empty.dtype))

    def _dtype(self, q: Tensor) -> torch.dtype:
        return q.dtype if q.dtype == torch.float64 else self.dtype

    def _scores(self, state: Tensor, q: Tensor) -> Tensor:
        """Apply the two-layer perceptron to [state; q], [N, B, d] -> [B, N]; the half of q is computed once a query."""
        own, asked = torch.split(self.hidden.weight, self.dim, 1)
        hidden = F.relu(F.linear(state, own.to(state.dtype)) + F.linear(q, asked, self.hidden.bias).to(state.dtype))
        # Scores rounded to half precision would tie.
        return F.linear(hidden.to(q.dtype), self.out.weight, self.out.bias).squeeze(-1).t()


class ConditionalLayer(nn.Module):
    """One layer: sum the messages, take their statistics, update the states."""

    bias: nn.Parameter | None

    def __init__(self, num_relations: int, dim: int, phi: Composition, statistics: str, *, bias: bool = True) -> None:
        super().__init__()
        self.phi, self.statistics = phi, statistics
        inputs = (1 + 3 * (4 if statistics == "pna" else 1)) * dim
        self.relations = nn.Parameter(torch.empty(2 * num_relations, dim, dim))  # A_k, by relation
        self.relation_bias = nn.Parameter(torch.empty(2 * num_relations, 1, dim))
        self.weight = nn.Parameter(torch.empty(inputs, dim))  # W_k
        self.register_parameter("bias", nn.Parameter(torch.empty(dim)) if bias else None)
        self.norm = nn.LayerNorm(dim, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight, bias in ((self.relations, self.relation_bias), (self.weight, self.bias)):
            bound = weight.shape[-2] ** -0.5  # as in a linear layer of torch
            nn.init.uniform_(weight, -bound, bound)
            if bias is not None:
                nn.init.uniform_(bias, -bound, bound)

    def forward(self, state: Tensor, q: Tensor, s: Tensor, view: View, first: bool = False) -> Tensor:
        """Return the next states [N, B, d]; the query vectors q [B, d] are a message too, at the entities s [B].

        With `first`, the states are h^0, zero but at s.
        """
        sums = self._pna if self.statistics == "pna" else self._sum
        parts = sums(state, self.relation_vectors(q), q.to(state.dtype), s, view, first)
        rows = (view.degree, view.scale, self.weight, self.norm.weight, self.norm.bias, self.bias)
        return update(state, parts, *rows)

    def reached(self, state: Tensor, q: Tensor, reach: Reach, number: int, view: View) -> Tensor:
        """Return the next states of the pairs reached after this layer, [P, d] -> [P', d]; number it from 0."""
        sent, pairs, phi = reach.sent[number], reach.reached[number + 1], self.phi
        z = phi.lift_relation(self.relation_vectors(q)).flatten(0, 1)  # [2R B, D]
        relation = reach.relation[:sent] * len(q) + reach.query[reach.sender[:sent]]
        ends = reach.receiver[:sent], reach.sender[:sent]
        plan = make_plan(*ends, relation, rows=pairs, senders=len(state), relations=len(z))
        weight = view.weight[reach.message[:sent]]
        sums = phi.lower(aggregate(phi.lift(state), z, weight, plan, phi.combine), state.shape[1])  # [P', d]
        sums = torch.cat((sums[: len(q)] + q, sums[len(q) :]))  # the first pairs are the queries themselves
        state = F.pad(state, (0, 0, 0, pairs - len(state)))
        entity = reach.entity[:pairs]
        rows = (view.degree[entity], view.scale[entity], self.weight, self.norm.weight, self.norm.bias, self.bias)
        return update(state.unsqueeze(1), [sums.unsqueeze(1)], *rows).squeeze(1)

    def relation_vectors(self, q: Tensor) -> Tensor:
        """Return the vectors z of all relations for every query, [B, d] -> [2R, B, d]."""
        return torch.baddbmm(self.relation_bias, q.expand(len(self.relations), *q.shape), self.relations)

    def _sum(self, state: Tensor, z: Tensor, q: Tensor, s: Tensor, view: View, first: bool) -> list[Tensor]:
        """Return the sums of the messages phi(state, z) and of q alone, [N, B, d]."""
        phi, (x, z) = self.phi, self._lifted(state, z)
        row = _columns(s.unsqueeze(1).expand(-1, x.shape[1] // len(s)), phi.combine)
        own = None if phi.transforms else Own(row, _columns(q, phi.combine))
        weight, plan = (view.weight, view.pairs.messages) if view.weight.requires_grad else (None, view.plan)
        sums = aggregate(x, z, weight, plan, phi.combine, own, row if first and phi.linear_lift else None)
        sums = phi.lower(_cells(sums, len(q), phi.combine), state.shape[2]).to(state.dtype)
        if own is None:
            sums = sums.index_put((s, torch.arange(len(s), device=s.device)), q, accumulate=True)
        return [sums]

    def _pna(self, state: Tensor, z: Tensor, q: Tensor, s: Tensor, view: View, first: bool) -> list[Tensor]:
        """Return sum, sum of squares, maximum and minimum of the messages and of q, [N, B, d] each."""
        own = Own(*(_columns(cells, self.phi.combine) for cells in (s.unsqueeze(1).expand_as(q), q)))
        found = statistics(*self._lifted(state, z), view.weight, view.pairs, self.phi.combine, own)
        return [_cells(part, len(q), self.phi.combine) for part in found]

    def _lifted(self, state: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tables that are combined on an edge: states [N, B D] and relations [2R, B D]."""
        phi, kind = self.phi, state.dtype
        return _rows(phi.lift(state).to(kind), phi.combine), _rows(phi.lift_relation(z).to(kind), phi.combine)


_PRODUCTS = (Combine.MULT, Combine.COMPLEX, Combine.CONJUGATE)
_ASKED, _PLACES = 32, 2**25  # sampled queries that tell how long one takes, and the cells of their table at most
# Times of training on a CPU, set by hand from runs on two cores; the unit is that of one message and one query, where
# the messages of all queries are summed at once.
_SORTED = 80  # time of a message between pairs, which is sorted first
_UPDATED = 100  # time of the update of a state
_SCORED = 8  # time of the score of an entity


def is_sparse(phi: Composition, statistics: str, *, bias: bool) -> bool:
    """Tell whether states stay zero where no path leads."""
    return not bias and statistics == "mean" and phi.linear_lift and phi.combine in _PRODUCTS


def _time_of_all(sent: Segments, layers: int) -> float:
    """Return the time of all states of a query, in messages of all queries at once."""
    return layers * (len(sent.order) + _UPDATED * (len(sent.offsets) - 1))


def find_reach(sent: Segments, weight: Tensor, s: Tensor, layers: int) -> Reach | None:
    """Return the entities that queries about s [B] reach; None where it takes less time to compute all states.

    Args:
        sent: the messages of the graph by sender, `left` the receiver, `right` the relation.
        weight: of each message, 0 if it is hidden.
    """
    B, N = len(s), len(sent.offsets) - 1
    left = B * _time_of_all(sent, layers)
    query, entity = torch.arange(B), s
    place = torch.full((B * N,), -1)  # number of a pair
    place[query * N + entity] = query
    begun, reached, counts, found = 0, [B], [0], []
    for _ in range(layers):
        first, last = sent.offsets[entity[begun:]], sent.offsets[entity[begun:] + 1]
        left -= _SORTED * (counts[-1] + int((last - first).sum())) + _UPDATED * len(query)
        if left < 0:
            return None
        sender = torch.repeat_interleave(last - first)  # among the pairs of the last layer
        at = torch.arange(len(sender)) + (last - (last - first).cumsum(0))[sender]
        shown = weight[sent.order[at]] != 0
        sender, at = sender[shown] + begun, at[shown]
        key = query[sender] * N + sent.left[at]
        new = torch.unique(key[place[key] < 0])
        begun = len(query)
        query, entity = torch.cat((query, new // N)), torch.cat((entity, new % N))
        place[new] = torch.arange(begun, len(query))
        found.append((sender, place[key], sent.order[at], sent.right[at]))
        counts.append(counts[-1] + len(at))
        reached.append(len(query))
    return Reach(query, entity, reached, counts[1:], *(torch.cat(column) for column in zip(*found, strict=True)))


class Pace(NamedTuple):
    """The pace of a CPU with queries that a graph answers."""

    time: float  # of a query, in messages of all queries at once
    queries: int
    sparse: bool  # computing only the states that queries reach takes less time


def find_pace(graph: RelationalGraph, layers: int, *, sparse: bool = True) -> Pace:
    """Return the pace on a graph, as the mean over some of its queries, with or without states that are zero."""
    messages = graph.messages("source_to_target")
    ends, N, Z = (messages.receiver, messages.sender), graph.num_nodes, messages.num_relations
    sent = make_plan(*ends, messages.relation, rows=N, senders=N, relations=Z).by_sender
    queries = torch.unique(messages.sender * Z + messages.relation)
    heads = queries[:: len(queries) // min(_ASKED, _PLACES // N + 1) + 1] // Z
    reach = find_reach(sent, torch.ones(len(sent.order)), heads, layers) if sparse and len(heads) else None
    if reach is None:
        return Pace(_time_of_all(sent, layers) + _SCORED * N, len(queries), False)
    time = (_SORTED * sum(reach.sent) + _UPDATED * sum(reach.reached)) / len(heads) + _SCORED * N
    return Pace(time, len(queries), True)


_PLANES = (Combine.COMPLEX, Combine.CONJUGATE)


def _rows(cells: Tensor, combine: Combine) -> Tensor:
    """Lay the vectors of all queries side by side, [n, B, D] -> [n, B D]: all real parts before all imaginary ones."""
    if combine in _PLANES:
        cells = cells.view(*cells.shape[:2], 2, -1).transpose(1, 2)  # [n, 2, B, D/2]
    return cells.reshape(len(cells), -1)


def _columns(cells: Tensor, combine: Combine) -> Tensor:
    """Return one row of `_rows`, [B, D] -> [B D]."""
    return _rows(cells.unsqueeze(0), combine)[0]


def _cells(rows: Tensor, queries: int, combine: Combine) -> Tensor:
    """Undo `_rows`."""
    if combine in _PLANES:
        return rows.view(len(rows), 2, queries, -1).transpose(1, 2).flatten(2)
    return rows.view(len(rows), queries, -1)
