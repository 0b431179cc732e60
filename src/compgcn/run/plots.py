"""Figures of data sets, runs and studies, drawn with matplotlib (the extra `plot`).

A panel is a function that draws on axes: `save` puts several into a file, `inline` makes one an <svg> element.
"""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compgcn.data.columns import check_place
from compgcn.data.statistics import Bin, Distribution, Leakage, Summary, bins, even_bins, middle
from compgcn.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from compgcn.answers.calibrate import Bin as Interval

Panel = Callable[["Axes"], None]
Points = tuple[NDArray[np.float32], NDArray[np.int64]]  # vectors [n, d] of items, and their classes [n]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
INK, FAINT = "#333333", "#DDDDDD"
BARS = 15  # the largest number of bars with a name each
PANEL = (6.4, 4.2)  # inches
_THIN = 5  # fewer bars than this leave space below them
_STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a $ in a name is a $
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "compgcn",  # the same figure has the same bytes
}
_INLINE: Any = {"svg.fonttype": "none", "figure.facecolor": "none", "axes.facecolor": "none"}
WAYS = {  # in which train may give a fact (s, r, o) away
    "copies": "a copy (s, r, o)",
    "symmetric": "a mirror image (o, r, s)",
    "near_duplicates": "another relation (s, r′, o)",
    "inverses": "an inverse (o, r′, s)",
    "any": "any of these",
    "copy_rule": "the answer by a copy rule",
}


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def check_figure(path: str | Path) -> Path:
    """Return the path of a figure, or refuse one that cannot be drawn."""
    if not can_draw():
        raise InputError("figures are drawn with matplotlib: pip install 'compgcn[plot]'")
    return check_place(path, "a figure is a .png, .pdf or .svg file", ".png", ".pdf", ".svg")


def save(panels: Sequence[Panel], title: str, path: Path, height: float = PANEL[1]) -> None:
    """Draw panels side by side under a title, then write the file."""
    from compgcn.train.storage import replace_here

    replace_here(path, lambda part: part.write_bytes(_drawn(panels, title, path.suffix.lower()[1:], height, _STYLE)))


def inline(panel: Panel, mark: str, height: float) -> str:
    """Draw a panel as an <svg> element with the colours and the font of its page; `mark` makes its ids unique."""
    text = _drawn([panel], "", "svg", height, _STYLE | _INLINE).decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    for size in ("width", "height"):
        text = re.sub(rf'(<svg\b[^>]*?) {size}="[^"]*"', r"\1", text)
    text = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{mark}", text)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", text)
    return text.replace(INK, "currentColor").replace(FAINT.lower(), "var(--line)").strip()


def _drawn(panels: Sequence[Panel], title: str, form: str, height: float, style: Any) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(style):
        spaces = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15, hspace=0.04, wspace=0.04)
        figure = Figure((PANEL[0] * columns, height * rows + 0.5 * bool(title)), layout=spaces)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            panel(axes)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        if title:
            figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
        drawn = io.BytesIO()
        figure.savefig(drawn, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)
    return drawn.getvalue()


def heading(axes: Axes, title: str, subtitle: str = "") -> None:
    """Write a bold title, and one faint line under it."""
    axes.set_title(title, pad=20 if subtitle else 8)
    if subtitle:
        axes.text(0, 1.02, subtitle, transform=axes.transAxes, fontsize=9, alpha=0.75)


