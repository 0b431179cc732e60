"""The commands about data sets: `data list`, `info`, `fetch` and `verify`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import toy
from compgcn.data.download import FILES, Archive, Files, Item
from server import Server, serving, sha, whole, zipped
from toy import Command, graph, refused, write_tsv

TU = {"A": "1, 2\n2, 1\n", "graph_indicator": "1\n1\n2\n", "graph_labels": "0\n1\n", "node_labels": "3\n3\n4\n"}


@pytest.fixture
def molecules(tmp_path: Path) -> Path:
    folder = tmp_path / "molecules"
    folder.mkdir()
    for name, text in TU.items():
        (folder / f"M_{name}.txt").write_text(text)
    return folder


@pytest.mark.parametrize("words", [["--columns", "3,0,1"], ["--columns", "d,a,b"], ["--set", "columns=d,a,b"]])
def test_the_columns_of_a_table_are_named_as_for_train(command: Command, words: list[str]) -> None:
    header = "" if words[1][0] == "3" else "a,b,c,d\n"
    Path("table.csv").write_text(header + "".join(f"likes,tea,x{i},p{i}\n" for i in range(9)))
    report = json.loads(command("data", "info", "table.csv", *words, "--json").out)
    assert report["by_relation"] == {"likes": 9}
    assert report["entities"] == 10


def test_a_folder_of_graphs_is_described(command: Command, molecules: Path) -> None:
    shown = command("data", "info", molecules).out
    assert "M: 2 graphs, 3 nodes, 2 edges (1.5 and 1.0 a graph), 1 relation, 2 node labels, 2 classes" in shown
    assert "note: 1 graph without an edge kept" in shown
    assert re.search(r"^ *3 +2 +66\.7 %", shown, re.MULTILINE)
    report = json.loads(command("data", "info", molecules, "--json").out)
    assert report["graphs"] == 2
    assert report["distributions"]["classes of graphs"] == {"all": {"0": 1, "1": 1}}


def test_few_or_no_validation_triples_are_noted(command: Command, tmp_path: Path) -> None:
    lines = [f"a\tr\ta{i}\n" for i in range(100)] + [f"b{i}\tr\tb{j}\n" for i in range(6) for j in range(i)]
    (tmp_path / "small.tsv").write_text("".join(lines))
    shown = command("data", "info", "small.tsv").out
    assert "115 triples (104 train, 5 valid, 6 test)" in shown
    assert "note: only 5 validation triples: which epoch is best is a matter of chance" in shown
    (tmp_path / "once.tsv").write_text("".join(f"a{i}\tr\tb{i}\n" for i in range(50)))
    shown = command("data", "info", "once.tsv").out
    assert "split into 50 / 0 / 0 (train / valid / test)" in shown
    assert "every entity and every relation must keep a triple in train" in shown
    assert "note: no validation triples: which epoch is best cannot be told, and the last one is kept" in shown
    assert "valid" not in command("data", "info", "world").out.partition("note:")[2].partition("\n")[0]


def test_sizes_stand_beside_the_published(command: Command) -> None:
    assert re.search(r"^entities +3,090 +3,090", command("data", "info", "world").out, re.MULTILINE)
    assert json.loads(command("data", "info", "world", "--json").out)["published"]["entities"] == 3090


def test_a_figure_is_drawn_and_a_bad_ending_refused_before_any_work(command: Command, molecules: Path) -> None:
    pytest.importorskip("matplotlib")
    assert "the figure is x.png" in command("data", "info", molecules, "--plot", "x.png").out
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
    refused(command("data", "info", "nothing.tsv", "--plot", "x.gif"), "a .png, .pdf or .svg file")


def test_a_terminal_without_blocks_gets_question_marks(tmp_path: Path) -> None:
    write_tsv(tmp_path / "x.tsv", graph())
    line = [sys.executable, "-m", "compgcn", "data", "info", "x.tsv"]
    environment = {**toy.ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert shown.isascii()
    assert "??" in shown


PLAIN = {part: f"{part}\tr\to\n".encode() for part in ("train", "valid", "test")}
ZIP = zipped({f"{part}.txt": data for part, data in PLAIN.items()})


@pytest.fixture
def command(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    monkeypatch.setenv("COMPGCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COMPGCN_DATA", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    return command


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """It serves two data sets, one of them without a checksum."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as server:
        server.answers["/set.zip"] = whole(ZIP)
        for name, pinned in (("made-up", True), ("unhashed", False)):
            items = {part: Item(f"{part}.txt", sha(data) if pinned else None) for part, data in PLAIN.items()}
            archive = Archive("set.zip", items, sha(ZIP) if pinned else None, address=server.url("/set.zip"))
            monkeypatch.setitem(FILES, name, Files(tuple(PLAIN), "set", items, archives=(archive,)))
        yield server


