"""The commands `discover`, `explain` and `similar`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, cast

from typer import Argument, Option

from compgcn.cli.console import (
    Device,
    Json,
    RunFolder,
    To,
    calibration_note,
    out,
    progress,
    show_table,
    tell,
    told_apart,
)
from compgcn.cli.predict import Facts, Graph, opened_run
from compgcn.data import KnowledgeGraph
from compgcn.data.columns import counted
from compgcn.errors import InputError

if TYPE_CHECKING:
    from compgcn.answers.explain import Method
    from compgcn.run import Run

_BAR = 12  # characters of the longest bar
_WEIGHED = {
    "exact": "that the prediction depends on, left out one by one",
    "gradient": "whose messages reach the prediction, by the gradient; effects through degrees are not listed",
}
_TRIED = "with the largest gradients, left out one by one; paths are by the gradient"  # of a conditional model


def discover(
    run: RunFolder,
    relation: Annotated[str | None, Option(help="Only facts of this relation, by id or name.")] = None,
    top: Annotated[int, Option(help="How many facts.", min=1)] = 100,
    per_relation: Annotated[int | None, Option(help="The most facts of each relation.", min=1)] = None,
    all_heads: Annotated[bool, Option("--all-heads", help="Ask every entity, not only likely heads.")] = False,
    to: To = None,
    graph: Graph = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """List the most probable facts that are in no split.

    The model predicts the tails of every head of a relation, and of similar entities that have no tail yet.

    Example: compgcn discover runs/world-compgcn-distmult-0 --relation borders --top 20
    """
    from compgcn.answers.discover import SCHEMA
    from compgcn.answers.rows import check_table, write_rows

    if to is not None:
        check_table(to)
    opened = opened_run(run, device, graph=graph)
    with progress("asking") as notify:
        found = opened.discover(relation, top, per_relation, all_heads=all_heads, notify=notify)
    tell(opened)
    rows = [(rank, *fact) for rank, fact in enumerate(found, 1)]
    if to is not None:
        write_rows(to, SCHEMA, [rows])
    if as_json:
        out.print_json(data=[dict(zip(SCHEMA.names, row, strict=True)) for row in rows])
    elif to is not None:
        out.print(f"{counted(len(found), 'fact')} written to {to}\n{_discovery_note(opened)}")
    elif found:
        shown = [
            (str(rank), *told_apart(fact, opened.data), f"{fact.probability:.4f}") for rank, fact in enumerate(found, 1)
        ]
        show_table(("rank>", "head", "relation", "tail", "probability>"), shown, caption=_discovery_note(opened))
    else:
        out.print("no new facts")


def _discovery_note(run: Run) -> str:
    """Return the meaning of the probabilities."""
    note = calibration_note(run, "discoveries")
    if run.calibrated("discoveries"):
        return f"{note}: the share of such facts that it held"
    if isinstance(run.data, KnowledgeGraph) and not len(run.data.valid):
        answers = calibration_note(run)
        return f"{answers}: those of the answers, since there are no validation facts to calibrate discoveries on"
    return f"{note}: those of the answers, times how often such heads of the relation lacked a tail that valid has"


def explain(
    run: RunFolder,
    head: Annotated[str, Argument(help="The head of the fact, by id or name.")],
    relation: Annotated[str, Argument(help="Its relation.")],
    tail: Annotated[str, Argument(help="Its tail.")],
    top: Annotated[int, Option(help="How many facts, and how many paths.", min=1)] = 5,
    method: Annotated[
        str, Option(help="exact leaves out each fact in turn, gradient estimates, auto chooses by the work.")
    ] = "auto",
    facts: Facts = None,
    graph: Graph = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Show the facts that carried a prediction, and the paths if the model is conditioned on the query.

    A contribution is the part of the score that would be lost without the fact. A path leads from the head to the tail,
    as in Ajman -in country-> United Arab Emirates -has time zone-> Asia/Dubai.

    Example: compgcn explain runs/world-compgcn-distmult-0 France borders Spain
    """
    opened = opened_run(run, device, facts, graph)
    found = opened.explain(head, relation, tail, top, method=cast("Method", method))
    tell(opened)
    if as_json:
        rows = [
            {"rank": rank, **fact._asdict(), "itself": found.is_itself(fact)}
            for rank, fact in enumerate(found.facts, 1)
        ]
        paths = [
            {"rank": rank, "importance": path.importance, "steps": [step._asdict() for step in path.steps]}
            for rank, path in enumerate(found.paths, 1)
        ]
        out.print_json(data={**found._asdict(), "facts": rows, "paths": paths})
        return
    title = f"{head} - {relation} - {tail}"
    if found.paths:
        names = partial(told_apart, data=opened.data)
        ways = [(str(rank), path.arrows(names), f"{path.importance:+.4f}") for rank, path in enumerate(found.paths, 1)]
        show_table(("rank>", "path", "importance>"), ways, title)
    most = max((abs(fact.contribution) for fact in found.facts), default=0.0) or 1.0
    shown = []
    for rank, fact in enumerate(found.facts, 1):
        text = " - ".join(told_apart(fact, opened.data)) + " (itself)" * found.is_itself(fact)
        bar = "█" * max(1, round(_BAR * abs(fact.contribution) / most))
        bars = ("", bar) if fact.contribution >= 0 else (bar, "")
        shown.append((str(rank), text, f"{fact.contribution:+.4f}", *bars))
    show_table(("rank>", "fact", "contribution>", "against>", "for"), shown, "" if found.paths else title)
    conditional = opened.model_name == "conditional"
    if conditional and not found.paths:
        out.print(
            f"no path of at most {counted(len(opened.config.encoder.dims) - 1, 'fact')} leads from {head} to {tail}"
        )
    known = f"known, in {found.known}" if found.known else "new"
    out.print(f"score {found.score:.4f}, probability {found.probability:.4f}, {known}")
    how = _TRIED if conditional and found.method == "exact" else _WEIGHED[found.method]
    out.print(f"{len(found.facts):,} of {counted(found.edges, 'fact')} {how}")
    if found.hidden:
        out.print(f"{counted(found.hidden, 'fact')} hidden, as in training: the fact does not explain itself")


def similar(
    run: RunFolder,
    name: Annotated[str, Argument(metavar="NAME", help="An entity, or a graph, by id or name.")],
    top: Annotated[int, Option(help="How many neighbours.", min=1)] = 10,
    relation: Annotated[bool, Option("--relation", help="NAME is a relation; find other relations.")] = False,
    facts: Facts = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """List the nearest neighbours of an entity or a relation.

    Neighbours have the highest cosine similarity of the encoder's vectors.

    Example: compgcn similar runs/world-compgcn-distmult-0 France --top 5
    """
    opened = opened_run(run, device, facts)
    try:
        found = opened.similar(name, top, "relation" if relation else "entity")
    except InputError:
        relations = opened.data.relations
        if not relation and name in (*relations.ids, *relations.names):
            raise InputError(f"'{name}' is a relation; add --relation") from None
        raise
    if as_json:
        out.print_json(data=[{"rank": rank, **one._asdict()} for rank, one in enumerate(found, 1)])
        return
    with_ids = any(one.entity != one.name for one in found)
    rows = [
        (str(rank), one.name, *([one.entity] * with_ids), f"{one.similarity:.4f}") for rank, one in enumerate(found, 1)
    ]
    show_table(("rank>", "name", *(["id"] * with_ids), "similarity>"), rows)
