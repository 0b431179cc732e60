"""The commands that ask a run: `predict`, `discover`, `explain` and `similar`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Option

from compgcn.cli.console import (
    Device,
    Json,
    RunFolder,
    To,
    calibration_note,
    err,
    out,
    progress,
    show_json,
    show_table,
    tell,
    told_apart,
    under_torchrun,
)
from compgcn.data import GraphCollection, KnowledgeGraph, collection
from compgcn.data.columns import counted
from compgcn.errors import InputError
from compgcn.run.plots import printable

if TYPE_CHECKING:
    from compgcn.answers.explain import Method
    from compgcn.run.run import Kind, Run

Facts = Annotated[Path | None, Option(help="Add facts from a file, also about unseen entities (link prediction only).")]
Graph = Annotated[
    str | None,
    Option(help="Ask about another graph with the same relations: a file, or a data set (--model conditional)."),
]
_TOP = 10  # answers without --top
_BAR = 12  # characters of the longest bar
_WEIGHED = {
    "exact": "that the prediction depends on, left out one by one",
    "gradient": "whose messages reach the prediction, by the gradient; effects through degrees are not listed",
}
# Of a conditional model.
_TRIED = "with the largest gradients, left out one by one; paths are by the gradient, which keeps degrees"


def opened_run(
    path: Path, device: str, facts: Path | None = None, graph: str | None = None, to: Path | None = None, *,
    divide: bool = False,
) -> Run:  # fmt: skip
    """Open a run, on another graph or with more facts if some are given; print notes on stderr.

    All facts of a graph in one file are for the model to see, unless `divide` splits them as training does. No file
    that the run was trained on may be written `to`.
    """
    from compgcn.run.run import open_run
    from compgcn.train.storage import must_differ

    run = open_run(path, device)
    run.must_spare(to)
    must_differ(to, data=graph, facts=facts)
    if not run.metrics:
        _ = run.task  # refuses a run that has no weights yet
        err.print(f"note: {path} is not finished; these are its best weights so far")
    if graph is not None:
        from compgcn.run.unseen import read_graph

        run = run.with_graph(read_graph(graph, run.config.data, divide=divide))
        _note(graph, run)
    if facts is not None:
        run = run.with_facts(facts)
        _note(facts, run)
    return run


def _note(given: str | Path, run: Run) -> None:
    for note in run.data.notes:
        err.print(f"note: {given}: {printable(note)}")


def predict(
    run: RunFolder,
    relation: Annotated[str | None, Option(help="The relation; left out, the answers are relations.")] = None,
    head: Annotated[str | None, Option(help="Predict the tails of (head, relation, ?).")] = None,
    tail: Annotated[str | None, Option(help="Predict the heads of (?, relation, tail).")] = None,
    top: Annotated[
        int | None, Option(help="How many answers; by default 10, or all nodes in a file of classes.", min=1)
    ] = None,
    new: Annotated[bool, Option("--new", help="Leave out known facts.")] = False,
    plausible: Annotated[bool, Option("--plausible", help="Only entities that train has at that end.")] = False,
    item: Annotated[list[str] | None, Option(help="A node or a graph to classify; may be repeated.")] = None,
    graphs: Annotated[Path | None, Option(help="Classify other graphs: a folder in the TU format.")] = None,
    queries: Annotated[
        Path | None, Option(help="A file of queries (one part is ?) or of facts.", metavar="FILE")
    ] = None,
    doubtful: Annotated[bool, Option("--doubtful", help="The least believable facts first.")] = False,
    to: To = None,
    facts: Facts = None,
    graph: Graph = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Complete a fact, or classify nodes or graphs.

    Give two of head, relation and tail, by id or name; or --queries, a file of them. The command scores facts in a
    file without ?. A run that classifies takes --item or --graphs; by default it shows its surest unlabelled nodes.

    Example: compgcn predict runs/world-compgcn-distmult-0 --head France --relation borders --top 5

    Example: compgcn predict runs/world-compgcn-distmult-0 --queries facts.tsv --doubtful --top 20
    """
    from compgcn.train.storage import must_differ

    must_differ(to, queries=queries)
    opened = opened_run(run, device, facts, graph, to)
    query: dict[str, Any] = {"relation": relation, "head": head, "tail": tail}
    chosen = {"new": new, "plausible": plausible}
    if opened.config.classifier.protocol is not None:
        if wrong := _given(**query, **chosen, queries=queries, doubtful=doubtful):
            what = f"{wrong} {'ask' if ' and ' in wrong else 'asks'} for links"
            raise InputError(f"{what}, and {run} is a run of {opened.config.task}; name what to classify with --item")
        _classify(opened, item, graphs, top, to, as_json)
    elif item or graphs is not None:
        raise InputError(f"--item and --graphs ask for classes, and {run} predicts links; give --head and --relation")
    elif queries is None:
        if wrong := _given(doubtful=doubtful, to=to):
            raise InputError(f"{wrong} goes with --queries, a file of queries or facts")
        _complete(opened, query, chosen, top or _TOP, as_json)
    else:
        if wrong := _given(**query):
            raise InputError(f"the file of --queries holds the queries, so leave out {wrong}, or ask without --queries")
        _answer_file(opened, queries, to, top or _TOP, chosen, doubtful, as_json)
    tell(opened)


