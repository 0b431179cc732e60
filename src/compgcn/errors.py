"""The one error a user can cause, the sentence that answers a typo, and errors that say that memory is short."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

_T = TypeVar("_T")

_COMPARED = 2**20  # letters of the given name times letters of the known ones: about 50 ms


class InputError(ValueError):
    """Wrong input from outside; the message is one sentence that says what is wrong and what to do."""


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that there is too little memory; by its name, since torch may not be loaded."""
    said = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed")
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and any(words in str(error) for words in said))


def unknown(kind: str, given: str, known: Iterable[str], *, listed: int = 12, alike: Iterable[str] = ()) -> InputError:
    """Return the error for an unknown name, with the nearest of the known ones or of those alike.

    If none is near, it lists all known ones, unless they are many.
    """
    names = list(dict.fromkeys(known))
    near = nearest(given, [*names, *alike])
    sentence = f"unknown {kind} '{_short(given)}'"
    if near:
        choices = [f"'{_short(name)}'" for name in near]
        return InputError(f"{sentence}; did you mean {' or '.join(choices)}?")
    if len(names) <= listed:
        return InputError(f"{sentence}; known: {', '.join(map(_short, names))}")
    return InputError(sentence)


def pick(kind: str, given: str, table: Mapping[str, _T], *, listed: int = 12) -> _T:
    """Return the entry of a table by its name; refuse a name that it does not have, see `unknown`."""
    must_be_known(kind, given, table, listed=listed)
    return table[given]


def must_be_known(kind: str, given: str, known: Collection[str], *, listed: int = 12) -> None:
    """Refuse a name that is none of the known ones, see `unknown`."""
    if not isinstance(given, str) or given not in known:
        raise unknown(kind, str(given), known, listed=listed)


def nearest(given: str, names: Iterable[str], cutoff: float = 0.5) -> list[str]:
    """Return up to three names that look like the given one, the most similar first; see `difflib` for the cutoff."""
    compared = _worth_comparing(given, list(dict.fromkeys(names)))
    near = get_close_matches(given, compared, n=3, cutoff=cutoff)
    if near:
        return near
    folded = {name.casefold(): name for name in compared}
    return [folded[match] for match in get_close_matches(given.casefold(), list(folded), n=3, cutoff=cutoff)]


def _worth_comparing(given: str, names: list[str]) -> list[str]:
    """Return all names or, if comparing them takes long, those of similar length with the same initial."""
    letters = _COMPARED // max(1, len(given))
    if sum(map(len, names)) <= letters:
        return names
    initial, length = given[:1].casefold(), len(given)
    near = [name for name in names if abs(len(name) - length) <= 2 and name[:1].casefold() == initial]
    return near[: letters // (length + 2)]


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:79]}…"
