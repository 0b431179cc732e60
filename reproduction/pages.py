"""Report pages: Markdown, HTML and a figure for each experiment, and docs/results.md for all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from compgcn.run.plots import COLOURS, FAINT, INK, PANEL, Panel, check_figure, save, short
from compgcn.run.report import Table, page_html
from reproduction import ROOT, claims
from reproduction.differences import FIDELITY, compared, difference_tables, rule
from reproduction.experiment import Experiment
from reproduction.tables import ROOM, TOLERANCE, VISIBLE, Board, markdown, relative, tables, title

_TEXT = (Path(__file__).parent / "reading.txt").read_text(encoding="utf-8")
_READ = _TEXT.format(same=100 * TOLERANCE, room=100 * ROOM, visible=VISIBLE).splitlines()


def page(board: Board, experiment: Experiment, level: int = 1, figure: str | None = None) -> list[str | Table]:
    """Return an experiment as headings, paragraphs and tables; a page of its own has the rules too."""
    parts: list[str | Table] = [f"{'#' * level} {experiment.title}"]
    source = claims.placed(experiment.source)
    whose = " in the paper" if source != experiment.source else ""
    ranks = f"Ranks{whose}: {experiment.ranks}." if experiment.ranks else ""
    parts.append(" ".join(filter(None, (f"Source: {source}.", ranks, experiment.note))))
    if figure is not None:
        parts.append(f"![{experiment.title}]({figure})")
    compared = experiment.kind == "differences"
    for part in difference_tables(board, experiment) if compared else tables(board, experiment):
        if isinstance(part, Table):
            parts += [f"{'#' * (level + 1)} {part.title}"] if part.title else []
            parts += [part] if part.rows else []
        else:
            parts.append(part)
    if experiment.kind in ("table", "differences"):
        about: dict[str, list[str]] = {}
        for row in experiment.rows:
            alike = all(one.note == row.note for one in experiment.rows if one.label == row.label)
            label = row.label if alike else f"{row.group}, {row.label}"
            if row.note and label not in about.setdefault(claims.placed(row.note), []):
                about[claims.placed(row.note)].append(label)
        parts += [f"- {'; '.join(labels)}: {note}." for note, labels in about.items()]
    parts += rule(board, experiment) if compared else []
    return [*parts, *_READ[1:]] if level == 1 and experiment.kind == "table" else parts


def write_one(board: Board, experiment: Experiment) -> list[Path]:
    """Write report.md, report.html and, if there is something to draw, figure.svg beside the results."""
    folder = board.folder / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    figure = folder / "figure.svg"
    drawn = draw(board, experiment, figure)
    parts = page(board, experiment, figure=figure.name if drawn else None)
    texts = {folder / "report.md": markdown(parts), folder / "report.html": page_html(parts, experiment.title)}
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return [*texts, *([figure] if drawn else [])]


def write_all(board: Board, path: Path = ROOT / "docs" / "results.md") -> list[Path]:
    """Write every report, and a page with the claims and all tables."""
    written = [file for experiment in board.experiments.values() for file in write_one(board, experiment)]
    path.write_text(whole(board, path.parent), encoding="utf-8")
    return [path, *written]


def whole(board: Board, beside: Path) -> str:
    """Return the page of all experiments, with links to figures relative to the folder `beside`."""
    found, (answers, evidence) = [*board.experiments.values()], claims.claims_tables(board)
    parts: list[str | Table] = ["# Results", *_READ]
    made = claims.committed()
    parts += ["## Claims", *claims.rules(board), answers, f"### {evidence.title}", made.evidence, evidence]
    places = [*made.places, ""]  # in the order of the paper
    order = {one.name: places.index(label if (label := one.source.split(",")[0]) in places else "") for one in found}
    for experiment in sorted(found, key=lambda one: order[one.name]):
        if experiment.name == FIDELITY:
            parts += [f"## {experiment.title}", f"See [{FIDELITY}.md]({FIDELITY}.md)."]
            continue
        figure = board.folder / experiment.name / "figure.svg"
        link = Path(os.path.relpath(figure, beside)).as_posix() if figure.is_file() else None
        parts += page(board, experiment, 2, link)
    return markdown(parts)


_LETTERS = 48  # most letters of a label
_WIDE = 10  # ratio of the last x to the first that asks for a log axis


def draw(board: Board, experiment: Experiment, path: Path) -> bool:
    """Draw a figure or differences and return True, or return False if there is nothing to draw."""
    height = 0.3 * len(experiment.rows) if experiment.kind == "differences" else 0.0
    panels = {"differences": _differences, "figure": _lines}
    if experiment.kind in panels and (panel := panels[experiment.kind](board, experiment)) is not None:
        save([panel], experiment.title, check_figure(path), height=max(PANEL[1], height))
        return True
    path.unlink(missing_ok=True)
    return False


def _differences(board: Board, experiment: Experiment) -> Panel | None:
    """Draw the difference of each row to its control over a bar of the size that chance explains."""
    metric = experiment.metrics[0]
    found = [(row.label, *compared(board, experiment, row)) for row in experiment.rows]
    rows = [(label, gap, most or 0.0) for label, gap, most, _ in found if gap is not None]

    def panel(axes: Any) -> None:
        axes.axvline(0, color=INK, linewidth=0.8)
        left, wide = [-most for _, _, most in rows], [2 * most for _, _, most in rows]
        axes.barh(range(len(rows)), wide, 0.6, left, color=FAINT, label="chance alone, 19 times in 20")
        axes.plot([gap for _, gap, _ in rows], range(len(rows)), "D", color=COLOURS[0], markersize=6, label="measured")
        axes.set_yticks(range(len(rows)), [short(label, _LETTERS) for label, _, _ in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="x")
        axes.set_xlabel(f"change of {title(metric)}")
        axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, -0.12), ncols=2)  # covers no row

    return panel if rows else None


def _lines(board: Board, experiment: Experiment) -> Panel | None:
    """Draw each series as a line of changes relative to the reference, with deviations over seeds."""
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for row in experiment.rows:
        change = relative(board, experiment, row)
        if change is not None and row.x is not None:
            lines.setdefault(row.series, []).append((row.x, 100 * change[0], 100 * change[1]))

    def panel(axes: Any) -> None:
        for k, (name, points) in enumerate(lines.items()):
            x, y, spread = zip(*sorted(points), strict=True)
            axes.errorbar(x, y, spread if any(spread) else None, fmt="o-", capsize=3, color=COLOURS[k], label=name)
        places = sorted({x for points in lines.values() for x, _, _ in points})
        if places[0] > 0 and places[-1] / places[0] > _WIDE:
            axes.set_xscale("log")
            axes.set_xticks(places, [f"{x:,g}" for x in places], minor=False)
            axes.minorticks_off()
        axes.set_xlabel(experiment.axis)
        axes.set_ylabel(f"{title(experiment.metrics[0])} relative to {experiment.reference}, %")
        axes.grid()
        if any(lines):
            axes.legend(frameon=False)

    return panel if lines else None


def draw_speed(reports: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw time and memory of a layer against the number of messages, ours and edge by edge, for each machine."""
    panels, kinds = list[Panel](), {"ms": "time, ms", "mib": "peak memory, MiB"}
    for report in reports:
        lines = {
            legend: (colour, [(row["messages"], row[name] or {}) for row in report["scaling"]])
            for name, colour, legend in (("per_edge", COLOURS[3], "per edge"), ("ours", COLOURS[0], "this package"))
        }
        panels += [partial(_grown, report, lines, "messages (both directions)", *kind, {}) for kind in kinds.items()]
    save(panels, "One layer (mult, 100 → 100), forward and backward", check_figure(path), height=3.2)


