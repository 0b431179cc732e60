"""The files of a data set, from the first mirror that has them: a local folder, its public address, a package."""

from __future__ import annotations

import ast
import base64
import contextlib
import gzip
import hashlib
import http.client
import io
import json
import logging
import os
import re
import secrets
import shutil
import ssl
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.message import Message
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from compgcn import __version__
from compgcn.errors import InputError


class Item(NamedTuple):
    """A file in a mirror: its path there, and its sha256 if that is known."""

    path: str
    sha256: str | None


class Archive(NamedTuple):
    """An archive that holds files of a data set.

    Fields:
        file: its name, also where a copy of it lies in a local folder.
        sha256: of the whole archive, if known.
        items: the files in it by role, their paths being those of its members.
        address: where it is published; or
        project: the package on the Python index whose file it is.
    """

    file: str
    sha256: str | None
    items: Mapping[str, Item]
    address: str = ""
    project: str = ""


class Files(NamedTuple):
    """The files of a data set.

    Fields:
        required, optional: the roles; a mirror must have all of the first, and may have some of the second.
        folder: where they lie below a local folder.
        local: the files there by role, where they are not in an archive.
        archives: the mirrors, in the order in which they are tried.
        limit_mib: no mirror of these files is larger, packed or unpacked; more is refused.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    folder: str
    local: Mapping[str, Item]
    archives: tuple[Archive, ...] = ()
    limit_mib: int = 256

    def known(self, role: str) -> set[str | None]:
        """Every sha256 that some mirror's file of this role has; None is among them if one of them is not known."""
        mirrors = [self.local, *(archive.items for archive in self.archives)]
        return {mirror[role].sha256 for mirror in mirrors if role in mirror}


def _items(pattern: str, hashes: Mapping[str, str | None]) -> dict[str, Item]:
    """Files whose paths differ in their role only, which stands for {} in the pattern."""
    return {role: Item(pattern.format(role), sha256) for role, sha256 in hashes.items()}


_SPLITS = ("train", "valid", "test")
_NAMES = ("entities", "relations")

_NEURALKG = ("neuralkg-1.0.18.tar.gz", "6a6a9b902749da31fc7f93e6b1a1f72115b271a06092a2d133a785644f19f5df")
_PYRDF2VEC = ("pyRDF2Vec-0.0.3.tar.gz", "72efd79b6086daf605368c5ab11b2a0d306ba13f23e49cd9de796419b7464f77")
_PYKEEN = ("pykeen-1.11.1-py3-none-any.whl", "b6cc0ab012fc6ba4f37b58fb7081a409a5c1f04cbbb0e0e9c2256e911757d4ba")
_GRAKEL = (  # only its data is read, so any machine can use this one wheel
    "grakel-0.1.11-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    "f05f03c1ca23919bbb1e9d9132de4e1791e004cdd284a7e98d2897ac8495f0a7",
)

_AUTHORS = "https://github.com/malllabiisc/CompGCN/raw/master/data_compressed"
_DGL = "https://data.dgl.ai/dataset"
_TU = "https://www.chrsmrrs.com/graphkerneldatasets"

_FB15K_237_CRLF = {
    "train": "6e4c2782169af21e9743f3b1d200886f5d595bf6bc504ec1351720949c5cdfae",
    "valid": "cf6309010852f6a8d47a45df830a426415d1ee6f7a3970a8376ff1fb81db4a5c",
    "test": "5711cf41623ceb4eacc50eb6108a3ca6565c7492e3caaf82a3e355cc660d1574",
}
_FB15K_237_LF = {
    "train": "61099230e4439f90885ca9767739e31e8e32f54736fa1c35952b27997bc7c08a",
    "valid": "749cbe9d923bac7b9354da5614ecfed2e0220256d442c3e04a6b303db1f273d9",
    "test": "e2e35e8e6113de220140b6f44dc71a5207b0fc6872d575e874aefe13259b655b",
}
_WN18RR = {
    "train": "038612e783c215ee5f3ca9fbfca27b8d0739be1028fe4ee7c174aecf0b83d5df",
    "valid": "453ce7202afa58094a04d2b1560ee2b02660f1c260b32ce6651c8ccedd1028ab",
    "test": "0383bceaaa1096cf3c03ec021ed0048068e2355dbfc0239b292cefdac821cec5",
}


