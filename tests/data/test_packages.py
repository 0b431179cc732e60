"""The index that pip is configured for is the one that is asked, in both of its formats; nothing of a package runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from pypi_simple import PYPI_SIMPLE_ENDPOINT

from compgcn.data import download
from compgcn.data.download import Pip, UnavailableError, configured, locate
from server import Server, sha, whole

FILE = "some_data-1.0.tar.gz"
HTML = f'<!DOCTYPE html><html><body><a href="../../files/{FILE}#sha256={sha(b"")}">{FILE}</a></body></html>'.encode()
JSON = json.dumps(
    {
        "meta": {"api-version": "1.1"},
        "name": "some-data",
        "versions": ["1.0"],
        "files": [{"filename": FILE, "url": f"../../files/{FILE}", "hashes": {}, "size": 3}],
    }
).encode()
JSON_KIND = "application/vnd.pypi.simple.v1+json"


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def test_without_settings_it_is_the_public_index() -> None:
    assert configured() == Pip((PYPI_SIMPLE_ENDPOINT,), None)


@pytest.mark.parametrize("with_pip", [True, False])
def test_the_variables_of_pip_name_the_indexes(monkeypatch: pytest.MonkeyPatch, with_pip: bool) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://one.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://two.example/simple https://one.example/simple")
    monkeypatch.setenv("PIP_CERT", "/some/certificates.pem")
    if not with_pip:
        monkeypatch.setattr(download, "_listed", dict)
    expected = ("https://one.example/simple", "https://two.example/simple")
    assert configured() == Pip(expected, "/some/certificates.pem")


def test_the_files_of_pip_name_the_indexes_and_variables_come_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text(
        "[global]\nindex-url = https://file.example/simple\nextra-index-url =\n    https://a.example\n    https://b.example\n"
        "[install]\ncert = /x.pem\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    assert configured() == Pip(("https://file.example/simple", "https://a.example", "https://b.example"), "/x.pem")
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/simple")
    assert configured().indexes == ("https://variable.example/simple", "https://a.example", "https://b.example")


def test_pip_without_an_index_is_answered_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UnavailableError, match="pip is configured to use no index"):
        locate("some_data", FILE, configured())


@pytest.mark.parametrize(("body", "kind"), [(HTML, "text/html"), (JSON, JSON_KIND)])
def test_a_file_is_found_in_both_formats_of_an_index(server: Server, body: bytes, kind: str) -> None:
    server.answers["/simple/some-data/"] = whole(body, kind=kind)
    for project in ("Some.Data", "some_data"):  # the page is under the normalised name
        found = locate(project, FILE, Pip((server.url("/simple"),), None))
        assert found == server.url(f"/files/{FILE}")


def test_the_next_index_is_asked_for_what_the_first_does_not_have(server: Server) -> None:
    server.answers["/empty/some-data/"] = whole(b"<html></html>", kind="text/html")
    server.answers["/broken/some-data/"] = whole(b"[1", kind=JSON_KIND)
    server.answers["/good/some-data/"] = whole(HTML, kind="text/html")
    bad = [server.url(f"/{name}") for name in ("none", "empty", "broken")]
    assert locate("some_data", FILE, Pip((*bad, server.url("/good/")), None)) == server.url(f"/files/{FILE}")
    with pytest.raises(UnavailableError, match=r"answered 404 .*, 127.0.0.1 does not list .*, the page of some_data"):
        locate("some_data", FILE, Pip(tuple(bad), None))


def test_an_index_on_disk_is_read_as_pip_reads_it(tmp_path: Path, server: Server) -> None:
    folder = tmp_path / "simple" / "some-data"
    folder.mkdir(parents=True)
    (folder / "index.html").write_bytes(HTML)
    found = locate("some_data", FILE, Pip(((tmp_path / "simple").as_uri(),), None))
    assert found == (tmp_path / "files" / FILE).as_uri()
    with pytest.raises(UnavailableError, match="cannot be read"):
        locate("other", FILE, Pip(((tmp_path / "simple").as_uri(),), None))


def test_an_index_on_the_web_cannot_point_to_the_disk(server: Server) -> None:
    page = HTML.replace(b"../../files", b"file:///etc")
    server.answers["/simple/some-data/"] = whole(page, kind="text/html")
    with pytest.raises(UnavailableError, match="points to a file on this machine, which is not followed"):
        locate("some_data", FILE, Pip((server.url("/simple"),), None))


def test_the_password_of_an_index_goes_along_to_its_own_files_only(server: Server) -> None:
    server.answers["/simple/some-data/"] = whole(HTML, kind="text/html")
    index = Pip((server.url("/simple", "me:pass@"),), None)
    assert locate("some_data", FILE, index) == server.url(f"/files/{FILE}", "me:pass@")
    server.answers["/simple/some-data/"] = whole(HTML.replace(b"../..", b"https://files.example"), kind="text/html")
    assert locate("some_data", FILE, index) == f"https://files.example/files/{FILE}"


def test_without_pypi_simple_the_extra_to_install_is_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypi_simple", None)
    with pytest.raises(UnavailableError, match=r"pip install 'compgcn\[fetch\]'"):
        locate("some_data", FILE, Pip((server.url("/simple"),), None))
