"""The cache: a folder for each data set, put in place whole, with a manifest that pins what is in it.

A data set is assembled under another name and renamed, so that whoever finds its folder finds all of it, whether a
process was killed or two fetched at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from compgcn.data.download import reason, sha256
from compgcn.data.sources import Files
from compgcn.errors import InputError

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_DOWNLOADS = "downloads"
_STAGING = ".staging-"
_ABANDONED = 24 * 3600.0  # seconds after which what a killed process was assembling is removed


class Entry(NamedTuple):
    """A file of a data set in the cache.

    Fields:
        verified: whether its sha256 was published; otherwise it is that of the first download.
    """

    path: Path
    sha256: str
    size: int
    verified: bool


def root() -> Path:
    """The folder of the cache: COMPGCN_CACHE, or `compgcn` where the system keeps caches."""
    named = os.environ.get("COMPGCN_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "compgcn"


def entries(name: str, files: Files) -> dict[str, Entry] | None:
    """The files of a data set by role, or None if the cache does not have all of them.

    Sizes are compared, bytes are not: `verify` does that.
    """
    found = _manifest(name)
    if found is None or not set(files.required) <= set(found):
        return None
    try:
        whole = all(entry.path.stat().st_size == entry.size for entry in found.values())
    except OSError:
        return None
    return found if whole and all(_known(files, role, entry) for role, entry in found.items()) else None


def sound(name: str, files: Files) -> dict[str, Entry] | None:
    """The files of a data set by role, or None unless the cache has all of them, byte for byte."""
    found = entries(name, files)
    checked = verify(name, files) if found is not None else {}
    return found if all(state in ("ok", "unverified") for _, state in checked.values()) else None


def pins(name: str) -> dict[str, str]:
    """Role -> sha256, as first downloaded, of the files nobody published one of, whatever became of them since."""
    return {role: entry.sha256 for role, entry in (_manifest(name) or {}).items() if not entry.verified}


def _manifest(name: str) -> dict[str, Entry] | None:
    folder = root() / name
    try:
        written = json.loads((folder / MANIFEST).read_text())["files"]
        return {
            role: Entry(folder / Path(row["file"]).name, str(row["sha256"]), int(row["size"]), bool(row["verified"]))
            for role, row in written.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _known(files: Files, role: str, entry: Entry) -> bool:
    """Whether what was verified once is still what the sources say; they may have changed with the package."""
    return not entry.verified or entry.sha256 in files.known(role)


def verify(name: str, files: Files) -> dict[str, tuple[Entry, str]]:
    """Every file by role, and what reading it shows; nothing if the cache does not have the data set.

    `ok`; `unverified`: as it was first downloaded, but nobody published a checksum; `altered`; or `missing`.
    """
    found = _manifest(name) or {}
    checked = {role: (entry, _state(files, role, entry)) for role, entry in found.items()}
    if not set(files.required) <= set(found) and is_there(name):
        nothing = Entry(root() / name / MANIFEST, "", 0, verified=False)
        return {**checked, "manifest": (nothing, "altered" if nothing.path.exists() else "missing")}
    return checked


def _state(files: Files, role: str, entry: Entry) -> str:
    if not entry.path.is_file():
        return "missing"
    if not _known(files, role, entry) or sha256(entry.path) != entry.sha256:
        return "altered"
    return "ok" if entry.verified else "unverified"


def is_there(name: str) -> bool:
    """Whether the cache has anything under this name, whole or not."""
    return (root() / name).exists()


@contextlib.contextmanager
def staging(name: str) -> Iterator[Path]:
    """An empty folder to assemble a data set in; it is gone afterwards, unless `commit` put it in place."""
    with writing():
        root().mkdir(parents=True, exist_ok=True)
        for old in root().glob(f"{_STAGING}*"):
            with contextlib.suppress(FileNotFoundError):  # another process was done with its own
                if time.time() - old.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(old, ignore_errors=True)
        folder = root() / f"{_STAGING}{name}-{secrets.token_hex(8)}"
        folder.mkdir()  # with the rights of any other folder; mkdtemp makes one for its owner only
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def commit(folder: Path, name: str, files: Files, found: Mapping[str, Path], mirror: str) -> None:
    """Put an assembled data set in place of what the cache has of it, unless that is sound by now.

    Args:
        folder: from `staging`.
        found: role -> the file in it; one whose sha256 is among those of its role is verified.
        mirror: where it came from, in words.
    """
    with writing():
        rows: dict[str, Any] = {}
        for role, path in found.items():
            digest = sha256(path)
            verified = digest in files.known(role)
            rows[role] = {"file": path.name, "sha256": digest, "size": path.stat().st_size, "verified": verified}
            _flush(path)
        manifest = folder / MANIFEST
        manifest.write_text(json.dumps({"mirror": mirror, "files": rows}, indent=2) + "\n")
        _flush(manifest)
        if sound(name, files) is not None:
            return  # another process was here first, and what it put there is as good
        remove(name)
        try:
            folder.rename(root() / name)
        except OSError:
            if entries(name, files) is None:
                raise


def remove(name: str) -> None:
    """Take a data set out of the cache, all at once."""
    with writing():
        if not (root() / name).exists():
            return
        aside = Path(tempfile.mkdtemp(prefix=f"{_STAGING}{name}-", dir=root()))
        with contextlib.suppress(FileNotFoundError):  # another process took it out
            (root() / name).rename(aside / name)
        shutil.rmtree(aside, ignore_errors=True)


def _flush(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def locked(file: str, *, wait: bool = True) -> Iterator[Path | None]:
    """The place of a download, for one process at a time; None if another has it and we do not wait.

    The lock is the system's, so that a process that is killed gives it up.
    """
    with writing():
        path = root() / _DOWNLOADS / file
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f"{file}.lock").open("w")
    with lock:
        try:
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not wait:
                    yield None
                    return
                log.info("waiting for another process that is downloading %s", file)
                fcntl.flock(lock, fcntl.LOCK_EX)
        except ImportError:  # no such lock on this system: a download of one's own, which nothing resumes
            path = path.with_name(f"{os.getpid()}-{file}")
        yield path


def discard(file: str) -> None:
    """Remove a download that is no longer needed, unless another process is using it."""
    with locked(file, wait=False) as path:
        if path is not None:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Errors of the disk under the cache, in a sentence."""
    try:
        yield
    except OSError as error:
        what = (
            f"could not write to the cache {root()}: {reason(error)}{f' ({error.filename})' if error.filename else ''}"
        )
        raise InputError(f"{what}; make room there, or set COMPGCN_CACHE to another folder") from None