def _paper_triples(
    folder: str,
    sha256: str,
    zipped: Mapping[str, str],
    in_package: str,
    packaged: Mapping[str, str],
    names: dict[str, Item],
) -> Files:
    """FB15k-237 or WN18RR: the authors' zip, or the sdist that holds the same triples in the same order."""
    return Files(
        required=_SPLITS,
        optional=_NAMES,
        folder=folder,
        local=names,
        archives=(
            Archive(
                f"{folder}.zip",
                sha256,
                _items(f"{folder}/{{}}.txt", zipped),
                address=f"{_AUTHORS}/{folder}.zip",
            ),
            Archive(
                *_NEURALKG,
                _items(f"neuralkg-1.0.18/dataset/{in_package}/{{}}.txt", packaged),
                project="neuralkg",
            ),
        ),
    )


def _small(folder: str, train: str, valid: str, test: str) -> Files:
    """One of the small graphs, which come with a wheel."""
    hashes = dict(zip(_SPLITS, (train, valid, test), strict=True))
    wheel = Archive(*_PYKEEN, _items(f"pykeen/datasets/{folder}/{{}}.txt", hashes), project="pykeen")
    return Files(_SPLITS, (), f"small-kg/{folder}", _items("{}.txt", hashes), (wheel,), limit_mib=64)


def _nodes(name: str, folder: str, local: Mapping[str, str] | None = None, packages: tuple[Archive, ...] = ()) -> Files:
    """A graph to classify the nodes of, as R-GCN's authors prepared it: N-Triples and a table for each split."""
    paths = {
        "graph": f"{name}_stripped.nt.gz",
        "train": "trainingSet.tsv",
        "test": "testSet.tsv",
        "labels": "completeDataset.tsv",
    }
    published = Archive(
        f"{name}.tgz", None, {role: Item(path, None) for role, path in paths.items()}, address=f"{_DGL}/{name}.tgz"
    )
    return Files(
        required=("graph", "train", "test"),
        optional=("labels",),
        folder=folder,
        local={role: Item(path, (local or {}).get(role)) for role, path in paths.items()},
        archives=(published, *packages),
        limit_mib=2048,
    )


def _molecules(name: str, folder: str, hashes: Mapping[str, str], packages: tuple[Archive, ...] = ()) -> Files:
    """Graphs to classify, in the format of the TU collection."""
    return Files(
        required=tuple(hashes),
        optional=(),
        folder=folder,
        local=_items(f"{name}_{{}}.txt", hashes),
        archives=(
            Archive(f"{name}.zip", None, _items(f"{name}/{name}_{{}}.txt", hashes), address=f"{_TU}/{name}.zip"),
            *packages,
        ),
        limit_mib=64,
    )


_MUTAG_SPLITS = {
    "train": "d2fe71b68bb25735465128b4aed50d9b165fa5ab92aa2e221fad3d1cd87b7297",
    "test": "20e69309a037cbf0fb2b52be3eaa6c43888215cbc0b96e8f8bd9e2af55652a3f",
}
_MUTAG_MOLECULES = {
    "A": "d9656ca7493f3445d737c711710bb36fd432dddd1c0ea32e1d4713c86ebd28e2",
    "edge_labels": "4669ce755075ff86c3240709345745886400908fa637a49310459b9c267b3e56",
    "graph_indicator": "7d520a4d6c7961c0cdeabe076d8fe27e795b6d373485c9a2b744987e560a2056",
    "graph_labels": "a1518ea39ba3426bd42f57396b9c4baffe68e9adc718caeeab0119c6591a5f2c",
    "node_labels": "678f429965490e84dd27713017538c995fc05d1621beac910848b600015ee863",
}

