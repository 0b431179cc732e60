"""The command `report`: a run on one HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from compgcn.cli.console import Device, Json, out
from compgcn.cli.predict import opened_run


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False)],
    to: Annotated[
        Path | None,
        typer.Option(help="Where the page is written.", metavar="FILE", show_default="report.html in it"),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Write a run as one HTML page: its curves, metrics, calibration and examples.

    Example: compgcn report runs/world-compgcn-distmult-0 --to world.html
    """
    from compgcn.run.report import check_page, write_page

    if to is not None:
        check_page(to)
    written = write_page(opened_run(run, device), to)
    if as_json:
        out.print_json(json.dumps([str(written)]))
    else:
        out.print(f"written: {written}")
