"""Several ranks compute what one process computes, whatever the encoder, the decoder and the loss."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from compgcn.errors import InputError
from compgcn.nn.compose import COMPOSITIONS, LEARNED
from compgcn.nn.graph import NORMS
from compgcn.processes import World
from compgcn.shards.link_prediction import ENTITY_ROWS, SUPPORTED
from compgcn.tasks.sampling import SAMPLERS
from ranks import Ranks
from sharded import SHAPES, held, joined, outcome, task_of, traffic

NAMES = {row.part: row.names for row in SUPPORTED if row.part != "setting"}
SETTINGS = {name for row in SUPPORTED if row.part == "setting" and row.same for name in row.names}

# An encoder and a decoder meet in nothing but vectors, and a decoder and a loss in nothing but scores.
CASES: dict[str, dict[str, Any]] = {
    **{f"encoder {name}": {"encoder": name, "encoder.dims": (8, 8, 8)} for name in NAMES["encoder"]},
    **{f"composition {name}": {"composition": name} for name in (*COMPOSITIONS, *LEARNED)},
    **{f"norm {name}": {"norm": name} for name in NORMS},
    **{f"decoder {name}": {"decoder": name, "loss": "bce"} for name in NAMES["decoder"]},
    **{f"loss {name}": {"loss": name, "decoder": "conve", "encoder": "none"} for name in NAMES["loss"]},
    **{
        f"sampler {sampler}, {decoder}": {"sampler": sampler, "decoder": decoder, "loss": "self-adversarial"}
        for sampler in NAMES["sampler"]
        for decoder in NAMES["decoder"]
        if sampler == "uniform" or decoder in ("conve", "rotate")  # shared negatives are scored like all entities
    },
    **{
        f"regulariser {name}, {loss}": {"regulariser": name, "decoder": "complex", "loss": loss}
        for name in NAMES["regulariser"]
        for loss in ("cross-entropy", "margin")
    },
    "relations too": {"relation_prediction": 0.5, "decoder": "transe", "entity_bias": True},
    "residual": {"encoder.residual": 6, "entity_bias": True, "optimiser": "adam"},
    "features": {"encoder.input": "features"},
    "clipped": {"grad_clip": 0.01, "decoder": "conve", "feature_dropout": 0.3, "decoder.hidden_dropout": 0.3},
    "no loops, no batch norm": {"self_loop": False, "batch_norm": False},
    "scale": {"init_scale": 0.1, "encoder": "none", "label_smoothing": 0.0},
    "other flow": {"flow": "source_to_target", "optimiser": "adagrad"},
    "fewer triples than ranks": {"batch_size": 2, "loss": "margin", "sampler": "shared"},
}
ENCODERS = [f"encoder {name}" for name in NAMES["encoder"]] + ["composition conve"]
OTHERS = [f"decoder {name}" for name in NAMES["decoder"]]
OTHERS += ["sampler uniform, transe", "sampler shared, conve", "regulariser n3, cross-entropy", "residual"]


@cache
def alone(case: str, shape: str) -> dict[str, Any]:
    return outcome(None, CASES[case], shape)


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name.startswith(("initial", "answers ids")):
            np.testing.assert_array_equal(found[name], value, name)
        elif name == "metrics":
            assert found[name] == value
        else:
            np.testing.assert_allclose(found[name], value, 1e-7, 1e-9, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_ranks_compute_what_one_process_computes(case: str, ranks: Ranks) -> None:
    same(outcome(World(), CASES[case], "uneven"), alone(case, "uneven"))
    for size in (2, 3):
        same(joined(ranks(size, outcome, CASES[case], "uneven")), alone(case, "uneven"))


@pytest.mark.parametrize("case", ENCODERS)
def test_a_rank_may_have_no_message(case: str, ranks: Ranks) -> None:
    same(joined(ranks(3, outcome, CASES[case], "quiet")), alone(case, "quiet"))


@pytest.mark.parametrize("case", ENCODERS + OTHERS)
def test_a_rank_may_have_no_entity(case: str, ranks: Ranks) -> None:
    parts = ranks(3, outcome, CASES[case], "empty")
    assert not len(parts[2]["initial encoder.nodes"])
    same(joined(parts), alone(case, "empty"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_hold_the_facts_once_and_in_order(size: int, shape: str, ranks: Ranks) -> None:
    parts, (facts, known) = ranks(size, held, {}, shape), held(None, {}, shape)
    np.testing.assert_array_equal(np.concatenate([part for part, _ in parts]), facts)
    assert sum(number for _, number in parts) == known


def test_every_supported_setting_is_tested() -> None:
    assert {name for settings in CASES.values() for name in settings} >= SETTINGS


def test_dropout_of_rows_leaves_the_ranks_in_step(ranks: Ranks) -> None:
    settings = {"encoder.dropout": 0.3, "encoder.hidden_dropout": 0.3, "decoder": "conve", "loss": "margin"}
    found = joined(ranks(3, outcome, settings, "uneven"))  # asserts that all ranks have the same
    assert found["loss"] != outcome(None, settings, "uneven")["loss"]


@pytest.mark.parametrize("size", [2, 3])
def test_a_step_sends_as_many_bytes_as_the_formula_says(size: int, ranks: Ranks) -> None:
    dims, bytes_each = (8, 6, 4), 8
    settings = {"encoder.dims": dims, "label_smoothing": 0.0}
    sent = ranks(size, traffic, settings, "uneven")
    task = task_of(None, settings, "uneven")
    N, B = task.num_entities, task.batch_size
    owner = torch.arange(N) // -(-N // size)
    senders = torch.stack((task.graph.src, task.graph.dst)), torch.stack((task.graph.dst, task.graph.src))
    halo = asked = 0
    for rank in range(size):
        other, own = (owner[ends] for ends in senders)
        halo += len(senders[0][(own == rank) & (other != rank)].unique())
        s = task.batch(task.examples(0, 1)).s.unique()
        asked += int((owner[s] != rank).sum())
    total = {kind: sum(one[kind] for one in sent) for kind in ("ids", "rows", "reduced")}
    assert total["ids"] == 8 * (asked + size * (size - 1))
    assert total["rows"] == 2 * bytes_each * (halo * sum(dims[:-1]) + asked * dims[-1])  # there, and gradients back
    weights = {name: weight.numel() for name, weight in task.model.named_parameters() if name not in ENTITY_ROWS}
    numbers = 3 * B + 4 * sum(dims[1:]) + sum(weights.values()) + len(weights)
    assert total["reduced"] == size * (bytes_each * numbers + 8 * 3 * B)  # and subject, relation and answer


@pytest.mark.parametrize("sampler", [name for name, row in SAMPLERS.items() if row.adversary])
def test_an_adversary_is_refused(sampler: str) -> None:
    with pytest.raises(InputError, match=f"'{sampler}' trains a second model.* uniform or shared"):
        task_of(World(), {"sampler": sampler, "loss": "margin"}, "uneven")
