"""The command `train`."""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compgcn.cli.console import Json, add_metrics, describe, doubts, err, metrics_table, out
from compgcn.cli.predict import show_result
from compgcn.config import PATHS, Config, Space, as_list, candidates, configure, parse_setting, parse_space, read_search
from compgcn.data import GraphCollection, KnowledgeGraph, find
from compgcn.errors import InputError
from compgcn.train.recipes import model as find_model

if TYPE_CHECKING:
    from compgcn.run import Run


_FILES = ("valid", "test", "names", "columns", "labels")  # options that are settings of [data]
_MMAP_MAX, _TRIM_THRESHOLD = -4, -1  # parameters of mallopt, as <malloc.h> numbers them
_QUIET = 10.0  # seconds between two lines about training where there is no terminal


def train(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A data set's name, a file of triples, a folder of train, valid and test files or of graphs,"
            " or a TOML of settings.",
        ),
    ],
    valid: Annotated[Path | None, typer.Option(help="Validation triples; DATA is then the training triples.")] = None,
    test: Annotated[Path | None, typer.Option(help="Test triples.")] = None,
    names: Annotated[Path | None, typer.Option(help="A table of ids and readable names.")] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Subject, relation and object in a table: names or positions from 0 on, with commas between."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="A table of nodes and their classes, and perhaps their split; or one of graphs and theirs."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="link-prediction, node-classification or graph-classification; by default what the data are for."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A whole system, such as compgcn, sacn or complex-n3-rp; options go over it."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="compgcn, gcn, dgcn, rgcn, rgcn-basis, rgcn-block, wgcn, vrgcn, released or none."),
    ] = None,
    composition: Annotated[
        str | None, typer.Option(help="sub, mult, corr, add, conv, rotate, cmul, copy, ntn or conve.")
    ] = None,
    decoder: Annotated[
        str | None,
        typer.Option(help="transe, distmult, complex, hole, rotate, conve, convkb, conv-transe, hyper or convr."),
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="uniform or kbgan: where negatives come from.")] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Train a baseline in place of an encoder: "
            "feat, wl, rdf2vec or facts for nodes; pachysan, dgcnn or gin for graphs."
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="refit or holdout for nodes, paper or nested for graphs: how to choose and report."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="At most so many passes over the training triples.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of every random number.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or auto for the best there is.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any other setting, such as training.lr=0.001; may be repeated."
        ),
    ] = None,
    search: Annotated[
        Path | None,
        typer.Option(
            help="A TOML with a table [search]: what a nested run chooses among in each fold.", metavar="FILE"
        ),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            help="The run folder; runs/<data>-<encoder>-<decoder>-<seed> if not given, runs/<data>-<model>-<seed>"
            " with --model.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove the run that is in the run folder, and train anew.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model on a graph. The same command again resumes a run that was stopped.

    Example: compgcn train my-triples.tsv --decoder distmult --epochs 100 --set training.lr=0.01
    """
    options = {
        "valid": valid,
        "test": test,
        "names": names,
        "columns": columns,
        "labels": labels,
        "task": task,
        "baseline": baseline,
        "protocol": protocol,
        "encoder": encoder,
        "composition": composition,
        "decoder": decoder,
        "sampler": sampler,
        "epochs": epochs,
        "seed": seed,
        "device": device,
    }
    asked, space = asked_for(data, options, settings, search)
    if space is not None:
        asked["classifier.candidates"] = candidates(space)
    found = read_data(asked, model)
    from compgcn.run import train as train_run
    from compgcn.run.resolve import resolve  # torch comes with it: what is wrong is said before
    from compgcn.train.folder import Folder, default_folder
    from compgcn.train.loop import Interrupted

    config, notes, large = resolve(asked, found, model)
    folder = run_dir or default_folder(config, model)
    if not as_json:
        describe(found, [*_of_layers(config), *notes])
    if large:
        keep_memory()
    finished = Folder(folder).is_calibrated and not overwrite
    begun = any((folder / "checkpoint").glob("[!.]*")) and not as_json and not overwrite
    try:
        with stop_requests() as stopped, _progress_line(quiet=as_json) as notify:
            tell = _resuming(folder, notify) if begun else notify
            run = train_run(config, found, folder, tell, stopped, overwrite)
    except Interrupted:
        err.print(f"stopped; the same command goes on from here ({folder})")
        raise SystemExit(130) from None
    if as_json:
        out.print_json(json.dumps({"run": str(run.path), **run.metrics}))
        return
    if finished:
        out.print(f"{run.path} is already finished; nothing to train")
    if run.config.classifier.protocol is None:
        _show_links(run, model)
    else:
        show_result(run)


def _resuming(folder: Path, notify: Callable[[dict[str, Any]], None] | None) -> Callable[[dict[str, Any]], None]:
    """Say that a run goes on, and from where, once it does: until then it may still be refused."""
    said = False

    def tell(event: dict[str, Any]) -> None:
        nonlocal said
        if not said and ("epoch" in event or event["event"] == "progress"):
            said = True
            part = f"{event['part']}, " if "part" in event else ""
            where = f"in {part}epoch {event['epoch']}" if "epoch" in event else event["what"]
            out.print(f"resuming the run in {folder}, {where}")
        if notify is not None:
            notify(event)

    return tell


def asked_for(
    data: str, options: Mapping[str, Any], settings: Sequence[str] | None, search: Path | None
) -> tuple[dict[str, Any], Space | None]:
    """Every setting that a command line asks for, by name, and what it asks to search, if anything.

    Args:
        data: the argument DATA.
        options: by the name of their setting; None where it is not given.
        settings: those of --set.
        search: a TOML with a table [search]; DATA may have one too where that is asked for.
    """
    given = {name: value for name, value in options.items() if value is not None}
    given = {f"data.{name}" if name in _FILES else name: value for name, value in given.items()}
    given = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    if "data.columns" in given:
        given["data.columns"] = as_list("data.columns", given["data.columns"])
    taken = {PATHS[name] for name in given}
    for name, value in map(parse_setting, settings or []):
        if PATHS.get(name) in taken:
            raise InputError(f"'{name}' is given twice; give it as an option or with --set, not both")
        given[name] = value
    is_file = data.endswith(".toml")
    base, table = read_search(Path(data)) if is_file else ({"data.source": data}, {})
    if search is not None:
        more, table = read_search(search)
        if more:
            raise InputError(f"{search}: only a table [search] is read from this file, not '{next(iter(more))}'")
    configure(Config(), base, f"{data}: " if is_file else "")  # what is wrong in a file names the file
    if not base.get("data.source"):
        raise InputError(f"{data} does not say what to train on; set data.source to a data set's name or a file")
    if not table and search is None:
        return base | given, None
    return base | given, parse_space(table, f"{search or data}: ")


def read_data(asked: Mapping[str, Any], model: str | None = None) -> KnowledgeGraph | GraphCollection:
    """The data that some settings name; a model that there is none of is refused before they are read."""
    if model is not None:
        find_model(model)
    config = configure(Config(), asked)
    return find(config.data, config.task)


def keep_memory() -> bool:
    """Have the C library keep what is freed for what is allocated next; whether it does.

    It gives arrays of more than 32 MiB back to the system at once, which hands them out again page by page, each made
    zero: a third of the time of a step over a large graph.
    """
    if sys.platform != "linux":
        return False
    settings = (_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and all(mallopt(*setting) for setting in settings)


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM end the step under way first; a second Ctrl-C ends at once."""
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _of_layers(config: Config) -> list[str]:
    """That an encoder does nothing, where that is so."""
    alone = len(config.encoder.dims) == 1 and config.encoder.name != "none" and config.classifier.baseline is None
    return (
        [f"the encoder '{config.encoder.name}' has no layer: encoder.dims takes two numbers for one"] if alone else []
    )


@contextmanager
def _progress_line(quiet: bool) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """A live line with epoch, loss, validation metric, best and time left; into a file, a line now and then."""
    if quiet:
        yield None
        return
    if not err.is_terminal:
        yield _in_lines()
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("epoch {task.fields[epoch]}"), BarColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, console=err, transient=True) as progress:
        bar = progress.add_task("", total=None, epoch="-", text="preparing")
        latest, left = dict[str, float](), _time_left()

        def notify(event: dict[str, Any]) -> None:
            if event["event"] == "evaluate":
                progress.update(bar, text="evaluating")
            if event["event"] == "progress" and event["done"] < event["total"]:  # what is over at once would flicker
                progress.update(bar, text=_counted(event) + left(event))
            if "epoch" not in event:
                return
            latest.update(event.get("valid") or {})
            epoch = f"{event['epoch']}/{event['epochs']}"
            text = _standing(event, latest) + left(event)
            progress.update(bar, completed=event["step"], total=event["steps"], epoch=epoch, text=text)

        yield notify


