"""The commands `data list` and `data info`, and the group that `fetch` and `verify` are in too."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from compgcn.cli import fetch
from compgcn.cli.console import Json, Split, describe, out
from compgcn.cli.tables import plain_table, printable
from compgcn.config import Config, configure
from compgcn.data import DATASETS, find, where

app = typer.Typer(no_args_is_help=True, help="The data sets known by name.")


@app.command("list")
def data_list(as_json: Json = False) -> None:
    """List the data sets known by name, and where each is: embedded, local, cached, or to fetch.

    Example: compgcn data list
    """
    if as_json:
        rows = [
            {"name": row.name, "task": row.task, "where": where(row), "description": row.description, **row.statistics}
            for row in DATASETS.values()
        ]
        out.print_json(json.dumps(rows))
        return
    table = plain_table("name", "task", "entities>", "relations>", "triples>", "where", "description")
    for column in table.columns[:-1]:
        column.no_wrap = True
    for row in DATASETS.values():
        n = row.statistics
        total = sum(n[split.value] for split in Split)
        sizes = (f"{n['entities']:,}", f"{n['relations']:,}", f"{total:,}")
        table.add_row(row.name, row.task, *sizes, where(row), row.description)
    out.print(table)


@app.command("info")
def data_info(
    name: Annotated[str, typer.Argument(help="A data set's name, or a file of triples.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show what a data set or a file of triples holds.

    Example: compgcn data info world
    """
    import numpy as np

    graph = find(configure(Config(), {"data.source": name}).data)
    counts = np.bincount(np.concatenate(list(graph.splits.values()))[:, 1], minlength=graph.num_relations)
    order = [int(r) for r in np.argsort(-counts, kind="stable")]
    row = DATASETS.get(name)
    if as_json:
        relations = {graph.relations.ids[r]: int(counts[r]) for r in order}
        source = {"licence": row.licence, "citation": row.citation} if row else {}
        report = {"name": graph.name, **graph.statistics(), "notes": graph.notes, **source, "by_relation": relations}
        out.print_json(json.dumps(report))
        return
    describe(graph)
    if row is not None:
        out.print(f"  {row.description}\n  licence: {row.licence}\n  citation: {row.citation}")
    table = plain_table("relation", "triples>")
    for r in order[:20]:
        table.add_row(printable(graph.relations.names[r]), f"{counts[r]:,}")
    out.print(table)
    if len(order) > 20:
        out.print(f"and {len(order) - 20} more relations")


app.command("fetch")(fetch.data_fetch)
app.command("verify")(fetch.data_verify)
