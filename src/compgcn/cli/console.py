"""What speaks against a trained model as a whole: said when it is trained, and again when it is asked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints

import typer
from rich.console import Console
from rich.table import Table

from compgcn.data import GraphCollection, KnowledgeGraph
from compgcn.data.columns import counted

if TYPE_CHECKING:
    from compgcn.run import Contribution, Discovery, Kind, Prediction, Run, Scored


# Text is shown as it is: [red] and :cat: are ids like any other.
out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)

_FEW = 30  # validation triples below which a metric is mostly noise


class Split(StrEnum):
    """The splits of a data set."""

    train = "train"
    valid = "valid"
    test = "test"


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto for the best there is.")]


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as columns=[0,2,3]; may be repeated."),
]


def fail(message: str) -> NoReturn:
    """One sentence on stderr, exit code 1."""
    err.print(f"error: {message}")
    raise SystemExit(1)


def describe(data: KnowledgeGraph | GraphCollection, remarks: Sequence[str] = ()) -> None:
    """The statistics of a data set, and what was noticed while reading it or of what is to be done with it."""
    sizes = data.statistics()
    out.print(f"{data.name}: {headline(sizes)}")
    for note in (*data.notes, *remarks, *chance(sizes)):
        out.print(f"  note: {note}")


def chance(n: Mapping[str, int | float]) -> list[str]:
    """What is to be said of a data set of these sizes that has too little to validate links by."""
    if "classes" in n or n["valid"] >= _FEW:
        return []
    if not n["valid"]:
        return ["no validation triples: which epoch is best cannot be told, and the last one is kept"]
    return [f"only {counted(int(n['valid']), 'validation triple')}: which epoch is best is a matter of chance"]


def headline(n: Mapping[str, int | float]) -> str:
    """The sizes of a data set in one line."""
    if "graphs" in n:
        return (
            f"{_several(n, graphs='graph', nodes='node', edges='edge')} "
            f"({n['mean_nodes']:,.1f} and {n['mean_edges']:,.1f} a graph), "
            f"{_several(n, relations='relation', node_labels='node label', classes='class')}"
        )
    sizes = _several(n, entities="entity", relations="relation", triples="triple")
    if "classes" in n:
        labelled = ", ".join(f"{n[f'{split}_labels']:,} {split}" for split in Split)
        return f"{sizes}, {_several(n, classes='class')}, labelled nodes: {labelled}"
    return f"{sizes} ({n['train']:,} train, {n['valid']:,} valid, {n['test']:,} test)"


def _several(n: Mapping[str, int | float], **nouns: str) -> str:
    """Some of the sizes, each with its noun."""
    return ", ".join(counted(int(n[key]), noun) for key, noun in nouns.items())


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


def options_of(other: Callable[..., Any], without: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Give a command that ends in `**options` the parameters of another, before its own; those it has too are its own.

    Args:
        other: the command they are taken from.
        without: those that are not.
    """

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command).parameters
        hints = get_type_hints(other, include_extras=True) | get_type_hints(command, include_extras=True)
        taken = [p for name, p in inspect.signature(other).parameters.items() if name not in (*own, *without)]
        given = [p for p in own.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        both = [p.replace(annotation=hints[p.name]) for p in (*taken, *given)]
        both.sort(key=lambda p: p.default is not inspect.Parameter.empty)  # what is needed first
        command.__signature__ = inspect.Signature(both)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in both}
        return command

    return give


def doubts(metrics: dict[str, Any]) -> list[str]:
    """Where a model has learned nothing that a simpler one, or none, would not know; by the metrics of its run."""
    if not metrics:
        return []
    return _of_classes(metrics) if "classes" in metrics else _of_links(metrics)


def _of_links(metrics: dict[str, Any]) -> list[str]:
    popular = metrics.get("popularity", {}).get("test", {}).get("mrr", 0.0)
    if not metrics["test"] or metrics["test"]["mrr"] > popular:
        return []
    return ["the model is no better than the baseline: give it more triples, more epochs or other settings"]


def _of_classes(metrics: dict[str, Any]) -> list[str]:
    found, advice = [], "give it more labels, more epochs or other settings"
    control = metrics.get("facts", {}).get("test", {})
    if control and metrics["test"]["accuracy"] < control["accuracy"]:
        found.append(f"the model is no better than the regression on counted facts: {advice}")
    split = "test" if metrics["test"] else "validation"
    matrix = (metrics["test"] or metrics["valid"]).get("confusion", [])
    given = [name for name, column in zip(metrics["classes"], zip(*matrix, strict=True), strict=False) if any(column)]
    if len(given) == 1 and sum(any(row) for row in matrix) > 1:
        items = f"all {sum(map(sum, matrix)):,} {split} items"
        found.append(f"{items} are predicted as '{printable(given[0])}': {advice}")
    return found


def tell(run: Run) -> None:
    """A line on stderr for each, after what was asked."""
    for doubt in doubts(run.metrics):
        err.print(f"note: {doubt}")
