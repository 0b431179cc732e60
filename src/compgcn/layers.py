"""The layer: the paper's update of entities and relations, and the five ways of tying its filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from compgcn.compose import Combine, Composition, resolve
from compgcn.dropout import dropout
from compgcn.errors import InputError, unknown
from compgcn.graph import FLOWS, NORMS, Flow, Messages, Norm, RelationalGraph
from compgcn.kernels import Plan, aggregate, grouped_matmul

Shapes = dict[str, tuple[int, ...]]
Relations = Literal["vectors", "scalars", "none"]


class Sizes(NamedTuple):
    """What the shapes of a layer's filters depend on."""

    inputs: int
    outputs: int
    relations: int  # rows of the relation table, inverses included
    directions: int
    bases: int


def neighbourhood(phi: Composition, x: Tensor, z: Tensor | None, plan: Plan) -> Tensor:
    """sum of weight * combine(x[u], z[r]) per row of the plan, [rows, D]: lifted and aggregated, not yet lowered."""
    lifted = phi.lift(x)  # [N, D]
    relations = lifted.new_zeros(1, 1) if z is None else phi.lift_relation(z)
    if z is not None and relations.shape[-1] == 1:
        relations = relations.expand(-1, lifted.shape[-1])  # a scalar per relation
    return aggregate(lifted, relations, None, plan, phi.combine).to(x.dtype)


# A tying is data too: the parameters it wants, and the sums [N, out] they give, by direction or all in one.


class Message(NamedTuple):
    """All a tying needs to know of the messages it sums."""

    phi: Composition
    x: Tensor  # [N, in]
    z: Tensor | None  # [Z, in], [Z, 1], or None where phi ignores it
    messages: Messages
    norm: Norm
    apart: bool  # whether the sums of the two directions are wanted each for itself


def _halves(m: Message) -> Tensor:
    """Sums by direction, not lowered: [N, G, D]."""
    rows = neighbourhood(m.phi, m.x, m.z, m.messages.plan(m.norm))
    return rows.view(m.messages.num_receivers, m.messages.num_directions, rows.shape[-1])


def _shared(p: Mapping[str, Tensor], m: Message) -> list[Tensor]:
    sums = _halves(m).sum(1)
    return [sums @ m.phi.fold(p["weight"], sums.shape[-1])]


def _direction(p: Mapping[str, Tensor], m: Message) -> list[Tensor]:
    names = ("weight_original", "weight_inverse")[: m.messages.num_directions]
    sums = _halves(m)  # [N, G, D]
    filters = [m.phi.fold(p[name], sums.shape[-1]) for name in names]
    if m.apart:
        return [half @ filter for half, filter in zip(sums.unbind(1), filters, strict=True)]
    return [sums.flatten(1) @ torch.cat(filters)]  # [N, G D] @ [G D, out]


def _basis(p: Mapping[str, Tensor], m: Message) -> list[Tensor]:
    """W_r = sum_b a_rb V_b."""
    weight = torch.einsum("rb,bio->rio", p["coefficients"], p["bases"])  # [Z, in, out]
    return [_per_relation(weight.unsqueeze(1), m)]


def _relation(p: Mapping[str, Tensor], m: Message) -> list[Tensor]:
    return [_per_relation(p["weight"].unsqueeze(1), m)]


def _block(p: Mapping[str, Tensor], m: Message) -> list[Tensor]:
    return [_per_relation(p["blocks"], m)]


def _per_relation(weight: Tensor, m: Message) -> Tensor:
    """Filters [Z, B, in/B, out/B] of B diagonal blocks: sums by (relation, receiver), filtered, summed by receiver."""
    pairs = m.messages.pairs(m.norm)
    sums = m.phi.lower(neighbourhood(m.phi, m.x, m.z, pairs.gather), m.x.shape[1])  # [P, in]
    y = grouped_matmul(sums.view(-1, *weight.shape[1:3]), weight, pairs.groups).flatten(1)  # [P, out]
    return aggregate(y, y.new_zeros(1, 1), None, pairs.scatter, Combine.COPY)


class Tying(NamedTuple):
    """lambda(r) of the paper: which relations share a filter."""

    name: str
    shapes: Callable[[Sizes], Shapes]
    sums: Callable[[Mapping[str, Tensor], Message], list[Tensor]]
    loop: str  # the parameter that transforms the self-loop