FILES: dict[str, Files] = {
    "fb15k-237": _paper_triples(
        "FB15k-237",
        "1d897ef464a2e79a2bbf3c4f6cf771d9ce44b53cc8409836ba9c574fde1401b3",
        _FB15K_237_CRLF,
        "FB15K237",
        _FB15K_237_LF,
        {
            "entities": Item("entity2text.txt", "16beedcfad3d32696e8b0b98cfa0f5eeb144f5142225f227a64fd9ce37447da5"),
            "relations": Item("relation2text.txt", "4bf7cb6ea0ac09b17ad210889f723be5e079669f6ae5d507787e1320bbaa0f72"),
        },
    ),
    "wn18rr": _paper_triples(
        "WN18RR",
        "699d45542a94c94ae95726546a65009270358642fcb6b39217baabe9bc1720bf",
        _WN18RR,
        "WN18RR",
        _WN18RR,
        {
            "entities": Item(
                "entity2wordnet.tsv.gz", "3211f421f4552c934622eee57294bfbdee9090bc7aad893ef7552a5a27c72237"
            ),
            "relations": Item("relation2text.txt", "91b1de5585d686ed31498d50f1c4eed44ba9486dffbbcc0c28927ac884184918"),
        },
    ),
    "nations": _small(
        "nations",
        "0830fa9da8e5bba2ccdaa45b7bdc9130451ba66b09ff2708f35fccaf82473e57",
        "2b337a62e51a2f45c283eac98a70d21b7e0e102136be1539b2a52c652a7b0530",
        "3971085165b47b6aeaec68058c6d8d98b3005e929db81268410b95ae4db770ab",
    ),
    "umls": _small(
        "umls",
        "873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
        "025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
        "a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014",
    ),
    "kinship": _small(
        "kinships",
        "738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731",
        "c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da",
        "05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88",
    ),
    "mutag": _nodes(
        "mutag",
        "MUTAG-node",
        {
            "graph": "871f24a766fd377f0adf995f50aea70fd03e4997c6051b3abff3384c08e56ac7",
            "labels": "d81b169a2f3d88b750dd5717062b58f2088fedda1b806e8d5f74373407933e71",
            **_MUTAG_SPLITS,
        },
        (
            Archive(  # this graph, in RDF/XML, still holds the relation that gives the labels away
                *_PYRDF2VEC,
                {
                    "graph": Item(
                        "pyRDF2Vec-0.0.3/data/mutag.owl",
                        "5539358c2d4917ef242e83b84c30abdcf22ce008548c621f30d0f7d86064f7aa",
                    ),
                    **_items("pyRDF2Vec-0.0.3/data/MUTAG_{}.tsv", _MUTAG_SPLITS),
                },
                project="pyRDF2Vec",
            ),
        ),
    ),
    "am": _nodes(
        "am",
        "AM",
        {
            "train": "cac5fc3e54727bbbbc0172e046ecba4f55c751bdd6ade48425db35c8e2897d0f",
            "test": "82450927b13022708d539b02cb50b6613d1826991cea6062ec3a0a112fb9aa73",
            "labels": "75edfce424d2a9e481580fb0979152134cd645aeaaf88b8c24e050100f11c5d2",
        },
    ),
    "am-partial": Files(
        required=("graph", "train", "test"),
        optional=("labels",),
        folder="AM",
        local={
            "graph": Item(
                "am_rebuilt_stripped.nt.gz", "1e965d72bf22288ba79a9cd99ee16a0502d1fe0ee6ebe964794cd0df813ae5cc"
            ),
            "train": Item(
                "trainingSet_present.tsv", "ce0d4874f793637e63a83c3e9406135844c63b9d9b1cf04179ff54e2dd2c80de"
            ),
            "test": Item("testSet_present.tsv", "a5afcbcd464a63ad8aae78badb0c8b4603dde8c18a9001b78ba35bea0d18f596"),
            "labels": Item("completeDataset.tsv", "75edfce424d2a9e481580fb0979152134cd645aeaaf88b8c24e050100f11c5d2"),
        },
    ),
    "aifb": _nodes("aifb", "AIFB"),
    "bgs": _nodes("bgs", "BGS"),
    "mutag-graph": _molecules(
        "MUTAG",
        "MUTAG-graph",
        _MUTAG_MOLECULES,
        (Archive(*_GRAKEL, _items("grakel/tests/data/MUTAG/MUTAG_{}.txt", _MUTAG_MOLECULES), project="grakel"),),
    ),
    "ptc": _molecules(
        "PTC_MR",
        "PTC_MR-graph",
        {
            "A": "f79523ff94dfbef539e5602a8ac1931a50a2800f33fa1d30e5e31725289b5202",
            "edge_labels": "acee2f93b52175a329009dc837bea9db7c2a121c2ef0b1587b38bbe6fc9b8177",
            "graph_indicator": "d52754f3cbc54e29324f884b4c17200c16e06db0c499afae300b4fa1bb6d794b",
            "graph_labels": "64210accbe4c6c027535b1294e0da652b1f539667f7a2d4bf5121dcd8b00a224",
            "node_labels": "cc50d1e1c5f4c98b2100cf50c5ddd88ff28b419a9180d531046b75ce22983235",
        },
    ),
}


Notify = Callable[[str, int, int | None], None]
"""Called with the name of a file, the bytes of it that have arrived, and how many it has, if that is known."""

CONNECT_SECONDS = 6.0  # a machine without a way out should get to the next mirror soon
STALL_SECONDS = 30.0
_SLOWEST = 256  # bytes a second, over STALL_SECONDS; a server that drips slower than this has stalled
_ATTEMPTS = 3  # a dropped connection is taken up again where it broke, so often
_CHUNK = 1 << 16
_SCHEMES = ("http", "https")
_clock = time.monotonic


