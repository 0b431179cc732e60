"""Statistics of messages equal a dense loop with every gradient, whichever kernel computes them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import compgcn.kernels.backend as backends
from compgcn import kernels
from compgcn.errors import InputError
from compgcn.kernels import Combine, Own, PairPlan, make_pair_plan, statistics
from oracles import assert_same_bits_on_any_threads, assert_same_with_gradients, backend, normal, phi

BACKENDS = pytest.mark.parametrize("name", backends.BACKENDS)
EVERY_COMBINE = pytest.mark.parametrize("combine", Combine, ids=lambda combine: combine.name)
ROWS, SENDERS, RELATIONS, WIDTH = 6, 4, 5, 4
SIZES = {"rows": ROWS, "senders": SENDERS, "relations": RELATIONS}


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few messages make several chunks of a row and of a pair."""
    monkeypatch.setattr("compgcn.kernels.plan.CHUNK", 8)


def drawn(count: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    """Row, sender and relation of messages: a hub of several chunks, pairs many times, and a row without messages."""
    generator = torch.Generator().manual_seed(0)
    row, sender, relation = (
        (torch.rand(count, generator=generator) ** 4 * size).long() for size in (ROWS - 1, SENDERS, RELATIONS)
    )
    return row, sender, relation


def leaves_of(count: int = 40, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """x, z and weights; small whole numbers make many ties, and row 1 has hidden messages alone."""
    x, z = (
        (normal(size, WIDTH, seed=size, grad=False) * 1.5).round().to(dtype).requires_grad_()
        for size in (SENDERS, RELATIONS)
    )
    weight = (normal(count, seed=3, grad=False) > -1).to(dtype)
    weight[drawn(count)[0] == 1] = 0
    return x, z, weight.requires_grad_()


def combined(combine: Combine, a: Tensor, b: Tensor) -> Tensor:
    if combine is Combine.CONJUGATE:
        real, imaginary = a.chunk(2, -1)
        return phi("cmul", torch.cat((real, -imaginary), -1), b)
    return phi("cmul" if combine is Combine.COMPLEX else combine.name.lower(), a, b)


def dense(x: Tensor, z: Tensor, weight: Tensor, messages: tuple[Tensor, ...], combine: Combine) -> list[Tensor]:
    """The definition, row by row; torch shares the gradient of an extreme among equals."""
    row, sender, relation = messages
    none, out = x.new_full((1, WIDTH), torch.inf), []
    for v in range(ROWS):
        shown = (row == v) & (weight != 0)
        w, m = weight[shown].unsqueeze(-1), combined(combine, x[sender[shown]], z[relation[shown]])
        extremes = (m.amax(0), m.amin(0)) if len(m) else (-none[0], none[0])
        out.append((((w * m).sum(0)), (w * m * m).sum(0), *extremes))
    return [torch.stack(rows) for rows in zip(*out, strict=True)]


@BACKENDS
@EVERY_COMBINE
def test_statistics_are_those_of_a_dense_loop(name, combine):
    """A hidden message, of weight 0, is an absent one to the loop; the gradient by its weight is what it would add."""
    leaves, messages = leaves_of(), drawn()
    with backend(name):
        ours = statistics(*leaves, make_pair_plan(*messages, **SIZES), combine)
        theirs = dense(*leaves, messages, combine)
        leaves[2].register_hook(lambda g: g * (leaves[2] != 0))
        assert_same_with_gradients(ours, theirs, leaves)


@BACKENDS
@EVERY_COMBINE
def test_an_own_message_is_one_more_message(name, combine):
    """Zero is the own message of all rows but one in each column, and of rows without other messages too."""
    (x, z, weight), messages = leaves_of(), drawn()
    row, value, columns = torch.tensor([0, 1, 5, 2]), normal(WIDTH, seed=9), torch.arange(WIDTH)
    own = torch.zeros(ROWS, WIDTH, dtype=torch.double).index_put((row, columns), value)
    with backend(name):
        plan = make_pair_plan(*messages, **SIZES)
        ours = statistics(x, z, weight, plan, combine, Own(row, value))
        total, square, largest, smallest = statistics(x, z, weight, plan, combine)
    extremes = torch.where(own > largest, own, largest), torch.where(own < smallest, own, smallest)
    assert_same_with_gradients(ours, (total + own, square + own.square(), *extremes), (x, z, weight, value))


@BACKENDS
def test_the_gradient_by_a_weight_is_what_the_message_adds_to_the_sums(name):
    (x, z, weight), (row, sender, relation) = leaves_of(), drawn()
    g_sum, g_square = normal(ROWS, WIDTH, seed=5, grad=False), normal(ROWS, WIDTH, seed=6, grad=False)
    with backend(name):
        out = statistics(x, z, weight, make_pair_plan(row, sender, relation, **SIZES), Combine.MULT)
        (ours,) = torch.autograd.grad((out.sum * g_sum + out.square * g_square).sum(), weight)
    m = x[sender] * z[relation]
    torch.testing.assert_close(ours, (g_sum[row] * m + g_square[row] * m**2).sum(-1))


@BACKENDS
def test_without_messages_the_sums_are_nothing_and_the_extremes_infinite(name):
    leaves = leaves_of(0)
    with backend(name):
        out = statistics(*leaves, make_pair_plan(*drawn(0), **SIZES), Combine.MULT)
        gradients = torch.autograd.grad(sum(out).nan_to_num().sum(), leaves)
    for statistic, expected in zip(out, (0, 0, -torch.inf, torch.inf), strict=True):
        assert torch.equal(statistic, torch.full_like(statistic, expected))
    assert [g.abs().sum() for g in gradients] == [0, 0, 0]


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_messages_are_rounded_and_every_extreme_finds_its_own(name, dtype):
    """The gradients by z of a sum of extremes add up to their number where z itself is added."""
    x, z = normal(SENDERS, WIDTH, dtype=dtype), normal(RELATIONS, WIDTH, seed=1, dtype=dtype)
    messages, weight = drawn(), leaves_of()[2].detach()
    with backend(name):
        out = statistics(x, z, weight, make_pair_plan(*messages, **SIZES), Combine.ADD)
        finite = out.largest.isfinite()
        for extreme in (out.largest, out.smallest):
            (gradient,) = torch.autograd.grad(extreme[finite].sum(), z, retain_graph=True)
            torch.testing.assert_close(gradient.sum().float(), finite.sum().float(), rtol=2**-7, atol=0)
    rounded = dense(x.detach().float(), z.detach().float(), weight.float(), messages, Combine.ADD)
    assert {statistic.dtype for statistic in out} == {dtype}
    for ours, theirs in zip(out[2:], rounded[2:], strict=True):  # Triton's interpreter cuts off, where a GPU rounds
        torch.testing.assert_close(ours, theirs.to(dtype), rtol=2**-7 if name == "triton" else 0, atol=0)


@pytest.mark.parametrize("name", ["reference", "numba"])
@EVERY_COMBINE
def test_the_bits_are_the_same_on_every_call_and_for_any_number_of_threads(name, combine):
    weight, plan = leaves_of(dtype=torch.float32)[2], make_pair_plan(*drawn(), **SIZES)
    x, z = (normal(size, WIDTH, dtype=torch.float32) for size in (SENDERS, RELATIONS))

    def compute() -> list[Tensor]:
        out = statistics(x, z, weight, plan, combine)
        total = sum(t.nan_to_num(0, 0, 0) ** 2 for t in out).sum()
        return [*out, *torch.autograd.grad(total, (x, z, weight))]

    with backend(name):
        assert_same_bits_on_any_threads(compute)


@BACKENDS
def test_a_gradient_asked_for_alone_is_the_same(name):
    leaves = leaves_of()
    with backend(name):
        plan = make_pair_plan(*drawn(), **SIZES)
        expected = torch.autograd.grad(statistics(*leaves, plan, Combine.MULT).square.sum(), leaves)
        for asked, whole in enumerate(expected):
            alone = [leaf if i == asked else leaf.detach() for i, leaf in enumerate(leaves)]
            (ours,) = torch.autograd.grad(statistics(*alone, plan, Combine.MULT).square.sum(), alone[asked])
            assert torch.equal(ours, whole)


def test_the_pairs_of_a_plan_are_the_distinct_ones():
    row, sender, relation = drawn()
    plan = make_pair_plan(row, sender, relation, **SIZES)
    pairs = list(zip(plan.pairs.by_row.left.tolist(), plan.pairs.by_row.right.tolist(), strict=True))
    assert pairs == sorted(set(zip(sender.tolist(), relation.tolist(), strict=True)))
    for p, (start, end) in enumerate(zip(plan.by_pair.offsets[:-1], plan.by_pair.offsets[1:], strict=True)):
        own = plan.by_pair.order[start:end]
        assert {*zip(sender[own].tolist(), relation[own].tolist(), strict=True)} == {pairs[p]}
        assert torch.equal(plan.by_pair.left[start:end], row[own].int())


def _samples(combine: Combine) -> dict[str, tuple]:
    x, z, weight = (t.detach() for t in leaves_of())
    plan: PairPlan = make_pair_plan(*drawn(), **SIZES)
    by_row, by_pair, ends = plan.messages.by_row, plan.by_pair, (plan.pairs.by_row.left, plan.pairs.by_row.right)
    gradients = [normal(ROWS, WIDTH, seed=i, grad=False) for i in range(4)]
    found, w = normal(6, ROWS, WIDTH, grad=False), weight[by_pair.order]
    return {
        "statistics": (x, z, weight[by_row.order], [*by_row], int(combine)),
        "pair_gradient": (x, z, w, found, *gradients, *ends, [*by_pair], int(combine)),
    }


@pytest.mark.parametrize("op", ["statistics", "pair_gradient"])
@pytest.mark.parametrize("combine", [Combine.COPY, Combine.CONJUGATE], ids=lambda combine: combine.name)
def test_torch_accepts_the_registration_of_every_operation(op, combine):
    results = torch.library.opcheck(getattr(torch.ops.compgcn, op).default, _samples(combine)[op])
    assert set(results.values()) == {"SUCCESS"}


def test_the_compiler_gets_tensors_and_numbers_alone(monkeypatch):
    leaves, plan, seen = leaves_of(), make_pair_plan(*drawn(), **SIZES), []
    own = Own(torch.zeros(WIDTH, dtype=torch.long), normal(WIDTH))
    expected, apply = statistics(*leaves, plan, Combine.CONJUGATE, own), kernels._Statistics.apply
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(kernels._Statistics, "apply", lambda *given: seen.extend(given) or apply(*given))
    assert_same_with_gradients(statistics(*leaves, plan, Combine.CONJUGATE, own), expected, (*leaves, own.value))
    assert {type(value) for value in seen} == {Tensor, int}


def test_tables_of_another_plan_are_refused():
    (x, z, weight), plan = leaves_of(), make_pair_plan(*drawn(), **SIZES)
    with pytest.raises(InputError, match="the plan is of"):
        statistics(x[1:], z, weight, plan, Combine.MULT)
    with pytest.raises(InputError, match="not of shape"):
        statistics(x, z, weight[1:], plan, Combine.MULT)
