"""The command `evaluate`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from compgcn.cli.answers import Graph, opened_run
from compgcn.cli.console import Device, Json, Plot, RunFolder, out, progress, show_json, show_metrics, show_table
from compgcn.errors import InputError
from compgcn.run.plots import calibration, draw_report, save

if TYPE_CHECKING:
    from pathlib import Path

    from compgcn.answers.calibrate import Reliability, Scaling
    from compgcn.run.run import Run

FIGURES = ("accuracy>", "macro F1>", "log likelihood>")
_MATRIX = 12  # the most classes of a confusion matrix that is printed


def evaluate(
    run: RunFolder,
    split: Annotated[str | None, Option(help="train, valid or test; by default the one the run reports on.")] = None,
    by: Annotated[str | None, Option(help="Split the metrics by relation, category, side or class.")] = None,
    plot: Plot = None,
    graph: Graph = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Rank the triples of a split, or compare classes with labels.

    Ranks are filtered by all splits, and ties get their mean rank. With --graph, the model sees the
    train split of that graph; a single file is split as for training.
    The category of a relation is 1-1, 1-N, N-1 or N-N; N is a side with 1.5 or more entities on average in train.

    Example: compgcn evaluate runs/world-compgcn-distmult-0 --by relation
    """
    from compgcn.answers.links import Links

    opened = opened_run(run, device, graph=graph, divide=True)
    found = opened.answers
    which = split or found.reported
    with progress("ranking") as notify:  # an unknown part or split is refused
        report = found.evaluate(which, by, notify) if isinstance(found, Links) else found.evaluate(which, by)
    if not report:
        raise InputError(f"the {which} split of '{graph or run}' is empty; give another --split")
    if by == "relation":
        report = dict(sorted(report.items(), key=lambda item: -item[1]["triples"]))
    if plot is not None:
        _draw(opened, which, plot)
    if as_json:
        show_json(report)
        return
    if opened.config.classifier.protocol is None:
        _show_links(opened, report, which, by)
    else:
        if split is None and which != "test":
            protocol = opened.config.classifier.protocol
            out.print(f"the protocol '{protocol}' reports on {which}, so these are its metrics")
        _show_classes(report, which, by)
    if plot is not None:
        out.print(f"the figure is {plot}")


def _show_links(run: Run, report: dict[str, Any], split: str, by: str | None) -> None:
    from compgcn.tasks.ranking import summary

    title = f"{split}, filtered, realistic ranks"
    if by == "side":
        show_metrics(title, report)
    elif by is not None:
        names = {text: _name(run, text) if by == "relation" else text for text in report}
        show_metrics(title, {f"{names[text]} ({part['triples']:,})": part for text, part in report.items()})
    else:
        rows = {"both sides": report, "head": report["head"], "tail": report["tail"]}
        rows |= {f"{ties} ranks": report[ties] for ties in ("optimistic", "pessimistic")}
        rows["popularity baseline"] = summary(run.ranker.popular(run.ranker.splits[split]))
        show_metrics(title, rows)
        _show_calibration(run, split)


def _name(run: Run, relation: str) -> str:
    """Return the name of a relation, with its id where relations share the name."""
    relations = run.data.relations
    name = relations.names[relations.index(relation)]
    return f"{name} ({relation})" if name in relations.shared else name


def _show_calibration(run: Run, split: str) -> None:
    """Print the expected calibration error of the ten best answers to a query, and of the first alone."""
    from compgcn.answers.calibrate import calibration_error

    given, scaling = _reliability(run, split)
    for what, some in (("the ten best to a query", given), ("the first to each", given.where(given.first))):
        if not len(some.right):
            return
        text = f"{calibration_error(some.bins()):.4f}"
        if scaling is not None:
            text += f" before, {calibration_error(some.bins(scaling)):.4f} after calibration on valid"
        out.print(f"expected calibration error {text} (of {len(some.right):,} answers, {what})")


def _reliability(run: Run, split: str) -> tuple[Reliability, Scaling | None]:
    """Return the ten best entities for each query of a split, and their calibration."""
    from compgcn.answers.links import Links, reliability

    links = run.answers
    assert isinstance(links, Links)
    return reliability(links, split), links.scalings.get("entities")


def figures(name: str, report: dict[str, Any]) -> tuple[str, ...]:
    """Return a row of a table under `FIGURES`: the metrics of a classification."""
    accuracy = f"{100 * report['accuracy']:.1f}"
    if "folds" in report:
        name += f", mean ± sd of {len(report['folds'])} folds"
        accuracy += f" ± {100 * report['accuracy_sd']:.1f}"
    return name, accuracy, f"{report['macro_f1']:.4f}", f"{report['log_likelihood']:.4f}"


def _show_classes(report: dict[str, Any], split: str, by: str | None) -> None:
    """Print the metrics as a whole, by class, and the confusion matrix."""
    if by is None:
        show_table(("", *FIGURES), [figures(split, report)])
    classes = report["by_class"] if by is None else report
    rows = [
        (name, *(f"{row[key]:.4f}" for key in ("precision", "recall", "f1")), f"{row['items']:,}")
        for name, row in classes.items()
    ]
    show_table(("class", "precision>", "recall>", "F1>", "items>"), rows)
    if by is None and len(classes) <= _MATRIX:
        matrix = zip(classes, report["confusion"], strict=True)
        rows = [(name, *(f"{count:,}" for count in counts)) for name, counts in matrix]
        show_table(("true, predicted as", *(f"{name}>" for name in classes)), rows)


def _draw(run: Run, split: str, path: Path) -> None:
    """Draw the reliability diagram of a link predictor, or the report of a classification."""
    from compgcn.answers.calibrate import calibration_error

    title = f"{run.data.name}  ·  {run.model_name}  ·  {split}"
    if run.config.classifier.protocol is None:
        given, scaling = _reliability(run, split)
        found = {"as trained": given.bins()} | ({"calibrated on valid": given.bins(scaling)} if scaling else {})
        named = {f"{name}, error {calibration_error(bins):.3f}": bins for name, bins in found.items()}
        save([partial(calibration, found=named)], title, path)
        return
    classes = run.classes
    targets = classes.items.targets.cpu().numpy()
    vectors = classes.vectors().float().cpu().numpy()
    points = vectors[targets >= 0], targets[targets >= 0]
    draw_report(title, run.evaluate(split), classes.classes, points, path)