class UnavailableError(InputError):
    """A mirror did not give the file, or not the right one; the next may."""


class Page(NamedTuple):
    """A small document, whole: its address after redirections, its media type and its bytes."""

    url: str
    kind: str
    body: bytes


class _DroppedError(Exception):
    """The connection ended early; what has arrived is kept."""


def sha256(path: Path) -> str:
    """Of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def host(url: str) -> str:
    """What to call a server in a message: never with the password that an address may hold."""
    parts = urlsplit(url)
    return f"{parts.hostname}" if parts.scheme in _SCHEMES else urlunsplit(parts._replace(query="", fragment=""))


def page(url: str, accept: str, limit: int, certificates: str | None = None) -> Page:
    """A page of at most `limit` bytes."""
    with _open(url, {"Accept": accept}, certificates) as answer:
        body = io.BytesIO()
        total = _length(answer)
        try:
            end = _receive(answer, body, 0, limit, partial(_silent, ""), total)
        except _DroppedError as error:
            raise UnavailableError(f"{host(url)} broke off while answering ({error})") from None
        if total is not None and end < total:
            raise UnavailableError(f"{host(url)} broke off while answering (after {end:,} of {total:,} bytes)")
        return Page(answer.url, answer.headers.get_content_type(), body.getvalue())


def download(
    url: str,
    path: Path,
    sha: str | None,
    limit: int,
    notify: Notify | None = None,
    certificates: str | None = None,
) -> None:
    """Download to `path`, by way of `<path>.part`, which a later call takes up if this one is ended.

    Without a checksum nothing tells whether a part and what follows it are of one file: then it begins anew, and is
    whole if it has the length that was said or, where none was, if the connection did not break.

    Args:
        url: http, https, or a file on this machine.
        sha: the sha256 that it must have; None if nobody knows.
        limit: bytes; a larger file is refused.
        notify: told of the progress.
        certificates: a file of certificates to trust in place of the system's.
    """
    part = path.with_name(f"{path.name}.part")
    on_disk = urlsplit(url).scheme == "file"
    resumed = part.exists() and not on_disk
    if on_disk:
        _copy(url, part, limit)
    else:
        _transfer(url, part, path.name, limit, notify, certificates, resume=sha is not None)
    found = sha256(part) if sha else sha
    if found != sha and resumed:  # the part may be of another file than what followed it: once more from the start
        part.unlink()
        _transfer(url, part, path.name, limit, notify, certificates)
        found = sha256(part)
    if found != sha:
        part.unlink()
        what = f"its sha256 begins with {str(found)[:12]}, not with {str(sha)[:12]}"
        raise UnavailableError(f"what {host(url)} sent as {path.name} is not the published file: {what}")
    part.replace(path)


def _copy(url: str, part: Path, limit: int) -> None:
    source = Path(urllib.request.url2pathname(urlsplit(url).path))
    try:
        if source.stat().st_size > limit:
            raise UnavailableError(f"'{source}' is larger than the {limit / 2**20:,.0f} MiB it may have")
        file = source.open("rb")
    except OSError as error:
        raise UnavailableError(f"'{source}' cannot be read ({reason(error)})") from None
    with file, part.open("wb") as target:
        shutil.copyfileobj(file, target)


def _transfer(
    url: str,
    part: Path,
    name: str,
    limit: int,
    notify: Notify | None,
    certificates: str | None,
    resume: bool = True,
) -> None:
    """All attempts at one download: each goes on where the last was dropped, as long as something arrives.

    Args:
        resume: False: each begins at the start.
    """
    for attempt in range(_ATTEMPTS):
        if not resume:
            part.unlink(missing_ok=True)
        before = part.stat().st_size if part.exists() else 0
        try:
            _attempt(url, part, name, limit, notify, certificates)
            return
        except _DroppedError as error:
            after = part.stat().st_size
            if attempt == _ATTEMPTS - 1 or after <= before:
                raise UnavailableError(f"{host(url)} broke off after {after:,} bytes of {name} ({error})") from None


def _attempt(url: str, part: Path, name: str, limit: int, notify: Notify | None, certificates: str | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        answer = _open(url, headers, certificates)
    except UnavailableError as error:
        if have and getattr(error.__cause__, "code", None) == 416:  # there is nothing after what we have
            if _total(error.__cause__.headers) != have:  # type: ignore[union-attr]
                part.unlink()
                _attempt(url, part, name, limit, notify, certificates)
            return
        raise
    with answer:
        kind = answer.headers.get_content_type()
        if kind in ("text/html", "application/xhtml+xml"):
            raise UnavailableError(f"{host(url)} answered with a web page in place of {name}")
        start = _start(answer, have)
        length = _length(answer)
        total = None if length is None else start + length
        if (total or 0) > limit:
            raise UnavailableError(f"{name} at {host(url)} is larger than the {limit / 2**20:,.0f} MiB it may have")
        with part.open("r+b" if start else "wb") as file:
            file.seek(start)
            file.truncate()
            end = _receive(answer, file, start, limit, partial(notify or _silent, name), total)
    if total is not None and end < total:
        raise _DroppedError(f"of {total:,}")


def _silent(name: str, done: int, total: int | None) -> None:
    pass


def _start(answer: Any, have: int) -> int:
    """Where in the file the answer begins; a server that does not resume sends it from the start."""
    said = answer.headers.get("Content-Range", "")
    if answer.status == 206 and said.startswith(f"bytes {have}-"):
        return have
    if answer.status == 206:
        raise UnavailableError(f"{host(answer.url)} answered with another part of the file than was asked for")
    return 0


def _length(answer: Any) -> int | None:
    """The bytes that the answer says it has, if it does."""
    text = answer.headers.get("Content-Length", "")
    return int(text) if text.isdigit() else None


def _total(headers: Message) -> int | None:
    text = headers.get("Content-Range", "").rpartition("/")[2]
    return int(text) if text.isdigit() else None


def _receive(
    answer: Any, file: IO[bytes], done: int, limit: int, notify: Callable[[int, int | None], None], total: int | None
) -> int:
    """Write what arrives; the number of bytes the file then has."""
    mark, at_mark = _clock(), done
    while True:
        try:
            chunk = answer.read1(_CHUNK)
        except TimeoutError:
            raise UnavailableError(
                f"{host(answer.url)} stalled: nothing came for {STALL_SECONDS:.0f} seconds"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise _DroppedError(reason(error)) from None
        if not chunk:
            return done
        done += len(chunk)
        if done > limit:
            raise UnavailableError(f"{host(answer.url)} sent more than the {_size(limit)} it may send")
        file.write(chunk)
        notify(done, total)
        now = _clock()
        if now - mark > STALL_SECONDS:
            if done - at_mark < _SLOWEST * STALL_SECONDS:
                raise _stalled(answer, done - at_mark, now - mark)
            mark, at_mark = now, done


def _size(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB" if count >= 2**20 else f"{count:,} bytes"


def _stalled(answer: Any, count: int, seconds: float) -> UnavailableError:
    return UnavailableError(f"{host(answer.url)} stalled: {count:,} bytes came in {seconds:.0f} seconds")


# Connections


def reason(error: BaseException) -> str:
    """What went wrong, as part of a sentence."""
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        return reason(error.reason)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _open(url: str, headers: dict[str, str], certificates: str | None) -> Any:
    """The answer of a server, its headers read."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise UnavailableError(f"'{host(url)}' is no address that can be downloaded from")
    headers = {"User-Agent": f"compgcn/{__version__}", **headers}
    if parts.username is not None:  # urllib would take it for a part of the server's name
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    try:
        return _opener(certificates).open(urllib.request.Request(url, headers=headers), timeout=CONNECT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        raise UnavailableError(f"{host(url)} answered {error.code} {error.reason}") from error
    except InputError:  # a redirection that is not followed, or certificates: it says what is wrong by itself
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UnavailableError(f"{host(url)} could not be reached ({reason(error)})") from error


class _Patient:
    """A connection that is made quickly or not at all, and then may be slow."""

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.sock.settimeout(STALL_SECONDS)  # type: ignore[attr-defined]


class _HTTP(_Patient, http.client.HTTPConnection):
    pass


class _HTTPS(_Patient, http.client.HTTPSConnection):
    pass


class _HTTPHandler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HTTP, request)


