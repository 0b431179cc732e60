"""The commands `reproduce` and `report`."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from compgcn.cli.console import Device, Json, Settings, err, out, plain_table
from compgcn.cli.predict import opened_run
from compgcn.cli.train import stop_requests
from compgcn.config import PATHS, Config, configure, parse_setting
from compgcn.data import KnowledgeGraph, find
from compgcn.errors import InputError, unknown

if TYPE_CHECKING:
    from reproduction.experiment import Experiment, Job


app = typer.Typer(no_args_is_help=True, help="Measure this implementation beside the per-edge definition.")

_EXPERIMENT = "encoders"  # whose rows `bench costs` measures

Data = Annotated[str, typer.Option(help="A data set's name, or a file of triples.")]


@contextmanager
def _saying(*, kept: bool = False) -> Iterator[Callable[[str], None]]:
    """What is being measured, on a line that goes away; with `kept`, on lines that stay where no one is looking."""
    if not err.is_terminal:
        yield err.print if kept else lambda text: None
        return
    with err.status("starting") as status:
        yield lambda text: status.update(text)


def _graph(data: str, settings: list[str] | None, *, links: bool = True) -> tuple[KnowledgeGraph, dict[str, Any]]:
    """The graph, and all settings that were given; with `links`, one for link prediction."""
    given = {"data.source": data, **dict(map(parse_setting, settings or []))}
    graph = find(configure(Config(), given).data)
    if not isinstance(graph, KnowledgeGraph) or (links and graph.labels is not None):
        what = "trains and ranks links, as of fb15k-237 or world" if links else "takes one graph, not a collection"
        raise InputError(f"'{data}' is for classification; this bench {what}")
    return graph, given


def _head(report: dict[str, Any]) -> None:
    environment = report["environment"]
    out.print(f"{report['data']} on {environment['device']}, torch {environment['torch']}, {environment['date']}")


def _figure(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


@app.command("kernels")
def bench_kernels(
    data: Data = "fb15k-237",
    settings: Settings = None,
    scaling: Annotated[bool, typer.Option(help="Also graphs of more and more messages or relations.")] = True,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Time the sum over edges and a layer, and what edge by edge costs.

    Example: compgcn bench kernels --data world --no-scaling
    """
    from compgcn.run.build import find_device
    from reproduction import bench

    with _saying() as say:
        report = bench.bench_kernels(_graph(data, settings)[0], find_device(device), scaling=scaling, say=say)
    if as_json:
        out.print_json(json.dumps(report))
        return
    _head(report)
    out.print(f"copying moves {report['copy_gb_s']:,} GB/s; the plan takes {report['plan_ms']:,} ms, once per graph\n")
    table = plain_table("aggregate, d = 100", "", "ms>", "gathered GB/s>")
    for row in report["aggregate"]:
        table.add_row(row["composition"], row["what"], _figure(row["ms"], 3), _figure(row["gathered_gb_s"], 0))
    out.print(table)
    out.print()
    _show_layers("layer, 100 to 200", [(row["composition"], row) for row in report["layer"]])
    if scaling:
        out.print()
        _show_layers("messages (mult, 100 to 100)", [(f"{row['messages']:,}", row) for row in report["scaling"]])
        out.print()
        rows = [(f"{row['relations']:,}, {row['encoder']}", row) for row in report["relations"]]
        _show_layers("relations (16 to 16)", rows)


def _show_layers(title: str, rows: list[tuple[str, dict[str, Any]]]) -> None:
    table = plain_table(title, "ms>", "MiB>", "per edge, ms>", "MiB>", "faster>")
    for label, row in rows:
        theirs = row["per_edge"] or {"ms": None, "mib": None}
        faster = f"{row['times_faster']:.1f}x" if "times_faster" in row else "-"
        figures = (row["ours"]["ms"], row["ours"]["mib"], theirs["ms"], theirs["mib"])
        table.add_row(label, *(_figure(value, 1) for value in figures), faster)
    out.print(table)


