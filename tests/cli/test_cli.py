"""The commands: what they print, for people and for programs, and one sentence for whatever is wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from rich.console import Console

import compgcn
import toy
from clock import HANGS
from compgcn import cli
from compgcn.answers.discover import weighing
from compgcn.baselines import BASELINES
from compgcn.cli.train import _in_lines, _progress_line, _standing, _time_left, spell
from compgcn.data import DATASETS
from compgcn.nn.compose import COMPOSITIONS
from compgcn.nn.decoders import DECODERS
from compgcn.nn.encoder import PRESETS
from compgcn.run import open_run
from compgcn.run.build import LEARNED, TASKS
from compgcn.tasks.sampling import SAMPLERS
from compgcn.train.recipes import MODELS
from reproduction.experiment import experiments
from toy import SMALL, Command, contents, flags, graph, refused, train, write_tsv

KEYS = {"rank", "entity", "name", "score", "probability", "known"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("cli") / "run").path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_tsv(tmp_path / "family.tsv", graph())


# ---------------------------------------------------------------------------------------------------------------------
# help and usage


def _commands() -> list[list[str]]:
    group = typer.main.get_command(cli.app)
    found: list[list[str]] = [[]]
    for name, sub in group.commands.items():  # type: ignore[attr-defined]
        found += [[name, inner] for inner in sub.commands] if hasattr(sub, "commands") else [[name]]
    return found


def test_these_are_the_commands() -> None:
    assert {" ".join(words) for words in _commands()} >= {
        "train",
        "evaluate",
        "predict",
        "export",
        "list",
        "data list",
        "data info",
    }


@pytest.mark.parametrize("words", _commands(), ids=" ".join)
def test_the_help_of_every_command_has_an_example(command: Command, words: list[str]) -> None:
    result = command(*words, "--help")
    assert result.code == 0
    assert f"Example: compgcn {' '.join(words)}".strip() in " ".join(result.out.split())


def test_what_a_command_does_is_said_whole_in_eighty_columns(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = command("--help").out.partition("Commands:")[2].strip().splitlines()
    assert len(listed) >= 14
    assert all(line.endswith(".") and not line.endswith("..") and len(line) <= 80 for line in listed), listed


@pytest.mark.parametrize("words", [["data", "--help"], ["--version"]])
def test_there_is_help_for_groups_and_a_version(command: Command, words: list[str]) -> None:
    result = command(*words)
    assert result.code == 0
    assert result.out.strip()
    assert "--version" not in words or result.out == f"compgcn {compgcn.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["trian"],
        ["train"],
        ["train", "world", "--colour", "red"],
        ["train", "world", "--epochs", "many"],
        ["predict", "run", "--relation", "r", "--head", "h", "--top", "0"],
        ["evaluate", "run", "--split", "all"],
        ["evaluate", "run", "--by", "colour"],
        ["export", "run"],
        ["data", "lst"],
    ],
    ids=" ".join,
)
def test_a_usage_error_is_exit_code_2(command: Command, words: list[str]) -> None:
    result = command(*words)
    assert result.code == 2, result
    assert result.out == ""
    assert "Traceback" not in result.err
    assert list(Path.cwd().iterdir()) == []


# ---------------------------------------------------------------------------------------------------------------------
# train


def test_a_stopped_run_says_that_it_is_resumed(command: Command, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("compgcn.cli.train.stop_requests", lambda: contextlib.nullcontext(lambda: True))
        stopped = command("train", data, *flags(SMALL))
    assert (stopped.code, "stopped; the same command goes on" in stopped.err) == (130, True)
    other = command("train", data, *flags(SMALL | {"lr": 0.5}))
    assert "holds an unfinished run with other options" in other.err
    assert "resuming" not in other.out, "it is said only of what is resumed"
    again = command("train", data, *flags(SMALL)).out
    assert "resuming the run in runs/family-compgcn-conve-0, in epoch 1\n" in again
    assert "resuming" not in command("train", data, *flags(SMALL)).out
    other = command("train", data, *flags(SMALL | {"lr": 0.5}))
    assert "say --overwrite to remove that run" in other.err
    anew = command("train", data, *flags(SMALL | {"lr": 0.5}), "--overwrite")
    assert (anew.code, "resuming" in anew.out, "already finished" in anew.out) == (0, False, False)


def test_ctrl_c_while_a_run_is_calibrated_stops_it_as_training_does(
    command: Command, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked_to_stop(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return weighing(*given)

    with monkeypatch.context() as patch:
        patch.setattr("compgcn.run.run.weighing", asked_to_stop)
        stopped = command("train", data, *flags(SMALL))
    assert (stopped.code, "stopped; the same command goes on" in stopped.err) == (130, True)
    measured = Path("runs/family-compgcn-conve-0/metrics.json").read_bytes()
    events = Path("runs/family-compgcn-conve-0/events.jsonl")
    before = events.read_text()
    again = command("train", data, *flags(SMALL))
    assert again.code == 0, again
    assert "resuming the run in runs/family-compgcn-conve-0" in again.out
    assert "already finished" not in again.out
    assert Path("runs/family-compgcn-conve-0/metrics.json").read_bytes() == measured
    more = [json.loads(line)["event"] for line in events.read_text().removeprefix(before).splitlines()]
    assert more == ["start", "end"]
    assert "already finished" in command("train", data, *flags(SMALL)).out


def test_a_graph_too_large_to_score_all_its_entities_is_said_and_trained_with_negatives(
    command: Command, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compgcn.run.resolve._STEP_BYTES", 5 * 4 * 512 * 12 - 1)
    found = command("train", data, "--epochs", 1, "--set", "dims=[4, 4]")
    assert found.code == 0, found
    assert "note: a step that scores all 12 entities would take about 0.0 GiB, so that negatives are drawn" in found.out
    assert "training.loss=sampled-cross-entropy, training.batch_size=4096; give either to train in another" in found.out
    assert open_run("runs/family-compgcn-distmult-0").config.training.loss == "sampled-cross-entropy"
    monkeypatch.setattr("compgcn.run.resolve._STEP_BYTES", 5 * 4 * 512 * 12)
    assert "scores all" not in command("train", data, "--epochs", 1, "--run-dir", "small").out


def test_few_validation_triples_and_a_model_below_the_baseline_are_said(command: Command, data: Path) -> None:
    words = ["--run-dir", "world", "--epochs", 0, "--set", "dims=[4]", "--encoder", "none"]
    assert "the model is no better than the baseline" in command("train", "world", *words).out
    few = command("train", data, *flags(SMALL | {"epochs": 0}))
    assert "validation triples: which epoch is best is a matter of chance" in few.out


def test_training_says_what_was_read_and_how_it_compares(command: Command, data: Path) -> None:
    result = command("train", data, *flags(SMALL), "--run-dir", "runs/mine")
    assert result.code == 0, result
    assert result.err == "", "nobody is looking: no progress line"
    assert "family: 12 entities, 3 relations, 24 triples" in result.out
    assert "note: split into" in result.out
    assert re.search(r"compgcn \+ conve +0\.\d{4} ", result.out)
    assert re.search(r"popularity baseline +0\.\d{4} ", result.out)
    assert "run folder runs/mine" in result.out


def test_the_same_command_on_a_finished_run_says_so_and_trains_nothing(command: Command, data: Path) -> None:
    words = ["train", data, *flags(SMALL)]
    command(*words)
    before = contents(Path("runs/family-compgcn-conve-0"))
    result = command(*words)
    assert result.code == 0
    assert "runs/family-compgcn-conve-0 is already finished; nothing to train" in result.out
    assert contents(Path("runs/family-compgcn-conve-0")) == before
    refused(command(*words, "--epochs", "9"), "'epochs' is given twice")
    changed = command(*words, "--set", "lr=0.5")
    assert changed.code == 1
    assert "training.lr: 0.01 -> 0.5" in changed.err
    assert contents(Path("runs/family-compgcn-conve-0")) == before


def test_train_json_is_pure_json(command: Command, data: Path) -> None:
    result = command("train", data, *flags(SMALL), "--json")
    report = json.loads(result.out)
    assert result.err == ""
    assert report["run"] == "runs/family-compgcn-conve-0"
    assert report["test"]["mrr"] == open_run(report["run"]).metrics["test"]["mrr"]
    assert json.loads(command("train", data, *flags(SMALL), "--json").out) == report


def test_options_and_settings_name_the_same_things(command: Command, data: Path) -> None:
    words = ["--encoder", "rgcn", "--decoder", "distmult", "--epochs", 1, "--seed", 4, "--device", "cpu"]
    command("train", data, *words, "--run-dir", "a", "--set", "dims=[4, 8]")
    config = open_run("a").config
    assert (config.encoder.name, config.decoder.name) == ("rgcn", "distmult")
    assert (config.training.epochs, config.training.seed, config.training.device) == (1, 4, "cpu")
    assert config.encoder.dims == (4, 8)


def test_a_model_names_its_folder_and_its_figures(command: Command, data: Path) -> None:
    result = command("train", data, "--model", "transe", "--epochs", 0, "--set", "dims=[4]")
    assert result.code == 0
    assert (data.parent / "runs" / "family-transe-0" / "metrics.json").is_file()
    assert any(line.startswith("transe ") for line in result.out.splitlines())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(["mutg"], "mutag"), (["world", "--model", "distmlt"], "distmult"), (["gone.tsv"], "gone.tsv")],
)
def test_a_mistake_in_a_name_is_answered_before_torch_is_loaded(words: list[str], sentence: str) -> None:
    source = f"import sys; sys.argv[1:] = ['train', *{words}]; sys.modules['torch'] = None; import compgcn.cli as cli"
    ended = subprocess.run([sys.executable, "-c", f"{source}; cli.main()"], capture_output=True, text=True)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
    assert sentence in ended.stderr


def test_three_files_are_used_as_they_are(command: Command, tmp_path: Path) -> None:
    files = {split: write_tsv(tmp_path / f"{split}.tsv", graph(), split) for split in graph().splits}
    words = ["--valid", files["valid"], "--test", files["test"], *flags(SMALL)]
    assert command("train", files["train"], *words, "--run-dir", "a").code == 0
    sizes = {split: len(triples) for split, triples in open_run("a").data.splits.items()}
    assert sizes == {"train": 18, "valid": 3, "test": 3}
    (tmp_path / "mine.toml").write_text(f'[data]\nsource = "{files["train"]}"\n')
    assert command("train", "mine.toml", *words, "--run-dir", "b").code == 0
    assert toy.lasting(Path("a")) == toy.lasting(Path("b"))
    refused(command("train", files["train"], "--valid", files["valid"]), "test missing")


def test_columns_and_labels_of_a_table_are_options(command: Command, tmp_path: Path) -> None:
    rows = [f"{i},p{i},lives,town{i % 3}" for i in range(12)]
    (tmp_path / "g.csv").write_text("\n".join(["n,who,how,where", *rows]))
    (tmp_path / "l.csv").write_text("".join(f"p{i},{'north' if i % 2 else 'south'}\n" for i in range(8)))
    for columns, run in (("who,how,where", "a"), ("1,2,3", "b")):
        assert command("train", "g.csv", "--columns", columns, *flags(SMALL), "--run-dir", run).code == 0
    assert (open_run("a").data.num_entities, open_run("b").data.num_entities) == (15, 17)
    assert open_run("b").config.data.columns == (1, 2, 3)
    assert command("train", "a/config.toml", "--run-dir", "c").code == 0
    assert toy.lasting(Path("a")) == toy.lasting(Path("c"))
    words = ["--columns", "who,how,where", "--labels", "l.csv", *flags(SMALL | {"folds": 2}), "--run-dir", "d"]
    result = command("train", "g.csv", *words)
    assert open_run("d").config.data.labels == "l.csv", result
    assert len(open_run("d").data.train) == 12


def test_the_config_of_a_run_trains_it_again(command: Command, data: Path) -> None:
    assert command("train", data, *flags(SMALL), "--run-dir", "a").code == 0
    assert command("train", "a/config.toml", "--run-dir", "b").code == 0
    assert toy.lasting(Path("a")) == toy.lasting(Path("b"))
    with data.open("a") as file:
        file.write("p0\tlives\tp5\n")
    refused(command("train", "a/config.toml", "--run-dir", "c", "--json"), "fingerprint")
    assert not Path("c").exists()


def test_empty_splits_are_trained_on_and_said(command: Command, tmp_path: Path) -> None:
    (tmp_path / "few.tsv").write_text("a\tr\tb\nb\tr\tc\n")
    result = command("train", "few.tsv", *flags(SMALL))
    assert result.code == 0, result
    assert "0 valid, 0 test" in result.out
    assert "test split is empty" in result.out
    assert command("evaluate", "runs/few-compgcn-conve-0").out == "the test split is empty\n"
    assert command("evaluate", "runs/few-compgcn-conve-0", "--by", "relation").out == "the test split is empty\n"
    assert json.loads(command("evaluate", "runs/few-compgcn-conve-0", "--json").out) == {}


def test_a_terminal_gets_a_live_line(data: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    settings = SMALL | {"epochs": 10**6, "patience": 10**6}  # until the line is seen
    process = subprocess.Popen(
        [sys.executable, "-m", "compgcn", "train", str(data), *flags(settings)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=follower,
        env=toy.ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(follower)
    standing = r"(step \d/\d  )?loss \d\.\d+  valid mrr 0\.\d+  best 0\.\d+ \(epoch \d+\)"
    line = rf"epoch \d+/1000000 \S+ {standing}  about \S+ (s|min|h|days) left"
    seen, text = b"", ""
    with contextlib.suppress(OSError):  # the other end is closed
        while select.select([leader], [], [], HANGS)[0] and (chunk := os.read(leader, 4096)):
            seen += chunk
            text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="replace"))
            if re.search(line, text):
                process.send_signal(signal.SIGINT)
                line = "stopped; the same command goes on"
    process.communicate(timeout=HANGS)
    os.close(leader)
    assert "stopped; the same command goes on" in text, repr(text)
    assert process.returncode == 130


# ---------------------------------------------------------------------------------------------------------------------
# predict, evaluate, export, data


def test_predictions_are_a_table_of_rank_name_probability_and_known(command: Command, run: Path) -> None:
    result = command("predict", run, "--head", "NAME of P0", "--relation", "LIVES", "--top", 12)
    assert result.code == 0, result
    lines = result.out.splitlines()
    assert lines[0].strip() == "name of p0 - lives - ?"
    assert lines[1].split() == ["rank", "name", "id", "probability", "in", "the", "data"]
    assert len(lines) == 2 + 12 + 1
    assert lines[-1].strip() == "probabilities not calibrated"
    for rank, line in enumerate(lines[2:-1], 1):
        assert re.fullmatch(
            rf" *{rank} +name of \w\d +\w\d +[01]\.\d{{4}} +(no, new|yes, in (train|valid|test)) *", line
        )


def test_predict_json_is_pure_json(command: Command, run: Path) -> None:
    tails = json.loads(command("predict", run, "--head", "p0", "--relation", "lives", "--top", "3", "--json").out)
    assert [row["rank"] for row in tails] == [1, 2, 3]
    assert all(set(row) == KEYS for row in tails)
    opened = open_run(run)
    assert [row["score"] for row in tails] == [a.score for a in opened.predict("p0", "lives", top=3)]
    heads = json.loads(command("predict", run, "--tail", "t0", "--relation", "lives", "--top", "99", "--json").out)
    assert [row["entity"] for row in heads] == [a.entity for a in opened.predict(tail="t0", relation="lives", top=99)]
    assert {row["known"] for row in heads} <= {None, "train", "valid", "test"}
    assert any(row["known"] for row in heads)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--head", "name of p00", "--relation", "lives"], ["unknown entity 'name of p00'", "'name of p0'"]),
        (["--head", "p0", "--relation", "livs"], ["unknown relation 'livs'", "'lives'"]),
        (["--relation", "lives"], ["two of head, relation and tail"]),
        (["--head", "p0", "--tail", "p1", "--relation", "lives"], ["two of head, relation and tail"]),
        (["--head", "p0", "--relation", "lives", "--device", "nonsense"], ["the device 'nonsense' is not there"]),
    ],
)
def test_a_bad_question_is_one_sentence(command: Command, run: Path, words: list[str], expected: list[str]) -> None:
    refused(command("predict", run, *words), *expected)
    refused(command("predict", run, *words, "--json"), *expected)


def test_evaluation_is_a_table_or_json(command: Command, run: Path) -> None:
    result = command("evaluate", run)
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()[1:]] == [
        "both",
        "head",
        "tail",
        "optimistic",
        "pessimistic",
        *("expected", "expected"),  # calibration errors, of the first answer and of the first ten
    ]
    assert json.loads(command("evaluate", run, "--json").out) == open_run(run).metrics["test"]
    for by in ("relation", "category", "side"):
        result = command("evaluate", run, "--split", "train", "--by", by)
        report = json.loads(command("evaluate", run, "--split", "train", "--by", by, "--json").out)
        assert report == open_run(run).evaluate("train", by)
        for name in report:
            assert re.search(rf"^{name} .*0\.\d{{4}}", result.out, re.MULTILINE), result


def test_relations_with_most_triples_come_first(command: Command, run: Path) -> None:
    report = json.loads(command("evaluate", run, "--split", "valid", "--by", "relation", "--json").out)
    assert [(name, part["triples"]) for name, part in report.items()] == [("knows", 2), ("lives", 1)]
    shown = command("evaluate", run, "--split", "valid", "--by", "relation").out
    assert [line.split()[0] for line in shown.splitlines()[1:]] == ["knows", "lives"]


def test_vectors_are_exported(command: Command, run: Path) -> None:
    result = command("export", run, "--to", "vectors.tsv")
    assert result.out == "18 vectors written to vectors.tsv\n"
    assert Path("vectors.tsv").read_text().startswith("kind\tid\tname\t0\t1\t")
    assert command("export", run, "--to", "vectors", "--format", "projector").code == 0
    assert Path("vectors", "projector_config.pbtxt").is_file()
    refused(command("export", run, "--to", "vectors.xls"), ".w2v or .vec")
    refused(command("export", run, "--to", "no/such/vectors.tsv"), "there is no folder")
    Path("taken.tsv").mkdir()
    refused(command("export", run, "--to", "taken.tsv"), "could not write taken.tsv")
    os.mkfifo("pipe.tsv")
    refused(command("export", run, "--to", "pipe.tsv"), "'pipe.tsv' exists and is not a file")
    Path("link.tsv").symlink_to(run / "metrics.json")
    refused(command("export", run, "--to", "link.tsv"), "is a file of the run")


def test_one_who_takes_a_relation_for_an_entity_is_told_the_option(command: Command, run: Path) -> None:
    refused(command("similar", run, "lives"), "'lives' is a relation; add --relation")
    refused(command("similar", run, "livs", "--relation"), "did you mean 'lives'")


def test_neighbours_are_a_table_or_json(command: Command, run: Path) -> None:
    result = command("similar", run, "p1", "--top", 2)
    assert re.search(r"^rank +name +id +similarity$", result.out, re.MULTILINE)
    assert len(result.out.splitlines()) == 3
    found = json.loads(command("similar", run, "knows", "--relation", "--json").out)
    assert [one["rank"] for one in found] == [1, 2, 3, 4, 5]
    assert {"rank", "entity", "name", "similarity"} == set(found[0])
    refused(command("similar", run, "lives"), "'lives' is a relation")


LISTED: dict[str, dict[str, Any]] = {
    "tasks": TASKS,
    "models": MODELS,
    "encoders": PRESETS,
    "compositions": {**COMPOSITIONS, **LEARNED},
    "decoders": DECODERS,
    "samplers": SAMPLERS,
    "baselines": BASELINES,
    "datasets": DATASETS,
}


@pytest.mark.parametrize("kind", LISTED)
def test_every_row_is_listed_with_what_it_is_and_the_paper_it_comes_from(command: Command, kind: str) -> None:
    shown = command("list", kind).out
    assert max(map(len, shown.splitlines())) <= 80
    rows = json.loads(command("list", kind, "--json").out)
    assert list(rows) == [kind]
    assert [row["name"] for row in rows[kind]] == list(LISTED[kind])
    for row, source in zip(rows[kind], LISTED[kind].values(), strict=True):
        assert row["description"] in (getattr(source, "description", None), getattr(source, "origin", None))
        assert row["reference"] in (getattr(source, "reference", None), getattr(source, "citation", None))
        assert row["description"]
        assert row["reference"]
        assert " ".join(row.values()) in " ".join(shown.split()), "in the order of reading, nothing cut off"
        assert re.search(rf"^{row['name']} ", shown, re.MULTILINE), "a name stands whole at the start of a line"


def test_without_a_kind_all_are_listed_and_an_unknown_kind_is_answered_with_the_nearest(command: Command) -> None:
    everything = command("list").out.split()
    assert {name for kind, table in LISTED.items() for name in (kind, *table)} <= set(everything)
    assert set(json.loads(command("list", "--json").out)) == {*LISTED, "experiments"}
    refused(command("list", "decoder"), "unknown kind 'decoder'; did you mean 'decoders'")


def test_experiments_are_listed_where_they_are_at_hand(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads(command("list", "experiments", "--json").out)["experiments"]
    assert [row["name"] for row in rows] == list(experiments())
    monkeypatch.setattr("reproduction.experiment._HERE", Path("nowhere"))
    assert json.loads(command("list", "--json").out)["experiments"] == []
    refused(command("list", "experiments"), "no folder 'experiments'")


def test_data_sets_are_listed_and_described(command: Command, data: Path) -> None:
    result = command("data", "list")
    assert re.search(r"world +link +3,090 +10 +10,215", result.out)
    assert max(map(len, result.out.splitlines())) <= 80
    assert all(row.description in " ".join(result.out.split()) for row in DATASETS.values())
    rows = json.loads(command("data", "list", "--json").out)
    assert {row["name"] for row in rows} >= {"world", "fb15k-237", "wn18rr"}
    result = command("data", "info", data)
    assert "family: 12 entities, 3 relations, 24 triples" in result.out
    report = json.loads(command("data", "info", data, "--json").out)
    assert report["by_relation"] == {"lives": 8, "born": 8, "knows": 8}
    assert (report["entities"], report["triples"]) == (12, 24)
    world = command("data", "info", "world")
    assert "GeoNames" in world.out
    refused(command("data", "info", "wrld"), "unknown data set 'wrld'; did you mean 'world'")


def test_markup_and_emoji_codes_in_ids_are_shown_as_they_are(command: Command, tmp_path: Path) -> None:
    ids = ["[bold]x[/bold]", ":cat:", "a\\", "[/]", "ex:dog:1", "é🦊"]
    rows = [f"{s}\t:smile:\t{o}" for s in ids for o in ids if s != o]
    (tmp_path / "odd.tsv").write_text("\n".join(rows))
    result = command("train", "odd.tsv", *flags(SMALL), "--run-dir", "[red]runs")
    assert result.code == 0, result
    assert "run folder [red]runs" in result.out
    assert "[red]runs is already finished" in command("train", "odd.tsv", *flags(SMALL), "--run-dir", "[red]runs").out
    shown = command("predict", "[red]runs", "--head", ":cat:", "--relation", ":smile:").out
    assert ":cat: - :smile: - ?" in shown
    for text in ids:
        assert f" {text} " in shown
    rows = json.loads(command("predict", "[red]runs", "--head", ":cat:", "--relation", ":smile:", "--json").out)
    assert {row["entity"] for row in rows} == set(ids)
    refused(command("predict", "[red]runs", "--head", "[bold]y", "--relation", ":smile:"), "'[bold]y'")
    assert re.search(r"^:smile: +30 ", command("data", "info", "odd.tsv").out, re.MULTILINE)


# ---------------------------------------------------------------------------------------------------------------------
# bad input


BAD_FILES = {
    "missing.tsv": (None, ["there is no file 'missing.tsv'"]),
    "empty.tsv": (b"", ["'empty.tsv' is empty"]),
    "header.tsv": (b"head\trelation\ttail\n", ["'header.tsv' is empty"]),
    "columns.tsv": (b"a\tr\tb\na\tr\nc\tr\td\n", ["'columns.tsv', line 2", "expected 3 columns, found 2"]),
    "wide.csv": (b"a,r,b\na,r,b,c\n", ["'wide.csv', line 2", "expected 3 columns, found 4"]),
    "bytes.tsv": (b"a\tr\tb\nc\tr\t\xff\xfe\n", ["'bytes.tsv', line 2", "not UTF-8"]),
    "blank.tsv": (b"a\tr\tb\na\t\tb\n", ["'blank.tsv', line 2", "column 2 is empty"]),
    "packed.tsv.gz": (b"a\tr\tb\n", ["'packed.tsv.gz' cannot be read"]),
    "what.xyz": (b"a\tr\tb\n", ["cannot tell the format of 'what.xyz'"]),
    "one.tsv": (b"a\tr\ta\n", ["only one entity"]),
    "wrong.toml": (b"[training]\nlrr = 1\n", ["wrong.toml", "unknown option 'training.lrr'"]),
    "value.toml": (b"[training]\nloss = 'bcee'\n", ["value.toml", "did you mean 'bce'"]),
    "broken.toml": (b"[training\n", ["broken.toml is not a TOML file"]),
    "nodata.toml": (b"[training]\nlr = 1\n", ["nodata.toml", "data.source"]),
    "newer.toml": (b"format = 9\n", ["newer.toml is of format 9"]),
    "gone.toml": (None, ["there is no config file gone.toml"]),
    "wrld": (None, ["unknown data set 'wrld'; did you mean 'world'"]),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_data_is_one_sentence_and_no_folder(command: Command, name: str) -> None:
    content, words = BAD_FILES[name]
    if content is not None:
        Path(name).write_bytes(content)
    before = contents(Path.cwd())
    refused(command("train", name, "--json"), *words)
    assert contents(Path.cwd()) == before
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--encoder", "compgc"], ["unknown encoder 'compgc'; did you mean 'compgcn'"]),
        (["--decoder", "transee"], ["unknown decoder 'transee'; did you mean 'transe'"]),
        (["--composition", "cor"], ["unknown composition 'cor'; did you mean 'corr'"]),
        (["--encoder", "gcn", "--composition", "cor"], ["unknown composition 'cor'"]),
        (["--encoder", "gcn", "--composition", "corr"], ["encoder 'gcn' has composition 'copy'"]),
        (["--model", "foo"], ["unknown model 'foo'; known: ", *MODELS]),
        (["--set", "encoder=3"], ["encoder.name = 3"]),
        (["--set", "data.source=[1]"], ["data.source = "]),
        (["--set", "norm=symetric"], ["unknown norm 'symetric'; did you mean 'symmetric'"]),
        (["--set", "loss=bcee"], ["unknown value of training.loss 'bcee'; did you mean 'bce'"]),
        (["--set", "lrr=1"], ["unknown option 'lrr'; did you mean 'lr'"]),
        (["--set", "hidden_dropout=0.1"], ["ambiguous; say encoder.hidden_dropout or decoder.hidden_dropout"]),
        (["--set", "lr"], ["write key=value"]),
        (["--set", "lr=fast"], ["training.lr = 'fast'"]),
        (["--set", "training.lr=-1"], ["training.lr = -1"]),
        (["--epochs", "-1"], ["training.epochs = -1"]),
        (["--decoder", "conve", "--set", "kernel=50"], ["a 50×50 kernel does not fit"]),
        (["--set", "dims=[0]"], ["encoder.dims.0 = 0"]),
        (["--device", "nonsense"], ["the device 'nonsense' is not there; use cpu, or auto"]),
        (["--device", "cuda:77"], ["the device 'cuda:77' is not there"]),
        (["--set", "valid_fraction=0.6", "--set", "test_fraction=0.6"], ["leave something to train on"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_a_bad_option_is_one_sentence_and_no_folder(
    command: Command, data: Path, words: list[str], expected: list[str]
) -> None:
    refused(command("train", data, *words, "--json"), *expected)
    assert not Path("runs").exists()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_run_dir_that_is_something_else_is_left_alone(command: Command, data: Path, kind: str) -> None:
    place = Path("place")
    if kind == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / "mine").write_text("mine")
    before = contents(Path.cwd())
    refused(command("train", data, *flags(SMALL), "--run-dir", place, "--json"), "place", "--run-dir")
    refused(command("train", data, *flags(SMALL), "--run-dir", place / "mine" / "deeper", "--json"), "place")
    assert contents(Path.cwd()) == before
    for words in (["evaluate"], ["predict", "--head", "a", "--relation", "r"], ["export", "--to", "x.tsv"]):
        refused(command(words[0], place, *words[1:]), "place")


def test_training_that_diverges_is_one_sentence(command: Command, data: Path) -> None:
    wild = flags(SMALL | {"lr": 1e30, "batch_norm": "false", "activation": "none", "decoder": "distmult"})
    refused(command("train", data, *wild, "--json"), "diverged", "lower training.lr")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: you tried to .."),
    ],
    ids=["python", "gpu", "cpu"],
)
def test_too_little_memory_is_one_sentence(
    command: Command, run: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("compgcn.run.open_run", fail)
    refused(command("evaluate", run), "needs more memory than there is", "encoder.dims or training.batch_size")


def test_an_error_of_our_own_is_not_taken_for_one_of_memory(
    command: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr("compgcn.run.open_run", fail)
    with pytest.raises(RuntimeError, match="shapes differ"):
        command("evaluate", run)


def test_a_command_broken_off_says_nothing_more(command: Command, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("compgcn.run.open_run", interrupt)
    result = command("evaluate", run)
    assert result.code == 130, result
    assert result.out == ""
    assert "Traceback" not in result.err


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    line = f"{sys.executable} -m compgcn data list --json | head -c 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=toy.ENVIRONMENT)
    assert (done.stdout, done.stderr) == ("[", "")


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "compgcn", "--version"], capture_output=True, text=True, env=toy.ENVIRONMENT
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"compgcn {compgcn.__version__}\n", "")


def test_an_encoder_without_a_layer_is_noticed(command: Command) -> None:
    Path("own.tsv").write_text("".join(f"e{k}\tr\te{k + 1}\n" for k in range(30)))
    words = ("train", "own.tsv", "--epochs", 1, "--set", "batch_size=8", "--set")
    assert "has no layer: encoder.dims takes two numbers" in command(*words, "encoder.dims=[8]", "--run-dir", "a").out
    assert "has no layer" not in command(*words, "encoder.dims=[8,8]", "--run-dir", "b").out


def test_a_long_evaluation_says_on_the_live_line_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    terminal = Console(file=drawn, force_terminal=True, width=120)
    monkeypatch.setattr("compgcn.cli.train.err", terminal)
    with _progress_line(quiet=False) as notify:
        assert notify is not None
        notify({"event": "progress", "what": "evaluating", "done": 12_000, "total": 100_000})
        notify({"event": "progress", "what": "calibrating", "done": 5, "total": 5})
    assert "evaluating 12,000 of 100,000" in drawn.getvalue()
    assert "calibrating 5" not in drawn.getvalue(), "what is over at once is not shown"


def test_training_without_a_terminal_tells_now_and_then_how_far_it_is(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compgcn.cli.train._QUIET", 0.0)
    words = ("train", "world", "--decoder", "distmult", "--encoder", "none", "--epochs", "2")
    found = command(*words)
    assert "epoch 2/2  loss " in found.err
    assert "valid mrr" in found.err
    assert re.search(r"epoch 1/2  step 1/\d+  loss \S+  about \S+ (s|min|h) left\n", found.err)
    assert re.search(r"evaluating test [\d,]+ of 1,022\n", found.err)


def test_a_line_comes_ten_seconds_after_the_last_and_not_sooner(capfd: pytest.CaptureFixture[str]) -> None:
    now = 1000.0
    notify, event = _in_lines(lambda: now), {"event": "progress", "what": "evaluating", "total": 600}
    lines = []
    for done, seconds in ((0, 0), (1, 9), (2, 1), (3, 9), (4, 1), (5, 9)):
        now += seconds
        notify(event | {"done": done})
        lines.append(capfd.readouterr().err)
    assert [bool(line) for line in lines] == [False, False, True, False, True, False]
    assert lines[2].startswith("evaluating 2 of 600")


@pytest.mark.parametrize("part", [None, "fold 2 of 5"])
def test_what_is_left_of_training_takes_as_long_a_step_as_what_is_done(part: str | None) -> None:
    event = {"event": "step", "epoch": 1, "epochs": 4, "step": 10, "steps": 80, "seconds": 120.0, "loss": 1.0}
    event |= {"goal": "mrr", "best": None} | ({} if part is None else {"part": part})
    assert _time_left()(event) == "  about 14 min left" + (f" of {part}" if part else "")
    assert "step 10/20  loss 1.0000" in _standing(event, {})
    assert _time_left()(event | {"event": "epoch", "step": 80}) == "", "nothing is left"


def test_what_is_left_of_an_evaluation_takes_as_long_as_what_was_done_since_it_was_first_heard_of() -> None:
    now = 1000.0
    left, event = _time_left(lambda: now), {"event": "progress", "what": "evaluating", "total": 600}
    assert left(event | {"done": 100}) == "", "nobody knows how long that took"
    now += 60
    assert left(event | {"done": 200}) == "  about 4 min left"
    assert left(event | {"done": 150, "what": "calibrating"}) == "", "another one"
    now += 60
    assert left(event | {"done": 300, "what": "calibrating"}) == "  about 2 min left"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.1, "1 s"), (59.4, "59 s"), (59.6, "1 min"), (5000, "83 min"), (7200, "2.0 h"), (3e5, "3.5 days")],
)
def test_a_time_is_said_with_two_figures_or_three(seconds: float, words: str) -> None:
    assert spell(seconds) == words


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_memory_that_is_freed_is_not_asked_of_the_system_again() -> None:
    """In a process of its own: what it changes is the whole process's."""
    code = (
        "import resource, torch\nfrom compgcn.cli.train import keep_memory\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(20): torch.ones(2**24)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "plain = faults()\nkept = keep_memory()\nfaults()\nprint(not kept or faults() < plain / 10)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "True\n"
