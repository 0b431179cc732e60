"""One file over HTTP: bounded in time and size, resumed where it was left, kept only if its checksum is right."""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from compgcn import __version__
from compgcn.errors import InputError

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
