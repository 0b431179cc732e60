"""The commands `data fetch` and `data verify`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from compgcn.cli.console import Json, err, out
from compgcn.cli.tables import plain_table
from compgcn.data import DATASETS, cache, fetch
from compgcn.data.download import Notify
from compgcn.data.sources import FILES, Files
from compgcn.errors import InputError, unknown


def data_fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets.", show_default=False)],
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Take the files from this folder, and from nowhere else."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring data sets into the cache, checked against their checksums.

    Example: compgcn data fetch fb15k-237 wn18rr
    """
    wanted = _chosen(names)
    with _progress() as notify:
        done = fetch.fetch({name: files for name, files in wanted.items() if files is not None}, source, notify)
    if as_json:
        rows = [
            {
                "name": row.name,
                "mirror": row.mirror,
                "already": row.already,
                "files": [
                    {"role": role, "path": str(entry.path), "sha256": entry.sha256, "verified": entry.verified}
                    for role, entry in row.entries.items()
                ],
            }
            for row in done
        ]
        out.print_json(json.dumps(rows))
        return
    for name, files in wanted.items():
        if files is None:
            out.print(f"{name}: comes with the package, there is nothing to fetch")
    for row in done:
        what = "already in the cache" if row.already else f"fetched from {row.mirror}"
        unverified = [entry.path.name for entry in row.entries.values() if not entry.verified]
        trust = f"not verified: {', '.join(unverified)}" if unverified else "checksums verified"
        out.print(f"{row.name}: {what}, {len(row.entries)} files, {trust}")


def data_verify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Data sets; all by default.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare every file in the cache and in COMPGCN_DATA with its checksum; exit code 1 if one is not as it should be.

    Example: compgcn data verify
    """
    wanted = _chosen(names or [*FILES, *DATASETS])
    rows = [row for name, files in wanted.items() if files is not None for row in _verified(name, files)]
    local = os.environ.get("COMPGCN_DATA")
    for name in names or ():
        if wanted[name] is not None and name not in {row["name"] for row in rows}:
            places = f"in the cache {cache.root()}" + (f" nor in COMPGCN_DATA, {local}" if local else "")
            raise InputError(f"'{name}' is not {places}; run compgcn data fetch {name}")
    if as_json:
        out.print_json(json.dumps(rows))
    elif rows:
        table = plain_table("name", "where", "file", "status")
        for row in rows:
            table.add_row(*row.values())
        out.print(table)
    else:
        out.print(f"there is no data set in the cache {cache.root()}")
    wrong = {(row["where"], row["name"]): None for row in rows if row["status"] in ("altered", "missing")}
    here = [name for place, name in wrong if place == "local"]
    if here:
        what = f"not as it was published: {', '.join(here)} in COMPGCN_DATA, {local}"
        raise InputError(f"{what}; put the published files there, or unset it and run compgcn data fetch")
    if wrong:
        fetched = [name for _, name in wrong]
        raise InputError(f"not as it was fetched: {', '.join(fetched)}; run compgcn data fetch {' '.join(fetched)}")


def _verified(name: str, files: Files) -> list[dict[str, str]]:
    """What is read of a data set, in COMPGCN_DATA and in the cache."""
    local = [("local", path, state) for path, state in fetch.verify_local(files).values()]
    cached = [("cached", entry.path, state) for entry, state in cache.verify(name, files).values()]
    return [
        {"name": name, "where": place, "file": path.name, "status": state} for place, path, state in (*local, *cached)
    ]


def _chosen(names: Sequence[str]) -> dict[str, Files | None]:
    """The files of data sets by name; None for one that comes with the package."""
    known: dict[str, Files | None] = {**FILES, **{name: row.files for name, row in DATASETS.items()}}
    for name in names:
        if name not in known:
            raise unknown("data set", name, known, listed=len(known))
    return {name: known[name] for name in names}


@contextmanager
def _progress() -> Iterator[Notify | None]:
    """A bar on a terminal for each download; nothing elsewhere."""
    if not err.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def notify(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done, total=total)
            if done == total:
                progress.remove_task(tasks.pop(name))

        yield notify
