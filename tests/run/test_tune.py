"""Searches for settings: trials never see test, studies resume and are shared, nested runs choose within folds."""

from __future__ import annotations

import json
import platform
import re
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toy
from clock import HANGS
from compgcn.cli.tune import _workers
from compgcn.config import Config, Range, candidates, parse_space, read_config
from compgcn.data import GraphCollection, KnowledgeGraph
from compgcn.errors import InputError
from compgcn.run import tune
from compgcn.run.protocols import Classification
from compgcn.run.resolve import unused_settings
from compgcn.run.run import open_run
from compgcn.train.loop import Interrupted
from toy import CLASSES, SMALL, Command, classify, graph, labelled, molecules, refused, write_tsv

optuna = pytest.importorskip("optuna")
RATES: dict[str, Any] = {"training.lr": (0.001, 0.01, 0.1)}


def plan(folder: Path, data: Any = None, space: Any = None, **settings: Any) -> tune.Plan:
    small = SMALL if data is None or getattr(data, "labels", 0) is None else CLASSES | {"epochs": 4}
    given = {"data.source": "toy", **small, **settings}
    return tune.plan(given, graph() if data is None else data, RATES if space is None else space, folder)


def searched(made: tune.Plan, trials: int = 3, **how: Any) -> Any:
    study = tune.open_study(made, None, trials)
    tune.work(made, study, trials, **how)
    return study


# Trials and test


@pytest.mark.parametrize(
    ("data", "settings", "goal"),
    [
        (graph(), {}, "mrr"),
        (labelled(), {}, "log_likelihood"),
        (labelled(), {"protocol": "holdout"}, "log_likelihood"),
        (molecules(), {}, "accuracy"),
    ],
    ids=["links", "nodes", "held-out nodes", "graphs"],
)
def test_a_study_compares_by_the_metric_that_chooses_epochs_and_neither_depends_on_test_nor_keeps_any_of_it(
    tmp_path: Path, data: KnowledgeGraph | GraphCollection, settings: Any, goal: str
) -> None:
    made = plan(tmp_path / "a", data, **settings)
    study = searched(made)
    metrics = [json.loads(path.read_text()) for path in (tmp_path / "a").rglob("metrics.json")]
    assert all(one["test"] == {} for one in metrics)
    assert made.goal == goal
    best, config = tune.result(made, study)["best"], read_config(tune.write_best(made, study))
    assert best["value"] == study.trials[best["trial"]].value == max(one["valid"][goal] for one in metrics)
    assert (config.training.lr, config.fingerprint) == (best["settings"]["training.lr"], None)
    if isinstance(data, KnowledgeGraph):
        labels = data.labels and replace(data.labels, test=data.labels.test[:1])
        other = searched(plan(tmp_path / "b", replace(data, test=data.test[:1], labels=labels), **settings))
        assert tune.history(other) == tune.history(study)
    assert len(metrics) == len(tune.finished(study)) == 3


@pytest.mark.parametrize(
    ("file", "searched", "options", "best"),
    [
        ("", "", ["--set", "epochs=2", "--set", "patience=1"], 200),
        ("epochs = 5", "", ["--epochs", 2], 5),
        ("epochs = 2", "", [], 2),
        ("", "training.epochs = [2]", ["--epochs", 3], 2),
    ],
)
def test_the_budget_of_a_trial_is_not_that_of_the_best_settings(
    command: Command, tmp_path: Path, file: str, searched: str, options: list[object], best: int
) -> None:
    source = write_tsv(tmp_path / "toy.tsv", graph())
    (tmp_path / "mine.toml").write_text(
        f'[data]\nsource = "{source}"\n[training]\ndevice = "cpu"\n{file}\n'
        f"[search]\nencoder.dims = [[4, 4]]\n{searched}\n"
    )
    done = command("tune", "mine.toml", "--trials", 1, "--study-dir", "study", *options)
    assert done.code == 0, done
    (config,) = (read_config(path) for path in Path("study/trials").glob("*/config.toml"))
    written = read_config(Path("study/best.toml")).training
    assert config.training.epochs == 2
    assert written.epochs == best
    assert written.patience > 1
    assert ("trials had 2 epochs each" in done.out) == (best != 2)


