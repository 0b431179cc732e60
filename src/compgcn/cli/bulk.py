"""A file of queries answered, for `predict`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from compgcn.cli.console import err, out
from compgcn.cli.tables import calibration_note, scored_table
from compgcn.data.arrays import counted
from compgcn.errors import InputError

if TYPE_CHECKING:
    from compgcn.run import Classified, Run


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
    from compgcn.answers.scoring import holds_facts

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
