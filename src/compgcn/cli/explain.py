"""The command that shows what a prediction rests on: `explain`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from compgcn.cli import console
from compgcn.cli.console import Device, Json, RunFolder, out, plain_table, told_apart
from compgcn.cli.predict import Facts, opened_run
from compgcn.data.columns import counted

if TYPE_CHECKING:
    from compgcn.data import GraphCollection, KnowledgeGraph
    from compgcn.run import Explanation


_BAR = 12  # characters
_WEIGHED = {  # by the method: which facts, and how
    "exact": "that the prediction depends on, left out one by one",
    "gradient": "whose messages reach the prediction, by the gradient; what others do through degrees is not listed",
}


class How(StrEnum):
    """The ways to tell what a fact contributes."""

    auto = "auto"
    exact = "exact"
    gradient = "gradient"


def explain(
    run: RunFolder,
    head: Annotated[str, typer.Argument(help="The head of the fact, by id or name.", show_default=False)],
    relation: Annotated[str, typer.Argument(help="Its relation.", show_default=False)],
    tail: Annotated[str, typer.Argument(help="Its tail.", show_default=False)],
    top: Annotated[int, typer.Option(help="How many facts.", min=1)] = 5,
    method: Annotated[
        How, typer.Option(help="Leave out every fact in turn, take the gradient, or choose by the work there is.")
    ] = How.auto,
    facts: Facts = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Show which facts carried a prediction.

    Each has what the score would lose without it.

    Example: compgcn explain runs/world-compgcn-distmult-0 France borders Spain
    """
    opened = opened_run(run, device, facts)
    found = opened.explain(head, relation, tail, top, method=method.value)
    console.tell(opened)
    if as_json:
        rows = [
            {"rank": rank, **fact._asdict(), "itself": found.is_itself(fact)}
            for rank, fact in enumerate(found.facts, 1)
        ]
        out.print_json(json.dumps({**found._asdict(), "facts": rows}))
        return
    out.print(_table(f"{head} - {relation} - {tail}", found, opened.data))
    known = f"known, in {found.known}" if found.known else "new"
    out.print(f"score {found.score:.4f}, probability {found.probability:.4f}, {known}")
    out.print(f"{len(found.facts):,} of {counted(found.edges, 'fact')} {_WEIGHED[found.method]}")


def _table(question: str, found: Explanation, data: KnowledgeGraph | GraphCollection) -> Table:
    """The facts with bars to scale, those that speak against the prediction to the left."""
    table = plain_table("rank>", "fact", "contribution>", "against>", "for")
    table.title, table.title_justify = question, "left"
    most = max((abs(fact.contribution) for fact in found.facts), default=0.0) or 1.0
    for rank, fact in enumerate(found.facts, 1):
        text = " - ".join(told_apart(fact, data))
        bar = "█" * max(1, round(_BAR * abs(fact.contribution) / most))
        sides = ("", bar) if fact.contribution >= 0 else (bar, "")
        mark = " (itself)" if found.is_itself(fact) else ""
        table.add_row(str(rank), text + mark, f"{fact.contribution:+.4f}", *sides)
    return table