@pytest.mark.parametrize(
    ("data", "without"), [(graph(), ()), (labelled(), ("training.batch_size",)), (molecules(), ())]
)
def test_the_default_is_the_papers_grid_as_far_as_the_task_has_it(tmp_path: Path, data: Any, without: Any) -> None:
    given = {"data.source": "toy", "encoder.dims": (8, 16)}
    space = tune.plan(given, data, None, tmp_path).space
    assert set(space) == {"encoder.dims", *tune.PAPER} - set(without)
    assert space["encoder.dims"] == ((8, 16), (8, 16, 16), (8, 16, 16, 16))
    assert all(set(tune.PAPER[path]) <= set(space[path]) for path in tune.PAPER if path in space)


def test_a_model_conditioned_on_the_query_has_a_grid_of_settings_it_uses(tmp_path: Path) -> None:
    made = tune.plan({"data.source": "toy", **SMALL, **toy.CONDITIONAL}, graph(), None, tmp_path)
    assert set(made.space) == {"encoder.dims", *tune.CONDITIONAL_GRID}
    config = made.config()
    assert unused_settings(config, made.space) == []
    assert all(config.encoder.dims[:1] * len(dims) == dims for dims in made.space["encoder.dims"])
    assert config.encoder.dims in made.space["encoder.dims"]


# Stopping, resuming, sharing


def test_an_interrupted_study_goes_on_with_the_trial_it_was_in(tmp_path: Path) -> None:
    made, steps = plan(tmp_path), []

    def interrupted() -> bool:
        steps.append(1)
        return len(steps) == 15

    with pytest.raises(Interrupted):
        searched(made, interrupted=interrupted)
    (begun,) = tmp_path.glob("trials/*/checkpoint/state.safetensors")
    study = searched(made)
    assert (begun.parents[1] / "metrics.json").is_file()
    starts = [line for line in (begun.parents[1] / "events.jsonl").read_text().splitlines() if '"start"' in line]
    assert len(starts) == 2
    assert sorted(trial.params["training.lr"] for trial in tune.finished(study)) == sorted(RATES["training.lr"])
    events: list[Any] = []
    searched(made, notify=events.append)  # once more there is nothing to do
    assert events == []


def test_a_study_goes_on_where_the_disk_was_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file may grow beyond so many bytes, as on a full disk: the last line of a file is cut short."""
    resource = pytest.importorskip("resource")
    expected = tune.history(searched(plan(tmp_path / "whole")))
    made, before = plan(tmp_path / "full"), resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr(tune, "timedelta", lambda minutes: timedelta(0))  # no other process may just have begun
    for room in range(500, 9000, 500):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            with pytest.raises(OSError, match=r"^could not write .*File too large; the"):
                searched(made)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    found = tune.history(searched(made))
    assert sorted(value or 0.0 for _, value in found) == sorted(value or 0.0 for _, value in expected)


def test_a_kill_while_a_study_is_locked_stops_no_other_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna's own lock stays behind: a link that leads nowhere if the folder is relative, which it waits for."""
    monkeypatch.chdir(tmp_path)
    made = plan(Path("study"))
    made.folder.mkdir()
    (made.folder / "study.jsonl.lock").symlink_to("study/study.jsonl")
    before = signal.signal(signal.SIGALRM, lambda number, frame: pytest.fail("it waits for the lock"))
    signal.alarm(int(HANGS))
    try:
        tune.open_study(made, None, 3)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_trial_of_a_process_that_died_before_its_first_line_is_taken_up(tmp_path: Path) -> None:
    made = plan(tmp_path)
    study = tune.open_study(made, None, 3)
    study.ask()  # of the queued values, and none of them is drawn yet
    tune.work(made, study, 3)
    assert len(tune.finished(study)) == 2, "another process may just have begun it"
    path = tmp_path / "study.jsonl"
    path.write_text(re.sub(r'"datetime_start": ?"20..', '"datetime_start": "2000', path.read_text()))
    study = searched(made)
    assert sorted(trial.params["training.lr"] for trial in tune.finished(study)) == sorted(RATES["training.lr"])


def test_a_damaged_study_is_one_sentence(tmp_path: Path) -> None:
    made = plan(tmp_path)
    searched(made, 1)
    path = tmp_path / "study.jsonl"
    path.write_bytes(b"\xff\x00\n" + path.read_bytes())
    with pytest.raises(InputError, match=r"the study .*study\.jsonl is damaged \(.*\); choose another --study-dir"):
        searched(made)


