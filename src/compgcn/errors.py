"""The one error a user can cause, and the sentence that answers a typo."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_COMPARED = 2**20  # letters of a name that is given times letters of those it is compared with: some 50 ms


class InputError(ValueError):
    """Something given from outside is wrong; the message is one sentence saying what, and what to do."""


def unknown(kind: str, given: str, known: Iterable[str], *, listed: int = 12) -> InputError:
    """The answer to a name that is not in a table: the nearest ones, or the table itself when it is short."""
    names = list(dict.fromkeys(known))
    compared = _worth_comparing(given, names)
    near = get_close_matches(given, compared, n=3, cutoff=0.5)
    if not near:
        folded = {name.casefold(): name for name in compared}
        near = [folded[match] for match in get_close_matches(given.casefold(), list(folded), n=3, cutoff=0.5)]
    names, near, given = [_short(name) for name in names], [_short(name) for name in near], _short(given)
    sentence = f"unknown {kind} '{given}'"
    if near:
        choices = [f"'{name}'" for name in near]
        return InputError(f"{sentence}; did you mean {' or '.join(choices)}?")
    if len(names) <= listed:
        return InputError(f"{sentence}; known: {', '.join(names)}")
    return InputError(sentence)


def _worth_comparing(given: str, names: list[str]) -> list[str]:
    """All names, unless that takes long: then those of about the length and the initial of `given`, up to a bound."""
    letters = _COMPARED // max(1, len(given))
    if sum(map(len, names)) <= letters:
        return names
    initial, length = given[:1].casefold(), len(given)
    near = [name for name in names if abs(len(name) - length) <= 2 and name[:1].casefold() == initial]
    return near[: letters // (length + 2)]


def _short(name: str) -> str:
    """A name as far as it is worth quoting."""
    return name if len(name) <= 80 else f"{name[:79]}…"
