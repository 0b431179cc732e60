"""The ConvE query equals its definition, and refuses sizes that cannot work."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.decoders.convolution import ConvEQuery, ConvESettings, _Patches, _taps, image_shape
from compgcn.errors import InputError
from oracles import assert_same_with_gradients

SMALL = ConvESettings(filters=3, kernel=2)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def definition(query: ConvEQuery, x: np.ndarray, z: np.ndarray, training: bool) -> np.ndarray:
    """ConvE by loops, with the weights of a module; dropout is left out."""
    weights = {name: value.detach().numpy() for name, value in query.state_dict().items()}

    def norm(values: np.ndarray, name: str) -> np.ndarray:
        axes = tuple(axis for axis in range(values.ndim) if axis != 1)
        shape = [1, -1] + [1] * (values.ndim - 2)
        mean, variance = weights[f"{name}.running_mean"], weights[f"{name}.running_var"]
        if training:
            mean, variance = values.mean(axes), values.var(axes)
        scaled = (values - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + 1e-5)
        return scaled * weights[f"{name}.weight"].reshape(shape) + weights[f"{name}.bias"].reshape(shape)

    batch, dim = x.shape
    height, width = query.height, query.width
    image = np.empty((batch, 1, 2 * height, width))
    for b in range(batch):
        line = [value for pair in zip(x[b], z[b], strict=True) for value in pair]
        for position in range(2 * dim):
            image[b, 0, position // width, position % width] = line[position]
    image = norm(image, "image_norm")
    kernel = weights["convolution.weight"]  # [filters, 1, k, k]
    filters, _, k, _ = kernel.shape
    maps = np.empty((batch, filters, 2 * height - k + 1, width - k + 1))
    for b, f, i, j in np.ndindex(*maps.shape):
        maps[b, f, i, j] = (image[b, 0, i : i + k, j : j + k] * kernel[f, 0]).sum()
        if "convolution.bias" in weights:
            maps[b, f, i, j] += weights["convolution.bias"][f]
    maps = np.maximum(norm(maps, "feature_norm"), 0)
    hidden = maps.transpose(0, 2, 3, 1).reshape(batch, -1) @ weights["linear.weight"].T + weights["linear.bias"]
    return np.maximum(norm(hidden, "query_norm"), 0)


def scrambled(query: ConvEQuery) -> ConvEQuery:
    """Give every weight and running statistic a value of its own, so that none can be left out unseen."""
    for index, (name, value) in enumerate(query.state_dict().items()):
        if value.is_floating_point():
            noise = 0.3 * normal(*value.shape, seed=index)
            value.copy_(1 + noise.abs() if name.endswith("var") else value + noise)
    return query


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_query_equals_its_definition_by_loops(training, bias):
    settings = ConvESettings(filters=3, kernel=3, bias=bias, feature_dropout=0.0, hidden_dropout=0.0)
    query = scrambled(ConvEQuery(18, settings).double()).train(training)
    assert query.height == 3
    x, z = normal(5, 18, seed=100), normal(5, 18, seed=101)
    expected = definition(query, x.numpy(), z.numpy(), training)
    np.testing.assert_allclose(query(x, z).detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_dropout_acts_in_training_alone():
    query = ConvEQuery(18, SMALL).double()
    x, z = normal(5, 18), normal(5, 18, seed=1)
    assert not torch.equal(query(x, z), query(x, z))
    query.eval()
    assert torch.equal(query(x, z), query(x, z))


def test_the_papers_size_makes_a_square_image():
    query = ConvEQuery(200)
    assert (query.height, query.width) == (10, 20)
    assert query.convolution.weight.shape == (200, 1, 7, 7)
    assert query.convolution.bias is None
    assert query.linear.weight.shape == (200, 200 * 14 * 14)


@given(st.integers(1, 400))
def test_the_image_is_the_squarest_there_is(dim):
    height, width = image_shape(dim)
    assert height * width == dim
    assert abs(2 * height - width) == min(abs(2 * h - dim // h) for h in range(1, dim + 1) if dim % h == 0)


def test_a_given_height_or_width_is_kept():
    assert image_shape(200, height=20) == (20, 10)
    assert image_shape(200, width=8) == (25, 8)
    assert image_shape(200, height=8, width=25) == (8, 25)


@pytest.mark.parametrize(
    ("dim", "settings", "sentence"),
    [
        (200, ConvESettings(height=7), "dimension 200 cannot be laid out with height 7; choose sizes"),
        (200, ConvESettings(height=10, width=10), "dimension 200 cannot be laid out with height 10 and width 10"),
        (13, ConvESettings(), "a 7×7 kernel does not fit the 2×13 image of dimension 13; use a kernel from 1 to 2"),
        (200, ConvESettings(kernel=21), "a 21×21 kernel does not fit the 20×20 image of dimension 200"),
        (200, ConvESettings(kernel=0), "a 0×0 kernel does not fit"),
    ],
)
def test_sizes_that_cannot_work_are_refused_with_the_sizes(dim, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ConvEQuery(dim, settings)


@pytest.mark.parametrize("size", [(9, 7, 3), (4, 4, 4), (5, 3, 1), (10, 20, 7)], ids=str)
def test_a_product_with_patches_is_the_convolution(size):
    height, width, k = size
    image, weight = normal(2, 1, height, width).requires_grad_(), normal(3, 1, k, k, seed=1).requires_grad_()
    taps, users = _taps(height, width, k, k, device=image.device)
    patches = _Patches.apply(image.flatten(1), taps, users)
    assert patches.shape[2] % 8 == 0
    flat = torch.nn.functional.pad(weight.flatten(1), (0, patches.shape[2] - k * k))
    ours = (patches @ flat.T).transpose(1, 2).unflatten(2, (height - k + 1, width - k + 1))
    assert_same_with_gradients(ours, torch.nn.functional.conv2d(image, weight), (image, weight))


def test_weights_saved_filter_by_filter_give_the_same_query():
    query = scrambled(ConvEQuery(18, SMALL).double()).eval()
    state = query.state_dict()
    positions = state["linear.weight"].shape[1] // SMALL.filters
    weight = state.pop("linear.weight").unflatten(1, (positions, SMALL.filters)).transpose(1, 2).flatten(1)
    old = state | {"projection.weight": weight, "projection.bias": state["linear.bias"]}
    del old["linear.bias"]
    other = ConvEQuery(18, SMALL).double().eval()
    other.load_state_dict(old)
    x, z = normal(4, 18), normal(4, 18, seed=1)
    assert torch.equal(query(x, z), other(x, z))
