"""The commands that fill the cache, look into it and check it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from compgcn.data.download import FILES, Archive, Files, Item
from server import Server, serving, sha, whole, zipped
from toy import Command

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
            archive = Archive("set.zip", sha(ZIP) if pinned else None, items, address=server.url("/set.zip"))
            monkeypatch.setitem(FILES, name, Files(tuple(PLAIN), (), "set", items, (archive,)))
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


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("packed", [False, True], ids=["files", "archive"])
def test_verify_reads_what_the_local_folder_has(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setenv("COMPGCN_DATA", str(tmp_path))
    (tmp_path / "set").mkdir()
    for part, data in ({"set.zip": ZIP} if packed else {f"{part}.txt": data for part, data in PLAIN.items()}).items():
        (tmp_path / "set" / part).write_bytes(data)
    shown = command("data", "verify", "made-up", "unhashed")
    assert shown.code == 0, shown
    assert re.search(r"^made-up +local +train.txt +ok *$", shown.out, re.MULTILINE)
    assert re.search(r"^unhashed +local +train.txt +unverified *$", shown.out, re.MULTILINE)
    assert f"fetched from '{tmp_path}'" in command("data", "fetch", "made-up", "--from", tmp_path).out
    (tmp_path / "set" / ("set.zip" if packed else "test.txt")).write_bytes(b"no")
    wrong = command("data", "verify", "made-up")
    assert wrong.code == 1
    assert "altered" in wrong.out
    assert f"not as it was published: made-up in COMPGCN_DATA, {tmp_path}" in wrong.err
    assert "nor in COMPGCN_DATA" in command("data", "verify", "nations").err


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
