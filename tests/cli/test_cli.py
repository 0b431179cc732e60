"""The commands on link predictors: output for people and for programs, and one sentence for every mistake."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import compgcn
import toy
from clock import HANGS
from compgcn.answers.discover import weighing
from compgcn.cli.train import board, in_words, progress_line, standing
from compgcn.data import DATASETS, Vocabulary
from compgcn.nn.decoders import DECODERS
from compgcn.run.run import open_run
from toy import SMALL, Command, contents, flags, graph, refused, train, write_tsv

FAMILY = Path("runs/family-compgcn-conve-0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("cli") / "run").path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_tsv(tmp_path / "family.tsv", graph())


# Train


def test_a_stopped_run_resumes_and_an_overwritten_one_does_not(
    command: Command, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = flags(SMALL | {"lr": 0.5})
    with monkeypatch.context() as patch:
        patch.setattr("compgcn.cli.train.stop_requests", lambda: contextlib.nullcontext(lambda: True))
        stopped = command("train", data, *flags(SMALL))
    assert (stopped.code, "stopped; the same command goes on" in stopped.err) == (130, True)
    unlike = command("train", data, *other)
    assert "holds an unfinished run with other options" in unlike.err
    assert "resuming" not in unlike.out
    assert f"resuming the run in {FAMILY}\n" in command("train", data, *flags(SMALL)).out
    before = contents(FAMILY)
    again = command("train", data, *flags(SMALL)).out
    assert "resuming" not in again
    assert f"{FAMILY} is already finished; nothing to train" in again
    unlike = command("train", data, *other)
    assert "training.lr: 0.01 -> 0.5" in unlike.err
    assert "say --overwrite to remove that run" in unlike.err
    assert contents(FAMILY) == before
    anew = command("train", data, *other, "--overwrite")
    assert (anew.code, "resuming" in anew.out, "already finished" in anew.out) == (0, False, False)


def test_a_closed_terminal_stops_a_training_in_order(data: Path) -> None:
    settings = flags(SMALL | {"epochs": 10**6, "patience": 10**6})
    words = [sys.executable, "-m", "compgcn", "train", str(data), *settings, "--run-dir", str(data.parent / "closed")]
    ours, theirs = pty.openpty()
    usual = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    shows = toy.ENVIRONMENT | {"TERM": "xterm"}  # a live line
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=shows, preexec_fn=usual) as process:
        os.close(theirs)
        shown = b""
        while b"step " not in shown:
            shown += os.read(ours, 4096)
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        try:
            assert process.wait(HANGS) == 130
        finally:
            process.kill()
    assert (data.parent / "closed" / "checkpoint" / "state.safetensors").is_file()


def test_ctrl_c_during_calibration_stops_a_run_and_keeps_its_metrics(
    command: Command, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked_to_stop(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return weighing(*given)

    with monkeypatch.context() as patch:
        patch.setattr("compgcn.run.run.weighing", asked_to_stop)
        stopped = command("train", data, *flags(SMALL))
    assert (stopped.code, "stopped; the same command goes on" in stopped.err) == (130, True)
    measured, events = (FAMILY / "metrics.json").read_bytes(), (FAMILY / "events.jsonl").read_text()
    again = command("train", data, *flags(SMALL))
    assert again.code == 0, again
    assert f"resuming the run in {FAMILY}" in again.out
    assert (FAMILY / "metrics.json").read_bytes() == measured
    more = (FAMILY / "events.jsonl").read_text().removeprefix(events).splitlines()
    assert [json.loads(line)["event"] for line in more] == ["start", "end"]


def test_training_prints_the_data_the_metrics_and_the_baseline(command: Command, data: Path) -> None:
    result = command("train", data, *flags(SMALL), "--run-dir", "runs/mine")
    assert (result.code, result.err) == (0, "")
    assert "family: 12 entities, 3 relations, 24 triples" in result.out
    assert "note: split into" in result.out
    assert "validation triples: which epoch is best is a matter of chance" in result.out
    assert re.search(r"compgcn \+ conve +0\.\d{4} ", result.out)
    assert re.search(r"popularity baseline +0\.\d{4} ", result.out)
    assert "run folder runs/mine" in result.out


def test_options_and_settings_name_the_same_things(command: Command, data: Path) -> None:
    words = ["--encoder", "rgcn", "--decoder", "distmult", "--epochs", 1, "--seed", 4, "--device", "cpu"]
    command("train", data, *words, "--run-dir", "a", "--set", "dims=[4, 8]")
    config = open_run("a").config
    assert (config.encoder.name, config.decoder.name, config.encoder.dims) == ("rgcn", "distmult", (4, 8))
    assert (config.training.epochs, config.training.seed, config.training.device) == (1, 4, "cpu")
    refused(command("train", data, *words, "--set", "epochs=2"), "'epochs' is given twice")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(["mutg"], "mutag"), (["world", "--model", "distmlt"], "distmult"), (["gone.tsv"], "gone.tsv")],
)
def test_a_mistake_in_a_name_is_answered_before_torch_is_loaded(words: list[str], sentence: str) -> None:
    source = f"import sys; sys.argv[1:] = ['train', *{words}]; sys.modules['torch'] = None; import compgcn.cli as cli"
    ended = subprocess.run([sys.executable, "-c", f"{source}; cli.main()"], capture_output=True, text=True)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
    assert sentence in ended.stderr


def test_the_config_of_a_run_trains_it_again(command: Command, data: Path) -> None:
    assert command("train", data, *flags(SMALL), "--run-dir", "a").code == 0
    assert command("train", "a/config.toml", "--run-dir", "b").code == 0
    assert toy.lasting(Path("a")) == toy.lasting(Path("b"))
    with data.open("a") as file:
        file.write("p0\tlives\tp5\n")
    refused(command("train", "a/config.toml", "--run-dir", "c", "--json"), "fingerprint")
    assert not Path("c").exists()


def test_an_encoder_without_a_layer_is_noticed(command: Command, data: Path) -> None:
    for dims, noticed in (("[8]", True), ("[8,8]", False)):
        shown = command("train", data, "--epochs", 0, "--set", f"encoder.dims={dims}", "--run-dir", f"run{dims}").out
        assert ("has no layer: encoder.dims takes two numbers" in shown) == noticed
        assert "no epoch is trained: the model keeps its first weights" in shown


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_memory_stays_with_the_process() -> None:
    """The setting is the whole process's, so that this has one of its own."""
    code = (
        "import resource, numpy\nfrom compgcn.cli.train import keep_memory\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(4): numpy.ones(2**23)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "plain = faults()\nkept = keep_memory()\nfaults()\nprint(not kept or faults() < plain / 10)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "True\n"


# Progress


def test_a_terminal_gets_a_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    monkeypatch.setattr("compgcn.cli.train.err", Console(file=drawn, force_terminal=True, width=120))
    event = {"event": "epoch", "epoch": 2, "epochs": 8, "step": 6, "steps": 24, "stop": 8, "loss": 0.5}
    with progress_line(quiet=False) as notify:
        notify(event | {"valid": {"mrr": 0.25}, "goal": "mrr", "best": 0.3, "best_epoch": 1})
        notify({"event": "evaluate"})
    assert "epoch 2/8  loss 0.5000  valid mrr 0.2500  best 0.3000 (epoch 1)" in drawn.getvalue()


def test_the_live_table_of_a_search_keeps_the_value_of_a_candidate_that_goes_on(capfd: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compgcn.cli.train.err", console := Console(force_terminal=True, width=120, color_system=None))
        show, event = board(), {"event": "trial", "name": "a", "left": 9.0}
        for more in ({"share": 0.0025, "value": 0.5, "spent": 1.0, "error": ""}, {"share": 1.0}):
            console.print(show(event | more))
        console.print(show({"event": "cost", "name": "b", "left": 8.0}))
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert lines[2::3] == [["a", "0.5000", "0.25%", "1"], *([["a", "0.5000", "to", "100%", "1"]] * 2)]
    assert lines[6][:2] == ["preparing", "b"]


def test_a_candidate_of_a_search_is_not_shown_with_the_value_of_another() -> None:
    show, steps = board(), {"epochs": 8, "step": 6, "steps": 24, "stop": 8, "loss": 0.5, "goal": "mrr", "best_epoch": 1}
    shown = []
    for name, event in (("a", {"event": "epoch", "valid": {"mrr": 0.25}}), ("b", {"event": "step"})):
        show({"event": "trial", "name": name, "left": 9.0, "share": 1.0})
        shown.append(show({**steps, "epoch": 2, "best": 0.3, **event}))
    assert ["0.25" in text for text in shown] == [True, False]


def test_a_log_gets_a_line_ten_seconds_after_the_last(capfd: pytest.CaptureFixture[str]) -> None:
    now, lines = 1000.0, []
    event = {"event": "progress", "what": "evaluating", "total": 600}
    with progress_line(quiet=False, clock=lambda: now) as notify:
        for done, seconds in ((0, 0), (1, 9), (2, 1), (3, 9), (4, 1), (5, 9)):
            now += seconds
            notify(event | {"done": done})
            lines.append(capfd.readouterr().err)
    assert [bool(line) for line in lines] == [False, False, True, False, True, False]
    assert lines[2].startswith("evaluating 2 of 600")


def training(clock: list[float], **both: object) -> Callable[..., str]:
    """Return a function of a step, its seconds and whether it ends in an evaluation that shows its line's end."""
    show = standing(lambda: clock[0])

    def line(step: int, seconds: float, mrr: float | None = None) -> str:
        clock[0] += seconds
        kind = {"event": "step"} if mrr is None else {"event": "epoch", "valid": {"mrr": mrr}}
        event = {"epoch": -(-step // 10), "epochs": 40, "step": step, "steps": 400, "loss": 1.0, "goal": "mrr"}
        return show(event | {"best": mrr, "best_epoch": 1} | kind | both).rpartition("  ")[2]

    return line


def test_the_time_left_leaves_out_the_first_step_and_spreads_the_evaluations() -> None:
    line = training([0.0], stop=40)
    assert line(1, 300.0) == "loss 1.0000", "the first step compiles: the pace is unknown"
    assert line(2, 1.0) == "about 7 min to the last epoch"
    assert line(9, 7.0) == "about 7 min to the last epoch"
    assert line(20, 30.0, mrr=0.1) == "about 13 min to the last epoch", "an evaluation doubles the time"
    assert line(1, 9.0) == "loss 1.0000", "another fold"


def test_the_time_left_is_also_that_of_a_training_whose_validation_gains_nothing_more() -> None:
    line = training([0.0], stop=12, part="fold 2 of 5")
    line(1, 300.0)
    assert line(3, 120.0) == "about 6.6 h to the last epoch", "an evaluation may be far"
    expected = "about 5.7 h to the last epoch, 60 min if validation gains nothing more"
    assert line(60, 57 * 60.0, mrr=0.1) == expected


def test_the_time_left_of_an_evaluation_follows_its_pace_since_its_first_event() -> None:
    now = 1000.0
    line, event = standing(lambda: now), {"event": "progress", "what": "evaluating", "total": 600}
    assert line(event | {"done": 100}) == "evaluating 100 of 600", "the pace is unknown"
    now += 60
    assert line(event | {"done": 200}) == "evaluating 200 of 600  about 4 min left"
    assert line(event | {"done": 150, "what": "calibrating"}) == "calibrating 150 of 600", "another evaluation"
    now += 60
    assert line(event | {"done": 300, "what": "calibrating"}) == "calibrating 300 of 600  about 2 min left"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, ""), (0.1, "1 s"), (59.4, "59 s"), (59.6, "1 min"), (5000, "83 min"), (7200, "2.0 h"), (3e5, "3.5 days")],
)
def test_a_time_has_two_or_three_digits(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


# Answers


def test_predictions_are_a_table_of_rank_name_and_probability_if_new(command: Command, run: Path) -> None:
    result = command("predict", run, "--head", "NAME of P0", "--relation", "LIVES", "--top", 12)
    title, header, *lines, note, doubt = result.out.splitlines()
    assert title.strip() == "name of p0 - lives - ?"
    assert header.split() == ["rank", "name", "id", "probability"]
    assert len(lines) == 11  # all entities but the one asked about
    assert note.strip() == "probabilities not calibrated"
    assert doubt == "the data hold an answer already; the probabilities assume that another is missing"
    for rank, line in enumerate(lines, 1):
        chance = r"([01]\.\d{4}|known \((train|valid|test)\))"
        assert re.fullmatch(rf" *{rank} +name of \w\d +\w\d +{chance} *", line)


def test_a_query_that_no_fact_resembles_has_a_note(command: Command, run: Path) -> None:
    note = "'name of t1' shares no relation with any head of 'knows'; the probabilities assume that it has a tail"
    assert command("predict", run, "--head", "t1", "--relation", "knows").out.splitlines()[-1] == note
    assert "shares no relation" not in command("predict", run, "--head", "p1", "--relation", "knows").out


def test_an_entity_that_train_lacks_has_a_note(command: Command, tmp_path: Path) -> None:
    for part, rows in {"a": "x\tr\ty\ny\tr\tz\n", "b": "x\tr\tz\n", "c": "new\tr\tz\n"}.items():
        (tmp_path / f"{part}.tsv").write_text(rows)
    words = ["--valid", "b.tsv", "--test", "c.tsv", *flags(SMALL), "--run-dir", "own"]
    assert command("train", "a.tsv", *words).code == 0
    note = "train has no fact about 'new'; the probabilities assume that it has some"
    assert command("predict", "own", "--head", "new", "--relation", "r").out.splitlines()[-1] == note
    found = command("predict", "own", "--head", "new", "--relation", "r", "--json")
    assert (len(json.loads(found.out)), found.err) == (3, f"note: {note}\n")


def test_a_model_with_another_encoder_has_the_name_of_what_it_is(command: Command, data: Path) -> None:
    out = command("train", data, "--model", "transe", "--encoder", "compgcn", "--epochs", 1).out
    assert re.search(r"^compgcn \+ transe ", out, re.MULTILINE)
    assert "run folder runs/family-compgcn-transe-0" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--head", "p0", "--relation", "lives", "--device", "nonsense"], ["there is no device 'nonsense' here"]),
        (["--head", "p0", "--relation", "lives", "--to", "x.csv"], ["--to goes with --queries"]),
        (["--doubtful"], ["--doubtful goes with --queries"]),
        (["--head", "p0", "--relation", "lives", "--tail", "t1"], ["you gave all three: leave one out", "--queries"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_a_bad_question_is_one_sentence(command: Command, run: Path, words: list[str], expected: list[str]) -> None:
    refused(command("predict", run, *words), *expected)


def test_ctrl_c_leaves_no_half_written_file(command: Command, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*given: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(HANGS)

    monkeypatch.setattr("compgcn.train.storage.os.fsync", stopped)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for words in (
            ["export", run, "--to", "x.tsv"],
            ["discover", run, "--to", "x.csv"],
            ["report", run, "--to", "x.html"],
        ):
            assert command(*words).code == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert [path.name for path in Path().iterdir() if "x." in path.name] == []


def test_a_name_that_starts_with_a_dash_stands_after_two_dashes(command: Command, run: Path) -> None:
    lines = command("explain", run, "p0", "lives", "-3").err.splitlines()
    assert lines[-2:] == ["Error: No such option: -3", "Put -- before names that start with -."]
    refused(command("explain", run, "--", "p0", "lives", "-3"), "unknown entity '-3'")
    for words in (["--tpo"], ["p0", "lives", "p1", "--top", "-1"], ["-h"]):
        assert "Put --" not in command("explain", run, *words).err


def test_evaluation_is_a_table_or_json(command: Command, run: Path) -> None:
    shown = command("evaluate", run).out.splitlines()[1:]
    names = ["both", "head", "tail", "optimistic", "pessimistic", "popularity", "expected", "expected"]
    assert [line.split()[0] for line in shown] == names
    assert json.loads(command("evaluate", run, "--json").out) == open_run(run).metrics["test"]
    for by in ("relation", "category", "side"):
        shown = command("evaluate", run, "--split", "train", "--by", by).out.splitlines()[1:]
        report = json.loads(command("evaluate", run, "--split", "train", "--by", by, "--json").out)
        assert report == open_run(run).evaluate("train", by)
        assert [line.split()[0] for line in shown] == list(report)
    report = json.loads(command("evaluate", run, "--split", "valid", "--by", "relation", "--json").out)
    assert [(name, part["triples"]) for name, part in report.items()] == [("knows", 2), ("lives", 1)]


def test_vectors_are_exported(command: Command, run: Path) -> None:
    assert command("export", run, "--to", "vectors.tsv").out == "18 vectors written to vectors.tsv\n"
    assert Path("vectors.tsv").read_text().startswith("kind\tid\tname\t0\t1\t")
    assert command("export", run, "--to", "vectors", "--format", "projector").code == 0
    assert Path("vectors", "projector_config.pbtxt").is_file()
    os.mkfifo("pipe.tsv")
    refused(command("export", run, "--to", "pipe.tsv"), "'pipe.tsv' exists and is not a file")
    refused(command("explain", run, "p0", "lives", "t0", "--method", "guess"), "unknown method 'guess'; known: auto")


@pytest.fixture(scope="module")
def namesakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which every person but the first is called Ann, and two relations share a name."""
    data = graph()
    names = [text if text == "p0" or text[0] == "t" else "Ann" for text in data.entities.ids]
    entities = Vocabulary("entity", data.entities.ids, names)
    relations = Vocabulary("relation", data.relations.ids, ["at", "at", "knows well"])
    data = dataclasses.replace(data, entities=entities, relations=relations)
    return train(tmp_path_factory.mktemp("run") / "run", data, epochs=1, decoder="distmult").path


def test_names_that_are_shared_have_their_ids_beside_them(namesakes: Path, command: Command) -> None:
    shown = command("discover", namesakes, "--top", 1000, "--all-heads").out
    lines = [line.split()[1:-1] for line in shown.splitlines()]
    assert ["Ann", "(p3)", "at", "(lives)", "p0"] in lines
    assert ["p0", "knows", "well", "Ann", "(p5)"] in lines
    assert "Ann (p3) - at (" in command("explain", namesakes, "p3", "knows", "p4", "--top", 50).out
    shown = command("evaluate", namesakes, "--split", "train", "--by", "relation").out
    called = [line.split("  ")[0].rpartition(" ")[0] for line in shown.splitlines()[1:]]
    assert called == ["at (lives)", "at (born)", "knows well"]


@pytest.mark.parametrize(
    "words", [("predict", "--head", "p0", "--relation", "lives"), ("explain", "p0", "lives", "t0"), ("discover",)]
)
def test_every_answer_of_a_model_below_its_baseline_has_a_note(
    namesakes: Path, command: Command, words: tuple[str, ...]
) -> None:
    metrics = json.loads((namesakes / "metrics.json").read_text())
    for baseline, expected in ((1.0, 1), (0.0, 0)):
        metrics["popularity"]["test"]["mrr"] = baseline
        (namesakes / "metrics.json").write_text(json.dumps(metrics))
        shown = command(words[0], namesakes, *words[1:]).err
        assert shown.count("note: the model is no better than the baseline") == expected


def test_markup_and_emoji_codes_in_ids_are_shown_as_they_are(command: Command, tmp_path: Path) -> None:
    ids = ["[bold]x[/bold]", ":cat:", "a\\", "[/]", "ex:dog:1", "é🦊"]
    rows = [f"{s}\t:smile:\t{o}" for s in ids for o in ids if s != o]
    (tmp_path / "odd.tsv").write_text("\n".join(rows))
    result = command("train", "odd.tsv", *flags(SMALL), "--run-dir", "[red]runs")
    assert "run folder [red]runs" in result.out
    shown = command("predict", "[red]runs", "--head", ":cat:", "--relation", ":smile:").out
    assert ":cat: - :smile: - ?" in shown
    assert all(f" {text} " in shown for text in ids if text != ":cat:")
    refused(command("predict", "[red]runs", "--head", "[bold]y", "--relation", ":smile:"), "'[bold]y'")
    assert re.search(r"^:smile: +30 ", command("data", "info", "odd.tsv").out, re.MULTILINE)


# Lists


def test_every_row_is_listed_with_its_description_and_its_paper(command: Command) -> None:
    shown, rows = command("list").out, json.loads(command("list", "--json").out)
    assert max(map(len, shown.splitlines())) <= 80
    for kind, table in rows.items():
        assert json.loads(command("list", kind, "--json").out) == {kind: table}
        for row in table:
            assert set(row) == {"name", "description", "reference"}
            assert all(row.values())
            assert " ".join(row.values()) in " ".join(shown.split()), "in the order of reading, nothing cut off"
            assert re.search(rf"^{row['name']} ", shown, re.MULTILINE), "a name stands whole at the start of a line"
    assert [row["name"] for row in rows["decoders"]] == list(DECODERS)
    assert [row["name"] for row in rows["datasets"]] == list(DATASETS)
    refused(command("list", "decoder"), "unknown kind 'decoder'; did you mean 'decoders'")


def test_the_runs_of_a_folder_are_listed_with_their_metric(command: Command, run: Path) -> None:
    assert command("list", "runs").out == ""
    shutil.copytree(run, "runs/mine")
    mrr = open_run(run).metrics["test"]["mrr"]
    (found,) = json.loads(command("list", "runs", "--json").out)["runs"]
    assert (found["name"], found["reference"]) == ("runs/mine", f"test mrr {mrr:.4f}")
    Path("runs/mine/metrics.json").unlink()
    assert "not finished" in command("list", "runs").out
    Path("runs/mine/config.toml").write_text("format = 0\n")
    assert "cannot be read" in command("list", "runs").out
    assert "distmult" in command("list", "decoders").out


# Bad input

BAD_FILES = {
    "columns.tsv": (b"a\tr\tb\na\tr\nc\tr\td\n", ["'columns.tsv', line 2", "found 2 columns; correct the line"]),
    "wrong.toml": (b"[training]\nlrr = 1\n", ["wrong.toml", "unknown option 'training.lrr'"]),
    "nodata.toml": (b"[training]\nlr = 1\n", ["nodata.toml", "data.source"]),
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
    ("error", "code"),
    [
        (MemoryError(), 1),
        (torch.OutOfMemoryError("CUDA out of memory"), 1),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: ..."), 1),
        (KeyboardInterrupt(), 130),
        (RuntimeError("shapes differ"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_of_memory_and_ctrl_c_end_without_a_traceback_and_others_do_not(
    command: Command, run: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int | None
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("compgcn.run.run.open_run", fail)
    if code is None:
        with pytest.raises(RuntimeError, match="shapes differ"):
            command("evaluate", run)
        return
    result = command("evaluate", run)
    assert (result.code, result.out, "Traceback" in result.err) == (code, "", False)
    if code == 1:
        refused(result, "needs more memory than there is", "encoder.dims or training.batch_size")


@pytest.mark.parametrize(
    ("words", "shown"), [("data list --json | head -c 1", "["), ("--version", f"compgcn {compgcn.__version__}\n")]
)
def test_the_module_is_the_command_and_a_closed_pipe_no_error(words: str, shown: str) -> None:
    line = f"{sys.executable} -m compgcn {words}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=toy.ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr) == (0, shown, "")


def test_a_training_goes_on_without_a_reader_of_its_progress() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    lines = "from compgcn.cli.console import err\nfor _ in range(3): err.print('epoch')\nprint('trained')"
    done = subprocess.run([sys.executable, "-c", lines], stderr=writer, stdout=subprocess.PIPE, env=toy.ENVIRONMENT)
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, b"trained\n")
