"""The commands `data list` and `data info`, and the group that `fetch` and `verify` are in too."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from compgcn.cli.console import Json, Settings, Split, chance, err, headline, out, plain_table, printable
from compgcn.config import Config, as_list, configure, parse_setting
from compgcn.data import DATASETS, GraphCollection, KnowledgeGraph, Source, collection, download, find, where
from compgcn.data.download import FILES, Files, Notify
from compgcn.data.statistics import (
    Bin,
    Distribution,
    Leakage,
    Numbers,
    Overlap,
    Summary,
    bins,
    even_bins,
    middle,
    summarise,
)
from compgcn.errors import InputError, unknown
from compgcn.run.plots import check_figure, draw_summary


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
        done = download.fetch({name: files for name, files in wanted.items() if files is not None}, source, notify)
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
            places = f"in the cache {download.root()}" + (f" nor in COMPGCN_DATA, {local}" if local else "")
            raise InputError(f"'{name}' is not {places}; run compgcn data fetch {name}")
    if as_json:
        out.print_json(json.dumps(rows))
    elif rows:
        table = plain_table("name", "where", "file", "status")
        for row in rows:
            table.add_row(*row.values())
        out.print(table)
    else:
        out.print(f"there is no data set in the cache {download.root()}")
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
    local = [("local", path, state) for path, state in download.verify_local(files).values()]
    cached = [("cached", entry.path, state) for entry, state in download.verify(name, files).values()]
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


_RELATIONS = 20  # shown one by one
_CLASSES = 20
_PAIRS = 5  # of relations, of each kind
_WIDTH = 28  # of the longest bar, in letters
_NAME = 40  # letters of a name
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_WAYS = {
    "copies": "copy (s, r, o) in train",
    "symmetric": "mirror image (o, r, s) in train",
    "near_duplicates": "same pair, other relation (s, r', o) in train",
    "inverses": "mirrored pair, other relation (o, r', s) in train",
    "any": "any of these",
    "copy_rule": "answered by copying from a relation below",
}


def show(summary: Summary, row: Source | None) -> None:
    """Print the whole of it."""
    _sizes(summary, row)
    if summary.graph_sizes is not None:
        _histogram(
            f"nodes of a graph: {_middle(summary.graph_sizes)}", "nodes", even_bins(summary.graph_sizes), "graphs"
        )
    _histogram(
        f"degree, the {summary.edges} at each of the {summary.nodes}: {_middle(summary.degrees)}",
        "degree",
        bins(summary.degrees),
        summary.nodes,
    )
    _relations(summary)
    for distribution in summary.distributions:
        _labels(distribution)
    if summary.leakage is not None:
        _leakage(summary.leakage, summary.relation_names)


def bar(value: float, largest: float, width: int = _WIDTH) -> str:
    """A bar of letters, to an eighth of a letter; at least a sliver for what is not nothing."""
    if not largest or not value:
        return ""
    eighths = max(1, round(8 * width * value / largest))
    if out.options.ascii_only:
        return "#" * max(1, eighths // 8)
    return _EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _sizes(summary: Summary, row: Source | None) -> None:
    """The sizes, beside those of the source and of the paper where these are known; what was noticed; where from."""
    out.print(f"{printable(summary.name)}: {headline(summary.statistics)}")
    for note in (*summary.notes, *chance(summary.statistics)):
        out.print(f"  note: {note}")
    if row is None:
        return
    out.print(f"  {row.description}\n  licence: {row.licence}\n  citation: {row.citation}\n")
    paper = dict(getattr(row, "paper", {}))
    table = plain_table("size", "here>", "published>", *(["paper>"] if paper else []))
    for key in dict.fromkeys([*summary.statistics, *row.statistics, *paper]):
        cells = [_number(known.get(key)) for known in (summary.statistics, row.statistics, *([paper] if paper else []))]
        table.add_row(key.replace("_", " "), *cells)
    out.print(table)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if value == int(value) else f"{value:,.1f}"


def _middle(values: Numbers) -> str:
    mean, median, largest = middle(values)
    return f"mean {mean:,.1f}, median {median:,.0f}, largest {largest:,}"


def _titled(title: str, *columns: str) -> Table:
    """A table under a line that says what it is, set off from what stands above."""
    out.print(f"\n{title}", style="bold")
    table = plain_table(*columns)
    table.show_header = any(columns)
    table.padding = (0, 1)
    return table


def _bars(table: Table, rows: Sequence[tuple[str, int]]) -> None:
    largest = max((count for _, count in rows), default=0)
    for label, count in rows:
        table.add_row(printable(label), f"{count:,}", bar(count, largest))


def _histogram(title: str, first: str, rows: Sequence[Bin], unit: str) -> None:
    table = _titled(title, f"{first}>", f"{unit}>", "")
    dash = "-" if out.options.ascii_only else "–"
    _bars(table, [(f"{low:,}" if low == high else f"{low:,}{dash}{high:,}", size) for low, high, size in rows])
    out.print(table)


def _relations(summary: Summary) -> None:
    counts = summary.by_relation
    table = _titled("relations, the most frequent first", "relation", f"{summary.edges}>", "")
    _bars(table, [(_short(summary.relation_names[r]), int(counts[r])) for r in summary.order[:_RELATIONS]])
    out.print(table)
    if len(counts) > _RELATIONS:
        out.print(f"and {len(counts) - _RELATIONS:,} more relations")
        title = f"{summary.edges} of a relation: {_middle(counts)}"
        _histogram(title, summary.edges, bins(counts), "relations")


def _short(name: str) -> str:
    """A name that fits in its column: start and end, which tell long relations apart, and dots between."""
    if len(name) <= _NAME:
        return name
    dots = "..." if out.options.ascii_only else "…"
    kept = _NAME - len(dots)
    return name[: kept // 2] + dots + name[kept // 2 - kept :]


def _labels(distribution: Distribution) -> None:
    total = np.sum([*distribution.parts.values(), np.zeros(len(distribution.classes), dtype=np.int64)], axis=0)
    order = np.argsort(-total, kind="stable")
    several = [*distribution.parts] if len(distribution.parts) > 1 else []
    table = _titled(distribution.what, "class", *(f"{part}>" for part in several), "all>", "share>", "")
    whole, largest = max(int(total.sum()), 1), int(total.max(initial=0))
    for c in order[:_CLASSES]:
        parts = [f"{distribution.parts[part][c]:,}" for part in several]
        share = f"{100 * total[c] / whole:.1f} %"
        table.add_row(
            printable(_short(distribution.classes[c])), *parts, f"{total[c]:,}", share, bar(total[c], largest)
        )
    out.print(table)
    if len(order) > _CLASSES:
        out.print(f"and {len(order) - _CLASSES:,} more")


def _leakage(leakage: Leakage, names: Sequence[str]) -> None:
    splits = {part: given for part, given in leakage.splits.items() if given.triples}
    columns = [name for part in splits for name in (f"{part}>", "share>")]
    table = _titled("leakage: facts (s, r, o) of the other splits that train gives away", "", *columns)
    for way, label in _WAYS.items():
        counts = [(getattr(given, way), given.triples) for given in splits.values()]
        cells = [cell for count, whole in counts for cell in (f"{count:,}", f"{100 * count / whole:.1f} %")]
        table.add_row(label, *cells)
    out.print(table)
    _pairs("symmetric relations", leakage.symmetric, names)
    _pairs("relations that are inverses", leakage.inverses, names)
    _pairs("relations that are near-duplicates", leakage.duplicates, names)
    rule = f"at least {100 * leakage.share:.0f} % of the smaller relation's pairs, and {leakage.least} pairs, in common"
    out.print(f"  a relation stands here with {rule}, over all splits")


def _pairs(title: str, overlaps: Sequence[Overlap], names: Sequence[str]) -> None:
    """The pairs of relations of one kind, the largest of them by name."""
    out.print(f"  {title}: {len(overlaps) or 'none'}")
    for pair in overlaps[:_PAIRS]:
        both = dict.fromkeys(printable(_short(names[r])) for r in (pair.relation, pair.other))
        out.print(f"    {' / '.join(both)}: {pair.shared:,} of {pair.pairs:,} pairs, {100 * pair.share:.0f} %")
    if len(overlaps) > _PAIRS:
        out.print(f"    and {len(overlaps) - _PAIRS:,} more")


app = typer.Typer(no_args_is_help=True, help="The data sets known by name.")


@app.command("list")
def data_list(as_json: Json = False) -> None:
    """List the data sets known by name, and where each is: embedded, local, cached, or to fetch.

    Example: compgcn data list
    """
    if as_json:
        rows = [
            {
                "name": row.name,
                "task": row.task,
                "where": where(row),
                "description": row.description,
                "sizes": row.statistics,
            }
            for row in DATASETS.values()
        ]
        out.print_json(json.dumps(rows))
        return
    sizes = "{:<6}{:>9}{:>11}{:>11}  {}"
    table = plain_table("name", sizes.format("task", "nodes", "relations", "edges", "where"))
    table.columns[0].no_wrap = True
    for row in DATASETS.values():
        n = row.statistics
        edges = n.get("edges") or n.get("triples") or sum(n[split.value] for split in Split)
        numbers = (f"{number:,}" for number in (n.get("entities") or n["nodes"], n["relations"], edges))
        line = sizes.format(row.task.partition("-")[0], *numbers, where(row))
        table.add_row(row.name, Text.assemble(line, (f"\n{row.description}", "dim")))
    out.print(table)


@app.command("info")
def data_info(
    name: Annotated[
        str,
        typer.Argument(help="A data set's name, a file of triples, or a folder of files.", show_default=False),
    ],
    plot: Annotated[
        Path | None, typer.Option(help="Draw it: a .png, .pdf or .svg file.", metavar="FILE", show_default=False)
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="graph-classification for a table of graphs.", metavar="TASK", show_default=False),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Subject, relation and object in a table: names or positions from 0 on, with commas between.",
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show what a data set, a file of triples or a folder holds, and what it gives away.

    Example: compgcn data info world --plot world.png
    """
    if plot is not None:
        check_figure(plot)
    given = dict(map(parse_setting, settings or [])) | ({} if task is None else {"task": task})
    if columns is not None:
        given["data.columns"] = as_list("data.columns", columns)
    summary = summarise(_open(name, given))
    row = DATASETS.get(name)
    if plot is not None:
        draw_summary(summary, plot)
    if as_json:
        source = {"licence": row.licence, "citation": row.citation, "published": row.statistics} if row else {}
        paper = dict(getattr(row, "paper", {}))
        out.print_json(json.dumps({**summary.as_dict(), **source, **({"paper": paper} if paper else {})}))
        return
    show(summary, row)
    if plot is not None:
        out.print(f"\nthe figure is {plot}")


def _open(name: str, settings: dict[str, Any]) -> KnowledgeGraph | GraphCollection:
    """A data set by name, a file, a folder in the TU format, or one with the files of three splits."""
    if settings and name not in DATASETS and collection.found(name):
        raise InputError("settings go with files of triples; a folder in the TU format is read as it is")
    config = configure(Config(), {"data.source": name, **settings})
    return find(config.data, config.task)


app.command("fetch")(data_fetch)
app.command("verify")(data_verify)
