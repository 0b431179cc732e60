"""The layer: the paper's update of entities and relations."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from compgcn.errors import InputError, must_be_known
from compgcn.kernels import Combine
from compgcn.kernels.backend import wide
from compgcn.nn.compose import COMPOSITIONS, Composition, Learned, Phi, find
from compgcn.nn.dropout import dropout
from compgcn.nn.filters import FILTERS, Incoming, Sizes, add_biases, contents
from compgcn.nn.graph import FLOWS, NORMS, Flow, Messages, Norm, RelationalGraph

Relations = Literal["vectors", "scalars", "none"]

# The combinations each kind of relation can take part in: a scalar stands for a vector of equal numbers.
_TAKES: dict[Relations, tuple[Combine, ...]] = {
    "vectors": tuple(Combine),
    "scalars": (Combine.ADD, Combine.SUB, Combine.MULT),
    "none": (Combine.COPY,),
}


def is_launch_bound(x: Tensor) -> bool:
    """Return whether starting a kernel takes longer than most kernels of a layer on the device of x."""
    return x.is_cuda


class CompGCNConv(nn.Module):
    r"""One layer of CompGCN, the paper's Eq. node_update and Eq. rel_share, without activation or batch norm.

    .. math::
        h_v = \sum_{(u, r) \in N(v)} w_{uv} W_{dir(r)}^T \phi(x_u, z_r) + w_v W_{loop}^T \phi(x_v, z_{loop}),
        \qquad h_r = W_{rel}^T z_r

    computed as :math:`(\sum w \phi(x_u, z_r)) W_{dir}`: the sum over edges first, one product per direction after.

    Args:
        in_channels, out_channels: dimensions of the vectors that come in and go out.
        num_relations: R, inverses not counted.
        composition: phi, a name in `compgcn.nn.compose.COMPOSITIONS` or `LEARNED`, or such a row itself. The module
            `phi` holds the parameters of a learned one.
        norm: the weights w, a name in `compgcn.nn.graph.NORMS`.
        flow: "source_to_target" (PyG's), or "target_to_source" (the paper's N(v) over the outgoing edges of v), the
            default of `compgcn.nn.encoder.Encoder`.
        add_inverse: also send along every edge backwards, with relation R + r and its own filter.
        self_loop: add the loop term.
        dropout: on the sum of each direction after its filter.
        bias: add a learned vector [out].
        loop_dropout: drop out the loop term too.
        update_loop: z_loop is one more row of `rel`, its last, and is updated like the others; otherwise the layer
            learns it.

    Shapes: x [N, in], rel [2R, in] (originals, then inverses; [R, in] with add_inverse=False), edge_index [2, E],
    edge_type [E] -> (x' [N, out], rel' [2R, out]). A RelationalGraph may replace the two tensors; for a part of a
    graph (`RelationalGraph.around`), x' has the rows that receive.

    The other arguments make the layers of `compgcn.nn.encoder.PRESETS`:
        filters: which relations share a filter, a name in `compgcn.nn.filters.FILTERS`.
        relations: "vectors" come in as `rel` and are updated; "scalars" are one learned weight per relation, and
            one for the loop, kept by the layer; "none" leaves relations out of phi. With the last two, `rel` passes
            through unchanged.
        relation_bias: a learned vector [out] per relation, added to its messages and weighted like them (D-GCN).
        bases: number of basis matrices or of diagonal blocks, for those filters.
        roles: phi gets z_r in a message from the subject of an edge to its object, and -z_r in one the other way
            (VR-GCN); messages ignore the vectors of inverses, and the loop is the entity itself.
    """

    phi: nn.Module | None
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
        composition: Phi = "corr",
        norm: str = "symmetric",
        flow: Flow = "source_to_target",
        add_inverse: bool = True,
        self_loop: bool = True,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        loop_dropout: bool = False,
        update_loop: bool = False,
        filters: str = "direction",
        relations: Relations = "vectors",
        relation_bias: bool = False,
        bases: int = 0,
        roles: bool = False,
    ) -> None:
        super().__init__()
        options = ("norm", norm, NORMS), ("flow", flow, FLOWS), ("filters", filters, FILTERS)
        for kind, name, table in (*options, ("relations", relations, _TAKES)):
            must_be_known(kind, name, table)
        if min(in_channels, out_channels) < 1 or not 0 <= dropout <= 1:
            given = f"{in_channels}, {out_channels} and {dropout}"
            raise InputError(f"a layer needs dimensions of at least 1 and a dropout from 0 to 1, not {given}")
        self.composition = row = find(composition)
        if not (relations == "vectors" if isinstance(row, Learned) or roles else row.combine in _TAKES[relations]):
            how = " by roles" if roles else ""
            raise InputError(f"composition '{row.name}'{how} does not work with relations='{relations}'")
        if update_loop and (relations != "vectors" or roles or not self_loop):
            raise InputError("update_loop=True needs a loop with a relation vector; leave it out")
        self.in_channels, self.out_channels, self.num_relations = in_channels, out_channels, num_relations
        self.norm, self.flow, self.add_inverse, self.self_loop = norm, flow, add_inverse, self_loop
        self.dropout, self.loop_dropout, self.update_loop = dropout, loop_dropout, update_loop
        self.filters, self.relations, self.roles = FILTERS[filters], relations, roles
        self.phi = row.build(in_channels) if isinstance(row, Learned) else None
        self._make_parameters(bias, relation_bias, bases)
        self._last: tuple[Tensor, Tensor, tuple[int, ...], RelationalGraph] | None = None  # of the last plain tensors
        self.reset_parameters()

    def _make_parameters(self, bias: bool, relation_bias: bool, bases: int) -> None:
        """Register the parameters in the order in which `reset_parameters` draws them: a seed fixes the model."""
        vectors, directions = self.relations == "vectors", 2 if self.add_inverse else 1
        scalars, rows = self.relations == "scalars", directions * self.num_relations
        looped = (vectors or scalars) and self.self_loop and not self.roles and not self.update_loop
        filters = self.filters.shapes(Sizes(self.in_channels, self.out_channels, rows, directions, bases))
        if not self.self_loop:
            filters.pop("weight_loop", None)
        self._filters = list(filters)
        shapes: dict[str, tuple[int, ...] | None] = {
            "weight_relation": (self.in_channels, self.out_channels) if vectors else None,
            "loop_relation": (1, 1 if scalars else self.in_channels) if looped else None,
            "relation_scale": (rows, 1) if scalars else None,
            "relation_bias": (rows, self.out_channels) if relation_bias else None,
            "bias": (self.out_channels,) if bias else None,
            **filters,
        }
        for name, shape in shapes.items():
            self.register_parameter(name, None if shape is None else nn.Parameter(torch.empty(shape)))

    def reset_parameters(self) -> None:
        """Draw every matrix by Xavier and scalars from N(0, 1), set biases to zero, and reset a learned composition.

        Scalars that all started at one, the weight of the loop, would make the ends of an edge almost one vector.
        """
        for module in () if self.phi is None else self.phi.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
        for name, parameter in self.named_parameters(recurse=False):
            if name in ("bias", "relation_bias"):
                nn.init.zeros_(parameter)
            elif self.relations == "scalars" and name in ("relation_scale", "loop_relation"):
                nn.init.normal_(parameter)
            else:
                for matrix in parameter.view(-1, *parameter.shape[-2:]).unbind():
                    nn.init.xavier_normal_(matrix)

    def forward(
        self,
        x: Tensor,
        rel: Tensor | None,
        edge_index: Tensor | RelationalGraph,
        edge_type: Tensor | None = None,
        *,
        keep: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return (x', rel') for the vectors of all nodes and relations.

        With `keep` [E] both messages of an edge count so many times their weight in the whole graph; 0 leaves the
        edge out of this call.
        """
        graph = self._graph(x, edge_index, edge_type)
        self._check(x, rel, graph, keep)
        messages = graph.messages(self.flow, self.add_inverse)
        z, z_loop = self._relation_vectors(rel)
        if z is not None and z_loop is not None and self._stacks(x):
            messages, z = messages.with_loops(), torch.cat((z, z_loop))

        # Eq. node_update: (Σ w phi(x_u, z_r)) W_dir of each direction, and the loop w_v phi(x_v, z_loop) W_loop
        terms = self._terms(x, z, messages, keep)
        loop = terms.pop() if messages.loops and len(terms) > 1 else None
        if self.self_loop and not messages.loops:
            loop = self._loop(x[: messages.num_receivers], z_loop, messages.weights(self._norm(x)).loop)
        out, *others = [dropout(term, self.dropout, self.training) for term in terms]
        for term in others:
            out = out.add_(term)
        if loop is not None:
            out = out.add_(dropout(loop, self.dropout, self.training and self.loop_dropout))
        if self.bias is not None:
            out = out.add_(self.bias)

        # Eq. rel_share: one matrix for all relations
        if rel is not None and self.weight_relation is not None:
            rel = rel @ self.weight_relation
        return out, rel

    def _relation_vectors(self, rel: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Return the argument of phi for each row of the relation table, and for the loop."""
        if self.relations == "scalars":
            return self.relation_scale, self.loop_relation
        if rel is None or self.relations == "none":
            return None, None
        if self.update_loop:
            return rel[:-1], rel[-1:]
        if self.roles:
            half = rel[: self.num_relations]
            half = half if self.flow == "source_to_target" else -half
            return (torch.cat((half, -half)) if self.add_inverse else half), None
        return rel, self.loop_relation

    def _terms(self, x: Tensor, z: Tensor | None, messages: Messages, keep: Tensor | None) -> list[Tensor]:
        """Return the weighted sums of messages after their filters, [N, out], by direction or all in one."""
        norm = self._norm(x)
        weight = None if keep is None else messages.weights(norm).message * messages.of_edges(keep)
        phi = self._factored()
        if phi is None:
            assert self.phi is not None
            assert z is not None
            sender, relation, messages = messages.contents()
            phi, x, z = COMPOSITIONS["copy"], contents(self.phi, x, z, sender, relation), None
        lifted = phi.lift(x)  # [N, D]
        relations = lifted.new_zeros(1, 1) if z is None else phi.lift_relation(z)
        if z is not None and relations.shape[-1] == 1:
            relations = relations.expand(-1, lifted.shape[-1])  # a scalar per relation
        apart = self.training and self.dropout > 0
        own = norm if keep is None else None
        incoming = Incoming(phi, lifted, relations, x.shape[1], x.dtype, messages, own, weight, apart)
        terms = self.filters.sums({name: getattr(self, name) for name in self._filters}, incoming)
        return terms if self.relation_bias is None else add_biases(terms, self.relation_bias, incoming)

    def _loop(self, x: Tensor, z: Tensor | None, weight: Tensor | None) -> Tensor:
        """Return w_v W_loop^T phi(x_v, z_loop), [N, out]; phi with one relation is mostly affine: fold it into W."""
        filters: Tensor = getattr(self, self.filters.loop)
        phi = self._factored()
        if z is None:
            loop = x @ filters
        elif phi is None:
            assert self.phi is not None
            every = torch.arange(len(x), device=x.device)
            loop = contents(self.phi, x, z, every, torch.zeros_like(every)) @ filters
        elif phi.linear_lift:
            matrix, shift = phi.fold_fixed(z.expand(1, x.shape[1]), filters)
            loop = torch.addmm(shift, x, matrix)
        else:
            loop = phi(x, z).to(x.dtype) @ filters
        return loop if weight is None else (weight.unsqueeze(1) * loop).to(loop.dtype)

    def _factored(self) -> Composition | None:
        """Return phi in factors, or None where it has none."""
        if not isinstance(self.composition, Learned):
            return self.composition
        return None if self.composition.factors is None else self.composition.factors(self.phi)

    def _norm(self, x: Tensor) -> Norm:
        return Norm(self.norm, self.self_loop, wide(x.dtype))

    def _stacks(self, x: Tensor) -> bool:
        """Return whether the loops are messages of one more direction: fewer kernels to launch, which a GPU waits for.

        A CPU folds phi into the filter of the loop instead, which multiplies less.
        """
        plain = self.filters.name == "direction" and self.relation_bias is None
        return plain and is_launch_bound(x) and self._factored() is not None

    def _graph(self, x: Tensor, edge_index: Tensor | RelationalGraph, edge_type: Tensor | None) -> RelationalGraph:
        """Return the graph itself, or the one made of the last tensors seen, so that sorting happens once."""
        if x.dim() != 2:
            raise InputError(f"x must have shape [N, {self.in_channels}], not {list(x.shape)}")
        if isinstance(edge_index, RelationalGraph):
            return edge_index
        if edge_type is None:
            raise InputError("edge_type is missing: the layer takes edge_index and edge_type, or a RelationalGraph")
        # A traced call sorts every time, and a tensor of inference mode has no version; a RelationalGraph avoids both.
        keeps = not (torch.compiler.is_compiling() or edge_index.is_inference() or edge_type.is_inference())
        # Writing into a tensor raises its version, and makes it another graph.
        state = (edge_index._version, edge_type._version, len(x)) if keeps else ()
        if keeps and self._last is not None:
            index, types, seen, graph = self._last
            if index is edge_index and types is edge_type and seen == state:
                return graph
        if edge_index.dim() != 2 or edge_index.shape[0] != 2:
            raise InputError(f"edge_index must have shape [2, E], not {list(edge_index.shape)}")
        graph = RelationalGraph(edge_index[0], edge_index[1], edge_type, x.shape[0], self.num_relations)
        if keeps:
            self._last = (edge_index, edge_type, state, graph)
        return graph

    def _check(self, x: Tensor, rel: Tensor | None, graph: RelationalGraph, keep: Tensor | None) -> None:
        autocast, own = torch.is_autocast_enabled(x.device.type), getattr(self, self._filters[0]).dtype
        if x.dtype != own and not autocast:
            raise InputError(f"x is {x.dtype} and the layer {own}; convert one of them")
        if x.shape != (graph.num_nodes, self.in_channels):
            raise InputError(f"x must have shape [{graph.num_nodes}, {self.in_channels}], not {list(x.shape)}")
        if graph.num_relations != self.num_relations:
            raise InputError(f"the graph has {graph.num_relations} relations, the layer {self.num_relations}")
        if keep is not None and keep.shape != (graph.num_edges,):
            raise InputError(f"keep must have shape [{graph.num_edges}], one number per edge, not {list(keep.shape)}")
        if self.relations != "vectors":
            return
        rows = (2 if self.add_inverse else 1) * self.num_relations + self.update_loop
        if rel is None or rel.shape != (rows, self.in_channels):
            given = None if rel is None else list(rel.shape)
            raise InputError(f"rel must have shape [{rows}, {self.in_channels}], not {given}")
        if (rel.dtype, rel.device) != (x.dtype, x.device) and not autocast:
            raise InputError(f"rel is {rel.dtype} on {rel.device} and x {x.dtype} on {x.device}; convert one of them")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}  # a copy or a file of the layer need not carry the graph

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, num_relations={self.num_relations}, "
            f"composition={self.composition.name}, norm={self.norm}, flow={self.flow}, filters={self.filters.name}"
        )
