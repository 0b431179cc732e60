"""The figure of a search for settings."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compgcn.answers.calibrate import Bin
from compgcn.answers.similar import pca
from compgcn.data.statistics import Distribution, Summary, bins, middle
from compgcn.errors import InputError

if TYPE_CHECKING:
    from compgcn.answers.calibrate import Bin


Panel = Callable[[Any], None]  # draws on the axes it is given

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
INK, FAINT = "#333333", "#DDDDDD"
DARK = "#222222"  # on a light colour, also where the page is dark
_ENDINGS = (".png", ".pdf", ".svg")
BARS = 15  # at most so many bars with a name each
THIN = 5  # bars are as thin as if there were so many
_LETTERS = 32  # of a name beside a bar
PANEL = (6.4, 4.2)  # inches
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
    "svg.hashsalt": "compgcn",  # the same figure has the same bytes
}

_INLINE: Any = {"svg.fonttype": "none", "figure.facecolor": "none", "axes.facecolor": "none"}


def check_figure(path: str | Path) -> Path:
    """The path of a figure to be, refused before any work is done for it."""
    path = Path(path)
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(f"a figure is a .png, .pdf or .svg file, not '{path.name}'")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder '{path.parent}' to put '{path.name}' in; make it first")
    if path.exists() and not path.is_file():
        raise InputError(f"'{path}' exists and is not a file that could be replaced; choose another name")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("figures are drawn with matplotlib: pip install 'compgcn[plot]'") from None
    return path


def save(panels: Sequence[Panel], title: str, path: Path, height: float = PANEL[1]) -> None:
    """Panels two or three abreast under a title; nothing is written before all is drawn."""
    drawn = _drawn(panels, title, path.suffix.lower()[1:], height)
    try:
        path.write_bytes(drawn)
    except OSError as error:
        raise InputError(f"could not write {path}: {error.strerror}") from None


def inline(panel: Panel, mark: str, height: float = PANEL[1]) -> str:
    """A panel as an <svg> element for a page, whose colours and letters it takes.

    Args:
        panel: draws on the axes it is given.
        mark: before every id in it, which must be unique in a page.
        height: of the panel in inches.
    """
    text = _drawn([panel], "", "svg", height, _INLINE).decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", text))
    text = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{mark}", text)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", text)
    return text.replace(INK, "currentColor").replace(FAINT.lower(), "var(--line)").strip()


def _drawn(
    panels: Sequence[Panel], title: str, form: str, height: float, style: Mapping[str, Any] | None = None
) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = len(panels) if len(panels) <= 3 else 2 if len(panels) == 4 else 3
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(_STYLE | dict(style or {})):
        spaces = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15, hspace=0.04, wspace=0.04)
        size = (PANEL[0] * columns, height * rows + (0.5 if title else 0))
        figure = Figure(figsize=size, layout=spaces)
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


def thousands(axis: Any) -> None:
    """Ticks as 10,000 and not as powers of ten."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value == round(value) else ""))


def heading(axes: Any, title: str, subtitle: str = "") -> None:
    """A bold title, and under it one faint line."""
    axes.set_title(title, pad=20 if subtitle else 8)
    if subtitle:
        axes.text(0, 1.02, subtitle, transform=axes.transAxes, fontsize=9, alpha=0.75)


def short(name: str, letters: int = _LETTERS) -> str:
    """A name that fits beside a bar: its start and its end."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    half = letters // 2
    return clean if len(clean) <= letters else f"{clean[: half - 1]}…{clean[-half:]}"


Points = tuple[NDArray[np.float32], NDArray[np.int64]]


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
    panels: list[Callable[[Any], None]] = [lambda axes: confusion(axes, np.array(report["confusion"]), classes)]
    if "folds" in report:
        panels.append(lambda axes: _folds(axes, report))
    panels.append(lambda axes: _plane(axes, points, classes))
    save(panels, title, check_figure(path))


def confusion(axes: Any, counts: NDArray[np.int64], classes: Sequence[str]) -> None:
    """How many of each class (a row) were given each class (a column), coloured by their share of the row."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(classes) <= BARS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.5 else DARK
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour, fontsize=9)
    names = [short(name) for name in classes]
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    right = 100 * counts.trace() / max(counts.sum(), 1)
    heading(axes, "Confusion matrix", f"{counts.trace():,} of {counts.sum():,} right, {right:.1f} %")


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
    heading(axes, "Folds", f"mean {mean:.1f} ± {deviation:.1f} %")