class _HTTPSHandler(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._secure = context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HTTPS, request, context=self._secure)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """To http and https only, never from https to http, and without the password of another server."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in _SCHEMES or (old.scheme, new.scheme) == ("https", "http"):
            raise UnavailableError(f"{host(req.full_url)} redirects to '{new.scheme}:', which is not followed")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and new.netloc != old.netloc:
            request.remove_header("Authorization")
        return request


def _opener(certificates: str | None) -> urllib.request.OpenerDirector:
    """Only what is needed: no ftp, no data, no local files, whatever a server redirects to."""
    try:
        context = ssl.create_default_context(cafile=certificates)
    except OSError as error:
        raise InputError(f"the certificates in '{certificates}' cannot be read: {reason(error)}") from None
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _HTTPHandler(),
        _HTTPSHandler(context),
        _Redirects(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


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


# RuntimeError stands for a password, NotImplementedError for a way of packing that zipfile does not know.
_BROKEN = (
    *(OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, struct.error),
    *(ValueError, OverflowError, LookupError, RuntimeError, NotImplementedError),
)
_PIECE = 1 << 20


class ArchiveError(InputError):
    """The archive, as it is, cannot be used."""


def extract(archive: Path, members: Mapping[str, Path], limit: int, label: str = "") -> None:
    """Write the named members of a zip (a wheel is one) or of a gzipped tar to the given files.

    Args:
        archive: told by its content, not by its name.
        members: name in the archive -> the file to write, which must not exist.
        limit: bytes; what unpacks to more is refused before it fills the disk.
        label: what to call the archive in an error; by default its path.
    """
    label = label or str(archive)
    with archive.open("rb") as file:
        magic = file.read(4)
    read = _zip if magic[:2] == b"PK" else _tar if magic[:2] == b"\x1f\x8b" else None
    if read is None:
        raise ArchiveError(f"'{label}' is neither a zip nor a gzipped tar archive")
    found = set()
    left = limit
    reader = read(archive, set(members), limit, label)
    while (member := _next(reader, label)) is not None:
        name, stream = member
        if name in found:
            raise ArchiveError(f"the archive '{label}' holds the member '{name}' twice")
        found.add(name)
        with members[name].open("xb") as target:
            while chunk := _chunk(stream, label):
                left -= len(chunk)  # whatever the archive says of its sizes, no more than this is written
                if left < 0:
                    raise _too_large(limit, label)
                target.write(chunk)
    for name in members:
        if name not in found:
            raise ArchiveError(f"the archive '{label}' has no member '{name}'")


def _next(reader: Iterator[tuple[str, Any]], label: str) -> tuple[str, Any] | None:
    with _reading(label):
        return next(reader, None)


def _chunk(stream: Any, label: str) -> bytes:
    with _reading(label):
        return bytes(stream.read(_PIECE))


@contextmanager
def _reading(label: str) -> Iterator[None]:
    """What the readers raise on bytes that are no archive; writing stands outside of it, so that its errors differ."""
    try:
        yield
    except ArchiveError:
        raise
    except _BROKEN as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise ArchiveError(f"the archive '{label}' is truncated or damaged: {reason}") from None


def _zip(archive: Path, names: set[str], limit: int, label: str) -> Iterator[tuple[str, Any]]:
    with zipfile.ZipFile(archive) as file:
        left = limit
        for info in file.infolist():
            name = _safe(info.filename, label)
            if name not in names:
                continue
            mode = stat.S_IFMT(info.external_attr >> 16)
            _check_regular(name, mode in (0, stat.S_IFREG) and not info.is_dir(), label)
            left -= info.file_size  # zipfile never reads beyond this, whatever the member would unpack to
            if left < 0:
                raise _too_large(limit, label)
            with file.open(info) as stream:
                yield name, stream


def _tar(archive: Path, names: set[str], limit: int, label: str) -> Iterator[tuple[str, Any]]:
    """In one pass from front to back, the only way a compressed tar can be read; the limit is on all that is passed."""
    with gzip.open(archive) as packed:
        bounded: Any = _Bounded(packed, limit, label)
        with tarfile.open(fileobj=bounded, mode="r|") as file:
            for info in file:
                name = _safe(info.name, label)
                if name not in names:
                    continue
                # A sparse file has holes: a few bytes of the archive could be any number of zeros on the disk.
                _check_regular(name, info.isreg() and not info.issparse(), label)
                stream = file.extractfile(info)
                assert stream is not None  # it is for a regular file
                yield name, stream
        while bounded.read(_PIECE):  # the checksum stands at the end
            pass


def _safe(name: str, label: str) -> str:
    """The name without a leading `./`; one that leads out of a folder condemns the archive."""
    path = PurePosixPath(name.replace("\\", "/"))
    drive = bool(path.parts) and path.parts[0].endswith(":")
    if path.is_absolute() or ".." in path.parts or drive:
        raise ArchiveError(f"the archive '{label}' is not to be trusted: its member '{name}' leads outside of it")
    return str(path)


def _check_regular(name: str, regular: bool, label: str) -> None:
    if not regular:
        raise ArchiveError(
            f"the archive '{label}' is not to be trusted: its member '{name}' is a link or no plain file"
        )


def _too_large(limit: int, label: str) -> ArchiveError:
    return ArchiveError(f"the archive '{label}' unpacks to more than the {limit / 2**20:,.0f} MiB it may hold")


class _Bounded:
    """A stream that ends in an error once more than `limit` bytes have come out of it."""

    def __init__(self, stream: gzip.GzipFile, limit: int, label: str) -> None:
        self._stream, self._left, self._limit, self._label = stream, limit, limit, label

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(min(size, _PIECE) if size >= 0 else _PIECE)
        self._left -= len(chunk)
        if self._left < 0:
            raise _too_large(self._limit, self._label)
        return chunk


_LIMIT = 64 << 20  # bytes of a project's page
_SECTIONS = ("global", "install", "download", ":env:")  # of pip's settings, the later over the earlier
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.5, text/html;q=0.1"


class Pip(NamedTuple):
    """What matters here of pip's configuration: the indexes in order, and the certificates to trust."""

    indexes: tuple[str, ...]
    certificates: str | None


