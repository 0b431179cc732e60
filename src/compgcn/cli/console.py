"""Consoles, tables and options that the commands share, and notes about data sets and runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from compgcn.data import GraphCollection, KnowledgeGraph
from compgcn.data.columns import counted, existing_run
from compgcn.run.plots import check_figure, printable

if TYPE_CHECKING:
    from compgcn.run.run import Kind, Run


class _Log(Console):
    """A console on stderr."""

    def on_broken_pipe(self) -> None:
        """Go on in silence: a training does not need a reader of its progress."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


# Text is shown as it is: [red] and :cat: are ids like any other.
out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
err = _Log(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)

Dataset = KnowledgeGraph | GraphCollection
_FEW = 30  # validation triples below which a metric is mostly noise

Json = Annotated[bool, Option("--json", help="Print JSON, for a program to read.")]
RunFolder = Annotated[Path, Argument(metavar="RUN", help="A run folder.", callback=existing_run)]
Device = Annotated[str, Option(help="cpu, cuda, or auto for the best there is.")]
Plot = Annotated[
    Path | None,
    Option(help="Draw a .png, .pdf or .svg file.", metavar="FILE", callback=lambda to: to and check_figure(to)),
]
To = Annotated[Path | None, Option(help="Write a .parquet, .csv or .tsv file.", metavar="FILE")]
Settings = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="A setting, such as training.lr=0.001; may be repeated."),
]


def fail(message: str) -> NoReturn:
    """Print one sentence on stderr and exit with code 1; of several processes, the first that fails prints it."""
    if under_torchrun():
        from compgcn.processes import fails_first

        if not fails_first():
            raise SystemExit(1)
    err.print(f"error: {message}")
    raise SystemExit(1)


def under_torchrun() -> bool:
    """Whether this is one of several processes that torchrun started."""
    return "TORCHELASTIC_RUN_ID" in os.environ


@contextmanager
def bars(downloads: bool = False) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Show a progress bar for each name on a terminal, and nothing elsewhere."""
    if not err.is_terminal:
        yield None
        return
    from rich import progress as rich

    name = rich.TextColumn("{task.description}", markup=False)
    counts = (rich.MofNCompleteColumn(), rich.TimeRemainingColumn())
    sizes = (rich.DownloadColumn(), rich.TransferSpeedColumn())
    with rich.Progress(name, rich.BarColumn(), *(sizes if downloads else counts), console=err, transient=True) as shown:
        tasks: dict[str, rich.TaskID] = {}

        def notify(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = shown.add_task(name, total=total)
            shown.update(tasks[name], completed=done, total=total, visible=done != total)

        yield notify


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show one progress bar on a terminal, and nothing elsewhere."""
    with bars() as notify:
        yield notify and partial(notify, what)


# Tables


def show_json(data: Any) -> None:
    """Print data as JSON; rich's own printing takes far longer for many rows."""
    out.file.write(json.dumps(data, ensure_ascii=False, indent=2) + "\n")