def printable(text: str) -> str:
    """Return a name without the control characters that would move the cursor or turn the text around."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def short(name: str, letters: int = 32) -> str:
    """Return a name that fits beside a bar: its start and its end, which tell long names apart."""
    clean, half = printable(name), letters // 2
    return clean if len(clean) <= letters else f"{clean[: half - 1]}…{clean[-half:]}"


def between(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def typical(values: NDArray[np.int64]) -> str:
    """Return the mean, the median and the largest of some values in words."""
    mean, median, largest = middle(values)
    return f"mean {mean:,.1f}, median {median:,.0f}, largest {largest:,}"


def _label(axes: Axes, x: str = "", y: str = "", grid: Any = "both", thousands: str = "") -> None:
    """Name the axes, draw grid lines, and write the ticks of some axes (`thousands`) as 10,000."""
    from matplotlib.ticker import FuncFormatter

    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis=grid)
    for name in thousands:
        form = FuncFormatter(lambda value, _: f"{value:,.0f}" if value == round(value) else "")
        getattr(axes, f"{name}axis").set_major_formatter(form)


def _bars(
    axes: Axes, names: Sequence[str], parts: Mapping[str, Any], unit: str, form: str = ",", most: float | None = None
) -> None:
    """Draw horizontal bars: a group for each name, a colour for each part, and its value at the end of each bar.

    The axis ends at `most`, or at the largest value; `form` formats the values.
    """
    height = 0.8 / len(parts)
    for k, (part, values) in enumerate(parts.items()):
        at = np.arange(len(names)) + (k - (len(parts) - 1) / 2) * height
        drawn = axes.barh(at, values, height=0.9 * height, color=COLOURS[k], label=part)
        axes.bar_label(drawn, [format(value, form) for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(len(names), _THIN) - 0.5, -0.5)
    if most is None:
        axes.set_xlim(0, 1.15 * max((max(values, default=0) for values in parts.values()), default=0) or 1)
        axes.locator_params(axis="x", nbins=5)
    else:
        axes.set_xlim(0, 1.1 * most)
        axes.set_xticks(np.linspace(0, most, 5))
    _label(axes, unit, grid="x", thousands="x" if most is None else "")
    if len(parts) > 1:
        axes.legend(loc="lower right")


# Classifications


def draw_report(title: str, report: Mapping[str, Any], classes: Sequence[str], points: Points, path: Path) -> None:
    """Draw the confusion matrix of a classification, the accuracy of each fold, and the vectors of the items."""
    panels: list[Panel] = [partial(confusion, counts=np.array(report["confusion"]), classes=classes)]
    if "folds" in report:
        panels.append(partial(_folds, report=report))
    panels.append(partial(_plane, points=points, classes=classes))
    save(panels, title, path)


def confusion(axes: Axes, counts: NDArray[np.int64], classes: Sequence[str]) -> None:
    """Draw how many items of each class (a row) the model gave each class (a column)."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(classes) <= BARS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.5 else "#222222"  # dark also where the page is
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour, fontsize=9)
    names = [short(name) for name in classes]
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    right = 100 * counts.trace() / max(counts.sum(), 1)
    heading(axes, "Confusion matrix", f"{counts.trace():,} of {counts.sum():,} right, {right:.1f} %")


def _folds(axes: Axes, report: Mapping[str, Any]) -> None:
    values = [100 * fold["accuracy"] for fold in report["folds"]]
    drawn = axes.bar(range(1, len(values) + 1), values, color=COLOURS[0], width=0.8)
    axes.bar_label(drawn, [f"{value:.0f}" for value in values], padding=2, fontsize=8)
    mean, deviation = 100 * report["accuracy"], 100 * report["accuracy_sd"]
    axes.axhline(mean, color=COLOURS[3], linewidth=1.5)
    axes.set_ylim(0, 108)
    axes.set_xticks(range(1, len(values) + 1))
    _label(axes, "fold", "accuracy, %", "y")
    heading(axes, "Folds", f"mean {mean:.1f} ± {deviation:.1f} %")


