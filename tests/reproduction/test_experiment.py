"""Experiments: every file of them is sound and runs, results are made once, and reports need nothing but results."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reproduction.claims import Claim, Comparison
from reproduction.experiment import curve, parameters, smoke_data, smoke_settings
from reproduction.pages import claims_table
from reproduction.tables import NOT_RUN, Board, Figure, read, summary, verdict

from compgcn.answers.calibrate import bins
from compgcn.baselines.fitted import Fitted
from compgcn.config import Config, configure
from compgcn.run.build import build_task
from compgcn.run.resolve import expand, recommended
from compgcn.tasks.classification import Classification
from compgcn.train.loop import Interrupted
from laboratory import EXPERIMENTS, job, write
from reproduction import commands as cli
from reproduction import experiment as lab
from toy import Command, refused

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
        control = lab.control_of(experiment, row)
        if control is not None and experiment.kind != "differences":
            theirs, ours = (lab.expected(*lab.at_home(*one)) for one in (control, (experiment, row)))
            assert theirs.encoder.name == "none"
            assert theirs.decoder.name == ours.decoder.name
    if experiment.kind == "differences":
        assert all(not row.paper and experiment.row(row.control) for row in experiment.rows if row.control is not None)
        for home, _, name in (one.partition("/") for one in experiment.seeds_of):
            assert experiment.metrics[0] in EXPERIMENTS[home].metrics
            assert EXPERIMENTS[home].row(name)
    if experiment.kind == "figure":
        assert all(row.x is not None for row in experiment.rows)
        names = [row.name for row in experiment.rows] + [row.series for row in experiment.rows]
        assert experiment.reference in names


def test_beside_every_encoder_of_links_stands_the_same_decoder_without_one() -> None:
    """In the tables of models; figures and categories of relations are of encoders alone, or have it as a column."""
    tables = [EXPERIMENTS[name] for name in ("link-prediction", "systems", "encoders")]
    for experiment in tables:
        for row in experiment.rows:
            bare = lab.expected(*lab.at_home(experiment, row)).encoder.name == "none"
            assert bare == (lab.control_of(experiment, row) is None), row.name


@EVERY
def test_every_row_that_is_trained_builds_and_takes_a_step(experiment: lab.Experiment) -> None:
    for one in lab.jobs([experiment], seeds=1):
        settings = lab.chosen(one.experiment, one.row)
        data = smoke_data(configure(Config(), settings))
        config = expand(recommended(settings, data, one.row.model), data)
        assert configure(config, settings) == config, one.name  # so that its result is known for the row's
        config = expand(configure(config, smoke_settings(config)), data)
        built = build_task(config, data, CPU)
        if isinstance(built, Fitted):
            assert torch.isfinite(built.fitted_to(torch.arange(8), torch.arange(8, 12))).all()
            continue
        if config.task != "link-prediction":
            built = Classification(built, torch.arange(4), torch.arange(4, 8), config.training)
        loss = built.loss(built.examples(0, 0))
        loss.backward()
        assert torch.isfinite(loss), one.name
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


def test_rows_of_several_experiments_are_trained_in_the_order_of_their_names() -> None:
    found = [EXPERIMENTS[name] for name in ("encoders", "systems")]
    asked = ["systems/wn18rr-conve", "encoders/conve-none", "systems/fb15k-237-conve"]
    made = [f"{one.experiment.name}/{one.row.name}" for one in lab.jobs(found, asked, 1)]
    assert made == asked


def test_a_row_of_an_experiment_that_is_not_named_is_refused(command: Command) -> None:
    found = command("reproduce", "systems", "--row", "encoders/conve-none", "--smoke")
    assert found.code == 1
    assert "'encoders/conve-none' is of an experiment that is not among those named: systems" in found.err


# The commands


def test_a_smoke_run_of_everything_ends_in_reports_of_everything(command: Command, tmp_path: Path) -> None:
    made = command("reproduce", "--all", "--smoke", "--seeds", 1, "--device", "cpu", "--json")
    assert made.code == 0, made
    files = json.loads(made.out)
    assert len(files) == len(set(files)) == len(lab.jobs(EXPERIMENTS.values(), seeds=1))
    words = ("report", "--all", "--results", "runs/smoke/results", "--page", "page.md")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reproduction.experiment.train", None)  # nothing is trained for a report
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


def test_the_table_is_shown_at_the_end_of_an_epoch_but_once_in_a_second() -> None:
    now, shown = 1000.0, list[float]()
    notify = cli._now_and_then(lambda job: shown.append(now), lambda: now)
    for kind, seconds in (("step", 0.0), ("epoch", 0.0), ("epoch", 0.75), ("epoch", 0.5), ("epoch", 1.0)):
        now += seconds
        notify({"event": kind})
    assert shown == [1000.0, 1001.25]


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of rows are forks of one that has imported the package, without the seconds each would spend on it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["compgcn.run", "compgcn.kernels.numba", "torch._dynamo"])
    monkeypatch.setattr("reproduction.commands.multiprocessing", SimpleNamespace(get_context=lambda _: context))


@pytest.mark.usefixtures("forked")
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


@pytest.mark.usefixtures("forked")
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
        monkeypatch.setattr("reproduction.commands._one", killed)
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
