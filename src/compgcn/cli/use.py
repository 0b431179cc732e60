"""The commands that put a trained model to work: `evaluate`, `predict` and `export`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compgcn.cli.console import Device, Json, RunFolder, Split, err, out
from compgcn.cli.tables import add_metrics, metrics_table, predictions_table

if TYPE_CHECKING:
    from compgcn.run import Run


class Part(StrEnum):
    """How `evaluate` can split its metrics."""

    relation = "relation"
    category = "category"
    side = "side"


def _open(path: Path, device: str) -> Run:
    from compgcn.run import open_run

    run = open_run(path, device)
    if not run.metrics:
        err.print(f"note: {path} is not finished; these are its best weights so far")
    return run


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
