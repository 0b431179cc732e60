"""Classification: toys are learned whole, reports are what they say, and no protocol sees what it must not see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import toy
from compgcn.data import GraphCollection, KnowledgeGraph, Labels
from compgcn.errors import InputError
from compgcn.nn.encoder import PRESETS
from compgcn.run.build import TASKS, build_items
from compgcn.run.resolve import expand, recommended
from compgcn.run.run import open_run
from compgcn.tasks.classification import NAMES, Classification, Readout, Tally, macro_f1, report
from compgcn.train.loop import Interrupted

CPU = torch.device("cpu")
KINDS = [
    pytest.param(toy.labelled(), "refit", id="nodes, refit"),
    pytest.param(toy.labelled(valid=6), "holdout", id="nodes, holdout"),
    pytest.param(toy.molecules(), "paper", id="graphs, paper"),
    pytest.param(toy.molecules(), "nested", id="graphs, nested"),
]
WITHOUT_GRAPH = {"none"}


def small(preset: str) -> dict[str, Any]:
    return {"encoder": preset, "bases": 2} if preset in ("rgcn-basis", "rgcn-block") else {"encoder": preset}


@pytest.mark.parametrize("preset", [name for name in PRESETS if name not in WITHOUT_GRAPH])
def test_every_encoder_learns_to_tell_nodes_apart(tmp_path: Path, preset: str) -> None:
    run = toy.classify(tmp_path / "run", toy.labelled(), **small(preset))
    assert run.metrics["test"]["accuracy"] == 1.0
    assert run.metrics["test"]["confusion"] == [[4, 0], [0, 4]]


@pytest.mark.parametrize(("preset", "protocol"), [*((name, "paper") for name in PRESETS), ("compgcn", "nested")])
def test_every_encoder_learns_to_tell_graphs_apart(tmp_path: Path, preset: str, protocol: str) -> None:
    run = toy.classify(tmp_path / "run", toy.molecules(), protocol=protocol, inner_folds=2, **small(preset))
    found = run.metrics["valid" if protocol == "paper" else "test"]
    assert [fold["accuracy"] for fold in found["folds"]] == [1.0] * 3
    assert (found["accuracy"], found["accuracy_sd"]) == (1.0, 0.0)


def test_without_its_edges_a_graph_gives_no_node_away(tmp_path: Path) -> None:
    run = toy.classify(tmp_path / "run", toy.labelled(), **{"encoder.graph": "none"})
    assert run.metrics["test"]["accuracy"] == 0.5  # all share one vector


@pytest.mark.parametrize(("data", "protocol"), KINDS)
def test_a_run_stopped_and_killed_anywhere_ends_with_the_same_bits(
    tmp_path: Path, data: KnowledgeGraph | GraphCollection, protocol: str
) -> None:
    settings = {"protocol": protocol, "epochs": 4, "inner_folds": 2, "checkpoint_seconds": 0.0, "batch_size": 5}
    settings |= {"encoder.dropout": 0.2, "encoder.hidden_dropout": 0.2}
    whole = toy.classify(tmp_path / "whole", data, **settings)
    for life in range(1, 100):
        events: list[Any] = []
        moment = 1 + life
        notify = toy.killed_at_event(moment if life % 2 else 0, events)
        try:
            stop = lambda: len(events) >= moment  # noqa: B023, E731
            run = toy.classify(tmp_path / "run", data, notify=notify, interrupted=stop, **settings)
            break
        except (toy.Killed, Interrupted):
            continue
    assert life >= 3
    assert run.metrics == whole.metrics
    assert (run.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("content", ["x", "[]"])
def test_damaged_folds_are_one_sentence_that_names_their_file(tmp_path: Path, content: str) -> None:
    events: list[Any] = []
    settings = {"protocol": "refit", "epochs": 2}
    second_fold = lambda: len({event.get("part") for event in events}) > 1  # noqa: E731
    with pytest.raises(Interrupted):
        toy.classify(tmp_path, toy.labelled(), notify=events.append, interrupted=second_fold, **settings)
    path = tmp_path / "checkpoint" / "parts.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"parts\.json is damaged .*; delete it"):
        toy.classify(tmp_path, toy.labelled(), **settings)
    path.unlink()
    toy.classify(tmp_path, toy.labelled(), **settings)


# Visible labels


@pytest.mark.parametrize("protocol", TASKS["node-classification"].protocols)
def test_the_labels_of_test_change_nothing_but_the_report_on_test(tmp_path: Path, protocol: str) -> None:
    data = toy.labelled(valid=4)
    flipped = data.labels.test * [1, 0] + [0, 1] - data.labels.test * [0, 1]
    other = replace(data, labels=Labels(data.labels.classes, data.labels.train, data.labels.valid, flipped))
    runs = [toy.classify(tmp_path / name, d, protocol=protocol) for name, d in (("a", data), ("b", other))]
    assert len({(run.path / "model.safetensors").read_bytes() for run in runs}) == 1
    assert runs[0].metrics["valid"] == runs[1].metrics["valid"]
    assert runs[0].metrics["best_epoch"] == runs[1].metrics["best_epoch"]
    assert runs[0].metrics["test"]["accuracy"] == 1 - runs[1].metrics["test"]["accuracy"] == 1.0


def test_of_the_epochs_the_one_with_the_best_mean_over_folds_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = {2: 6, 3: 5}  # of six, after so many epochs; others 3
    seen = {"n": 0}

    def scripted(self: Classification, items: torch.Tensor) -> Tally:
        seen["n"] += 1
        right = accuracies.get((seen["n"] - 1) % 4 + 1, 3)
        return Tally(-float(seen["n"] % 4), torch.tensor([[right, 6 - right], [0, 0]]))

    monkeypatch.setattr(Classification, "tally", scripted)
    run = toy.classify(tmp_path / "run", toy.molecules(), epochs=4)
    assert run.metrics["best_epoch"] == 2
    assert run.metrics["valid"]["accuracy"] == 1.0
    assert run.metrics["test"] == {}
    assert run.metrics["protocol"] == "paper"


def test_a_nested_run_chooses_the_epochs_that_classify_the_most_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scripted(self: Classification, items: torch.Tensor) -> Tally:
        epoch = len(self.tallies) + 1  # the likelihood falls from the first, the accuracy is best at the third
        right = len(items) if epoch == 3 else 0
        return Tally(-float(epoch), torch.tensor([[right, len(items) - right], [0, 0]]))

    monkeypatch.setattr(Classification, "tally", scripted)
    run = toy.classify(tmp_path / "run", toy.molecules(), protocol="nested", epochs=4, inner_folds=2)
    assert run.metrics["best_epoch"] == 3
    assert [fold["epochs"] for fold in run.metrics["test"]["folds"]] == [3, 3, 3]


# The parts


def built(data: KnowledgeGraph | GraphCollection, *, whole: bool = False, **settings: Any) -> Any:
    config = expand(recommended({"data.source": data.name, **toy.CLASSES, **settings}, data), data)
    torch.manual_seed(0)
    return build_items(config, data, CPU, whole=whole)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("layers", [1, 2])
def test_what_no_labelled_node_hears_of_changes_nothing(preset: str, layers: int) -> None:
    settings = small(preset) | {"encoder.dims": (8,) * (layers + 1)}
    part, whole = (built(toy.labelled(), whole=whole, **settings) for whole in (False, True))
    nodes = torch.tensor([8, 12, 3])
    places = torch.stack([(torch.cat([torch.arange(8, 24), torch.arange(8)]) == n).nonzero()[0, 0] for n in nodes])
    for one, items in ((part, places), (whole, nodes)):
        one.model.zero_grad()
        one.vectors(items).square().sum().backward()
    torch.testing.assert_close(part.vectors(places), whole.vectors(nodes), rtol=0, atol=0)
    for (name, one), other in zip(part.model.named_parameters(), whole.model.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, msg=name)


def test_with_batch_norm_the_whole_graph_is_encoded() -> None:
    data, seen = toy.labelled(), []
    for settings in ({"encoder.batch_norm": True}, {}):
        items = built(data, **settings)
        items.model.encoder.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
        items.vectors(torch.tensor([0]))
    assert seen[0] == data.num_entities
    assert seen[1] < data.num_entities


@pytest.mark.parametrize("readout", NAMES)
@pytest.mark.parametrize("preset", PRESETS)
def test_graphs_in_a_batch_come_out_as_they_do_one_by_one(preset: str, readout: str) -> None:
    items = built(toy.molecules(), readout=readout, **small(preset))
    items.model.eval()
    chosen = torch.tensor([3, 0, 7, 17, 3])
    with torch.no_grad():
        together = items.vectors(chosen)
        alone = torch.cat([items.vectors(one.unsqueeze(0)) for one in chosen])
    torch.testing.assert_close(together, alone)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5), readout=st.sampled_from(NAMES), seed=st.integers(0, 99)
)
def test_a_readout_is_what_it_is_called_and_cares_for_no_order(sizes: list[int], readout: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(sizes), 3, generator=generator, dtype=torch.float64)
    graph_of = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    module = Readout(readout, 3).double()
    found = module(x, graph_of, len(sizes))

    def by_hand(rows: torch.Tensor) -> torch.Tensor:
        if module.gate is not None:
            return (rows * (rows @ module.gate).softmax(0)).sum(0)
        return {"mean": rows.mean(0), "sum": rows.sum(0), "max": rows.amax(0)}[readout]

    torch.testing.assert_close(found, torch.stack([by_hand(x[graph_of == g]) for g in range(len(sizes))]))
    order = torch.randperm(len(x), generator=generator)
    torch.testing.assert_close(module(x[order], graph_of[order], len(sizes)), found)


def test_the_report_counts_what_it_says() -> None:
    confusion = torch.tensor([[3, 1, 0], [2, 2, 0], [0, 0, 0]])  # nothing is or was taken for the third
    found = report(Tally(-0.5, confusion), ("a", "b", "c"))
    assert found["accuracy"] == 5 / 8
    assert found["by_class"]["a"] == pytest.approx({"precision": 3 / 5, "recall": 3 / 4, "f1": 2 / 3, "items": 4})
    assert found["by_class"]["b"] == pytest.approx({"precision": 2 / 3, "recall": 1 / 2, "f1": 4 / 7, "items": 4})
    assert found["by_class"]["c"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "items": 0}
    assert found["macro_f1"] == pytest.approx((2 / 3 + 4 / 7) / 2)
    assert found["confusion"] == confusion.tolist()
    assert macro_f1(Tally(0.0, torch.tensor([[0, 1], [0, 3]]))) == pytest.approx((0 + 6 / 7) / 2)


# Settings by data


def test_the_task_follows_from_the_data() -> None:
    for data, task in ((toy.graph(), "link-prediction"), (toy.labelled(), "node-classification")):
        assert expand(recommended({}, data), data).task == task
    rings = toy.molecules()
    config = expand(recommended({}, rings), rings)
    assert (config.task, config.encoder.input) == ("graph-classification", "labels")
    assert built(rings).model.encoder.num_relations == rings.num_relations
    assert "weight_inverse" not in built(rings).model.encoder.layers[0].state_dict()
    one_way = replace(rings, triples=rings.triples[::2])
    assert "weight_inverse" in built(one_way).model.encoder.layers[0].state_dict()


def test_data_that_do_not_fit_the_task_are_refused() -> None:
    for data, task in ((toy.graph(), "node-classification"), (toy.molecules(), "link-prediction")):
        with pytest.raises(InputError, match=f"{task} needs a knowledge graph"):
            recommended({"task": task}, data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (toy.labelled(), "types"),
        (toy.labelled(typed=False), "types"),
        (toy.labelled().with_features(np.eye(33, 4)), "features"),
        (toy.molecules(), "labels"),
        (replace(toy.molecules(), node_labels=None, node_classes=()), "shared"),
    ],
)
def test_what_nodes_start_from_follows_from_the_data(
    data: KnowledgeGraph | GraphCollection, expected: str, tmp_path: Path
) -> None:
    run = toy.classify(tmp_path / "run", data, epochs=1)
    assert run.config.encoder.input == expected
    assert open_run(run.path).evaluate("train") == run.evaluate("train")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"protocol": "paper"}, "unknown protocol for node-classification 'paper'; known: refit, holdout"),
        ({"encoder.input": "labels"}, "unknown encoder.input for node-classification 'labels'"),
        ({"epochs": 0}, "training.epochs is 0"),
        ({"folds": 17}, "16 examples cannot be dealt over 17 folds"),
        ({"encoder.input": "literals"}, "no literals were kept"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        toy.classify(tmp_path / "run", toy.labelled(), **settings)
