"""The figure of a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compgcn.data.summary import Distribution, Summary, bins, middle
from compgcn.plots.figure import BARS, COLOURS, THIN, check_figure, heading, save, short, thousands

_WAYS = {
    "copies": "a copy (s, r, o)",
    "symmetric": "a mirror image (o, r, s)",
    "near_duplicates": "another relation (s, r′, o)",
    "inverses": "an inverse (o, r′, s)",
    "any": "any of these",
    "copy_rule": "the answer by a copy rule",
}


def draw_summary(summary: Summary, path: str | Path) -> None:
    """Degrees, relation frequencies, labels and leakage of a data set, a panel each, in one file."""
    panels: list[Callable[[Any], None]] = []
    if summary.graph_sizes is not None:
        panels.append(lambda axes: _graph_sizes(axes, summary))
    panels.append(lambda axes: _degrees(axes, summary))
    panels.append(lambda axes: _relations(axes, summary))
    panels += [lambda axes, d=d: _labels(axes, d) for d in summary.distributions]  # type: ignore[misc]
    if summary.leakage is not None:
        panels.append(lambda axes: _leakage(axes, summary))
    n = summary.statistics
    sizes = [
        f"{n[key]:,} {key}" for key in ("graphs", "entities", "nodes", "relations", "triples", "edges") if key in n
    ]
    save(panels, "  ·  ".join([summary.name, *sizes]), check_figure(path))


def _columns(axes: Any, values: Any, xlabel: str, ylabel: str) -> None:
    """A histogram, a column for each value or for bins that double; many counts stand on a log axis."""
    columns = bins(values)
    counts = [size for _, _, size in columns]
    axes.bar(range(len(columns)), counts, width=0.92, color=COLOURS[0])
    names = [_span(low, high) for low, high, _ in columns]
    turn = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if sum(map(len, names)) > 50 else {}
    axes.set_xticks(range(len(columns)), names, **turn)
    if max(counts, default=1) > 50:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
    axes.grid(axis="y")
    thousands(axes.yaxis)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


def _span(low: int, high: int) -> str:
    """The bounds of a bin as one label."""
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _degrees(axes: Any, summary: Summary) -> None:
    mean, median, largest = middle(summary.degrees)
    _columns(axes, summary.degrees, f"{summary.edges} at {_one(summary.nodes)}", summary.nodes)
    heading(axes, "Degree", f"mean {mean:,.1f}, median {median:,.0f}, largest {largest:,}")


def _one(plural: str) -> str:
    return {"entities": "an entity"}.get(plural, "a node")


def _graph_sizes(axes: Any, summary: Summary) -> None:
    sizes = summary.graph_sizes
    if sizes is None or not len(sizes):
        return
    width = max(1, int(np.ceil(np.ptp(sizes) / 40)))
    axes.hist(sizes, bins=np.arange(sizes.min(), sizes.max() + width + 1, width) - 0.5, color=COLOURS[0], rwidth=0.92)
    axes.grid(axis="y")
    axes.set_xlabel("nodes of a graph")
    axes.set_ylabel("graphs")
    thousands(axes.yaxis)
    mean, median, largest = middle(sizes)
    heading(axes, "Size of the graphs", f"mean {mean:,.1f}, median {median:,.0f}, largest {largest:,} nodes")


def _relations(axes: Any, summary: Summary) -> None:
    """A bar for each relation where they are few, else frequency against rank."""
    counts = summary.by_relation[summary.order]
    if len(counts) <= BARS:
        names = [summary.relation_names[r] for r in summary.order]
        _bars(axes, names, {"": counts}, summary.edges)
        heading(axes, "Relations", f"{summary.edges} of each")
        return
    axes.plot(np.arange(1, len(counts) + 1), np.maximum(counts, 1), "o", markersize=4, color=COLOURS[0], alpha=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid()
    thousands(axes.xaxis)
    thousands(axes.yaxis)
    axes.set_xlabel("rank of the relation")
    axes.set_ylabel(summary.edges)
    half = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2)) + 1
    heading(axes, "Relations by frequency", f"the first {half:,} of {len(counts):,} have half of all {summary.edges}")


def _bars(axes: Any, names: Sequence[str], parts: dict[str, Any], unit: str) -> None:
    """Horizontal bars, a group for each name, a colour for each part; numbers at their ends."""
    height = 0.8 / len(parts)
    longest = max((int(max(values, default=0)) for values in parts.values()), default=0)
    for k, (part, values) in enumerate(parts.items()):
        at = np.arange(len(names)) + (k - (len(parts) - 1) / 2) * height
        drawn = axes.barh(at, values, height=0.92 * height, color=COLOURS[k], label=part)
        axes.bar_label(drawn, [f"{value:,}" for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(len(names), THIN) - 0.5, -0.5)
    axes.set_xlim(0, longest * 1.15 or 1)
    axes.xaxis.get_major_locator().set_params(nbins=5)
    axes.grid(axis="x")
    thousands(axes.xaxis)
    axes.set_xlabel(unit)
    if len(parts) > 1:
        axes.legend(frameon=False, loc="lower right")


def _labels(axes: Any, distribution: Distribution) -> None:
    total = sum(counts for counts in distribution.parts.values())
    if not isinstance(total, np.ndarray):
        return
    order = np.argsort(-total, kind="stable")[:BARS]
    parts = {part: counts[order] for part, counts in distribution.parts.items()}
    unit = distribution.what.rpartition(" ")[2]
    _bars(axes, [distribution.classes[c] for c in order], parts, unit)
    more = len(total) - len(order)
    heading(
        axes,
        distribution.what.capitalize(),
        f"the {BARS} most frequent of {len(total):,}" if more else f"{unit} of each",
    )


def _leakage(axes: Any, summary: Summary) -> None:
    if summary.leakage is None:
        return
    splits = {part: given for part, given in summary.leakage.splits.items() if given.triples}
    for k, (part, given) in enumerate(splits.items()):
        at = np.arange(len(_WAYS)) + (k - (len(splits) - 1) / 2) * 0.8 / len(splits)
        shares = [100 * getattr(given, way) / given.triples for way in _WAYS]
        drawn = axes.barh(at, shares, height=0.92 * 0.8 / len(splits), color=COLOURS[k], label=part)
        axes.bar_label(drawn, [f"{share:.1f}" for share in shares], padding=3, fontsize=8)
    axes.set_yticks(range(len(_WAYS)), list(_WAYS.values()))
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 110)
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.grid(axis="x")
    axes.set_xlabel("% of the facts of the split")
    axes.legend(frameon=False, loc="upper right")
    nothing = not any(given.any for given in splits.values())
    heading(axes, "Leakage", "train gives nothing away" if nothing else "facts for which train holds …")
