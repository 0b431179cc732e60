"""Similarities equal their formulas, whichever way the candidates come."""

from __future__ import annotations

import pytest
import torch

from compgcn.nn.decoders import dot, negative_complex_l1, negative_l1

FORMULAS = {
    dot: lambda q, e: sum(a * b for a, b in zip(q, e, strict=True)),
    negative_l1: lambda q, e: -sum(abs(a - b) for a, b in zip(q, e, strict=True)),
    negative_complex_l1: lambda q, e: -sum(abs(complex(q[j] - e[j], q[j + 3] - e[j + 3])) for j in range(3)),
}
EVERY = pytest.mark.parametrize("function", FORMULAS, ids=lambda function: function.__name__)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


@EVERY
def test_each_similarity_equals_its_formula(function):
    q, e = normal(3, 6), normal(4, 6, seed=1)
    expected = [[FORMULAS[function](a, b) for b in e.tolist()] for a in q.tolist()]
    torch.testing.assert_close(function(q, e), torch.tensor(expected, dtype=torch.float64))


@EVERY
def test_shared_candidates_are_a_list_per_query_all_alike(function):
    q, e = normal(3, 6), normal(4, 6, seed=1)
    shared, own = function(q, e), function(q, e.expand(3, 4, 6))
    torch.testing.assert_close(shared, own)
    weight = normal(3, 4, seed=2).detach()
    gradients = [torch.autograd.grad((scores * weight).sum(), (q, e)) for scores in (shared, own)]
    torch.testing.assert_close(*gradients)
