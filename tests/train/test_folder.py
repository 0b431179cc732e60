"""A run folder survives anything: kills, full disks, damage, other versions, a second process."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import compgcn
import toy
from compgcn import config as configuration
from compgcn.data import Vocabulary
from compgcn.errors import InputError
from compgcn.run.run import open_run
from compgcn.train import storage
from compgcn.train.folder import Folder
from compgcn.train.loop import Interrupted
from toy import Killed, graph, killed_at_rename, lasting, train

# Everything a resumed run has to take up again: dropout, a schedule, a falling margin, early stopping.
TROUBLED: dict[str, dict[str, Any]] = {
    "conve, bce": {"epochs": 5, "schedule": "cosine", "schedule_start": 0.2, "lr": 0.05, "patience": 2},
    "transe, self-adversarial": {
        "decoder": "transe",
        "loss": "self-adversarial",
        "negatives": 4,
        "margin_decay": 0.5,
        "patience": 3,
        "epochs": 7,
        "lr": 0.05,
        "schedule": "linear",
        "encoder.hidden_dropout": 0.4,
        "composition": "sub",
    },
}


@pytest.fixture(autouse=True)
def margins_fall_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compgcn.tasks.link_prediction._STALE", 1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("finished") / "run").path


def test_a_finished_folder_holds_these_files_and_no_others(tmp_path: Path) -> None:
    run = train(tmp_path / "run", seed=3)
    files = toy.contents(run.path)
    assert set(files) == {*toy.LASTING, "events.jsonl", "environment.json", ".lock"}
    assert not any(content.startswith((b"\x80", b"PK")) for content in files.values()), "no file is a pickle"
    assert (run.path / "checkpoint").is_dir()
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["seed"] == 3
    assert environment["compgcn"] == compgcn.__version__
    assert {"commit", "python", "torch", "device", "time", "seconds", "peak_memory_mib"} <= set(environment)
    assert environment["peak_memory_mib"] > 10


def test_an_event_cut_short_by_a_kill_spoils_only_its_own_line(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.append({"event": "a"})
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"event": ')
    folder.append({"event": "c"})
    assert (tmp_path / "events.jsonl").read_text() == '{"event": "a"}\n{"event": "c"}\n'


def test_events_are_read_without_damaged_lines(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b'\xff\x00\n[]\nnull\n{}\n{"event": "a"}\n{"event": "b"')
    assert Folder(tmp_path).events() == [{"event": "a"}]


@given(sizes=st.tuples(st.integers(1, 6), st.integers(0, 4), st.integers(0, 4)))
def test_a_graph_comes_back_from_its_folder(
    sizes: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Folder(tmp_path_factory.mktemp("split=1") / "kind=2")
    full = graph()
    everything = np.concatenate(list(full.splits.values()))
    parts = np.split(everything[: sum(sizes)], np.cumsum(sizes)[:2])
    names = ['quo"te', "back\\slash", "ta\tb", "new\nline", "emoji 🦊", "Å", "", "x", "y", "z", "\u2028", "end"]
    entities = Vocabulary("entity", full.entities.ids, names)
    data = replace(full, entities=entities, **dict(zip(full.splits, parts, strict=True)))
    folder.create(configuration.Config(), data)
    back = folder.data("g")
    assert back.fingerprint() == data.fingerprint()
    assert back.entities.names == data.entities.names
    for split in data.splits:
        np.testing.assert_array_equal(back.splits[split], data.splits[split])


# killed and resumed


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["checkpoints", "few checkpoints"])
@pytest.mark.parametrize("name", TROUBLED)
def test_killed_at_every_rename_a_run_ends_with_the_same_bits(tmp_path: Path, name: str, seconds: float) -> None:
    settings = TROUBLED[name] | {"checkpoint_seconds": seconds}
    undisturbed = lasting(train(tmp_path / "undisturbed", **settings).path)
    folder, names, at, before, died = tmp_path / "run", list[str](), 0, True, list[str]()
    for life in range(1, 100):
        # A life renames one file more than the last, then dies; those of creation, a gain and the end recur.
        at = at + 1 if life <= 4 or "environment.json" in names else 2
        before = not before or names != ["model.safetensors", "state.safetensors"]
        try:
            with killed_at_rename(at, before=before) as names:
                train(folder, **settings)
            break
        except Killed:
            died.append(names[-1])
        if (folder / "model.safetensors").exists():
            assert len(open_run(folder).predict("p0", "lives")) == 10, "a killed run must open"
    assert {*toy.LASTING, "state.safetensors"} <= set(died)
    assert lasting(folder) == undisturbed
    assert not list(folder.rglob("*.part"))


OTHERWISE: list[dict[str, Any]] = [
    {"optimiser": "adagrad"},
    {"optimiser": "sgd"},
    {"decoder": "transe", "loss": "margin", "sampler": "kbgan", "negatives": 4},
    toy.CONDITIONAL,
]


@pytest.mark.parametrize("otherwise", OTHERWISE, ids=str)
def test_stopped_after_every_step_a_run_ends_with_the_same_bits(tmp_path: Path, otherwise: dict[str, Any]) -> None:
    settings = TROUBLED["conve, bce"] | {"checkpoint_seconds": 1e9, "epochs": 3} | otherwise
    undisturbed = lasting(train(tmp_path / "undisturbed", **settings).path)
    stops = 0
    for _ in range(100):
        events: list[dict[str, Any]] = []
        try:
            train(
                tmp_path / "run",
                notify=events.append,
                interrupted=lambda: events[-1]["event"] in ("step", "epoch"),  # noqa: B023
                **settings,
            )
            break
        except Interrupted:
            stops += 1
            assert (tmp_path / "run" / "checkpoint" / "state.safetensors").exists()
    assert stops >= 5
    assert lasting(tmp_path / "run") == undisturbed


@pytest.mark.parametrize(
    ("settings", "last"),
    [
        ({"checkpoint_seconds": 1e9, "epochs": 6}, "evaluate"),
        ({"checkpoint_seconds": 0.0, "epochs": 200, "patience": 2}, "epoch"),  # training has stopped early
    ],
    ids=["judged", "out of patience"],
)
def test_a_run_stopped_after_its_last_step_has_nothing_to_train_again(
    tmp_path: Path, settings: dict[str, Any], last: str
) -> None:
    settings, seen = {"lr": 0.05, **settings}, list[dict[str, Any]]()
    undisturbed = train(tmp_path / "undisturbed", notify=seen.append, **settings)
    moment = next(event for event in reversed(seen) if event["event"] == last) | {"seconds": 0}
    asked = False

    def notify(event: dict[str, Any]) -> None:
        nonlocal asked
        asked = event | {"seconds": 0} == moment

    with pytest.raises(Interrupted):
        train(tmp_path / "run", notify=notify, interrupted=lambda: asked, **settings)
    events: list[dict[str, Any]] = []
    train(tmp_path / "run", notify=events.append, **settings)
    assert [event["event"] for event in events if event["event"] != "progress"] == ["start", "evaluate", "end"]
    assert lasting(tmp_path / "run") == lasting(undisturbed.path)


CALIBRATED: dict[str, Any] = {"epochs": 2, "decoder": "distmult", "loss": "cross-entropy"}


def _ample() -> compgcn.KnowledgeGraph:
    """A graph with enough validation to be calibrated on."""
    return graph(people=40, towns=5, valid=30, test=30)


def test_a_run_stopped_at_any_moment_of_its_calibration_is_measured_and_has_only_that_left(tmp_path: Path) -> None:
    undisturbed, events = tmp_path / "undisturbed", list[dict[str, Any]]()
    train(undisturbed, _ample(), notify=events.append, **CALIBRATED)
    moments = [event for event in events if event.get("what", "").startswith("calibrating")]
    assert {event["what"].split()[1] for event in moments} == {"entities", "relations", "discoveries"}
    assert all(0 < event["done"] <= event["total"] for event in moments)
    for moment in moments:
        seen: list[dict[str, Any]] = []
        with pytest.raises(Interrupted):
            train(tmp_path / "run", _ample(), notify=seen.append, interrupted=lambda: moment in seen, **CALIBRATED)  # noqa: B023
        assert open_run(tmp_path / "run").metrics == open_run(undisturbed).metrics
        assert not (tmp_path / "run" / "calibration.json").exists()
    more: list[dict[str, Any]] = []
    train(tmp_path / "run", _ample(), notify=more.append, **CALIBRATED)
    assert [event for event in more if event["event"] != "start"] == [*moments, events[-1] | more[-1]]
    for name in (*toy.LASTING, "calibration.json"):
        assert (tmp_path / "run" / name).read_bytes() == (undisturbed / name).read_bytes()
    assert not any((tmp_path / "run" / "checkpoint").iterdir())


def test_a_classifier_killed_before_its_calibration_is_calibrated_by_the_same_command(tmp_path: Path) -> None:
    data = toy.labelled(60, valid=15)
    with killed_at_rename(0, before=True) as names:
        toy.classify(tmp_path / "undisturbed", data, protocol="holdout", epochs=3)
    assert names[-2:] == ["metrics.json", "calibration.json"]
    with killed_at_rename(len(names), before=True), pytest.raises(Killed):
        toy.classify(tmp_path / "run", data, protocol="holdout", epochs=3)
    assert open_run(tmp_path / "run").calibrated() is None
    assert toy.classify(tmp_path / "run", data, protocol="holdout", epochs=3).calibrated() == "valid"
    kept = [(tmp_path / name / "calibration.json").read_bytes() for name in ("undisturbed", "run")]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "finished"])
def test_a_run_that_overwrites_another_is_as_if_it_were_the_first(
    finished: Path, tmp_path: Path, stopped: bool
) -> None:
    with contextlib.suppress(Interrupted):
        train(tmp_path / "run", lr=0.5, interrupted=lambda: stopped)
    (tmp_path / "run" / "notes.json").write_text("mine")
    with pytest.raises(InputError, match=r"other options .*say --overwrite to remove that run"):
        train(tmp_path / "run")
    assert lasting(train(tmp_path / "run", overwrite=True).path) == lasting(finished)
    assert set(toy.contents(tmp_path / "run")) == {*toy.contents(finished), "notes.json"}
    assert (tmp_path / "run" / "events.jsonl").read_text().count('"start"') == 1, "the old events were removed too"


def test_a_folder_with_the_config_of_another_program_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    for name in ("config.toml", "metrics.json", "events.jsonl", "checkpoint/w.pt"):
        (tmp_path / name).write_text("[server]\nport = 80\n")
    before = toy.contents(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(InputError, match="is not a run folder"):
            train(tmp_path, overwrite=overwrite)
    assert toy.contents(tmp_path) == before


def test_a_second_process_is_refused_and_removes_nothing(finished: Path, tmp_path: Path) -> None:
    def second(event: dict[str, Any]) -> None:
        if event["event"] == "epoch":
            for overwrite in (False, True):
                with pytest.raises(InputError, match="another process is training"):
                    train(tmp_path / "run", overwrite=overwrite)

    assert lasting(train(tmp_path / "run", notify=second).path) == lasting(finished)
    before = toy.contents(tmp_path / "run")
    with pytest.raises(InputError):
        train(tmp_path / "run", overwrite=True, composition="rotate", **{"encoder.dims": (7, 7)})
    assert toy.contents(tmp_path / "run") == before


@pytest.mark.parametrize("k", [1, 3, 5])
def test_a_kill_while_a_run_is_removed_leaves_one_that_can_be_overwritten(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    unlink, removed = Path.unlink, 0

    def dying(self: Path, missing_ok: bool = False) -> None:
        nonlocal removed
        removed += 1
        if removed == k:
            raise Killed
        unlink(self, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", dying)
        with pytest.raises(Killed):
            train(tmp_path / "run", overwrite=True)
    assert lasting(train(tmp_path / "run", overwrite=True).path) == lasting(finished)


# a full disk


def _full(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("write", "k"),
    [
        *(("pq.write_table", k) for k in (0, 1)),
        ("Path.write_text", 0),
        ("os.fsync", 1),
        ("save_file", 0),
        ("save_file", 4),
    ],
)
def test_a_run_goes_on_where_the_disk_was_full(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str, k: int
) -> None:
    place, _, name = write.rpartition(".")
    module: Any = pq if place == "pq" else getattr(storage, place) if place else storage
    plain, calls = getattr(module, name), iter(range(1000))
    with monkeypatch.context() as patch:
        patch.setattr(module, name, lambda *args, **named: _full() if next(calls) >= k else plain(*args, **named))
        with pytest.raises(OSError, match=r"No space left on device(; the old file is untouched)?$"):
            train(tmp_path / "run", checkpoint_seconds=0.0)
    assert not list(tmp_path.rglob("*.part"))
    (tmp_path / "run" / "checkpoint" / ".state.0123abcd.part").touch()  # a kill leaves it
    train(tmp_path / "run", checkpoint_seconds=0.0)
    assert not list(tmp_path.rglob("*.part"))
    found, expected = lasting(tmp_path / "run"), lasting(finished)
    assert all(found[name] == expected[name] for name in found if name != "config.toml")


def test_a_full_disk_while_an_event_is_written_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"checkpoint_seconds": 1e9, "evaluate_every": 2}
    undisturbed = lasting(train(tmp_path / "undisturbed", **settings).path)
    with monkeypatch.context() as patch:

        def fill(event: dict[str, Any]) -> None:
            if event["event"] == "step" and event["epoch"] == 2:
                patch.setattr(Path, "open", _full)

        with pytest.raises(OSError, match=r"could not write .*events\.jsonl: No space left"):
            train(tmp_path / "run", notify=fill, **settings)
    assert lasting(train(tmp_path / "run", **settings).path) == undisturbed


# versions


def test_a_folder_of_a_newer_format_is_refused(finished: Path, tmp_path: Path) -> None:
    path = shutil.copytree(finished, tmp_path / "run") / "config.toml"
    path.write_text(path.read_text().replace("format = 1", "format = 2"))
    for use in (open_run, train):
        with pytest.raises(InputError, match=r"format 2, and this version of compgcn reads 1; update compgcn"):
            use(tmp_path / "run")


# damage


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "another table": lambda path: pq.write_table(pa.table({"other": [1, 2]}), path),
    "object": lambda path: path.write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", toy.LASTING)
def test_a_damaged_file_is_one_sentence_that_names_it(
    finished: Path,
    tmp_path: Path,
    name: str,
    damage: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    command = toy.command(monkeypatch, capfd)
    DAMAGES[damage](tmp_path / "run" / name)
    before = toy.contents(tmp_path / "run")
    if name == "metrics.json" and damage == "gone":
        return  # that is an unfinished run
    toy.refused(command("evaluate", tmp_path / "run"), "run")
    toy.refused(
        command("predict", tmp_path / "run", "--head", "p0", "--relation", "lives"),
        name if name != "config.toml" else "run",
    )
    assert toy.contents(tmp_path / "run") == before


@pytest.mark.parametrize("damage", ["gone", "cut", "object"])
def test_a_damaged_environment_is_one_sentence_that_names_it(finished: Path, tmp_path: Path, damage: str) -> None:
    path = shutil.copytree(finished, tmp_path / "run")
    DAMAGES[damage](path / "environment.json")
    with pytest.raises(InputError, match=r"is damaged: environment\.json"):
        Folder(path).seconds()


@pytest.mark.parametrize("name", ["triples.parquet", "vocabulary.parquet"])
def test_a_flipped_bit_in_a_table_is_found(finished: Path, tmp_path: Path, name: str) -> None:
    path = shutil.copytree(finished, tmp_path / "run") / name
    place = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    begun = place.dictionary_page_offset if place.has_dictionary_page else place.data_page_offset
    content[begun + place.total_compressed_size - 1] ^= 1  # the last byte of a page
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"is damaged: {re.escape(name)}"):
        open_run(path.parent)


def test_a_flipped_bit_in_the_weights_is_found(finished: Path, tmp_path: Path) -> None:
    path = shutil.copytree(finished, tmp_path / "run") / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"are damaged .*not those that training wrote"):
        open_run(path.parent).predict("p0", "lives")


def test_a_damaged_vocabulary_is_found_before_training(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(tmp_path / "run", interrupted=lambda: True)
    DAMAGES["cut"](tmp_path / "run" / "vocabulary.parquet")
    events = list[object]()
    with pytest.raises(InputError, match=r"is damaged: vocabulary\.parquet"):
        train(tmp_path / "run", notify=events.append)
    assert not events


@pytest.mark.parametrize("damage", ["other shapes", "missing", "files", "rows"])
def test_weights_of_another_model_are_refused(finished: Path, tmp_path: Path, damage: str) -> None:
    path = shutil.copytree(finished, tmp_path / "run") / "model.safetensors"
    tensors = load_file(path)
    nodes = tensors.pop("encoder.nodes")
    if damage == "other shapes":
        tensors["encoder.nodes"] = nodes[:-1].clone()
    save_file(tensors, path, {damage: "[1, '../../x']"} if damage in ("files", "rows") else None)
    made = path.with_name("environment.json")
    made.write_text(json.dumps({**json.loads(made.read_text()), "weights": None}))  # as if training had written these
    with pytest.raises(InputError, match="of another model") as caught:
        open_run(path.parent).predict("p0", "lives")
    assert "\n" not in str(caught.value)
    assert ":)" not in str(caught.value), "the reason is missing"


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("folder.pq.read_table", pa.ArrowMemoryError("malloc of size 1728 failed")),
        ("folder.load_tensors", RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")),
        ("folder.load_tensors", OSError(errno.EMFILE, "Too many open files")),
        ("folder.pq.read_table", OSError(errno.EMFILE, "Too many open files")),
    ],
)
def test_a_run_that_could_not_be_read_is_not_called_damaged(
    command: toy.Command, finished: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: Exception
) -> None:
    def fail(*args: object, **named: object) -> None:
        raise error

    monkeypatch.setattr(f"compgcn.train.{function}", fail)
    result = command("predict", finished, "--head", "p0", "--relation", "lives")
    toy.refused(result, error.strerror if isinstance(error, OSError) else "more memory than there is")
    assert "damaged" not in result.err


def _other_shapes(path: Path) -> None:
    tensors = {name: value.flatten()[:1].clone() for name, value in load_file(path).items()}
    save_file(tensors, path, {"progress": "{}"})


CHECKPOINTS: dict[str, Callable[[Path], object]] = {
    "cut": DAMAGES["cut"],
    "no metadata": lambda path: save_file(load_file(path), path),
    "other shapes": _other_shapes,
    "unknown fields": lambda path: save_file(load_file(path), path, {"progress": '{"step": 1, "colour": 2}'}),
}


@pytest.mark.parametrize("damage", CHECKPOINTS)
def test_a_damaged_checkpoint_is_one_sentence_that_says_what_to_do(finished: Path, tmp_path: Path, damage: str) -> None:
    with pytest.raises(Interrupted):
        train(tmp_path / "run", interrupted=lambda: True)
    path = tmp_path / "run" / "checkpoint" / "state.safetensors"
    CHECKPOINTS[damage](path)
    with pytest.raises(InputError, match=r"checkpoint .* is damaged .*; delete it to train from the start") as caught:
        train(tmp_path / "run")
    assert "\n" not in str(caught.value)
    path.unlink()
    train(tmp_path / "run")
    assert lasting(tmp_path / "run") == lasting(finished)


@pytest.mark.parametrize("kind", ["file", "folder with files", "read-only"])
def test_a_place_that_is_no_run_folder_is_left_as_it_is(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        if kind == "folder with files":
            (place / "mine.txt").write_text("mine")
        else:
            if os.geteuid() == 0:
                pytest.skip("no folder is read-only to root")
            place.chmod(0o500)
    before = toy.contents(tmp_path)
    with pytest.raises(InputError, match="place"):
        train(place)
    assert toy.contents(tmp_path) == before
    assert [path.name for path in tmp_path.rglob("*")] in (["place"], ["place", "mine.txt"])


def test_all_files_of_a_run_are_as_open_as_any_other(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    modes = {path.name: path.stat().st_mode & 0o777 for path in finished.iterdir() if path.is_file()}
    assert set(modes.values()) == {(tmp_path / "plain").stat().st_mode & 0o777}, modes