def _plane(axes: Any, points: Points, classes: Sequence[str]) -> None:
    vectors, targets = points
    places, shares = pca(vectors)
    for number in range(len(classes)):
        chosen = places[targets == number]
        colour, mark = COLOURS[number % len(COLOURS)], "os^Dv"[number // len(COLOURS) % 5]
        axes.plot(*chosen.T, mark, color=colour, markersize=4, alpha=0.7, label=short(classes[number]))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(frameon=False, fontsize=8)
    heading(axes, "Vectors", f"the two principal axes, {100 * sum(shares):.0f} % of the variance")


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


def draw_reliability(title: str, found: Mapping[str, Sequence[Bin]], path: str | Path) -> None:
    """A reliability diagram, before calibration and after, and how many answers have which probability.

    Args:
        title: what it is of.
        found: the answers by their probability, under what the probabilities are; see `compgcn.answers.calibrate`.
        path: the file.
    """
    save([lambda axes: _shares(axes, found), lambda axes: _counts(axes, found)], title, check_figure(path))


def _shares(axes: Any, found: Mapping[str, Sequence[Bin]]) -> None:
    from compgcn.answers.calibrate import calibration_error

    axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=":", label="as it should be")
    for (name, some), colour, mark in zip(found.items(), (COLOURS[1], COLOURS[0]), "so", strict=False):
        label = f"{name}, error {calibration_error(some):.3f}"
        axes.plot([one.probability for one in some], [one.right for one in some], f"{mark}-", color=colour, label=label)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.grid(color=FAINT)
    axes.set_xlabel("mean probability")
    axes.set_ylabel("share that is right")
    axes.legend(frameon=False, fontsize=8)
    heading(axes, "Reliability", "the ten best answers to each query that are no fact of the other splits")


def _counts(axes: Any, found: Mapping[str, Sequence[Bin]]) -> None:
    width = 0.8 / 10 / max(len(found), 1)
    for place, ((name, some), colour) in enumerate(zip(found.items(), (COLOURS[1], COLOURS[0]), strict=False)):
        starts = [min(int(one.probability * 10), 9) / 10 + 0.01 + place * width for one in some]
        axes.bar(starts, [one.answers for one in some], width, align="edge", color=colour, label=name)
    axes.set_yscale("log")
    thousands(axes.yaxis)
    axes.set_xlim(0, 1)
    axes.grid(axis="y")
    axes.set_xlabel("probability")
    axes.set_ylabel("answers")
    axes.legend(frameon=False, fontsize=8)
    heading(axes, "Answers")


_NAMES = {"loss": "loss", "mrr": "MRR", "accuracy": "accuracy", "log_likelihood": "log likelihood"}


def training(axes: Any, epochs: Sequence[float], values: Sequence[float], figure: str, best: int | None) -> None:
    """One figure against the epoch; the epoch whose weights were kept is marked."""
    colour = COLOURS[1] if figure == "loss" else COLOURS[0]
    axes.plot(epochs, values, color=colour, linewidth=1.8, marker="o" if len(epochs) < 60 else None, markersize=3.5)
    if best is not None and figure != "loss" and best in epochs:
        axes.plot([best], [values[list(epochs).index(best)]], "D", color=COLOURS[3], markersize=7)
    axes.grid()
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("epoch")
    name = _NAMES.get(figure, figure)
    if figure == "loss":
        heading(axes, "Training loss", f"from {values[0]:.4g} to {values[-1]:.4g}")
    else:
        if 0 <= min(values) <= max(values) <= 1:
            axes.set_ylim(top=min(axes.get_ylim()[1], 1.01))
        kept = f", the epoch kept is {best}" if best else ""
        heading(axes, f"Validation {name}", f"highest {max(values):.4g}{kept}")


