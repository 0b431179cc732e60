"""What `data info` shows of a data set: sizes, histograms drawn with letters, labels and leakage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from compgcn.cli.console import chance, headline, out
from compgcn.cli.tables import plain_table, printable
from compgcn.data import Source
from compgcn.data.leakage import Leakage, Overlap
from compgcn.data.summary import Bin, Distribution, Numbers, Summary, bins, even_bins, middle

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
