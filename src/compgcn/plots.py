"""Figures as files: PNG, PDF or SVG, drawn with matplotlib, which the extra `plot` brings.

Colours are those of Okabe and Ito, which colour-blind people tell apart too.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compgcn.data.summary import Distribution, Summary, bins, middle
from compgcn.errors import InputError

Points = tuple[NDArray[np.float32], NDArray[np.int64]]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
_INK, _FAINT = "#333333", "#DDDDDD"
_ENDINGS = (".png", ".pdf", ".svg")
_BARS = 15  # at most so many bars with a name each
_THIN = 5  # bars are as thin as if there were so many
_LETTERS = 32  # of a name beside a bar
_PANEL = (6.4, 4.2)  # inches
_STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "text.parse_math": False,  # a $ in a name is a $
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.6,
    "svg.hashsalt": "compgcn",  # the same figure has the same bytes
}


def check(path: str | Path) -> Path:
    """The path of a figure to be, refused before any work is done for it."""
    path = Path(path)
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(f"a figure is a .png, .pdf or .svg file, not '{path.name}'")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder '{path.parent}' to put '{path.name}' in; make it first")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("figures are drawn with matplotlib: pip install 'compgcn[plot]'") from None
    return path


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
    _save(panels, "  ·  ".join([summary.name, *sizes]), check(path))


def draw_report(
    title: str, report: Mapping[str, Any], classes: Sequence[str], points: Points, path: str | Path
) -> None:
    """The confusion matrix of a classification, the accuracy of each fold, and a picture of the vectors, in one file.

    Args:
        title: what it is of.
        report: of a split, see `compgcn.tasks.classification.report`.
        classes: their names.
        points: vectors [n, d] of what was classified, and its classes [n]; -1 for one without.
        path: the file.
    """
    panels: list[Callable[[Any], None]] = [lambda axes: _confusion(axes, np.array(report["confusion"]), classes)]
    if "folds" in report:
        panels.append(lambda axes: _folds(axes, report))
    panels.append(lambda axes: _plane(axes, points, classes))
    _save(panels, title, check(path))


def draw_study(result: Mapping[str, Any], history: Sequence[tuple[int, float | None]], path: str | Path) -> None:
    """The figures of the trials of a search one after another, and how much each setting mattered, in one file.

    Args:
        result: of the study, see `compgcn.tune.result`.
        history: number and figure of each trial; None for one without.
        path: the file.
    """
    panels: list[Callable[[Any], None]] = [lambda axes: _history(axes, result, history)]
    if result["importance"]:
        panels.append(lambda axes: _importance(axes, result["importance"]))
    _save(panels, f"{result['study']}  ·  {result['trials']} trials", check(path))


def _history(axes: Any, result: Mapping[str, Any], history: Sequence[tuple[int, float | None]]) -> None:
    numbers, values = np.array([pair for pair in history if pair[1] is not None], dtype=float).T
    axes.plot(numbers, values, "o", color=COLOURS[0], markersize=4, alpha=0.7, label="trial")
    axes.step(
        numbers, np.maximum.accumulate(values), where="post", color=COLOURS[3], linewidth=1.5, label="best so far"
    )
    for number in (number for number, value in history if value is None):
        axes.axvline(number, ymax=0.03, color=_INK, linewidth=0.8)
    axes.grid(axis="y")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("trial; a tick for one that was stopped early")
    axes.set_ylabel(f"validation {result['goal']}")
    axes.legend(frameon=False, loc="lower right")
    _heading(axes, "History", f"best {result['best']['value']:.4f} in trial {result['best']['trial']}")


def _importance(axes: Any, shares: Mapping[str, float]) -> None:
    drawn = axes.barh(range(len(shares)), [100 * share for share in shares.values()], height=0.74, color=COLOURS[0])
    axes.bar_label(drawn, [f"{100 * share:.0f}" for share in shares.values()], padding=3, fontsize=8)
    axes.set_yticks(range(len(shares)), [_short(name) for name in shares])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(len(shares), _THIN) - 0.5, -0.5)
    axes.set_xlim(0, 110)
    axes.grid(axis="x")
    axes.set_xlabel("% of the difference between trials")
    _heading(axes, "Importance", "what a setting explains of the figures reached")


Compared = tuple[str, float | None, tuple[float, float] | None]  # label, paper, and ours: mean and deviation


Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # label -> x and y


def draw_rows(
    title: str, rows: Sequence[Compared], metric: str, curves: Curves, calibration: Curves, path: str | Path
) -> None:
    """The rows of a table, one below the other: what the paper has, and what was reached here.

    Args:
        title: what it is of.
        rows: of the table.
        metric: what is shown.
        curves: validation figures against the epoch, of the best rows.
        calibration: how often an answer is right against how probable it is said to be, of the same.
        path: the file.
    """
    panels: list[Callable[[Any], None]] = [lambda axes: _rows(axes, rows, metric)]
    if curves:
        panels.append(lambda axes: _curves(axes, curves, metric))
    if calibration:
        panels.append(lambda axes: _calibration(axes, calibration))
    _save(panels, title, check(path), height=max(_PANEL[1], 0.3 * len(rows)))


def _rows(axes: Any, rows: Sequence[Compared], metric: str) -> None:
    quoted = [(paper, k) for k, (_, paper, _) in enumerate(rows) if paper is not None]
    reached = [(*ours, k) for k, (_, _, ours) in enumerate(rows) if ours is not None]
    if quoted:
        axes.plot(*zip(*quoted, strict=True), "o", color="none", markeredgecolor=_INK, label="paper")
    means, deviations, places = zip(*reached, strict=True)
    axes.errorbar(means, places, xerr=deviations, fmt="D", color=COLOURS[0], markersize=5, capsize=3, label="ours")
    axes.set_yticks(range(len(rows)), [_short(label) for label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid()
    axes.set_xlabel(metric)
    axes.legend(frameon=False)


def _curves(axes: Any, curves: Curves, metric: str) -> None:
    for k, (name, (epochs, values)) in enumerate(curves.items()):
        axes.plot(epochs, values, color=COLOURS[k % len(COLOURS)], linewidth=1.5, label=_short(name))
    axes.grid()
    axes.set_xlabel("epoch")
    axes.set_ylabel(f"validation {metric}")
    axes.legend(frameon=False, fontsize=8)
    _heading(axes, "Training", "the best rows, their first seed")


def _calibration(axes: Any, calibration: Curves) -> None:
    axes.plot([0, 1], [0, 1], color=_FAINT, linewidth=1.5)
    for k, (name, (chances, right)) in enumerate(calibration.items()):
        axes.plot(chances, right, "o-", color=COLOURS[k % len(COLOURS)], markersize=4, label=_short(name))
    axes.grid()
    axes.set_xlabel("probability of the best answer")
    axes.set_ylabel("share of answers that are right")
    axes.legend(frameon=False, fontsize=8)
    _heading(axes, "Calibration", "on the line, a probability means what it says")


def draw_lines(
    title: str, lines: Mapping[str, Sequence[tuple[float, float]]], labels: tuple[str, str], path: str | Path
) -> None:
    """The lines of a figure, each a series of points; what x and y are."""

    def panel(axes: Any) -> None:
        for k, (name, points) in enumerate(lines.items()):
            axes.plot(*zip(*sorted(points), strict=True), "o-", color=COLOURS[k % len(COLOURS)], label=name or None)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.grid()
        if any(lines):
            axes.legend(frameon=False)

    _save([panel], title, check(path))


def _save(panels: Sequence[Callable[[Any], None]], title: str, path: Path, height: float = _PANEL[1]) -> None:
    """Panels two or three abreast under a title; nothing is written before all is drawn."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = len(panels) if len(panels) <= 3 else 2 if len(panels) == 4 else 3
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(_STYLE):
        spaces = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15, hspace=0.04, wspace=0.04)
        figure = Figure(figsize=(_PANEL[0] * columns, height * rows + 0.5), layout=spaces)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            panel(axes)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
        drawn = io.BytesIO()
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        figure.savefig(drawn, format=path.suffix.lower()[1:], dpi=150, metadata=metadata)
    try:
        path.write_bytes(drawn.getvalue())
    except OSError as error:
        raise InputError(f"could not write {path}: {error.strerror}") from None


