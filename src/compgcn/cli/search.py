"""The search behind `train`: when it runs, its live table, and what it prints at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group

from compgcn.cli.console import Dataset, describe, err, out, plain_table, show_table
from compgcn.cli.train import Line, in_words, show_classes, show_links, standing, watched
from compgcn.config import Config, configure
from compgcn.data import KnowledgeGraph

if TYPE_CHECKING:
    from rich.table import Table

    from compgcn.run.search import Budget
    from compgcn.train.loop import Event

_MINUTES = 5.0  # for one's own files
_HEADER = ("candidate", "valid>", "trained>", "seconds>", "")


def budget_of(
    minutes: float | None, trials: int | None, asked: Mapping[str, Any], data: Dataset, model: str | None
) -> Budget | str:
    """Return the budget of a search, or why one model is trained in its place; "" where nobody would ask."""
    from compgcn.run import portfolio
    from compgcn.run.search import Budget

    if minutes is None and trials is None:
        why = portfolio.unsuited(asked, data) if model is None else ""
        return Budget(60 * _MINUTES) if why is None else why
    return portfolio.budget(minutes, trials, asked, data, model)


def search(
    asked: Mapping[str, Any], data: Dataset, budget: Budget, run_dir: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Compare the models of the portfolio; print the table of candidates and the test metrics of the winner."""
    from compgcn.run.portfolio import search as compare
    from compgcn.run.search import journalled
    from compgcn.train.folder import default_folder

    folder = run_dir or default_folder(configure(Config(), asked), "best")
    bound = f"{budget.trials} trainings" if budget.seconds is None else f"at most {budget.seconds / 60:g} minutes"
    if not as_json:
        describe(data.name, data.statistics(), data.notes)
        alone = "--model" if getattr(data, "labels", None) is None else "--encoder"
        out.print(f"comparing models on validation for {bound} (--minutes, --trials); {alone} NAME trains one alone")
    with watched(folder, as_json, board()) as (notify, stopped):

        def tell(event: Event) -> None:
            if not as_json and not err.is_terminal and event["event"] == "trial" and "value" in event:
                err.print("  ".join(cell for cell in _row(event) if cell))
            notify(event)

        assert isinstance(data, KnowledgeGraph)  # or there is no budget
        run = compare(asked, data, budget, folder, tell, stopped, overwrite)
    found = journalled(run.path)
    assert found is not None
    if as_json:
        rows = [trial._asdict() for trial in found.trials]
        out.print_json(data={"run": str(run.path), **run.metrics, "candidates": rows})
        return
    show_table(_HEADER, [_row(trial._asdict()) for trial in found.trials])
    out.print(found.reason)
    if run.config.classifier.protocol is None:
        show_links(run, found.trials[0].name)
        if run.config.encoder.name == "none":
            out.print("this model has no graph encoder; `explain` needs one that has: --model conditional")
    else:
        show_classes(run)


def board() -> Line:
    """Return what shows a search on a terminal: the table of candidates above the line of the training under way."""
    line, rows = standing(time.monotonic), dict[str, Mapping[str, Any]]()
    now: dict[str, Any] = {"name": "", "left": 0.0, "at": 0.0}

    def show(event: Mapping[str, Any]) -> Any:
        if event["event"] == "trial":
            rows[event["name"]] = event
            now.update(name=event["name"], left=event["left"], at=time.monotonic())
            text: Any = "preparing"
        else:
            text = line({**event, "part": now["name"]})
        if not err.is_terminal or not text:
            return text if event["event"] != "trial" else ""
        left = now["left"] - time.monotonic() + now["at"]
        whole = f"  about {in_words(max(left, 1.0))} left of the search" if math.isfinite(left) else ""
        return Group(_table(list(rows.values())), f"{text}{whole}")

    return show


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the live table, for narrow terminals too; only the last one says why a candidate was left out."""
    table = plain_table(*_HEADER[:-1])
    for column in table.columns[1:]:
        column.no_wrap = True
    for row in sorted(rows, key=lambda row: -(row.get("value") or 0.0)):
        name, value, trained, seconds, _ = _row(row)
        table.add_row(name, value, "left out" if row.get("error") else trained, seconds)
    return table


def _row(trial: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a trial, begun or ended."""
    if "value" not in trial:
        return trial["name"], "", f"to {trial['share']:.0%}", "", "training"
    value = "-" if trial["value"] is None else f"{trial['value']:.4f}"
    return trial["name"], value, f"{trial['share']:.0%}", f"{trial['spent']:.0f}", trial["error"]
