"""The commands that put a trained model to work: `evaluate`, `predict` and `export`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compgcn.cli import classes
from compgcn.cli.console import Device, Json, RunFolder, Split, err, out
from compgcn.cli.tables import add_metrics, metrics_table, predictions_table
from compgcn.data import tu
from compgcn.errors import InputError
from compgcn.plots.figure import check_figure

if TYPE_CHECKING:
    from compgcn.run import Run


class Part(StrEnum):
    """How `evaluate` can split its metrics."""

    relation = "relation"
    category = "category"
    side = "side"
    label = "class"


def _open(path: Path, device: str) -> Run:
    from compgcn.run import open_run

    run = open_run(path, device)
    if not run.metrics:
        err.print(f"note: {path} is not finished; these are its best weights so far")
    return run


def evaluate(
    run: RunFolder,
    split: Annotated[Split, typer.Option(help="Which triples to rank, or which labels to compare with.")] = Split.test,
    by: Annotated[
        Part | None, typer.Option(help="Split the metrics by relation, category or side, or by class.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw a classification: a .png, .pdf or .svg file.", metavar="FILE", show_default=False),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Rank the triples of a split, filtered by all splits, ties at their mean rank; or see which classes were right.

    Categories are by average tails per head and heads per tail in train, from 1.5 on N.

    Example: compgcn evaluate runs/world-compgcn-distmult-0 --by relation
    """
    if plot is not None:
        check_figure(plot)
    opened = _open(run, device)
    report = opened.evaluate(split.value, by.value if by else None)
    if plot is not None:
        whole = opened.evaluate(split.value)
        if not whole:
            raise InputError(f"the run {run} has no report on {split.value} to draw; try another --split")
        classes.draw(opened, split.value, whole, plot)
    if as_json:
        out.print_json(json.dumps(report))
        return
    if not report:
        out.print(f"the {split.value} split is empty")
    elif opened.config.classifier.protocol is None:
        _show_ranks(report, split, by)
    else:
        classes.show_report(report, split.value, by.value if by else None)
    if plot is not None:
        out.print(f"the figure is {plot}")


def _show_ranks(report: dict[str, Any], split: Split, by: Part | None) -> None:
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


def predict(
    run: RunFolder,
    relation: Annotated[
        str | None, typer.Option(help="The relation, by id or name, of a link.", show_default=False)
    ] = None,
    head: Annotated[str | None, typer.Option(help="Predict the tails of (head, relation, ?).")] = None,
    tail: Annotated[str | None, typer.Option(help="Predict the heads of (?, relation, tail).")] = None,
    top: Annotated[int, typer.Option(help="How many answers.", min=1)] = 10,
    new: Annotated[bool, typer.Option("--new", help="Leave out the facts that stand in the data already.")] = False,
    item: Annotated[
        list[str] | None, typer.Option(help="A node or a graph to classify, by id or name; may be repeated.")
    ] = None,
    graphs: Annotated[Path | None, typer.Option(help="Classify other graphs: a folder in the TU format.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Complete a fact, or tell the class of nodes or graphs; with names, and what is known already.

    A run that classifies nodes, asked for nothing in particular, classifies those without a label.

    Example: compgcn predict runs/world-compgcn-distmult-0 --head France --relation borders --top 5
    """
    opened = _open(run, device)
    if opened.config.classifier.protocol is not None:
        if relation is not None or head is not None or tail is not None:
            raise InputError(f"{run} is a run of {opened.config.task}; name what to classify with --item")
        found = opened.classify(tu.read(graphs) if graphs is not None else item)
        if as_json:
            out.print_json(json.dumps([answer._asdict() for answer in found]))
        else:
            classes.show_classes(found)
        return
    answers = opened.predict(head=head, relation=relation, tail=tail, top=top, new=new)
    if as_json:
        out.print_json(json.dumps([{"rank": rank, **answer._asdict()} for rank, answer in enumerate(answers, 1)]))
        return
    question = f"{head} - {relation} - ?" if head is not None else f"? - {relation} - {tail}"
    out.print(predictions_table(question, answers))


def export(
    run: RunFolder,
    to: Annotated[Path, typer.Option(help="A .parquet or .tsv file.", show_default=False)],
    device: Device = "auto",
) -> None:
    """Write vectors with their ids and names: those of all entities and relations of a run that predicts links.

    One that classifies nodes writes those of all nodes, one that classifies graphs those of all graphs.

    Example: compgcn export runs/world-compgcn-distmult-0 --to embeddings.parquet
    """
    rows = _open(run, device).export(to)
    out.print(f"{rows:,} vectors written to {to}")