def _thousands(axis: Any) -> None:
    """Ticks as 10,000 and not as powers of ten."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value == round(value) else ""))


def _heading(axes: Any, title: str, subtitle: str = "") -> None:
    """A bold title, and under it one faint line."""
    axes.set_title(title, pad=20 if subtitle else 8)
    if subtitle:
        axes.text(0, 1.02, subtitle, transform=axes.transAxes, fontsize=9, alpha=0.75)


def _columns(axes: Any, values: Any, xlabel: str, ylabel: str) -> None:
    """A histogram, a column for each value or for bins that double; many counts stand on a log axis."""
    columns = bins(values)
    counts = [size for _, _, size in columns]
    axes.bar(range(len(columns)), counts, width=0.92, color=COLOURS[0])
    names = [span(low, high) for low, high, _ in columns]
    turn = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if sum(map(len, names)) > 50 else {}
    axes.set_xticks(range(len(columns)), names, **turn)
    if max(counts, default=1) > 50:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
    axes.grid(axis="y")
    _thousands(axes.yaxis)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


def span(low: int, high: int) -> str:
    """The bounds of a bin as one label."""
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _degrees(axes: Any, summary: Summary) -> None:
    mean, median, largest = middle(summary.degrees)
    _columns(axes, summary.degrees, f"{summary.edges} at {_one(summary.nodes)}", summary.nodes)
    _heading(axes, "Degree", f"mean {mean:,.1f}, median {median:,.0f}, largest {largest:,}")


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
    _thousands(axes.yaxis)
    mean, median, largest = middle(sizes)
    _heading(axes, "Size of the graphs", f"mean {mean:,.1f}, median {median:,.0f}, largest {largest:,} nodes")


def _relations(axes: Any, summary: Summary) -> None:
    """A bar for each relation where they are few, else frequency against rank."""
    counts = summary.by_relation[summary.order]
    if len(counts) <= _BARS:
        names = [summary.relation_names[r] for r in summary.order]
        _bars(axes, names, {"": counts}, summary.edges)
        _heading(axes, "Relations", f"{summary.edges} of each")
        return
    axes.plot(np.arange(1, len(counts) + 1), np.maximum(counts, 1), "o", markersize=4, color=COLOURS[0], alpha=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid()
    _thousands(axes.xaxis)
    _thousands(axes.yaxis)
    axes.set_xlabel("rank of the relation")
    axes.set_ylabel(summary.edges)
    half = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2)) + 1
    _heading(axes, "Relations by frequency", f"the first {half:,} of {len(counts):,} have half of all {summary.edges}")


def _bars(axes: Any, names: Sequence[str], parts: dict[str, Any], unit: str) -> None:
    """Horizontal bars, a group for each name, a colour for each part; numbers at their ends."""
    height = 0.8 / len(parts)
    longest = max((int(max(values, default=0)) for values in parts.values()), default=0)
    for k, (part, values) in enumerate(parts.items()):
        at = np.arange(len(names)) + (k - (len(parts) - 1) / 2) * height
        drawn = axes.barh(at, values, height=0.92 * height, color=COLOURS[k], label=part)
        axes.bar_label(drawn, [f"{value:,}" for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(len(names), _THIN) - 0.5, -0.5)
    axes.set_xlim(0, longest * 1.15 or 1)
    axes.xaxis.get_major_locator().set_params(nbins=5)
    axes.grid(axis="x")
    _thousands(axes.xaxis)
    axes.set_xlabel(unit)
    if len(parts) > 1:
        axes.legend(frameon=False, loc="lower right")


def _short(name: str) -> str:
    """A name that fits beside a bar: its start and its end."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    half = _LETTERS // 2
    return clean if len(clean) <= _LETTERS else f"{clean[: half - 1]}…{clean[-half:]}"