@pytest.mark.parametrize(("process", "taken"), [(2**22 + 1, True), (1, False)])  # the first one always lives
def test_the_trial_of_a_process_that_died_is_taken_up_and_no_other(tmp_path: Path, process: int, taken: bool) -> None:
    made = plan(tmp_path)
    study = tune.open_study(made, None, 3)
    trial = study.ask()
    tune.suggest(trial, made.space)
    trial.set_user_attr("worker", [platform.node(), process])
    tune.work(made, study, 3)
    rates = [trial.params["training.lr"] for trial in tune.finished(study)]
    assert (trial.params["training.lr"] in rates) == taken
    assert len(rates) == (3 if taken else 2)
    assert tune.result(made, study)["running"] == (not taken)


@pytest.mark.parametrize("space", [None, {"training.lr": Range(1e-3, 0.1, True)}, {"training.lr": (0.1, 0.01)}])
def test_the_settings_as_they_are_come_first_where_they_are_in_the_space(tmp_path: Path, space: Any) -> None:
    given = {"data.source": "toy", **CLASSES, "epochs": 1, "lr": 0.02}
    made = tune.plan(given, labelled(), space, tmp_path)  # None: the paper's grid
    study = tune.open_study(made, None, 3)
    tune.suggest(study.ask(), made.space)
    assert (study.trials[0].params["training.lr"] == 0.02) == (space is None or isinstance(space["training.lr"], Range))


def test_a_trial_that_falls_behind_is_stopped_and_leaves_no_folder(tmp_path: Path) -> None:
    rates = (0.05, 0.06, 0.07, 0.08, 0.09, 1e-9)
    made = plan(tmp_path, labelled(), {"training.lr": Range(1e-9, 0.1, True)}, epochs=10)
    study = tune.open_study(made, None, 7)
    for rate in rates:
        study.enqueue_trial({"training.lr": rate})
    tune.work(made, study, 7)  # and the settings as they are
    found = tune.result(made, study)
    assert (found["complete"], found["pruned"]) == (6, 1)
    assert study.trials[-1].state.name == "PRUNED"
    assert len(list(tmp_path.glob("trials/*"))) == 6


def test_settings_that_do_not_go_together_are_refused_and_the_search_goes_on(tmp_path: Path) -> None:
    space = {"encoder.composition": ("sub", "rotate"), "encoder.dims": ((7, 16),)}  # rotate needs pairs
    made = plan(tmp_path, space=space)
    found = tune.result(made, searched(made))
    assert (found["complete"], found["refused"]) == (1, 1)
    assert found["best"]["settings"]["encoder.composition"] == "sub"
    hopeless = plan(tmp_path / "b", space={"encoder.composition": ("rotate",), "encoder.dims": ((7, 16),)})
    with pytest.raises(InputError, match=r"no trial came to an end: .*even dimension"):
        tune.result(hopeless, searched(hopeless))


def test_a_trial_that_does_not_fit_into_memory_counts_as_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, train = plan(tmp_path, space={"encoder.composition": ("sub", "mult")}), tune.train

    def too_large(config: Config, *others: Any, **more: Any) -> Any:
        if config.encoder.composition == "mult":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return train(config, *others, **more)

    monkeypatch.setattr(tune, "train", too_large)
    found = tune.result(made, searched(made))
    assert (found["complete"], found["refused"]) == (1, 1)


def test_a_study_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    searched(plan(tmp_path), 1)
    for other, what in (
        (plan(tmp_path / "run"), "is a run folder"),
        (plan(tmp_path, graph(10)), "have changed"),
        (plan(tmp_path, epochs=4), "training.epochs: 3 -> 4"),
        (plan(tmp_path, space={"training.lr": (0.1,)}), "another table"),
    ):
        with pytest.raises(InputError, match=what):
            tune.open_study(other, None, 1)


@pytest.mark.parametrize("path", ["encoder.name", "encoder.composition", "encoder.norm", "decoder.name"])
def test_an_unknown_name_is_refused_before_there_is_a_study(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError, match=rf"\[search\]: unknown {path} 'foo'"):
        plan(tmp_path / "study", space={path: ("foo",)})
    assert not (tmp_path / "study").exists()