@pytest.mark.usefixtures("server")
def test_data_sets_are_fetched_and_said_to_be_there_afterwards(
    command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    first = command("data", "fetch", "made-up", "unhashed", "world")
    assert first.code == 0, first
    assert "made-up: fetched from 127.0.0.1 (set.zip), 3 files, checksums verified" in first.out
    assert "unhashed: fetched from 127.0.0.1 (set.zip), 3 files, not verified: train.txt, valid.txt" in first.out
    assert "world: comes with the package" in first.out
    assert "made-up: downloading set.zip from 127.0.0.1" in caplog.messages  # pytest has the place of our handler
    again = command("data", "fetch", "made-up", "--json")
    assert again.err == ""
    (row,) = json.loads(again.out)
    assert (row["name"], row["already"]) == ("made-up", True)
    assert [(file["role"], file["verified"]) for file in row["files"]] == [(part, True) for part in PLAIN]
    assert all(Path(file["path"]).read_bytes() == PLAIN[file["role"]] for file in row["files"])


@pytest.mark.usefixtures("server")
def test_verify_says_what_is_right_unverified_and_altered(command: Command, tmp_path: Path) -> None:
    empty = command("data", "verify")
    assert (empty.code, empty.out) == (0, f"there is no data set in the cache {tmp_path / 'cache'}\n")
    command("data", "fetch", "made-up", "unhashed")
    result = command("data", "verify")
    assert result.code == 0, result
    assert re.search(r"^made-up +cached +train.txt +ok *$", result.out, re.MULTILINE)
    assert re.search(r"^unhashed +cached +train.txt +unverified *$", result.out, re.MULTILINE)
    (tmp_path / "cache" / "unhashed" / "test.txt").write_bytes(b"no\tr\tno\n")
    result = command("data", "verify", "--json")
    assert result.code == 1
    states = {(row["name"], row["file"]): row["status"] for row in json.loads(result.out)}
    assert states["unhashed", "test.txt"] == "altered"
    assert states["made-up", "test.txt"] == "ok"
    assert result.err == "error: not as it was fetched: unhashed; run compgcn data fetch unhashed\n"
    assert command("data", "verify", "made-up").code == 0
    missing = command("data", "verify", "nations")
    assert missing.code == 1
    assert "'nations' is not in the cache" in missing.err


def test_the_list_says_where_each_data_set_is(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def places() -> dict[str, str]:
        return {row["name"]: row["where"] for row in json.loads(command("data", "list", "--json").out)}

    assert places()["world"] == "embedded"
    assert places()["nations"] == "to fetch"
    folder = tmp_path / "data" / "small-kg" / "nations"
    folder.mkdir(parents=True)
    for part in PLAIN:
        (folder / f"{part}.txt").write_text("a\tr\tb\n")
    monkeypatch.setenv("COMPGCN_DATA", str(tmp_path / "data"))
    assert places()["nations"] == "local"
    shown = command("data", "list").out
    assert re.search(r"^nations +link +14 +55 +1,992 +local ", shown, re.MULTILINE)
    assert max(map(len, shown.splitlines())) <= 80
