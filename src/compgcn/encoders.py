"""Encoders: input tables, K layers, and the presets that make each published model a row of data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.compose import Composition
from compgcn.dropout import dropout as drop_out
from compgcn.errors import InputError, unknown
from compgcn.graph import Flow, RelationalGraph
from compgcn.layers import CompGCNConv, Relations


class Preset(NamedTuple):
    """A published encoder as (phi, lambda): a row of the paper's table of reductions, with its usual normalisation."""

    composition: str | None  # None: the caller's choice
    tying: str  # lambda(r)
    relations: Relations  # what phi gets of a relation
    norm: str
    relation_bias: bool = False
    bases: int | None = 0  # how many unless told otherwise; None where the encoder has none
    origin: str = ""


PRESETS: dict[str, Preset] = {
    "none": Preset("copy", "shared", "none", "none", bases=None, origin="no encoder: the learned table itself"),
    "gcn": Preset("copy", "shared", "none", "kipf", bases=None, origin="Kipf-GCN"),
    "dgcn": Preset("copy", "direction", "none", "symmetric", True, bases=None, origin="Directed GCN (SynGCN)"),
    "rgcn": Preset(
        "copy", "relation", "none", "relation-mean", bases=None, origin="Relational GCN, a filter per relation"
    ),
    "rgcn-basis": Preset("copy", "basis", "none", "relation-mean", bases=30, origin="Relational GCN, basis matrices"),
    "rgcn-block": Preset("copy", "block", "none", "relation-mean", bases=4, origin="Relational GCN, diagonal blocks"),
    "wgcn": Preset("mult", "shared", "scalars", "symmetric", bases=None, origin="Weighted GCN"),
    "compgcn": Preset(None, "direction", "vectors", "symmetric", origin="CompGCN, the paper"),
    "released": Preset(None, "direction", "vectors", "released", origin="CompGCN as its released code computes it"),
}


def preset(name: str) -> Preset:
    """The row of that name."""
    if name not in PRESETS:
        raise unknown("encoder", name, PRESETS)
    return PRESETS[name]


def xavier(*shape: int) -> nn.Parameter:
    """A learned table or matrix, Xavier-normal as the paper has it."""
    return nn.Parameter(nn.init.xavier_normal_(torch.empty(*shape)))


def learned(rows: int, dim: int, scale: float | None = None) -> nn.Parameter:
    """A learned table of vectors: normal with standard deviation `scale`, or Xavier's."""
    return xavier(rows, dim) if scale is None else nn.Parameter(torch.randn(rows, dim) * scale)


class RelationTable(nn.Module):
    """Initial relation vectors z, [2R, d]: originals, then inverses.

    Args:
        inverses: False leaves the inverses out: z is [R, d].
        bases: B > 0 makes z_r = sum_b alpha_br v_b, the paper's basis vectors; 0 gives every row its own vector.
        tie_inverse: learn R rows only; an inverse is the negative of its original, as TransE has it.
        features: given vectors [R, d] or [2R, d] in place of learned ones; for R of them, the inverses are a learned
            linear image of the originals.
        init_scale: standard deviation that vectors begin with; None for Xavier's. Basis vectors keep Xavier's.
    """

    def __init__(
        self,
        num_relations: int,
        dim: int,
        *,
        inverses: bool = True,
        bases: int = 0,
        tie_inverse: bool = False,
        features: Tensor | None = None,
        init_scale: float | None = None,
    ) -> None:
        super().__init__()
        self.tie_inverse = tie_inverse and inverses
        rows = 2 * num_relations if inverses and not tie_inverse else num_relations
        self.register_buffer("features", features)
        self.weight = self.alpha = self.inverse = None
        if features is not None:
            shapes = [[count, dim] for count in sorted({num_relations, rows})]
            if list(features.shape) not in shapes:
                expected = " or ".join(str(shape) for shape in shapes)
                raise InputError(f"relation features must have shape {expected}, not {list(features.shape)}")
            if len(features) < rows:
                self.inverse = xavier(dim, dim)
        elif bases > 0:
            self.alpha, self.weight = xavier(rows, bases), xavier(bases, dim)
        else:
            self.weight = learned(rows, dim, init_scale)

    features: Tensor | None
    weight: nn.Parameter | None
    alpha: nn.Parameter | None
    inverse: nn.Parameter | None

    def forward(self) -> Tensor:
        """z [2R, d], or [R, d] without inverses."""
        table = self.features if self.features is not None else self.weight
        assert table is not None
        if self.alpha is not None:
            table = self.alpha @ table
        if self.tie_inverse:
            return torch.cat((table, -table))
        return table if self.inverse is None else torch.cat((table, table @ self.inverse))