def stage_of(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a stage of a model; an epoch with the peak of its first steps too, which compile and record."""
    peaks = [found[one]["gib"] for one in ("warm up", name) if name == "epoch" and "gib" in found.get(one, {})]
    return {**found.get(name, {}), **({"gib": max(peaks)} if peaks else {})}


def draw_large(report: dict[str, Any], path: Path) -> None:
    """Draw the time and the peak memory of every stage against the number of triples."""
    named = {
        "read": "read",
        "distmult/epoch": "an epoch, DistMult",
        "distmult + compgcn/epoch": "an epoch, DistMult + CompGCN",
        "distmult/evaluate": "ranks of up to 20,000 triples",
        "distmult/discover": "discover",
    }
    lines, beneath = {}, {"bbox_to_anchor": (0.5, -0.25), "loc": "upper center"}
    for (name, legend), colour in zip(named.items(), COLOURS, strict=False):
        model, _, stage = name.rpartition("/")
        stages = [(row["triples"], row["models"].get(model, {}) if model else row) for row in report["rows"]]
        lines[legend] = colour, [(size, stage_of(one, stage)) for size, one in stages]
    kinds = (("seconds", "time, s"), ("gib", "peak memory, GiB"))
    panels = [partial(_grown, report, lines, "triples", *kind, beneath) for kind in kinds]
    save(panels, "Synthetic graphs", check_figure(path), height=4.2)


def _grown(
    report: dict[str, Any],
    lines: Mapping[str, tuple[str, list[tuple[int, dict[str, Any]]]]],
    size: str,
    key: str,
    label: str,
    legend: dict[str, Any],
    axes: Any,
) -> None:
    """Draw a measure against sizes, both on logarithmic axes with plain numbers: the figures do not read formulas."""
    for name, (colour, rows) in lines.items():
        points = [(x, one[key]) for x, one in rows if one.get(key)]
        if points:
            axes.plot(*zip(*points, strict=True), "o-", color=colour, label=name, markersize=4)
    axes.set(xscale="log", yscale="log", xlabel=size, ylabel=label)
    for axis, form in ((axes.xaxis, "{x:,.0f}"), (axes.yaxis, "{x:,g}")):
        axis.set_major_formatter(form)
        axis.set_minor_formatter("")
    axes.set_title(report["environment"]["device"])
    axes.grid()
    axes.legend(frameon=False, **legend)
