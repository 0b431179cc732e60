"""The commands `export` and `report`, which write a run to files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from compgcn.cli.console import Device, Json, RunFolder, out
from compgcn.cli.predict import opened_run


def export(
    run: RunFolder,
    to: Annotated[Path, Option(help="A .parquet, .csv, .tsv, .npy, .w2v or .vec file.", metavar="FILE")],
    form: Annotated[
        str | None,
        Option(
            "--format",
            help="parquet, csv, tsv, npy or word2vec, if not that of the ending; projector is a TensorBoard folder.",
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Write vectors with their ids and names.

    These are the vectors of all entities and relations, of all nodes of a node classification, or of all graphs of a
    graph classification. A model conditioned on the query has vectors of relations only.

    Example: compgcn export runs/world-compgcn-distmult-0 --to embeddings.parquet
    """
    from compgcn.train.storage import settled

    settled(to)  # refuses a place that cannot be written to before the encoder runs
    opened = opened_run(run, device)
    rows = opened.export(to, form)
    out.print(f"{rows:,} vectors written to {to}")
    if opened.config.encoder.name == "conditional":
        out.print("these are vectors of relations: a model conditioned on the query gives no entity a vector")


def report(
    run: RunFolder,
    to: Annotated[Path | None, Option(help="By default report.html in the run folder.", metavar="FILE")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Write a run as one HTML page: curves, metrics and examples.

    Example: compgcn report runs/world-compgcn-distmult-0 --to world.html
    """
    from compgcn.run.report import check_page, write_page

    if to is not None:
        check_page(to)
    written = write_page(opened_run(run, device), to)
    if as_json:
        out.print_json(data=[str(written)])
    else:
        out.print(f"written: {written}")
