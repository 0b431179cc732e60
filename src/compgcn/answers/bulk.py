"""Queries from a file, answers to a file: every line is checked before the first is answered."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from compgcn.answers.links import Links, Query
from compgcn.answers.retrieval import Progress
from compgcn.answers.rows import check_table, write_rows
from compgcn.answers.scoring import GAPS
from compgcn.data.facts import existing
from compgcn.data.tables import lines
from compgcn.errors import InputError

SCHEMA = pa.schema(
    [
        ("query", pa.int64()),  # its number in the file, from 1 on
        ("head", pa.string()),  # as the file has it, nothing for what is asked for
        ("relation", pa.string()),
        ("tail", pa.string()),
        ("rank", pa.int32()),
        ("id", pa.string()),
        ("name", pa.string()),
        ("score", pa.float64()),
        ("probability", pa.float64()),
        ("known", pa.string()),
    ]
)
_TOGETHER, _ANSWERS = 4096, 2**17  # queries, and answers, that are in memory at a time

Texts = tuple[str | None, str | None, str | None]


class Written(NamedTuple):
    """How many queries were answered, and the rows that this made."""

    queries: int
    answers: int


def answer_file(
    links: Links,
    path: str | Path,
    to: str | Path,
    top: int = 10,
    new: bool = False,
    notify: Progress | None = None,
    *,
    plausible: bool = False,
) -> Written:
    """Answer the queries of a table of heads, relations and tails, in each of which one is `?` or empty.

    Args:
        links: what answers.
        path: a .tsv, .txt, .csv (or .gz, .zst) or .parquet file.
        to: a .parquet, .csv or .tsv file; what is there before is replaced once all is written.
        top: how many answers to each.
        new: leave out the facts that stand in the data already.
        notify: called with the queries answered so far, and how many there are.
        plausible: leave out entities that are never at that end of the relation, see `Links.answer`.
    """
    if not isinstance(top, int) or top < 1:
        raise InputError(f"top must be a whole number from 1 on, not {top!r}")
    path, to = existing(path), check_table(to)
    total = sum(1 for _ in _asked(links, path, plausible))

    def batches() -> Iterator[list[tuple[object, ...]]]:
        asked, done = _asked(links, path, plausible), 0
        while some := list(islice(asked, max(1, min(_TOGETHER, _ANSWERS // top)))):
            found = links.answer([query for _, query in some], top, new, plausible)
            yield [
                (number, *texts, rank, *answer)
                for number, ((texts, _), answers) in enumerate(zip(some, found, strict=True), done + 1)
                for rank, answer in enumerate(answers, 1)
            ]
            done += len(some)
            if notify is not None:
                notify(done, total)

    return Written(total, write_rows(to, SCHEMA, batches()))


def _asked(links: Links, path: Path, plausible: bool) -> Iterator[tuple[Texts, Query]]:
    """The queries of a file, as text and as rows; an InputError that names the first line that is none."""
    for place, texts in lines(path):
        given = [None if text is None or text.strip() in GAPS else text for text in texts]
        if given.count(None) != 1:
            several = "none is" if None not in given else f"{given.count(None)} are"
            what = f"one of head, relation and tail must be ? or empty, and {several}"
            what += "" if None in given else "; facts to be scored go in a file of their own"
            raise InputError(f"'{path}', {place}: {what}")
        head, relation, tail = given
        if plausible and relation is None:
            what = "a relation is asked for, and only entities are plausible or not"
            raise InputError(f"'{path}', {place}: {what}")
        try:
            yield (head, relation, tail), links.query(head, relation, tail)
        except InputError as error:
            raise InputError(f"'{path}', {place}: {error}") from None
