"""The command `list`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text
from typer import Argument

from compgcn.cli.console import Json, out, plain_table, show_json
from compgcn.data import DATASETS
from compgcn.errors import InputError, unknown
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
    found = {one: _runs() if one == "runs" else _of_registry(one) for one in KINDS if kind in (None, one)}
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


def _of_registry(kind: str) -> list[dict[str, str]]:
    """Return name, description and reference of the rows of a registry."""
    from compgcn.baselines import BASELINES
    from compgcn.nn.compose import COMPOSITIONS, LEARNED
    from compgcn.nn.decoders import DECODERS
    from compgcn.nn.encoder import PRESETS
    from compgcn.run.build import TASKS
    from compgcn.tasks.sampling import SAMPLERS

    compositions = {**COMPOSITIONS, **LEARNED}
    tables: list[Any] = [TASKS, MODELS, PRESETS, compositions, DECODERS, SAMPLERS, BASELINES, DATASETS]
    found = []
    for name, row in tables[KINDS.index(kind)].items():
        described = row.description if hasattr(row, "description") else row.origin
        paper = row.reference if hasattr(row, "reference") else row.citation
        found.append({"name": name, "description": described, "reference": paper})
    return found


def _runs() -> list[dict[str, str]]:
    """Return name, data and metric of the runs in the folder runs."""
    from compgcn.train.folder import Folder

    folders = map(Folder, sorted(Path("runs").glob("*")))
    return [{"name": str(one.path), **_run(one)} for one in folders if one.is_run or one.is_search]


def _run(folder: Folder) -> dict[str, str]:
    if folder.is_search:
        return {"description": "a search", "reference": "not finished; train resumes it"}
    try:
        config, metrics = folder.config(), folder.metrics()
    except InputError as error:
        return {"description": "cannot be read", "reference": str(error)}
    split = "test" if metrics.get("test") else "valid"
    goal = "mrr" if config.task == "link-prediction" else "accuracy"
    reached = metrics.get(split, {}).get(goal)
    said = "not finished" if not metrics else "no metrics" if reached is None else f"{split} {goal} {reached:.4f}"
    return {"description": f"{config.task} on {config.data.source}", "reference": said}
