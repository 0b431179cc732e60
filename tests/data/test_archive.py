"""Out of an archive come the named members with the right bytes, or one clear error; never anything else."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.data import download as module
from compgcn.data.download import ArchiveError, extract
from server import tarred, zipped

MEMBERS = {
    "set/train.txt": b"a\tr\tb\n" * 500,
    "set/test.txt": b"b\tr\tc\n" * 50,
    "set/other.py": b"raise SystemExit\n",
}
WANTED = ("set/train.txt", "set/test.txt")
KINDS = pytest.mark.parametrize("make", [zipped, tarred])
MIB = 1 << 20

Make = Callable[[Mapping[str, bytes]], bytes]


def unpack(data: bytes, folder: Path, limit: int = MIB) -> dict[str, bytes]:
    """What comes out, and that nothing else was written."""
    archive, target = folder / "archive", folder / "out"
    target.mkdir()
    archive.write_bytes(data)
    files = {name: target / Path(name).name for name in WANTED}
    extract(archive, files, limit)
    assert {path.name for path in folder.rglob("*")} == {"archive", "out", "train.txt", "test.txt"}
    return {name: path.read_bytes() for name, path in files.items()}


@KINDS
@pytest.mark.parametrize("prefix", ["", "./"])
def test_the_named_members_come_out_and_no_other(make: Make, prefix: str, tmp_path: Path) -> None:
    data = make({prefix + name: content for name, content in MEMBERS.items()})
    assert unpack(data, tmp_path) == {name: MEMBERS[name] for name in WANTED}


@KINDS
@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "set/../../evil", "..\\evil", "C:/evil", "set/.."])
def test_a_member_that_leads_outside_condemns_the_archive(make: Make, name: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"is not to be trusted: its member '.*' leads outside of it"):
        unpack(make({name: b"evil", **MEMBERS}), tmp_path)
    assert not list(tmp_path.rglob("*evil*"))


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_a_member_that_is_no_file_is_not_followed(kind: bytes, tmp_path: Path) -> None:
    data = tarred({"set/test.txt": b"x"}, special("set/train.txt", kind, "/etc/hostname"))
    with pytest.raises(ArchiveError, match=r"'set/train.txt' is a link or no plain file"):
        unpack(data, tmp_path)


def test_a_link_in_a_zip_is_not_followed(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        link = zipfile.ZipInfo("set/train.txt")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/hostname")
    with pytest.raises(ArchiveError, match=r"'set/train.txt' is a link or no plain file"):
        unpack(buffer.getvalue(), tmp_path)


@KINDS
@pytest.mark.parametrize("member", ["set/train.txt", "set/other.bin"])
def test_a_decompression_bomb_is_refused_before_it_fills_the_disk(make: Make, member: str, tmp_path: Path) -> None:
    data = make({member: bytes(64 * MIB), "set/test.txt": b"x"})
    assert len(data) < MIB
    if make is zipped and member == "set/other.bin":
        with pytest.raises(ArchiveError, match=r"no member 'set/train.txt'"):  # a zip passes over what is not wanted
            unpack(data, tmp_path)
    else:
        with pytest.raises(ArchiveError, match="unpacks to more than the 1 MiB"):
            unpack(data, tmp_path)
    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) <= 2 * MIB


def test_the_holes_of_a_sparse_member_are_not_written(tmp_path: Path) -> None:
    holes = special("set/train.txt", tarfile.REGTYPE)
    holes.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(64 * MIB)}
    with pytest.raises(ArchiveError, match=r"'set/train.txt' is a link or no plain file"):
        unpack(tarred({"set/test.txt": b"x"}, holes), tmp_path)
    assert not (tmp_path / "out" / "train.txt").exists()


@KINDS
def test_no_more_than_the_limit_is_written_whatever_a_reader_hands_over(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = [(name, io.BytesIO(bytes(600_000))) for name in WANTED]
    monkeypatch.setattr(module, "_zip" if make is zipped else "_tar", lambda *_: iter(long))
    with pytest.raises(ArchiveError, match="unpacks to more than the 1 MiB"):
        unpack(make(MEMBERS), tmp_path)
    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) <= MIB


@KINDS
@given(share=st.floats(0, 1, exclude_max=True))
def test_an_archive_cut_anywhere_is_an_error(
    make: Make, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = make(MEMBERS)
    with pytest.raises(ArchiveError):
        unpack(data[: int(share * len(data))], tmp_path_factory.mktemp("cut"))


@KINDS
@given(share=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_an_altered_byte_gives_the_right_members_or_an_error(
    make: Make, share: float, mask: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(make(MEMBERS))
    data[int(share * len(data))] ^= mask
    try:
        found = unpack(bytes(data), tmp_path_factory.mktemp("altered"))
    except ArchiveError:
        return
    assert found == {name: MEMBERS[name] for name in WANTED}


@pytest.mark.parametrize("data", [b"", b"<html>not found</html>", b"PK", b"\x1f\x8b", b"PK\x03\x04" + bytes(99)])
def test_what_is_no_archive_is_said_to_be_none(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"neither a zip nor|truncated or damaged"):
        unpack(data, tmp_path)


@KINDS
def test_a_missing_member_is_named(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"has no member 'set/test.txt'"):
        unpack(make({"set/train.txt": b"x"}), tmp_path)


def test_a_member_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    data = tarred({"set/train.txt": b"x", "./set/train.txt": b"y", "set/test.txt": b""})
    with pytest.raises(ArchiveError, match=r"holds the member 'set/train.txt' twice"):
        unpack(data, tmp_path)