def _plane(axes: Axes, points: Points, classes: Sequence[str]) -> None:
    from compgcn.answers.similar import pca

    vectors, targets = points
    places, shares = pca(vectors)
    for number, name in enumerate(classes):
        colour, mark = COLOURS[number % len(COLOURS)], "os^Dv"[number // len(COLOURS) % 5]
        axes.plot(*places[targets == number].T, mark, color=colour, markersize=4, alpha=0.7, label=short(name))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(fontsize=8)
    heading(axes, "Vectors", f"the two principal axes, {100 * sum(shares):.0f} % of the variance")


# Data sets


def draw_summary(summary: Summary, path: Path) -> None:
    """Draw the degrees, relation frequencies, labels and leakage of a data set, a panel each."""
    panels: list[Panel] = []
    if (sizes := summary.graph_sizes) is not None:
        labels = ("Size of the graphs", "nodes of a graph", "graphs")
        panels.append(partial(_histogram, values=sizes, columns=even_bins(sizes), labels=labels))
    labels = ("Degree", f"{summary.edges} at each of the {summary.nodes}", summary.nodes)
    panels.append(partial(_histogram, values=summary.degrees, columns=bins(summary.degrees), labels=labels))
    panels.append(partial(_relations, summary=summary))
    panels += [partial(_labels, distribution=one) for one in summary.distributions if one.parts]
    if summary.leakage is not None:
        panels.append(partial(_leakage, leakage=summary.leakage))
    kinds = ("graphs", "entities", "nodes", "relations", "triples", "edges")
    counts = [f"{summary.statistics[key]:,} {key}" for key in kinds if key in summary.statistics]
    save(panels, "  ·  ".join([summary.name, *counts]), path)


def _histogram(axes: Axes, values: NDArray[np.int64], columns: Sequence[Bin], labels: Sequence[str]) -> None:
    """Draw a column for each bin; large counts stand on a log axis."""
    title, x, y = labels
    counts = [size for _, _, size in columns]
    axes.bar(range(len(columns)), counts, width=0.92, color=COLOURS[0])
    names = [between(low, high) for low, high, _ in columns]
    turn: Any = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if sum(map(len, names)) > 36 else {}
    axes.set_xticks(range(len(columns)), names, **turn)
    if max(counts, default=1) > 50:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
    _label(axes, x, y, "y", thousands="y")
    heading(axes, title, typical(values))


def _relations(axes: Axes, summary: Summary) -> None:
    """Draw a bar for each of a few relations, or the frequency of many against their rank."""
    counts = summary.by_relation[summary.order]
    if len(counts) <= BARS:
        _bars(axes, [summary.relation_names[r] for r in summary.order], {"": counts}, summary.edges)
        heading(axes, "Relations", f"{summary.edges} of each")
        return
    axes.loglog(np.arange(1, len(counts) + 1), np.maximum(counts, 1), "o", markersize=4, color=COLOURS[0], alpha=0.8)
    _label(axes, "rank of the relation", summary.edges, thousands="xy")
    half = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2)) + 1
    heading(axes, "Relations by frequency", f"the first {half:,} of {len(counts):,} have half of all {summary.edges}")


def _labels(axes: Axes, distribution: Distribution) -> None:
    total = np.sum(list(distribution.parts.values()), axis=0)
    order = np.argsort(-total, kind="stable")[:BARS]
    unit = distribution.what.rpartition(" ")[2]
    parts = {part: counts[order] for part, counts in distribution.parts.items()}
    _bars(axes, [distribution.classes[c] for c in order], parts, unit)
    subtitle = f"{unit} of each" if len(total) <= BARS else f"the {BARS} most frequent of {len(total):,}"
    heading(axes, distribution.what.capitalize(), subtitle)


def _leakage(axes: Axes, leakage: Leakage) -> None:
    splits = {part: given for part, given in leakage.splits.items() if given.triples}
    shares = {part: [100 * getattr(given, way) / given.triples for way in WAYS] for part, given in splits.items()}
    _bars(axes, list(WAYS.values()), shares, "% of the facts of the split", ".1f", 100)
    nothing = not any(given.any for given in splits.values())
    heading(axes, "Leakage", "train gives nothing away" if nothing else "facts for which train holds …")


# Runs


