"""Whatever a mirror does, the cache has a data set whole and checked, or not at all."""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clock import HANGS
from compgcn.data import download as module
from compgcn.data.download import Archive, Files, Item, Pip, UnavailableError, configured, download, extract, locate
from compgcn.errors import InputError
from server import Server, cut, redirect, resumable, serving, sha, silent, tarred, whole, zipped

DATA = bytes(range(256)) * 400  # 100 kB
MIB = 1 << 20
PLAIN = {part: f"{part}\tr\to\n".encode() * 3000 for part in ("train", "valid", "test")}
ZIP = zipped({f"set/{part}.txt": data for part, data in PLAIN.items()})
SDIST = tarred({"pkg-1.0/setup.py": b"raise SystemExit('ran')", **{f"pkg-1.0/d/{p}.txt": d for p, d in PLAIN.items()}})
WHOLE = {"made-up/manifest.json", "made-up/train.txt", "made-up/valid.txt", "made-up/test.txt"}
PACKAGE = "some_data-1.0.tar.gz"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, without the folders and indexes of this machine."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("COMPGCN_DATA", raising=False)
    monkeypatch.setenv("COMPGCN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# One file


def get(server: Server, path: Path, sha256: str | None = sha(DATA)) -> list[int]:
    """Download what the server answers; return the bytes at each step."""
    steps: list[int] = []
    download(server.url("/file.zip"), path, sha256, MIB, lambda name, done, total: steps.append(done))
    return steps


@pytest.mark.parametrize("sha256", [sha(DATA), None])
@pytest.mark.parametrize("stale", [b"", DATA[:1000], b"of another file", DATA, DATA + b"and more"])
@pytest.mark.parametrize("answer", [whole, resumable])
def test_a_file_arrives_whole_whatever_part_of_it_was_there(
    server: Server, tmp_path: Path, sha256: str | None, stale: bytes, answer: Callable[[bytes], object]
) -> None:
    server.answers["/file.zip"] = answer(DATA)
    (tmp_path / "file.zip.part").write_bytes(stale)
    steps = get(server, tmp_path / "file.zip", sha256)
    assert [path.name for path in tmp_path.iterdir()] == ["file.zip"]
    assert (tmp_path / "file.zip").read_bytes() == DATA
    assert steps[-1:] in ([len(DATA)], [])


def test_a_dropped_connection_is_resumed_by_the_same_call_and_by_the_next(server: Server, tmp_path: Path) -> None:
    server.answers["/file.zip"] = cut(DATA, 10_000)
    with pytest.raises(UnavailableError, match=r"127.0.0.1 broke off while sending file.zip .*30,000 of 102,400"):
        get(server, tmp_path / "file.zip")
    server.answers["/file.zip"] = resumable(DATA)
    get(server, tmp_path / "file.zip")
    assert (tmp_path / "file.zip").read_bytes() == DATA
    asked = [headers.get("Range") for _, headers in server.seen]
    assert asked == [None, "bytes=10000-", "bytes=20000-", "bytes=30000-"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (whole(DATA[:-1] + b"!"), "not the published file: its sha256 differs"),
        (lambda request: request.send(b"sorry", status=503), "127.0.0.1 answered 503"),
        (whole(bytes(2 * MIB)), "larger than the 1 MiB"),
        (silent, "127.0.0.1 could not be reached|broke off"),
        (redirect("file:///etc/hostname"), "127.0.0.1 answered 302"),
    ],
)
def test_a_wrong_answer_is_one_sentence_and_nothing_is_kept(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: object, message: str
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.1 if answer is silent else HANGS)
    server.answers["/file.zip"] = answer
    with pytest.raises(UnavailableError, match=message):
        get(server, tmp_path / "file.zip")
    assert not (tmp_path / "file.zip").exists()


def test_a_password_goes_to_its_server_and_to_no_other(server: Server, tmp_path: Path) -> None:
    with serving() as other:
        other.answers["/file.zip"] = whole(DATA)
        server.answers["/file.zip"] = redirect(other.url("/file.zip"))
        download(server.url("/file.zip", "me:s%40t@"), tmp_path / "file.zip", sha(DATA), MIB)
        assert server.seen[0][1]["Authorization"] == f"Basic {base64.b64encode(b'me:s@t').decode()}"
        assert "Authorization" not in other.seen[0][1]
    with pytest.raises(UnavailableError) as failure:
        download(server.url("/none.zip", "me:secret@"), tmp_path / "none.zip", None, MIB)
    assert "secret" not in str(failure.value)


# Archives

MEMBERS = {"set/train.txt": b"a\tr\tb\n" * 500, "set/test.txt": b"b\tr\tc\n" * 50, "set/x.py": b"raise SystemExit\n"}
WANTED = ("set/train.txt", "set/test.txt")
KINDS = pytest.mark.parametrize("make", [zipped, tarred])

