"""Losses equal their textbook forms, gradients included."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from compgcn.tasks.losses import (
    SMOOTHING_FLOORS,
    binary_cross_entropy,
    cross_entropy,
    dura,
    margin_ranking,
    n3,
    reinforce,
    sampled_cross_entropy,
    self_adversarial,
)

B, N, K = 4, 9, 5


def normal(*shape: int, seed: int = 0, scale: float = 3.0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)).requires_grad_()


def true_pairs(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    truth = torch.rand(B, N, generator=torch.Generator().manual_seed(seed)) < 0.3
    rows, cols = truth.nonzero().unbind(1)
    return truth, rows, cols


@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.1, 0.4]), st.sampled_from(sorted(SMOOTHING_FLOORS)))
def test_sparse_labels_give_the_loss_and_gradient_of_dense_ones(seed, smoothing, name):
    truth, rows, cols = true_pairs(seed)
    floor = SMOOTHING_FLOORS[name](smoothing, N)
    sparse, dense = normal(B, N, seed=seed, scale=15.0), normal(B, N, seed=seed, scale=15.0)
    loss = binary_cross_entropy(sparse, rows, cols, smoothing=smoothing, floor=floor)
    expected = F.binary_cross_entropy_with_logits(dense, (1 - smoothing) * truth.double() + floor)
    (7 * loss).backward()
    (7 * expected).backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(sparse.grad, dense.grad)


def test_padding_pairs_change_nothing():
    _, rows, cols = true_pairs(3)
    plain, padded = normal(B, N), normal(B, N)
    loss = binary_cross_entropy(plain, rows, cols)
    padding = torch.zeros(6, dtype=torch.long)
    same = binary_cross_entropy(padded, torch.cat((rows, padding)), torch.cat((cols, padding - 1)))
    loss.backward()
    same.backward()
    assert torch.equal(loss, same)
    assert torch.equal(plain.grad, padded.grad)


def test_margin_ranking_is_the_mean_shortfall():
    positive, negative = normal(B), normal(B, K, seed=1)
    pairs = zip(positive.tolist(), negative.tolist(), strict=True)
    shortfalls = [max(0.0, 2.0 - p + n) for p, row in pairs for n in row]
    assert margin_ranking(positive, negative, margin=2.0).item() == pytest.approx(sum(shortfalls) / len(shortfalls))


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_self_adversarial_weighs_the_negatives_by_their_own_scores(temperature):
    positive, negative = normal(B), normal(B, K, seed=1)
    total = 0.0
    for p, row in zip(positive.tolist(), negative.tolist(), strict=True):
        weights = [math.exp(temperature * n) for n in row]
        wrong = sum(w / sum(weights) * math.log(1 / (1 + math.exp(n))) for w, n in zip(weights, row, strict=True))
        total -= (math.log(1 / (1 + math.exp(-p))) + wrong) / 2
    assert self_adversarial(positive, negative, temperature=temperature).item() == pytest.approx(total / B)


def test_self_adversarial_weights_are_constants_to_the_gradient():
    positive, negative = normal(B), normal(B, K, seed=1)
    self_adversarial(positive, negative, temperature=2.0).backward()
    weights = torch.softmax(2.0 * negative.detach(), 1)
    torch.testing.assert_close(negative.grad, weights * torch.sigmoid(negative.detach()) / (2 * B))


def test_n3_is_the_mean_sum_of_cubes_and_of_cubed_moduli_on_planes():
    vectors = [normal(B, 6, seed=seed) for seed in range(3)]
    cubes = sum(abs(value) ** 3 for factor in vectors for row in factor.tolist() for value in row)
    assert n3(*vectors).item() == pytest.approx(cubes / B)
    moduli = sum(
        abs(complex(row[i], row[i + 3])) ** 3 for factor in vectors for row in factor.tolist() for i in range(3)
    )
    assert n3(*vectors, planes=True).item() == pytest.approx(moduli / B)


@pytest.mark.parametrize("planes", [True, False])
def test_n3_has_a_gradient_at_zero(planes):
    zero = torch.zeros(B, 4, requires_grad=True)
    n3(zero, planes=planes).backward()
    assert torch.equal(zero.grad, torch.zeros(B, 4))


def test_dura_is_what_two_squared_distances_have_beside_the_score():
    x, z, e = (normal(B, 6, seed=seed) for seed in range(3))
    score = (x * z * e).sum(1)
    there, back = (x * z - e).square().sum(1), (e * z - x).square().sum(1)
    torch.testing.assert_close(dura(x, e, x * z, e * z), (there + back + 4 * score).mean())


@given(st.integers(0, 2**31), st.sampled_from([0.0, -1.0, 5.0]))
def test_the_expected_gradient_of_reinforce_is_that_of_the_expected_reward(seed, baseline):
    logits, reward = normal(1, K, seed=seed), normal(1, K, seed=seed + 1).detach()
    p = torch.softmax(logits, 1)
    (expected,) = torch.autograd.grad((p * reward).sum(), logits)
    found = torch.zeros_like(logits)
    for choice in range(K):
        loss = reinforce(torch.log_softmax(logits, 1)[:, choice], reward[:, choice], baseline)
        found += p[0, choice].detach() * torch.autograd.grad(loss, logits)[0]
    torch.testing.assert_close(-found, expected)


@given(st.integers(0, 2**31), st.integers(1, 3))
def test_negatives_that_are_all_other_entities_equally_often_give_the_cross_entropy(seed, times):
    logits, target = normal(B, N, seed=seed), torch.tensor([3, 0, 8, 3])
    true = torch.nn.functional.one_hot(target, N).bool()
    others = logits[~true].view(B, N - 1).repeat(1, times)
    found = sampled_cross_entropy(logits[true], others, num_entities=N - 1)
    torch.testing.assert_close(found, cross_entropy(logits, target))


LOSSES = {
    "binary_cross_entropy": lambda x: binary_cross_entropy(x, *true_pairs(0)[1:]),
    "cross_entropy": lambda x: cross_entropy(x, torch.tensor([3, 0, 8, 3]), smoothing=0.1),
    "margin_ranking": lambda x: margin_ranking(x[:, 0], x[:, 1:], margin=1.0),
    "self_adversarial": lambda x: self_adversarial(x[:, 0], x[:, 1:]),
    "sampled_cross_entropy": lambda x: sampled_cross_entropy(x[:, 0], x[:, 1:], num_entities=100),
    "reinforce": lambda x: reinforce(x[:, 0], x[:, 1]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_logits_are_widened_before_anything_is_summed(name):
    half = normal(B, N, dtype=torch.float32).detach().to(torch.bfloat16).requires_grad_()
    wide = half.detach().float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = LOSSES[name](half)
    expected = LOSSES[name](wide)
    loss.backward()
    expected.backward()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected)
    assert half.grad.dtype == torch.bfloat16
    torch.testing.assert_close(half.grad.float(), wide.grad, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", LOSSES)
def test_extreme_logits_give_finite_losses_and_gradients(name):
    logits = torch.full((B, N), 1e4)
    logits[:, ::2] = -1e4
    logits.requires_grad_()
    loss = LOSSES[name](logits)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


@given(
    rows=st.integers(1, 5), columns=st.integers(1, 6), smoothing=st.sampled_from([0.0, 0.1]), seed=st.integers(0, 99)
)
def test_cross_entropy_is_the_same_however_the_scores_lie(rows, columns, smoothing, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(columns, (rows,), generator=generator)
    turned = (x.t().contiguous()).t()
    found = cross_entropy(turned, target, smoothing=smoothing)
    expected = F.cross_entropy(x, target, label_smoothing=smoothing)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(3 * found, x)[0], torch.autograd.grad(3 * expected, x)[0])