def plain_table(*columns: str) -> Table:
    """Return an empty table without lines; a column whose name ends in > is set to the right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name.removesuffix(">"), justify="right" if name.endswith(">") else "left")
    return table


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", caption: str = "", *, ranked: bool = False
) -> None:
    """Print a table with a line above and a line below it, as wide as the terminal; with `ranked`, number its rows."""
    if ranked:
        columns, rows = ("rank>", *columns), [(str(rank), *row) for rank, row in enumerate(rows, 1)]
    table = plain_table(*map(printable, columns))
    table.title, table.title_justify = printable(title) or None, "left"
    table.caption, table.caption_justify = caption or None, "left"
    for row in rows:
        table.add_row(*map(printable, row))
    table.width = None if out.is_terminal else out.measure(table, options=out.options.update(width=10_000)).maximum
    out.print(table)


def show_metrics(title: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
    from compgcn.tasks.ranking import METRICS

    shown = [
        (label, *("-" if name not in row else f"{row[name]:.{1 if name == 'mr' else 4}f}" for name in METRICS))
        for label, row in rows.items()
    ]
    show_table((title, *(f"{name.upper()}>" for name in METRICS)), shown)


def told_apart(fact: Sequence[Any], data: Dataset) -> list[str]:
    """Return the names of a fact, which follow its three ids, each with its id if others share the name."""
    entities = data.entities.shared if isinstance(data, KnowledgeGraph) else frozenset[str]()
    shared = (entities, data.relations.shared, entities)
    parts = zip(fact[:3], fact[3:6], shared, strict=True)
    return [f"{name} ({text})" if name in names else name for text, name, names in parts]


# Notes about data


def describe(name: str, sizes: Mapping[str, int | float], notes: Sequence[str]) -> None:
    """Print the sizes of a data set and notes about it."""
    out.print(f"{name}: {_headline(sizes)}")
    for note in notes:
        out.print(f"  note: {note}")
    if "classes" not in sizes and sizes["valid"] < _FEW:
        few = f"only {counted(int(sizes['valid']), 'validation triple')}: which epoch is best is a matter of chance"
        none = "no validation triples: which epoch is best cannot be told, and the last one is kept"
        out.print(f"  note: {few if sizes['valid'] else none}")


def _headline(n: Mapping[str, int | float]) -> str:
    def several(**nouns: str) -> str:
        return ", ".join(counted(int(n[key]), noun) for key, noun in nouns.items())

    if "graphs" in n:
        return (
            f"{several(graphs='graph', nodes='node', edges='edge')} "
            f"({n['mean_nodes']:,.1f} and {n['mean_edges']:,.1f} a graph), "
            f"{several(relations='relation', node_labels='node label', classes='class')}"
        )
    sizes = several(entities="entity", relations="relation", triples="triple")
    if "classes" in n:
        labelled = ", ".join(f"{n[f'{split}_labels']:,} {split}" for split in ("train", "valid", "test"))
        return f"{sizes}, {several(classes='class')}, labelled nodes: {labelled}"
    return f"{sizes} ({n['train']:,} train, {n['valid']:,} valid, {n['test']:,} test)"


# Notes about runs


def calibration_note(run: Run, kind: Kind | None = None) -> str:
    """Return on which split the probabilities of a kind of answer are calibrated; of entities or classes by default."""
    split = run.calibrated(kind)
    if split is None:
        return "probabilities not calibrated"
    missing = ", for queries with a missing answer" if kind in ("entities", "relations") else ""
    # Validation has no unseen entities to compare answers about them with.
    return f"probabilities calibrated on {'the graph of training' if run.newcomers else split}{missing}"


def doubts(metrics: dict[str, Any]) -> list[str]:
    """Return how a model fails to beat a simpler one, by the metrics of its run."""
    if not metrics:
        return []
    test, found = metrics["test"], []
    if "classes" not in metrics:
        popular = metrics.get("popularity", {}).get("test", {}).get("mrr", 0.0)
        advice = "the model is no better than the baseline: give it more triples, more time or other settings"
        return [advice] if test and test["mrr"] <= popular else []
    advice = "give it more labels, more time or other settings"
    control = metrics.get("facts", {}).get("test", {})
    if control and test["accuracy"] < control["accuracy"]:
        found.append(f"the model is no better than the regression on counted facts: {advice}")
    matrix = (test or metrics["valid"]).get("confusion", [])
    given = [name for name, column in zip(metrics["classes"], zip(*matrix, strict=True), strict=False) if any(column)]
    if len(given) == 1 and sum(any(row) for row in matrix) > 1:
        items = f"all {sum(map(sum, matrix)):,} {'test' if test else 'validation'} items"
        found.append(f"{items} are predicted as '{printable(given[0])}': {advice}")
    return found


def tell(run: Run) -> None:
    """Print the doubts about a run on stderr."""
    for doubt in doubts(run.metrics):
        err.print(f"note: {doubt}")
