"""The commands. Only this file prints; what is wrong with the input is one sentence on stderr and exit code 1."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from compgcn import __version__
from compgcn.config import PATHS, Config, configure, parse_setting, read_settings
from compgcn.data import DATASETS, KnowledgeGraph, load, read
from compgcn.errors import InputError, unknown
from compgcn.tables import add_metrics, metrics_table, plain_table, predictions_table, printable

if TYPE_CHECKING:
    from compgcn.run import Run

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
data_app = typer.Typer(no_args_is_help=True, help="The data sets known by name.")
app.add_typer(data_app, name="data")
# Text is shown as it is: [red] and :cat: are ids like any other.
out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)

_FEW = 30  # validation triples below which a metric is mostly noise


class Part(StrEnum):
    """How `evaluate` can split its metrics."""

    relation = "relation"
    category = "category"
    side = "side"


class Split(StrEnum):
    """The splits of a data set."""

    train = "train"
    valid = "valid"
    test = "test"


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto for the best there is.")]


def main() -> None:
    """Run a command; turn what can go wrong into one sentence and an exit code."""
    # Threads that wait sleep rather than spin: as fast on an idle machine, several times faster on a busy one.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    for stream in (sys.stdout, sys.stderr):  # a terminal without the letters of a name shows something in their place
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except InputError as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader had enough, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def fail(message: str) -> NoReturn:
    """One sentence on stderr, exit code 1."""
    err.print(f"error: {message}")
    raise SystemExit(1)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"compgcn {__version__}")
        raise typer.Exit


@app.callback()
def compgcn(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """CompGCN: embed the entities and the relations of a knowledge graph together, and predict its missing facts.

    Example: compgcn train world && compgcn predict runs/world-compgcn-distmult-0 --head France --relation borders
    """


@app.command()
def train(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A data set's name, a file of triples, or a TOML of settings.")
    ],
    valid: Annotated[Path | None, typer.Option(help="Validation triples; DATA is then the training triples.")] = None,
    test: Annotated[Path | None, typer.Option(help="Test triples.")] = None,
    names: Annotated[Path | None, typer.Option(help="A table of ids and readable names.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="compgcn, gcn, dgcn, rgcn, rgcn-basis, rgcn-block, wgcn, released or none.")
    ] = None,
    composition: Annotated[str | None, typer.Option(help="sub, mult, corr, add, conv, rotate, cmul or copy.")] = None,
    decoder: Annotated[str | None, typer.Option(help="conve, distmult or transe.")] = None,
    epochs: Annotated[int | None, typer.Option(help="At most so many passes over the training triples.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of every random number.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or auto for the best there is.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any other setting, such as training.lr=0.001; may be repeated."
        ),
    ] = None,
    max_shard_mib: Annotated[
        float | None, typer.Option(help="Cut the weights into files of at most this size.", show_default=False)
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="The run folder; runs/<data>-<encoder>-<decoder>-<seed> if not given.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a model on a graph. The same command again resumes a run that was stopped.

    Example: compgcn train my-triples.tsv --decoder distmult --epochs 100 --set training.lr=0.01
    """
    from compgcn.build import default_folder, recommended
    from compgcn.run import train as train_run
    from compgcn.train import Interrupted

    chosen = {
        "encoder": encoder,
        "composition": composition,
        "decoder": decoder,
        "epochs": epochs,
        "seed": seed,
        "device": device,
        "max_shard_mib": max_shard_mib,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    files = {"data.valid": valid, "data.test": test, "data.names": names}
    given |= {name: str(path) for name, path in files.items() if path is not None}
    options = {PATHS[name] for name in given}
    for name, value in map(parse_setting, settings or []):
        if PATHS.get(name) in options:
            raise InputError(f"'{name}' is given twice; give it as an option or with --set, not both")
        given[name] = value
    base = read_settings(Path(data)) if data.endswith(".toml") else {"data.source": data}
    configure(Config(), base, f"{data}: " if data.endswith(".toml") else "")  # what is wrong in a file names the file
    if not base.get("data.source"):
        raise InputError(f"{data} does not say what to train on; set data.source to a data set's name or a file")
    config = recommended(base | given)
    graph = find_data(config)
    folder = run_dir or default_folder(config)
    if not as_json:
        describe(graph)
    finished = (folder / "metrics.json").is_file()
    if (folder / "checkpoint" / "state.safetensors").is_file() and not as_json:
        out.print(f"resuming the run in {folder}")
    try:
        with _stop_requests() as stopped, _progress_line(quiet=as_json) as notify:
            run = train_run(config, graph, folder, notify, stopped)
    except Interrupted:
        err.print(f"stopped; the same command goes on from here ({folder})")
        raise SystemExit(130) from None
    if as_json:
        out.print_json(json.dumps({"run": str(run.path), **run.metrics}))
        return
    if finished:
        out.print(f"{run.path} is already finished; nothing to train")
    show_result(run)


def find_data(config: Config) -> KnowledgeGraph:
    """The graph a config names."""
    data = config.data
    if data.source in DATASETS:
        if data.valid is not None or data.test is not None or data.names is not None:
            raise InputError(f"the data set '{data.source}' has its own splits and names; leave those options out")
        return load(data.source)
    if not Path(data.source).exists() and "." not in data.source and "/" not in data.source:
        raise unknown("data set", data.source, DATASETS)
    if data.valid is not None or data.test is not None:
        return read(train=data.source, valid=data.valid, test=data.test, names=data.names)
    return read(
        data.source,
        names=data.names,
        split_seed=data.split_seed,
        valid_fraction=data.valid_fraction,
        test_fraction=data.test_fraction,
    )


def describe(graph: KnowledgeGraph) -> None:
    """The statistics of a graph, and what was noticed while reading it."""
    n = graph.statistics()
    out.print(
        f"{graph.name}: {n['entities']:,} entities, {n['relations']:,} relations, {n['triples']:,} triples "
        f"({n['train']:,} train, {n['valid']:,} valid, {n['test']:,} test)"
    )
    few = len(graph.valid) < _FEW
    warning = f"only {len(graph.valid)} validation triples: which epoch is best is a matter of chance" if few else ""
    for note in (*graph.notes, *filter(None, [warning])):
        out.print(f"  note: {note}")


@contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
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


@contextmanager
def _progress_line(quiet: bool) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """A live line with epoch, loss, validation metric, best and time left; nothing where no one is looking."""
    if quiet or not err.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        bar = progress.add_task("", total=None, epoch="-", text="preparing")
        latest: dict[str, float] = {}

        def notify(event: dict[str, Any]) -> None:
            if event["event"] == "evaluate":
                progress.update(bar, text="evaluating")
            if "epoch" not in event:
                return
            latest.update(event.get("valid") or {})
            goal, best = event["goal"], event["best"]
            text = f"loss {event['loss']:.4f}"
            if goal in latest and best is not None:
                text += f"  valid {goal} {latest[goal]:.4f}  best {best:.4f} (epoch {event['best_epoch']})"
            progress.update(
                bar,
                completed=event["step"],
                total=event["steps"],
                epoch=f"{event['epoch']}/{event['epochs']}",
                text=text,
            )

        yield notify


def show_result(run: Run) -> None:
    """The test metrics beside those of the popularity baseline."""
    if not run.metrics["test"]:
        out.print(f"the test split is empty; best epoch {run.metrics['best_epoch']}, run folder {run.path}")
        return
    table = metrics_table(f"test, filtered, {run.metrics['ties']} ranks")
    add_metrics(table, f"{run.config.encoder.name} + {run.config.decoder.name}", run.metrics["test"])
    add_metrics(table, "popularity baseline", run.metrics.get("popularity", {}).get("test", {}))
    out.print(table)
    if run.metrics["test"]["mrr"] <= run.metrics.get("popularity", {}).get("test", {}).get("mrr", 0.0):
        out.print("the model is no better than the baseline: give it more triples, more epochs or other settings")
    out.print(f"best epoch {run.metrics['best_epoch']}, run folder {run.path}")


def _open(path: Path, device: str) -> Run:
    from compgcn.run import open_run

    run = open_run(path, device)
    if not run.metrics:
        err.print(f"note: {path} is not finished; these are its best weights so far")
    return run


@app.command()
def evaluate(
    run: RunFolder,
    split: Annotated[Split, typer.Option(help="Which triples to rank.")] = Split.test,
    by: Annotated[Part | None, typer.Option(help="Split the metrics by relation, category or side.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Rank the triples of a split, filtered by all splits, ties at their mean rank.

    Categories are by average tails per head and heads per tail in train, from 1.5 on N.

    Example: compgcn evaluate runs/world-compgcn-distmult-0 --by relation
    """
    opened = _open(run, device)
    report = opened.evaluate(split.value, by.value if by else None)
    if as_json:
        out.print_json(json.dumps(report))
        return
    if not report:
        out.print(f"the {split.value} split is empty")
        return
    table = metrics_table(f"{split.value}, filtered, realistic ranks")
    if by is None:
        for label, part in (("both sides", report), ("head", report["head"]), ("tail", report["tail"])):
            add_metrics(table, label, part)
        for ties in ("optimistic", "pessimistic"):
            add_metrics(table, f"{ties} ranks", report[ties])
    else:
        for name, part in report.items():
            add_metrics(table, name if by is Part.side else f"{name} ({part['triples']:,})", part)
    out.print(table)


@app.command()
def predict(
    run: RunFolder,
    relation: Annotated[str, typer.Option(help="The relation, by id or name.", show_default=False)],
    head: Annotated[str | None, typer.Option(help="Predict the tails of (head, relation, ?).")] = None,
    tail: Annotated[str | None, typer.Option(help="Predict the heads of (?, relation, tail).")] = None,
    top: Annotated[int, typer.Option(help="How many answers.", min=1)] = 10,
    new: Annotated[bool, typer.Option("--new", help="Leave out the facts that stand in the data already.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Complete a fact: the most probable answers with their names, and whether they are known already.

    Example: compgcn predict runs/world-compgcn-distmult-0 --head France --relation borders --top 5
    """
    answers = _open(run, device).predict(head=head, relation=relation, tail=tail, top=top, new=new)
    if as_json:
        out.print_json(json.dumps([{"rank": rank, **answer._asdict()} for rank, answer in enumerate(answers, 1)]))
        return
    question = f"{head} - {relation} - ?" if head is not None else f"? - {relation} - {tail}"
    out.print(predictions_table(question, answers))


@app.command()
def export(
    run: RunFolder,
    to: Annotated[Path, typer.Option(help="A .parquet or .tsv file.", show_default=False)],
    device: Device = "auto",
) -> None:
    """Write the vectors of all entities and relations with their ids and names.

    Example: compgcn export runs/world-compgcn-distmult-0 --to embeddings.parquet
    """
    rows = _open(run, device).export(to)
    out.print(f"{rows:,} vectors written to {to}")


@data_app.command("list")
def data_list(as_json: Json = False) -> None:
    """List the data sets known by name.

    Example: compgcn data list
    """
    if as_json:
        rows = [
            {"name": row.name, "task": row.task, "description": row.description, **row.statistics}
            for row in DATASETS.values()
        ]
        out.print_json(json.dumps(rows))
        return
    table = plain_table("name", "task", "entities>", "relations>", "triples>", "description")
    for row in DATASETS.values():
        n = row.statistics
        total = sum(n[split.value] for split in Split)
        table.add_row(row.name, row.task, f"{n['entities']:,}", f"{n['relations']:,}", f"{total:,}", row.description)
    out.print(table)


@data_app.command("info")
def data_info(
    name: Annotated[str, typer.Argument(help="A data set's name, or a file of triples.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show what a data set or a file of triples holds.

    Example: compgcn data info world
    """
    import numpy as np

    graph = find_data(configure(Config(), {"data.source": name}))
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