def _standing(event: Mapping[str, Any], latest: Mapping[str, float]) -> str:
    """The loss, and the latest and the best validation figure, as an event of training has them."""
    goal, best = event["goal"], event["best"]
    text = f"{event['part']}  " if "part" in event else ""
    if event["event"] == "step":
        each = event["steps"] // event["epochs"]
        text += f"step {event['step'] - (event['epoch'] - 1) * each}/{each}  "
    text += f"loss {event['loss']:.4f}"
    if goal in latest and best is not None:
        text += f"  valid {goal} {latest[goal]:.4f}  best {best:.4f} (epoch {event['best_epoch']})"
    return text


def _counted(event: Mapping[str, Any]) -> str:
    return f"{event['what']} {event['done']:,} of {event['total']:,}"


def _time_left(clock: Callable[[], float] = time.monotonic) -> Callable[[Mapping[str, Any]], str]:
    """Tells of each event how long what it is about takes yet, at the pace so far: the epochs, or an evaluation."""
    what, before, begun = "", 0, 0.0  # the evaluation under way, which does not say when it began

    def left(event: Mapping[str, Any]) -> str:
        nonlocal what, before, begun
        if event["event"] != "progress":
            what = ""
            done, ahead, seconds = event["step"], event["steps"] - event["step"], event["seconds"]
        else:
            if event["what"] != what:
                what, before, begun = event["what"], event["done"], clock()
            done, ahead, seconds = event["done"] - before, event["total"] - event["done"], clock() - begun
        if not (seconds and done and ahead):
            return ""
        of = f" of {event['part']}" if "part" in event else ""
        return f"  about {spell(seconds * ahead / done)} left{of}"

    return left