def _labels(axes: Any, distribution: Distribution) -> None:
    total = sum(counts for counts in distribution.parts.values())
    if not isinstance(total, np.ndarray):
        return
    order = np.argsort(-total, kind="stable")[:_BARS]
    parts = {part: counts[order] for part, counts in distribution.parts.items()}
    unit = distribution.what.rpartition(" ")[2]
    _bars(axes, [distribution.classes[c] for c in order], parts, unit)
    more = len(total) - len(order)
    _heading(
        axes,
        distribution.what.capitalize(),
        f"the {_BARS} most frequent of {len(total):,}" if more else f"{unit} of each",
    )


WAYS = {
    "copies": "a copy (s, r, o)",
    "symmetric": "a mirror image (o, r, s)",
    "near_duplicates": "another relation (s, r′, o)",
    "inverses": "an inverse (o, r′, s)",
    "any": "any of these",
    "copy_rule": "the answer by a copy rule",
}


def _leakage(axes: Any, summary: Summary) -> None:
    if summary.leakage is None:
        return
    splits = {part: given for part, given in summary.leakage.splits.items() if given.triples}
    for k, (part, given) in enumerate(splits.items()):
        at = np.arange(len(WAYS)) + (k - (len(splits) - 1) / 2) * 0.8 / len(splits)
        shares = [100 * getattr(given, way) / given.triples for way in WAYS]
        drawn = axes.barh(at, shares, height=0.92 * 0.8 / len(splits), color=COLOURS[k], label=part)
        axes.bar_label(drawn, [f"{share:.1f}" for share in shares], padding=3, fontsize=8)
    axes.set_yticks(range(len(WAYS)), list(WAYS.values()))
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 110)
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.grid(axis="x")
    axes.set_xlabel("% of the facts of the split")
    axes.legend(frameon=False, loc="upper right")
    nothing = not any(given.any for given in splits.values())
    _heading(axes, "Leakage", "train gives nothing away" if nothing else "facts for which train holds …")


