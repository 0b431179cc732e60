"""The commands that put a trained model to work: `evaluate` and `predict`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from compgcn.cli import console
from compgcn.cli.console import (
    Device,
    Json,
    RunFolder,
    Split,
    add_metrics,
    calibration_note,
    doubts,
    err,
    metrics_table,
    out,
    plain_table,
    predictions_table,
    printable,
    scored_table,
)
from compgcn.data import GraphCollection, collection
from compgcn.data.columns import counted
from compgcn.errors import InputError
from compgcn.run.plots import check_figure, draw_reliability, draw_report

if TYPE_CHECKING:
    from compgcn.answers.calibrate import Bin, Reliability, Scaling
    from compgcn.answers.classes import Classified
    from compgcn.run import Kind, Run


def from_file(
    run: Run,
    queries: Path,
    to: Path | None,
    top: int,
    new: bool,
    plausible: bool,
    doubtful: bool,
    as_json: bool,
) -> None:
    """Answer the queries of a file, or score its facts."""
    from compgcn.answers.score import holds_facts

    if not holds_facts(queries):
        if doubtful:
            raise InputError(f"--doubtful puts facts in order, and '{queries}' asks for what is missing; leave it out")
        _predict_file(run, queries, to, top, new, plausible, as_json)
        return
    if given := [option for option, value in {"--new": new, "--plausible": plausible}.items() if value]:
        what = f"'{queries}' holds facts, which are scored as they are"
        raise InputError(f"{what}, and {' and '.join(given)} chooses among answers; leave it out")
    _score_file(run, queries, to, top, doubtful, as_json)


def _predict_file(
    run: Run, queries: Path, to: Path | None, top: int, new: bool, plausible: bool, as_json: bool
) -> None:
    if to is None:
        raise InputError("--queries needs a file to write the answers to: give --to answers.parquet, .csv or .tsv")
    with progress("answering") as notify:
        written = run.predict_file(queries, to, top, new=new, plausible=plausible, notify=notify)
    if as_json:
        out.print_json(json.dumps({**written._asdict(), "file": str(to)}))
    else:
        out.print(f"{counted(written.answers, 'answer')} to {counted(written.queries, 'query')} written to {to}")
        notes = {kind: calibration_note(run, kind) for kind in ("entities", "relations")}
        differ = len(set(notes.values())) > 1
        for kind, note in notes.items() if differ else [("", notes["entities"])]:
            out.print(f"{kind}: {note}" if differ else note)


def _score_file(run: Run, facts: Path, to: Path | None, top: int, doubtful: bool, as_json: bool) -> None:
    """All of the facts to another file, or the first on the screen."""
    note = calibration_note(run, "entities")
    with progress("scoring") as notify:
        if to is not None:
            written = run.score_file(facts, to, doubtful=doubtful, notify=notify)
        else:
            found = run.score(facts, doubtful=doubtful, notify=notify)
    if as_json:
        shown: object = (
            {"facts": written, "file": str(to)} if to is not None else [one._asdict() for one in found[:top]]
        )
        out.print_json(json.dumps(shown))
    elif to is not None:
        out.print(f"{counted(written, 'fact')} written to {to}")
        out.print(note)
    else:
        rest = f"; {counted(len(found) - top, 'more fact')}, see --top and --to" if len(found) > top else ""
        out.print(scored_table(found[:top], run.data, note + rest))


def write_classes(run: Run, found: Sequence[Classified], to: Path, as_json: bool) -> None:
    """Write the classes of nodes or graphs to a table."""
    import pyarrow as pa

    from compgcn.answers.classes import Classified
    from compgcn.answers.rows import write_rows

    types = {"probability": pa.float64()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in Classified._fields])
    write_rows(to, schema, [[tuple(answer) for answer in found]])
    if as_json:
        out.print_json(json.dumps({"answers": len(found), "file": str(to)}))
    else:
        out.print(f"{counted(len(found), 'class')} written to {to}")
        out.print(calibration_note(run))


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal; nothing elsewhere."""
    if not err.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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


