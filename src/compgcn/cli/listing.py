"""The command `list`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text
from typer import Argument

from compgcn.cli.console import Json, out, plain_table, show_json
from compgcn.data import DATASETS
from compgcn.errors import unknown
from compgcn.train.recipes import MODELS

if TYPE_CHECKING:
    from compgcn.train.folder import Folder

KINDS = ("tasks", "models", "encoders", "compositions", "decoders", "samplers", "baselines", "datasets", "runs")


def list_all(
    kind: Annotated[str | None, Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}.")] = None,
    as_json: Json = False,
) -> None:
    """List encoders, decoders, models, data sets and other names.

    Each name comes with a description and the paper it is from. A run in the folder runs has its data and its metric.

    Example: compgcn list decoders
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    found = {name: rows for name, rows in _entries().items() if kind in (None, name)}
    if as_json:
        show_json(found)
        return
    for number, (title, rows) in enumerate((title, rows) for title, rows in found.items() if rows):
        if kind is None:
            out.print("\n" * bool(number) + title, style="bold")
        table = plain_table("name", "description")
        table.show_header, table.columns[0].no_wrap = False, True
        for row in rows:
            table.add_row(row["name"], Text.assemble(row["description"], (f"\n{row['reference']}", "dim")))
        out.print(table)


def _entries() -> dict[str, list[dict[str, str]]]:
    """Return name, description and reference of the rows of every registry."""
    from compgcn.baselines import BASELINES
    from compgcn.nn.compose import COMPOSITIONS, LEARNED
    from compgcn.nn.decoders import DECODERS
    from compgcn.nn.encoder import PRESETS
    from compgcn.run.build import TASKS
    from compgcn.tasks.sampling import SAMPLERS
    from compgcn.train.folder import Folder

    compositions = {**COMPOSITIONS, **LEARNED}
    tables: list[Any] = [TASKS, MODELS, PRESETS, compositions, DECODERS, SAMPLERS, BASELINES, DATASETS]
    found: dict[str, list[dict[str, str]]] = {kind: [] for kind in KINDS}
    for kind, table in zip(KINDS, tables, strict=False):
        for name, row in table.items():
            described = row.description if hasattr(row, "description") else row.origin
            paper = row.reference if hasattr(row, "reference") else row.citation
            found[kind].append({"name": name, "description": described, "reference": paper})
    folders = map(Folder, sorted(Path("runs").glob("*")))
    found["runs"] = [_run(folder) for folder in folders if folder.is_run or folder.is_search]
    return found


def _run(folder: Folder) -> dict[str, str]:
    if folder.is_search:
        return {"name": str(folder.path), "description": "a search", "reference": "not finished; train resumes it"}
    config, metrics = folder.config(), folder.metrics()
    split = "test" if metrics.get("test") else "valid"
    goal = "mrr" if config.task == "link-prediction" else "accuracy"
    reached = metrics.get(split, {}).get(goal)
    said = "not finished" if not metrics else "no metrics" if reached is None else f"{split} {goal} {reached:.4f}"
    return {"name": str(folder.path), "description": f"{config.task} on {config.data.source}", "reference": said}
