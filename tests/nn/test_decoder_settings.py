"""The sizes of a decoder: its own, those of a recipe, and those the user sets."""

from __future__ import annotations

from typing import Any

import pytest

from compgcn.config import Decoder
from compgcn.data import DATASETS
from compgcn.nn.decoders import DECODERS
from compgcn.run.resolve import expand, recommended
from toy import graph


def decoder(**settings: Any) -> Decoder:
    data = graph()
    return expand(recommended({"encoder.dims": (200, 200)} | settings, data), data).decoder


@pytest.mark.parametrize("name", DECODERS)
def test_sizes_are_the_decoders_own_unless_given(name: str) -> None:
    usual, row = decoder(decoder=name), DECODERS[name]
    assert (usual.filters, usual.kernel) == (row.settings.filters, row.settings.kernel)
    given = decoder(decoder=name, filters=5, kernel=2)
    assert (given.filters, given.kernel) == (5, 2)


def test_the_sizes_of_a_recipe_are_for_its_own_decoder() -> None:
    recipe = DATASETS["wn18rr"].recipe
    assert decoder(**{"data.source": "wn18rr"}).filters == recipe["decoder.filters"] == 250
    other = decoder(**{"data.source": "wn18rr", "decoder": "hyper"})
    assert (other.filters, other.kernel) == (32, 9)
    assert other.feature_dropout == recipe["decoder.feature_dropout"]
    assert decoder(**{"data.source": "wn18rr", "decoder": "hyper", "filters": 7}).filters == 7
