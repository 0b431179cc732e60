"""The update of entities equals its definition, whichever the kernel, with gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import compgcn.kernels.reference as reference
import compgcn.kernels.triton.updates as on_gpu
from compgcn import kernels
from compgcn.errors import InputError
from compgcn.kernels import backend as backends
from compgcn.kernels import update
from oracles import assert_same_with_gradients, backend, normal

BACKENDS = pytest.mark.parametrize("name", backends.BACKENDS)
PARTS = pytest.mark.parametrize("K", [1, 4])


def given(N: int, B: int, d: int, K: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Parts of messages: the extremes of some, and sums of squares that leave variances above and below the floor."""
    degree = torch.randint(1, 9, (N,), generator=torch.Generator().manual_seed(1)).to(dtype)
    sums = normal(K, N, B, d, seed=2, grad=False)
    if K == 4:
        spread = normal(N, B, d, seed=3, grad=False).mul(2)
        sums[1] = sums[0].square() / degree[:, None, None] + degree[:, None, None] * torch.where(spread > 0, spread, 0)
    return {
        "x": normal(N, B, d, dtype=dtype),
        "parts": sums.to(dtype).requires_grad_(),
        "degree": degree,
        "scale": normal(N, seed=4, dtype=dtype, grad=False).exp(),
        "weight": normal((1 + 3 * K) * d, d, seed=5).detach().div(d**0.5).to(dtype).requires_grad_(),
        "gamma": normal(d, seed=6, dtype=dtype),
        "beta": normal(d, seed=7, dtype=dtype),
        "bias": normal(d, seed=8, dtype=dtype),
    }


def leaves(tensors: dict[str, Tensor]) -> list[Tensor]:
    return [tensor for tensor in tensors.values() if tensor is not None and tensor.requires_grad]


def row_by_row(x, parts, degree, scale, weight, gamma, beta, bias) -> Tensor:
    """The definition, one row at a time."""
    out = []
    for v, b in [(v, b) for v in range(x.shape[0]) for b in range(x.shape[1])]:
        mean = parts[0, v, b] / degree[v]
        statistics = [mean]
        if len(parts) == 4:
            variance = parts[1, v, b] / degree[v] - mean**2
            statistics += [variance.clamp(min=1e-4) ** 0.5, parts[2, v, b], parts[3, v, b]]
        row = torch.cat([x[v, b], *(t * f for t in statistics for f in (1.0, scale[v], 1 / scale[v]))])
        pre = row @ weight + bias
        normed = (pre - pre.mean()) / (pre.var(correction=0) + 1e-5) ** 0.5
        out.append(x[v, b] + (normed * gamma + beta).clamp(min=0))
    return torch.stack(out).view_as(x)


@BACKENDS
@PARTS
def test_every_row_is_updated_as_defined(name, K):
    tensors = given(3, 2, 5, K)
    with backend(name):
        assert_same_with_gradients(update(**tensors), row_by_row(**tensors), leaves(tensors))


@PARTS
@pytest.mark.parametrize("options", [(), ("beta",), ("bias",), ("beta", "bias")], ids=str)
@pytest.mark.parametrize(("name", "d"), [("numba", 18), ("numba", 64), ("triton", 16), ("triton", 32), ("triton", 64)])
def test_the_fused_update_is_the_defined_one(monkeypatch, K, d, options, name):
    """On a GPU in tiles of some rows, of which a program takes several and the last is not full."""
    monkeypatch.setattr(on_gpu, "_PROGRAMS", (2, 2))
    monkeypatch.setattr(on_gpu, "_ROWS", {K: 32})
    monkeypatch.setattr(kernels, "_BYTES", {K: 256})  # all widths
    tensors = {key: value if key not in ("beta", "bias") or key in options else None
               for key, value in given(23, 9, d, K, torch.float32).items()}  # fmt: skip
    exact = {key: value if value is None else value.detach().double() for key, value in tensors.items()}
    for key, value in tensors.items():
        if value is not None:
            exact[key].requires_grad_(value.requires_grad)
    cotangent = normal(23, 9, d, seed=9, grad=False)
    with backend(name):
        ours = update(**tensors)
        by_ours = torch.autograd.grad(ours, leaves(tensors), cotangent.float())
    assert ours.grad_fn.name() == "_UpdateBackward"
    theirs = reference.update(**exact)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)
    for a, b in zip(by_ours, torch.autograd.grad(theirs, leaves(exact), cotangent), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5 * float(b.abs().max()))


