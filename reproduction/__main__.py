"""Commands of the reproduction: `python -m reproduction --help`, in a checkout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer

from compgcn.cli.console import Device, Settings, err, fail, out, plain_table
from compgcn.config import PATHS, Config, configure, parse_setting
from compgcn.data import KnowledgeGraph, find
from compgcn.errors import InputError, unknown
from compgcn.run.build import find_device
from compgcn.run.run import open_run
from compgcn.train.loop import Interrupted
from compgcn.train.storage import reason
from reproduction import RESULTS, ROOT, bench, large, measure
from reproduction.blocks import write_blocks
from reproduction.experiment import Job, chosen, experiments, jobs_of
from reproduction.pages import write_all, write_one
from reproduction.tables import Board
from reproduction.training import is_done, train_job

BENCHES = ("kernels", "step", "evaluate", "conditional", "costs", "large")
MEASURES = (*measure.OF_RUNS, "unseen", "reading", "serving", "plan", "search")

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def reproduction() -> None:
    """Reproduce the paper: train its tables, report the results beside the paper's, and measure speed.

    Example: python -m reproduction train node-classification --row mutag-compgcn-sub --seeds 1 --smoke
    """


@app.command("list")
def list_experiments() -> None:
    """List the experiments and their rows.

    Example: python -m reproduction list
    """
    table = plain_table("experiment", "title", "rows>", "trained>", "seeds>")
    for name, one in experiments().items():
        trained = sum(row.settings is not None for row in one.rows)
        table.add_row(name, one.title, str(len(one.rows)), str(trained), str(one.seeds))
    out.print(table)


@app.command()
def train(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Experiments, by name or .toml file.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Train every experiment.")] = False,
    row: Annotated[list[str] | None, typer.Option(help="Train only this row; may be repeated.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, from 0 on.", min=1)] = None,
    jobs: Annotated[int, typer.Option(help="Number of rows to train at the same time.", min=1)] = 1,
    smoke: Annotated[bool, typer.Option("--smoke", help="Train small models on a small embedded graph.")] = False,
    results: Annotated[Path | None, typer.Option(help="Folder of results.", metavar="FOLDER")] = None,
    device: Device = "auto",
) -> None:
    """Train rows of the paper's tables. Rows with a result are skipped; a stopped row resumes.

    Example: python -m reproduction train encoders --row distmult-none --row distmult-compgcn-mult --smoke
    """
    if bool(names) == everything:
        raise InputError(f"name experiments or say --all; the experiments are {', '.join(experiments())}")
    wanted = jobs_of(list(experiments(names or []).values()), row or [], seeds)
    runs = Path("runs") / "smoke" if smoke else Path("runs")
    folder = results or (runs / "results" if smoke else RESULTS)
    waiting = [job for job in wanted if not is_done(job, folder, smoke=smoke)]
    out.print(f"{len(wanted)} rows and seeds, {len(wanted) - len(waiting)} of them done already")
    beside = max(0, min(jobs, len(waiting)) - 1)
    one = partial(train_job, folder=folder, runs=runs, smoke=smoke, device=device, beside=beside)
    failed = []
    try:
        for job, finish in _trained(waiting, one, jobs):
            name = f"{job.experiment.name}/{job.name}"
            try:
                finish()
                out.print(f"done: {name}")
            except Interrupted:
                raise
            except Exception as error:  # the other rows are trained all the same
                kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
                failed.append(f"{name}: {kind}{reason(error)}")
    except (Interrupted, KeyboardInterrupt):
        err.print(f"stopped; the same command resumes ({runs})")
        raise SystemExit(130) from None
    if failed:
        raise InputError(f"{len(failed)} of {len(wanted)} rows failed; the first is {failed[0]}")


def _trained(
    waiting: Sequence[Job], one: Callable[[Job], None], number: int
) -> Iterator[tuple[Job, Callable[[], object]]]:
    """Yield every row with the call that trains it, or that raises what went wrong in its process."""
    if number == 1:
        yield from ((job, partial(one, job)) for job in waiting)
        return
    # A fork would share what torch and CUDA hold; a process for each row measures its peak memory.
    with ProcessPoolExecutor(number, get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = {pool.submit(one, job): job for job in waiting}
        try:
            yield from ((futures[future], future.result) for future in as_completed(futures))
        finally:
            pool.shutdown(cancel_futures=True)


@app.command()
def report(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="An experiment.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every experiment, and the page of all of them.")] = False,
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of results.")] = RESULTS,
) -> None:
    """Write the paper's numbers beside ours: report.md, report.html and figure.svg in the folder of results.

    Example: python -m reproduction report node-classification
    """
    if (name is None) != everything:
        raise InputError("name an experiment or say --all")
    if not results.is_dir():
        raise InputError(f"there is no folder of results '{results}'; name another with --results")
    board = Board(results, experiments())
    for path in write_all(board) if name is None else write_one(board, *experiments([name]).values()):
        out.print(f"written: {path}")


@app.command()
def tables() -> None:
    """Rewrite the generated tables of README.md and docs/ from the committed results and benchmarks.

    Example: python -m reproduction tables
    """
    for path in write_blocks(ROOT):
        out.print(f"written: {path}")


@app.command("bench")
def run_bench(
    what: Annotated[str, typer.Argument(metavar="|".join(BENCHES), help="The benchmark.")],
    data: Annotated[str, typer.Option(help="Name of a data set, or a file of triples.")] = "fb15k-237",
    row: Annotated[list[str] | None, typer.Option(help="For costs: only this row; may be repeated.")] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="For costs: compile every step first.")] = False,
    scaling: Annotated[bool, typer.Option(help="For kernels: also measure graphs of growing size.")] = True,
    size: Annotated[
        list[str] | None, typer.Option(help="For large: TRIPLES:ENTITIES:RELATIONS of a synthetic graph.")
    ] = None,
    recipe: Annotated[bool, typer.Option("--recipe", help="For large: train a model to its end instead.")] = False,
    peer: Annotated[bool, typer.Option("--pykeen", help="For large: also measure PyKEEN's DistMult.")] = False,
    to: Annotated[Path | None, typer.Option(help="For large: a file for the report, while it grows.")] = None,
    settings: Settings = None,
    device: Device = "auto",
) -> None:
    """Measure speed and memory beside the per-edge definition and PyKEEN, and print the report as JSON.

    Example: python -m reproduction bench step --data world --set batch_size=64
    """
    if what not in BENCHES:
        raise unknown("benchmark", what, BENCHES, listed=len(BENCHES))
    place = find_device(device)
    if what == "large":
        sizes = [large.sizes_of(text) for text in size or large.SIZES]
        found = large.bench_large(sizes, place, to, err.print, recipe=recipe, peer=peer)
    else:
        given = {"data.source": data, **dict(map(parse_setting, settings or []))}
        graph = find(configure(Config(), given).data)
        if not isinstance(graph, KnowledgeGraph) or graph.labels is not None:
            raise InputError(f"'{data}' is for classification; benchmarks need link prediction, as in fb15k-237")
        given = {PATHS.get(name) or name: value for name, value in given.items()}
        if what == "kernels":
            found = bench.bench_kernels(graph, place, scaling, err.print)
        elif what == "costs":
            (table,) = experiments(["encoders"]).values()
            rows = [(one, {**chosen(table, one), **given}) for one in (map(table.row, row) if row else table.rows)]
            found = bench.bench_costs(graph, place, rows, compiled, err.print)
        else:
            found = bench.BY_SETTINGS[what](graph, place, given, err.print)
    out.print(json.dumps(found, indent=1))


@app.command("measure")
def run_measure(
    what: Annotated[str, typer.Argument(metavar="|".join(MEASURES), help="The measurement.")],
    data: Annotated[str, typer.Option(help="Name of a data set; for reading, a file; for plan, a size.")] = "world",
    run: Annotated[Path | None, typer.Option(help="Measure this run folder, and print the report as JSON.")] = None,
    seeds: Annotated[int, typer.Option(help="For unseen: number of seeds.")] = 3,
    seconds: Annotated[float, typer.Option(help="For serving and search: length.")] = 60,
    model: Annotated[str | None, typer.Option(help="A whole model to train in place of the recommended one.")] = None,
    device: Device = "auto",
) -> None:
    """Measure the answers of a model trained on a data set, or the speed of reading and serving.

    Example: python -m reproduction measure calibration --data world
    """
    if what not in MEASURES:
        raise unknown("measurement", what, MEASURES, listed=len(MEASURES))
    if run is not None:
        if what not in measure.OF_RUNS:
            raise InputError(f"'{what}' is no measurement of a run; choose among {', '.join(measure.OF_RUNS)}")
        out.print_json(data=measure.OF_RUNS[what](open_run(run, device)))
        return
    if what == "reading":
        written = measure.reading(Path(data))
    elif what == "serving":
        written = measure.serving(data, seconds)
    elif what == "plan":
        written = measure.planned(data, model)
    elif what == "search":
        written = measure.search(data, seconds, device)
    else:
        written = measure.measure(what, data, device, seeds, model)
    out.print(f"written: {written}")


def main() -> None:
    """Run a command; bad input or a failed write is one sentence on stderr and exit code 1."""
    try:
        app()
    except (InputError, OSError) as error:
        fail(str(error))


if __name__ == "__main__":
    main()
