"""Encoders: input tables, then K layers; `PRESETS` is the paper's Proposition 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.errors import InputError, pick
from compgcn.nn.compose import Phi
from compgcn.nn.conv import CompGCNConv, Relations
from compgcn.nn.dropout import dropout as drop_out
from compgcn.nn.graph import Flow, RelationalGraph


class Preset(NamedTuple):
    """A published encoder as (phi, lambda): a row of the paper's table of reductions, with its usual normalisation."""

    filters: str  # lambda(r)
    norm: str
    composition: str | None = "copy"  # None: the caller's choice
    relations: Relations = "none"  # the argument of phi for a relation
    relation_bias: bool = False
    bases: int | None = None  # the default number; None where the encoder has none
    roles: bool = False  # a message from the object of a fact gets -z_r, one from its subject z_r
    relation_activation: bool = False  # a relation's update is f(z_r W_rel), not z_r W_rel alone
    origin: str = ""
    reference: str = ""


PRESETS: dict[str, Preset] = {
    "none": Preset(filters="shared", norm="none", origin="no encoder: the learned table itself", reference="a control"),
    "gcn": Preset(
        filters="shared",
        norm="kipf",
        origin="Kipf-GCN: one filter for every message",
        reference="Kipf & Welling, ICLR 2017",
    ),
    "dgcn": Preset(
        filters="direction",
        norm="symmetric",
        relation_bias=True,
        origin="Directed GCN (SynGCN): a filter per direction, a bias per relation",
        reference="Marcheggiani & Titov, EMNLP 2017",
    ),
    "rgcn": Preset(
        filters="relation",
        norm="relation-mean",
        origin="Relational GCN, a filter per relation",
        reference="Schlichtkrull et al., ESWC 2018",
    ),
    "rgcn-basis": Preset(
        filters="basis",
        norm="relation-mean",
        bases=30,
        origin="Relational GCN, basis matrices",
        reference="Schlichtkrull et al., ESWC 2018",
    ),
    "rgcn-block": Preset(
        filters="block",
        norm="relation-mean",
        bases=4,
        origin="Relational GCN, diagonal blocks",
        reference="Schlichtkrull et al., ESWC 2018",
    ),
    "wgcn": Preset(
        composition="mult",
        filters="shared",
        relations="scalars",
        norm="symmetric",
        origin="Weighted GCN: one learned number per relation and layer",
        reference="Shang et al., AAAI 2019",
    ),
    # VR-GCN (Ye et al., IJCAI 2019), f the activation:
    #   h_v' = f((mean of s + r over facts (s, r, v)  +  mean of o - r over facts (v, r, o)  +  h_v) W),
    #   h_r' = f(h_r W_rel).
    # Messages by role and the update of relations are in that paper. One W, a mean for each role, and no more than a
    # map and f for relations are our reading of it.
    "vrgcn": Preset(
        composition="add",
        filters="shared",
        relations="vectors",
        norm="mean",
        roles=True,
        relation_activation=True,
        origin="VR-GCN: subject + relation to the object, object - relation to the subject",
        reference="Ye et al., IJCAI 2019",
    ),
    "compgcn": Preset(
        composition=None,
        filters="direction",
        relations="vectors",
        norm="symmetric",
        bases=0,
        origin="CompGCN, the paper: a filter per direction, relations composed into messages",
        reference="Vashishth et al., ICLR 2020",
    ),
    "released": Preset(
        composition=None,
        filters="direction",
        relations="vectors",
        norm="released",
        bases=0,
        origin="CompGCN as its released code computes it",
        reference="Vashishth et al., ICLR 2020",
    ),
}


def preset(name: str) -> Preset:
    return pick("encoder", name, PRESETS)


def xavier(*shape: int) -> nn.Parameter:
    """Draw a learned table or matrix, Xavier-normal as in the paper."""
    return nn.Parameter(nn.init.xavier_normal_(torch.empty(*shape)))


def learned(rows: int, dim: int, scale: float | None = None) -> nn.Parameter:
    """Draw a learned table of vectors: normal with standard deviation `scale`, or Xavier's."""
    return xavier(rows, dim) if scale is None else nn.Parameter(torch.randn(rows, dim) * scale)


Table = Callable[[int, int, float | None], nn.Parameter]  # draws as `learned`
Backwards = Callable[[Tensor], Tensor]  # vectors of relations [R, d] -> those of their inverses