def training(axes: Axes, epochs: Sequence[float], values: Sequence[float], figure: str, best: int | None) -> None:
    """Draw the loss or a validation metric against the epoch, and mark the epoch whose weights the run kept."""
    is_loss = figure == "loss"
    mark = "o" if len(epochs) < 60 else None
    axes.plot(epochs, values, color=COLOURS[is_loss], linewidth=1.8, marker=mark, markersize=3.5)
    if best is not None and best in epochs and not is_loss:
        axes.plot([best], [values[list(epochs).index(best)]], "D", color=COLOURS[3], markersize=7)
    axes.locator_params(axis="x", integer=True)
    _label(axes, "epoch")
    if is_loss:
        heading(axes, "Training loss", f"from {values[0]:.4g} to {values[-1]:.4g}")
        return
    if 0 <= min(values) <= max(values) <= 1:
        axes.set_ylim(top=min(axes.get_ylim()[1], 1.01))
    kept = f", the epoch kept is {best}" if best else ""
    name = "MRR" if figure == "mrr" else figure.replace("_", " ")
    heading(axes, f"Validation {name}", f"highest {max(values):.4g}{kept}")


def calibration(axes: Axes, found: Mapping[str, Sequence[Interval]]) -> None:
    """Draw the share of right answers against their probability; a larger point stands for more answers."""
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1.5)
    for k, (name, parts) in enumerate(found.items()):
        chances, right = [one.probability for one in parts], [one.right for one in parts]
        sizes = 20 + 180 * np.array([one.answers for one in parts]) / max(one.answers for one in parts)
        axes.plot(chances, right, color=COLOURS[k], linewidth=1.2)
        axes.scatter(chances, right, s=sizes, color=COLOURS[k], alpha=0.85, linewidths=0, label=name)
    axes.set_xlim(-0.04, 1.04)
    axes.set_ylim(-0.04, 1.04)
    _label(axes, "probability", "share of right answers")
    if len(found) > 1:
        axes.legend(fontsize=8)  # where it covers least
    heading(axes, "Reliability", "on the line, a probability means what it says")


def sides(axes: Axes, title: str, parts: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw the MRR of heads and of tails, two bars for each category or relation."""
    names = list(parts)[:BARS]
    values = {f"{side}s": [parts[name][side]["mrr"] for name in names] for side in ("head", "tail")}
    _bars(axes, names, values, "MRR", ".2f", 1)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8)
    more = f"the {BARS} most frequent of {len(parts):,}" if len(parts) > BARS else "asked for heads and for tails"
    heading(axes, title, more)


# Studies


def draw_study(result: Mapping[str, Any], history: Sequence[tuple[int, float | None]], path: Path) -> None:
    """Draw the validation metric of each trial (None for one without), and the importance of each setting."""
    panels: list[Panel] = [partial(_history, result=result, history=history)]
    if result["importance"]:
        panels.append(partial(_importance, shares=result["importance"]))
    save(panels, f"{result['study']}  ·  {result['trials']} trials", path)


def _history(axes: Axes, result: Mapping[str, Any], history: Sequence[tuple[int, float | None]]) -> None:
    numbers, values = np.array([pair for pair in history if pair[1] is not None], dtype=float).T
    best = np.maximum.accumulate(values)
    axes.plot(numbers, values, "o", color=COLOURS[0], markersize=4, alpha=0.7, label="trial")
    axes.step(numbers, best, where="post", color=COLOURS[3], linewidth=1.5, label="best so far")
    for number in (number for number, value in history if value is None):
        axes.axvline(number, ymax=0.03, color=INK, linewidth=0.8)
    axes.locator_params(axis="x", integer=True)
    axes.legend(loc="lower right")
    _label(axes, "trial; a tick for one that was stopped early", f"validation {result['goal']}", "y")
    heading(axes, "History", f"best {result['best']['value']:.4f} in trial {result['best']['trial']}")


def _importance(axes: Axes, shares: Mapping[str, float]) -> None:
    values = {"": [100 * share for share in shares.values()]}
    _bars(axes, list(shares), values, "% of the difference between trials", ".0f", 100)
    heading(axes, "Importance", "share of the differences that a setting explains")
