"""What the commands share: the two consoles, the options most of them have, and how they fail."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from compgcn.data import KnowledgeGraph

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


def fail(message: str) -> NoReturn:
    """One sentence on stderr, exit code 1."""
    err.print(f"error: {message}")
    raise SystemExit(1)


def describe(graph: KnowledgeGraph) -> None:
    """The statistics of a graph, and what was noticed while reading it."""
    n = graph.statistics()
    out.print(
        f"{graph.name}: {n['entities']:,} entities, {n['relations']:,} relations, {n['triples']:,} triples "
        f"({n['train']:,} train, {n['valid']:,} valid, {n['test']:,} test)"
    )
    few = len(graph.valid) < _FEW
    warning = f"only {len(graph.valid)} validation triples: which epoch is best is a matter of chance" if few else ""
    for note in (*graph.notes, *filter(None, [warning])):
        out.print(f"  note: {note}")
