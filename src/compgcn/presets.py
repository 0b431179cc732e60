"""The presets: each published encoder as a row of data."""

from __future__ import annotations

from typing import NamedTuple

from compgcn.errors import unknown
from compgcn.layers import Relations


class Preset(NamedTuple):
    """A published encoder as (phi, lambda): a row of the paper's table of reductions, with its usual normalisation."""

    composition: str | None  # None: the caller's choice
    tying: str  # lambda(r)
    relations: Relations  # what phi gets of a relation
    norm: str
    relation_bias: bool = False
    bases: int | None = 0  # how many unless told otherwise; None where the encoder has none
    origin: str = ""
    reference: str = ""
    roles: bool = False  # a message from the object of a fact gets -z_r, one from its subject z_r
    relation_activation: bool = False  # a relation's update is f(z_r W_rel), not z_r W_rel alone


PRESETS: dict[str, Preset] = {
    "none": Preset(
        "copy",
        "shared",
        "none",
        "none",
        bases=None,
        origin="no encoder: the learned table itself",
        reference="a control",
    ),
    "gcn": Preset(
        "copy",
        "shared",
        "none",
        "kipf",
        bases=None,
        origin="Kipf-GCN: one filter for every message",
        reference="Kipf & Welling, ICLR 2017",
    ),
    "dgcn": Preset(
        "copy",
        "direction",
        "none",
        "symmetric",
        True,
        bases=None,
        origin="Directed GCN (SynGCN): a filter per direction, a bias per relation",
        reference="Marcheggiani & Titov, EMNLP 2017",
    ),
    "rgcn": Preset(
        "copy",
        "relation",
        "none",
        "relation-mean",
        bases=None,
        origin="Relational GCN, a filter per relation",
        reference="Schlichtkrull et al., ESWC 2018",
    ),
    "rgcn-basis": Preset(
        "copy",
        "basis",
        "none",
        "relation-mean",
        bases=30,
        origin="Relational GCN, basis matrices",
        reference="Schlichtkrull et al., ESWC 2018",
    ),
    "rgcn-block": Preset(
        "copy",
        "block",
        "none",
        "relation-mean",
        bases=4,
        origin="Relational GCN, diagonal blocks",
        reference="Schlichtkrull et al., ESWC 2018",
    ),
    "wgcn": Preset(
        "mult",
        "shared",
        "scalars",
        "symmetric",
        bases=None,
        origin="Weighted GCN: one learned number per relation and layer",
        reference="Shang et al., AAAI 2019",
    ),
    # VR-GCN (Ye et al., IJCAI 2019), f the activation:
    #   h_v' = f((mean of s + r over facts (s, r, v)  +  mean of o - r over facts (v, r, o)  +  h_v) W),
    #   h_r' = f(h_r W_rel).
    # The messages by role and that relations are updated are the paper's. One W, a mean for each role, and no more
    # than a map and f for relations are our reading of it.
    "vrgcn": Preset(
        "add",
        "shared",
        "vectors",
        "mean",
        bases=None,
        origin="VR-GCN: subject + relation to the object, object - relation to the subject",
        reference="Ye et al., IJCAI 2019",
        roles=True,
        relation_activation=True,
    ),
    "compgcn": Preset(
        None,
        "direction",
        "vectors",
        "symmetric",
        origin="CompGCN, the paper: a filter per direction, relations composed into messages",
        reference="Vashishth et al., ICLR 2020",
    ),
    "released": Preset(
        None,
        "direction",
        "vectors",
        "released",
        origin="CompGCN as its released code computes it",
        reference="Vashishth et al., ICLR 2020",
    ),
}


def preset(name: str) -> Preset:
    """The row of that name."""
    if name not in PRESETS:
        raise unknown("encoder", name, PRESETS)
    return PRESETS[name]
