"""Learning works: every encoder with every decoder, and every loss, learns a small graph by heart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from compgcn.config import Config, configure
from compgcn.data import KnowledgeGraph
from compgcn.nn.decoders import DECODERS
from compgcn.nn.encoder import PRESETS
from compgcn.run.resolve import expand
from compgcn.run.run import open_run
from compgcn.tasks.link_prediction import LinkPrediction
from compgcn.tasks.objectives import OBJECTIVES
from compgcn.train.loop import make_step
from toy import build_task, graph, train

BY_HEART: dict[str, Any] = {
    "encoder.dims": (16, 16),
    "encoder.dropout": 0.0,
    "encoder.hidden_dropout": 0.0,
    "decoder.hidden_dropout": 0.0,
    "feature_dropout": 0.0,
    "label_smoothing": 0.0,
    "kernel": 3,
    "filters": 8,
    "batch_size": 16,
    "negatives": 16,
    "margin": 4.0,
    "lr": 0.03,
    "epochs": 60,
    "evaluate_every": 60,
    "device": "cpu",
}


def _task(data: KnowledgeGraph | None = None, **settings: Any) -> LinkPrediction:
    data = data or graph(empty=("valid",))
    return build_task(expand(configure(Config(), BY_HEART | settings), data), data, torch.device("cpu"))


# An encoder and a decoder meet in nothing but vectors, a loss and a decoder in nothing but scores, of all entities or
# of some: so not every pair is trained.
ENCODERS, KINDS = ("compgcn", "none"), ("transe", "distmult", "conve")
AROUND: list[dict[str, Any]] = [
    {"composition": "ntn"},
    {"composition": "conve"},
    {"encoder.residual": 24},
    {"encoder": "gcn", "encoder.residual": 24},  # which has no relation vectors
]
CASES: list[dict[str, Any]] = [
    *({"encoder": e, "decoder": d} for e in PRESETS for d in DECODERS if e in ENCODERS or d in KINDS),
    *({"loss": o, "decoder": d} for o in OBJECTIVES for d in DECODERS if d in KINDS or o == "self-adversarial"),
    *({"decoder": decoder, **more} for more in AROUND for decoder in ("conve", "distmult")),
    {"decoder": "distmult", "loss": "sampled-cross-entropy", "fanout": (4,), "epochs": 120},
    {"encoder": "none", "decoder": "transe", "loss": "margin", "sampler": "kbgan"},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_encoder_decoder_and_loss_learns_a_graph_by_heart_and_comes_back(
    tmp_path: Path, case: dict[str, Any]
) -> None:
    settings, encoder = BY_HEART | case, PRESETS[case.get("encoder", "none")]
    if encoder.bases is not None:
        settings["bases"] = 2
    if encoder.relation_activation:
        settings["encoder.dims"] = (32, 32)  # what is bounded on both sides needs more room
    run = train(tmp_path / "run", graph(empty=("valid",)), **settings)
    found, again = run.evaluate("train"), open_run(run.path)
    assert found["mrr"] > 0.9
    assert again.evaluate("train") == found
    assert again.predict("p2", "knows", top=99) == run.predict("p2", "knows", top=99)


@pytest.mark.parametrize("decoder", KINDS)
def test_without_training_nothing_is_learned(tmp_path: Path, decoder: str) -> None:
    settings = BY_HEART | {"decoder": decoder, "epochs": 0}
    assert train(tmp_path / "run", graph(empty=("valid",)), **settings).evaluate("train")["mrr"] < 0.7


@pytest.mark.parametrize("loss", OBJECTIVES)
@pytest.mark.parametrize("batch_size", [2, 7, 16, 1000])
def test_an_epoch_meets_every_example_in_batches_of_one_size(loss: str, batch_size: int) -> None:
    task = _task(loss=loss, batch_size=batch_size)
    facts = graph().splits["train"].tolist()
    R = task.num_relations
    expected = {(s, r, o) for s, r, o in facts} | {(o, r + R, s) for s, r, o in facts}
    orders = []
    for epoch in range(2):
        chosen = [task.examples(epoch, step) for step in range(task.steps_per_epoch)]
        assert {len(examples) for examples in chosen} == {task.batch_size}
        assert task.batch_size <= batch_size
        order = torch.cat(chosen).tolist()
        assert len(set(order)) == task.num_examples > len(order) - 8 * task.steps_per_epoch, "hardly any is met twice"
        batches = [task.batch(examples) for examples in chosen]
        found = {(int(b.s[i]), int(b.r[i]), int(a)) for b in batches for i, a in zip(b.row, b.answer, strict=True)}
        assert found == expected
        orders.append(order)
    assert orders[0] != orders[1]


@pytest.mark.parametrize("size", [5, 16, 1000])
def test_an_epoch_of_a_size_takes_that_many_examples_and_each_epoch_others(size: int) -> None:
    task = _task(batch_size=4, epoch_size=size)
    epochs = [torch.cat([task.examples(e, i) for i in range(task.steps_per_epoch)]).tolist() for e in range(60)]
    taken = min(size, task.num_examples)
    assert {len(set(one)) for one in epochs} == {taken}
    assert {number for one in epochs for number in one} == set(range(task.num_examples))


def test_a_batch_depends_on_seed_epoch_and_step_alone() -> None:
    one, two = _task(seed=3), _task(seed=3)
    for step in (0, 1):
        two.examples(4, step)  # another order of asking
    assert torch.equal(one.examples(1, 1), two.examples(1, 1))
    assert not torch.equal(one.examples(1, 1), _task(seed=4).examples(1, 1))


@pytest.mark.parametrize(
    ("margin", "decay", "evaluations", "last"),
    [
        (9.0, 2.0, (0, 1, 9), 9),
        (9.0, 2.0, (10, 11, 19, 0), 7),
        (9.0, 2.0, (10, 20, 30), 5),
        (9.0, 5.0, (10, 20, 30), 4),
        (3.0, 5.0, (10, 20, 30), 3),
    ],
)
def test_the_margin_falls_after_every_ten_evaluations_without_gain_while_it_is_above_five(
    margin: float, decay: float, evaluations: tuple[int, ...], last: float
) -> None:
    task = _task(decoder="transe", margin=margin, margin_decay=decay)
    for stale in evaluations:
        task.evaluated(stale)
    assert task.model.decoder.margin.item() == last


PARTS: dict[str, dict[str, Any]] = {  # a model whose steps see a part of the graph, with fan-outs beyond every degree
    "rows": {"encoder": "none"},
    "rows of a GPU": {"encoder": "none", "decoder": "conve", "regulariser": "n3"},
    "rows, regularised": {"encoder": "none", "regulariser": "n3", "relation_prediction": 0.5},
    "one layer": {"fanout": (99,)},
    "two layers, biases": {"encoder.dims": (16, 16, 16), "fanout": (99, 99), "decoder": "conve"},
    "a residual": {"fanout": (99,), "encoder.residual": 24},
}


@pytest.mark.parametrize("sampler", ["uniform", "shared"])
@pytest.mark.parametrize("part", PARTS)
def test_a_step_on_a_part_of_the_graph_has_the_loss_and_the_gradients_of_the_whole(part: str, sampler: str) -> None:
    settings = {"decoder": "distmult", "loss": "sampled-cross-entropy", "optimiser": "adagrad", "sampler": sampler}
    still = {"encoder.batch_norm": False}  # it would normalise over the part
    found = []
    for in_part in (True, False):
        torch.manual_seed(0)
        task = _task(**settings | still | PARTS[part])
        assert task.in_part
        task.in_part, task.one_shape = in_part, "GPU" in part
        task.model.eval().double()  # no batch norm of a convolution either
        torch.manual_seed(1)
        loss = task.loss(task.examples(0, 0))
        loss.backward()
        weights = {name: p.grad for name, p in task.model.named_parameters() if p.grad is not None}
        assert (in_part and weights["encoder.nodes"].is_sparse) == in_part
        found.append({"loss": loss, **{name: g.to_dense() for name, g in weights.items()}})
    assert found[0].keys() == found[1].keys()
    for name, ours in found[0].items():
        assert torch.allclose(ours, found[1][name], rtol=1e-5, atol=1e-7), name


class _Watch(TorchDispatchMode):
    """The operations inside, and the most rows of a new matrix that one of them makes."""

    def __init__(self, *tables: torch.Tensor) -> None:
        super().__init__()
        self.tables, self.names, self.rows = {table.data_ptr() for table in tables}, set[str](), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **kwargs or {})
        self.names.add(func.overloadpacket.__name__)
        for one in tree_leaves(made):
            if isinstance(one, torch.Tensor) and not one.is_sparse and one.ndim and one.data_ptr() not in self.tables:
                self.rows = max(self.rows, len(one))
        return made


WAITS = {"_unique2", "unique_dim", "nonzero", "_local_scalar_dense", "_coalesce", "coalesce"}  # for the device


@pytest.mark.parametrize("part", ["rows", "rows of a GPU", "one layer"])
def test_a_step_on_a_part_of_the_graph_costs_what_its_batch_does_whatever_the_size_of_the_graph(part: str) -> None:
    settings = {"decoder": "distmult", "loss": "sampled-cross-entropy", "optimiser": "adagrad", "sampler": "shared"}
    settings |= {"fanout": (3,)} if part == "one layer" else {"encoder": "none", "regulariser": "n3"}
    found = []
    for people in (2000, 8000):
        task = _task(graph(people=people, empty=("valid",)), **settings)
        task.one_shape = "GPU" in part
        update = make_step(task, task.settings, 1)
        state = [one["sum"] for one in update.optimiser.state.values()]
        update(task.examples(0, 0), 0.1)  # makes what lasts
        with _Watch(*task.model.parameters(), *state) as watch:
            update(task.examples(0, 1), 0.1)
        found.append(watch)
    small, large = found
    assert small.names == large.names
    assert 16 <= large.rows < 1000
    assert ("GPU" in part) == (not large.names & WAITS), "a recorded step has one shape for all batches"
