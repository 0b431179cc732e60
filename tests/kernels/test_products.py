"""Products per group and distances equal their definitions, whichever the kernel, with gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import compgcn.kernels.numba as on_cpu
import compgcn.kernels.reference as reference
from compgcn.kernels import backend as backends
from compgcn.kernels import grouped_matmul, l1_distance, make_groups
from oracles import assert_same_bits_on_any_threads, assert_same_with_gradients, backend, normal

BACKENDS = pytest.mark.parametrize("name", backends.BACKENDS)
GROUPS = {
    "several": [0, 0, 1, 3, 3, 3],
    "one": [2] * 5,
    "no rows": [],
    "longer than a chunk": [0] * 3 + [1] * 150 + [3] * 70,
}
EVERY_GROUPING = pytest.mark.parametrize("group", GROUPS.values(), ids=list(GROUPS))


def product_by_rows(rows: Tensor, weight: Tensor, group: list[int]) -> Tensor:
    """A filter of its own for every row."""
    return torch.einsum("pbi,pbio->pbo", rows, weight[torch.tensor(group, dtype=torch.long)])


@BACKENDS
@EVERY_GROUPING
@pytest.mark.parametrize("blocks", [1, 3])
def test_every_row_is_multiplied_by_the_filter_of_its_group(name, group, blocks):
    rows, weight = normal(len(group), blocks, 5), normal(4, blocks, 5, 7, seed=1)
    groups = make_groups(torch.tensor(group, dtype=torch.long), 4)
    with backend(name):
        assert_same_with_gradients(
            grouped_matmul(rows, weight, groups), product_by_rows(rows, weight, group), (rows, weight)
        )


# From how many multiplications on a group is torch's, and a kernel shared out: all of them, some, none.
LARGE = pytest.mark.parametrize("large", [0, 70, 2**40], ids=["all large", "some large", "all small"])
SHARED = pytest.mark.parametrize("small", [0, 2**40], ids=["shared out", "at once"])


@LARGE
@SHARED
@given(
    sizes=st.lists(st.integers(0, 9), max_size=80),
    blocks=st.integers(1, 3),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=15)
def test_large_and_small_groups_are_multiplied_alike(large, small, sizes, blocks, shape, seed):
    group = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes, dtype=torch.long)).tolist()
    rows, weight = normal(len(group), blocks, shape[0], seed=seed), normal(len(sizes), blocks, *shape, seed=seed + 1)
    groups = make_groups(torch.tensor(group, dtype=torch.long), len(sizes))
    with pytest.MonkeyPatch.context() as patch, backend("numba"):
        patch.setattr(on_cpu, "_LARGE", large)
        patch.setattr(on_cpu, "_SMALL", small)
        assert_same_with_gradients(
            grouped_matmul(rows, weight, groups), product_by_rows(rows, weight, group), (rows, weight)
        )


@BACKENDS
def test_strided_rows_and_filters_give_the_same_products(name):
    group = GROUPS["several"]
    rows, weight = normal(6, 2, 5), normal(4, 2, 5, 7, seed=1)
    strided = rows.transpose(0, 2).contiguous().transpose(0, 2), weight.transpose(2, 3).contiguous().transpose(2, 3)
    groups = make_groups(torch.tensor(group), 4)
    with backend(name):
        assert_same_with_gradients(
            grouped_matmul(*strided, groups), product_by_rows(rows, weight, group), (rows, weight)
        )


@LARGE
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_products_of_half_precisions_are_summed_in_single(large, dtype, monkeypatch):
    monkeypatch.setattr(on_cpu, "_LARGE", large)
    leaves = normal(6, 2, 5, dtype=dtype), normal(4, 2, 5, 7, seed=1, dtype=dtype)
    groups = make_groups(torch.tensor(GROUPS["several"]), 4)
    with backend("numba"):
        ours, single = grouped_matmul(*leaves, groups), grouped_matmul(*(t.float() for t in leaves), groups)
        assert torch.equal(ours, single.to(dtype))
        gradients = torch.autograd.grad(ours.sum(), leaves)
        theirs = torch.autograd.grad(single.sum(), leaves)
    assert all(a.dtype == dtype and torch.equal(a, b) for a, b in zip(gradients, theirs, strict=True))


def test_products_of_small_groups_have_the_same_bits_for_any_number_of_threads():
    group = (torch.rand(2000, generator=torch.Generator().manual_seed(0)) ** 3 * 300).long().sort().values
    leaves = normal(2000, 1, 18, dtype=torch.float32), normal(300, 1, 18, 10, seed=1, dtype=torch.float32)

    def compute() -> list[Tensor]:
        out = grouped_matmul(*leaves, make_groups(group, 300))
        return [out, *torch.autograd.grad(out.square().sum(), leaves)]

    with backend("numba"):
        assert_same_bits_on_any_threads(compute)


@EVERY_GROUPING
@pytest.mark.parametrize("shape", [(1, 1), (5, 20), (40, 130)], ids=str)
def test_tensor_cores_multiply_as_the_library_does(group, shape):
    leaves = normal(len(group), 2, shape[0], dtype=torch.float32), normal(4, 2, *shape, seed=1, dtype=torch.float32)
    groups = make_groups(torch.tensor(group, dtype=torch.long), 4)
    results = []
    for name in ("reference", "triton"):
        with backend(name):
            out = grouped_matmul(*leaves, groups)
            results.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def distances(q: Tensor, e: Tensor, planar: bool) -> Tensor:
    """By an array of all the differences."""
    difference = q.unsqueeze(1) - e
    if not planar:
        return difference.abs().sum(-1)
    return torch.complex(*difference.unflatten(-1, (2, -1)).unbind(-2)).abs().sum(-1)


PLANAR = pytest.mark.parametrize("planar", [False, True], ids=["real", "complex"])


@BACKENDS
@PLANAR
@given(st.integers(0, 5), st.integers(0, 40), st.integers(1, 9), st.integers(0, 2**31))
@settings(max_examples=10)
def test_distances_and_their_gradients_are_those_of_the_formula(name, planar, B, C, d, seed):
    d = 2 * d if planar else d
    q, e = normal(B, d, seed=seed), normal(C, d, seed=seed + 1)
    with torch.no_grad():
        e[: min(B, C)] = q[: min(B, C)]  # where they meet, the slope is 0
    with backend(name):
        assert_same_with_gradients(l1_distance(q, e, planar=planar), distances(q, e, planar), (q, e))


@BACKENDS
@PLANAR
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_distances_of_many_slices_and_narrow_types(name, planar, dtype, monkeypatch):
    candidates = 2500
    if name == "triton":  # its interpreter takes long: as many slices, of fewer
        monkeypatch.setattr("compgcn.kernels.triton.distances._SLICE", 32)
        candidates = 78
    q, e = normal(3, 20, dtype=dtype), normal(candidates, 20, seed=1, dtype=dtype)
    wide = [t.detach().double().requires_grad_() for t in (q, e)]
    expected = distances(*wide, planar)
    weight = normal(3, candidates, seed=2, grad=False).to(dtype)
    with backend(name):
        out = l1_distance(q, e, planar=planar)
        gradients = torch.autograd.grad((out * weight).sum(), (q, e))
    theirs = torch.autograd.grad((expected * weight.double()).sum(), wide)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for ours, other in zip((out, *gradients), (expected, *theirs), strict=True):
        assert ours.dtype == dtype
        assert (ours.double() - other).norm() <= tolerance * other.norm()


@PLANAR
def test_distances_do_not_depend_on_how_many_are_laid_out_at_a_time(monkeypatch, planar):
    q, e, g = (normal(*shape, grad=False) for shape in ((3, 6), (7, 6), (3, 7)))
    whole = reference.l1_distance(q, e, planar), reference.l1_gradient(g, q, e, planar)
    for block in (1, 31, 45):
        monkeypatch.setattr(reference, "_BLOCK", block)
        torch.testing.assert_close((reference.l1_distance(q, e, planar), reference.l1_gradient(g, q, e, planar)), whole)


def _product_sample() -> tuple:
    groups = make_groups(torch.tensor(GROUPS["several"]), 4)
    return normal(6, 1, 5, grad=False), normal(4, 1, 5, 7, seed=1, grad=False), *groups


def _outer_sample() -> tuple:
    groups = make_groups(torch.tensor(GROUPS["several"]), 4)
    return normal(6, 1, 5, grad=False), normal(6, 1, 7, seed=1, grad=False), groups.offsets


SAMPLES = {
    "grouped_matmul": _product_sample,
    "grouped_outer": _outer_sample,
    "l1_distance": lambda: (normal(3, 6, grad=False), normal(4, 6, seed=1, grad=False), True),
    "l1_gradient": lambda: (normal(3, 4, grad=False), normal(3, 6, grad=False), normal(4, 6, grad=False), True),
}


@pytest.mark.parametrize("op", SAMPLES)
def test_torch_accepts_the_registration_of_every_operation(op):
    results = torch.library.opcheck(getattr(torch.ops.compgcn, op).default, SAMPLES[op]())
    assert set(results.values()) == {"SUCCESS"}