@app.command("step")
def bench_step(
    data: Data = "fb15k-237", settings: Settings = None, device: Device = "auto", as_json: Json = False
) -> None:
    """Time a whole training step of the recommended model, for links with the loss and the batches of the paper.

    Example: compgcn bench step --data world --set batch_size=128
    """
    from compgcn.run.build import find_device
    from reproduction import bench

    graph, given = _graph(data, settings, links=False)
    with _saying() as say:
        report = bench.bench_step(graph, find_device(device), given, say=say)
    if as_json:
        out.print_json(json.dumps(report))
        return
    _head(report)
    out.print(f"{report['parameters']:,} parameters, batches of {report['batch']}")
    if "floor_ms" in report:
        out.print(f"moving what must move takes {report['floor_ms']} ms at {report['copy_gb_s']:,} GB/s\n")
    table = plain_table("training step", "ms>", "MiB>", "times ours>")
    for name, row in report["steps"].items():
        ratio = row["ms"] / report["steps"]["ours"]["ms"]
        table.add_row(name, _figure(row["ms"], 3), _figure(row["mib"], 0), f"{ratio:.1f}")
    out.print(table)


@app.command("evaluate")
def bench_evaluate(
    data: Data = "fb15k-237", settings: Settings = None, device: Device = "auto", as_json: Json = False
) -> None:
    """Time the filtered ranking of a whole test split.

    Example: compgcn bench evaluate --data world
    """
    from compgcn.run.build import find_device
    from reproduction import bench

    graph, given = _graph(data, settings)
    with _saying() as say:
        report = bench.bench_evaluate(graph, find_device(device), given, say=say)
    if as_json:
        out.print_json(json.dumps(report))
        return
    _head(report)
    ours, theirs = report["ours"], report["definition"]
    out.print(
        f"{report['ranks']:,} filtered ranks ({report['queries']:,} distinct queries) in {ours['ms'] / 1000:.3f} s: "
        f"{ours['us_per_rank']} us a rank, against {theirs['us_per_rank']:,} triple by triple"
    )


