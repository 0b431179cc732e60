"""The commands `data list`, `data info`, `data fetch` and `data verify`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.text import Text
from typer import Argument, Option

from compgcn.cli.console import Json, Plot, Settings, bars, describe, out, plain_table, show_json, show_table
from compgcn.cli.train import COLUMNS, asked_for, read_data
from compgcn.data import DATASETS, Source, collection, download, where
from compgcn.data.download import FILES, Files
from compgcn.data.statistics import bins, even_bins, summarise
from compgcn.errors import InputError, pick
from compgcn.run.plots import WAYS, between, draw_summary, short, typical

if TYPE_CHECKING:
    from compgcn.data.statistics import Bin, Distribution, Leakage, Overlap, Summary

_RELATIONS = 20  # listed one by one, and as many classes
_PAIRS = 5  # pairs of relations listed of each kind
_WIDTH = 28  # of the longest bar, in letters
_NAME = 40  # letters of a name

app = typer.Typer(no_args_is_help=True, help="The data sets known by name.")


@app.command("list")
def data_list(as_json: Json = False) -> None:
    """List the data sets known by name, and where each is.

    Example: compgcn data list
    """
    if as_json:
        keys = ("name", "task", "where", "description", "sizes")
        rows = [(row.name, row.task, where(row), row.description, row.statistics) for row in DATASETS.values()]
        show_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    sizes = "{:<6}{:>9}{:>11}{:>11}  {}"
    table = plain_table("name", sizes.format("task", "nodes", "relations", "edges", "where"))
    table.columns[0].no_wrap = True
    for row in DATASETS.values():
        n = row.statistics
        edges = n.get("edges") or n.get("triples") or sum(n[split] for split in ("train", "valid", "test"))
        numbers = (f"{number:,}" for number in (n.get("entities") or n["nodes"], n["relations"], edges))
        line = sizes.format(row.task.partition("-")[0], *numbers, where(row))
        table.add_row(row.name, Text.assemble(line, (f"\n{row.description}", "dim")))
    out.print(table)


@app.command("info")
def data_info(
    name: Annotated[str, Argument(help="A data set's name, a file of triples, or a folder of files.")],
    plot: Plot = None,
    task: Annotated[str | None, Option(help="graph-classification for a table of graphs.", metavar="TASK")] = None,
    columns: Annotated[str | None, Option(help=COLUMNS)] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Describe a data set, a file of triples or a folder.

    Example: compgcn data info world --plot world.png
    """
    asked, _ = asked_for(name, {"task": task, "columns": columns}, settings, None)
    if len(asked) > 1 and name not in DATASETS and collection.found(name):
        raise InputError("settings go with files of triples; a folder in the TU format is read as it is")
    summary = summarise(read_data(asked))
    row = DATASETS.get(name)
    if plot is not None:
        draw_summary(summary, plot)
    if as_json:
        source = {"licence": row.licence, "citation": row.citation, "published": row.statistics} if row else {}
        show_json({**summary.as_dict(), **source})
        return
    _show(summary, row)
    if plot is not None:
        out.print(f"\nthe figure is {plot}")


@app.command("fetch")
def data_fetch(
    names: Annotated[list[str], Argument(metavar="NAME", help="Data sets.")],
    source: Annotated[Path | None, Option("--from", metavar="DIR", help="Take the files from here alone.")] = None,
    as_json: Json = False,
) -> None:
    """Bring data sets into the cache, and verify their checksums.

    Example: compgcn data fetch fb15k-237 wn18rr
    """
    wanted = _chosen(names)
    with bars(downloads=True) as notify:
        done = download.fetch({name: files for name, files in wanted.items() if files is not None}, source, notify)
    if as_json:
        rows = []
        for row in done:
            entries = [
                {"role": role, "path": str(entry.path), "sha256": entry.sha256, "verified": entry.verified}
                for role, entry in row.entries.items()
            ]
            rows.append({"name": row.name, "mirror": row.mirror, "already": row.already, "files": entries})
        show_json(rows)
        return
    for name, files in wanted.items():
        if files is None:
            out.print(f"{name}: comes with the package, there is nothing to fetch")
    for row in done:
        what = "already in the cache" if row.already else f"fetched from {row.mirror}"
        unverified = [entry.path.name for entry in row.entries.values() if not entry.verified]
        trust = f"not verified: {', '.join(unverified)}" if unverified else "checksums verified"
        out.print(f"{row.name}: {what}, {len(row.entries)} files, {trust}")