@pytest.mark.parametrize("name", ["numba", "triton"])
def test_parts_apart_and_strided_give_the_same_bits_as_together(name):
    tensors = given(6, 9, 16, 4, torch.float32)
    apart = [part.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_() for part in tensors["parts"]]
    x = tensors["x"].detach().transpose(0, 2).contiguous().transpose(0, 2).requires_grad_()
    with backend(name):
        one, other = update(**tensors), update(**tensors | {"x": x, "parts": apart})
        assert torch.equal(one, other)
        cotangent = normal(*one.shape, seed=9, dtype=torch.float32, grad=False)
        by_x, by_parts = torch.autograd.grad(one, [tensors["x"], tensors["parts"]], cotangent)
        by_other_x, *by_apart = torch.autograd.grad(other, [x, *apart], cotangent)
    assert torch.equal(by_x, by_other_x)
    assert torch.equal(by_parts, torch.stack(by_apart))


@BACKENDS
def test_a_row_of_zeros_stays_one_without_beta_and_bias(name):
    tensors = given(4, 8, 16, 1, torch.float32) | {"beta": None, "bias": None}
    keep = torch.tensor([1.0, 0.0] * 4)[:, None]
    with backend(name):
        out = update(**tensors | {"x": tensors["x"] * keep, "parts": tensors["parts"] * keep})
    assert (out[:, 1] == 0).all()
    assert out[:, 0].any()


@BACKENDS
def test_widths_and_few_queries_without_a_fused_update_are_those_of_the_definition(name):
    for d, K, dtype in ((64, 4, torch.float32), (24, 1, torch.float32), (16, 1, torch.float64)):
        x, parts, *others = given(2, 2, d, K, dtype).values()
        with backend(name):
            assert torch.equal(update(x, parts, *others), reference.update(x, parts, *others))


@BACKENDS
def test_no_rows_update_to_none_and_have_gradients_of_zero(name):
    tensors = given(0, 9, 16, 1, torch.float32)
    with backend(name):
        out = update(**tensors)
        by_weight = torch.autograd.grad(out.sum(), tensors["weight"])[0]
    assert out.shape == (0, 9, 16)
    assert not by_weight.any()


@PARTS
def test_torch_accepts_the_registration_of_the_update(K):
    tensors = {name: tensor.detach() for name, tensor in given(3, 2, 16, K, torch.float32).items()}
    x, parts, *others = tensors.values()
    others[-1] = None
    with backend("triton"):
        for op, sample in (("update", (x, [*parts], *others)), ("update_gradient", (x, x, [*parts], *others))):
            results = torch.library.opcheck(getattr(torch.ops.compgcn, op).default, sample)
            assert set(results.values()) == {"SUCCESS"}


def test_the_operations_of_compiled_code_give_the_same(monkeypatch):
    tensors = given(3, 2, 16, 4, torch.float32)
    with backend("triton"):
        expected = update(**tensors)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert_same_with_gradients(update(**tensors), expected, leaves(tensors))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"parts": torch.zeros(2, 3, 2, 16)}, "1 or 4 parts"),
        ({"parts": torch.zeros(1, 2, 2, 16)}, "of that shape"),
        ({"weight": torch.zeros(64, 8)}, "need a weight"),
        ({"scale": torch.ones(2)}, "scale"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(change, word):
    with pytest.raises(InputError, match=word):
        update(**given(3, 2, 16, 1, torch.float32) | change)