@app.command("costs")
def bench_costs(
    data: Data = "fb15k-237",
    row: Annotated[list[str] | None, typer.Option(help="Only this row; may be repeated.")] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile every step first, as long runs do: on a GPU some seconds a row.")
    ] = False,
    settings: Settings = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Time, memory and parameters of every scoring function with every encoder, by the settings of `encoders`.

    Example: compgcn bench costs --data world --row distmult-none --row distmult-compgcn-mult
    """
    from compgcn.run.build import find_device
    from reproduction import bench
    from reproduction import experiment as lab

    graph, given = _graph(data, settings)
    table = lab.experiments([_EXPERIMENT])[_EXPERIMENT]
    wanted = [table.row(name) for name in row] if row else table.rows
    given = {PATHS.get(name) or name: value for name, value in given.items()}  # as the rows call them
    rows = [bench.Row(one.name, one.label, {**lab.chosen(table, one), **given}) for one in wanted]
    with _saying(kept=True) as say:
        report = bench.bench_costs(graph, find_device(device), rows, compiled=compiled, say=say)
    if as_json:
        out.print_json(json.dumps(report))
        return
    _head(report)
    _show_costs(report["rows"])


def _show_costs(rows: list[dict[str, Any]]) -> None:
    table = plain_table("row", "step", "ms>", "s an epoch>", "MiB>", "parameters>")
    notes = []
    for row in rows:
        for name, cost in row["steps"].items():
            figures = (_figure(cost["ms"], 3), _figure(cost["seconds_per_epoch"]), _figure(cost["mib"], 0))
            table.add_row(row["row"], name, *figures, _figure(cost.get("parameters", row["parameters"]), 0))
        for name, why in row.get("left_out", {}).items():
            notes.append(f"{row['row']}, {name}: left out, {why}")
    out.print(table)
    for note in notes:
        out.print(note)


RESULTS = Path("results")
_SMOKE = Path("runs") / "smoke"

Show = Callable[["Job | None"], None]  # told of a row that is done, or that time has passed

Trained = tuple["Job", Callable[[], object]]  # a row, and what trains it or raises what came of that

Results = Annotated[Path, typer.Option(help="The folder of results.", metavar="FOLDER")]


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Experiments, by name or .toml file.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every experiment.")] = False,
    row: Annotated[list[str] | None, typer.Option(help="Only this row, or EXPERIMENT/ROW; may be repeated.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="So many seeds, from 0 on; those of the experiment if not given.", min=1)
    ] = None,
    jobs: Annotated[int, typer.Option(help="Rows trained side by side, a process each.", min=1)] = 1,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Small models on a small graph that comes with the package.")
    ] = False,
    to: Annotated[
        Path | None, typer.Option(help="Where results are written.", metavar="FOLDER", show_default="results")
    ] = None,
    run_dir: Annotated[Path, typer.Option(help="Where rows are trained.", metavar="FOLDER")] = Path("runs"),
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train the rows of the paper's tables and figures. What has a result is left alone, what was stopped goes on.

    Example: compgcn reproduce node-classification --row mutag-compgcn --seeds 1 --smoke
    """
    from compgcn.train.loop import Interrupted
    from reproduction import experiment as lab

    if not names and not everything:
        names = list(dict.fromkeys(one.rpartition("/")[0] for one in row or [] if "/" in one))
    _check_asked(names or [], everything)
    found = lab.experiments(names or [])
    _check_rows(found.values(), row or [])
    wanted = lab.jobs(found.values(), row or [], seeds)
    folder, runs = to or (_SMOKE / "results" if smoke else RESULTS), _SMOKE if smoke else run_dir
    waiting = [job for job in wanted if not lab.is_done(job, folder, smoke=smoke)]
    if not as_json:
        out.print(f"{len(wanted)} rows and seeds, {len(wanted) - len(waiting)} of them done already")
    try:
        with stop_requests() as stopped, _live(partial(_table, wanted, folder, runs, smoke), as_json) as show:
            failed = _train(waiting, jobs, (folder, runs, smoke, device), stopped, show)
    except Interrupted:
        err.print(f"stopped; the same command goes on from here ({runs})")
        raise SystemExit(130) from None
    if as_json:
        out.print_json(json.dumps([str(job.file(folder)) for job in wanted if lab.is_done(job, folder, smoke=smoke)]))
    else:
        out.print(_table(wanted, folder, runs, smoke))
        place = "" if folder == RESULTS else f" --results {folder}"
        for name in names or ["--all"]:
            out.print(f"results beside the paper's: compgcn report {name}{place}")
    if failed:
        raise InputError(f"{len(failed)} of {len(wanted)} rows could not be trained; the first is {failed[0]}")


def _train(
    waiting: Sequence[Job], number: int, shared: tuple[Any, ...], stopped: Callable[[], bool], show: Show
) -> list[str]:
    """Train rows, one after another or so many side by side; what went wrong with those that could not be."""
    from compgcn.train.loop import Interrupted
    from reproduction import experiment as lab

    if number == 1:
        folder, runs, smoke, device = shared
        watch: dict[str, Any] = {"notify": _now_and_then(show), "interrupted": stopped}
        one = partial(lab.reproduce, folder=folder, runs=runs, smoke=smoke, device=device, **watch)
        made: Iterator[Trained] = ((job, partial(one, job)) for job in waiting)
    else:
        made = _side_by_side(number, waiting, (*shared, min(number, len(waiting)) - 1), stopped, show)
    failed = []
    for job, finish in made:
        try:
            finish()
            show(job)
        except Interrupted:
            raise
        except Exception as error:  # whatever it is, the other rows are trained all the same
            failed.append(f"{job.experiment.name}/{job.name}: {_sentence(error)}")
    return failed


def _sentence(error: Exception) -> str:
    """What went wrong, in a line; of what was not foreseen, its kind too."""
    first = (str(error).splitlines() or [""])[0]
    return first if isinstance(error, InputError) else f"{type(error).__name__}: {first}"


