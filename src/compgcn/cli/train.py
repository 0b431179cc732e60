"""The command `train`, and the options for settings that `tune` has too."""

from __future__ import annotations

import ctypes
import inspect
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from typer import Argument, Option

from compgcn.cli.console import (
    Dataset,
    Json,
    Settings,
    describe,
    doubts,
    err,
    out,
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
from compgcn.data import DATASETS, find
from compgcn.errors import InputError
from compgcn.train.recipes import model as find_model

if TYPE_CHECKING:
    from rich.console import RenderableType

    from compgcn.run import Run
    from compgcn.train.loop import Event

Line = Callable[[Mapping[str, Any]], "RenderableType"]  # shows an event; "" for nothing new
_QUIET = 10.0  # seconds between two lines about training where there is no terminal


def _listed(annotation: Any) -> str:
    """Return the values of a `Literal`, or of one with None, in words."""
    if get_origin(annotation) is Literal:
        *others, last = get_args(annotation)
        return f"{', '.join(others)} or {last}"
    return _listed(get_args(annotation)[0])


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
    "sampler": (str, "uniform, shared or kbgan: draws the negatives."),
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
        Path | None, Option(help="The run folder; by default runs/<data>-<encoder>-<decoder>-<seed>.")
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Remove the run in the run folder first.")] = False,
    minutes: Annotated[
        float | None,
        Option(help="Compare models for so long, and keep the best on validation; 5 for your own triples.", min=0.01),
    ] = None,
    trials: Annotated[int | None, Option(help="Compare by so many trainings in place of minutes.", min=1)] = None,
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
    from compgcn.run import train as train_run
    from compgcn.run.resolve import as_begun, resolve

    why = ""
    if minutes is not None or trials is not None or (model is None and asked["data.source"] not in DATASETS):
        from compgcn.cli import search as searching

        budget = searching.budget_of(minutes, trials, asked, found, model)
        if not isinstance(budget, str):
            searching.search(asked, found, budget, run_dir, overwrite, as_json)
            return
        why = budget
    from compgcn.train.folder import Folder, default_folder

    config, notes, large = resolve(asked, found, model)
    folder = run_dir or default_folder(config, model)
    overwrite = overwrite and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"  # a restart goes on
    if not overwrite:
        config = as_begun(config, asked, Folder(folder))
    if not as_json:
        encoder = config.encoder
        if len(encoder.dims) == 1 and encoder.name != "none" and config.classifier.baseline is None:
            notes.insert(0, f"the encoder '{encoder.name}' has no layer: encoder.dims takes two numbers for one")
        if why:
            notes.insert(0, f"{why}: the recipe for one's own graph is trained")
        describe(found.name, found.statistics(), [*found.notes, *notes])
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
        out.print_json(data={"run": str(run.path), **run.metrics})
        return
    if finished:
        out.print(f"{run.path} is already finished; nothing to train")
    if run.config.classifier.protocol is None:
        show_links(run, model)
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

    By default it returns arrays of more than 32 MiB to the system, and clearing new pages takes a third of a step over
    a large graph, and more than half of a step of a conditional model.
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
    """Let Ctrl-C and SIGTERM end the step under way first; a second Ctrl-C ends at once."""
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    # torchrun ends with SIGTERM the processes that wait for one that is gone: they must not wait on.
    numbers = (signal.SIGINT,) if under_torchrun() else (signal.SIGINT, signal.SIGTERM)
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
    first: Mapping[str, Any] = {}  # event of the evaluation under way, and its time
    begun = 0.0
    pace = _Pace(clock)

    def line(event: Mapping[str, Any]) -> str:
        nonlocal first, begun
        part = f" of {event['part']}" if "part" in event else ""
        if event["event"] == "progress":
            if event["what"] != first.get("what"):
                first, begun = event, clock()
            done, total = event["done"], event["total"]
            left = in_words((clock() - begun) * (total - done) / max(done - first["done"], 1))
            return f"{event['what']} {done:,} of {total:,}" + (left and f"  about {left} left{part}")
        if "epoch" not in event:
            return ""
        first = {}
        latest.update(event.get("valid") or {})
        pace.take(event)
        parts = [f"epoch {event['epoch']}/{event['epochs']}", *([event["part"]] if "part" in event else [])]
        each = event["steps"] // event["epochs"]
        if event["event"] == "step":
            parts.append(f"step {event['step'] - (event['epoch'] - 1) * each}/{each}")
        parts.append(f"loss {event['loss']:.4f}")
        goal, best = event["goal"], event["best"]
        ends = [in_words(pace.seconds * (event["steps"] - event["step"]))]
        if goal in latest and best is not None:
            parts.append(f"valid {goal} {latest[goal]:.4f}  best {best:.4f} (epoch {event['best_epoch']})")
            ends.append(in_words(pace.seconds * (event["stop"] * each - event["step"])))
        if ends[0]:
            stops = (
                f", {ends[1]} if validation gains nothing more" if ends[1:] and event["stop"] < event["epochs"] else ""
            )
            parts.append(f"about {ends[0]} to the last epoch{part}{stops}")
        return "  ".join(parts)

    return line


class _Pace:
    """Seconds a step takes, with its share of the evaluations.

    The first step and the first evaluation compile code, so that they count only while there is nothing else.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: tuple[int, float] | None = None  # step and time from which on this measures
        self._evaluated = False  # whether an evaluation ended then
        self.seconds = 0.0

    def take(self, event: Mapping[str, Any]) -> None:
        """Take note of an event of training."""
        step, now, evaluated = event["step"], self._clock(), bool(event.get("valid"))
        if self._since is None or step <= self._since[0]:  # training begins, perhaps on another fold
            self._since, self._evaluated = (step, now), False
            return
        if evaluated or not self._evaluated:  # between two evaluations the pace would be that of the steps alone
            self.seconds = (now - self._since[1]) / (step - self._since[0])
        if evaluated and not self._evaluated:
            self._since, self._evaluated = (step, now), True


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
