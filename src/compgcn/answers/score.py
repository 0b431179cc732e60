"""Answer a file of queries, and score given facts; every line is checked before the first is answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from compgcn.answers.links import Links, Prediction, Progress, Query, must_count
from compgcn.answers.rows import check_table, schema_of, write_rows
from compgcn.data.columns import Columns, Numbers, existing
from compgcn.data.files import Given, lines
from compgcn.data.memory import Memory
from compgcn.errors import InputError

_GAPS = ("", "?")  # mark the part of a query that is asked for
_NAMED = 5  # unknown names that an error lists
_TOGETHER, _ANSWERS = 4096, 2**17  # queries or facts, and answers, in memory at a time

Texts = tuple[str | None, str | None, str | None]


class Scored(NamedTuple):
    """A fact as the model judges it."""

    head: str  # ids, then names
    relation: str
    tail: str
    head_name: str
    relation_name: str
    tail_name: str
    score: float  # the logit of the tail as an answer to (head, relation, ?)
    probability: float  # of the same, see `Links.probabilities`
    head_rank: float  # among all entities as answers to (?, relation, tail), filtered and realistic
    tail_rank: float  # likewise for (head, relation, ?)
    known: str | None  # the split that holds the fact


ANSWERED = pa.schema(  # columns of a table of answers
    [
        ("query", pa.int64()),  # its number in the file, from 1 on
        *((name, pa.string()) for name in ("head", "relation", "tail")),  # as in the file, null for the gap
        *schema_of(Prediction, ranked=True),
    ]
)


class Scores(NamedTuple):
    """Facts as rows of the vocabularies [n, 3], with score, probability, head rank and tail rank [n, 4]."""

    facts: Numbers
    numbers: NDArray[np.float64]

    def doubtful(self) -> Scores:
        """Return each fact once, the least probable first, ties by the worst rank.

        Rank alone hardly ever doubts a learned fact.
        """
        _, once = np.unique(self.facts, axis=0, return_index=True)
        _, chance, _, tail_rank = self.numbers[once].T
        order = once[np.lexsort((-tail_rank, chance))]
        return Scores(self.facts[order], self.numbers[order])

    def named(self, links: Links) -> Iterator[Scored]:
        """Yield the facts with ids and names."""
        keys = self.facts[:, 0] * (2 * links.data.num_relations) + self.facts[:, 1]
        known = links.known_entities.of(keys, self.facts[:, 2:])
        for (s, r, o), numbers, (split,) in zip(self.facts.tolist(), self.numbers.tolist(), known, strict=True):
            score, chance, head_rank, tail_rank = numbers
            yield Scored(*links.named(s, r, o), score, chance, head_rank, tail_rank, split)


class Written(NamedTuple):
    """The number of queries in a file, and of the answers written."""

    queries: int
    answers: int


def holds_facts(path: str | Path, columns: Columns | None) -> bool:
    """Return whether a table holds facts, by its first line, rather than queries; see `lines`."""
    first = next(lines(path, columns), None)
    return first is not None and None not in _parts(first[1])


def facts_of(links: Links, given: Given) -> Numbers:
    """Return facts in a file or in memory as rows of the vocabularies [n, 3]; refuse the first that is none."""
    rows: Iterable[tuple[str, Sequence[str | None]]]
    if isinstance(given, (str, Path)):
        label, rows = str(given), lines(given, links.config.data.columns)
    else:
        columns = [column.to_pylist() for column in Memory("facts", given).facts().columns]
        label, rows = "facts", ((f"row {i}", parts) for i, parts in enumerate(zip(*columns, strict=True), 1))
    rows = list(rows)
    _must_know(links, label, rows)
    entities, relations = links.data.entities, links.data.relations
    found = []
    for place, texts in rows:
        s, r, o = _parts(texts)
        try:
            if s is None or r is None or o is None:
                raise InputError("a fact has a head, a relation and a tail; queries with ? go in a file of their own")
            found.append((entities.index(s), relations.index(r), entities.index(o)))
        except InputError as error:
            raise InputError(f"'{label}', {place}: {error}") from None
    return np.array(found, dtype=np.int64).reshape(-1, 3)


def _must_know(links: Links, label: str, rows: Iterable[tuple[str, Sequence[str | None]]]) -> None:
    """Refuse several unknown names at once; the line of a single one, or of a name that several share, says more."""
    data, found = links.data, dict[str, str]()
    for place, texts in rows:
        for one, text in zip((data.entities, data.relations, data.entities), _parts(texts), strict=True):
            with suppress(InputError):
                if text is not None and one.find(text) is None:
                    found.setdefault(text, f"{one.kind} '{text}' ({place})")
    if len(found) > 1:
        some = ", ".join(islice(found.values(), _NAMED)) + ", .." * (len(found) > _NAMED)
        raise InputError(f"'{label}' has {len(found):,} unknown names: {some}; correct them or leave their lines out")


def _parts(texts: Sequence[str | None]) -> Texts:
    """Return head, relation and tail, None for a gap."""
    head, relation, tail = (None if text is None or text.strip() in _GAPS else text for text in texts)
    return head, relation, tail


@torch.inference_mode()
def score_facts(links: Links, facts: Numbers, notify: Progress | None = None) -> Scores:
    """Score facts [n, 3], known or not, and rank head and tail of each as in evaluation."""
    R, parts = links.data.num_relations, [np.empty((0, 4))]
    for block in links.blocks(len(facts)):
        s, r, o = torch.from_numpy(facts[block]).to(links.device).unbind(1)
        both = links.judge(torch.cat((s, o)), torch.cat((r, r + R)), torch.cat((o, s)))  # tails, then heads
        (score, _), (chance, _), (tail_rank, head_rank) = (part.double().chunk(2) for part in both)
        parts.append(torch.stack([score, chance, head_rank, tail_rank], 1).cpu().numpy())  # [B, 4]
        if notify is not None:
            notify(block.stop, len(facts))
    return Scores(facts, np.concatenate(parts))


def write_scores(links: Links, scores: Scores, to: Path) -> int:
    """Write a table of scored facts in their order; return how many they are."""
    parts = (slice(i, i + _TOGETHER) for i in range(0, len(scores.facts), _TOGETHER))
    some = (Scores(scores.facts[part], scores.numbers[part]) for part in parts)
    return write_rows(to, schema_of(Scored), (list(few.named(links)) for few in some))


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
    """Answer a table of queries, in each of which one of head, relation and tail is `?` or empty.

    Args:
        path: a .tsv, .txt, .csv (or .gz, .zst) or .parquet file.
        to: a .parquet, .csv or .tsv file, replaced once all answers are written.
        top, new, plausible: as in `Links.answer`.
    """
    must_count("top", top)
    path, to = existing(path), check_table(to)
    _must_know(links, str(path), lines(path, links.config.data.columns))
    total = sum(1 for _ in _queries(links, path, plausible))

    def batches() -> Iterator[list[tuple[object, ...]]]:
        asked, done = _queries(links, path, plausible), 0
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

    return Written(total, write_rows(to, ANSWERED, batches()))


def _queries(links: Links, path: Path, plausible: bool) -> Iterator[tuple[Texts, Query]]:
    """Yield the queries of a file as text and as rows; refuse the first line that is none."""
    for place, texts in lines(path, links.config.data.columns):
        parts = _parts(texts)
        try:
            if None not in parts:
                raise InputError("one of head, relation and tail must be ? or empty; facts go in a file of their own")
            if plausible and parts[1] is None:
                raise InputError("plausible selects entities, and here a relation is asked for; leave it out")
            yield parts, links.query(*parts)
        except InputError as error:
            raise InputError(f"'{path}', {place}: {error}") from None
