"""Filtered ranks, their efficient evaluation, and the metrics made of them."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.errors import InputError
from compgcn.kernels import numba, reference
from compgcn.tasks.facts import Answers
from compgcn.tasks.ranking import (
    CATEGORIES,
    Ranks,
    SideRanks,
    by_category,
    by_relation,
    metrics,
    rank_triples,
    relation_categories,
    summary,
)
from oracles import filtered_ranks

N, R = 7, 3
TRIPLE = st.tuples(st.integers(0, N - 1), st.integers(0, R - 1), st.integers(0, N - 1))
SEEDS = st.integers(0, 2**31)


def tensor(triples: list[tuple[int, int, int]]) -> torch.Tensor:
    return torch.tensor(triples, dtype=torch.long).reshape(-1, 3)


def score_table(seed: int, levels: int) -> torch.Tensor:
    """Scores of every query [N, 2R, N], with few levels so that ties are many."""
    return torch.randint(levels, (N, 2 * R, N), generator=torch.Generator().manual_seed(seed)).float()


def dense_ranks(table: torch.Tensor, triples: torch.Tensor, known: torch.Tensor) -> SideRanks:
    s, r, o = triples.unbind(1)
    return SideRanks(
        tail=filtered_ranks(table[s, r], o, known[s, r]), head=filtered_ranks(table[o, r + R], s, known[o, r + R])
    )


def known_mask(triples: torch.Tensor) -> torch.Tensor:
    known = torch.zeros(N, 2 * R, N, dtype=torch.bool)
    for s, r, o in triples.tolist():
        known[s, r, o] = known[o, r + R, s] = True
    return known


def assert_same(left: SideRanks, right: SideRanks) -> None:
    for side in ("tail", "head"):
        for name in Ranks._fields:
            a, b = getattr(getattr(left, side), name), getattr(getattr(right, side), name)
            assert a.dtype == b.dtype
            assert torch.equal(a, b), f"{side} {name}"


@given(
    st.lists(TRIPLE, max_size=25), st.lists(TRIPLE, max_size=25), SEEDS, st.integers(1, 5), st.integers(1, 200)
)  # triples of which some, or none, are known: a target need not be in the filter
def test_ranking_triples_equals_the_definition_for_any_chunk(triples, others, seed, levels, max_elements):
    table, triples, filtered = score_table(seed, levels), tensor(triples), tensor(others + triples[::2])
    ranks = rank_triples(
        lambda s, r: table[s, r], triples, Answers.from_triples(filtered, R), N, max_elements=max_elements
    )
    assert_same(ranks, dense_ranks(table, triples, known_mask(filtered)))


@given(st.lists(TRIPLE, min_size=1, max_size=25), st.integers(1, 200))
def test_who_watches_is_told_after_every_block_until_all_triples_are_ranked(triples, max_elements):
    table, triples, told, blocks = score_table(0, 4), tensor(triples), [], []

    def score(s: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        blocks.append(len(told))
        return table[s, r]

    answers = Answers.from_triples(triples, R)
    rank_triples(score, triples, answers, N, max_elements=max_elements, notify=lambda *seen: told.append(seen))
    assert blocks == list(range(len(told)))
    assert [total for _, total in told] == [len(triples)] * len(told)
    counts = [done for done, _ in told]
    assert counts == sorted(counts)
    assert counts[-1] == len(triples)


@pytest.mark.parametrize("block", [1, 3 * N, 2**18])
def test_ranks_do_not_depend_on_the_block_they_are_counted_in(monkeypatch, block):
    monkeypatch.setenv("COMPGCN_KERNEL", "reference")
    monkeypatch.setattr(reference, "_COUNT_BLOCK_CPU", block)
    triples = torch.randint(3, (50, 3), generator=torch.Generator().manual_seed(1))
    table = score_table(0, 4)
    ranks = rank_triples(lambda s, r: table[s, r], triples, Answers.from_triples(triples, R), N)
    assert_same(ranks, dense_ranks(table, triples, known_mask(triples)))


@given(st.lists(st.lists(st.sampled_from([-math.inf, -1.0, 0.0, 1.0]), min_size=5, max_size=5), max_size=6), st.data())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("small", [0, 2**17])
def test_every_backend_counts_the_same_rivals(dtype, small, rows, data):
    scores = torch.tensor(rows, dtype=dtype).view(-1, 5)
    row = torch.tensor(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else [], dtype=torch.long)
    bar = torch.zeros(len(row), dtype=dtype)
    with mock.patch.object(numba, "_SMALL", small):  # on one thread, and on all
        greater, equal = numba.count_rivals(scores, row, bar)
    assert torch.equal(greater, (scores[row] > 0).sum(1))
    assert torch.equal(equal, (scores[row] == 0).sum(1))


def test_each_distinct_query_is_scored_once_within_the_bound_and_its_scores_are_left_alone():
    triples = tensor([(0, 0, 1), (0, 0, 2), (0, 0, 3), (4, 1, 1), (5, 1, 1)])
    table, asked, sizes = score_table(0, 4), [], []
    before = table.clone()

    def score(s: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        assert not torch.is_grad_enabled()
        asked.extend(zip(s.tolist(), r.tolist(), strict=True))
        sizes.append(len(s))
        return table[0, :1].expand(len(s), N) if len(s) > 1 else table[s[0], r]  # views of the caller's own table

    rank_triples(score, triples, Answers.from_triples(triples, R), N, max_elements=2 * N)
    assert sorted(asked) == sorted({(0, 0), (4, 1), (5, 1), (1, R), (2, R), (3, R), (1, 1 + R)})
    assert max(sizes) == 2
    assert torch.equal(table, before)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_an_error_never_a_rank(bad):
    triples = tensor([(0, 0, 1), (2, 1, 3)])
    table = score_table(0, 4)
    table[0, 0, 1] = bad  # a known answer, which the filter would hide
    with pytest.raises(InputError, match="not finite"):
        rank_triples(lambda s, r: table[s, r], triples, Answers.from_triples(triples, R), N)


def test_shapes_that_do_not_match_are_refused_with_the_shapes():
    answers = Answers.from_triples(tensor([(0, 0, 1)]), R)
    with pytest.raises(InputError, match=r"shape \[2, 7\], not \[2, 8\]"):
        rank_triples(lambda s, r: torch.zeros(len(s), 8), tensor([(0, 0, 1)]), answers, N)


def test_metrics_are_the_textbook_averages():
    found = metrics(torch.tensor([1.0, 2.5, 3.0, 40.0], dtype=torch.float64))
    assert found == pytest.approx(
        {"mrr": (1 + 1 / 2.5 + 1 / 3 + 1 / 40) / 4, "mr": 11.625, "hits@1": 0.25, "hits@3": 0.75, "hits@10": 0.75}
    )


def random_sides(n: int) -> SideRanks:
    generator = torch.Generator().manual_seed(5)

    def draw() -> Ranks:
        return Ranks.from_counts(*(torch.randint(9, (n,), generator=generator) for _ in range(2)))

    return SideRanks(tail=draw(), head=draw())


def test_the_summary_has_every_reading_and_both_sides():
    sides = random_sides(20)
    report = summary(sides)
    assert set(report) == {"mrr", "mr", "hits@1", "hits@3", "hits@10", "optimistic", "pessimistic", "head", "tail"}
    assert report["pessimistic"]["mrr"] <= report["mrr"] <= report["optimistic"]["mrr"]
    assert report["mrr"] == pytest.approx((report["head"]["mrr"] + report["tail"]["mrr"]) / 2)
    assert report["head"] == metrics(sides.head.realistic)


def test_an_empty_split_has_no_metrics():
    empty = rank_triples(lambda s, r: pytest.fail("scored"), tensor([]), Answers.from_triples(tensor([]), R), N)
    assert metrics(empty.tail.realistic) == {}
    assert summary(empty) == {}
    assert by_relation(empty, torch.tensor([], dtype=torch.long)) == {}
    assert by_category(empty, torch.tensor([], dtype=torch.long), tensor([]), R) == {}


def test_relations_are_reported_apart_and_add_up():
    sides, relation = random_sides(20), torch.arange(20) % 3
    report = by_relation(sides, relation)
    assert list(report) == [0, 1, 2]
    for r in range(3):
        here = relation == r
        assert report[r]["triples"] == int(here.sum())
        assert report[r]["head"] == metrics(sides.head.realistic[here])
        assert report[r]["tail"] == metrics(sides.tail.realistic[here])
        assert report[r]["mr"] == pytest.approx((report[r]["head"]["mr"] + report[r]["tail"]["mr"]) / 2)


def test_categories_are_heads_then_tails_over_the_training_triples():
    one_one, one_many, many_one, many_many, unseen = range(5)
    train = [(0, one_one, 1), (2, one_one, 3), (2, one_one, 3)]  # a repeated triple counts once
    train += [(0, one_many, o) for o in range(3)]
    train += [(s, many_one, 0) for s in range(3)]
    train += [(s, many_many, o) for s in range(2) for o in range(2)]
    categories = relation_categories(tensor(train), 5)
    assert [CATEGORIES[c] for c in categories[:4].tolist()] == ["1-1", "1-N", "N-1", "N-N"]
    assert categories[unseen] == -1


@pytest.mark.parametrize(("tails", "category"), [([2, 1], "1-N"), ([2, 1, 1], "1-1")])
def test_a_side_is_many_from_one_and_a_half_on(tails, category):
    objects = iter(range(100))
    train = [(s, 0, next(objects)) for s, count in enumerate(tails) for _ in range(count)]
    assert CATEGORIES[relation_categories(tensor(train), 1)[0]] == category


def test_category_reports_gather_their_relations():
    train = tensor([(0, 0, 1), (0, 1, 1), (0, 1, 2)])
    sides, relation = random_sides(9), torch.tensor([0, 1, 2] * 3)
    report = by_category(sides, relation, train, R)
    assert list(report) == ["1-1", "1-N", "unseen"]
    assert report["1-N"] == by_relation(sides, relation)[1]
