"""A file of queries answered, for `predict`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from compgcn.cli.console import err, out
from compgcn.cli.tables import calibration_note
from compgcn.errors import InputError

if TYPE_CHECKING:
    from compgcn.run import Run


def predict_file(run: Run, queries: Path, to: Path | None, top: int, new: bool, as_json: bool) -> None:
    """Answer the queries of a file."""
    if to is None:
        raise InputError("--queries needs a file to write the answers to: give --to answers.parquet or answers.csv")
    with progress("answering") as notify:
        written = run.predict_file(queries, to, top, new=new, notify=notify)
    if as_json:
        out.print_json(json.dumps({**written._asdict(), "file": str(to)}))
    else:
        out.print(f"{written.answers:,} answers to {written.queries:,} queries written to {to}")
        notes = {kind: calibration_note(run, kind) for kind in ("entities", "relations")}
        differ = len(set(notes.values())) > 1
        for kind, note in notes.items() if differ else [("", notes["entities"])]:
            out.print(f"{kind}: {note}" if differ else note)


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