Make = Callable[[Mapping[str, bytes]], bytes]


def unpack(data: bytes, folder: Path, limit: int = MIB) -> dict[str, bytes]:
    """Return the members, after a check that nothing else was written."""
    target = folder / "out"
    target.mkdir()
    (folder / "archive").write_bytes(data)
    files = {name: target / Path(name).name for name in WANTED}
    try:
        extract(folder / "archive", files, limit)
    finally:
        assert {path.name for path in folder.rglob("*") if path.is_file()} <= {"archive", "train.txt", "test.txt"}
        assert sum(path.stat().st_size for path in target.iterdir()) <= limit
    return {name: path.read_bytes() for name, path in files.items()}


@KINDS
@pytest.mark.parametrize("prefix", ["", "./"])
def test_the_named_members_come_out_and_no_other(make: Make, prefix: str, tmp_path: Path) -> None:
    data = make({"../evil": b"evil", "/etc/evil": b"evil", **{prefix + name: text for name, text in MEMBERS.items()}})
    assert unpack(data, tmp_path) == {name: MEMBERS[name] for name in WANTED}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_a_member_that_is_no_file_is_refused(kind: bytes, tmp_path: Path) -> None:
    link = tarfile.TarInfo("set/train.txt")
    link.type, link.linkname = kind, "/etc/hostname"
    with pytest.raises(UnavailableError, match=r"has no file 'set/train.txt'"):
        unpack(tarred({"set/test.txt": b"x"}, link), tmp_path)


@KINDS
def test_a_decompression_bomb_and_a_missing_member_are_refused(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="unpacks to more than it may"):
        unpack(make({"set/train.txt": bytes(2 * MIB), "set/test.txt": b"x"}), tmp_path)
    (tmp_path / "other").mkdir()
    with pytest.raises(UnavailableError, match=r"has no file 'set/test.txt'"):
        unpack(make({"set/train.txt": b"x"}), tmp_path / "other")