class RelationTable(nn.Module):
    """Initial relation vectors z, [2R, d]: originals, then inverses.

    Args:
        inverses: False leaves the inverses out: z is [R, d].
        bases: B > 0 makes z_r = sum_b alpha_br v_b, the paper's basis vectors; 0 gives every row its own vector.
        tie_inverse: learn R rows only, and make the inverses of them; `torch.neg` gives those of TransE.
        features: given vectors [R, d] or [2R, d] in place of learned ones; with R of them, a learned linear map makes
            the inverses.
        init_scale: initial standard deviation of the vectors; None for Xavier's. Basis vectors keep Xavier's.
    """

    features: Tensor | None
    weight: nn.Parameter | None
    alpha: nn.Parameter | None
    inverse: nn.Parameter | None
    backwards: Backwards | None

    def __init__(
        self,
        num_relations: int,
        dim: int,
        *,
        inverses: bool = True,
        bases: int = 0,
        tie_inverse: Backwards | None = None,
        features: Tensor | None = None,
        init_scale: float | None = None,
    ) -> None:
        super().__init__()
        self.backwards = tie_inverse if inverses else None
        rows = 2 * num_relations if inverses and tie_inverse is None else num_relations
        self.register_buffer("features", features)
        self.weight = self.alpha = self.inverse = None
        if features is not None:
            shapes = [[count, dim] for count in sorted({num_relations, rows})]
            if list(features.shape) not in shapes:
                expected = " or ".join(str(shape) for shape in shapes)
                why = "; inverses are tied, and made of the originals" if self.backwards is not None else ""
                raise InputError(f"relation features must have shape {expected}, not {list(features.shape)}{why}")
            if len(features) < rows:
                self.inverse = xavier(dim, dim)
        elif bases > 0:
            self.alpha, self.weight = xavier(rows, bases), xavier(bases, dim)
        else:
            self.weight = learned(rows, dim, init_scale)

    def forward(self) -> Tensor:
        """Return z [2R, d], or [R, d] without inverses."""
        table = self.features if self.features is not None else self.weight
        assert table is not None
        if self.alpha is not None:
            table = self.alpha @ table
        if self.backwards is not None:
            return torch.cat((table, self.backwards(table)))
        return table if self.inverse is None else torch.cat((table, table @ self.inverse))