def _direction_shapes(s: Sizes) -> Shapes:
    names = ("weight_original", "weight_inverse")[: s.directions]
    return dict.fromkeys((*names, "weight_loop"), (s.inputs, s.outputs))


def _basis_shapes(s: Sizes) -> Shapes:
    if s.bases < 1:
        raise InputError(f"weights tied by basis need bases of at least 1, not {s.bases}")
    shape = (s.inputs, s.outputs)
    return {"bases": (s.bases, *shape), "coefficients": (s.relations, s.bases), "weight_loop": shape}


def _block_shapes(s: Sizes) -> Shapes:
    if s.bases < 1 or s.inputs % s.bases or s.outputs % s.bases:
        raise InputError(f"the number of blocks, {s.bases}, must divide the dimensions {s.inputs} and {s.outputs}")
    blocks = (s.relations, s.bases, s.inputs // s.bases, s.outputs // s.bases)
    return {"blocks": blocks, "weight_loop": (s.inputs, s.outputs)}


TYINGS: dict[str, Tying] = {
    row.name: row
    for row in (
        Tying("shared", lambda s: {"weight": (s.inputs, s.outputs)}, _shared, "weight"),
        Tying("direction", _direction_shapes, _direction, "weight_loop"),
        Tying(
            "relation",
            lambda s: {"weight": (s.relations, s.inputs, s.outputs), "weight_loop": (s.inputs, s.outputs)},
            _relation,
            "weight_loop",
        ),
        Tying("basis", _basis_shapes, _basis, "weight_loop"),
        Tying("block", _block_shapes, _block, "weight_loop"),
    )
}


def _add_biases(sums: list[Tensor], bias: Tensor, m: Message) -> list[Tensor]:
    """To each sum, the biases [Z, out] of the relations of its messages, weighted like them."""
    rows = aggregate(bias, bias.new_zeros(1, 1), None, m.messages.relation_plan(m.norm), Combine.COPY)  # [N G, out]
    halves = rows.view(m.messages.num_receivers, m.messages.num_directions, -1)
    biases = halves.unbind(1) if len(sums) > 1 else [halves.sum(1)]
    return [half + bias for half, bias in zip(sums, biases, strict=True)]


# What each kind of relation can be combined by: a scalar stands for a vector of equal numbers, none for no vector.
_TAKES: dict[Relations, tuple[Combine, ...]] = {
    "vectors": tuple(Combine),
    "scalars": (Combine.ADD, Combine.SUB, Combine.MULT),
    "none": (Combine.COPY,),
}


def _must_be_known(norm: str, flow: str, tying: str, relations: str) -> None:
    options = (("norm", norm, NORMS), ("flow", flow, FLOWS), ("tying", tying, TYINGS), ("relations", relations, _TAKES))
    for kind, name, table in options:
        if name not in table:
            raise unknown(kind, name, table)


class _Seen(NamedTuple):
    """The last plain tensors a layer was called with, and the graph made of them."""

    edge_index: Tensor
    edge_type: Tensor
    versions: tuple[int, int]  # of the tensors then: writing into one makes it another graph
    graph: RelationalGraph

    def is_of(self, edge_index: Tensor, edge_type: Tensor, num_nodes: int) -> bool:
        same = self.edge_index is edge_index and self.edge_type is edge_type and self.graph.num_nodes == num_nodes
        return same and self.versions == (edge_index._version, edge_type._version)


class CompGCNConv(nn.Module):
    r"""One layer of CompGCN, the paper's Eq. node_update and Eq. rel_share, without activation or batch norm.

    .. math::
        h_v = \sum_{(u, r) \in N(v)} w_{uv} W_{dir(r)}^T \phi(x_u, z_r) + w_v W_{loop}^T \phi(x_v, z_{loop}),
        \qquad h_r = W_{rel}^T z_r

    computed as :math:`(\sum w \phi(x_u, z_r)) W_{dir}`: the sum over edges first, one product per direction after.

    Args:
        in_channels, out_channels: dimensions of the vectors that come in and go out.
        num_relations: R, inverses not counted.
        composition: phi, a name in `compgcn.compose.COMPOSITIONS` or a Composition.
        norm: the weights w, a name in `compgcn.graph.NORMS`.
        flow: "source_to_target" (PyG's), or "target_to_source" (the paper's N(v) over the outgoing edges of v).
        add_inverse: also send along every edge backwards, with relation R + r and its own filter.
        self_loop: add the loop term.
        dropout: on the sum of each direction after its filter.
        bias: add a learned vector [out].
        loop_dropout: drop out the loop term too.
        tying: which relations share a filter, a name in `TYINGS`; CompGCN's is "direction".
        relations: "vectors" come in as `rel` and are updated; "scalars" are one learned weight per relation kept by
            the layer; "none" leaves relations out of phi. With the last two, `rel` passes through unchanged.
        relation_bias: a learned vector [out] per relation, added to its messages and weighted like them (D-GCN).
        bases: number of basis matrices or of diagonal blocks for those tyings.

    Shapes: x [N, in], rel [2R, in] (originals, then inverses; [R, in] with add_inverse=False), edge_index [2, E],
    edge_type [E] -> (x' [N, out], rel' [2R, out]). A RelationalGraph may stand in place of the two tensors; of one
    that is a part (`RelationalGraph.around`), x' has the rows that receive.
    """

    bias: nn.Parameter | None
    loop_relation: nn.Parameter | None
    relation_bias: nn.Parameter | None
    relation_scale: nn.Parameter | None
    weight_relation: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_relations: int,
        composition: str | Composition = "corr",
        norm: str = "symmetric",
        flow: Flow = "source_to_target",
        add_inverse: bool = True,
        self_loop: bool = True,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        loop_dropout: bool = False,
        tying: str = "direction",
        relations: Relations = "vectors",
        relation_bias: bool = False,
        bases: int = 0,
    ) -> None:
        super().__init__()
        _must_be_known(norm, flow, tying, relations)
        if min(in_channels, out_channels) < 1 or not 0 <= dropout <= 1:
            raise InputError(
                f"a layer needs dimensions of at least 1 and a dropout from 0 to 1, not {in_channels}, "
                f"{out_channels} and {dropout}"
            )
        self.in_channels, self.out_channels, self.num_relations = in_channels, out_channels, num_relations
        self.composition = resolve(composition)
        if self.composition.combine not in _TAKES[relations]:
            raise InputError(f"composition '{self.composition.name}' does not work with relations='{relations}'")
        self.norm, self.flow = norm, flow
        self.add_inverse, self.self_loop = add_inverse, self_loop
        self.dropout, self.loop_dropout = dropout, loop_dropout
        self.tying, self.relations = TYINGS[tying], relations
        directions = 2 if add_inverse else 1
        rows = directions * num_relations
        shapes = self.tying.shapes(Sizes(in_channels, out_channels, rows, directions, bases))
        if not self_loop and self.tying.loop == "weight_loop":
            del shapes["weight_loop"]
        self._filters = [name for name in shapes if name != "weight_loop"]
        if relations == "vectors":
            shapes["weight_relation"] = (in_channels, out_channels)
            if self_loop:
                shapes["loop_relation"] = (1, in_channels)
        if relations == "scalars":
            shapes["relation_scale"] = (rows, 1)
        if relation_bias:
            shapes["relation_bias"] = (rows, out_channels)
        if bias:
            shapes["bias"] = (out_channels,)
        for name in ("weight_relation", "loop_relation", "relation_scale", "relation_bias", "bias"):
            self.register_parameter(name, None)
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        self._last: _Seen | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier for every matrix, one for scalars, zero for biases."""
        for name, parameter in self.named_parameters():
            if name in ("bias", "relation_bias"):
                nn.init.zeros_(parameter)
            elif name == "relation_scale":
                nn.init.ones_(parameter)
            else:
                for matrix in parameter.view(-1, *parameter.shape[-2:]).unbind():
                    nn.init.xavier_normal_(matrix)

    def forward(
        self, x: Tensor, rel: Tensor | None, edge_index: Tensor | RelationalGraph, edge_type: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(x', rel') for the vectors of all nodes and relations."""
        graph = self._graph(x, edge_index, edge_type)
        self._check(x, rel, graph)
        messages = graph.messages(self.flow, self.add_inverse)
        norm = Norm(self.norm, self.self_loop, torch.float64 if x.dtype == torch.float64 else torch.float32)
        apart = self.training and self.dropout > 0
        message = Message(self.composition, x, self._relation_vectors(rel), messages, norm, apart)
        sums = self.tying.sums({name: getattr(self, name) for name in self._filters}, message)
        if self.relation_bias is not None:
            sums = _add_biases(sums, self.relation_bias, message)
        out = self._drop(sums[0])
        for half in sums[1:]:
            out = out.add_(self._drop(half))
        if self.self_loop:
            loop = self._loop(x[: messages.num_receivers], messages.weights(*norm).loop)
            out = out.add_(self._drop(loop) if self.loop_dropout else loop)
        if self.bias is not None:
            out = out.add_(self.bias)
        if rel is not None and self.weight_relation is not None:
            rel = rel @ self.weight_relation
        return out, rel

    def _relation_vectors(self, rel: Tensor | None) -> Tensor | None:
        return self.relation_scale if self.relations == "scalars" else rel if self.relations == "vectors" else None

    def _loop(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """w_v W_loop^T phi(x_v, z_loop), [N, out]: phi with one relation is mostly affine, and folds into W_loop."""
        filters: Tensor = getattr(self, self.tying.loop)
        if self.loop_relation is None:
            loop = x @ filters
        elif self.composition.linear_lift:
            matrix, shift = self.composition.fold_fixed(self.loop_relation, filters)
            loop = torch.addmm(shift, x, matrix)
        else:
            loop = self.composition(x, self.loop_relation).to(x.dtype) @ filters
        return loop if weight is None else (weight.unsqueeze(1) * loop).to(loop.dtype)

    def _drop(self, values: Tensor) -> Tensor:
        return dropout(values, self.dropout, self.training)

    def _graph(self, x: Tensor, edge_index: Tensor | RelationalGraph, edge_type: Tensor | None) -> RelationalGraph:
        """The graph itself, or the one made of the last tensors seen, so that sorting happens once."""
        if x.dim() != 2:
            raise InputError(f"x must have shape [N, {self.in_channels}], not {list(x.shape)}")
        if isinstance(edge_index, RelationalGraph):
            return edge_index
        if edge_type is None:
            raise InputError("edge_type is missing: the layer takes edge_index and edge_type, or a RelationalGraph")
        if (
            torch.compiler.is_compiling()
        ):  # a traced call sorts every time: give it a RelationalGraph where that matters
            return RelationalGraph(edge_index[0], edge_index[1], edge_type, x.shape[0], self.num_relations)
        if self._last is not None and self._last.is_of(edge_index, edge_type, x.shape[0]):
            return self._last.graph
        if edge_index.dim() != 2 or edge_index.shape[0] != 2:
            raise InputError(f"edge_index must have shape [2, E], not {list(edge_index.shape)}")
        graph = RelationalGraph(edge_index[0], edge_index[1], edge_type, x.shape[0], self.num_relations)
        if not (edge_index.is_inference() or edge_type.is_inference()):
            self._last = _Seen(edge_index, edge_type, (edge_index._version, edge_type._version), graph)
        return graph

    def _check(self, x: Tensor, rel: Tensor | None, graph: RelationalGraph) -> None:
        if x.dtype != self._dtype() and not torch.is_autocast_enabled(x.device.type):
            raise InputError(f"x is {x.dtype} and the layer {self._dtype()}; convert one of them")
        if x.shape != (graph.num_nodes, self.in_channels):
            raise InputError(f"x must have shape [{graph.num_nodes}, {self.in_channels}], not {list(x.shape)}")
        if graph.num_relations != self.num_relations:
            raise InputError(f"the graph has {graph.num_relations} relations, the layer {self.num_relations}")
        if self.relations != "vectors":
            return
        rows = (2 if self.add_inverse else 1) * self.num_relations
        if rel is None or rel.shape != (rows, self.in_channels):
            given = None if rel is None else list(rel.shape)
            raise InputError(f"rel must have shape [{rows}, {self.in_channels}], not {given}")
        if (rel.dtype, rel.device) != (x.dtype, x.device) and not torch.is_autocast_enabled(x.device.type):
            raise InputError(f"rel is {rel.dtype} on {rel.device} and x {x.dtype} on {x.device}; convert one of them")

    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}  # a copy or a file of the layer need not carry the graph

    def extra_repr(self) -> str:
        """The arguments that tell two layers apart."""
        return (
            f"{self.in_channels}, {self.out_channels}, num_relations={self.num_relations}, "
            f"composition={self.composition.name}, norm={self.norm}, flow={self.flow}, tying={self.tying.name}"
        )