def configured() -> Pip:
    """As `pip config list` says, its files and variables together; where there is no pip, by the variables alone."""
    settings = _listed() or {
        f":env:.{key[4:].lower().replace('_', '-')}": value for key, value in os.environ.items() if key[:4] == "PIP_"
    }
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        merged |= {key[len(section) + 1 :]: value for key, value in settings.items() if key.startswith(f"{section}.")}
    if merged.get("no-index", "0").lower() in ("1", "true", "yes", "on"):
        return Pip((), None)
    index = merged["index-url"] if "index-url" in merged else _library().PYPI_SIMPLE_ENDPOINT
    words = [*index.split(), *merged.get("extra-index-url", "").split()]
    return Pip(tuple(dict.fromkeys(words)), merged.get("cert") or None)


def _listed() -> Mapping[str, str]:
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    found = {}
    for line in done.stdout.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            try:
                found[key] = str(ast.literal_eval(value))
            except (ValueError, SyntaxError):
                continue
    return found


def locate(project: str, file: str, pip: Pip) -> str:
    """The address of a file of a project, on the first index that has it."""
    if not pip.indexes:
        raise UnavailableError(f"pip is configured to use no index, so {file} cannot be looked up")
    failures = []
    for index in pip.indexes:
        try:
            return _on(index, project, file, pip.certificates)
        except UnavailableError as error:
            failures.append(str(error))
    raise UnavailableError(", ".join(failures))