def _check_asked(names: Sequence[str], everything: bool) -> None:
    """Either some experiments or all of them: days of training are asked for in so many words."""
    from reproduction import experiment as lab

    if bool(names) == everything:
        known = ", ".join(lab.experiments())
        raise InputError(f"name an experiment or say --all (compgcn list experiments tells what they are): {known}")


def _check_rows(found: Iterable[Experiment], rows: Sequence[str]) -> None:
    """Every experiment must have the rows; all that it has are listed where none is alike."""
    from reproduction import experiment as lab

    found = list(found)
    named = [experiment.name for experiment in found]
    for name in rows:
        home = name.rpartition("/")[0]
        if home and home not in named:
            raise InputError(f"the row '{name}' is of an experiment that is not among those named: {', '.join(named)}")
    for experiment in found:
        known = [row.name for row in experiment.rows]
        for name in lab.rows_of(experiment, rows):
            if name not in known:
                raise unknown(f"row of {experiment.name}", name, known, listed=len(known))


def _one(job: Job, folder: Path, runs: Path, smoke: bool, device: str, beside: int, answer: Connection) -> None:
    """What a process does for a row: it answers with what went wrong, or with nothing."""
    from compgcn.train.loop import Interrupted
    from reproduction import experiment as lab

    try:
        with stop_requests() as stopped:
            lab.reproduce(job, folder, runs, smoke=smoke, device=device, beside=beside, interrupted=stopped)
        answer.send("")
    except Interrupted:
        answer.send(None)
    except Exception as error:
        answer.send(_sentence(error))


def _finish(answer: Connection, code: int | None) -> None:
    """Raise what a process that has ended says of its row, or that it can say nothing any more."""
    from compgcn.train.loop import Interrupted

    try:
        failure = answer.recv()
    except EOFError:
        raise InputError(f"its process ended with code {code} before the row was done; -9: out of memory?") from None
    if failure is None:
        raise Interrupted
    if failure:
        raise InputError(failure)


def _side_by_side(
    number: int, waiting: Sequence[Job], shared: tuple[Any, ...], stopped: Callable[[], bool], show: Show
) -> Iterator[Trained]:
    """So many processes, a row each: every row as it ends, with what tells whether it failed."""
    from compgcn.train.loop import Interrupted

    context = multiprocessing.get_context("spawn")  # a fork would share what torch and CUDA hold
    left, running = list(waiting)[::-1], dict[Any, tuple["Job", Connection]]()
    try:
        while left or running:
            while left and len(running) < number:
                job, (answer, end) = left.pop(), context.Pipe(duplex=False)
                process = context.Process(target=_one, args=(job, *shared, end))
                process.start()
                end.close()  # so that only the process holds it, and its death is seen
                running[process] = (job, answer)
            wait([process.sentinel for process in running], timeout=1.0)
            for process in [one for one in running if one.exitcode is not None]:
                job, answer = running.pop(process)
                yield job, partial(_finish, answer, process.exitcode)
            show(None)
            if stopped():
                raise Interrupted
    finally:
        for process in running:
            process.terminate()  # SIGTERM: it writes a checkpoint and stops
        for process in running:
            process.join()


def _table(wanted: Sequence[Job], folder: Path, runs: Path, smoke: bool) -> Table:
    """Every row, and what it reached or where it stands."""
    from reproduction import experiment as lab
    from reproduction.tables import number, read, title

    table = plain_table("experiment", "row", "seed>", "figure>", "seconds>", "")
    for job in wanted:
        metric = job.experiment.metrics[0]
        done = lab.is_done(job, folder, smoke=smoke)
        found = json.loads(job.file(folder).read_text(encoding="utf-8")) if done else None
        value = None if found is None else read(found, job.experiment.split, metric)
        cells = [job.experiment.name, job.row.name, str(job.seed)]
        cells.append("-" if value is None else f"{title(metric)} {number(value, metric)}")
        cells.append("-" if found is None else f"{found['environment']['seconds']:.0f}")
        table.add_row(*cells, "done" if found is not None else _state(runs / job.experiment.name / job.name))
    return table