def _given(**options: object) -> str:
    """Return the options that are given, in words."""
    return " and ".join(f"--{name}" for name, value in options.items() if value not in (None, False))


def _ranked(found: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the fields of answers with their ranks, for JSON."""
    return [{"rank": rank, **one._asdict()} for rank, one in enumerate(found, 1)]


def _complete(run: Run, query: dict[str, Any], chosen: dict[str, bool], top: int, as_json: bool) -> None:
    answers = run.predict(**query | chosen, top=top)
    parts, assumed = _assumed(run, **query)
    told = assumed and any(answer.known is None for answer in answers)
    if as_json:
        show_json(_ranked(answers))
        if told:
            err.print(f"note: {assumed}")
        return
    kind: Kind = "entities" if query["relation"] else "relations"
    chances = [f"known ({one.known})" if one.known else f"{one.probability:.4f}" for one in answers]
    _show_named(answers, "probability>", chances, " - ".join(parts), calibration_note(run, kind))
    if told:
        out.print(assumed)


def _assumed(run: Run, head: str | None, relation: str | None, tail: str | None) -> tuple[list[str], str]:
    """Return the names of a query, with ? for the gap, and what new answers assume, if anything."""
    from compgcn.answers.links import Links

    data, links = run.data, run.answers
    assert isinstance(data, KnowledgeGraph)
    assert isinstance(links, Links)
    asked = links.query(head, relation, tail)
    fixed = {column: row for column, row in enumerate(asked) if row is not None}
    names = (data.entities.names, data.relations.names, data.entities.names)
    parts = [some[fixed[column]] if column in fixed else "?" for column, some in enumerate(names)]
    for column, row in fixed.items():
        if not any((data.train[:, place] == row).any() for place in ((1,) if column == 1 else (0, 2))):
            what = f"train has no fact about '{parts[column]}'"
            return parts, printable(f"{what}; the probabilities assume that it has some")
    if links.is_odd(asked):
        entity, end, missing = (parts[0], "head", "tail") if 0 in fixed else (parts[2], "tail", "head")
        odd = f"'{entity}' shares no relation with any {end} of '{parts[1]}'"
        return parts, printable(f"{odd}; the probabilities assume that it has a {missing}")
    if any((triples[:, [*fixed]] == [*fixed.values()]).all(axis=1).any() for triples in data.splits.values()):
        order = ", and their order is less reliable" * (run.config.encoder.name == "conditional")
        return parts, f"the data hold an answer already; the probabilities assume that another is missing{order}"
    return parts, ""


def _show_named(found: Sequence[Any], figure: str, values: Sequence[str], title: str = "", note: str = "") -> None:
    """Print answers with a figure of each, and with their ids where these are not their names."""
    with_ids = any(one.id != one.name for one in found)
    rows = [(one.name, *([one.id] * with_ids), value) for one, value in zip(found, values, strict=True)]
    show_table(("name", *(["id"] * with_ids), figure), rows, title, note, ranked=True)


def _answer_file(
    run: Run, queries: Path, to: Path | None, top: int, chosen: dict[str, bool], doubtful: bool, as_json: bool
) -> None:
    """Answer the queries of a file, as a table on stdout or in a file, or score its facts."""
    from compgcn.answers.score import holds_facts

    if holds_facts(queries, run.config.data.columns):
        if wrong := _given(**chosen):
            raise InputError(f"'{queries}' holds facts to score; leave out {wrong}, for queries alone")
        _score_file(run, queries, to, top, doubtful, as_json)
        return
    if doubtful:
        raise InputError(f"--doubtful puts facts in order, and '{queries}' asks for what is missing; leave it out")
    if to is None and (as_json or under_torchrun()):
        who = "--json" if as_json else "torchrun"
        raise InputError(f"{who} needs a file for the answers to queries: give --to answers.parquet, .csv or .tsv")
    with TemporaryDirectory() as place, progress("answering") as notify:
        file = to or Path(place) / "answers.tsv"
        written = run.predict_file(queries, file, top, **chosen, notify=notify)
        if to is None:
            with file.open(encoding="utf-8") as lines:
                out.file.writelines("\t".join(map(printable, line[:-1].split("\t"))) + "\n" for line in lines)
            return
    if as_json:
        show_json({**written._asdict(), "file": str(to)})
        return
    out.print(f"{counted(written.answers, 'answer')} to {counted(written.queries, 'query')} written to {to}")
    entities, relations = calibration_note(run, "entities"), calibration_note(run, "relations")
    out.print(entities if entities == relations else f"entities: {entities}\nrelations: {relations}")


def _score_file(run: Run, facts: Path, to: Path | None, top: int, doubtful: bool, as_json: bool) -> None:
    """Write the scores of all facts to a file, or print the first."""
    note = calibration_note(run, "entities")
    if to is not None:
        with progress("scoring") as notify:
            written = run.score_file(facts, to, doubtful=doubtful, notify=notify)
        if as_json:
            show_json({"facts": written, "file": str(to)})
        else:
            out.print(f"{counted(written, 'fact')} written to {to}\n{note}")
        return
    with progress("scoring") as notify:
        found = run.score(facts, doubtful=doubtful, notify=notify)
    if as_json:
        show_json([one._asdict() for one in found[:top]])
        return
    rows = []
    for fact in found[:top]:
        ranks = (f"{rank:,.1f}".removesuffix(".0") for rank in (fact.head_rank, fact.tail_rank))
        known = f"in {fact.known}" if fact.known else "no"
        rows.append((*told_apart(fact, run.data), f"{fact.probability:.4f}", *ranks, known))
    rest = f"; {counted(len(found) - top, 'more fact')}, see --top and --to" if len(found) > top else ""
    columns = ("head", "relation", "tail", "probability>", "head rank>", "tail rank>", "known")
    show_table(columns, rows, caption=note + rest)


def _classify(
    run: Run, item: list[str] | None, graphs: Path | None, top: int | None, to: Path | None, as_json: bool
) -> None:
    """Classify the items that are named, or the unlabelled nodes: the most certain ones, or all into a file."""
    if item is not None and graphs is not None:
        raise InputError("--item names what the run has and --graphs gives others; ask for one of them at a time")
    unasked = item is None and graphs is None
    if unasked and isinstance(run.data, GraphCollection):
        raise InputError("name the graphs to classify with --item, or give a folder of others with --graphs")
    from compgcn.answers.classes import Classified
    from compgcn.answers.rows import check_table, schema_of, write_rows

    table = None if to is None else check_table(to)
    found = run.classify(collection.read(graphs) if graphs is not None else item)
    notes = []
    if unasked:
        if not found:
            raise InputError("every node of this run has a label; name those to classify with --item")
        like = run.classes.alike()
        some = [answer for answer in found if answer.item in like] or found
        others, total = len(found) - len(some), len(some)
        found = sorted(some, key=lambda answer: -answer.probability)[: top or (_TOP if table is None else total)]
        most = f"the {len(found):,} most certain of {total:,} nodes without a label; --top N shows others"
        notes = [most if len(found) < total else f"all {total:,} nodes without a label, the most certain first"]
        if others:
            notes.append(f"{others:,} more have other relations than those with a label; --item asks for one of them")
    elif item is not None and isinstance(run.data, KnowledgeGraph):
        like, what = run.classes.alike(), "has other relations than those with a label, so its class may mean nothing"
        notes = [f"'{printable(one.name)}' {what}" for one in found if one.known is None and one.item not in like]
    if table is not None:
        write_rows(table, schema_of(Classified), [found])
    if as_json:
        rows = [answer._asdict() for answer in found]
        show_json(rows if table is None else {"answers": len(found), "file": str(to)})
        return
    if table is not None:
        notes = [f"{counted(len(found), 'class')} written to {to}", calibration_note(run), *notes]
    else:
        columns = ("name", "class", "probability>", "in the data" if graphs is None else "true class")
        shown = [(one.name, one.label, f"{one.probability:.4f}", one.known or "-") for one in found]
        show_table(columns, shown, caption=calibration_note(run))
    for note in notes:
        out.print(note)


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
    from compgcn.answers.discover import Discovery
    from compgcn.answers.rows import check_table, schema_of, write_rows

    if to is not None:
        check_table(to)
    opened = opened_run(run, device, graph=graph, to=to)
    with progress("asking") as notify:
        found = opened.discover(relation, top, per_relation, all_heads=all_heads, notify=notify)
    tell(opened)
    if to is not None:
        write_rows(to, schema_of(Discovery, ranked=True), [[(rank, *fact) for rank, fact in enumerate(found, 1)]])
    if as_json:
        show_json(_ranked(found) if to is None else {"facts": len(found), "file": str(to)})
    elif to is not None:
        out.print(f"{counted(len(found), 'fact')} written to {to}\n{_discovery_note(opened)}")
    elif found:
        shown = [(*told_apart(fact, opened.data), f"{fact.probability:.4f}") for fact in found]
        columns = ("head", "relation", "tail", "probability>")
        show_table(columns, shown, caption=_discovery_note(opened), ranked=True)
    else:
        out.print("no new facts")


def _discovery_note(run: Run) -> str:
    """Return the meaning of the probabilities."""
    note = calibration_note(run, "discoveries")
    if run.calibrated("discoveries"):
        return f"{note}: the share of such facts that valid holds"
    if isinstance(run.data, KnowledgeGraph) and not len(run.data.valid):
        why = "they are those of the answers alone, since no validation facts tell how often a tail is missing"
        return f"{calibration_note(run)}; {why}"
    return f"{note}: the probability of the answer, times the share of similar heads with a tail in valid"


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
    """Show the facts that carried a prediction, and its paths.

    A contribution is how much the score falls without the fact. A model conditioned on the query has
    paths from the head to the tail, as in Ajman -in country-> United Arab Emirates -has time zone-> Asia/Dubai.

    Example: compgcn explain runs/world-compgcn-distmult-0 France borders Spain
    """
    opened = opened_run(run, device, facts, graph)
    found = opened.explain(head, relation, tail, top, method=cast("Method", method))
    tell(opened)
    if as_json:
        reasons, paths = _ranked(found.facts), _ranked(found.paths)
        for reason, fact in zip(reasons, found.facts, strict=True):
            reason["itself"] = found.is_itself(fact)
        for path in paths:
            path["steps"] = [step._asdict() for step in path["steps"]]
        show_json({**found._asdict(), "facts": reasons, "paths": paths})
        return
    title = f"{head} - {relation} - {tail}"
    if found.paths:
        names = partial(told_apart, data=opened.data)
        ways = [(path.arrows(names), f"{path.importance:+.4f}") for path in found.paths]
        show_table(("path", "importance>"), ways, title, ranked=True)
    most = max((abs(fact.contribution) for fact in found.facts), default=0.0) or 1.0
    shown = []
    for fact in found.facts:
        text = " - ".join(told_apart(fact, opened.data)) + " (itself)" * found.is_itself(fact)
        bar = "█" * max(round(_BAR * abs(fact.contribution) / most), bool(round(fact.contribution, 4)))
        bars = ("", bar) if fact.contribution >= 0 else (bar, "")
        shown.append((text, f"{fact.contribution:+.4f}", *bars))
    columns = ("fact", "contribution>", "against>", "for")
    show_table(columns, shown, "" if found.paths else title, ranked=True)
    conditional = opened.config.encoder.name == "conditional"
    if conditional and not found.paths:
        longest = counted(len(opened.config.encoder.dims) - 1, "fact")
        out.print(f"no path of at most {longest} leads from {head} to {tail}")
    known = f"known, in {found.known}" if found.known else "new"
    out.print(f"score {found.score:.4f}, probability {found.probability:.4f}, {known}; {calibration_note(opened)}")
    if not found.known and (assumed := _assumed(opened, head, relation, None)[1]):
        out.print(assumed)
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
        show_json(_ranked(found))
        return
    _show_named(found, "similarity>", [f"{one.similarity:.4f}" for one in found])
