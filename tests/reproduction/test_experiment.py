"""Every experiment file is sound and trains; a result is made once and counts for its settings alone."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from compgcn.baselines.fitted import Fitted
from compgcn.config import Config, configure
from compgcn.errors import InputError
from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.nn.graph import RelationalGraph
from compgcn.run.resolve import expand, recommended
from compgcn.tasks.classification import Classification
from compgcn.tasks.facts import Answers
from compgcn.tasks.ranking import Ranks, SideRanks
from compgcn.train.loop import Interrupted
from laboratory import EXPERIMENTS, job, write
from reproduction import training
from reproduction.experiment import Experiment, Row, at_home, chosen, control_of, jobs_of, read_experiment
from reproduction.tables import Board, Figure, read
from reproduction.training import VARIANTS, expected, is_done, train_row, trial_data, trial_settings
from toy import Command, build_task, refused

CPU = torch.device("cpu")
EVERY = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
LABELS = (  # the paper's tables and figures
    *("tbl:link_pred", "tbl:link_pred_results", "tbl:results_rel_cat", "tbl:nodeclass_results", "table:rgcn_data"),
    *("tbl:gcn_model_comp", "tbl:reduction", "fig:basis_plot", "fig:scale_plot", "fig:rgcn_compare"),
)
MINE = "title = 'x'\nsource = 'y'\nmetrics = ['mrr']\n"


def test_every_table_and_figure_of_the_paper_is_an_experiment() -> None:
    named = " ".join(experiment.source for experiment in EXPERIMENTS.values())
    assert [label for label in LABELS if label not in named] == []


@EVERY
def test_every_row_has_its_source_and_the_papers_numbers_or_a_note(experiment: Experiment) -> None:
    assert len({row.name for row in experiment.rows}) == len(experiment.rows)
    for row in experiment.rows:
        assert row.source
        assert row.paper or row.note or experiment.split == "valid", row.name
        assert set(row.paper) <= set(experiment.metrics), row.name
        assert set(row.also) | set(row.spread) <= set(row.paper), row.name
        control = control_of(experiment, row)
        if control is not None and experiment.kind != "differences":
            theirs, ours = (expected(*at_home(*one)) for one in (control, (experiment, row)))
            assert theirs.encoder.name == "none"
            assert ours.decoder.name in (theirs.decoder.name, "none")  # none: the encoder scores by itself
    if experiment.kind == "figure":
        assert all(row.x is not None for row in experiment.rows)
        assert experiment.reference in [name for row in experiment.rows for name in (row.name, row.series)]


def test_beside_every_encoder_of_links_stands_the_same_decoder_without_one() -> None:
    for experiment in (
        EXPERIMENTS[name] for name in ("link-prediction", "systems", "encoders", "encoders-bce", "encoders-long")
    ):
        for row in experiment.rows:
            bare = expected(*at_home(experiment, row)).encoder.name == "none"
            assert bare == (control_of(experiment, row) is None), row.name


@EVERY
def test_every_row_builds_and_takes_a_step(experiment: Experiment) -> None:
    for one in jobs_of([experiment], seeds=1):
        settings = chosen(one.experiment, one.row)
        data = trial_data(configure(Config(), settings))
        config = expand(recommended(settings, data, one.row.model), data)
        assert configure(config, settings) == config, one.name  # or its result would not match the row
        config = expand(configure(config, trial_settings(config)), data)
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


def test_rows_in_two_tables_have_the_same_numbers_there() -> None:
    for experiment in EXPERIMENTS.values():
        for row in experiment.rows:
            _, home = at_home(experiment, row)
            shared = (row.paper.keys() & home.paper.keys()) - row.also.keys()
            quoted = row.name == "fb15k-237-rgcn"  # another R-GCN than the authors' own
            assert quoted or all(row.paper[metric] == home.paper[metric] for metric in shared), row.name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("title = 'x'\nsource = 'y'\ncolour = 1", "colour"),
        (
            f"{MINE}[[rows]]\nname = 'a'\nlabel = ''\nsource = ''\nsettings = {{lrr = 1}}",
            "row 'a': unknown option 'lrr'",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_experiment(path)


# Results


def test_a_row_is_trained_once_and_resumes_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, steps, seen = job(), [], list[Any]()
    train = training.train
    monkeypatch.setattr(training, "train", lambda *given: train(*given[:3], seen.append, given[4]))

    def interrupted() -> bool:
        steps.append(1)
        return len(steps) == 2

    with pytest.raises(Interrupted):
        train_row(one, tmp_path, tmp_path / "runs", smoke=True, device="cpu", interrupted=interrupted)
    assert not is_done(one, tmp_path, smoke=True)
    seen.clear()
    path = train_row(one, tmp_path, tmp_path / "runs", smoke=True, device="cpu")
    assert min(event["step"] for event in seen if "step" in event) == 3
    seen.clear()
    assert train_row(one, tmp_path, tmp_path / "other", smoke=True) == path
    assert seen == []
    assert not is_done(one, tmp_path), "a small model on another graph is no result of the row"
    write(tmp_path, one)
    assert is_done(one, tmp_path)
    assert not is_done(one, tmp_path, smoke=True)


@pytest.mark.parametrize(
    ("settings", "done"),
    [
        ({"encoder.bias": True}, False),  # a default that no row names
        ({"training.lr": 0.5}, False),
        ({"training.seed": 3, "training.device": "cuda", "training.checkpoint_seconds": 1.0}, True),
        ({"training.precision": "tf32", "fingerprint": "x", "encoder.input": "learned"}, True),
    ],
)
def test_a_result_counts_only_with_the_settings_of_its_row(tmp_path: Path, settings: Any, done: bool) -> None:
    one = job("encoders", "conve-dgcn")
    write(tmp_path, one, settings=settings.items())
    assert is_done(one, tmp_path) == done
    found = Board(tmp_path, EXPERIMENTS).ours(one.experiment, one.row, "mrr")
    assert found == (Figure(0.25, 0.0, 1) if done else None)


@pytest.mark.parametrize(
    ("name", "row", "keys"),
    [
        ("encoders", "conve-compgcn-corr", {"by_category", "by_relation", "calibration"}),
        ("node-classification", "mutag-compgcn-sub", {"calibration"}),
        ("graph-classification", "ptc-compgcn-sub", set()),
    ],
)
def test_a_result_holds_what_reports_need(tmp_path: Path, name: str, row: str, keys: set[str]) -> None:
    path = train_row(job(name, row), tmp_path, tmp_path / "runs", smoke=True, device="cpu")
    result = json.loads(path.read_text())
    always = {"experiment", "row", "seed", "config", "parameters", "environment", "metrics", "curve", "smoke"}
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


def test_a_model_of_any_graph_is_judged_on_the_other_graph(tmp_path: Path) -> None:
    path = train_row(job("inductive", "fb15k-237-v1"), tmp_path, tmp_path / "runs", smoke=True, device="cpu")
    found = json.loads(path.read_text())["metrics"]
    assert found["same graph"]["mrr"] == pytest.approx(found["test"]["mrr"], abs=1e-6)  # a trial has one graph
    assert found["test"]["hits@10"] <= found["test"][training.AMONG] <= 1


@pytest.mark.parametrize("size", [6, 12])
def test_hits_among_drawn_candidates_are_those_of_all_draws(size: int) -> None:
    n, top = 12, 3  # entities, of which one answers
    triples = torch.tensor([[0, 0, 5], [1, 0, 6]])
    known = Answers.from_triples(triples, 1)
    better = {"tail": (2, 7), "head": (0, 4)}
    ranks = {
        side: Ranks.from_counts(torch.tensor(counts), torch.tensor([0, 1])) for side, counts in better.items()
    }  # the second of each is tied with one
    drawn = list(combinations(range(n - 1), size - 1))  # negatives by their order

    def hits(above: int) -> float:
        return sum(sum(one < above for one in draw) < top for draw in drawn) / len(drawn)

    expected = [hits(a) for a, _ in better.values()] + [(hits(b) + hits(b + 1)) / 2 for _, b in better.values()]
    found = training.among(SideRanks(**ranks), triples, known, n, size, top)
    assert found == pytest.approx(sum(expected) / 4)


# Variants of the conditional model


def graph() -> RelationalGraph:
    edges = torch.tensor([[0, 0, 1], [1, 1, 2], [2, 0, 3], [0, 1, 3]])
    return RelationalGraph.from_triples(edges, num_nodes=4, num_relations=2)


def test_rows_may_ask_for_every_variant() -> None:
    assert set(get_args(Row.model_fields["variant"].annotation)) == set(VARIANTS)


def test_degrees_kept_hides_an_edge_from_the_sums_alone() -> None:
    model, keep = ConditionalCompGCN(2, 4, 2), torch.tensor([1.0, 0.0, 1.0, 1.0])
    whole, hidden = model.view(graph()), model.view(graph(), keep)
    with VARIANTS["degrees kept"]:
        seen = model.view(graph(), keep)
    assert torch.equal(seen.weight, hidden.weight)
    assert torch.equal(seen.degree, whole.degree)
    assert torch.equal(seen.scale, whole.scale)
    assert not torch.equal(hidden.degree, whole.degree)


def test_free_relations_are_the_same_for_every_query_and_only_within_the_variant() -> None:
    with VARIANTS["free relations"]:
        layer = ConditionalCompGCN(2, 4, 2).layers[0]
        free = layer.relation_vectors(torch.randn(3, 4))
    assert torch.equal(free, layer.relation_bias.expand(-1, 3, -1))
    assert not torch.equal(layer.relation_vectors(torch.randn(3, 4)), free)


# Commands


def test_every_kind_of_experiment_trains_on_small_data_and_only_once(reproduction: Command) -> None:
    rows = ("distmult-compgcn-mult", "mutag-compgcn-sub", "ptc-compgcn-sub", "ptc-pachysan", "b5")
    names = ("encoders", "node-classification", "graph-classification", "bases")
    words = ("train", *names, *(word for row in rows for word in ("--row", row)), "--smoke", "--seeds", 1)
    made = reproduction(*words, "--device", "cpu")
    assert made.code == 0, made
    files = sorted(Path("runs/smoke/results").rglob("*.json"))
    assert len(files) == len(rows)
    assert all(json.loads(file.read_text())["smoke"] for file in files)
    assert f"{len(rows)} rows and seeds, {len(rows)} of them done already" in reproduction(*words).out


@pytest.mark.parametrize("number", [1, 2])
def test_a_row_that_fails_does_not_stop_the_others(reproduction: Command, number: int) -> None:
    rows = [
        f"[[rows]]\nname = '{name}'\nlabel = ''\nsource = ''\nnote = 'x'\n"
        f"settings = {{data.source = 'world', decoder.name = '{decoder}', encoder.name = 'none'}}\n"
        for name, decoder in (("bad", "nonsense"), ("good", "distmult"))
    ]
    Path("mine.toml").write_text(MINE + "".join(rows))
    words = ("train", "mine.toml", "--smoke", "--device", "cpu", "--results", "out", "--jobs", number)
    found = reproduction(*words)
    assert found.code == 1, found
    assert "1 of 2 rows failed; the first is mine/bad-0: unknown decoder 'nonsense'" in found.err
    (file,) = Path("out/mine").iterdir()
    assert file.name == "good-0.json"
    assert json.loads(file.read_text())["environment"].get("beside", 0) == number - 1


def test_bad_names_are_refused_in_one_sentence(reproduction: Command) -> None:
    assert all(name in reproduction("list").out for name in EXPERIMENTS)
    refused(reproduction("train", "encoder"), "did you mean 'encoders'")
    refused(reproduction("train", "encoders", "--row", "distmult-nnone"), "distmult-none")
    refused(reproduction("train"), "--all", *EXPERIMENTS)
    refused(reproduction("train", "encoders", "--all"), "--all")
    Path("mine.toml").write_text(
        f"{MINE}[[rows]]\nname = 'a'\nlabel = 'A'\nsource = 'elsewhere'\npaper = {{mrr = 0.3}}\n"
    )
    refused(reproduction("train", "mine.toml", "--row", "a"), "quoted from elsewhere")
    refused(reproduction("report", "mine.toml", "--results", "nowhere"), "no folder of results 'nowhere'")
    Path("results").mkdir()
    assert "written: results/mine/report.md" in reproduction("report", "mine.toml", "--results", "results").out
    assert "| A | .300 | – | – | quoted |" in Path("results/mine/report.md").read_text()
    refused(reproduction("report"), "--all")
    refused(reproduction("measure", "unsen"), "did you mean 'unseen'")
