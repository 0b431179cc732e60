"""A table of text, and those that are made from the package itself: its methods, and the data sets of its registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from compgcn.data import DATASETS
from compgcn.encoders import Encoder
from compgcn.experiment import Experiment
from compgcn.presets import PRESETS

MISSING = "–"
_FB15K237 = (237, (100, 200))  # relations, and the dimensions of one layer
_SEEN = ("node embeddings", "directions", "relations", "relation embeddings")


class Table(NamedTuple):
    """Rows of cells under a header; cells are text with * for emphasis and ` for code."""

    title: str
    header: tuple[str, ...]
    rows: list[list[str]]


def _methods(experiment: Experiment) -> list[Table]:
    """What every encoder sees and how many parameters its layers have: the paper's two tables, from the presets."""
    order = {
        "shared": "K d²",
        "direction": "K d²",
        "relation": "K |R| d²",
        "basis": "B K d² + B K |R|",
        "block": "K |R| d² / B",
    }
    weights = {"shared": "W", "direction": "W_dir(r)", "relation": "W_r", "basis": "W_r = Σ_b a_rb V_b"}
    weights["block"] = "W_r of B blocks"
    seen, reductions = [], []
    for name, row in PRESETS.items():
        if name == "none":
            continue
        directed = row.tying != "shared" or row.roles
        related = row.tying not in ("shared", "direction") or row.relations != "none"
        vectors = " + |R| d" if row.bases is None else " + B d + B |R|"
        size = order[row.tying] + {"scalars": " + K |R|", "vectors": vectors}.get(row.relations, "")
        encoder = Encoder(1, _FB15K237[0], _FB15K237[1], name, composition=None if row.composition else "corr")
        count = sum(weights.numel() for weights in encoder.parameters()) - _FB15K237[1][0]  # the one node's vector
        marks = ["yes", *("yes" if mark else "" for mark in (directed, related, row.relations == "vectors"))]
        seen.append([f"`{name}`", row.origin, *marks, f"O({size})", f"{count:,}"])
        own = {None: "φ(h_u, h_r)", "copy": "h_u", "mult": "a_r h_u", "add": "h_u + h_r"}
        phi = own.get(row.composition, f"{row.composition}(h_u, h_r)")
        reductions.append([f"`{name}`", row.origin, weights[row.tying], phi])
    header = ("encoder", "method", *_SEEN, "parameters", "in one layer, 100 → 200, of FB15k-237")
    return [
        Table("What they see", header, seen),
        Table("As cases of one update", ("encoder", "method", "weights", "message"), reductions),
    ]


def _datasets(experiment: Experiment) -> list[Table]:
    """The sizes of the data sets, the paper's beside those of the registry, which all that is loaded is held to.

    Of a data set that was never loaded, whose content nobody knows therefore, the registry has what others say.
    """
    lines = []
    for row in experiment.rows:
        known = DATASETS[row.name].statistics
        graphs = known.get("graphs", 1)
        entities, edges = known.get("entities", known.get("nodes", 0)), known.get("triples", known.get("edges"))
        edges = sum(known.get(part, 0) for part in ("train", "valid", "test")) if edges is None else edges
        found = {"graphs": graphs, "entities": entities / graphs, "edges": edges / graphs}
        found |= {key: known[key] for key in ("relations", "classes") if key in known}
        if not DATASETS[row.name].canonical:
            found = {}
        cells = [row.label]
        for metric in experiment.metrics:
            pair = (row.paper.get(metric), found.get(metric))
            cells.append(" / ".join(MISSING if x is None else f"{x:,.1f}".removesuffix(".0") for x in pair))
        lines.append([*cells, row.note])
    return [Table("", ("data set", *(f"{metric}, paper / ours" for metric in experiment.metrics), ""), lines)]


GENERATED: dict[str, Callable[[Experiment], list[Table]]] = {"methods": _methods, "datasets": _datasets}
