"""The command `train`, the search behind it, and the options for settings that `plan` and `tune` have too."""

from __future__ import annotations

import ctypes
import inspect
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from rich.console import Group
from typer import Argument, Option

from compgcn.cli.console import (
    Dataset,
    Json,
    Settings,
    describe,
    doubts,
    err,
    out,
    plain_table,
    show_json,
    show_metrics,
    show_table,
    under_torchrun,
)
from compgcn.cli.evaluate import FIGURES, figures
from compgcn.config import (
    PATHS,
    Classifier,
    Config,
    Space,
    as_list,
    candidates,
    configure,
    parse_setting,
    parse_space,
    read_search,
)
from compgcn.data import DATASETS, KnowledgeGraph, find
from compgcn.data.columns import counted
from compgcn.errors import InputError
from compgcn.train.recipes import known_as
from compgcn.train.recipes import model as find_model

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from compgcn.run.run import Run
    from compgcn.run.search import Budget
    from compgcn.train.loop import Event

Line = Callable[[Mapping[str, Any]], "RenderableType"]  # shows an event; "" for nothing new
_QUIET = 10.0  # seconds between two lines about training where there is no terminal
_HEADER = ("candidate", "valid>", "trained>", "seconds>", "")  # of the table of a search


def _listed(annotation: Any) -> str:
    """Return the values of an optional `Literal` in words."""
    *others, last = get_args(get_args(annotation)[0])
    return f"{', '.join(others)} or {last}"


COLUMNS = "Columns of subject, relation and object: names or positions from 0 on, with commas between."

# Options that are settings, by their names in `compgcn.config`.
_SETTINGS: dict[str, tuple[type, str]] = {
    "valid": (Path, "Validation triples; DATA is then the training triples."),
    "test": (Path, "Test triples."),
    "names": (Path, "A table of ids and readable names."),
    "columns": (str, COLUMNS),
    "labels": (Path, "A table of nodes or graphs and their classes, and perhaps their splits."),
    "task": (str, f"{_listed(Config.model_fields['task'].annotation)}; by default the task of the data."),
    "encoder": (str, "The encoder; see compgcn list encoders."),
    "composition": (str, "The composition; see compgcn list compositions."),
    "decoder": (str, "The decoder; see compgcn list decoders."),
    "sampler": (str, "How to draw the negatives: uniform, shared or kbgan."),
    "baseline": (str, "A baseline in place of an encoder; see compgcn list baselines."),
    "protocol": (str, f"{_listed(Classifier.model_fields['protocol'].annotation)}: how to choose epochs and report."),
    "epochs": (int, "The most passes over the training triples."),
    "seed": (int, "Seed of every random number."),
    "device": (str, "cpu, cuda, or auto for the best there is."),
}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that ends in `**options` an option for each of `_SETTINGS`, after its own."""
    hints = get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters.values()
    parameters = [p.replace(annotation=hints[p.name]) for p in own if p.kind is not p.VAR_KEYWORD]
    for name, (kind, text) in _SETTINGS.items():
        annotation = Annotated[kind | None, Option(help=text)]  # type: ignore[valid-type]
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


Model = Annotated[str | None, Option(help="A whole model; other options override it; see compgcn list models.")]


@with_settings
def train(
    data: Annotated[str, Argument(metavar="DATA", help="A data set's name, a file of triples, a folder, or a TOML.")],
    model: Model = None,
    settings: Settings = None,
    search: Annotated[
        Path | None, Option(help="A TOML with a table [search], for --protocol nested.", metavar="FILE")
    ] = None,
    run_dir: Annotated[
        Path | None, Option(help="By default runs/<data>-MODEL-<seed>; MODEL is encoder-decoder, --model or best.")
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Remove the run in the run folder first.")] = False,
    minutes: Annotated[
        float | None,
        Option(help="Compare models for so long and keep the best on validation; 5 for your own triples.", min=0.01),
    ] = None,
    trials: Annotated[int | None, Option(help="Compare models by so many trainings, not for a time.", min=1)] = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Train a model on a graph. The same command again resumes a stopped run.

    Without a model or settings of one, models compete for your own triples, and the best on validation stays.

    Example: compgcn train my-triples.tsv --minutes 5

    Example: compgcn train my-triples.tsv --decoder distmult --epochs 100 --set training.lr=0.01

    Example: torchrun --nproc-per-node 4 -m compgcn train my-triples.tsv
    """
    asked, space = asked_for(data, options, settings, search)
    if space is not None:
        asked["classifier.candidates"] = candidates(space)
    found = read_data(asked, model)
    from compgcn.run.resolve import as_begun, resolve
    from compgcn.run.run import train as train_run

    why: Budget | str = ""
    if minutes is not None or trials is not None or asked["data.source"] not in DATASETS:
        from compgcn.run.portfolio import budget

        why = budget(minutes, trials, asked, found, model)
    if not isinstance(why, str):
        compare_models(asked, found, why, run_dir, overwrite, as_json)
        return
    from compgcn.train.folder import Folder, default_folder

    config, notes, large = resolve(asked, found, model)
    folder = run_dir or default_folder(config, known_as(model, config))
    overwrite = overwrite and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"  # a restart goes on
    if not overwrite:
        config = as_begun(config, asked, Folder(folder))
    if not as_json:
        encoder = config.encoder
        if len(encoder.dims) == 1 and encoder.name != "none" and config.classifier.baseline is None:
            notes.insert(0, f"the encoder '{encoder.name}' has no layer: encoder.dims takes two numbers for one")
        first = [f"{why}: the recipe for one's own graph is trained"] if why else []
        first += [] if config.training.epochs else ["no epoch is trained: the model keeps its first weights"]
        describe(found.name, found.statistics(), [*found.notes, *first, *notes])
    if large or config.training.hide:  # a conditional model, with states as large
        keep_memory()
    finished = Folder(folder).is_calibrated and not overwrite
    begun = any((folder / "checkpoint").glob("[!.]*")) and not overwrite and not as_json
    with watched(folder, as_json) as (notify, stopped):

        def tell(event: Event) -> None:
            if begun and event["event"] == "start":
                out.print(f"resuming the run in {folder}")
            notify(event)

        run = train_run(config, found, folder, tell, stopped, overwrite)
    if as_json:
        show_json({"run": str(run.path), **run.metrics})
        return
    if finished:
        out.print(f"{run.path} is already finished; nothing to train")
    if run.config.classifier.protocol is None:
        show_links(run, known_as(model, config))
    else:
        show_classes(run)


