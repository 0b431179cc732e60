"""What the costs of a row are of: the same model for all that stand beside one another, and an epoch of such steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from reproduction.bench import Row, bench_costs, costs
from reproduction.bench.measure import Report
from reproduction.bench.peers import edge_by_edge, is_per_edge, pykeen
from reproduction.bench.steps import fresh_task
from reproduction.experiment import chosen, experiments

import toy
from compgcn.config import Config
from compgcn.run.resolve import expand, recommended
from toy import Command

CPU = torch.device("cpu")
ENCODERS = experiments(["encoders"])["encoders"]
# Rows whose layers are the paper's; those with the released norm have others.
LAYERS = [row.name for row in ENCODERS.rows if chosen(ENCODERS, row)["encoder.name"] == "compgcn"]
SMALL = {"decoder.filters": 4, "decoder.kernel": 3, "training.batch_size": 8, "training.negatives": 4}
CERTAIN = dict.fromkeys(
    ("encoder.dropout", "encoder.hidden_dropout", "decoder.feature_dropout", "decoder.hidden_dropout"), 0.0
)


def small(name: str, **settings: Any) -> Row:
    """A row of the experiment with as many layers, all of them small."""
    row = ENCODERS.row(name)
    asked = chosen(ENCODERS, row)
    dims = [8] * (len(asked["encoder.dims"]) - 1) + [16]
    return Row(name, row.label, {**asked, **SMALL, "encoder.dims": dims, **settings})


def config_of(row: Row) -> Config:
    return expand(recommended(row.settings, toy.graph()), toy.graph())


def measured(*names: str) -> dict[str, Report]:
    report = bench_costs(toy.graph(), CPU, [small(name) for name in names])
    return {row["row"]: row for row in report["rows"]}


def test_every_row_of_the_papers_layer_has_a_twin_edge_by_edge_and_no_other_has() -> None:
    twins = {row.name for row in ENCODERS.rows if is_per_edge(config_of(small(row.name)))}
    assert twins == set(LAYERS)
    assert len(twins) >= 12


@pytest.mark.parametrize("name", LAYERS)
def test_the_twin_edge_by_edge_has_the_same_loss_and_gradients(name: str) -> None:
    config = config_of(small(name, **CERTAIN))
    found = []
    for per_edge in (False, True):
        task = fresh_task(config, toy.graph(), CPU)
        if per_edge:
            edge_by_edge(task.module)
        task.module.double()
        torch.manual_seed(1)  # of the negatives
        loss = task.loss(task.examples(0, 0))
        found.append((loss, torch.autograd.grad(loss, list(task.module.parameters()))))
    (ours, slopes), (theirs, other_slopes) = found
    assert ours > 0.1  # there is something to compare
    torch.testing.assert_close(theirs, ours)
    torch.testing.assert_close(other_slopes, slopes)


def test_an_epoch_takes_its_steps_and_a_row_has_the_sizes_of_its_model() -> None:
    rows = measured("transe-none", "distmult-rgcn", "conve-compgcn-corr")
    for name, row in rows.items():
        task = fresh_task(config_of(small(name)), toy.graph(), CPU)
        assert row["steps_per_epoch"] == -(-2 * len(toy.graph().train) // 8) == task.steps_per_epoch
        assert row["batch"] == task.batch_size
        assert row["parameters"] == sum(p.numel() for p in task.model.parameters())
        for cost in row["steps"].values():
            assert cost["ms"] > 0
            assert cost["seconds_per_epoch"] == pytest.approx(row["steps_per_epoch"] * cost["ms"] / 1000, abs=1e-4)
    assert {name: [*row["steps"]] for name, row in rows.items()} == {
        "transe-none": ["ours"],
        "distmult-rgcn": ["ours"],
        "conve-compgcn-corr": ["ours", "per edge"],
    }


def test_pykeens_model_has_our_parameters_and_a_bias_for_each_layer() -> None:
    pytest.importorskip("pykeen")
    (row,) = measured("distmult-compgcn-mult").values()
    dims = row["settings"]["encoder.dims"]
    assert row["steps"]["PyKEEN"]["parameters"] == row["parameters"] + sum(dims[1:])
    assert row["steps"]["PyKEEN"]["version"]


def test_pykeen_learns_from_batches_larger_than_the_graph() -> None:
    pytest.importorskip("pykeen")
    peer = pykeen(toy.graph(), 3 * len(toy.graph().train), CPU, (8, 8))
    losses = [peer.step().item() for _ in range(20)]
    assert 0 < losses[-1] < losses[0]  # nan is in no order


def test_what_needs_more_memory_than_there_is_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "free_mib", lambda device: 0.0)
    monkeypatch.setattr(costs, "has_pykeen", lambda: True)
    (row,) = measured("distmult-compgcn-mult").values()
    assert [*row["steps"]] == ["ours"]
    assert row["left_out"] == dict.fromkeys(("per edge", "PyKEEN"), costs.TOO_LARGE)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (torch.OutOfMemoryError("no more"), costs.TOO_LARGE),
        (RuntimeError("it broke\nin the middle"), "RuntimeError: it broke"),
    ],
)
def test_a_row_that_fails_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, said: str
) -> None:
    whole = costs.step_cost

    def failing(make: Any, settings: Any, device: Any, **options: Any) -> Any:
        if make().model.encoder.layers:
            raise failure
        return whole(make, settings, device, **options)

    monkeypatch.setattr(costs, "step_cost", failing)
    rows = measured("conve-compgcn-sub", "conve-none")
    assert rows["conve-compgcn-sub"]["left_out"] == dict.fromkeys(("ours", "per edge"), said)
    assert [*rows["conve-none"]["steps"]] == ["ours"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_every_encoder_is_measured_recorded_and_the_papers_eagerly_too() -> None:
    rows = [row.name for row in ENCODERS.rows if row.group == "DistMult"]
    report = bench_costs(toy.graph(), torch.device("cuda"), [small(name) for name in rows])
    for row in report["rows"]:
        assert "left_out" not in row
        assert {"ours", "ours, eager", "per edge"} & set(row["steps"]) == (
            {"ours", "ours, eager", "per edge"} if row["row"] in LAYERS else {"ours"}
        )
        assert all(cost["mib"] > 0 for cost in row["steps"].values())


def test_the_command_measures_the_rows_that_are_named(command: Command, tmp_path: Path) -> None:
    data = toy.write_tsv(tmp_path / "toy.tsv", toy.graph())
    words = ["bench", "costs", "--data", str(data), "--row", "transe-dgcn", "--row", "transe-compgcn-sub"]
    words += ["--device", "cpu", *toy.flags({"dims": (8, 8), "batch_size": 8, "negatives": 4})]
    done = command(*words, "--json")
    assert done.code == 0
    report = json.loads(done.out)
    assert [row["row"] for row in report["rows"]] == ["transe-dgcn", "transe-compgcn-sub"]
    assert all("batch_size" not in row["settings"] for row in report["rows"])
    assert [row["settings"]["training.batch_size"] for row in report["rows"]] == [8, 8]
    assert report["compiled"] is False
    assert "2 of 2, transe-compgcn-sub: per edge" in done.err
    shown = command(*words).out
    assert "s an epoch" in shown
    assert f"{report['rows'][0]['parameters']:,}" in shown


def test_a_row_that_is_not_there_is_one_sentence(command: Command) -> None:
    done = command("bench", "costs", "--data", "world", "--row", "transe-compgcn")
    assert done.code == 1
    assert "unknown row of encoders 'transe-compgcn'" in done.err


def test_the_table_has_every_row_and_the_readme_the_one_that_pykeen_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = toy.script("benchmarks", "tools")
    monkeypatch.setattr(tool, "BENCHMARKS", tmp_path)
    assert tool.costs() == "Not measured yet."
    report = bench_costs(toy.graph(), CPU, [small("conve-none"), small("distmult-compgcn-mult")])
    product = report["rows"][1]
    figures = {"ms": 2.5, "mib": 40.0, "seconds_per_epoch": 1.25}
    product["steps"] = {"ours": figures, "ours, eager": figures, "PyKEEN": {**figures, "parameters": 1234}}
    product["left_out"] = {"per edge": costs.TOO_LARGE}
    (tmp_path / "h200").mkdir()
    (tmp_path / "h200" / "costs-fb15k-237.json").write_text(json.dumps(report))
    *_, first, second = tool.costs().splitlines()
    assert first.startswith("| ConvE | ")
    assert first.endswith(" | – | – | – |")
    own = f"| DistMult + CompGCN (Mult) | {product['batch']} | {product['parameters']:,} | "
    taken = "2.50 ms, 1.25 s, 40 MiB"
    assert second == own + f"{taken} | {taken} | {costs.TOO_LARGE} | {taken}, 1,234 parameters |"
    assert len(tool.rows("h200")) == 2
    assert tool.rows("cpu") == []
