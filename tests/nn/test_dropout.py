"""Dropout keeps what it should, on average and exactly."""

from __future__ import annotations

import pytest
import torch

from compgcn.nn.dropout import dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_a_share_is_dropped_and_the_mean_stays(p):
    torch.manual_seed(0)
    x = torch.ones(1001, 997)
    y = dropout(x, p, True)
    dropped = (y == 0).float().mean().item()
    assert dropped == pytest.approx(p, abs=4 * (p * (1 - p) / x.numel()) ** 0.5)
    kept = y[y != 0]
    assert (kept == kept[0]).all()
    assert kept[0].item() == pytest.approx(1 / (1 - p), rel=1e-4)


def test_the_gradient_is_dropped_with_the_value():
    x = torch.randn(50, 7, requires_grad=True)
    y = dropout(x, 0.4, True)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, y.detach() / x.detach())


@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (3, 7), (2, 3, 5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_any_shape_and_type_passes(shape, dtype):
    y = dropout(torch.ones(shape, dtype=dtype), 0.5, True)
    assert y.shape == shape
    assert y.dtype == dtype
    assert set(y.flatten().tolist()) <= {0.0, 2.0}


def test_neither_evaluation_nor_a_share_of_zero_changes_anything():
    x = torch.randn(4)
    assert dropout(x, 0.5, False) is x
    assert dropout(x, 0.0, True) is x
    assert dropout(x, 1.0, True).eq(0).all()


def test_numbers_next_to_each_other_are_dropped_independently():
    torch.manual_seed(0)
    kept = (dropout(torch.ones(400_000), 0.5, True) != 0).double() - 0.5
    for distance in range(1, 9):  # four numbers come from one word
        assert abs((kept[distance:] * kept[:-distance]).mean().item()) < 4 * 0.25 / 400_000**0.5