def asked_for(
    data: str, options: Mapping[str, Any], settings: Sequence[str] | None, search: Path | None
) -> tuple[dict[str, Any], Space | None]:
    """Return the settings that DATA, options (None where not given) and --set name, and the space to search, if any.

    The file `search` has a table [search], in place of the one that a TOML as DATA may have.
    """
    given = {PATHS[name]: value for name, value in options.items() if value is not None}
    given = {path: str(value) if isinstance(value, Path) else value for path, value in given.items()}
    if "data.columns" in given:
        given["data.columns"] = as_list("data.columns", given["data.columns"])
    taken = set(given)
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
    configure(Config(), base, f"{data}: " if is_file else "")  # a mistake in a file names the file
    if not base.get("data.source"):
        raise InputError(f"{data} does not say what to train on; set data.source to a data set's name or a file")
    space = parse_space(table, f"{search or data}: ") if table or search is not None else None
    return base | given, space


def read_data(asked: Mapping[str, Any], model: str | None = None) -> Dataset:
    """Read the data that some settings name; refuse an unknown model first."""
    if model is not None:
        find_model(model)
    config = configure(Config(), asked)
    return find(config.data, config.task)


def keep_memory() -> bool:
    """Have the C library keep freed memory for the next allocation; return whether it does.

    By default it returns arrays of more than 32 MiB to the system, which clears new pages. Clearing takes a third of a
    step over a large graph, and more than half of a step of a conditional model.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    maps, trim = -4, -1  # M_MMAP_MAX and M_TRIM_THRESHOLD of <malloc.h>
    return mallopt is not None and bool(mallopt(maps, 0) and mallopt(trim, 2**31 - 1))


# Progress


@contextmanager
def watched(
    folder: Path, quiet: bool, line: Line | None = None
) -> Iterator[tuple[Callable[[Event], None], Callable[[], bool]]]:
    """Yield what shows an event, and what tells whether to stop; end a training that stops with exit code 130."""
    from compgcn.train.loop import Interrupted

    try:
        with stop_requests() as stopped, progress_line(quiet, line=line) as notify:
            yield notify, stopped
    except Interrupted:
        err.print(f"stopped; the same command goes on from here ({folder})")
        raise SystemExit(130) from None


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C, SIGTERM and a closed terminal end the step under way first; a second Ctrl-C ends at once."""
    asked, terminals = False, [number for number in (1, 2) if os.isatty(number)]

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if number == closed:  # writing to a closed terminal fails
            with open(os.devnull, "w", encoding="utf-8") as nowhere:
                for terminal in terminals:
                    os.dup2(nowhere.fileno(), terminal)

    # torchrun ends with SIGTERM the processes that wait for one that is gone: they must not wait on.
    numbers = [signal.SIGINT] if under_torchrun() else [signal.SIGINT, signal.SIGTERM]
    closed = getattr(signal, "SIGHUP", None)  # Windows has none
    if closed is not None and signal.getsignal(closed) == signal.SIG_DFL:  # nohup ignores it
        numbers.append(closed)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress_line(
    quiet: bool, clock: Callable[[], float] = time.monotonic, line: Line | None = None
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function that shows the events of a training: on a terminal in one live line, elsewhere now and then."""
    line = line or standing(clock)
    if quiet:
        yield lambda event: None
    elif err.is_terminal:
        with err.status("preparing") as status:
            yield lambda event: status.update(line(event) or status.status)
    else:
        told = clock()

        def notify(event: Mapping[str, Any]) -> None:
            nonlocal told
            text = line(event)
            if text and clock() - told >= _QUIET:
                told = clock()
                err.print(text)

        yield notify


def standing(clock: Callable[[], float]) -> Line:
    """Return a function that writes one line about an event: epoch, loss, validation metric and time left."""
    latest: dict[str, float] = {}
    begun: dict[str, tuple[str | None, int, float]] = {}  # the work under way: how much was done at first, and when

    def pace(kind: str, work: str, done: int) -> float:
        """Return the seconds of a step or a query since the first event of its work; code is compiled before that."""
        before, first, then = begun.get(kind, (None, 0, 0.0))
        if work != before or done <= first:  # the work begins, perhaps on another fold
            begun[kind] = work, done, clock()
            return 0.0
        return (clock() - then) / (done - first)

    def line(event: Mapping[str, Any]) -> str:
        part = f" of {event['part']}" if "part" in event else ""
        if event["event"] == "progress":
            what, done, total = event["what"], event["done"], event["total"]
            left = in_words(pace("evaluation", what + part, done) * (total - done))
            return f"{what} {done:,} of {total:,}" + (left and f"  about {left} left{part}")
        if "epoch" not in event:
            return ""
        latest.update(event.get("valid") or {})
        seconds = pace("training", part, event["step"])
        parts = [f"epoch {event['epoch']}/{event['epochs']}", *([event["part"]] if "part" in event else [])]
        each = event["steps"] // event["epochs"]
        if event["event"] == "step":
            parts.append(f"step {event['step'] - (event['epoch'] - 1) * each}/{each}")
        parts.append(f"loss {event['loss']:.4f}")
        goal, best = event["goal"], event["best"]
        ends = [in_words(seconds * (event["steps"] - event["step"]))]
        if goal in latest and best is not None:
            parts.append(f"valid {goal} {latest[goal]:.4f}  best {best:.4f} (epoch {event['best_epoch']})")
            ends.append(in_words(seconds * (event["stop"] * each - event["step"])))
        if ends[0]:
            stops = (
                f", {ends[1]} if validation gains nothing more" if ends[1:] and event["stop"] < event["epochs"] else ""
            )
            parts.append(f"about {ends[0]} to the last epoch{stops}")
        return "  ".join(parts)

    return line


def in_words(seconds: float) -> str:
    """Return a time in words; nothing for no time."""
    if seconds <= 0:
        return ""
    units = (("s", 1, 59.5, 0), ("min", 60, 89.5 * 60, 0), ("h", 3600, 48 * 3600, 1), ("days", 86400, math.inf, 1))
    unit, size, digits = next((unit, size, digits) for unit, size, below, digits in units if seconds < below)
    return f"{max(seconds, 1) / size:.{digits}f} {unit}"


# Results


def show_links(run: Run, model: str | None) -> None:
    """Print the test metrics beside those of the popularity baseline."""
    metrics = run.metrics
    end = f"best epoch {metrics['best_epoch']}, run folder {run.path}"
    if not metrics["test"]:
        out.print(f"the test split is empty; {end}")
        return
    name = model or run.model_name
    rows = {name: metrics["test"], "popularity baseline": metrics.get("popularity", {}).get("test", {})}
    some, test = metrics.get("ranked", {}).get("test"), getattr(run.data, "test", ())
    of = "" if some is None else f" of {some:,} of {len(test):,} triples"
    show_metrics(f"test, filtered, {metrics['ties']} ranks{of}", rows)
    out.print("\n".join([*doubts(metrics), end]))


def show_classes(run: Run) -> None:
    """Print the accuracy and macro-F1 that the protocol reports."""
    metrics, baseline = run.metrics, run.config.classifier.baseline
    title = f"baseline '{baseline}', " * (baseline is not None) + f"protocol '{metrics['protocol']}'"
    splits = {"validation": metrics["valid"], "test": metrics["test"]}
    splits["test, regression on counted facts"] = metrics.get("facts", {}).get("test")
    rows = [figures(name, report) for name, report in splits.items() if report]
    if rows:
        show_table((title, *FIGURES), rows)
    else:
        out.print(f"{title}: no label was held out for validation or test, so there are no metrics")
    for doubt in doubts(metrics):
        out.print(doubt)
    if metrics["protocol"] == "paper":
        out.print("the folds that chose the epoch are those reported: a validation metric, as in the paper")
    if "candidate" in metrics:
        folds = metrics["test"]["folds"]
        chosen = sum(fold["candidate"] == metrics["candidate"] for fold in folds)
        out.print(f"chosen in {chosen} of {len(folds)} folds, and kept: {metrics['candidate']}")
    epochs = f"epochs {metrics['best_epoch']}, " if metrics["best_epoch"] else ""
    out.print(f"{epochs}run folder {run.path}")


# The search behind `train`


def compare_models(
    asked: Mapping[str, Any], data: Dataset, budget: Budget, run_dir: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Compare the models of the portfolio; print the table of candidates and the test metrics of the winner."""
    from compgcn.run.portfolio import BEST, search
    from compgcn.run.resolve import resolve
    from compgcn.run.search import FILTERED, journalled
    from compgcn.train.folder import default_folder

    assert isinstance(data, KnowledgeGraph)  # or there is no budget
    config = resolve(asked, data).config
    folder = run_dir or default_folder(config, BEST[config.task])
    bound = f"at most {budget.seconds / 60:g} min" if budget.seconds else counted(budget.trials or 1, "training")
    if not as_json:
        describe(data.name, data.statistics(), data.notes)
        alone = "--model" if data.labels is None else "--encoder"
        out.print(f"comparing models on validation for {bound} (--minutes, --trials); {alone} NAME trains one alone")
    keep_memory()
    with watched(folder, as_json, board()) as (notify, stopped):

        def tell(event: Event) -> None:
            if "note" in event and not as_json:
                out.print(event["note"])
            if not as_json and not err.is_terminal and event["event"] == "trial" and "value" in event:
                name, value, trained, seconds, error = _row(event)
                err.print(f"{name}  valid {value}  trained {trained}  {seconds} s  {error}".rstrip())
            notify(event)

        run = search(asked, data, budget, folder, tell, stopped, overwrite)
    found = journalled(run.path)
    assert found is not None
    if as_json:
        rows = [trial._asdict() for trial in found.trials]
        show_json({"run": str(run.path), **run.metrics, "candidates": rows})
        return
    show_table(_HEADER, [_row(trial._asdict()) for trial in found.trials])
    out.print(found.reason)
    if run.config.classifier.protocol is None:
        out.print(FILTERED)
        show_links(run, found.trials[0].name)
        if run.config.encoder.name == "none":
            out.print("this model has no graph encoder; `explain` and --facts need one that has: --model conditional")
    else:
        show_classes(run)


def board() -> Line:
    """Return what shows a search on a terminal: the line of the training under way above the table of candidates."""
    rows: dict[str, Mapping[str, Any]] = {}
    now: dict[str, Any] = {"name": "", "left": 0.0, "at": 0.0, "line": standing(time.monotonic)}

    def show(event: Mapping[str, Any]) -> Any:
        if event["event"] == "trial":
            before = rows.get(event["name"], {})  # one that goes on keeps its value
            rows[event["name"]] = {**before, "error": "", "training": "value" not in event, **event}
        if event["event"] == "winner":
            now.update(name=event["name"], left=math.inf)
        if "left" in event:
            now.update(name=event["name"], left=event["left"], at=time.monotonic(), line=standing(time.monotonic))
            text: Any = f"preparing {event['name']}"
        else:
            text = now["line"]({**event, "part": now["name"]})
        if not err.is_terminal or not text:
            return text if "left" not in event else ""
        left = now["left"] - time.monotonic() + now["at"]
        whole = f"  about {in_words(max(left, 1.0))} left of the search" if math.isfinite(left) else ""
        return Group(f"{text}{whole}", _live_table(rows.values()))

    return show


def _live_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table of a search under way, for narrow terminals too; the last table says why one was left out."""
    table = plain_table(*_HEADER[:-1])
    for column in table.columns[1:]:
        column.no_wrap = True
    for row in sorted(rows, key=lambda row: -(row.get("value") or 0.0)):
        name, value, trained, seconds, _ = _row(row)
        table.add_row(name, value, "left out" if row.get("error") and row.get("value") is None else trained, seconds)
    return table


def _row(trial: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a trial, begun or ended."""
    value = "-" if trial.get("value") is None else f"{trial['value']:.4f}"
    trained = ("to " if trial.get("training") else "") + f"{100 * trial['share']:.3g}%"
    return trial["name"], value, trained, f"{trial.get('spent', 0.0):.0f}", trial["error"]
