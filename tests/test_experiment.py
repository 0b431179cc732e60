"""Experiments: every file of them is sound and runs, results are made once, and reports need nothing but results."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn import experiment as lab
from compgcn.answers.calibration import bins
from compgcn.assembly.settings import expand, recommended
from compgcn.assembly.tasks import build_task
from compgcn.baselines.fitted import Fitted
from compgcn.claims import Claim, Comparison, Reached, judge, read_claims
from compgcn.cli import experiment as cli
from compgcn.config import Config, configure
from compgcn.pages.experiments import page, whole
from compgcn.pages.markup import markdown, page_html
from compgcn.report import (
    MISSING,
    NOT_RUN,
    RULE,
    Board,
    Figure,
    claims_table,
    read,
    relative,
    said,
    shown,
    summary,
    tables,
    verdict,
)
from compgcn.results import curve, parameters
from compgcn.smoke import smoke_data, smoke_settings
from compgcn.tasks.classification import Classification
from compgcn.train import Interrupted
from toy import Command, refused

ROOT = Path(__file__).parents[1]
EXPERIMENTS = lab.experiments([str(path) for path in (ROOT / "experiments").glob("*.toml") if path.stem != "claims"])
CLAIMS = read_claims(ROOT / "experiments" / "claims.toml")
CPU = torch.device("cpu")

EVERY = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))

# The paper's tables and figures, by label; what it draws without giving numbers is a figure.
LABELS = (
    *("tbl:link_pred", "tbl:link_pred_results", "tbl:results_rel_cat", "tbl:nodeclass_results", "table:rgcn_data"),
    *("tbl:gcn_model_comp", "tbl:reduction", "fig:basis_plot", "fig:scale_plot", "fig:rgcn_compare"),
)


def test_every_table_and_figure_of_the_paper_with_results_is_an_experiment() -> None:
    named = " ".join(experiment.source for experiment in EXPERIMENTS.values())
    assert [label for label in LABELS if label not in named] == []


@EVERY
def test_every_row_has_its_source_and_the_papers_figures_or_says_why_not(experiment: lab.Experiment) -> None:
    assert len({row.name for row in experiment.rows}) == len(experiment.rows)
    for row in experiment.rows:
        assert row.source
        assert row.paper or row.note, row.name
        assert set(row.paper) <= set(experiment.metrics), row.name
        assert set(row.also) | set(row.spread) <= set(row.paper), row.name
        if row.control is not None and experiment.kind != "differences":
            home, control = lab.at_home(experiment, experiment.row(row.control))
            assert lab.chosen(home, control)["encoder.name"] == "none"
            assert (
                (lab.chosen(home, control)["decoder.name"]) == lab.chosen(*lab.at_home(experiment, row))["decoder.name"]
            )
    if experiment.kind == "differences":
        assert all(not row.paper and experiment.row(row.control) for row in experiment.rows if row.control is not None)
        home, _, name = experiment.seeds_of.partition("/")
        assert experiment.metrics[0] in EXPERIMENTS[home].metrics
        assert EXPERIMENTS[home].row(name)
    if experiment.kind == "figure":
        assert all(row.x is not None for row in experiment.rows)
        names = [row.name for row in experiment.rows] + [row.series for row in experiment.rows]
        assert experiment.reference in names


@EVERY
def test_every_row_that_is_trained_builds_and_takes_a_step(experiment: lab.Experiment) -> None:
    for job in lab.jobs([experiment], seeds=1):
        settings = lab.chosen(job.experiment, job.row)
        data = smoke_data(configure(Config(), settings))
        config = expand(recommended(settings, data, job.row.model), data)
        assert configure(config, settings) == config, job.name  # so that its result is known for the row's
        config = expand(configure(config, smoke_settings(config)), data)
        built = build_task(config, data, CPU)
        if isinstance(built, Fitted):
            assert torch.isfinite(built.fitted_to(torch.arange(8), torch.arange(8, 12))).all()
            continue
        if config.task != "link-prediction":
            built = Classification(built, torch.arange(4), torch.arange(4, 8), config.training)
        loss = built.loss(built.examples(0, 0))
        loss.backward()
        assert torch.isfinite(loss), job.name
        assert any(weights.grad is not None for weights in built.module.parameters())


def test_where_the_paper_contradicts_itself_both_figures_are_recorded() -> None:
    for name, row, figures in (
        ("link-prediction", "fb15k-237-distmult", (254, 354)),
        ("encoders", "distmult-none", (354, 254)),
    ):
        found = EXPERIMENTS[name].row(row)
        assert (found.paper["mr"], found.also["mr"]) == figures


def test_rows_that_stand_in_two_tables_have_the_same_figures_there() -> None:
    for experiment in EXPERIMENTS.values():
        for row in experiment.rows:
            _, home = lab.at_home(experiment, row)
            shared = (row.paper.keys() & home.paper.keys()) - row.also.keys()
            quoted = row.name == "fb15k-237-rgcn"  # another R-GCN than the authors' own
            assert quoted or all(row.paper[metric] == home.paper[metric] for metric in shared), row.name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("title = 3\nsource = ''", "title"),
        ("title = 'x'\nsource = 'y'\ncolour = 1", "colour"),
        ("title = 'x'\nsource = 'y'\n[[rows]]\nname = 'a b'\nlabel = ''\nsource = ''", "rows.0.name"),
        (
            "title = 'x'\nsource = 'y'\n[[rows]]\nname = 'a'\nlabel = ''\nsource = ''\nsettings = {lrr = 1}",
            "row 'a': unknown option 'lrr'",
        ),
    ],
)
def test_a_file_that_is_wrong_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(lab.InputError, match=sentence):
        lab.read_experiment(path)


# Results


def job(name: str = "encoders", row: str = "distmult-none") -> lab.Job:
    return lab.jobs([EXPERIMENTS[name]], [row], 1)[0]


def test_a_row_is_trained_once_goes_on_where_it_was_stopped_and_again_when_its_settings_change(tmp_path: Path) -> None:
    one, steps = job(), []

    def interrupted() -> bool:
        steps.append(1)
        return len(steps) == 2

    with pytest.raises(Interrupted):
        lab.reproduce(one, tmp_path, tmp_path / "runs", smoke=True, device="cpu", interrupted=interrupted)
    assert not lab.is_done(one, tmp_path, smoke=True)
    seen: list[Any] = []
    path = lab.reproduce(one, tmp_path, tmp_path / "runs", smoke=True, device="cpu", notify=seen.append)
    assert min(event["step"] for event in seen if "step" in event) == 3
    seen.clear()
    assert lab.reproduce(one, tmp_path, tmp_path / "other", smoke=True, notify=seen.append) == path
    assert seen == []
    assert lab.is_done(one, tmp_path, smoke=True)
    assert not lab.is_done(one, tmp_path)  # a small model on another graph is no result of the row
    result = json.loads(path.read_text()) | {"smoke": False}
    path.write_text(json.dumps(result))
    assert not lab.is_done(one, tmp_path)
    assert not lab.is_done(one, tmp_path, smoke=True)
    write(tmp_path, one, metrics=result["metrics"])
    assert lab.is_done(one, tmp_path)


def write(folder: Path, one: lab.Job, seed: int = 0, settings: Any = (), **more: Any) -> None:
    """A result as a row would have it, with other settings where they are given."""
    config = configure(lab.expected(one.experiment, one.row), dict(settings))
    figures = {metric: 0.25 for _, metric in one.figures if "/" not in metric} | {"mrr": 0.25, "mr": 100.0}
    figures |= {"accuracy": 0.75, "optimistic": {"mrr": 0.25}, "pessimistic": {"mrr": 0.25}}
    result: dict[str, Any] = {
        "seed": seed,
        "hash": str(settings),
        "config": json.loads(config.model_dump_json()),
        "parameters": 7,
        "environment": {"seconds": 1.0, "peak_memory_mib": 123456, "device": "cpu"},
        "metrics": {"valid": figures, "test": figures},
        "curve": {"epoch": []},
    }
    path = one._replace(seed=seed).file(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result | more))


def test_a_result_without_a_figure_that_another_experiment_has_of_the_row_is_not_done(tmp_path: Path) -> None:
    one = job("encoders", "conve-compgcn-corr")
    write(tmp_path, one)
    assert not lab.is_done(one, tmp_path)  # "categories" has figures by category
    write(tmp_path, one, by_category={"N-N": {}})
    assert lab.is_done(one, tmp_path)
    other = job("encoders", "conve-dgcn")
    write(tmp_path, other)
    assert lab.is_done(other, tmp_path)  # of which it has none


@pytest.mark.parametrize(
    ("settings", "done"),
    [
        ({"encoder.bias": True}, False),  # which no row names
        ({"training.lr": 0.5}, False),
        ({"encoder.norm": "mean"}, False),
        ({"training.seed": 3, "training.device": "cuda", "training.checkpoint_seconds": 1.0}, True),
        ({"training.precision": "tf32", "data.fingerprint": "x", "encoder.input": "learned"}, True),
    ],
)
def test_a_result_is_held_to_settings_the_row_does_not_name(tmp_path: Path, settings: Any, done: bool) -> None:
    one = job("encoders", "conve-dgcn")
    write(tmp_path, one, settings=settings.items())
    assert lab.is_done(one, tmp_path) == done


def test_results_of_other_settings_are_neither_averaged_nor_judged(tmp_path: Path) -> None:
    one, experiment = job("node-classification", "mutag-compgcn"), EXPERIMENTS["node-classification"]
    write(tmp_path, one, 0, {"training.lr": 0.5}.items())
    write(tmp_path, one, 1, {"training.lr": 0.4}.items())
    found = Board(tmp_path, EXPERIMENTS).ours(experiment, one.row, "accuracy")
    assert found == Figure(75.0, 0.0, 1, lab.OLDER)
    assert verdict(experiment, one.row, "accuracy", found) == "older settings"
    write(tmp_path, one, 2)
    assert Board(tmp_path, EXPERIMENTS).ours(experiment, one.row, "accuracy") == Figure(75.0, 0.0, 1)
    assert [one["seed"] for one in Board(tmp_path, EXPERIMENTS).results(experiment, one.row)] == [2]


def test_a_trial_run_is_no_result(tmp_path: Path) -> None:
    one, experiment = job("encoders", "conve-dgcn"), EXPERIMENTS["encoders"]
    for name in ("conve-dgcn", "conve-none"):
        write(tmp_path, job("encoders", name), smoke=True)
    board = Board(tmp_path, EXPERIMENTS)
    assert verdict(experiment, one.row, "mrr", board.ours(experiment, one.row, "mrr")) == "trial run"
    assert summary(board).rows == []
    comparison = Comparison(experiment="encoders", rows=("conve-dgcn",), than=("conve-none",))
    stated = Claim(text="", source="", kind="above", compare=(comparison,))
    assert claims_table(board, [stated]).rows[0][-1] == NOT_RUN
    write(tmp_path, one, 1)
    assert Board(tmp_path, EXPERIMENTS).real(experiment, one.row, "mrr") == Figure(0.25, 0.0, 1)


def test_parameters_are_those_that_score() -> None:
    for name, row in (("link-prediction", "fb15k-237-kbgan"), ("node-classification", "mutag-feat")):
        one = job(name, row)
        settings = lab.chosen(one.experiment, one.row)
        data = smoke_data(configure(Config(), settings))
        built = build_task(expand(recommended(settings, data, one.row.model), data), data, CPU)
        if isinstance(built, Fitted):
            assert parameters(built) == 0
            continue
        every, generator = (sum(w.numel() for w in m.parameters()) for m in (built.model, built.model.adversary))
        assert parameters(built) == every - generator < every


@pytest.mark.parametrize(
    ("name", "row", "keys"),
    [
        ("encoders", "conve-compgcn-corr", {"by_category", "by_relation", "calibration"}),
        ("node-classification", "mutag-compgcn", {"calibration"}),
        ("graph-classification", "ptc-compgcn", set()),
    ],
)
def test_a_result_holds_what_reports_need(tmp_path: Path, name: str, row: str, keys: set[str]) -> None:
    path = lab.reproduce(job(name, row), tmp_path, tmp_path / "runs", smoke=True, device="cpu")
    result = json.loads(path.read_text())
    always = {"experiment", "row", "seed", "hash", "config", "parameters", "environment", "metrics", "curve", "smoke"}
    assert set(result) == always | keys
    assert result["parameters"] > 0
    assert len(result["curve"]["epoch"]) == len(result["curve"]["loss"]) == result["config"]["training"]["epochs"]
    experiment = EXPERIMENTS[name]
    assert read(result, experiment.split, experiment.metrics[0]) is not None
    if "by_category" in keys:
        assert {"optimistic", "pessimistic", "head", "tail"} <= result["metrics"]["test"].keys()
        triples = sum(one["triples"] for one in result["by_relation"].values())
        assert triples == sum(one["triples"] for one in result["by_category"].values())
        assert read(result, "test", "category/N-N/head/mrr") == result["by_category"]["N-N"]["head"]["mrr"]


def test_a_curve_has_the_epochs_that_were_evaluated_and_the_mean_over_folds(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = [
        {"event": "epoch", "epoch": epoch, "loss": 1.0 * fold, "part": f"fold {fold} of 2", "valid": valid}
        for fold in (1, 2)
        for epoch, valid in ((1, {}), (2, {"accuracy": fold / 4, "macro_f1": 0.0}))
    ]
    inner = {"event": "epoch", "epoch": 2, "loss": 9.0, "part": "fold 1 of 2, inner 1 of 2", "valid": {"accuracy": 0.0}}
    lines = [json.dumps(event) for event in ({"event": "start"}, *events, inner)]
    path.write_text("\n".join([*lines, '{"event": "ep']))
    assert curve(path) == {"epoch": [2], "loss": [1.5], "accuracy": [0.375]}


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=40))
def test_calibration_bins_hold_every_answer_once(answers: list[tuple[float, bool]]) -> None:
    chances, right = (torch.tensor([one[k] for one in answers], dtype=torch.float64) for k in (0, 1))
    found = bins(chances, right)
    assert sum(one.answers for one in found) == len(answers)
    assert sum(one.answers * one.right for one in found) == pytest.approx(sum(right.tolist()))
    assert all(0 <= one.probability <= 1 for one in found)
    assert [one.probability for one in found] == sorted(one.probability for one in found)


# Reports


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (Figure(0.294, 0.0, 1), "reproduced"),
        (Figure(0.292, 0.0, 1), "reproduced"),
        (Figure(0.25, 0.0, 1), "below"),
        (Figure(0.32, 0.0, 1), "above"),
        (Figure(0.32, 0.03, 4), "undecided"),  # however much seeds differ, 9 % above is not the same
        (Figure(0.299, 0.006, 4), "reproduced"),
        (None, NOT_RUN),
    ],
)
def test_a_verdict_goes_by_the_distance_to_the_paper(ours: Figure | None, expected: str) -> None:
    experiment = EXPERIMENTS["encoders"]
    assert verdict(experiment, experiment.row("transe-none"), "mrr", ours) == expected


def test_a_row_that_was_not_run_says_why_where_that_is_known() -> None:
    experiment = EXPERIMENTS["node-classification"]
    row = experiment.row("am-compgcn")
    assert verdict(experiment, row, "accuracy", None) == f"not run: {row.missing}"
    assert row.missing


def test_a_lower_mean_rank_is_better() -> None:
    experiment = EXPERIMENTS["encoders"]
    assert verdict(experiment, experiment.row("transe-none"), "mr", Figure(200.0, 0.0, 1)) == "above"


def test_a_verdict_says_how_many_seeds_it_lacks() -> None:
    experiment = EXPERIMENTS["node-classification"]
    row = experiment.row("mutag-feat")
    assert verdict(experiment, row, "accuracy", Figure(77.9, 0.0, 1)) == "reproduced (1 of 10 seeds)"
    assert verdict(experiment, row, "accuracy", Figure(77.9, 0.0, 10)) == "reproduced"


def test_a_spread_says_what_it_is_over() -> None:
    experiment = EXPERIMENTS["graph-classification"]
    assert said(experiment, experiment.row("ptc-compgcn"), "accuracy") == "71.6 ± 12.0 (folds)"
    assert shown(Figure(71.6, 1.0, 2), "accuracy") == "71.6 ± 1.0 (seeds)"


def test_the_rule_stands_under_experiments_with_verdicts_alone() -> None:
    board = Board(ROOT / "nowhere", EXPERIMENTS)
    ruled = {name for name, one in EXPERIMENTS.items() if any(RULE in str(part) for part in page(board, one))}
    assert {"encoders", "node-classification"} <= ruled
    assert not {"categories", "graph-classification-nested", "bases", "datasets"} & ruled


def test_a_result_from_before_says_so_and_shows_no_memory(tmp_path: Path) -> None:
    one = job("encoders", "conve-dgcn")
    write(tmp_path, one)
    text = markdown(page(Board(tmp_path, EXPERIMENTS), one.experiment))
    assert "123,456" in text
    assert "| 45 |" in text  # epochs
    assert "recorded before" not in text
    write(tmp_path, one, parameters=None)
    text = markdown(page(Board(tmp_path, EXPERIMENTS), one.experiment))
    assert "123,456" not in text
    assert "1 of the 1 results were recorded before" in text


def test_rows_of_several_experiments_are_trained_in_the_order_of_their_names() -> None:
    found = [EXPERIMENTS[name] for name in ("encoders", "systems")]
    asked = ["systems/wn18rr-conve", "encoders/conve-none", "systems/fb15k-237-conve"]
    made = [f"{one.experiment.name}/{one.row.name}" for one in lab.jobs(found, asked, 1)]
    assert made == asked


def test_a_point_of_a_figure_has_its_change_and_the_spread_of_its_seeds(tmp_path: Path) -> None:
    one, base = job("bases", "b5"), job("encoders", "conve-compgcn-corr")
    write(tmp_path, base, metrics={"valid": {}, "test": {"mrr": 0.4}})
    for seed, figure in enumerate((0.3, 0.34)):
        write(tmp_path, one, seed, metrics={"valid": {}, "test": {"mrr": figure}})
    found = relative(Board(tmp_path, EXPERIMENTS), one.experiment, one.row)
    assert found == pytest.approx((0.32 / 0.4 - 1, 0.04 / 2**0.5 / 0.4))


def test_a_row_of_an_experiment_that_is_not_named_is_refused(command: Command) -> None:
    found = command("reproduce", "systems", "--row", "encoders/conve-none", "--smoke")
    assert found.code == 1
    assert "'encoders/conve-none' is of an experiment that is not among those named: systems" in found.err


def test_a_control_that_was_trained_otherwise_says_how(tmp_path: Path) -> None:
    one, control = job("encoders", "conve-compgcn-corr-bce"), job("encoders", "conve-none")
    write(tmp_path, one)
    write(tmp_path, control)
    write(tmp_path, job("encoders", "conve-dgcn"))
    made = [one for one in tables(Board(tmp_path, EXPERIMENTS), one.experiment) if "without encoder" in one.header]
    found = {line[0]: line[table.header.index("without encoder")] for table in made for line in table.rows}
    assert found[one.row.label] == ".250 (45 epochs, cross-entropy)"
    assert found["ConvE + D-GCN"] == ".250"


def test_the_seconds_of_a_row_trained_beside_others_say_so(tmp_path: Path) -> None:
    one = job("encoders", "conve-dgcn")
    write(tmp_path, one)
    path = one.file(tmp_path)
    result = json.loads(path.read_text())
    result["environment"]["beside"] = 4
    path.write_text(json.dumps(result))
    text = markdown(page(Board(tmp_path, EXPERIMENTS), one.experiment))
    assert f"({result['environment']['device']}, beside up to 4 more)" in text


def test_sizes_that_were_never_measured_are_not_ours() -> None:
    found = {line[0]: line for line in tables(Board(ROOT / "results", EXPERIMENTS), EXPERIMENTS["datasets"])[0].rows}
    assert found["AM"][2] == "1,666,764 / –"
    assert found["WN18RR"][2] == "40,943 / 40,943"


def claim(kind: str, pairs: list[tuple[float, float]], error: float | None = 0.0, **more: Any) -> tuple[Claim, Any]:
    values = {f"{side}{k}": Reached(pair[n], error) for k, pair in enumerate(pairs) for n, side in enumerate("ab")}
    made = [Comparison(experiment="e", rows=(f"a{k}",), than=(f"b{k}",)) for k in range(len(pairs))]
    stated = Claim(text="", source="", kind=kind, compare=tuple(made), **more)  # type: ignore[arg-type]
    return stated, lambda experiment, row, metric: values.get(row)


@pytest.mark.parametrize(
    ("kind", "pairs", "more", "holds"),
    [
        ("above", [(2, 1), (3, 2)], {}, True),
        ("above", [(2, 1), (2, 2)], {}, False),
        ("below", [(1, 2), (1, 3)], {}, True),
        ("below", [(1, 2), (3, 2)], {}, False),
        ("not-below", [(0.995, 1)], {}, True),
        ("not-below", [(0.9, 1)], {}, False),
        ("gain", [(1.05, 1)], {"gain": 0.06}, True),
        ("gain", [(1.03, 1)], {"gain": 0.06}, False),
        ("gain", [(1.12, 1)], {"gain": 0.06}, False),
        ("near", [(0.98, 1)], {}, True),
        ("near", [(0.9, 1)], {}, False),
        ("count", [(2, 1), (1, 1), (1, 2)], {"count": 2}, True),
        ("count", [(2, 1), (1, 2), (1, 2)], {"count": 2}, False),
    ],
)
def test_a_claim_holds_by_its_comparisons(kind: str, pairs: Any, more: Any, holds: bool) -> None:
    stated, value = claim(kind, pairs, **more)
    assert judge(stated, value, "missing").startswith("holds") == holds
    assert judge(stated, lambda *_: None, "missing") == "missing"


@pytest.mark.parametrize(
    ("kind", "pairs", "error", "more", "answer"),
    [
        ("above", [(1.005, 1)], None, {}, "undecided"),
        ("above", [(0.995, 1)], None, {}, "undecided"),
        ("above", [(0.98, 1)], None, {}, "*does not hold*"),
        ("above", [(1.02, 1)], None, {}, "holds"),
        ("above", [(1.02, 1)], 0.02, {}, "undecided"),
        ("above", [(1.005, 1)], 0.001, {}, "holds"),
        ("below", [(1.005, 1)], None, {}, "undecided"),
        ("near", [(1.035, 1)], None, {}, "undecided"),
        ("gain", [(1.005, 1)], None, {"gain": 0.06}, "*does not hold*"),
        ("gain", [(1.035, 1)], None, {"gain": 0.06}, "undecided"),
        ("gain", [(1.005, 1)], None, {"gain": 0.005}, "undecided"),
        ("gain", [(1.12, 1)], None, {"gain": 0.06}, "*more than claimed*"),
        ("count", [(1.005, 1), (2, 1)], None, {"count": 2}, "undecided"),
        ("count", [(1.005, 1), (2, 1)], None, {"count": 1}, "holds"),
        ("above", [(0, 0)], 0.0, {}, "*does not hold*"),
        ("above", [(1, 0)], 0.0, {}, "holds"),
    ],
)
def test_a_claim_is_undecided_within_what_seeds_differ_by(
    kind: str, pairs: Any, error: float | None, more: Any, answer: str
) -> None:
    stated, value = claim(kind, pairs, error, **more)
    assert judge(stated, value, "missing").partition(":")[0] == answer


def test_of_several_rows_the_one_of_the_best_validation_figure_is_compared() -> None:
    figures = {"a": Reached(0.5, 0.0, 0.3), "b": Reached(0.4, 0.0, 0.4), "c": Reached(0.2, 0.0)}
    compare = Comparison(experiment="e", rows=("a", "b"), than=("c", "not run"))
    stated = Claim(text="", source="", kind="above", compare=(compare,))
    found = judge(stated, lambda experiment, row, metric: figures.get(row), "missing")
    assert found == "holds: +100.0 % (b by validation, against 1 of 2)"


def test_every_claim_compares_rows_there_are_and_the_papers_own_figures_decide_it() -> None:
    for stated in CLAIMS:
        for one in stated.compare:
            experiment = EXPERIMENTS[one.experiment]
            assert one.metric in experiment.metrics
            for name in one.rows:
                assert experiment.kind == "figure" or one.metric in experiment.row(name).paper, (stated.text, name)
            assert all(experiment.row(name) for name in one.than)
    for stated, data in zip(CLAIMS[:2], ("fb15k-237", "wn18rr"), strict=True):  # against all, even without a figure
        every = [row.name for row in EXPERIMENTS["link-prediction"].rows if row.name.startswith(data)]
        rows = [name for name in every if not name.endswith("-all")]  # another training of the same model
        assert all(sorted((*one.rows, *one.than)) == sorted(rows) for one in stated.compare)
    board = Board(ROOT / "results", EXPERIMENTS)
    text = whole(board, ROOT / "docs")
    claim, where = "D-, R- and W-GCN make TransE worse", "`sec:results_gcn_encoder`"
    assert f"{claim} | {where} | *does not hold*: transe-dgcn +1.7 %" in text


def test_the_page_of_results_is_that_of_the_committed_files() -> None:
    board = Board(ROOT / "results", lab.experiments())
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == whole(board, ROOT / "docs")
    assert len(summary(board).rows) >= 9


def test_a_peak_of_memory_that_is_not_known_is_left_out(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["systems"]
    for peak, expected in ((None, MISSING), (1208, "1,208")):
        board = Board(tmp_path, EXPERIMENTS)
        result = json.loads((ROOT / "results/systems/fb15k-237-hyper-0.json").read_text(encoding="utf-8"))
        result["environment"]["peak_memory_mib"] = peak
        (tmp_path / "systems").mkdir(exist_ok=True)
        (tmp_path / "systems/fb15k-237-hyper-0.json").write_text(json.dumps(result), encoding="utf-8")
        assert summary(board).rows[0][-2] == expected
        assert summary(board).rows[0][2] == experiment.row("fb15k-237-hyper").label


def test_the_table_of_methods_is_the_papers() -> None:
    seen, _ = tables(Board(ROOT / "results", EXPERIMENTS), EXPERIMENTS["methods"])
    found = {line[0].strip("`"): ("".join("x" if cell else "-" for cell in line[2:6]), line[6]) for line in seen.rows}
    paper = {"gcn": "x---", "dgcn": "xx--", "wgcn": "x-x-", "rgcn-basis": "xxx-", "compgcn": "xxxx"}
    assert {name: found[name][0] for name in paper} == paper
    assert found["compgcn"][1] == "O(K d² + B d + B |R|)"
    assert found["vrgcn"] == ("xxxx", "O(K d² + |R| d)")  # messages by role, and no bases
    assert "\\|R\\|" in markdown([seen])
    assert "<code>gcn</code>" in page_html([seen], "x")


# The commands


def test_a_smoke_run_of_everything_ends_in_reports_of_everything(command: Command, tmp_path: Path) -> None:
    made = command("reproduce", "--all", "--smoke", "--seeds", 1, "--device", "cpu", "--json")
    assert made.code == 0, made
    files = json.loads(made.out)
    assert len(files) == len(set(files)) == len(lab.jobs(EXPERIMENTS.values(), seeds=1))
    words = ("report", "--all", "--results", "runs/smoke/results", "--page", "page.md")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compgcn.experiment.train", None)  # nothing is trained for a report
        report = command(*words, "--json")
    assert report.code == 0, report
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert NOT_RUN not in page.split("\n## ", 2)[2]  # after the claims: not every category occurs in a small graph
    assert page.count("trial runs of small models") == sum(e.kind != "generated" for e in EXPERIMENTS.values())
    for name in EXPERIMENTS:
        assert (tmp_path / "runs/smoke/results" / name / "report.html").is_file()
    again = command("reproduce", "--smoke", "--seeds", 1, "rgcn")
    assert "10 rows and seeds, 10 of them done already" in again.out
    assert "compgcn report rgcn --results runs/smoke/results" in again.out


def test_rows_are_trained_side_by_side_into_any_folder(command: Command) -> None:
    rows = ("--row", "encoders/distmult-none", "--row", "systems/fb15k-237-transe")
    made = command("reproduce", *rows, "--seeds", 1, "--smoke", "--device", "cpu", "--to", "out", "--jobs", 2)
    assert made.code == 0, made
    files = sorted(Path("out").rglob("*.json"))
    assert files == [Path("out/encoders/distmult-none-0.json"), Path("out/systems/fb15k-237-transe-0.json")]
    assert all(json.loads(file.read_text())["environment"]["beside"] == 1 for file in files)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_row_that_fails_does_not_keep_the_others_from_being_trained(command: Command, jobs: int) -> None:
    rows = [
        f"[[rows]]\nname = '{name}'\nlabel = ''\nsource = ''\nnote = 'x'\n"
        f"settings = {{data.source = 'world', decoder.name = '{decoder}', encoder.name = 'none'}}\n"
        for name, decoder in (("bad", "nonsense"), ("good", "distmult"))
    ]
    Path("mine.toml").write_text("title = 'x'\nsource = 'y'\nmetrics = ['mrr']\n" + "".join(rows))
    found = command("reproduce", "mine.toml", "--smoke", "--device", "cpu", "--to", "out", "--jobs", jobs)
    assert found.code == 1, found
    assert "1 of 2 rows could not be trained; the first is mine/bad-0: unknown decoder 'nonsense'" in found.err
    assert [path.name for path in Path("out/mine").iterdir()] == ["good-0.json"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_row_that_dies_is_named_and_the_others_are_trained(
    command: Command, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    rows = [
        f"[[rows]]\nname = '{name}'\nlabel = ''\nsource = ''\nnote = 'x'\n"
        f"settings = {{data.source = 'world', decoder.name = 'distmult', encoder.name = 'none', epochs = {epochs}}}\n"
        for name, epochs in (("bad", 66), ("good", 1), ("better", 2))
    ]
    Path("mine.toml").write_text("title = 'x'\nsource = 'y'\nmetrics = ['mrr']\n" + "".join(rows))
    if jobs == 1:
        train = lab.train

        def out_of_memory(config: Config, *rest: Any) -> Any:
            if "bad" in str(rest[1]):
                raise torch.OutOfMemoryError("no memory\nis left")
            return train(config, *rest)

        monkeypatch.setattr(lab, "train", out_of_memory)
        expected = "mine/bad-0: OutOfMemoryError: no memory"
    else:
        monkeypatch.setattr("compgcn.cli.experiment._one", killed)
        expected = "mine/bad-0: its process ended with code -9"
    found = command("reproduce", "mine.toml", "--smoke", "--device", "cpu", "--to", "out", "--jobs", jobs)
    assert found.code == 1, found
    assert f"1 of 3 rows could not be trained; the first is {expected}" in found.err
    assert sorted(path.name for path in Path("out/mine").iterdir()) == ["better-0.json", "good-0.json"]


_one = cli._one  # as it is before a test puts another in its place


def killed(job: lab.Job, *rest: Any) -> None:
    """A process that is killed if its row is a bad one."""
    if job.row.name == "bad":
        os.kill(os.getpid(), signal.SIGKILL)
    _one(job, *rest)


def test_what_cannot_be_reproduced_is_one_sentence(command: Command) -> None:
    refused(command("reproduce", "encoder"), "did you mean 'encoders'?")
    refused(command("reproduce", "encoders", "--row", "distmult-nnone"), "distmult-none")
    refused(command("reproduce", "encoders", "--row", "9"), *(row.name for row in EXPERIMENTS["encoders"].rows))
    for words in ((), ("encoders", "--all")):
        refused(command("reproduce", *words), "--all", *EXPERIMENTS)
    quoted = "title = 'x'\nsource = 'y'\nmetrics = ['mrr']\n[[rows]]\nname = 'a'\nlabel = 'A'\nsource = 'elsewhere'\n"
    Path("mine.toml").write_text(quoted + "paper = {mrr = 0.3}\n")
    refused(command("reproduce", "mine.toml", "--row", "a"), "quoted from elsewhere")
    refused(command("report", "mine.toml"), "no folder of results 'results'", "--results")
    assert not Path("results").exists()
    Path("results").mkdir()
    assert "| A | .300 | – | – | quoted |" in command("report", "mine.toml", "--results", "results").out
    refused(command("report"), "--all")
