"""The commands `export`, `report` and `serve`, which take a run elsewhere: to files and to other programs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from compgcn.cli.answers import opened_run
from compgcn.cli.console import Device, Json, RunFolder, err, out, show_json
from compgcn.errors import InputError


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
    opened = opened_run(run, device, to=to)
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
    written = write_page(opened_run(run, device, to=to), to)
    if as_json:
        show_json([str(written)])
    else:
        out.print(f"written: {written}")


def serve(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="Run folders.")],
    host: Annotated[str, Option(help="The address; one that others reach needs a key.")] = "127.0.0.1",
    port: Annotated[int, Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 8000,
    api_key_file: Annotated[Path | None, Option(help="File with the clients' key; else COMPGCN_API_KEY.")] = None,
    no_key: Annotated[bool, Option("--no-key", help="Answer everyone who can reach --host.")] = False,
    batch: Annotated[int, Option(help="The most queries scored together.", min=1)] = 64,
    queue: Annotated[int, Option(help="The most waiting questions; one more is answered 503.", min=1)] = 512,
    timeout: Annotated[float, Option(help="Seconds for an answer; then the server answers 504.", min=0.1)] = 30.0,
    device: Device = "auto",
) -> None:
    """Serve trained models: JSON over HTTP, and a page.

    Only this machine can ask, unless --host says otherwise.

    Example: compgcn serve runs/world-compgcn-distmult-0 --port 8000
    """
    if not all(map(find_spec, ("fastapi", "uvicorn", "jinja2", "prometheus_client", "plotly"))):
        raise InputError("serve needs more packages: pip install 'compgcn[serve]'")
    from compgcn.serve import server
    from compgcn.serve.middleware import Limits
    from compgcn.serve.models import open_all

    key = server.read_key(api_key_file)
    server.must_be_guarded(host, key, no_key)
    limits = Limits(batch=batch, queue=queue, seconds=timeout, stop_seconds=int(timeout) + 10)
    models = open_all(runs, limits, device)
    for path, model in zip(runs, models.values(), strict=True):
        if not model.run.metrics:
            err.print(f"note: {path} is not finished; its answers are those of its best weights so far")
    at = server.listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    out.print(f"serving {', '.join(models)} at http://{shown}:{at.getsockname()[1]} (Ctrl+C stops)")
    server.build(models, at, limits, key, no_key).run([at])