@app.command("verify")
def data_verify(
    names: Annotated[list[str] | None, Argument(metavar="NAME", help="Data sets; all by default.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the files of data sets with their checksums. The exit code is 1 if one differs.

    Example: compgcn data verify
    """
    wanted = _chosen(names or [*FILES, *DATASETS])
    rows = [
        {"name": name, "where": place, "file": path.name, "status": state}
        for name, files in wanted.items()
        for place, path, state in (download.verify(name, files) if files is not None else ())
    ]
    local = os.environ.get("COMPGCN_DATA")
    for name in names or ():
        if wanted[name] is not None and name not in {row["name"] for row in rows}:
            places = f"in the cache {download.root()}" + (f" nor in COMPGCN_DATA, {local}" if local else "")
            raise InputError(f"'{name}' is not {places}; run compgcn data fetch {name}")
    if as_json:
        show_json(rows)
    elif rows:
        show_table(("name", "where", "file", "status"), [list(row.values()) for row in rows])
    else:
        out.print(f"there is no data set in the cache {download.root()}")
    wrong = {(row["where"], row["name"]): None for row in rows if row["status"] in ("altered", "missing")}
    if here := [name for place, name in wrong if place == "local"]:
        what = f"not as it was published: {', '.join(here)} in COMPGCN_DATA, {local}"
        raise InputError(f"{what}; put the published files there, or unset it and run compgcn data fetch")
    if fetched := [name for _, name in wrong]:
        raise InputError(f"not as it was fetched: {', '.join(fetched)}; run compgcn data fetch {' '.join(fetched)}")


def _chosen(names: Sequence[str]) -> dict[str, Files | None]:
    """Return the files of data sets by name; None for one that comes with the package."""
    known: dict[str, Files | None] = {**FILES, **{name: row.files for name, row in DATASETS.items()}}
    return {name: pick("data set", name, known, listed=len(known)) for name in names}


# The text of `data info`


def _show(summary: Summary, row: Source | None) -> None:
    describe(summary.name, summary.statistics, summary.notes)
    if row is not None:
        out.print(f"  {row.description}\n  licence: {row.licence}\n  citation: {row.citation}\n")
        sizes = []
        for key in {**summary.statistics, **row.statistics}:
            numbers = (f"{round(one[key], 1):,}" if key in one else "-" for one in (summary.statistics, row.statistics))
            sizes.append((key.replace("_", " "), *numbers))
        show_table(("size", "here>", "published>"), sizes)
    if summary.graph_sizes is not None:
        title = f"nodes of a graph: {typical(summary.graph_sizes)}"
        _histogram(title, "nodes", even_bins(summary.graph_sizes), "graphs")
    title = f"degree, the {summary.edges} at each of the {summary.nodes}: {typical(summary.degrees)}"
    _histogram(title, "degree", bins(summary.degrees), summary.nodes)
    counts = [(short(summary.relation_names[r], _NAME), int(summary.by_relation[r])) for r in summary.order]
    _bars("relations, the most frequent first", "relation", f"{summary.edges}>", counts[:_RELATIONS])
    if len(counts) > _RELATIONS:
        out.print(f"and {len(counts) - _RELATIONS:,} more relations")
        title = f"{summary.edges} of a relation: {typical(summary.by_relation)}"
        _histogram(title, summary.edges, bins(summary.by_relation), "relations")
    for distribution in summary.distributions:
        _show_labels(distribution)
    if summary.leakage is not None:
        _show_leakage(summary.leakage, summary.relation_names)


def _titled(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    out.print(f"\n{title}", style="bold")
    show_table(columns, rows)


def _bar(value: float, largest: float) -> str:
    return "█" * (max(1, round(_WIDTH * value / largest)) if value else 0)


def _bars(title: str, first: str, unit: str, rows: Sequence[tuple[str, int]]) -> None:
    largest = max((count for _, count in rows), default=0)
    _titled(title, (first, unit, ""), [(label, f"{count:,}", _bar(count, largest)) for label, count in rows])


def _histogram(title: str, first: str, rows: Sequence[Bin], unit: str) -> None:
    _bars(title, f"{first}>", f"{unit}>", [(between(low, high), size) for low, high, size in rows])


def _show_labels(distribution: Distribution) -> None:
    total = np.sum([*distribution.parts.values(), np.zeros(len(distribution.classes), dtype=np.int64)], axis=0)
    order = np.argsort(-total, kind="stable")
    several = [*distribution.parts] if len(distribution.parts) > 1 else []
    whole, largest = max(int(total.sum()), 1), int(total.max(initial=0))
    rows = []
    for c in order[:_RELATIONS]:
        counts = [f"{distribution.parts[part][c]:,}" for part in several] + [f"{total[c]:,}"]
        share = f"{100 * total[c] / whole:.1f} %"
        rows.append((short(distribution.classes[c], _NAME), *counts, share, _bar(total[c], largest)))
    _titled(distribution.what, ("class", *(f"{part}>" for part in several), "all>", "share>", ""), rows)
    if len(order) > _RELATIONS:
        out.print(f"and {len(order) - _RELATIONS:,} more")


def _show_leakage(leakage: Leakage, names: Sequence[str]) -> None:
    splits = {part: given for part, given in leakage.splits.items() if given.triples}
    rows = []
    for way, label in WAYS.items():
        counts = [(getattr(given, way), given.triples) for given in splits.values()]
        rows.append((label, *(cell for n, whole in counts for cell in (f"{n:,}", f"{100 * n / whole:.1f} %"))))
    columns = ("", *(name for part in splits for name in (f"{part}>", "share>")))
    _titled("leakage: facts (s, r, o) of the other splits that train gives away", columns, rows)
    _show_pairs("symmetric relations", leakage.symmetric, names)
    _show_pairs("relations that are inverses", leakage.inverses, names)
    _show_pairs("relations that are near-duplicates", leakage.duplicates, names)
    rule = f"at least {100 * leakage.share:.0f} % of the smaller relation's pairs, and {leakage.least} pairs, in common"
    out.print(f"  a relation stands here with {rule}, over all splits")


def _show_pairs(title: str, overlaps: Sequence[Overlap], names: Sequence[str]) -> None:
    out.print(f"  {title}: {len(overlaps) or 'none'}")
    for pair in overlaps[:_PAIRS]:
        both = dict.fromkeys(short(names[r], _NAME) for r in (pair.relation, pair.other))
        out.print(f"    {' / '.join(both)}: {pair.shared:,} of {pair.pairs:,} pairs, {100 * pair.share:.0f} %")
    if len(overlaps) > _PAIRS:
        out.print(f"    and {len(overlaps) - _PAIRS:,} more")
