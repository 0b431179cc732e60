"""Compositions equal their textbook formulas, and the parts they are made of may be used apart."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.errors import InputError
from compgcn.kernels.reference import Combine, combined
from compgcn.nn import CompGCNConv
from compgcn.nn.compose import COMPOSITIONS, LEARNED, NTN, Composition, Learned, find
from oracles import COMPLEX, assert_same_with_gradients, normal, phi

EVERY = pytest.mark.parametrize("name", COMPOSITIONS)
DIMENSIONS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 15)


def dimensions(name: str) -> list[int]:
    return [d for d in DIMENSIONS if d % 2 == 0 or name not in COMPLEX]


@EVERY
def test_a_composition_and_its_gradients_are_those_of_its_formula_coordinate_by_coordinate(name):
    for d in dimensions(name):
        x, z = normal(3, d), normal(3, d, seed=1)
        assert_same_with_gradients(COMPOSITIONS[name](x, z), phi(name, x, z), (x, z))


def test_a_zero_relation_turns_nothing_and_has_a_finite_gradient():
    x, z = normal(3, 4), torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    turned = COMPOSITIONS["rotate"](x, z)
    torch.testing.assert_close(turned, x)
    assert torch.autograd.grad(turned.sum(), z)[0].isfinite().all()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_a_rotation_survives_tiny_and_huge_relations(scale):
    x, z = torch.randn(4, generator=torch.Generator().manual_seed(0)), torch.tensor([3.0, 1.0, 4.0, 0.0])
    torch.testing.assert_close(COMPOSITIONS["rotate"](x, scale * z), COMPOSITIONS["rotate"](x, z))


@EVERY
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**31))
def test_lowering_commutes_with_a_weighted_sum(name, messages, half, seed):
    row, d = COMPOSITIONS[name], 2 * half if name in COMPLEX else half
    x, z = normal(messages, d, seed=seed, grad=False), normal(messages, d, seed=seed + 1, grad=False)
    w = normal(messages, 1, seed=seed + 2, grad=False)
    lifted = combined(row.combine, row.lift(x), row.lift_relation(z))
    torch.testing.assert_close(row.lower((w * lifted).sum(0), d), (w * row(x, z)).sum(0), rtol=1e-11, atol=1e-12)


@EVERY
def test_a_composition_broadcasts_like_any_product(name):
    x, z = normal(5, 1, 6, grad=False), normal(4, 6, seed=1, grad=False)
    expected = torch.stack([torch.stack([COMPOSITIONS[name](a[0], b) for b in z]) for a in x])
    torch.testing.assert_close(COMPOSITIONS[name](x, z), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", sorted(COMPLEX))
@pytest.mark.parametrize("side", ["lift", "lift_relation"])
def test_an_odd_dimension_is_refused_where_numbers_are_complex(name, side):
    with pytest.raises(InputError, match="even dimension, not 5"):
        getattr(COMPOSITIONS[name], side)(torch.zeros(2, 5))


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precisions_stay_close_to_double(name, dtype):
    x, z = normal(3, 8, dtype=dtype, grad=False), normal(3, 8, seed=1, dtype=dtype, grad=False)
    exact = COMPOSITIONS[name](x.double(), z.double())
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(COMPOSITIONS[name](x, z).double(), exact, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_folded_products_are_those_of_the_composition(name):
    phi, d = COMPOSITIONS[name], 6
    generator = torch.Generator().manual_seed(0)
    x, z, filters = (torch.randn(*shape, generator=generator).double() for shape in ((5, d), (1, d), (d, 4)))
    assert phi.linear_lift
    matrix, shift = phi.fold_fixed(z, filters)
    torch.testing.assert_close(x @ matrix + shift, phi(x, z) @ filters)
    sums = torch.randn(5, phi.lift(x).shape[-1], generator=generator).double()
    torch.testing.assert_close(sums @ phi.fold(filters, sums.shape[-1]), phi.lower(sums, d) @ filters)


# compositions with parameters


def tensor_network(d: int) -> NTN:
    module = NTN(d).double()
    for i, parameter in enumerate(module.parameters()):
        parameter.data = normal(*parameter.shape, seed=i + 7, grad=False)
    return module


@pytest.mark.parametrize("d", [1, 2, 5])
def test_ntn_is_a_bilinear_form_per_coordinate_and_a_linear_map_of_both(d):
    module, x, z = tensor_network(d), normal(4, d), normal(4, d, seed=1)
    slices = [sum(module.C[j, k] * torch.outer(module.A[:, j], module.B[:, j]) for j in range(d)) for k in range(d)]
    both = torch.cat((module.V, module.U))  # V of Socher et al., which acts on [x; z]
    rows = [
        torch.stack([a @ T @ b for T in slices]) + torch.cat((a, b)) @ both + module.bias
        for a, b in zip(x, z, strict=True)
    ]
    assert_same_with_gradients(module(x, z), torch.stack(rows), (x, z, *module.parameters()))


@pytest.mark.parametrize("name", [name for name, row in LEARNED.items() if row.factors])
@given(st.integers(1, 6), st.integers(0, 2**31))
def test_factors_are_the_composition_itself(name, d, seed):
    row = LEARNED[name]
    module = row.build(d).double()
    x, z, w = normal(3, d, seed=seed), normal(3, d, seed=seed + 1), normal(3, 1, seed=seed + 2, grad=False)
    factors = row.factors(module)
    assert_same_with_gradients(factors(x, z), module(x, z), (x, z, *module.parameters()))
    lifted = combined(factors.combine, factors.lift(x), factors.lift_relation(z))
    torch.testing.assert_close(factors.lower((w * lifted).sum(0), d), (w * module(x, z)).sum(0))
    filters = normal(d, 2, seed=seed, grad=False)
    matrix, shift = factors.fold_fixed(z[:1], filters)
    torch.testing.assert_close(x @ matrix + shift, module(x, z[:1].expand(3, d)) @ filters)


def test_a_name_is_found_with_and_without_parameters():
    assert all(find(name) is row for table in (COMPOSITIONS, LEARNED) for name, row in table.items())
    own = Learned("own", NTN)
    assert find(own) is own
    with pytest.raises(InputError, match="unknown composition 'nnt'; did you mean 'ntn'"):
        find("nnt")


def test_a_lift_that_is_not_linear_keeps_its_loop():
    phi = COMPOSITIONS["mult"]._replace(name="squashed", lift=torch.tanh, linear_lift=False)
    layer = CompGCNConv(4, 3, 2, composition=phi).double()
    x, rel = torch.randn(5, 4).double(), torch.randn(4, 4).double()
    empty = torch.zeros(2, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long)
    torch.testing.assert_close(layer(x, rel, *empty)[0], (torch.tanh(x) * layer.loop_relation) @ layer.weight_loop)


LINEAR = {"mult", "corr", "conv", "cmul"}  # in the relation


@EVERY
def test_a_transposed_composition_moves_the_relation_out_of_the_product_with_a_third_vector(name):
    psi = COMPOSITIONS[name].transposed
    assert (psi is not None) == (name in LINEAR)
    for d in dimensions(name) if psi is not None else []:
        x, z, e = normal(3, d, grad=False), normal(3, d, seed=1, grad=False), normal(3, d, seed=2, grad=False)
        expected = (COMPOSITIONS[name](x, z) * e).sum(-1)
        torch.testing.assert_close((z * psi(x, e)).sum(-1), expected, rtol=1e-11, atol=1e-12)


def test_a_relation_that_is_lifted_in_a_way_of_its_own_has_no_transposed_composition():
    assert Composition("gate", Combine.MULT, lift_relation=torch.tanh).transposed is None
    assert Composition("bent", Combine.MULT, torch.tanh, torch.tanh, linear_lift=False).transposed is None


@EVERY
def test_moving_by_a_product_and_by_its_dual_makes_vectors_of_one_length(name):
    for d in dimensions(name) if name in LINEAR else []:
        x, z, e = normal(3, d), normal(3, d, seed=1), normal(3, d, seed=2)
        (moved_back,) = torch.autograd.grad(COMPOSITIONS[name](x, z), x, e)  # phiᵀ(e, z)
        torch.testing.assert_close(moved_back.norm(dim=-1), COMPOSITIONS[name](e, z).norm(dim=-1))