def spell(seconds: float) -> str:
    """A time as one says it: 40 s, 14 min, 2.5 h, 3.1 days."""
    if seconds < 59.5:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 89.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _in_lines(clock: Callable[[], float] = time.monotonic) -> Callable[[dict[str, Any]], None]:
    """Tells how far training is once in `_QUIET` seconds, a line each time; short ones end before they say anything."""
    told, latest, left = clock(), dict[str, float](), _time_left(clock)

    def notify(event: dict[str, Any]) -> None:
        nonlocal told
        latest.update(event.get("valid") or {})
        text = ""
        if event["event"] == "progress":
            text = _counted(event) + left(event)
        elif "epoch" in event:
            text = f"epoch {event['epoch']}/{event['epochs']}  {_standing(event, latest)}{left(event)}"
        if text and clock() - told >= _QUIET:
            told = clock()
            err.print(text)

    return notify


def _show_links(run: Run, model: str | None) -> None:
    """The test metrics beside those of the popularity baseline."""
    if not run.metrics["test"]:
        out.print(f"the test split is empty; best epoch {run.metrics['best_epoch']}, run folder {run.path}")
        return
    table = metrics_table(f"test, filtered, {run.metrics['ties']} ranks")
    add_metrics(table, model or f"{run.config.encoder.name} + {run.config.decoder.name}", run.metrics["test"])
    add_metrics(table, "popularity baseline", run.metrics.get("popularity", {}).get("test", {}))
    out.print(table)
    for doubt in doubts(run.metrics):
        out.print(doubt)
    out.print(f"best epoch {run.metrics['best_epoch']}, run folder {run.path}")
