"""Experiments: the paper's tables and figures as TOML files, with the paper's numbers and the settings of each row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from compgcn.config import Config, Section, configure, names, read_tree
from compgcn.errors import InputError, pick, unknown
from compgcn.train.recipes import model as find_model

FOLDER = Path(__file__).parent / "experiments"
CLAIMS = FOLDER / "claims.toml"
_EMPTY: Any = Field(default_factory=dict)


class Row(Section):
    """A row of a table, or a point of a figure."""

    name: str = Field(pattern=r"^[a-z0-9.-]+$")  # result files start with it
    label: str
    source: str  # label of the paper's table, or the work the paper quotes
    group: str = ""  # rows of one group form one table
    paper: dict[str, float] = _EMPTY  # the paper's numbers by metric: "mrr", "category/1-1/head/mrr", "accuracy" in %
    also: dict[str, float] = _EMPTY  # the paper's other number, where it contradicts itself
    spread: dict[str, float] = _EMPTY  # the paper's ±
    model: str | None = None  # a whole system of `compgcn.train.recipes`; settings override its settings
    settings: dict[str, Any] | None = None  # None: the row is quoted, not trained
    variant: Literal["", "degrees kept", "free relations"] = ""  # of the conditional model, see `reproduction.training`
    same_as: str | None = None  # "experiment/row" that this row shares its results with
    control: str | None = None  # row with the same decoder and no encoder; of differences, the row to compare with
    x: float | None = None  # position of a point
    series: str = ""  # line of a figure that the point belongs to
    missing: str = ""  # reason why the row was not trained
    note: str = ""


class Experiment(Section):
    """A table or a figure of the paper, or a set of differences between rows."""

    title: str
    source: str  # label in the paper
    kind: Literal["table", "figure", "generated", "differences"] = "table"
    ranks: str = ""  # how the paper computes ranks, as far as it says
    metrics: tuple[str, ...] = ()  # the first decides verdicts
    split: Literal["valid", "test"] = "test"
    seeds: int = Field(1, ge=1)
    folds: int = Field(1, ge=1)  # folds that the paper's ± is over; 1: it is over seeds
    settings: dict[str, Any] = _EMPTY  # shared by all rows
    rows: tuple[Row, ...] = ()
    reference: str = ""  # of a figure: row or series that points are relative to
    axis: str = ""  # of a figure: meaning of x
    rule: str = ""  # of differences: when one counts, with {metric}, {rows} and {wrong}, those that chance decides
    seeds_of: tuple[str, ...] = ()  # of differences: "experiment/row" entries whose seeds estimate the noise
    note: str = ""
    name: str = ""  # stem of its file

    def row(self, name: str) -> Row:
        """Return the row with a name."""
        found = {row.name: row for row in self.rows}
        return pick(f"row of {self.name}", name, found, listed=len(found))


def read_experiment(path: Path) -> Experiment:
    """Read an experiment and check the settings of its rows."""
    try:
        made = Experiment.model_validate_json(json.dumps({**read_tree(path), "name": path.stem}))
    except ValidationError as error:
        first: Mapping[str, Any] = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path}: {place}: {first['msg'][0].lower()}{first['msg'][1:]}") from None
    for row in made.rows:
        if row.settings is not None:
            configure(Config(), chosen(made, row), f"{path}, row '{row.name}': ")
    return made


_committed = cache(read_experiment)


def experiments(wanted: Sequence[str] = ()) -> dict[str, Experiment]:
    """Read experiments by name or by .toml file; all committed ones if none is named."""
    paths = {path.stem: path for path in sorted(FOLDER.glob("*.toml")) if path != CLAIMS}
    found = {}
    for name in wanted or paths:
        if name.endswith(".toml"):
            found[Path(name).stem] = read_experiment(Path(name))
        else:
            found[name] = _committed(pick("experiment", name, paths, listed=len(paths)))
    return found


def chosen(experiment: Experiment, row: Row) -> dict[str, Any]:
    """Return the settings a row asks for, by dotted name."""
    system = {} if row.model is None else find_model(row.model).settings
    return {**system, **names(experiment.settings), **names(row.settings or {})}


def at_home(experiment: Experiment, row: Row) -> tuple[Experiment, Row]:
    """Return the experiment and the row that own the results of a row."""
    if row.same_as is None:
        return experiment, row
    home, _, name = row.same_as.partition("/")
    other = experiments([home])[home]
    return other, other.row(name)


def control_of(experiment: Experiment, row: Row) -> tuple[Experiment, Row] | None:
    """Return the control of a row, or of the row it shares its results with, and its experiment."""
    if row.control is None:
        experiment, row = at_home(experiment, row)
    return None if row.control is None else (experiment, experiment.row(row.control))


class Job(NamedTuple):
    """A row to train with a seed."""

    experiment: Experiment
    row: Row
    seed: int

    @property
    def name(self) -> str:
        return f"{self.row.name}-{self.seed}"

    def file(self, results: Path) -> Path:
        """Return the file of its result."""
        return results / self.experiment.name / f"{self.name}.json"


def jobs_of(found: Iterable[Experiment], rows: Sequence[str] = (), seeds: int | None = None) -> list[Job]:
    """List every row and seed to train once: the named rows, or all rows that are not quoted."""
    pairs = [(one, row) for one in found for row in one.rows if not rows or row.name in rows]
    for name in rows:
        if all(row.name != name for _, row in pairs):
            every = [row.name for one in found for row in one.rows]
            raise unknown("row", name, every, listed=len(every))
    made: dict[tuple[str, str], Job] = {}
    for experiment, row in pairs:
        home, own = at_home(experiment, row)
        if own.settings is None and rows:
            raise InputError(f"row '{row.name}' is quoted from {row.source}; there is nothing to train")
        for seed in range(seeds or experiment.seeds) if own.settings is not None else ():
            job = Job(home, own, seed)
            made.setdefault((home.name, job.name), job)
    return list(made.values())
