"""Whatever happens on the way, the cache has a data set whole and checked, or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clock import HANGS
from compgcn.data import download
from compgcn.data.download import Archive, Files, Item, UnavailableError
from compgcn.errors import InputError
from server import Server, cut, held, resumable, sha, tarred, whole, zipped

PLAIN = {part: f"{part}\tr\to\n".encode() * 3000 for part in ("train", "valid", "test")}
ZIP = zipped({f"set/{part}.txt": data for part, data in PLAIN.items()})
SDIST = tarred({"pkg-1.0/setup.py": b"raise SystemExit('ran')", **{f"pkg-1.0/d/{p}.txt": d for p, d in PLAIN.items()}})


def files(
    server: Server | None = None, archive: bytes = ZIP, *, pin: bool = True, package: bytes | None = None
) -> Files:
    """A data set on a server, perhaps also in a package; pinned by checksums or not."""
    known = {part: sha(data) if pin else None for part, data in PLAIN.items()}
    address = server.url("/set.zip") if server else "http://127.0.0.1:9/set.zip"
    items = {part: Item(f"set/{part}.txt", known[part]) for part in PLAIN}
    archives = [Archive("set.zip", sha(archive) if pin else None, items, address=address)]
    if package is not None:
        items = {part: Item(f"pkg-1.0/d/{part}.txt", known[part]) for part in PLAIN}
        archives.append(Archive("pkg-1.0.tar.gz", sha(package), items, project="pkg"))
    local = {part: Item(f"{part}.txt", known[part]) for part in PLAIN} | {"names": Item("names.txt", sha(b"a\tb\n"))}
    return Files(tuple(PLAIN), ("names",), "set", local, tuple(archives), limit_mib=1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one's own, and none of this machine's folders or indexes."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("COMPGCN_DATA", raising=False)
    monkeypatch.setenv("COMPGCN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def contents(row: Files) -> dict[str, bytes]:
    entries = download.entries("made-up", row)
    assert entries is not None
    return {role: entry.path.read_bytes() for role, entry in entries.items()}


def left(home: Path) -> set[str]:
    """What is in the cache but for locks: data sets, and parts of downloads."""
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file() and path.suffix != ".lock"}


WHOLE = {"made-up/manifest.json", "made-up/train.txt", "made-up/valid.txt", "made-up/test.txt"}


# Mirrors


def test_a_data_set_comes_from_its_public_address_and_then_from_the_cache(server: Server, home: Path) -> None:
    row = files(server)
    server.answers["/set.zip"] = whole(ZIP)
    steps: list[int] = []
    (first,) = download.fetch({"made-up": row}, notify=lambda name, done, total: steps.append(done))
    assert contents(row) == PLAIN
    assert steps[-1] == len(ZIP)
    assert (first.already, first.mirror) == (False, "127.0.0.1 (set.zip)")
    assert all(entry.verified for entry in first.entries.values())
    assert left(home) == WHOLE  # the archive was needed only for a while
    assert download.fetch({"made-up": row})[0].already
    assert server.paths() == ["/set.zip"]


def test_where_only_an_index_is_reached_the_package_is_read_and_not_run(
    server: Server, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", server.url("/simple"))
    server.answers["/simple/pkg/"] = whole(b'<a href="/files/pkg-1.0.tar.gz">pkg-1.0.tar.gz</a>', kind="text/html")
    server.answers["/files/pkg-1.0.tar.gz"] = whole(SDIST)
    row = files(package=SDIST)
    with caplog.at_level(logging.INFO):
        (done,) = download.fetch({"made-up": row})
    assert done.mirror == "the package file pkg-1.0.tar.gz"
    assert contents(row) == PLAIN
    assert left(home) == WHOLE
    failed = [record.message for record in caplog.records if "could not be reached" in record.message]
    assert failed == ["made-up: 127.0.0.1 could not be reached (Connection refused)"]  # one line, and on to the next


def test_one_download_serves_two_data_sets(server: Server) -> None:
    server.answers["/set.zip"] = whole(ZIP)
    row = files(server)
    assert [done.name for done in download.fetch({"one": row, "two": row})] == ["one", "two"]
    assert server.paths() == ["/set.zip"]


def folder_of(tmp_path: Path, layout: str) -> Path:
    base = tmp_path / "from"
    inner = {"plain": base / "set", "here": base, "zip": base / "set", "sdist": base}[layout]
    inner.mkdir(parents=True)
    if layout in ("plain", "here"):
        for part, data in PLAIN.items():
            (inner / f"{part}.txt").write_bytes(data)
    else:
        name, data = {"zip": ("set.zip", ZIP), "sdist": ("pkg-1.0.tar.gz", SDIST)}[layout]
        (inner / name).write_bytes(data)
    (inner / "names.txt").write_bytes(b"a\tb\n")
    return base


@pytest.mark.parametrize("layout", ["plain", "here", "zip", "sdist"])
def test_a_local_folder_gives_its_files_its_archive_and_its_names(tmp_path: Path, layout: str) -> None:
    row = files(package=SDIST)
    download.fetch({"made-up": row}, folder_of(tmp_path, layout))
    assert contents(row) == {**PLAIN, "names": b"a\tb\n"}


@pytest.mark.parametrize("layout", ["plain", "zip", "sdist"])
def test_the_folder_of_the_variable_is_read_in_place(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setenv("COMPGCN_DATA", str(folder_of(tmp_path, layout)))
    row = files(package=SDIST)
    assert download.place("made-up", row) == "local"
    with download.located("made-up", row) as paths:
        assert {role: path.read_bytes() for role, path in paths.items()} == {**PLAIN, "names": b"a\tb\n"}
    assert not home.exists()
    download.fetch({"made-up": row})
    assert contents(row) == {**PLAIN, "names": b"a\tb\n"}


def test_altered_files_in_the_given_folder_are_refused(tmp_path: Path, home: Path) -> None:
    source = folder_of(tmp_path, "plain")
    (source / "set" / "test.txt").write_bytes(b"x\tr\ty\n")
    with pytest.raises(InputError, match=r"'test.txt' from '.*from' is not the published file: its sha256 differs"):
        download.fetch({"made-up": files()}, source)
    assert left(home) == set()


def test_what_a_given_folder_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not hold the data set 'made-up': there is no file '.*/set/train.txt'"):
        download.fetch({"made-up": files()}, tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        download.fetch({"made-up": files()}, tmp_path / "none")


def test_first_use_fetches_and_later_use_does_not(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/set.zip"] = whole(ZIP)
    row = files(server)
    assert download.place("made-up", row) == "to fetch"
    for _ in range(2):
        with download.located("made-up", row) as paths:
            assert {role: path.read_bytes() for role, path in paths.items()} == PLAIN
    assert server.paths() == ["/set.zip"]
    assert download.place("made-up", row) == "cached"
    monkeypatch.setenv("COMPGCN_DATA", str(tmp_path))  # it does not hold the data set, the cache does
    with download.located("made-up", row) as paths:
        assert set(paths) == set(PLAIN)


def test_offline_one_sentence_says_what_was_tried_and_what_to_do() -> None:
    with pytest.raises(InputError) as failure:
        download.fetch({"made-up": files(package=SDIST)})
    said = str(failure.value)
    assert said.startswith("the data set 'made-up' could not be fetched: 127.0.0.1 could not be reached (Connection")
    assert said.endswith(
        "connect to a network that has it, or run compgcn data fetch made-up --from DIR, "
        "or set COMPGCN_DATA, with a folder that holds 'set'"
    )
    assert "\n" not in said


def test_a_data_set_without_a_mirror_says_so(tmp_path: Path) -> None:
    row = files()._replace(archives=())
    assert download.place("made-up", row) == "missing"
    with pytest.raises(InputError, match="is in no public place: run compgcn data fetch made-up --from DIR"):
        download.fetch({"made-up": row})


# Without a checksum


def test_a_file_nobody_hashed_is_pinned_when_it_first_comes_and_said_to_be_unverified(
    server: Server, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers["/set.zip"] = whole(ZIP)
    row = files(server, pin=False)
    (done,) = download.fetch({"made-up": row})
    assert "no checksum of train.txt, valid.txt, test.txt is published" in caplog.text
    assert not any(entry.verified for entry in done.entries.values())
    assert {role: entry.sha256 for role, entry in done.entries.items()} == {part: sha(d) for part, d in PLAIN.items()}
    assert {state for _, state in download.verify("made-up", row).values()} == {"unverified"}
    paths = {role: entry.path for role, entry in done.entries.items()}
    assert download.unverified("made-up", row, paths) == ["train.txt", "valid.txt", "test.txt"]
    altered = paths["train"].read_bytes().replace(b"r", b"R")
    paths["train"].write_bytes(altered)
    assert download.verify("made-up", row)["train"][1] == "altered"
    server.answers["/set.zip"] = whole(zipped({f"set/{p}.txt": d + b"!" for p, d in PLAIN.items()}))
    caplog.clear()
    download.fetch({"made-up": row})
    assert "train.txt is not what was first downloaded" in caplog.text


@pytest.mark.parametrize("alter", [bytes.upper, lambda data: data[:-1]])
def test_a_pin_outlives_an_altered_file_and_a_fetch_that_fails(
    server: Server, home: Path, alter: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    server.answers["/set.zip"] = whole(ZIP)
    row = files(server, pin=False)
    download.fetch({"made-up": row})
    train = home / "made-up" / "train.txt"
    train.write_bytes(alter(PLAIN["train"]))
    server.answers.clear()
    with pytest.raises(InputError, match="could not be fetched"):
        download.fetch({"made-up": row})
    assert train.read_bytes() == alter(PLAIN["train"])
    assert download.pins("made-up") == {part: sha(data) for part, data in PLAIN.items()}
    server.answers["/set.zip"] = whole(zipped({f"set/{part}.txt": b"x\tr\ty\n" for part in PLAIN}))
    download.fetch({"made-up": row})
    assert "train.txt is not what was first downloaded" in caplog.text


# Faults

BAD = {
    "truncated": lambda: cut(ZIP, 0),
    "altered": lambda: whole(ZIP[:-1] + b"!"),
    "another file": lambda: whole(b"x" * 1000),
    "a web page": lambda: whole(b"<html></html>", kind="text/html"),
    "an error": lambda: lambda request: request.send(b"", status=503),
    "a stall": lambda: held(ZIP, 100),
    "too much": lambda: whole(bytes(2 << 20)),
}
UNTRUSTED = {
    "leads outside": zipped({"../set/train.txt": b"", **{f"set/{part}.txt": data for part, data in PLAIN.items()}}),
    "absolute": tarred({"/set/train.txt": b"", **{f"set/{part}.txt": data for part, data in PLAIN.items()}}),
    "bomb": zipped({f"set/{part}.txt": bytes(4 << 20) for part in PLAIN}),
    "cut": tarred({f"set/{part}.txt": data for part, data in PLAIN.items()})[:-20],
    "incomplete": zipped({"set/train.txt": PLAIN["train"]}),
}


# Without a checksum, a byte of a zip's end cannot be told from another.
@pytest.mark.parametrize(("fault", "pin"), [(f, pin) for f in BAD for pin in (True, False) if pin or f != "altered"])
def test_a_bad_mirror_leaves_nothing_wrong_behind_and_a_good_one_mends_it(
    server: Server, home: Path, hasty: pytest.MonkeyPatch, fault: str, pin: bool
) -> None:
    if fault != "a stall":
        hasty.undo()
    server.answers["/set.zip"] = BAD[fault]()
    row = files(server, pin=pin)
    with pytest.raises(InputError, match="'made-up' could not be fetched"):
        download.fetch({"made-up": row})
    assert download.entries("made-up", row) is None
    assert left(home) <= {"downloads/set.zip.part"}
    hasty.undo()
    server.answers["/set.zip"] = resumable(ZIP)
    download.fetch({"made-up": row})
    assert contents(row) == PLAIN
    assert left(home) == WHOLE


@pytest.mark.parametrize("fault", UNTRUSTED)
def test_an_archive_that_is_not_to_be_trusted_is_not_let_in(server: Server, home: Path, fault: str) -> None:
    server.answers["/set.zip"] = whole(UNTRUSTED[fault])
    with pytest.raises(InputError, match=r"'made-up' could not be fetched: (the archive|'.*') "):
        download.fetch({"made-up": files(server, pin=False)})
    assert left(home) == set()


def test_right_archive_wrong_member_is_refused(server: Server, home: Path) -> None:
    other = zipped({f"set/{part}.txt": b"other" for part in PLAIN})
    server.answers["/set.zip"] = whole(other)
    row = files(server)
    row = row._replace(archives=(row.archives[0]._replace(sha256=None),))
    with pytest.raises(InputError, match=r"'train.txt' from 127.0.0.1 .* is not the published file"):
        download.fetch({"made-up": row})
    assert left(home) == set()


@contextlib.contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [10, len(ZIP) + 10])  # for less than the archive, or for no more than that
def test_a_full_disk_is_a_sentence_and_with_room_again_all_is_well(server: Server, home: Path, room: int) -> None:
    server.answers["/set.zip"] = resumable(ZIP)
    row = files(server)
    with full_disk(room), pytest.raises(InputError, match=r"could not write to the cache .*; make room there, or set"):
        download.fetch({"made-up": row})
    assert download.entries("made-up", row) is None
    assert left(home) <= {"downloads/set.zip.part"}
    download.fetch({"made-up": row})
    assert contents(row) == PLAIN


def test_no_space_left_while_copying_is_the_same_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(download.shutil, "copyfile", full)
    with pytest.raises(InputError, match=r"No space left on device .*; make room there, or set COMPGCN_CACHE"):
        download.fetch({"made-up": files()}, folder_of(tmp_path, "plain"))


def test_a_cache_that_cannot_be_written_is_a_sentence(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/set.zip"] = whole(ZIP)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("COMPGCN_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InputError, match=r"could not write to the cache .*Not a directory"):
        download.fetch({"made-up": files(server)})
    with pytest.raises(InputError, match=r"could not write to the cache .*Not a directory"):
        download.fetch({"made-up": files(server)}, folder_of(tmp_path, "plain"))


def test_a_read_only_cache_is_a_sentence_and_what_is_in_it_can_be_read(
    server: Server, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/set.zip"] = whole(ZIP)
    row = files(server)
    download.fetch({"made-up": row})
    home.chmod(0o555)
    (home / "downloads").chmod(0o555)

    def refuse(*_: object, **__: object) -> None:  # the superuser may write where others may not
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with download.located("made-up", row) as paths:
        assert paths["test"].read_bytes() == PLAIN["test"]
    with pytest.raises(InputError, match=r"could not write to the cache .*Read-only file system"):
        download.fetch({"other": row})
    home.chmod(0o755)
    (home / "downloads").chmod(0o755)


# Processes

SCRIPT = """
import json, sys
from compgcn.data import download
from compgcn.data.download import Archive, Files, Item
address, digest, hashes = json.loads(sys.argv[1])
items = {part: Item(f"set/{part}.txt", known) for part, known in hashes.items()}
archive = Archive("set.zip", digest, items, address=address)
download.STALL_SECONDS = 300.0
print("ready", flush=True)
download.fetch({"made-up": Files(tuple(hashes), (), "set", {}, (archive,))})
"""


def start(server: Server) -> subprocess.Popen[bytes]:
    given = json.dumps([server.url("/set.zip"), sha(BIG), {part: sha(data) for part, data in PLAIN.items()}])
    command = [sys.executable, "-c", SCRIPT, given]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


BIG = zipped({"set/pad": os.urandom(300_000), **{f"set/{part}.txt": data for part, data in PLAIN.items()}})


def wait_for(path: Path, size: int, process: subprocess.Popen[bytes]) -> None:
    while not (path.exists() and path.stat().st_size >= size):
        assert process.poll() is None, "the download did not begin"
        time.sleep(0.01)


def test_a_killed_fetch_is_taken_up_by_the_next(server: Server, home: Path) -> None:
    server.answers["/set.zip"] = held(BIG, 200_000)
    process = start(server)
    part = home / "downloads" / "set.zip.part"
    wait_for(part, 60_000, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    have = part.stat().st_size
    assert 60_000 <= have <= 200_000 < len(BIG)
    assert not (home / "made-up").exists()
    server.answers["/set.zip"] = resumable(BIG)
    row = files(server, BIG)
    download.fetch({"made-up": row})
    assert contents(row) == PLAIN
    assert server.seen[-1][1]["Range"] == f"bytes={have}-"


def test_two_fetches_at_once_download_once_and_both_succeed(server: Server, home: Path) -> None:
    go = threading.Event()
    server.answers["/set.zip"] = held(BIG, 200_000, go)
    first = start(server)
    wait_for(home / "downloads" / "set.zip.part", 1, first)
    second = start(server)
    go.set()
    for process in (first, second):
        process.communicate(timeout=HANGS)
        assert process.returncode == 0
    assert contents(files(server, BIG)) == PLAIN
    assert server.paths() == ["/set.zip"]
    assert left(home) == WHOLE


def test_where_the_system_has_no_such_lock_each_process_downloads_for_itself(
    server: Server, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    server.answers["/set.zip"] = whole(ZIP)
    row = files(server)
    with download.locked("set.zip") as one, download.locked("set.zip") as other:
        assert one == other == home / "downloads" / f"{os.getpid()}-set.zip"
    download.fetch({"made-up": row})
    assert contents(row) == PLAIN
    assert left(home) == WHOLE


def test_a_download_in_use_by_another_process_is_not_removed(home: Path) -> None:
    with download.locked("set.zip") as path:
        assert path is not None
        path.write_bytes(ZIP)
        download.discard("set.zip")
        assert path.exists()
    download.discard("set.zip")
    assert left(home) == set()


def test_a_data_set_put_in_place_by_another_process_is_left_alone(tmp_path: Path, home: Path) -> None:
    row = files()
    with download.staging("made-up") as slower:
        download.fetch({"made-up": row}, folder_of(tmp_path, "plain"))
        before = (home / "made-up").stat().st_ino
        for part, data in PLAIN.items():
            (slower / f"{part}.txt").write_bytes(data)
        download.commit(slower, "made-up", row, {part: slower / f"{part}.txt" for part in PLAIN}, "elsewhere")
    assert (home / "made-up").stat().st_ino == before
    assert not list(home.glob(".staging-*"))


def test_what_a_killed_process_was_assembling_is_removed_after_a_day(tmp_path: Path, home: Path) -> None:
    for age, name in ((0, ".staging-made-up-new"), (2 * 86400, ".staging-made-up-old")):
        (home / name).mkdir(parents=True)
        os.utime(home / name, (time.time() - age, time.time() - age))
    download.fetch({"made-up": files()}, folder_of(tmp_path, "plain"))
    assert [path.name for path in home.glob(".staging-*")] == [".staging-made-up-new"]


def test_a_folder_that_another_process_removes_meanwhile_is_no_matter(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = home / ".staging-made-up-gone"
    found = Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, pattern: [gone] if path == home else found(path, pattern))
    download.fetch({"made-up": files()}, folder_of(tmp_path, "plain"))
    assert download.place("made-up", files()) == "cached"


def test_the_folder_has_the_rights_of_any_other_and_the_mask_of_the_process_is_not_touched(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("other threads share it"))
    download.fetch({"made-up": files()}, folder_of(tmp_path, "plain"))
    assert (home / "made-up").stat().st_mode == (tmp_path / "other").stat().st_mode


# The cache


def test_an_altered_cache_is_noticed_and_fetched_again(server: Server, home: Path) -> None:
    server.answers["/set.zip"] = whole(ZIP)
    row = files(server)
    for alter in (
        lambda: (home / "made-up" / "train.txt").write_bytes(PLAIN["train"][:-1]),
        lambda: (home / "made-up" / "train.txt").write_bytes(PLAIN["train"].replace(b"r", b"R")),
        lambda: (home / "made-up" / "valid.txt").unlink(),
        lambda: (home / "made-up" / "manifest.json").write_text("{"),
        lambda: (home / "made-up" / "manifest.json").write_text('{"files": {"train": {"file": "../../x"}}}'),
        lambda: (home / "made-up" / "manifest.json").unlink(),
    ):
        download.fetch({"made-up": row})
        assert {state for _, state in download.verify("made-up", row).values()} == {"ok"}
        alter()
        assert {state for _, state in download.verify("made-up", row).values()} & {"altered", "missing"}
    (done,) = download.fetch({"made-up": row})
    assert not done.already
    assert contents(row) == PLAIN


def test_a_file_with_a_checksum_that_is_no_longer_published_is_fetched_again(server: Server, tmp_path: Path) -> None:
    server.answers["/set.zip"] = whole(ZIP)
    row = files(server)
    download.fetch({"made-up": row})
    newer = row._replace(
        local={part: Item(f"{part}.txt", sha(b"new")) for part in PLAIN},
        archives=(row.archives[0]._replace(items={p: Item(f"set/{p}.txt", sha(b"new")) for p in PLAIN}),),
    )
    assert download.entries("made-up", newer) is None
    with pytest.raises(InputError, match="is not the published file"):
        download.fetch({"made-up": newer})
    assert contents(row) == PLAIN  # and what was there is not lost


def test_the_cache_is_where_the_variables_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert download.root() == tmp_path / "cache"
    monkeypatch.delenv("COMPGCN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert download.root() == tmp_path / "xdg" / "compgcn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert download.root() == tmp_path / "home" / ".cache" / "compgcn"


def test_an_unavailable_mirror_is_an_input_error() -> None:
    assert issubclass(UnavailableError, InputError)
