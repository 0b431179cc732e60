"""The index of known answers agrees with a dictionary of sets."""

from __future__ import annotations

from collections import defaultdict

import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.tasks.facts import Answers

N, R = 6, 3
TRIPLE = st.tuples(st.integers(0, N - 1), st.integers(0, R - 1), st.integers(0, N - 1))
TRIPLES = st.lists(TRIPLE, max_size=40)


def tensor(triples: list[tuple[int, int, int]]) -> torch.Tensor:
    return torch.tensor(triples, dtype=torch.long).reshape(-1, 3)


def table(triples: list[tuple[int, int, int]], inverse: bool) -> dict[tuple[int, int], set[int]]:
    known: dict[tuple[int, int], set[int]] = defaultdict(set)
    for s, r, o in triples:
        known[s, r].add(o)
        if inverse:
            known[o, r + R].add(s)
    return known


@given(TRIPLES, st.booleans())
def test_each_query_holds_its_answers_sorted_and_once(triples, inverse):
    answers = Answers.from_triples(tensor(triples), R, inverse)
    known = table(triples, inverse)
    assert len(answers) == len(known)
    assert [tuple(query) for query in answers.queries.tolist()] == sorted(known)
    runs = [answers.answers[a:b].tolist() for a, b in zip(answers.offsets[:-1], answers.offsets[1:], strict=True)]
    assert runs == [sorted(known[query]) for query in sorted(known)]


@given(TRIPLES, st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, 2 * R - 1)), max_size=12))
def test_lookup_gives_the_known_pairs_of_any_list_of_queries(triples, queries):
    s, r = torch.tensor(queries, dtype=torch.long).reshape(-1, 2).unbind(1)
    row, col = Answers.from_triples(tensor(triples), R).lookup(s, r)
    known = table(triples, inverse=True)
    expected = [(i, o) for i, query in enumerate(queries) for o in sorted(known.get(query, ()))]
    assert list(zip(row.tolist(), col.tolist(), strict=True)) == expected


@given(TRIPLES)
def test_pairs_by_position_are_those_of_lookup(triples):
    answers = Answers.from_triples(tensor(triples), R)
    index = torch.arange(len(answers)).flip(0)
    by_position, by_query = answers.pairs(index), answers.lookup(*answers.queries[index].unbind(1))
    assert torch.equal(by_position[0], by_query[0])
    assert torch.equal(by_position[1], by_query[1])


@given(st.lists(TRIPLE, min_size=1, max_size=40), st.data())
def test_padded_places_hold_the_pairs_and_padding(triples, data):
    answers = Answers.from_triples(tensor(triples), R)
    batch = data.draw(st.integers(1, len(answers)))
    index = torch.randperm(len(answers), generator=torch.Generator().manual_seed(batch))[:batch]
    row, place = answers.padded_places(index, answers.most(batch))
    col = answers.at(place)
    real = col >= 0
    assert [row[real].tolist(), col[real].tolist()] == [pairs.tolist() for pairs in answers.pairs(index)]
    assert len(col) == answers.most(batch)
    assert int(row.max()) < batch