@KINDS
@given(share=st.floats(0, 1, exclude_max=True), mask=st.integers(0, 255))
def test_a_cut_or_altered_archive_gives_the_right_members_or_an_error(
    make: Make, share: float, mask: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(make(MEMBERS))
    place = int(share * len(data))
    data[place:] = bytes([data[place] ^ mask, *data[place + 1 :]]) if mask else b""
    try:
        found = unpack(bytes(data), tmp_path_factory.mktemp("altered"))
    except UnavailableError:
        return
    assert found == {name: MEMBERS[name] for name in WANTED}


# Packages


def test_pip_names_the_indexes_and_its_variables_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text(
        "[global]\nindex-url = https://file.example\nextra-index-url =\n    https://a.example\n    https://b.example\n"
        "[install]\ncert = /x.pem\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.delenv("PIP_INDEX_URL")
    assert configured() == Pip(("https://file.example", "https://a.example", "https://b.example"), "/x.pem")
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example")
    assert configured().indexes[0] == "https://variable.example"
    monkeypatch.setattr(module.sys, "executable", "/bin/false")  # without pip its variables remain
    assert configured() == Pip(("https://variable.example",), None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UnavailableError, match="pip is configured to use no index"):
        locate("some_data", PACKAGE, configured())


def test_a_package_file_is_found_on_the_first_index_that_lists_it(server: Server) -> None:
    html = f'<!DOCTYPE html><html><body><a href="../../files/{PACKAGE}#sha256=0">{PACKAGE}</a></body></html>'.encode()
    row = {"filename": PACKAGE, "url": f"../../files/{PACKAGE}", "hashes": {}, "size": 3}
    listing = {"meta": {"api-version": "1.0"}, "name": "some-data", "files": [row]}
    server.answers["/empty/some-data/"] = whole(b"<html></html>", kind="text/html")
    server.answers["/html/some-data/"] = whole(html, kind="text/html")
    kind = "application/vnd.pypi.simple.v1+json"
    server.answers["/json/some-data/"] = whole(json.dumps(listing).encode(), kind=kind)
    bad = tuple(server.url(f"/{name}") for name in ("none", "empty"))
    for good in ("html", "json"):
        found = locate("Some.Data", PACKAGE, Pip((*bad, server.url(f"/{good}")), None))
        assert found == server.url(f"/files/{PACKAGE}")
    with pytest.raises(UnavailableError, match=r"no readable page of some_data .*, 127.0.0.1 does not list"):
        locate("some_data", PACKAGE, Pip(bad, None))


def test_without_pypi_simple_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypi_simple", None)
    with pytest.raises(UnavailableError, match=r"pip install 'compgcn\[fetch\]'"):
        locate("some_data", PACKAGE, Pip(("http://127.0.0.1:9",), None))


# The cache


def files(server: Server | None = None, archive: bytes = ZIP, *, pin: bool = True, package: bool = False) -> Files:
    """A data set on a server, perhaps also in a package; with published checksums or without."""
    known = {part: sha(data) if pin else None for part, data in PLAIN.items()}
    address = server.url("/set.zip") if server else "http://127.0.0.1:9/set.zip"
    items = {part: Item(f"set/{part}.txt", known[part]) for part in PLAIN}
    archives = [Archive("set.zip", items, sha(archive) if pin else None, address=address)]
    if package:
        items = {part: Item(f"pkg-1.0/d/{part}.txt", known[part]) for part in PLAIN}
        archives.append(Archive("pkg-1.0.tar.gz", items, sha(SDIST), project="pkg"))
    local = {part: Item(f"{part}.txt", known[part]) for part in PLAIN} | {"names": Item("names.txt", sha(b"a\tb\n"))}
    return Files(tuple(PLAIN), "set", local, ("names",), tuple(archives), limit_mib=4)


def contents(row: Files) -> dict[str, bytes]:
    entries = module.entries("made-up", row)
    return {role: entry.path.read_bytes() for role, entry in entries.items()}


def states(row: Files) -> set[str]:
    return {state for _, _, state in module.verify("made-up", row)}


def left(home: Path) -> set[str]:
    """Return the files in the cache but for the lock."""
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file() and path.name != ".lock"}


def folder_of(tmp_path: Path, layout: str = "plain") -> Path:
    """Return a folder with the data set: plain files or an archive, in the subfolder `set` or directly."""
    packed = {"zip": {"set.zip": ZIP}, "sdist": {"pkg-1.0.tar.gz": SDIST}}
    inner = tmp_path / "from" / ("set" if layout in ("plain", "zip") else "")
    inner.mkdir(parents=True)
    contents = packed.get(layout, {f"{part}.txt": data for part, data in PLAIN.items()})
    for name, data in {**contents, "names.txt": b"a\tb\n"}.items():
        (inner / name).write_bytes(data)
    return tmp_path / "from"


def test_first_use_fetches_and_later_use_does_not(server: Server, home: Path) -> None:
    server.answers["/set.zip"] = whole(ZIP)
    row = files(server)
    assert module.place("made-up", row) == "to fetch"
    for _ in range(2):
        with module.located("made-up", row) as paths:
            assert {role: path.read_bytes() for role, path in paths.items()} == PLAIN
    assert module.place("made-up", row) == "cached"
    assert left(home) == WHOLE  # without the archive
    (again,) = module.fetch({"made-up": row})
    assert again.already
    assert server.paths() == ["/set.zip"]
    assert [done.mirror for done in module.fetch({"one": row, "two": row})] == ["127.0.0.1 (set.zip)"] * 2
    assert server.paths() == ["/set.zip"] * 2  # one download serves two data sets


def test_single_files_come_from_the_folder_that_an_address_names(server: Server, home: Path) -> None:
    row = files(server)
    single = row._replace(archives=(row.archives[0]._replace(address=server.url("/data/")),))
    for part, data in PLAIN.items():
        server.answers[f"/data/set/{part}.txt"] = resumable(data)
    (home / "downloads").mkdir(parents=True)
    (home / "downloads" / "valid.txt.part").write_bytes(b"of another data set")
    (done,) = module.fetch({"made-up": single})
    assert done.mirror == "127.0.0.1"
    assert contents(single) == PLAIN
    assert left(home) == WHOLE
    server.answers["/data/set/test.txt"] = whole(b"other\tr\to\n")
    with pytest.raises(InputError, match=r"sent a test.txt that is not the published.*network that has http.*/data/,"):
        module.fetch({"two": single})
    assert left(home) == WHOLE


def test_a_package_is_read_and_not_run(
    server: Server, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", server.url("/simple"))
    server.answers["/simple/pkg/"] = whole(b'<a href="/files/pkg-1.0.tar.gz">pkg-1.0.tar.gz</a>', kind="text/html")
    server.answers["/files/pkg-1.0.tar.gz"] = whole(SDIST)
    row = files(package=True)
    with caplog.at_level(logging.INFO):
        (done,) = module.fetch({"made-up": row})
    assert done.mirror == "the package file pkg-1.0.tar.gz"
    assert contents(row) == PLAIN
    assert left(home) == WHOLE
    assert sum("could not be reached" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("layout", ["plain", "here", "zip", "sdist"])
def test_a_local_folder_is_read_in_place_or_copied(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    row = files(package=True)
    expected = {**PLAIN, "names": b"a\tb\n"}
    source = folder_of(tmp_path, layout)
    monkeypatch.setenv("COMPGCN_DATA", str(source))
    assert module.place("made-up", row) == "local"
    assert states(row) == {"ok"}
    with module.located("made-up", row) as paths:
        assert {role: path.read_bytes() for role, path in paths.items()} == expected
    assert not home.exists()
    monkeypatch.delenv("COMPGCN_DATA")
    module.fetch({"made-up": row}, source)
    assert contents(row) == expected


def test_altered_or_missing_files_in_the_given_folder_are_named(tmp_path: Path, home: Path) -> None:
    with pytest.raises(InputError, match=r"does not hold the data set 'made-up': there is no file '.*/set/train.txt'"):
        module.fetch({"made-up": files()}, tmp_path)
    source = folder_of(tmp_path)
    (source / "set" / "test.txt").write_bytes(b"x\tr\ty\n")
    with pytest.raises(InputError, match=r"'test.txt' from '.*from' is not the published file: its sha256 differs"):
        module.fetch({"made-up": files()}, source)
    assert left(home) == set()


def test_offline_one_sentence_says_what_was_tried_and_what_to_do() -> None:
    with pytest.raises(InputError) as failure:
        module.fetch({"made-up": files(package=True)})
    said = str(failure.value)
    assert said.startswith("the data set 'made-up' could not be fetched: 127.0.0.1 could not be reached (")
    assert "; connect to a network that has http://127.0.0.1:9/set.zip or pkg-1.0.tar.gz, or run compgcn data" in said
    assert said.endswith("--from DIR, or set COMPGCN_DATA, with a folder that holds 'set'")
    assert "\n" not in said
    row = files()._replace(archives=())
    assert module.place("made-up", row) == "missing"
    with pytest.raises(InputError, match="is in no public place: run compgcn data fetch made-up --from DIR"):
        module.fetch({"made-up": row})


def test_a_file_without_a_checksum_is_pinned_when_it_first_comes(
    server: Server, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers["/set.zip"] = whole(ZIP)
    row = files(server, pin=False)
    (done,) = module.fetch({"made-up": row})
    assert "no checksum of train.txt, valid.txt, test.txt is published" in caplog.text
    assert not any(entry.verified for entry in done.entries.values())
    assert states(row) == {"unverified"}
    done.entries["train"].path.write_bytes(PLAIN["train"].upper())
    server.answers.clear()
    with pytest.raises(InputError, match="could not be fetched"):
        module.fetch({"made-up": row})
    assert "altered" in states(row)  # a failed fetch leaves the record
    server.answers["/set.zip"] = whole(zipped({f"set/{p}.txt": d + b"!" for p, d in PLAIN.items()}))
    module.fetch({"made-up": row})
    assert "train.txt is not what was first downloaded" in caplog.text


@pytest.mark.parametrize("pin", [True, False])
@pytest.mark.parametrize(
    "bad",
    [
        cut(ZIP, 0),
        whole(b"x" * 1000),
        whole(zipped({"set/train.txt": PLAIN["train"]})),
        whole(zipped({f"set/{part}.txt": bytes(5 << 20) for part in PLAIN})),
    ],
)
def test_a_bad_mirror_leaves_nothing_behind_and_a_good_one_mends_it(
    server: Server, home: Path, bad: object, pin: bool
) -> None:
    server.answers["/set.zip"] = bad
    row = files(server, pin=pin)
    with pytest.raises(InputError, match="'made-up' could not be fetched"):
        module.fetch({"made-up": row})
    assert left(home) <= {"downloads/set.zip.part"}
    server.answers["/set.zip"] = resumable(ZIP)
    module.fetch({"made-up": row})
    assert contents(row) == PLAIN
    assert left(home) == WHOLE


def test_a_cache_that_cannot_be_written_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("COMPGCN_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InputError, match=r"could not write to the cache .*Not a directory.*; make room there, or set"):
        module.fetch({"made-up": files()}, folder_of(tmp_path))


def test_an_altered_cache_is_noticed_and_fetched_again(server: Server, home: Path) -> None:
    server.answers["/set.zip"] = whole(ZIP)
    row, folder = files(server), home / "made-up"
    for alter in (
        lambda: (folder / "train.txt").write_bytes(PLAIN["train"].replace(b"r", b"R")),
        lambda: (folder / "valid.txt").unlink(),
    ):
        (done,) = module.fetch({"made-up": row})
        assert not done.already
        assert states(row) == {"ok"}
        alter()
        assert states(row) & {"altered", "missing"}
    (folder / "manifest.json").write_text("{")
    module.fetch({"made-up": row})
    newer = row._replace(local={}, archives=(row.archives[0]._replace(items={}),))
    assert module.entries("made-up", newer) is None  # its checksums are no longer published
    assert contents(row) == PLAIN
