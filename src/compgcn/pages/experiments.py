"""The files of experiments: a page for each, and one of all of them."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from compgcn.claims import RULE as CLAIMS
from compgcn.claims import read_claims
from compgcn.experiment import Experiment, Row, find_folder
from compgcn.pages.claims import SHORT, claims_table
from compgcn.pages.differences import difference, difference_tables, limit
from compgcn.pages.differences import rule as differences_rule
from compgcn.pages.fidelity import NAME as FIDELITY
from compgcn.pages.fidelity import filled
from compgcn.pages.markup import markdown, page_html
from compgcn.pages.paper import placed
from compgcn.plots.results import Curves, draw_differences, draw_lines, draw_rows
from compgcn.report import RULE, TIES, Board, is_converted, relative, tables, title
from compgcn.storage import replace
from compgcn.tables import Table

_LINES = 6  # about so many in one panel
_ANSWERS = 30  # of which a share is drawn; that of fewer is chance

_INTRO = (
    "What the paper reports and what this package reaches, row by row. This page is made from the committed "
    "results by `compgcn report --all`; `compgcn reproduce NAME` trains what has not been run yet. Sources are places "
    "in the paper."
)

_CONVERTED = (
    "{} of the {} results were recorded before `compgcn reproduce` wrote results, and lack parameters, categories and "
    "calibration; their peak memory is that of a process with other rows in it, and is left out."
)


def page(board: Board, experiment: Experiment, level: int = 1, figure: str | None = None) -> list[str | Table]:
    """An experiment as headings, paragraphs and tables."""
    parts: list[str | Table] = [f"{'#' * level} {experiment.title}"]
    about = [f"Source: {placed(experiment.source)}."]
    about += [f"Ranks of the paper: {experiment.ranks}."] if experiment.ranks else []
    about += [experiment.note] if experiment.note else []
    parts.append(" ".join(about))
    found = [result for row in experiment.rows for result in board.results(experiment, row)]
    if any(result.get("smoke") for result in found):
        parts.append("These are trial runs of small models on a small graph, and no results.")
    if figure is not None:
        parts.append(f"![{experiment.title}]({figure})")
    compared = experiment.kind == "differences"
    for table in difference_tables(board, experiment) if compared else tables(board, experiment):
        parts += [f"{'#' * (level + 1)} {table.title}"] if table.title else []
        parts.append(table)
    noted = experiment.kind in ("table", "differences")
    notes = [f"{row.label}: {placed(row.note)}" for row in experiment.rows if row.note and noted]
    parts += [f"- {note}." for note in dict.fromkeys(notes)]
    converted = sum(map(is_converted, found))
    if converted:
        parts.append(_CONVERTED.format(converted, len(found)))
    if compared:
        parts.append(differences_rule(board, experiment))
    if experiment.kind == "table":
        judged = "/" not in experiment.metrics[0] and any(experiment.metrics[0] in row.paper for row in experiment.rows)
        parts += [" ".join([RULE] * judged + [TIES] * bool(experiment.ranks))] if judged or experiment.ranks else []
    return parts


def write_one(board: Board, experiment: Experiment) -> list[Path]:
    """report.md, report.html and, where there is something to draw, figure.svg, in the folder of its results."""
    folder = board.folder / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [folder / "figure.svg"] if draw(board, experiment, folder / "figure.svg") else []
    parts = page(board, experiment, figure="figure.svg" if drawn else None)
    texts = {"report.md": markdown(parts), "report.html": page_html(parts, experiment.title)}
    for name, text in texts.items():
        _write(folder / name, text)
    return [*(folder / name for name in texts), *drawn]


def write_all(board: Board, path: Path) -> list[Path]:
    """Every report, a page with the claims and all tables, and, where it lies beside that, the page of deviations."""
    written = [file for experiment in board.experiments.values() for file in write_one(board, experiment)]
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, whole(board, path.parent))
    prices = path.parent / f"{FIDELITY}.md"
    if prices.is_file() and FIDELITY in board.experiments:
        _write(prices, filled(prices.read_text(encoding="utf-8"), board))
        written.insert(0, prices)
    return [path, *written]


def whole(board: Board, beside: Path) -> str:
    """The page of all experiments; links to figures lead there from the folder `beside`."""
    claims = find_folder() / "claims.toml"
    parts: list[str | Table] = ["# Results", _INTRO]
    if claims.is_file():
        table = claims_table(board, read_claims(claims))
        parts += ["## Claims", f"{CLAIMS} {SHORT}", table]
    for experiment in board.experiments.values():
        if experiment.name == FIDELITY and (beside / f"{FIDELITY}.md").is_file():
            parts += [f"## {experiment.title}", f"On a page of its own: [{FIDELITY}.md]({FIDELITY}.md)."]
            continue
        figure = board.folder / experiment.name / "figure.svg"
        link = Path(os.path.relpath(figure, beside)).as_posix() if figure.is_file() else None
        parts += page(board, experiment, 2, link)
    return markdown(parts)


def _write(path: Path, text: str) -> None:
    replace(path, lambda part: part.write_text(text, encoding="utf-8"))


def draw(board: Board, experiment: Experiment, path: Path) -> bool:
    """Draw an experiment that has results: paper and ours of each row, differences, or lines; whether it was."""
    if experiment.kind == "generated" or importlib.util.find_spec("matplotlib") is None:
        return False
    metric = experiment.metrics[0]
    if experiment.kind == "figure":
        return _draw_lines(board, experiment, path)
    if experiment.kind == "differences":
        return _draw_differences(board, experiment, path)
    rows = []
    for row in experiment.rows:
        ours = board.real(experiment, row, metric)
        rows.append((_label(row), row.paper.get(metric), None if ours is None else (ours.mean, ours.sd)))
    if all(ours is None for _, _, ours in rows):
        return False
    draw_rows(experiment.title, rows, title(metric), *_best(board, experiment), path)
    return True


def _draw_lines(board: Board, experiment: Experiment, path: Path) -> bool:
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for row in experiment.rows:
        change = relative(board, experiment, row)
        if change is not None and row.x is not None:
            lines.setdefault(row.series, []).append((row.x, 100 * change.share, 100 * change.sd))
    if sum(map(len, lines.values())) < 2:
        return False
    labels = (experiment.axis, f"{title(experiment.metrics[0])} relative to {experiment.reference}, %")
    draw_lines(experiment.title, lines, labels, path)
    return True


def _draw_differences(board: Board, experiment: Experiment, path: Path) -> bool:
    metric = experiment.metrics[0]
    found = [(row, difference(board, experiment, row, metric)) for row in experiment.rows]
    rows = [(row.label, one.gap, limit(board, experiment, row)) for row, one in found if one is not None]
    if rows:
        draw_differences(experiment.title, rows, title(metric), path)
    return bool(rows)


def _best(board: Board, experiment: Experiment) -> tuple[Curves, Curves]:
    """Validation curves and calibration of the rows with the highest figures of each group, of their first seed."""
    metric = experiment.metrics[0].rpartition("/")[2]
    scale = 100 if metric == "accuracy" else 1
    groups: dict[str, list[tuple[float, Row]]] = {}
    for row in experiment.rows:
        ours = board.real(experiment, row, experiment.metrics[0])
        if ours is not None and len(board.results(experiment, row)[0]["curve"].get(metric, ())) > 1:
            groups.setdefault(row.group, []).append((ours.mean, row))
    curves: dict[str, Any] = {}
    calibration: dict[str, Any] = {}
    for found in groups.values():
        for _, row in sorted(found, key=lambda pair: -pair[0])[: max(1, _LINES // len(groups))]:
            result = board.results(experiment, row)[0]
            curves[_label(row)] = (result["curve"]["epoch"], [scale * value for value in result["curve"][metric]])
            bins = [one for one in result.get("calibration") or () if one["answers"] >= _ANSWERS]
            if bins:
                calibration[_label(row)] = ([one["probability"] for one in bins], [one["right"] for one in bins])
    return curves, calibration


def _label(row: Row) -> str:
    """A row in a few words."""
    return f"{row.label}, {row.group}" if row.group and row.group not in row.label else row.label
