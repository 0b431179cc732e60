"""What the commands share: the two consoles, the options most of them have, and how they fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from compgcn.data import GraphCollection, KnowledgeGraph
from compgcn.data.arrays import counted

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
    sizes = data.statistics()
    out.print(f"{data.name}: {headline(sizes)}")
    for note in (*data.notes, *remarks, *chance(sizes)):
        out.print(f"  note: {note}")


def chance(n: Mapping[str, int | float]) -> list[str]:
    """What is to be said of a data set of these sizes that has too little to validate links by."""
    if "classes" in n or n["valid"] >= _FEW:
        return []
    if not n["valid"]:
        return ["no validation triples: which epoch is best cannot be told, and the last one is kept"]
    return [f"only {counted(int(n['valid']), 'validation triple')}: which epoch is best is a matter of chance"]


def headline(n: Mapping[str, int | float]) -> str:
    """The sizes of a data set in one line."""
    if "graphs" in n:
        return (
            f"{_several(n, graphs='graph', nodes='node', edges='edge')} "
            f"({n['mean_nodes']:,.1f} and {n['mean_edges']:,.1f} a graph), "
            f"{_several(n, relations='relation', node_labels='node label', classes='class')}"
        )
    sizes = _several(n, entities="entity", relations="relation", triples="triple")
    if "classes" in n:
        labelled = ", ".join(f"{n[f'{split}_labels']:,} {split}" for split in Split)
        return f"{sizes}, {_several(n, classes='class')}, labelled nodes: {labelled}"
    return f"{sizes} ({n['train']:,} train, {n['valid']:,} valid, {n['test']:,} test)"


def _several(n: Mapping[str, int | float], **nouns: str) -> str:
    """Some of the sizes, each with its noun."""
    return ", ".join(counted(int(n[key]), noun) for key, noun in nouns.items())
