"""One command with the options of another, so that they are written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def options_of(other: Callable[..., Any], without: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Give a command that ends in `**options` the parameters of another, before its own; those it has too are its own.

    Args:
        other: the command they are taken from.
        without: those that are not.
    """

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command).parameters
        hints = get_type_hints(other, include_extras=True) | get_type_hints(command, include_extras=True)
        taken = [p for name, p in inspect.signature(other).parameters.items() if name not in (*own, *without)]
        given = [p for p in own.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        both = [p.replace(annotation=hints[p.name]) for p in (*taken, *given)]
        both.sort(key=lambda p: p.default is not inspect.Parameter.empty)  # what is needed first
        command.__signature__ = inspect.Signature(both)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in both}
        return command

    return give
