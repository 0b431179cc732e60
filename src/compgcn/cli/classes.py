"""What the commands show of a classification."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from compgcn.cli.console import out
from compgcn.cli.doubts import doubts
from compgcn.cli.tables import plain_table, printable
from compgcn.plots.classification import draw_report

if TYPE_CHECKING:
    from compgcn.answers.classes import Classified
    from compgcn.run import Run

_FIGURES = ("accuracy>", "macro F1>", "log likelihood>")
_MATRIX = 12  # classes up to which the confusion matrix is printed


def show_result(run: Run) -> None:
    """Accuracy and macro-F1 of what the protocol reports, named."""
    metrics = run.metrics
    baseline = run.config.classifier.baseline
    what = f"protocol '{metrics['protocol']}'"
    table = plain_table(what if baseline is None else f"baseline '{baseline}', {what}", *_FIGURES)
    for split, name in (("valid", "validation"), ("test", "test")):
        if metrics[split]:
            _add(table, name, metrics[split])
    if "facts" in metrics:
        _add(table, "test, regression on counted facts", metrics["facts"]["test"])
    if metrics["valid"] or metrics["test"]:
        out.print(table)
    else:
        out.print(f"{table.columns[0].header}: no label was held out for validation or test, so there are no figures")
    for doubt in doubts(metrics):
        out.print(doubt)
    if metrics["protocol"] == "paper":
        out.print("the folds that chose the epoch are those reported: a validation figure, as in the paper")
    if "candidate" in metrics:
        chosen = sum(fold["candidate"] == metrics["candidate"] for fold in metrics["test"]["folds"])
        out.print(f"chosen in {chosen} of {len(metrics['test']['folds'])} folds, and kept: {metrics['candidate']}")
    epochs = f"epochs {metrics['best_epoch']}, " if metrics["best_epoch"] else ""  # what is fitted once has none
    out.print(f"{epochs}run folder {run.path}")


def _add(table: Table, name: str, report: dict[str, Any]) -> None:
    accuracy = f"{100 * report['accuracy']:.1f}"
    if "folds" in report:
        name += f", mean ± sd of {len(report['folds'])} folds"
        accuracy += f" ± {100 * report['accuracy_sd']:.1f}"
    table.add_row(name, accuracy, f"{report['macro_f1']:.4f}", f"{report['log_likelihood']:.4f}")


def show_report(report: dict[str, Any], split: str, by: str | None) -> None:
    """The report on a split: in all, by class, and which was taken for which."""
    classes = report if by is not None else report["by_class"]
    if by is None:
        table = plain_table("", *_FIGURES)
        _add(table, split, report)
        out.print(table)
    table = plain_table("class", "precision>", "recall>", "F1>", "items>")
    for name, row in classes.items():
        cells = [f"{row[key]:.4f}" for key in ("precision", "recall", "f1")]
        table.add_row(printable(name), *cells, f"{row['items']:,}")
    out.print(table)
    if by is None and len(classes) <= _MATRIX:
        table = plain_table("true, predicted as", *(f"{printable(name)}>" for name in classes))
        for name, counts in zip(classes, report["confusion"], strict=True):
            table.add_row(printable(name), *(f"{count:,}" for count in counts))
        out.print(table)


def show_classes(answers: Sequence[Classified], known_as: str, note: str) -> None:
    """The class of each item, and under `known_as` the one it is known to have; and what the probabilities are."""
    table = plain_table("name", "class", "probability>", known_as)
    table.caption, table.caption_justify = note, "left"
    for answer in answers:
        known = "-" if answer.known is None else printable(answer.known)
        table.add_row(printable(answer.name), printable(answer.label), f"{answer.probability:.4f}", known)
    out.print(table)


def draw(run: Run, split: str, report: dict[str, Any], path: Path) -> None:
    """The report on a split as a figure."""
    answers = run.classes
    targets = answers.items.targets.cpu().numpy()
    labelled = targets >= 0
    points = answers.vectors().float().cpu().numpy()[labelled], targets[labelled]
    title = f"{run.data.name}  ·  {run.model_name}  ·  {split}"
    draw_report(title, report, answers.classes, points, path)
