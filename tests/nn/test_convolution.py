"""The convolutional queries equal their definitions, and refuse sizes that cannot work."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.errors import InputError
from compgcn.nn.convolutional import (
    ConvEQuery,
    ConvKBSimilarity,
    ConvolutionSettings,
    ConvRQuery,
    HypERQuery,
    _Patches,
    _taps,
    image_shape,
)
from compgcn.nn.decoders import DECODERS, build_decoder, dot
from oracles import assert_same_with_gradients
from scores import QUERIES

SMALL = ConvolutionSettings(filters=3, kernel=2)
EVERY = pytest.mark.parametrize("name", QUERIES)
Query = TypeVar("Query", bound=torch.nn.Module)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scrambled(query: Query) -> Query:
    """Give every weight and running statistic a value of its own, so that none can be left out unseen."""
    for index, (name, value) in enumerate(query.state_dict().items()):
        if value.is_floating_point():
            noise = 0.3 * normal(*value.shape, seed=index)
            value.copy_(1 + noise.abs() if name.endswith("var") else value + noise)
    return query


def test_every_convolutional_decoder_has_its_query_here():
    convolutional = [n for n, row in DECODERS.items() if isinstance(row.query, type) and row.similarity is dot]
    assert set(QUERIES) == set(convolutional)


@EVERY
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kernel", [2, 3])
def test_the_query_equals_its_definition_by_loops(name, training, kernel):
    settings = ConvolutionSettings(filters=3, kernel=kernel, feature_dropout=0.0, hidden_dropout=0.0)
    query = scrambled(DECODERS[name].query(18, settings).double()).train(training)
    x, z = normal(5, 18, seed=100), normal(5, 18, seed=101)
    expected = QUERIES[name](query, x.numpy(), z.numpy(), training)
    np.testing.assert_allclose(query(x, z).detach().numpy(), expected, rtol=1e-9, atol=1e-12)


@EVERY
@pytest.mark.parametrize("place", ["input_dropout", "feature_dropout", "hidden_dropout"])
def test_dropout_acts_in_training_alone(name, place):
    still = dict.fromkeys(("input_dropout", "feature_dropout", "hidden_dropout"), 0.0)
    query = DECODERS[name].query(18, ConvolutionSettings(filters=3, kernel=2, **still | {place: 0.5})).double()
    x, z = normal(5, 18), normal(5, 18, seed=1)
    assert not torch.equal(query(x, z), query(x, z))
    query.eval()
    assert torch.equal(query(x, z), query(x, z))


@EVERY
def test_hyper_and_convr_drop_whole_maps_and_the_others_single_features(name):
    query = DECODERS[name].query(18, ConvolutionSettings(3, 2, feature_dropout=0.5, hidden_dropout=0.0)).double()
    seen = []
    query.linear.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].view(50, -1, 3)))
    x, z = normal(50, 18), normal(50, 18, seed=1)
    query(x, z)
    query.settings = ConvolutionSettings(3, 2, feature_dropout=0.0, hidden_dropout=0.0)
    query(x, z)
    kept = torch.where(seen[1] == 0, torch.nan, seen[0] / seen[1])  # 0 or 2; a relu leaves nothing to drop
    assert set(kept[~kept.isnan()].unique().tolist()) == {0.0, 2.0}
    whole = (kept.nan_to_num(0).amax(1) == kept.nan_to_num(2).amin(1)).all()
    assert bool(whole) == (name in ("hyper", "convr"))


def test_the_usual_sizes_are_those_of_the_papers():
    shapes = {
        "conve": ((200, 1, 7, 7), 200 * 14 * 14),  # 200 filters of 7x7 over a square image, 20x20
        "convr": ((100 * 9, 200), 8 * 18 * 100),  # 100 filters of 3x3 over an image of 10x20
        "hyper": ((32 * 9, 200), 192 * 32),  # 32 filters of length 9
        "conv-transe": ((100, 1, 2, 3), 200 * 100),  # 100 filters of length 3, as many positions as dimensions
    }
    for name, (filters, features) in shapes.items():
        query = build_decoder(name, 5, 200).phi
        assert query.convolution.weight.shape == filters
        assert query.linear.in_features == features
    convkb = build_decoder("convkb", 5, 200)
    assert convkb.phi.filters.shape == (64, 2)
    assert convkb.similarity.weight.shape == (64, 200)


@given(st.integers(1, 400))
def test_the_image_is_the_squarest_there_is(dim):
    height, width = image_shape(dim)
    assert height * width == dim
    assert abs(2 * height - width) == min(abs(2 * h - dim // h) for h in range(1, dim + 1) if dim % h == 0)


@pytest.mark.parametrize(
    ("query", "dim", "kernel", "sentence"),
    [
        (ConvEQuery, 13, 7, "a 7×7 kernel does not fit the 2×13 image of dimension 13; use a kernel from 1 to 2"),
        (ConvEQuery, 200, 21, "a 21×21 kernel does not fit the 20×20 image of dimension 200"),
        (ConvEQuery, 200, 0, "a 0×0 kernel does not fit"),
        (HypERQuery, 8, 9, "a 1×9 kernel does not fit the 1×8 image of dimension 8; use a kernel from 1 to 8"),
        (ConvRQuery, 12, 4, "a 4×4 kernel does not fit the 3×4 image of dimension 12; use a kernel from 1 to 3"),
    ],
)
def test_sizes_that_cannot_work_are_refused_with_the_sizes(query, dim, kernel, sentence):
    with pytest.raises(InputError, match=sentence):
        query(dim, ConvolutionSettings(kernel=kernel))


@pytest.mark.parametrize("own", [False, True], ids=["shared", "a list per query"])
def test_convkb_gives_the_same_for_a_few_candidates_at_a_time(monkeypatch, own):
    similarity = scrambled(ConvKBSimilarity(5, ConvolutionSettings(filters=2)).double())
    q, e = normal(3, 10).requires_grad_(), normal(*((3, 7, 5) if own else (7, 5)), seed=1).requires_grad_()
    sizes: list[int] = []
    whole = similarity(q, e)
    monkeypatch.setattr("compgcn.nn.convolutional._UNITS_CPU", 60)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        parts = similarity(q, e)
    assert max(sizes) < 3 * 7 * 10, "no array of all units is kept"
    assert_same_with_gradients(parts, whole, (q, e, *similarity.parameters()))


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