def draw_classes(run: Run, split: str, report: dict[str, Any], path: Path) -> None:
    """The report on a split as a figure."""
    answers = run.classes
    targets = answers.items.targets.cpu().numpy()
    labelled = targets >= 0
    points = answers.vectors().float().cpu().numpy()[labelled], targets[labelled]
    title = f"{run.data.name}  ·  {run.model_name}  ·  {split}"
    draw_report(title, report, answers.classes, points, path)


def show(run: Run, split: str) -> None:
    """The expected calibration error on a split, of the model's own probabilities and of the calibrated ones.

    Of the ten best answers to a query, and of the first alone: most of ten are wrong and easily known to be.
    """
    from compgcn.answers.calibrate import calibration_error

    given, scaling = _shown(run, split)
    for what, some in (("the ten best to a query", given), ("the first to each", given.where(given.first))):
        if not len(some.right):
            return
        text = f"{calibration_error(some.bins()):.4f}"
        if scaling is not None:
            text += f" before, {calibration_error(some.bins(scaling)):.4f} after calibration on valid"
        out.print(f"expected calibration error {text} (of {len(some.right):,} answers, {what})")


def draw_bins(run: Run, split: str, path: Path) -> None:
    """The reliability diagram of a split."""
    found = _bins(run, split)
    if not found:
        raise InputError(f"the {split} split of the run {run.path} is empty, so there is nothing to draw_reliability")
    draw_reliability(f"{run.data.name}  ·  {run.model_name}  ·  {split}", found, path)


def _bins(run: Run, split: str) -> dict[str, list[Bin]]:
    """By what the probabilities are."""
    given, scaling = _shown(run, split)
    found = {"as trained": given.bins()} if len(given.right) else {}
    if found and scaling is not None:
        found["calibrated on valid"] = given.bins(scaling)
    return found


def _shown(run: Run, split: str) -> tuple[Reliability, Scaling | None]:
    """The ten best entities for each query of a split, and their calibration."""
    from compgcn.answers.links import Links, reliability

    links = run.answers
    assert isinstance(links, Links)
    return reliability(links, split), links.scalings.get("entities")


_TOP = 10  # answers that are shown where nothing is said


class Part(StrEnum):
    """How `evaluate` can split its metrics."""

    relation = "relation"
    category = "category"
    side = "side"
    label = "class"


Facts = Annotated[
    Path | None,
    typer.Option(help="For links: a file of facts to answer with too, of new entities as well.", show_default=False),
]


def opened_run(path: Path, device: str, facts: Path | None = None) -> Run:
    from compgcn.run import open_run

    run = open_run(path, device)
    if not run.metrics:
        _ = run.task  # where it has no weights yet, that is all there is to say
        err.print(f"note: {path} is not finished; these are its best weights so far")
    if facts is None:
        return run
    larger = run.with_facts(facts)
    for note in larger.data.notes:
        err.print(f"note: {facts}: {printable(note)}")
    return larger


