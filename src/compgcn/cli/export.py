"""The commands that hand out the vectors of a trained model: `export` and `similar`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from compgcn.cli.console import Device, Json, RunFolder, out, plain_table, printable
from compgcn.cli.predict import Facts, opened_run
from compgcn.errors import InputError


class Form(StrEnum):
    """How `export` can write vectors."""

    parquet = "parquet"
    csv = "csv"
    tsv = "tsv"
    npy = "npy"
    word2vec = "word2vec"
    projector = "projector"


def export(
    run: RunFolder,
    to: Annotated[
        Path,
        typer.Option(
            help="A .parquet, .csv, .tsv, .npy, .w2v or .vec file; or any, with --format.",
            metavar="FILE",
            show_default=False,
        ),
    ],
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help="What to write, if not what the name ends in; 'projector' writes a folder for TensorBoard.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Write vectors with their ids and names.

    A run that predicts links writes those of all entities and relations, one that classifies nodes those of all nodes,
    one that classifies graphs those of all graphs.

    Example: compgcn export runs/world-compgcn-distmult-0 --to embeddings.parquet
    """
    from compgcn.train.storage import settled  # torch comes with it

    settled(to)  # what cannot be written to is said before the vectors are made
    rows = opened_run(run, device).export(to, form.value if form else None)
    out.print(f"{rows:,} vectors written to {to}")


def similar(
    run: RunFolder,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="An entity, or a graph, by id or name.", show_default=False)
    ],
    top: Annotated[int, typer.Option(help="How many neighbours.", min=1)] = 10,
    relation: Annotated[bool, typer.Option("--relation", help="NAME is a relation; find other relations.")] = False,
    facts: Facts = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """The nearest neighbours of an entity or a relation.

    By the cosine of the vectors that the encoder makes.

    Example: compgcn similar runs/world-compgcn-distmult-0 France --top 5
    """
    opened = opened_run(run, device, facts)
    try:
        found = opened.similar(name, top, "relation" if relation else "entity")
    except InputError:
        relations = opened.data.relations
        if not relation and name in (*relations.ids, *relations.names):
            raise InputError(f"'{name}' is a relation; add --relation") from None
        raise
    if as_json:
        out.print_json(json.dumps([{"rank": rank, **one._asdict()} for rank, one in enumerate(found, 1)]))
        return
    with_ids = any(one.entity != one.name for one in found)
    table = plain_table("rank>", "name", *(["id"] if with_ids else []), "similarity>")
    for rank, one in enumerate(found, 1):
        ids = [printable(one.entity)] if with_ids else []
        table.add_row(str(rank), printable(one.name), *ids, f"{one.similarity:.4f}")
    out.print(table)
