"""The one error a user can cause, and the sentence that answers a typo."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Something given from outside is wrong; the message is one sentence saying what, and what to do."""


def unknown(kind: str, given: str, known: Iterable[str], *, listed: int = 12) -> InputError:
    """The answer to a name that is not in a table: the nearest ones, or the table itself when it is short."""
    names = list(dict.fromkeys(known))
    near = get_close_matches(given, names, n=3, cutoff=0.5)
    folded = {name.casefold(): name for name in names}
    if not near:
        near = [folded[match] for match in get_close_matches(given.casefold(), list(folded), n=3, cutoff=0.5)]
    names, near, given = [_short(name) for name in names], [_short(name) for name in near], _short(given)
    sentence = f"unknown {kind} '{given}'"
    if near:
        choices = [f"'{name}'" for name in near]
        return InputError(f"{sentence}; did you mean {' or '.join(choices)}?")
    if len(names) <= listed:
        return InputError(f"{sentence}; known: {', '.join(names)}")
    return InputError(sentence)


def _short(name: str) -> str:
    """A name as far as it is worth quoting."""
    return name if len(name) <= 80 else f"{name[:79]}…"