def test_a_database_is_a_storage_too(tmp_path: Path) -> None:
    made = plan(tmp_path)
    url = f"sqlite:///{tmp_path / 'study.db'}"
    tune.work(made, tune.open_study(made, url, 1), 1)
    assert len(tune.finished(tune.open_study(made, url, 1))) == 1
    assert not (tmp_path / "study.jsonl").exists()
    with pytest.raises(InputError, match="could not open the storage 'nonsense'"):
        tune.open_study(made, "nonsense", 1)
    with pytest.raises(InputError, match="could not open the storage") as error:
        tune.open_study(made, "nodatabase://me:secret@host/x", 1)
    assert "secret" not in str(error.value)


# The table


def test_a_table_has_lists_and_ranges_by_any_name_of_a_setting() -> None:
    table = {"lr": {"low": 0.1, "high": 1}, "encoder": {"bases": {"low": 1, "high": 9, "log": True}, "dims": [[8, 8]]}}
    assert parse_space(table) == {
        "training.lr": Range(0.1, 1, False),
        "encoder.bases": Range(1, 9, True),
        "encoder.dims": ((8, 8),),
    }


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"lrr": [1]}, "unknown option 'lrr'"),
        ({"training.lr": []}, "should be a list of values"),
        ({"training.lr": ["fast"]}, "training.lr = 'fast'"),
        ({"training.lr": {"low": 1.0, "high": 0.1}}, "low < high"),
        ({"training.lr": {"low": 0.0, "high": 0.1, "log": True}}, "above 0"),
        ({"training.lr": {"low": 0.1, "hihg": 1.0}}, "did you mean 'high'"),
        ({"task": ["link-prediction"]}, "task is not searched"),
    ],
)
def test_a_table_that_cannot_be_searched_is_one_sentence(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as error:
        parse_space(table, "search.toml: ")
    assert str(error.value).startswith("search.toml: ")


def test_nothing_to_search_or_to_judge_by_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to search"):
        plan(tmp_path, space={})
    with pytest.raises(InputError, match="no validation triples"):
        plan(tmp_path, graph(empty=("valid",)))
    with pytest.raises(InputError, match="--search"):
        plan(tmp_path, molecules(), protocol="nested")


# Nested runs


def test_a_nested_run_chooses_by_the_other_folds_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[set[int], set[int]]] = []
    begin = Classification.__init__

    def watched(self: Any, items: Any, train: Any, valid: Any, *rest: Any, **more: Any) -> None:
        seen.append((set(train.tolist()), set(valid.tolist())))
        begin(self, items, train, valid, *rest, **more)

    monkeypatch.setattr(Classification, "__init__", watched)
    given = candidates({"training.lr": (1e-9, 0.1), "encoder.dims": ((4, 4),)})
    run = classify(
        tmp_path, molecules(), protocol="nested", inner_folds=2, epochs=10, **{"classifier.candidates": given}
    )
    everything = set(range(18))
    per_fold = [seen[5 * k : 5 * k + 5] for k in range(3)]  # two candidates by two inner folds, then the fold
    for *inner, (rest, fold) in per_fold:
        assert rest | fold == everything
        assert not rest & fold
        for train, valid in inner:
            assert not (train | valid) & fold
            assert train | valid == rest
    assert [len(seen), seen[-1]] == [16, (everything, set())]
    assert set().union(*(fold for *_, (_, fold) in per_fold)) == everything
    assert [row["candidate"] for row in run.metrics["test"]["folds"]] == [
        "training.lr = 0.1, encoder.dims = [4, 4]"
    ] * 3
    assert run.metrics["settings"] == {"encoder.dims": [4, 4]}
    assert (run.config.encoder.dims, open_run(tmp_path, "cpu").classify("m0")[0].item) == ((4, 4), "m0")


def test_candidates_are_for_nested_runs_and_must_be_settings(tmp_path: Path) -> None:
    for data, given, sentence in (
        (molecules(), {"protocol": "paper", "candidates": [{"training.lr": 0.1}]}, "take --protocol nested"),
        (molecules(), {"protocol": "nested", "candidates": ["training.lr 0.1"]}, "dictionary"),
        (molecules(), {"protocol": "nested", "candidates": [{"classifier.folds": 3}]}, "is not searched"),
        (molecules(), {"protocol": "nested", "candidates": [{"composition": "rotat"}]}, "did you mean"),
        (graph(), {"candidates": [{"training.lr": 0.1}]}, "compgcn tune"),
    ):
        with pytest.raises(InputError, match=sentence):
            classify(tmp_path / "run", data, **given)
    with pytest.raises(InputError, match="is a range"):
        candidates({"training.lr": Range(0.1, 1.0, False)})


