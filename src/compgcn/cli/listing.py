"""The command `list`: everything that can be chosen by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from compgcn.cli.console import Json, out, plain_table
from compgcn.data import DATASETS
from compgcn.errors import unknown
from compgcn.train.recipes import MODELS

KINDS = ("tasks", "models", "encoders", "compositions", "decoders", "samplers", "baselines", "datasets")


class Entry(NamedTuple):
    """A row of a registry, in words."""

    name: str
    description: str
    reference: str


def list_all(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """List everything there is by name, and what it is.

    What comes from a paper is shown with it.

    Example: compgcn list decoders
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    found = {name: rows for name, rows in entries().items() if kind in (None, name)}
    if as_json:
        out.print_json(json.dumps({name: [row._asdict() for row in rows] for name, rows in found.items()}))
        return
    for number, (title, rows) in enumerate(found.items()):
        if kind is None:
            out.print("\n" * bool(number) + title, style="bold")
        table = plain_table("name", "description")
        table.show_header, table.columns[0].no_wrap = False, True
        for row in rows:
            reference = f"\n{row.reference}" if row.reference else ""
            table.add_row(row.name, Text.assemble(row.description, (reference, "dim")))
        out.print(table)


def entries() -> dict[str, list[Entry]]:
    """The rows of every registry, by kind."""
    from compgcn.baselines import BASELINES
    from compgcn.nn.compose import COMPOSITIONS
    from compgcn.nn.decoders import DECODERS
    from compgcn.nn.encoder import PRESETS
    from compgcn.run.build import LEARNED, TASKS
    from compgcn.tasks.sampling import SAMPLERS

    phi: dict[str, Any] = {**COMPOSITIONS, **LEARNED}
    found = {
        "compositions": [Entry(name, row.origin, row.reference) for name, row in phi.items()],
        "encoders": [Entry(name, row.origin, row.reference) for name, row in PRESETS.items()],
        "datasets": [Entry(name, row.description, row.citation) for name, row in DATASETS.items()],
    }
    described: dict[str, Mapping[str, Any]] = {
        "tasks": TASKS,
        "models": MODELS,
        "decoders": DECODERS,
        "samplers": SAMPLERS,
        "baselines": BASELINES,
    }
    for kind, table in described.items():
        found[kind] = [Entry(name, row.description, row.reference) for name, row in table.items()]
    return {kind: found[kind] for kind in KINDS}
