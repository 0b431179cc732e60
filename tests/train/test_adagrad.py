"""Adagrad is torch's, with a rate that may be a tensor."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compgcn.train.step import Adagrad


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("tensor", [True, False], ids=["tensor", "float"])
def test_the_updates_are_those_of_torch(decay, tensor):
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(2))]
    theirs = [nn.Parameter(weight.detach().clone()) for weight in ours]
    one = Adagrad(ours, torch.tensor(0.5) if tensor else 0.5, decay)
    two = torch.optim.Adagrad(theirs, lr=0.5, weight_decay=decay)
    for step in range(5):
        rate = 0.5 / (1 + step)
        one.param_groups[0]["lr"] = torch.tensor(rate) if tensor else rate
        two.param_groups[0]["lr"] = rate
        for a, b in zip(ours[:2], theirs[:2], strict=True):  # the third has no gradient
            a.grad = torch.randn_like(a)
            a.grad[0] = 0.0
            b.grad = a.grad.clone()
        one.step()
        two.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
