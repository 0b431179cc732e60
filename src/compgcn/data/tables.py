"""Tables of three columns line by line, in which fields may be empty: what is asked rather than what is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from compgcn.data import delimited, parquet
from compgcn.data.facts import endings, existing, named_places
from compgcn.errors import InputError


def lines(path: str | Path) -> Iterator[tuple[str, list[str | None]]]:
    """Where a line stands, in words, and its subject, relation and object; a first line that names them is left out."""
    path = existing(path)
    ending, packed = endings(path)
    if ending == ".parquet" and not packed:
        for number, fields in enumerate(parquet.rows(parquet.file(path)), 1):
            yield f"row {number}", fields
        return
    if ending not in delimited.DELIMITERS:
        known = f"{', '.join(delimited.DELIMITERS)} (or .gz, .zst) or .parquet"
        raise InputError(f"cannot tell the format of '{path}'; expected a name ending in one of {known}")
    places = [0, 1, 2]
    for i, (number, texts) in enumerate(delimited.scan(delimited.file(path), 3, allow_empty=True)):
        if i == 0 and (named := named_places(texts)) is not None:
            places = named
        else:
            yield f"line {number}", [texts[place] for place in places]