def _library() -> Any:
    """pypi-simple: it knows the public index, and reads the pages of any."""
    try:
        import pypi_simple
    except ImportError:
        what = "the library pypi-simple, which is not installed (pip install 'compgcn[fetch]')"
        raise UnavailableError(f"reading a package index needs {what}") from None
    return pypi_simple


def _on(index: str, project: str, file: str, certificates: str | None) -> str:
    library = _library()
    normal = re.sub(r"[-_.]+", "-", project).lower()
    found = _page(f"{index.rstrip('/')}/{normal}/", certificates)
    try:
        if found.kind == _JSON:
            listing = library.ProjectPage.from_json_data(json.loads(found.body), found.url)
        else:
            listing = library.ProjectPage.from_html(normal, found.body, found.url)
    except (library.UnsupportedRepoVersionError, ValueError, KeyError, TypeError) as error:
        raise UnavailableError(f"the page of {project} on {host(index)} cannot be read ({reason(error)})") from None
    for package in listing.packages:
        if package.filename == file:
            return _authorised(package.url.partition("#")[0], index)
    raise UnavailableError(f"{host(index)} does not list {file}")


def _page(url: str, certificates: str | None) -> Page:
    """A page of an index; one on disk is a folder with an index.html in it, as for pip."""
    if urlsplit(url).scheme != "file":
        return page(url, _ACCEPT, _LIMIT, certificates)
    path = Path(urllib.request.url2pathname(urlsplit(url).path)) / "index.html"
    try:
        return Page(url, "text/html", path.read_bytes())
    except OSError as error:
        raise UnavailableError(f"'{path}' cannot be read ({reason(error)})") from None


def _authorised(url: str, index: str) -> str:
    """The address of a file, with the user and password of its index if it is on the same server.

    Only an index on disk may point to files on disk.
    """
    target, home = urlsplit(url), urlsplit(index)
    if target.scheme == "file" and home.scheme != "file":
        raise UnavailableError(f"{host(index)} points to a file on this machine, which is not followed")
    if target.hostname == home.hostname and target.scheme == home.scheme and "@" in home.netloc:
        user = home.netloc.rpartition("@")[0]
        return urlunsplit(target._replace(netloc=f"{user}@{target.netloc.rpartition('@')[2]}"))
    return url


