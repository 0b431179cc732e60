"""The commands that put a trained model to work: `evaluate` and `predict`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compgcn.cli import bulk, classes, doubts, reliability
from compgcn.cli.console import Device, Json, RunFolder, Split, err, out
from compgcn.cli.tables import add_metrics, calibration_note, metrics_table, predictions_table, printable
from compgcn.data import GraphCollection, tu
from compgcn.errors import InputError
from compgcn.plots.figure import check_figure

if TYPE_CHECKING:
    from compgcn.run import Kind, Run


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
        reliability.draw(run, split, plot)
        return
    whole = run.evaluate(split)
    if not whole:
        raise InputError(f"the run {run.path} has no report on {split} to draw; try another --split")
    classes.draw(run, split, whole, plot)


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
            reliability.show(run, split)
    else:
        if not asked and split != "test":
            out.print(f"the protocol '{protocol}' reports on {split}, so these are the figures of {split}")
        classes.show_report(report, split, by.value if by else None)


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
        from compgcn.storage import must_differ

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
        doubts.tell(opened)
        return
    if item or graphs is not None:
        raise InputError(f"--item and --graphs ask for classes, and {run} predicts links; give --head and --relation")
    if queries is None and doubtful:
        raise InputError("--doubtful goes with --queries, a file of facts")
    if queries is None and to is None:
        _complete(opened, head, relation, tail, top or _TOP, new, plausible, as_json)
        doubts.tell(opened)
        return
    if queries is None:
        raise InputError("--to goes with --queries, a file with heads, relations and tails in place of the options")
    options = {"--head": head, "--relation": relation, "--tail": tail}
    if given := [option for option, value in options.items() if value is not None]:
        what = "what is asked stands in the file of --queries"
        raise InputError(f"{what}, so leave out {' and '.join(given)}, or ask without --queries and --to")
    bulk.from_file(opened, queries, to, top or _TOP, new, plausible, doubtful, as_json)
    doubts.tell(opened)


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
    found = run.classify(tu.read(graphs) if graphs is not None else item)
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
        bulk.write_classes(run, found, table, as_json)
    elif as_json:
        out.print_json(json.dumps([answer._asdict() for answer in found]))
    else:
        classes.show_classes(found, "in the data" if graphs is None else "true class", calibration_note(run))
    if total is not None and not as_json:
        if len(found) < total:
            out.print(f"the {len(found):,} most certain of {total:,} nodes without a label; --top N shows others")
        else:
            out.print(f"all {total:,} nodes without a label, the most certain first")
        if others:
            out.print(f"{others:,} more have other relations than those with a label; --item asks for one of them")
