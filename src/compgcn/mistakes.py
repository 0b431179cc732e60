"""What pydantic finds wrong, as one sentence: of the settings of a run, and of a file in a form of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compgcn.errors import InputError, unknown

# What is expected, by pydantic's name of the mistake; in braces what it knows of the setting.
_EXPECTED = {
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "at most {le}",
    "string_type": "text",
    "too_short": "a list of at least {min_length}",
}


def in_settings(error: ValidationError, where: str, options: Iterable[str], lists: Mapping[str, str]) -> InputError:
    """The first mistake in settings.

    Args:
        error: what pydantic found.
        where: what the sentence begins with.
        options: the names of settings there are.
        lists: the settings that are lists, each with an example.
    """
    first: Mapping[str, Any] = error.errors()[0]
    path, kind = _place(first), first["type"]
    if kind == "extra_forbidden":
        return InputError(f"{where}{unknown('option', path, options)}")
    if kind == "literal_error" and isinstance(first["input"], str):
        known = [choice.strip("'") for choice in first["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return InputError(f"{where}{unknown(f'value of {path}', first['input'], known)}")
    if kind == "tuple_type" and path in lists:
        expected = f"this should be a list, as in {path} = {lists[path]}"
    elif kind in _EXPECTED:
        expected = f"this should be {_EXPECTED[kind].format(**first.get('ctx', {}))}"
    else:
        expected = first["msg"].removeprefix("Value error, ").replace("Input should", "this should")
    return InputError(f"{where}{path} = {first['input']!r}: {expected}")


def in_file(error: ValidationError, path: Path) -> InputError:
    """The first mistake in a file, in pydantic's words."""
    first: Mapping[str, Any] = error.errors()[0]
    return InputError(f"{path}: {_place(first)}: {first['msg'][0].lower()}{first['msg'][1:]}")


def _place(mistake: Mapping[str, Any]) -> str:
    """Where it is, as a dotted path."""
    return ".".join(str(part) for part in mistake["loc"])
