"""Tables for a terminal. They are made here and printed by the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from compgcn.data import GraphCollection, KnowledgeGraph

if TYPE_CHECKING:
    from compgcn.run import Contribution, Discovery, Kind, Prediction, Run, Scored

Dataset = KnowledgeGraph | GraphCollection

METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")


def plain_table(*columns: str) -> Table:
    """A table without lines; a column named with a > at its end is of numbers."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name.removesuffix(">"), justify="right" if name.endswith(">") else "left")
    return table


def printable(text: str) -> str:
    """A name without the control characters that would move the cursor or colour the screen."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def metrics_table(first: str) -> Table:
    """A table with a column for each metric."""
    return plain_table(first, *(f"{name.upper()}>" for name in METRICS))


def add_metrics(table: Table, label: str, metrics: dict[str, Any]) -> None:
    """A row of it."""
    cells = [
        "-" if name not in metrics else f"{metrics[name]:.1f}" if name == "mr" else f"{metrics[name]:.4f}"
        for name in METRICS
    ]
    table.add_row(printable(label), *cells)


def calibration_note(run: Run, kind: Kind | None = None) -> str:
    """What the probabilities of a kind of answer are; without one, of entities or classes."""
    split = run.calibrated(kind)
    if split is None:
        return "probabilities not calibrated"
    # Validation has no newcomers, so that how right answers about them are was never compared.
    return f"probabilities calibrated on {'entities that were trained on' if run.newcomers else split}"


def predictions_table(question: str, answers: Sequence[Prediction], note: str) -> Table:
    """Answers as a table; ids beside names where they differ."""
    with_ids = any(answer.entity != answer.name for answer in answers)
    table = plain_table("rank>", "name", *(["id"] if with_ids else []), "probability>", "in the data")
    table.title, table.title_justify = question, "left"
    table.caption, table.caption_justify = note, "left"
    for rank, answer in enumerate(answers, 1):
        ids = [printable(answer.entity)] if with_ids else []
        known = f"yes, in {answer.known}" if answer.known else "no, new"
        table.add_row(str(rank), printable(answer.name), *ids, f"{answer.probability:.4f}", known)
    return table


def told_apart(fact: Discovery | Contribution | Scored, data: Dataset) -> list[str]:
    """Head, relation and tail by their names; an id in brackets after a name that others bear too."""
    entities = data.entities.shared if isinstance(data, KnowledgeGraph) else frozenset[str]()
    shared = (entities, data.relations.shared, entities)
    parts = zip(fact[:3], fact[3:6], shared, strict=True)
    return [printable(f"{name} ({text})" if name in names else name) for text, name, names in parts]


def discoveries_table(facts: Sequence[Discovery], data: Dataset, note: str) -> Table:
    """Facts as a table."""
    table = plain_table("rank>", "head", "relation", "tail", "probability>")
    table.caption, table.caption_justify = note, "left"
    for rank, fact in enumerate(facts, 1):
        table.add_row(str(rank), *told_apart(fact, data), f"{fact.probability:.4f}")
    return table


def scored_table(facts: Sequence[Scored], data: Dataset, note: str) -> Table:
    """Facts that were given as a table."""
    table = plain_table("head", "relation", "tail", "probability>", "head rank>", "tail rank>", "known")
    table.caption, table.caption_justify = note, "left"
    for fact in facts:
        ranks = (f"{rank:,.1f}".removesuffix(".0") for rank in (fact.head_rank, fact.tail_rank))
        known = f"in {fact.known}" if fact.known else "no"
        table.add_row(*told_apart(fact, data), f"{fact.probability:.4f}", *ranks, known)
    return table