# The command


def test_a_stopped_study_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started, start = [], subprocess.Popen

    def sleeper(*given: Any, **how: Any) -> Any:
        started.append(start([sys.executable, "-c", "import time; time.sleep(100)"]))
        return started[-1]

    monkeypatch.setattr("compgcn.cli.tune.subprocess.Popen", sleeper)
    with pytest.raises(Interrupted), _workers(2, tmp_path, lambda: True):
        assert [one.poll() for one in started] == [None] * 2
    assert [one.poll() for one in started] == [-signal.SIGTERM] * 2


def test_a_process_of_a_study_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["compgcn", "tune", "absent.tsv"])
    with _workers(1, tmp_path, lambda: False):
        pass
    assert "1 of 1 other process failed" in capsys.readouterr().err
    assert "absent.tsv" in (tmp_path / "workers.log").read_text()


def test_two_processes_share_a_study_and_its_best_settings_train(command: Command, tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "toy.tsv", graph())
    (tmp_path / "search.toml").write_text(
        f'[data]\nsource = "{data}"\n[training]\nepochs = 2\ndevice = "cpu"\n[encoder]\ndims = [4, 4]\n'
        "[search]\ntraining.lr = [0.1, 0.2, 0.3, 0.4]\n[decoder]\nfilters = 9\n"
    )
    (tmp_path / "grid.toml").write_text("[search]\ntraining.lr = [0.1, 0.2]\n")
    words = ("search.toml", "--study-dir", "study", "--plot", "study.svg")
    found = command("tune", *words, "--jobs", 2, "--json")
    assert found.code == 0, found
    report = json.loads(found.out)
    assert report["complete"] >= 4
    assert (tmp_path / "study.svg").stat().st_size
    trained = command("train", report["best_toml"], "--run-dir", "best")
    assert (trained.code, "no effect" in trained.out, "MRR" in trained.out) == (0, False, True), trained
    refined = command("tune", "best/config.toml", "--search", "grid.toml", "--study-dir", "refined", "--trials", 1)
    assert refined.code == 0, "the config of a run names its data"
    again = command("tune", *words)
    assert f"compgcn train {report['best_toml']} --run-dir {report['study']}/best" in " ".join(again.out.split())
    assert f"best validation mrr {report['best']['value']:.4f}" in again.out
    assert "test" not in again.out.replace(" test)", "")
    refused(command("train", "search.toml"), "compgcn tune")
    refused(command("tune", "search.toml", "--study-dir", "study", "--epochs", 3), "training.epochs: 2 -> 3")


def test_a_nested_run_takes_its_candidates_from_a_file(command: Command, tmp_path: Path) -> None:
    toy.write_tu(tmp_path / "rings", molecules())
    (tmp_path / "grid.toml").write_text("[search]\ntraining.lr = [0.1, 0.01]\n")
    words = ["--protocol", "nested", "--epochs", 2, "--set", "folds=2", "--set", "inner_folds=2", "--device", "cpu"]
    found = command("train", "rings", *words, "--search", "grid.toml", "--set", "encoder.dims=[4,4]", "--json")
    assert found.code == 0, found
    folds = json.loads(found.out)["test"]["folds"]
    assert {row["candidate"] for row in folds} <= {"training.lr = 0.1", "training.lr = 0.01"}
    shown = command("train", "rings", *words, "--search", "grid.toml", "--set", "encoder.dims=[4,4]")
    assert "of 2 folds, and kept: training.lr = 0." in shown.out
    refused(command("tune", "rings", *words, "--search", "grid.toml"), "--search")
    (tmp_path / "empty.toml").write_text("[search]\n")
    refused(command("tune", "rings", "--search", "empty.toml"), "nothing to search")


def test_importance_names_the_setting_that_mattered() -> None:
    space: Any = {"training.lr": Range(0.0, 1.0, False), "encoder.bias": (True, False)}
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(tune.FEWEST):
        assert tune.importance(study) == {}, "of fewer trials it cannot be told"
        trial = study.ask()
        chosen = tune.suggest(trial, space)
        study.tell(trial, chosen["training.lr"] + 0.001 * chosen["encoder.bias"])
    shares = tune.importance(study)
    assert max(shares, key=lambda path: shares[path]) == "training.lr"
    assert np.isclose(sum(shares.values()), 1)
