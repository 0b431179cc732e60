"""The commands `data list` and `data info`, and the group that `fetch` and `verify` are in too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from compgcn.cli import fetch, overview
from compgcn.cli.console import Json, Settings, Split, out
from compgcn.cli.tables import plain_table
from compgcn.config import Config, as_list, configure, parse_setting
from compgcn.data import DATASETS, GraphCollection, KnowledgeGraph, find, tu, where
from compgcn.data.summary import summarise
from compgcn.errors import InputError
from compgcn.plots.data import draw_summary
from compgcn.plots.figure import check_figure

app = typer.Typer(no_args_is_help=True, help="The data sets known by name.")


@app.command("list")
def data_list(as_json: Json = False) -> None:
    """List the data sets known by name, and where each is: embedded, local, cached, or to fetch.

    Example: compgcn data list
    """
    if as_json:
        rows = [
            {
                "name": row.name,
                "task": row.task,
                "where": where(row),
                "description": row.description,
                "sizes": row.statistics,
            }
            for row in DATASETS.values()
        ]
        out.print_json(json.dumps(rows))
        return
    sizes = "{:<6}{:>9}{:>11}{:>11}  {}"
    table = plain_table("name", sizes.format("task", "nodes", "relations", "edges", "where"))
    table.columns[0].no_wrap = True
    for row in DATASETS.values():
        n = row.statistics
        edges = n.get("edges") or n.get("triples") or sum(n[split.value] for split in Split)
        numbers = (f"{number:,}" for number in (n.get("entities") or n["nodes"], n["relations"], edges))
        line = sizes.format(row.task.partition("-")[0], *numbers, where(row))
        table.add_row(row.name, Text.assemble(line, (f"\n{row.description}", "dim")))
    out.print(table)


@app.command("info")
def data_info(
    name: Annotated[
        str,
        typer.Argument(help="A data set's name, a file of triples, or a folder of files.", show_default=False),
    ],
    plot: Annotated[
        Path | None, typer.Option(help="Draw it: a .png, .pdf or .svg file.", metavar="FILE", show_default=False)
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="graph-classification for a table of graphs.", metavar="TASK", show_default=False),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Subject, relation and object in a table: names or positions from 0 on, with commas between.",
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show what a data set, a file of triples or a folder holds, and what it gives away.

    Example: compgcn data info world --plot world.png
    """
    if plot is not None:
        check_figure(plot)
    given = dict(map(parse_setting, settings or [])) | ({} if task is None else {"task": task})
    if columns is not None:
        given["data.columns"] = as_list("data.columns", columns)
    summary = summarise(_open(name, given))
    row = DATASETS.get(name)
    if plot is not None:
        draw_summary(summary, plot)
    if as_json:
        source = {"licence": row.licence, "citation": row.citation, "published": row.statistics} if row else {}
        paper = dict(getattr(row, "paper", {}))
        out.print_json(json.dumps({**summary.as_dict(), **source, **({"paper": paper} if paper else {})}))
        return
    overview.show(summary, row)
    if plot is not None:
        out.print(f"\nthe figure is {plot}")


def _open(name: str, settings: dict[str, Any]) -> KnowledgeGraph | GraphCollection:
    """A data set by name, a file, a folder in the TU format, or one with the files of three splits."""
    if settings and name not in DATASETS and tu.found(name):
        raise InputError("settings go with files of triples; a folder in the TU format is read as it is")
    config = configure(Config(), {"data.source": name, **settings})
    return find(config.data, config.task)


app.command("fetch")(fetch.data_fetch)
app.command("verify")(fetch.data_verify)
