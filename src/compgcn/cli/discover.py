"""The command that lists what the graph may lack: `discover`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compgcn.cli import console
from compgcn.cli.console import Dataset, Device, Json, RunFolder, calibration_note, discoveries_table, out
from compgcn.cli.predict import opened_run, progress
from compgcn.data.columns import counted

if TYPE_CHECKING:
    from compgcn.run import Discovery, Run


def discover(
    run: RunFolder,
    relation: Annotated[
        str | None, typer.Option(help="Only facts of this relation, by id or name.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option(help="How many facts.", min=1)] = 100,
    per_relation: Annotated[
        int | None, typer.Option(help="At most so many facts of each relation.", min=1, show_default=False)
    ] = None,
    all_heads: Annotated[
        bool,
        typer.Option("--all-heads", help="Ask every entity, not only a relation's heads and those like them."),
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(help="Write them to a .parquet, .csv or .tsv file.", metavar="FILE", show_default=False),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """List the most probable facts that are in no split.

    Asked are the tails of every head that a relation has, and of entities like them that have none yet.

    Example: compgcn discover runs/world-compgcn-distmult-0 --relation borders --top 20
    """
    from compgcn.answers.rows import check_table

    if to is not None:
        check_table(to)
    opened = opened_run(run, device)
    with progress("asking") as notify:
        found = opened.discover(relation, top, per_relation, all_heads=all_heads, notify=notify)
    console.tell(opened)
    _show(found, opened.data, _note(opened), to, as_json)


def _note(run: Run) -> str:
    """What the probabilities are."""
    from compgcn.data import KnowledgeGraph

    note = calibration_note(run, "discoveries")
    if run.calibrated("discoveries"):
        return f"{note}: how often such finds, made without it, stood in it"
    if isinstance(run.data, KnowledgeGraph) and not len(run.data.valid):
        return f"{note}: those of the answers, for there are no validation facts to tell how often one is lacking"
    return f"{note}: those of the answers, times how often such heads of the relation lacked a tail that valid has"


def _show(found: Sequence[Discovery], data: Dataset, note: str, to: Path | None, as_json: bool) -> None:
    """Facts in a file, as JSON or as a table."""
    from compgcn.answers.discover import SCHEMA
    from compgcn.answers.rows import write_rows

    rows = [(rank, *fact) for rank, fact in enumerate(found, 1)]
    if to is not None:
        write_rows(to, SCHEMA, [rows])
    if as_json:
        out.print_json(json.dumps([dict(zip(SCHEMA.names, row, strict=True)) for row in rows]))
    elif to is not None:
        out.print(f"{counted(len(found), 'fact')} written to {to}")
        out.print(note)
    elif found:
        out.print(discoveries_table(found, data, note))
    else:
        out.print("no new facts")