class Fetched(NamedTuple):
    """What came of fetching a data set: the files by role, where they came from, and whether they were there before."""

    name: str
    entries: Mapping[str, Entry]
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
    if entries(name, files) is not None:
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
    entries = entries(name, files)
    if entries is None and folder:
        what = f"there is no file '{_wanted(files, Path(folder))}'"
        where = "COMPGCN_DATA must name the folder above it"
        raise InputError(f"the data set '{name}' was not found: {what}; {where}, or run compgcn data fetch {name}")
    if entries is None:
        log.info("%s: fetching it into the cache %s", name, root())
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
    known = entries(name, files) or {}
    return [entry.path.name for entry in known.values() if not entry.verified and entry.path in paths.values()]


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
                discard(file)


def _fetch(name: str, files: Files, source: Path | None, notify: Notify | None, downloads: set[str]) -> Fetched:
    pinned = pins(name)
    kept = sound(name, files)
    if kept is not None and source is None:
        return Fetched(name, kept, "the cache", already=True)
    if kept is None and is_there(name):  # it stays, pins and all, until there is something to put in its place
        log.info("%s: its files in the cache were altered, and are fetched again", name)
    mirror = _from(source, name, files) if source is not None else _first(name, files, notify, downloads)
    found = entries(name, files)
    if found is None:
        raise InputError(f"the data set '{name}' was taken out of the cache while it was fetched; try again")
    trusted = unverified(name, files, {role: entry.path for role, entry in found.items()})
    if trusted:
        what = f"no checksum of {', '.join(trusted)} is published"
        log.warning("%s: %s; what came is pinned from now on, but unverified", name, what)
    for role, digest in pinned.items():
        if role in found and found[role].sha256 != digest:
            log.warning("%s: %s is not what was first downloaded", name, found[role].path.name)
    return Fetched(name, found, mirror, already=False)


def _from(source: Path, name: str, files: Files) -> str:
    """All from this folder, or an error."""
    if not source.is_dir():
        raise InputError(f"there is no folder '{source}'")
    found = _find(files, source)
    if found is None:
        what = f"there is no file '{_wanted(files, source)}'"
        archives = " or ".join(f"'{archive.file}'" for archive in files.archives)
        raise InputError(f"'{source}' does not hold the data set '{name}': {what}{archives and f', nor {archives}'}")
    return _copy_over(found, name, files, source)


def _first(name: str, files: Files, notify: Notify | None, downloads: set[str]) -> str:
    """From the first mirror that has it; the error at the end says what each of them answered, and what to do."""
    failures = []
    folder = os.environ.get("COMPGCN_DATA")
    found = _find(files, Path(folder)) if folder else None
    if found is not None:
        try:
            return _copy_over(found, name, files, Path(str(folder)))
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
    with locked(archive.file) as path:
        assert path is not None  # we waited for it
        downloads.add(archive.file)
        mirror = f"the package file {archive.file}" if archive.project else f"{host(archive.address)} ({archive.file})"
        if sound(name, files) is not None:
            return mirror  # another process brought it while we waited
        if not (path.is_file() and archive.sha256 is not None and sha256(path) == archive.sha256):
            pip = configured() if archive.project else None
            url = locate(archive.project, archive.file, pip) if pip else archive.address
            log.info("%s: downloading %s from %s", name, archive.file, host(url))
            with writing():
                download(url, path, archive.sha256, limit, notify, pip.certificates if pip else None)
        _assemble(_Found({}, archive.items, archive, path), name, files, mirror)
        return mirror


def _copy_over(found: _Found, name: str, files: Files, source: Path) -> str:
    _assemble(found, name, files, f"'{source}'")
    return f"'{source}'"


def _assemble(found: _Found, name: str, files: Files, mirror: str) -> None:
    """Copy or unpack into a new folder, check every file against its sha256, and put the folder in place."""
    with staging(name) as folder:
        target = {role: folder / path.name for role, path in found.paths.items()}
        with writing():
            for role, path in found.paths.items():
                shutil.copyfile(path, target[role])
            target |= _unpack(found, files, folder)
        for role, path in target.items():
            if found.items[role].sha256 is not None and sha256(path) not in files.known(role):
                raise UnavailableError(f"'{path.name}' from {mirror} is not the published file: its sha256 differs")
        commit(folder, name, files, target, mirror)


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