class Residual(nn.Module):
    """raw + h P for nodes and, where they have vectors, for relations; P starts at zero.

    Args:
        num_nodes: rows of the raw table, as many as the input of the encoder has.
        inputs: the output dimension of the encoder.
        dim: D, the dimension of the raw vectors.
        init_scale: initial standard deviation of the nodes' raw vectors; None for Xavier's.
    """

    weight_relation: nn.Parameter | None

    def __init__(
        self,
        num_nodes: int,
        inputs: int,
        dim: int,
        relations: RelationTable | None,
        init_scale: float | None = None,
        table: Table = learned,
    ) -> None:
        super().__init__()
        self.nodes, self.relations = table(num_nodes, dim, init_scale), relations
        self.weight = nn.Parameter(torch.zeros(inputs, dim))
        both = None if relations is None else nn.Parameter(torch.zeros(inputs, dim))
        self.register_parameter("weight_relation", both)

    def forward(self, x: Tensor, z: Tensor | None, rows: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return x [N, D] and z [2R, D] for the encoder's x [N, d] and z [2R, d]; `rows` as in `Encoder.forward`."""
        chosen = None if rows is None else rows[: len(x)]  # the first are those that receive
        x = (self.nodes if chosen is None else F.embedding(chosen, self.nodes)) + x @ self.weight
        if z is None or self.relations is None or self.weight_relation is None:
            return x, z
        return x, self.relations() + z @ self.weight_relation


def must_take(
    name: str, composition: Phi | None, bases: int, dims: Sequence[int], features: bool = False, residual: int = 0
) -> None:
    """Refuse arguments that the encoder of that name does not take; `features`: whether relations have some."""
    row = preset(name)
    if row.composition is not None and getattr(composition, "name", composition) not in (None, row.composition):
        raise InputError(f"encoder '{name}' has composition '{row.composition}'; leave composition out")
    if row.bases is None and bases:
        raise InputError(f"encoder '{name}' has no bases; leave bases out")
    if not dims or min(dims) < 1:
        raise InputError(f"dims must name at least one positive dimension, not {list(dims)}")
    if features and row.relations != "vectors":
        raise InputError(f"encoder '{name}' has no relation vectors, so it takes no relation features")
    if residual and (name == "none" or len(dims) == 1):
        raise InputError("without a layer there is nothing to add to a residual; leave residual out")


class Encoder(nn.Module):
    """Vectors of all entities and relations of a graph: input tables, then K times layer, batch norm, activation.

    With a residual of dimension D every node and relation also has a raw vector, and the encoder adds to it, see
    `Residual`: training starts from the raw vectors alone.

    Args:
        num_nodes: rows of the input table: N, or fewer where nodes share their vectors (see `forward`).
        num_relations: R, inverses not counted.
        dims: the input dimension, then one per layer; a single one is no layer at all.
        name: a row of `compgcn.nn.encoder.PRESETS`.
        composition, norm: where the preset leaves the choice, or None for the preset's.
        flow: "target_to_source" by default: the paper's N(v) runs over the outgoing edges of v.
        bases: basis vectors of the first layer's relations (compgcn), basis matrices or blocks (rgcn-*); 0 for the
            preset's own number, which is none for compgcn.
        dropout, loop_dropout, bias, self_loop: of the layers, see `CompGCNConv`.
        update_loop: learn one vector for the loop, and update it from layer to layer like a relation, as the paper
            writes; otherwise every layer learns one, as its released code does.
        hidden_dropout: on the entity vectors after each layer's activation.
        batch_norm, activation: after every layer.
        add_inverse: False sends along edges in one direction only, and gives R relation vectors in place of 2R.
        tie_inverse: makes the vectors of inverse relations of their originals'; None learns them.
        node_features, relation_features: given input in place of learned tables.
        residual: D, the dimension of the raw vectors and of the output; 0 for none.
        init_scale: initial standard deviation of the learned tables, with a residual of its raw vectors alone; None
            for Xavier's.
        entity_table: draws the learned tables of nodes.
    """

    nodes: nn.Parameter | None
    node_features: Tensor | None
    loop: nn.Parameter | None

    def __init__(
        self,
        num_nodes: int,
        num_relations: int,
        dims: Sequence[int],
        name: str = "compgcn",
        *,
        composition: Phi | None = None,
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
        update_loop: bool = False,
        add_inverse: bool = True,
        tie_inverse: Backwards | None = None,
        node_features: Tensor | None = None,
        relation_features: Tensor | None = None,
        residual: int = 0,
        init_scale: float | None = None,
        entity_table: Table = learned,
    ) -> None:
        super().__init__()
        row = preset(name)
        must_take(name, composition, bases, dims, relation_features is not None, residual)
        dims = list(dims[-1:] if name == "none" else dims)
        bases = bases or row.bases or 0
        self.num_nodes, self.num_relations, self.dims = num_nodes, num_relations, dims
        self.hidden_dropout, self.activation, self.flow = hidden_dropout, activation, flow
        self.relation_activation = row.relation_activation
        scale = None if residual else init_scale
        if node_features is not None and node_features.shape != (num_nodes, dims[0]):
            given = list(node_features.shape)
            raise InputError(f"node features must have shape [{num_nodes}, {dims[0]}], not {given}")
        self.register_buffer("node_features", node_features)
        self.nodes = entity_table(num_nodes, dims[0], scale) if node_features is None else None
        table = partial(RelationTable, num_relations, inverses=add_inverse, tie_inverse=tie_inverse)
        self.relations = None
        if row.relations == "vectors":
            shared = 0 if row.bases is None or row.filters in ("basis", "block") else bases
            self.relations = table(dims[0], bases=shared, features=relation_features, init_scale=scale)
        self.layers = nn.ModuleList(
            CompGCNConv(
                inputs,
                outputs,
                num_relations,
                composition=row.composition or composition or "corr",
                norm=norm or row.norm,
                flow=flow,
                add_inverse=add_inverse,
                self_loop=self_loop,
                dropout=dropout,
                bias=bias,
                loop_dropout=loop_dropout,
                update_loop=update_loop,
                filters=row.filters,
                relations=row.relations,
                relation_bias=row.relation_bias,
                bases=bases,
                roles=row.roles,
            )
            for inputs, outputs in pairwise(dims)
        )
        self.loop = xavier(1, dims[0]) if update_loop else None
        self.norms = nn.ModuleList(nn.BatchNorm1d(d) if batch_norm else nn.Identity() for d in dims[1:])
        self.dim = residual or dims[-1]  # of the output
        self.residual = None
        if residual:
            raw = None if self.relations is None else table(residual, init_scale=init_scale)
            self.residual = Residual(num_nodes, dims[-1], residual, raw, init_scale, entity_table)

    def forward(
        self,
        graph: RelationalGraph | Sequence[RelationalGraph],
        rows: Tensor | None = None,
        keep: Tensor | None = None,
        *,
        sparse: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return x [N, d], and z [2R, d] or None where the encoder has no relation vectors.

        Args:
            graph: of N nodes; or one graph per layer, each of the nodes that receive in the one before.
            rows: the row of the input table, or of the features, that each node starts from [N]; several nodes may
                share one. By default node i has row i.
            keep: factor of the weight of each edge [E] of the whole graph, see `CompGCNConv.forward`.
            sparse: whether the gradient of the input table holds the rows in use alone.
        """
        x = self.nodes if self.nodes is not None else self.node_features
        assert x is not None
        if rows is not None:
            x = F.embedding(rows, x, sparse=sparse)
        z = None if self.relations is None else self.relations()
        if self.loop is not None:
            assert z is not None
            z = torch.cat((z, self.loop))
        graphs = [graph] * len(self.layers) if isinstance(graph, RelationalGraph) else graph
        for layer, norm, part in zip(self.layers, self.norms, graphs, strict=True):
            x, z = layer(part.senders(x), z, part, keep=None if keep is None else part.of_whole(keep))
            x = drop_out(self.activation(norm(x)), self.hidden_dropout, self.training)
            if self.relation_activation:
                z = self.activation(z)
        if self.loop is not None and z is not None:
            z = z[:-1]
        return (x, z) if self.residual is None else self.residual(x, z, rows)
