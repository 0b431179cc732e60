"""Report pages: Markdown, HTML and a figure for each experiment, and docs/results.md for all of them."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from compgcn.run.report import Table, markdown, page_html
from compgcn.train.storage import replace
from reproduction import claims
from reproduction.differences import FIDELITY, difference_tables, rule
from reproduction.experiment import CLAIMS, Experiment
from reproduction.figures import draw
from reproduction.tables import RULE, TIES, Board, is_converted, tables

_INTRO = (
    "The paper's numbers and ours, row by row. `python -m reproduction report --all` writes this page from the committed "
    "results; `python -m reproduction train NAME` trains rows that have none. Sources are places in the paper."
)
_CONVERTED = (
    "{} of the {} results predate the present format: they lack parameters, categories and calibration. Their peak "
    "memory is left out, because other rows shared the process."
)


def page(board: Board, experiment: Experiment, level: int = 1, figure: str | None = None) -> list[str | Table]:
    """Return an experiment as headings, paragraphs and tables."""
    parts: list[str | Table] = [f"{'#' * level} {experiment.title}"]
    ranks = f"Ranks in the paper: {experiment.ranks}." if experiment.ranks else ""
    parts.append(" ".join(filter(None, (f"Source: {claims.placed(experiment.source)}.", ranks, experiment.note))))
    found = [result for row in experiment.rows for result in board.results(experiment, row)]
    if any(result.get("smoke") for result in found):
        parts.append("These are trial runs of small models on a small graph, not results.")
    if figure is not None:
        parts.append(f"![{experiment.title}]({figure})")
    compared = experiment.kind == "differences"
    for table in difference_tables(board, experiment) if compared else tables(board, experiment):
        parts += [f"{'#' * (level + 1)} {table.title}"] if table.title else []
        parts.append(table)
    if experiment.kind in ("table", "differences"):
        notes = [f"{row.label}: {claims.placed(row.note)}" for row in experiment.rows if row.note]
        parts += [f"- {note}." for note in dict.fromkeys(notes)]
    converted = sum(map(is_converted, found))
    parts += [_CONVERTED.format(converted, len(found))] if converted else []
    parts += [rule(board, experiment)] if compared else []
    if experiment.kind == "table":
        first = experiment.metrics[0]
        judged = "/" not in first and any(first in row.paper for row in experiment.rows)
        rules = [RULE] * judged + [TIES] * bool(experiment.ranks)
        parts += [" ".join(rules)] if rules else []
    return parts


def write_one(board: Board, experiment: Experiment) -> list[Path]:
    """Write report.md, report.html and, if there is something to draw, figure.svg beside the results."""
    folder = board.folder / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    figure = folder / "figure.svg"
    drawn = importlib.util.find_spec("matplotlib") is not None and draw(board, experiment, figure)
    parts = page(board, experiment, figure=figure.name if drawn else None)
    texts = {folder / "report.md": markdown(parts), folder / "report.html": page_html(parts, experiment.title)}
    for path, text in texts.items():
        write(path, text)
    return [*texts, *([figure] if drawn else [])]


def write_all(board: Board, path: Path) -> list[Path]:
    """Write every report, and a page with the claims and all tables."""
    written = [file for experiment in board.experiments.values() for file in write_one(board, experiment)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, whole(board, path.parent))
    return [path, *written]


def whole(board: Board, beside: Path) -> str:
    """Return the page of all experiments, with links to figures relative to the folder `beside`."""
    table = claims.claims_table(board, claims.read_claims(CLAIMS))
    parts: list[str | Table] = ["# Results", _INTRO, "## Claims", claims.RULE, table]
    for experiment in board.experiments.values():
        if experiment.name == FIDELITY:
            parts += [f"## {experiment.title}", f"See [{FIDELITY}.md]({FIDELITY}.md)."]
            continue
        figure = board.folder / experiment.name / "figure.svg"
        link = Path(os.path.relpath(figure, beside)).as_posix() if figure.is_file() else None
        parts += page(board, experiment, 2, link)
    return markdown(parts)


def write(path: Path, text: str) -> None:
    """Write a text file, complete or not at all."""
    replace(path, lambda part: part.write_text(text, encoding="utf-8"))
