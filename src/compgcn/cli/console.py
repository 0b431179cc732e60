"""What the commands share: the two consoles, the options most of them have, and how they fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from compgcn.data import GraphCollection, KnowledgeGraph

# Text is shown as it is: [red] and :cat: are ids like any other.
out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)

_FEW = 30  # validation triples below which a metric is mostly noise


class Split(StrEnum):
    """The splits of a data set."""

    train = "train"
    valid = "valid"
    test = "test"


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto for the best there is.")]


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as columns=[0,2,3]; may be repeated."),
]


def fail(message: str) -> NoReturn:
    """One sentence on stderr, exit code 1."""
    err.print(f"error: {message}")
    raise SystemExit(1)


def describe(data: KnowledgeGraph | GraphCollection, remarks: Sequence[str] = ()) -> None:
    """The statistics of a data set, and what was noticed while reading it or of what is to be done with it."""
    out.print(f"{data.name}: {headline(data.statistics())}")
    for note in (*data.notes, *remarks):
        out.print(f"  note: {note}")
    if isinstance(data, KnowledgeGraph) and data.labels is None and len(data.valid) < _FEW:
        what = f"only {len(data.valid)} validation triples"
        out.print(f"  note: {what}: which epoch is best is a matter of chance")


def headline(n: Mapping[str, int | float]) -> str:
    """The sizes of a data set in one line."""
    if "graphs" in n:
        return (
            f"{n['graphs']:,} graphs, {n['nodes']:,} nodes, {n['edges']:,} edges "
            f"({n['mean_nodes']:,.1f} and {n['mean_edges']:,.1f} a graph), {n['relations']:,} relations, "
            f"{n['node_labels']:,} node labels, {n['classes']:,} classes"
        )
    sizes = f"{n['entities']:,} entities, {n['relations']:,} relations, {n['triples']:,} triples"
    if "classes" in n:
        labelled = ", ".join(f"{n[f'{split}_labels']:,} {split}" for split in Split)
        return f"{sizes}, {n['classes']:,} classes, labelled nodes: {labelled}"
    return f"{sizes} ({n['train']:,} train, {n['valid']:,} valid, {n['test']:,} test)"