def _state(run: Path) -> str:
    """Where the training in a run folder stands, by the last of its events."""
    try:
        with (run / "events.jsonl").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4096))
            event = json.loads(file.read().decode(errors="replace").rstrip().rpartition("\n")[2])
    except (OSError, ValueError):  # not begun, or in the middle of a line
        return "waiting"
    part = f"{event['part']}, " if "part" in event else ""
    return f"{part}epoch {event['epoch']}/{event['epochs']}" if "epoch" in event else str(event["event"])


def _now_and_then(show: Show, clock: Callable[[], float] = time.monotonic) -> Callable[[dict[str, Any]], None]:
    """Show the table anew at the end of an epoch, and not more than once in a second."""
    last = 0.0

    def notify(event: dict[str, Any]) -> None:
        nonlocal last
        if event["event"] == "epoch" and clock() - last > 1.0:
            last = clock()
            show(None)

    return notify


@contextmanager
def _live(table: Callable[[], Table], quiet: bool) -> Iterator[Show]:
    """The table as it fills, where someone is looking; a line for each row that is done, where no one is."""
    if quiet or not err.is_terminal:

        def tell(job: Job | None) -> None:
            if job is not None and not quiet:
                err.print(f"done: {job.experiment.name}/{job.name}")

        yield tell
        return
    from rich.live import Live

    with Live(console=err, transient=True, auto_refresh=False) as live:
        yield lambda job: live.update(table(), refresh=True)


def report(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An experiment, or the folder of a run.", show_default=False)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every experiment, and one page of all of them with the paper's claims.")
    ] = False,
    results: Results = RESULTS,
    page: Annotated[
        Path | None, typer.Option(help="Where --all puts that page.", metavar="FILE", show_default="docs/results.md")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Where the page of a run is written.", metavar="FILE", show_default="report.html in it"),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Set the paper's figures beside ours, or show a run on one page.

    Of an experiment, report.md, report.html and, if matplotlib is there, figure.svg are written to the folder of
    results. A folder that exists is a run: one HTML page with its curves, metrics, calibration and examples.

    Example: compgcn report node-classification
    """
    if (name is None) != everything:
        raise InputError("name an experiment or the folder of a run, or say --all")
    of_run = name is not None and Path(name).is_dir()
    if to is not None and not of_run:
        raise InputError(f"--to is where the page of a run is written, and there is no folder '{name or ''}'")
    written = [_page_of_run(Path(name or ""), to, device)] if of_run else _reports(name, results, page)
    if as_json:
        out.print_json(json.dumps([str(path) for path in written]))
        return
    if name is not None and not of_run:
        out.print(written[0].read_text(encoding="utf-8"))
    for path in written:
        out.print(f"written: {path}")


def _page_of_run(folder: Path, to: Path | None, device: str) -> Path:
    from compgcn.run.report import check_page, write_page

    if to is not None:
        check_page(to)
    return write_page(opened_run(folder, device), to)


def _reports(name: str | None, results: Path, page: Path | None) -> list[Path]:
    """Of one experiment, or of all."""
    from reproduction import experiment as lab
    from reproduction.pages import write_all, write_one
    from reproduction.tables import Board

    if name is not None and not name.endswith(".toml"):
        try:
            known = list(lab.known())
        except InputError:
            known = []
        if name not in known:
            listed = f"; the experiments are {', '.join(known)}" if known else ""
            raise InputError(f"'{name}' is neither the folder of a run nor an experiment{listed}")
    if not results.is_dir():
        raise InputError(f"there is no folder of results '{results}'; name the one that reproduce wrote with --results")
    board = Board(results, lab.experiments())
    if name is None:
        return write_all(board, page or Path("docs") / "results.md")
    return write_one(board, lab.experiments([name])[name if not name.endswith(".toml") else Path(name).stem])