class Encoder(nn.Module):
    """Vectors of all entities and relations of a graph: input tables, then K times layer, batch norm, activation.

    Args:
        num_nodes: rows of the input table: N, or fewer where nodes share their vectors (see `forward`).
        num_relations: R, inverses not counted.
        dims: the input dimension, then one per layer; a single one is no layer at all.
        name: a row of `PRESETS`.
        composition, norm: where the preset leaves the choice, or None for the preset's.
        flow: "target_to_source" by default: the paper's N(v) runs over the outgoing edges of v.
        bases: basis vectors of the first layer's relations (compgcn), basis matrices or blocks (rgcn-*); 0 for the
            preset's own number, which is none for compgcn.
        dropout: of the layer, on each direction's sum; with `loop_dropout`, on the loop too.
        hidden_dropout: on the entity vectors after each layer's activation.
        bias, batch_norm, activation, self_loop: of the layers.
        add_inverse: False sends along edges in one direction only, and gives R relation vectors in place of 2R.
        tie_inverse: an inverse relation starts as the negative of its original.
        node_features, relation_features: given input in place of learned tables.
        init_scale: standard deviation of the learned tables at the beginning; None for Xavier's.
    """

    def __init__(
        self,
        num_nodes: int,
        num_relations: int,
        dims: Sequence[int],
        name: str = "compgcn",
        *,
        composition: str | Composition | None = None,
        norm: str | None = None,
        flow: Flow = "target_to_source",
        bases: int = 0,
        dropout: float = 0.0,
        loop_dropout: bool = False,
        hidden_dropout: float = 0.0,
        bias: bool = False,
        batch_norm: bool = True,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
        self_loop: bool = True,
        add_inverse: bool = True,
        tie_inverse: bool = False,
        node_features: Tensor | None = None,
        relation_features: Tensor | None = None,
        init_scale: float | None = None,
    ) -> None:
        super().__init__()
        row = preset(name)
        if row.composition is not None and composition not in (None, row.composition):
            raise InputError(f"encoder '{name}' has composition '{row.composition}'; leave composition out")
        if not dims or min(dims) < 1:
            raise InputError(f"dims must name at least one positive dimension, not {list(dims)}")
        dims = list(dims[-1:] if name == "none" else dims)
        if relation_features is not None and row.relations != "vectors":
            raise InputError(f"encoder '{name}' has no relation vectors, so it takes no relation features")
        bases = bases or row.bases or 0
        self.num_nodes, self.num_relations, self.dims = num_nodes, num_relations, dims
        self.hidden_dropout, self.activation = hidden_dropout, activation
        self.nodes, self.node_features = self._node_input(dims[0], node_features, init_scale)
        self.relations = None
        if row.relations == "vectors":
            self.relations = RelationTable(
                num_relations,
                dims[0],
                inverses=add_inverse,
                bases=0 if row.tying in ("basis", "block") else bases,
                tie_inverse=tie_inverse,
                features=relation_features,
                init_scale=init_scale,
            )
        self.layers = nn.ModuleList(
            CompGCNConv(
                inputs,
                outputs,
                num_relations,
                row.composition or composition or "corr",
                norm or row.norm,
                flow,
                add_inverse,
                self_loop,
                dropout,
                bias,
                loop_dropout=loop_dropout,
                tying=row.tying,
                relations=row.relations,
                relation_bias=row.relation_bias,
                bases=bases,
            )
            for inputs, outputs in pairwise(dims)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(d) if batch_norm else nn.Identity() for d in dims[1:])

    nodes: nn.Parameter | None
    node_features: Tensor | None

    def _node_input(
        self, dim: int, features: Tensor | None, scale: float | None
    ) -> tuple[nn.Parameter | None, Tensor | None]:
        self.register_buffer("node_features", features)
        if features is None:
            return learned(self.num_nodes, dim, scale), None
        if features.shape != (self.num_nodes, dim):
            raise InputError(f"node features must have shape [{self.num_nodes}, {dim}], not {list(features.shape)}")
        return None, features

    def forward(
        self, graph: RelationalGraph | Sequence[RelationalGraph], rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(x [N, d], z [2R, d], or None where the encoder has no relation vectors).

        Args:
            graph: of N nodes; or one for each layer, every one of the nodes that receive in the one before it.
            rows: the row of the input table, or of the features, that each node starts from [N]; several nodes may
                share one. By default node i has row i.
        """
        x = self.nodes if self.nodes is not None else self.node_features
        assert x is not None
        if rows is not None:
            x = F.embedding(rows, x)
        z = None if self.relations is None else self.relations()
        graphs = [graph] * len(self.layers) if isinstance(graph, RelationalGraph) else graph
        for layer, norm, part in zip(self.layers, self.norms, graphs, strict=True):
            x, z = layer(x, z, part)
            x = drop_out(self.activation(norm(x)), self.hidden_dropout, self.training)
        return x, z
