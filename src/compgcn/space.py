"""What to search: values of settings, as a table [search] of a TOML lists them. Imports no torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from compgcn.config import Config, configure, searchable, write_setting
from compgcn.errors import InputError, unknown


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included; whole ones where both ends are; evenly in their logarithm or not."""

    low: float
    high: float
    log: bool


Space = dict[str, tuple[Any, ...] | Range]  # by path: values to choose among, or a range of them


def parse_space(table: Mapping[str, Any], where: str = "") -> Space:
    """The table [search] of a TOML: a list of values for each setting, or `{low, high, log}`."""
    space: Space = {}
    for name, given in _flat(table).items():
        path = searchable(name, where)
        if isinstance(given, dict):
            space[path] = _range(path, given, where)
        elif isinstance(given, list) and given:
            space[path] = tuple(_frozen(value) for value in given)
        else:
            raise InputError(f"{where}{path} = {given!r}: this should be a list of values, or {{low, high, log}}")
        ends = space[path]
        for value in ends[:2] if isinstance(ends, Range) else ends:
            configure(Config(), {path: value}, where)  # of the right kind
    return space


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names for what stands in [search.training] or as training.lr; a range is a table too, and stays one."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        inner = isinstance(value, dict) and name in Config.model_fields
        found |= {f"{name}.{key}": below for key, below in value.items()} if inner else {name: value}
    return found


def _range(path: str, given: Mapping[str, Any], where: str) -> Range:
    for key in given.keys() - {"low", "high", "log"}:
        raise InputError(f"{where}{path}: {unknown('key of a range', key, ('low', 'high', 'log'))}")
    low, high, log = given.get("low"), given.get("high"), given.get("log", False)
    numbers = all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in (low, high))
    if not numbers or not isinstance(log, bool) or not low < high or (log and not low > 0):  # type: ignore[operator]
        raise InputError(f"{where}{path} = {dict(given)}: a range needs numbers low < high, above 0 if log = true")
    return Range(low, high, log)  # type: ignore[arg-type]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def grid_size(space: Space) -> float:
    """How many combinations a space has; without end if one of its settings is a range."""
    return math.prod(math.inf if isinstance(values, Range) else len(values) for values in space.values())


def candidates(space: Space) -> tuple[str, ...]:
    """Every combination of a space of lists, as `classifier.candidates` takes them."""
    ranges = [path for path, values in space.items() if isinstance(values, Range)]
    if ranges or not space:
        what = f"{ranges[0]} is a range" if ranges else "there is nothing to search"
        raise InputError(f"{what}; a nested run tries every combination, so list the values of [search]")
    combinations = itertools.product(*space.values())
    return tuple(
        ", ".join(write_setting(path, value) for path, value in zip(space, values, strict=True))
        for values in combinations
    )
