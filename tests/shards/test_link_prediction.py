"""Several ranks compute what one process computes, whatever the encoder, the decoder and the loss."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from compgcn.nn.compose import COMPOSITIONS, LEARNED
from compgcn.nn.graph import NORMS
from compgcn.shards.link_prediction import SUPPORTED
from compgcn.shards.rows import World
from ranks import Ranks
from sharded import joined, outcome

NAMES = {row.part: row.names for row in SUPPORTED}
OVER_ALL = ("bce", "cross-entropy")

# An encoder and a decoder meet in nothing but vectors, and a decoder and a loss in nothing but scores.
CASES: dict[str, dict[str, Any]] = {
    **{f"encoder {name}": {"encoder": name, "encoder.dims": (8, 8, 8)} for name in NAMES["encoder"]},
    **{f"composition {name}": {"composition": name} for name in (*COMPOSITIONS, *LEARNED)},
    **{f"norm {name}": {"norm": name} for name in NORMS},
    **{f"decoder {name}": {"decoder": name, "loss": "bce"} for name in NAMES["decoder"]},
    **{
        f"loss {loss} with {decoder}": {"loss": loss, "decoder": decoder, "encoder": "none"}
        for loss in NAMES["loss"]
        for decoder in ("conve", "rotate")
    },
    **{
        f"sampler {sampler} with {decoder}": {"loss": "self-adversarial", "sampler": sampler, "decoder": decoder}
        for sampler in NAMES["sampler"]
        for decoder in NAMES["decoder"]
    },
    **{
        f"regulariser {name}": {"regulariser": name, "decoder": "complex", "relation_prediction": 0.5, "loss": loss}
        for name in NAMES["regulariser"]
        for loss in ("cross-entropy", "margin")
    },
    "residual": {"encoder.residual": 6, "entity_bias": True},
    "edges removed": {"remove_batch_edges": True},
    "features": {"encoder.input": "features"},
    "clipped": {"grad_clip": 0.01},
    "no loops, no batch norm": {"self_loop": False, "batch_norm": False},
    "scale": {"init_scale": 0.1, "encoder": "none"},
    "other flow": {"flow": "source_to_target"},
    "smoothing": {"label_smoothing": 0.0},
    "fewer triples than ranks": {"batch_size": 2, "loss": "margin", "sampler": "shared"},
}
SMALL = (
    "encoder compgcn",
    "encoder rgcn",
    "composition conve",
    "decoder conve",
    "decoder rotate",
    "decoder convkb",
    "sampler uniform with transe",
    "sampler shared with conve",
    "regulariser n3 cross-entropy",
    "residual",
)


def settings_of(case: str) -> dict[str, Any]:
    return CASES[case]


@cache
def alone(case: str, shape: str) -> dict[str, Any]:
    return outcome(None, CASES[case], shape)


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name.startswith(("initial", "best entities")):
            np.testing.assert_array_equal(found[name], value, name)
        elif name == "valid":
            assert found[name] == value
        else:
            np.testing.assert_allclose(found[name], value, 1e-7, 1e-9, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_ranks_compute_what_one_process_computes(case: str, ranks: Ranks) -> None:
    for size in (2, 3):
        same(joined(ranks(size, outcome, CASES[case], "uneven")), alone(case, "uneven"))


@pytest.mark.parametrize("case", CASES)
def test_a_single_rank_computes_what_one_process_computes(case: str) -> None:
    same(outcome(World(), CASES[case], "uneven"), alone(case, "uneven"))