def calibration(axes: Any, found: Mapping[str, Sequence[Bin]]) -> None:
    """How often answers are right against how probable they are said to be; a larger point stands for more answers."""
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1.5)
    for k, (name, parts) in enumerate(found.items()):
        chances, right = [one.probability for one in parts], [one.right for one in parts]
        sizes = 20 + 180 * np.array([one.answers for one in parts]) / max(one.answers for one in parts)
        axes.plot(chances, right, color=COLOURS[k], linewidth=1.2)
        axes.scatter(chances, right, s=sizes, color=COLOURS[k], alpha=0.85, linewidths=0, label=name)
    axes.set_xlim(-0.04, 1.04)
    axes.set_ylim(-0.04, 1.04)
    axes.grid()
    axes.set_xlabel("probability of the best answer")
    axes.set_ylabel("share that is right")
    if len(found) > 1:
        axes.legend(frameon=False, loc="upper left", fontsize=8)
    heading(axes, "Calibration", "on the line, a probability means what it says")


def sides(axes: Any, title: str, parts: Mapping[str, Mapping[str, Any]]) -> None:
    """The MRR of heads and of tails, two bars for each part; of many, the first."""
    names = list(parts)[:BARS]
    for k, side in enumerate(("head", "tail")):
        at = np.arange(len(names)) + (k - 0.5) * 0.4
        values = [parts[name][side]["mrr"] for name in names]
        drawn = axes.barh(at, values, height=0.36, color=COLOURS[k], label=f"{side}s")
        axes.bar_label(drawn, [f"{value:.2f}" for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 1.1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.grid(axis="x")
    axes.set_xlabel("MRR")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8)
    more = f"the {BARS} most frequent of {len(parts):,}" if len(parts) > BARS else "asked for heads and for tails"
    heading(axes, title, more)


def draw_study(result: Mapping[str, Any], history: Sequence[tuple[int, float | None]], path: str | Path) -> None:
    """The figures of the trials of a search one after another, and how much each setting mattered, in one file.

    Args:
        result: of the study, see `compgcn.run.tune.result`.
        history: number and figure of each trial; None for one without.
        path: the file.
    """
    panels: list[Callable[[Any], None]] = [lambda axes: _history(axes, result, history)]
    if result["importance"]:
        panels.append(lambda axes: _importance(axes, result["importance"]))
    save(panels, f"{result['study']}  ·  {result['trials']} trials", check_figure(path))


def _history(axes: Any, result: Mapping[str, Any], history: Sequence[tuple[int, float | None]]) -> None:
    numbers, values = np.array([pair for pair in history if pair[1] is not None], dtype=float).T
    axes.plot(numbers, values, "o", color=COLOURS[0], markersize=4, alpha=0.7, label="trial")
    axes.step(
        numbers, np.maximum.accumulate(values), where="post", color=COLOURS[3], linewidth=1.5, label="best so far"
    )
    for number in (number for number, value in history if value is None):
        axes.axvline(number, ymax=0.03, color=INK, linewidth=0.8)
    axes.grid(axis="y")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("trial; a tick for one that was stopped early")
    axes.set_ylabel(f"validation {result['goal']}")
    axes.legend(frameon=False, loc="lower right")
    heading(axes, "History", f"best {result['best']['value']:.4f} in trial {result['best']['trial']}")


def _importance(axes: Any, shares: Mapping[str, float]) -> None:
    drawn = axes.barh(range(len(shares)), [100 * share for share in shares.values()], height=0.74, color=COLOURS[0])
    axes.bar_label(drawn, [f"{100 * share:.0f}" for share in shares.values()], padding=3, fontsize=8)
    axes.set_yticks(range(len(shares)), [short(name) for name in shares])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(len(shares), THIN) - 0.5, -0.5)
    axes.set_xlim(0, 110)
    axes.grid(axis="x")
    axes.set_xlabel("% of the difference between trials")
    heading(axes, "Importance", "what a setting explains of the figures reached")