def evaluate(
    run: RunFolder,
    split: Annotated[
        Split | None,
        typer.Option(
            help="Which triples to rank, or which labels to compare with; by default what the run reports on.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        Part | None, typer.Option(help="Split the metrics by relation, category or side, or by class.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw how far to trust it: a .png, .pdf or .svg file.", metavar="FILE", show_default=False),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Rank the triples of a split, or see which classes were right.

    Ranks are filtered by all splits, with ties at their mean rank.
    Categories are by average tails per head and heads per tail in train, from 1.5 on N.

    Example: compgcn evaluate runs/world-compgcn-distmult-0 --by relation
    """
    if plot is not None:
        check_figure(plot)
    opened = opened_run(run, device)
    which = split.value if split is not None else opened.answers.reported
    report = opened.evaluate(which, by.value if by else None)
    if by is Part.relation:
        report = dict(sorted(report.items(), key=lambda item: -item[1]["triples"]))
    if plot is not None:
        _draw(opened, which, plot)
    if as_json:
        out.print_json(json.dumps(report))
        return
    _show(opened, report, which, by, asked=split is not None)
    if plot is not None:
        out.print(f"the figure is {plot}")


def _draw(run: Run, split: str, plot: Path) -> None:
    if run.config.classifier.protocol is None:
        draw_bins(run, split, plot)
        return
    whole = run.evaluate(split)
    if not whole:
        raise InputError(f"the run {run.path} has no report on {split} to draw; try another --split")
    draw_classes(run, split, whole, plot)


def _show(run: Run, report: dict[str, Any], split: str, by: Part | None, asked: bool) -> None:
    """A report on a split, which was asked for or is the one that the run reports on."""
    protocol = run.config.classifier.protocol
    if not report:
        out.print(f"the {split} split is empty{_elsewhere(run)}")
    elif protocol is None:
        if by is Part.relation:
            report = {_name(run, text): part for text, part in report.items()}
        _show_ranks(report, split, by)
        if by is None:
            show(run, split)
    else:
        if not asked and split != "test":
            out.print(f"the protocol '{protocol}' reports on {split}, so these are the figures of {split}")
        show_report(report, split, by.value if by else None)


def _elsewhere(run: Run) -> str:
    """Which splits a run has figures of, for one who asked for another."""
    known = [split for split in ("valid", "test") if run.metrics.get(split)]
    return f"; the run has figures of {' and '.join(known)}" if known else ""


def _name(run: Run, relation: str) -> str:
    """What a relation of this id is called; the id beside it where others are called so too."""
    relations = run.data.relations
    name = relations.names[relations.index(relation)]
    return f"{name} ({relation})" if name in relations.shared else name


def _show_ranks(report: dict[str, Any], split: str, by: Part | None) -> None:
    table = metrics_table(f"{split}, filtered, realistic ranks")
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
        str | None,
        typer.Option(
            help="The relation, by id or name; left out, the relations of (head, ?, tail) are predicted.",
            show_default=False,
        ),
    ] = None,
    head: Annotated[str | None, typer.Option(help="Predict the tails of (head, relation, ?).")] = None,
    tail: Annotated[str | None, typer.Option(help="Predict the heads of (?, relation, tail).")] = None,
    top: Annotated[
        int | None,
        typer.Option(help="How many answers; 10 by default, and all nodes to a file of classes.", min=1),
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Leave out the facts that stand in the data already.")] = False,
    plausible: Annotated[
        bool,
        typer.Option("--plausible", help="Leave out entities that train never has at that end of the relation."),
    ] = False,
    item: Annotated[
        list[str] | None, typer.Option(help="A node or a graph to classify, by id or name; may be repeated.")
    ] = None,
    graphs: Annotated[Path | None, typer.Option(help="Classify other graphs: a folder in the TU format.")] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="A file of heads, relations and tails, one of each line ? or empty; or of facts, to be scored.",
            metavar="FILE",
        ),
    ] = None,
    doubtful: Annotated[
        bool, typer.Option("--doubtful", help="Of a file of facts: the least believable first.")
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(help="With --queries, or of classes: a .parquet, .csv or .tsv file to write.", metavar="FILE"),
    ] = None,
    facts: Facts = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Complete a fact, or tell the class of nodes or graphs.

    Answers have their names, and whether they are known already.
    A run that classifies nodes, asked for nothing in particular, shows those without a label it is most certain of.

    A file of facts with no ? in it is scored: how probable each is, and its ranks.

    Example: compgcn predict runs/world-compgcn-distmult-0 --head France --relation borders --top 5

    Example: compgcn predict runs/world-compgcn-distmult-0 --queries facts.tsv --doubtful --top 20
    """
    if to is not None:
        from compgcn.train.storage import must_differ

        must_differ(to, queries=queries, facts=facts)
    opened = opened_run(run, device, facts)
    if opened.config.classifier.protocol is not None:
        asked = {
            "--relation": relation,
            "--head": head,
            "--tail": tail,
            "--new": new or None,
            "--plausible": plausible or None,
            "--queries": queries,
            "--doubtful": doubtful or None,
        }
        if wrong := [option for option, value in asked.items() if value is not None]:
            what = f"{' and '.join(wrong)} {'asks' if len(wrong) == 1 else 'ask'} for links"
            raise InputError(f"{what}, and {run} is a run of {opened.config.task}; name what to classify with --item")
        _classify(opened, item, graphs, top, to, as_json)
        console.tell(opened)
        return
    if item or graphs is not None:
        raise InputError(f"--item and --graphs ask for classes, and {run} predicts links; give --head and --relation")
    if queries is None and doubtful:
        raise InputError("--doubtful goes with --queries, a file of facts")
    if queries is None and to is None:
        _complete(opened, head, relation, tail, top or _TOP, new, plausible, as_json)
        console.tell(opened)
        return
    if queries is None:
        raise InputError("--to goes with --queries, a file with heads, relations and tails in place of the options")
    options = {"--head": head, "--relation": relation, "--tail": tail}
    if given := [option for option, value in options.items() if value is not None]:
        what = "what is asked stands in the file of --queries"
        raise InputError(f"{what}, so leave out {' and '.join(given)}, or ask without --queries and --to")
    from_file(opened, queries, to, top or _TOP, new, plausible, doubtful, as_json)
    console.tell(opened)


def _complete(
    run: Run,
    head: str | None,
    relation: str | None,
    tail: str | None,
    top: int,
    new: bool,
    plausible: bool,
    as_json: bool,
) -> None:
    """The answers to one query."""
    answers = run.predict(head=head, relation=relation, tail=tail, top=top, new=new, plausible=plausible)
    if as_json:
        out.print_json(json.dumps([{"rank": rank, **answer._asdict()} for rank, answer in enumerate(answers, 1)]))
        return
    vocabularies = (run.data.entities, run.data.relations, run.data.entities)  # type: ignore[union-attr]
    given = zip((head, relation, tail), vocabularies, strict=True)
    rows = [None if text is None else known.index(text) for text, known in given]
    parts = ["?" if row is None else printable(vocabularies[place].names[row]) for place, row in enumerate(rows)]
    question = " - ".join(parts)
    kind: Kind = "relations" if relation is None else "entities"
    out.print(predictions_table(question, answers, calibration_note(run, kind)))
    if run.calibrated(kind) and any(answer.known is None for answer in answers) and _is_answered(run, rows):
        out.print("an answer is known already: the probability of a new one holds if another is still missing")


def _is_answered(run: Run, rows: list[int | None]) -> bool:
    """Whether the data have a fact of these rows, None standing for any."""
    places = [place for place, row in enumerate(rows) if row is not None]
    wanted = [row for row in rows if row is not None]
    splits = run.data.splits.values()  # type: ignore[union-attr]
    return any(bool((triples[:, places] == wanted).all(axis=1).any()) for triples in splits)


def _classify(
    run: Run, item: list[str] | None, graphs: Path | None, top: int | None, to: Path | None, as_json: bool
) -> None:
    """The classes of what is named; else of nodes without a label, those that are most certain, or in a file all."""
    if item is not None and graphs is not None:
        raise InputError("--item names what the run has and --graphs gives others; ask for one of them at a time")
    if item is None and graphs is None and isinstance(run.data, GraphCollection):
        raise InputError("name the graphs to classify with --item, or give a folder of others with --graphs")
    from compgcn.answers.rows import check_table

    table = None if to is None else check_table(to)
    found = run.classify(collection.read(graphs) if graphs is not None else item)
    total, others = None, 0
    if item is None and graphs is None:
        if not found:
            raise InputError("every node of this run has a label; name those to classify with --item")
        like = run.classes.alike()
        others, found = len(found), [answer for answer in found if answer.item in like] or found
        total, others = len(found), others - len(found)
        top = total if top is None and table is not None else top or _TOP
        found = sorted(found, key=lambda answer: -answer.probability)[:top]
    if table is not None:
        write_classes(run, found, table, as_json)
    elif as_json:
        out.print_json(json.dumps([answer._asdict() for answer in found]))
    else:
        show_classes(found, "in the data" if graphs is None else "true class", calibration_note(run))
    if total is not None and not as_json:
        if len(found) < total:
            out.print(f"the {len(found):,} most certain of {total:,} nodes without a label; --top N shows others")
        else:
            out.print(f"all {total:,} nodes without a label, the most certain first")
        if others:
            out.print(f"{others:,} more have other relations than those with a label; --item asks for one of them")