def _confusion(axes: Any, counts: NDArray[np.int64], classes: Sequence[str]) -> None:
    """How many of each class (a row) were given each class (a column), coloured by their share of the row."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(classes) <= _BARS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.5 else _INK
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour, fontsize=9)
    names = [_short(name) for name in classes]
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    right = 100 * counts.trace() / max(counts.sum(), 1)
    _heading(axes, "Confusion matrix", f"{counts.trace():,} of {counts.sum():,} right, {right:.1f} %")


def _folds(axes: Any, report: Mapping[str, Any]) -> None:
    values = [100 * fold["accuracy"] for fold in report["folds"]]
    drawn = axes.bar(range(1, len(values) + 1), values, color=COLOURS[0], width=0.8)
    axes.bar_label(drawn, [f"{value:.0f}" for value in values], padding=2, fontsize=8)
    mean, deviation = 100 * report["accuracy"], 100 * report["accuracy_sd"]
    axes.axhline(mean, color=COLOURS[3], linewidth=1.5)
    axes.set_ylim(0, 108)
    axes.set_xticks(range(1, len(values) + 1))
    axes.grid(axis="y")
    axes.set_xlabel("fold")
    axes.set_ylabel("accuracy, %")
    _heading(axes, "Folds", f"mean {mean:.1f} ± {deviation:.1f} %")


def principal_plane(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """The vectors [n, d] in the plane in which they vary most, [n, 2], and the share of their variance it has."""
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    wide = np.zeros((2, centred.shape[1]))
    wide[: min(2, len(axes))] = axes[:2]
    return centred @ wide.T, float((values[:2] ** 2).sum() / max((values**2).sum(), np.finfo(float).tiny))


def _plane(axes: Any, points: Points, classes: Sequence[str]) -> None:
    vectors, targets = points
    places, share = principal_plane(vectors)
    for number in range(len(classes)):
        chosen = places[targets == number]
        colour, mark = COLOURS[number % len(COLOURS)], "os^Dv"[number // len(COLOURS) % 5]
        axes.plot(*chosen.T, mark, color=colour, markersize=4, alpha=0.7, label=_short(classes[number]))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(frameon=False, fontsize=8)
    _heading(axes, "Vectors", f"the two principal axes, {100 * share:.0f} % of the variance")
