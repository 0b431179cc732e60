"""Queries from a file, answers to a file: every line is checked before the first is answered."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from compgcn.answers.links import Links, Progress, Query, blocks, must_be_finite
from compgcn.answers.rows import check_table, write_rows
from compgcn.data.columns import Numbers, existing
from compgcn.data.files import Given, lines
from compgcn.data.memory import Memory
from compgcn.errors import InputError
from compgcn.tasks.ranking import Ranks

GAPS = ("", "?")  # what stands for the part of a query that is asked for
_WRITTEN = 4096  # facts at a time


class Scored(NamedTuple):
    """A fact, and what the model makes of it."""

    head: str  # ids, then names
    relation: str
    tail: str
    head_name: str
    relation_name: str
    tail_name: str
    score: float  # of the tail as an answer to (head, relation, ?), a logit
    probability: float  # of the same, see `Links.probabilities`
    head_rank: float  # among all entities as answers to (?, relation, tail), filtered and realistic
    tail_rank: float  # likewise, to (head, relation, ?)
    known: str | None  # the split the fact stands in


SCORED = pa.schema(
    [
        *((name, pa.string()) for name in Scored._fields[:6]),
        *((name, pa.float64()) for name in Scored._fields[6:10]),
        ("known", pa.string()),
    ]
)  # of a table of them


class Scores(NamedTuple):
    """What the model makes of facts.

    Fields:
        facts: rows of the vocabularies [n, 3].
        numbers: score, probability, rank of the head and rank of the tail [n, 4].
    """

    facts: Numbers
    numbers: NDArray[np.float64]

    def at(self, which: Numbers | slice) -> Scores:
        """Some of them, in this order."""
        return Scores(self.facts[which], self.numbers[which])

    def doubtful(self) -> Scores:
        """The least probable first, of equals those of the worst rank.

        By rank alone a fact of train is hardly ever doubted, a wrong one neither: it was learned.
        """
        _, chance, _, tail_rank = self.numbers.T
        return self.at(np.lexsort((-tail_rank, chance)))

    def named(self, links: Links) -> Iterator[Scored]:
        """With ids and names."""
        entities, relations = links.data.entities, links.data.relations
        keys = self.facts[:, 0] * (2 * links.data.num_relations) + self.facts[:, 1]
        known = links.known_entities.of(keys, self.facts[:, 2:])
        for (s, r, o), numbers, (split,) in zip(self.facts.tolist(), self.numbers.tolist(), known, strict=True):
            ids = entities.ids[s], relations.ids[r], entities.ids[o]
            names = entities.names[s], relations.names[r], entities.names[o]
            score, chance, head_rank, tail_rank = numbers
            yield Scored(*ids, *names, score, chance, head_rank, tail_rank, split)


def holds_facts(path: str | Path) -> bool:
    """Whether a table is one of whole facts, by its first line, rather than of queries."""
    _, texts = next(lines(path), ("", [None]))
    return not any(text is None or text.strip() in GAPS for text in texts)


def facts_of(links: Links, given: Given) -> Numbers:
    """Rows of the vocabularies [n, 3] for facts in a file or in memory; an InputError names the first that has none."""
    label = str(given) if isinstance(given, (str, Path)) else "facts"
    entities, relations = links.data.entities, links.data.relations
    found = []
    for place, texts in _placed(label, given):
        whole = [text for text in texts if text is not None and text.strip() not in GAPS]
        try:
            if len(whole) != 3:
                raise InputError("a fact has a head, a relation and a tail; queries with ? go in a file of their own")
            s, r, o = whole
            found.append((entities.index(s), relations.index(r), entities.index(o)))
        except InputError as error:
            raise InputError(f"'{label}', {place}: {error}") from None
    return np.array(found, dtype=np.int64).reshape(-1, 3)


def _placed(label: str, given: Given) -> Iterator[tuple[str, list[str | None]]]:
    """Where each fact stands, in words, and its parts."""
    if isinstance(given, (str, Path)):
        yield from lines(given)
        return
    columns = [column.to_pylist() for column in Memory(label, given).facts().columns]
    for number, parts in enumerate(zip(*columns, strict=True), 1):
        yield f"row {number}", list(parts)


@torch.inference_mode()
def score_facts(links: Links, facts: Numbers, notify: Progress | None = None) -> Scores:
    """What a link predictor makes of facts [n, 3], known or not; scored from both sides, block by block.

    Ranks are as in evaluation: among all entities but those known to answer, equals in the middle of each other.
    `notify` is called with the facts scored so far, and how many there are.
    """
    R, parts = links.data.num_relations, []
    for block in blocks(len(facts), links.data.num_entities):
        s, r, o = torch.from_numpy(facts[block]).to(links.device).unbind(1)
        score, chance, tail_rank = _side(links, s, r, o)
        _, _, head_rank = _side(links, o, r + R, s)
        parts.append(torch.stack([score.double(), chance.double(), head_rank, tail_rank], 1).cpu().numpy())  # [B, 4]
        if notify is not None:
            notify(block.stop, len(facts))
    return Scores(facts, np.concatenate([np.empty((0, 4)), *parts]))


def _side(links: Links, s: Tensor, r: Tensor, o: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Score, probability and rank of o as the answer to (s, r, ?), all [B]."""
    scores = must_be_finite(links.task.model.score(links.encoded, s, r))  # [B, N]
    ranked = links.without_known(scores, (s * (2 * links.data.num_relations) + r).cpu().numpy(), links.known_entities)
    place = o.unsqueeze(1)
    value, rivals = scores.gather(1, place), ranked.scatter(1, place, -torch.inf)  # none is a rival of itself
    ranks = Ranks.from_counts((rivals > value).sum(1), (rivals == value).sum(1))
    return value[:, 0], links.probabilities(scores, place, ranked)[:, 0], ranks.realistic


def write_scores(links: Links, scores: Scores, to: Path) -> int:
    """A table with a row for each, in their order; how many they are."""
    some = (scores.at(slice(i, i + _WRITTEN)) for i in range(0, len(scores.facts), _WRITTEN))
    return write_rows(to, SCORED, ([tuple(one) for one in few.named(links)] for few in some))


ANSWERED = pa.schema(
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

    return Written(total, write_rows(to, ANSWERED, batches()))


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
