"""Experiments: every file of them is sound and runs, results are made once, and reports need nothing but results."""

from __future__ import annotations

import json
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
from compgcn.claims import Claim, Comparison, judge, read_claims
from compgcn.config import Config, configure
from compgcn.pages import whole
from compgcn.report import MISSING, NOT_RUN, Board, Figure, markdown, page_html, read, summary, tables, verdict
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
        if row.control is not None:
            home, control = lab.at_home(experiment, experiment.row(row.control))
            assert lab.chosen(home, control)["encoder.name"] == "none"
            assert (
                (lab.chosen(home, control)["decoder.name"]) == lab.chosen(*lab.at_home(experiment, row))["decoder.name"]
            )
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
    assert not lab.is_done(one, tmp_path)
    seen: list[Any] = []
    path = lab.reproduce(one, tmp_path, tmp_path / "runs", smoke=True, device="cpu", notify=seen.append)
    assert min(event["step"] for event in seen if "step" in event) == 3
    seen.clear()
    assert lab.reproduce(one, tmp_path, tmp_path / "other", smoke=True, notify=seen.append) == path
    assert seen == []
    result = json.loads(path.read_text()) | {"smoke": False}
    path.write_text(json.dumps(result))
    assert not lab.is_done(one, tmp_path)  # a small model on another graph is no result of the row
    wanted = lab.chosen(one.experiment, one.row)
    result["config"] = json.loads(configure(Config(), wanted).model_dump_json())
    path.write_text(json.dumps(result))
    assert lab.is_done(one, tmp_path)


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
    assert lab.curve(path) == {"epoch": [2], "loss": [1.5], "accuracy": [0.375]}


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
        (Figure(0.32, 0.03, 4), "reproduced"),
        (None, NOT_RUN),
    ],
)
def test_a_verdict_goes_by_the_distance_to_the_paper(ours: Figure | None, expected: str) -> None:
    experiment = EXPERIMENTS["encoders"]
    assert verdict(experiment, experiment.row("transe-none"), "mrr", ours) == expected


def test_a_lower_mean_rank_is_better() -> None:
    experiment = EXPERIMENTS["encoders"]
    assert verdict(experiment, experiment.row("transe-none"), "mr", Figure(200.0, 0.0, 1)) == "above"


def claim(kind: str, pairs: list[tuple[float, float]], **more: Any) -> tuple[Claim, Any]:
    values = {f"{side}{k}": pair[n] for k, pair in enumerate(pairs) for n, side in enumerate("ab")}
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
        ("gain", [(1.04, 1)], {"gain": 0.06}, False),
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


def test_every_claim_compares_rows_there_are_and_the_papers_own_figures_decide_it() -> None:
    for stated in CLAIMS:
        for one in stated.compare:
            experiment = EXPERIMENTS[one.experiment]
            assert one.metric in experiment.metrics
            for name in (*one.rows, *one.than):
                assert experiment.kind == "figure" or one.metric in experiment.row(name).paper, (stated.text, name)
    board = Board(ROOT / "results", EXPERIMENTS)
    text = whole(board, ROOT / "docs")
    assert "D-, R- and W-GCN make TransE worse | `sec:results_gcn_encoder` | *does not hold*: +1.7 %" in text


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


def test_rows_are_trained_side_by_side_into_any_folder(command: Command, tmp_path: Path) -> None:
    rows = ("--row", "distmult-none", "--row", "transe-none")
    made = command("reproduce", "encoders", *rows, "--smoke", "--device", "cpu", "--to", "out", "--jobs", 2)
    assert made.code == 0, made
    assert {path.name for path in (tmp_path / "out/encoders").iterdir()} == {
        "distmult-none-0.json",
        "transe-none-0.json",
    }


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
