"""A download is the published file, whole, or one clear error; what is kept of a failed one can only help the next."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from compgcn.data import download as module
from compgcn.data.download import UnavailableError, download, page
from compgcn.errors import InputError
from server import Answer, Server, cut, held, redirect, resumable, serving, sha, silent, whole

DATA = bytes(range(256)) * 400  # 100 kB
MIB = 1 << 20


def get(server: Server, path: Path, answer: Answer, sha256: str | None = sha(DATA), limit: int = MIB) -> list[int]:
    """Download what is answered; the bytes at each step."""
    server.answers["/file.zip"] = answer
    steps: list[int] = []
    download(server.url("/file.zip"), path, sha256, limit, lambda name, done, total: steps.append(done))
    return steps


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "file.zip"


def part(target: Path) -> Path:
    return target.with_name("file.zip.part")


@pytest.mark.parametrize("sha256", [sha(DATA), None])
def test_a_file_arrives_whole_and_its_progress_is_told(server: Server, target: Path, sha256: str | None) -> None:
    steps = get(server, target, whole(DATA), sha256)
    assert target.read_bytes() == DATA
    assert not part(target).exists()
    assert steps == sorted(steps)
    assert steps[-1] == len(DATA)


def test_a_dropped_connection_is_taken_up_where_it_broke(server: Server, target: Path) -> None:
    get(server, target, cut(DATA, 40_000))
    assert target.read_bytes() == DATA
    assert [headers.get("Range") for _, headers in server.seen] == [None, "bytes=40000-", "bytes=80000-"]


def test_a_truncated_download_is_an_error_and_the_next_call_goes_on(server: Server, target: Path) -> None:
    with pytest.raises(UnavailableError, match=r"127.0.0.1 broke off after 30,000 bytes of file.zip"):
        get(server, target, cut(DATA, 10_000))
    assert not target.exists()
    get(server, target, resumable(DATA))
    assert target.read_bytes() == DATA
    assert server.seen[-1][1]["Range"] == "bytes=30000-"


def test_a_server_that_cannot_resume_sends_it_all_again(server: Server, target: Path) -> None:
    part(target).write_bytes(DATA[:1000])
    get(server, target, whole(DATA))
    assert target.read_bytes() == DATA


def test_a_part_that_was_complete_is_only_checked(server: Server, target: Path) -> None:
    part(target).write_bytes(DATA)
    get(server, target, resumable(DATA))
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("stale", [b"of another file", DATA + b"and more"])
def test_a_part_of_another_file_is_thrown_away(server: Server, target: Path, stale: bytes) -> None:
    part(target).write_bytes(stale)
    get(server, target, resumable(DATA))
    assert target.read_bytes() == DATA


def test_without_a_checksum_a_part_is_never_joined_to_what_may_be_another_file(server: Server, target: Path) -> None:
    part(target).write_bytes(b"of another file")
    get(server, target, resumable(DATA), None)
    assert target.read_bytes() == DATA
    with pytest.raises(UnavailableError, match=r"broke off after 40,000 bytes of file.zip \(of 102,400\)"):
        get(server, target, cut(DATA, 40_000), None)
    assert not any("Range" in headers for _, headers in server.seen)


@pytest.mark.parametrize("end", [b"0\r\n\r\n", b""])
def test_a_file_of_unsaid_size_is_taken_if_its_transfer_ended_cleanly(server: Server, target: Path, end: bytes) -> None:
    def chunked(request: Any) -> None:
        request.head(200, {"Transfer-Encoding": "chunked"})
        request.wfile.write(b"%x\r\n%b\r\n" % (len(DATA), DATA) + end)

    if end:
        get(server, target, chunked, None)
        assert target.read_bytes() == DATA
    else:
        with pytest.raises(UnavailableError, match="broke off after 102,400 bytes"):
            get(server, target, chunked, None)
        assert not target.exists()


def test_an_altered_file_is_refused_and_not_kept(server: Server, target: Path) -> None:
    with pytest.raises(UnavailableError, match=r"sent as file.zip is not the published file: its sha256 begins with"):
        get(server, target, whole(DATA[:-1] + b"!"))
    assert not list(target.parent.iterdir())


def test_a_server_that_stalls_is_given_up(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    connect = module._Patient.connect
    monkeypatch.setattr(module._Patient, "connect", lambda self: (connect(self), made.append(self.sock)))

    def notify(name: str, done: int, total: int | None) -> None:
        assert made[0].gettimeout() == module.STALL_SECONDS
        if done == 50_000:  # nothing more will come, however long one waits
            made.pop().settimeout(0.01)

    server.answers["/file.zip"] = held(DATA, 50_000)
    with pytest.raises(UnavailableError, match=r"127.0.0.1 stalled: nothing came for"):
        download(server.url("/file.zip"), target, sha(DATA), MIB, notify)
    assert not target.exists()


@pytest.mark.usefixtures("hasty")
def test_a_server_that_drips_is_given_up(server: Server, target: Path) -> None:
    with pytest.raises(UnavailableError, match=r"127.0.0.1 stalled: 3 bytes came in 301 seconds"):
        get(server, target, held(DATA, 3))


def test_a_server_that_never_answers_is_given_up(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS", 0.1)
    with pytest.raises(UnavailableError, match="could not be reached"):
        get(server, target, silent)


def test_nobody_listening_is_said_at_once(target: Path) -> None:
    with serving() as gone:
        url = gone.url("/file.zip")
    with pytest.raises(UnavailableError, match=r"127.0.0.1 could not be reached \(Connection refused\)"):
        download(url, target, None, MIB)


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_an_error_of_the_server_is_named(server: Server, target: Path, status: int) -> None:
    with pytest.raises(UnavailableError, match=f"127.0.0.1 answered {status}"):
        get(server, target, lambda request: request.send(b"sorry", status=status))
    assert not list(target.parent.iterdir())


@pytest.mark.parametrize("sha256", [sha(DATA), None])
def test_a_web_page_in_place_of_the_file_is_refused(server: Server, target: Path, sha256: str | None) -> None:
    with pytest.raises(UnavailableError, match=r"answered with a web page in place of file.zip"):
        get(server, target, whole(b"<html>log in</html>", kind="text/html; charset=utf-8"), sha256)
    assert not list(target.parent.iterdir())


def test_a_file_that_is_too_large_is_refused_before_it_is_loaded(server: Server, target: Path) -> None:
    with pytest.raises(UnavailableError, match="larger than the"):
        get(server, target, whole(DATA), limit=1000)
    assert not part(target).exists()


def test_a_file_that_does_not_say_its_size_is_cut_at_the_limit(server: Server, target: Path) -> None:
    def endless(request: object) -> None:
        request.head(200, {})  # type: ignore[attr-defined]
        while True:
            request.wfile.write(DATA)  # type: ignore[attr-defined]

    with pytest.raises(UnavailableError, match="sent more than the"):
        get(server, target, endless, limit=10 * len(DATA))
    assert part(target).stat().st_size <= 10 * len(DATA)


@pytest.mark.parametrize("elsewhere", ["file:///etc/hostname", "ftp://127.0.0.1/x", "data:text/plain,x"])
def test_a_redirection_leads_to_the_web_or_nowhere(server: Server, target: Path, elsewhere: str) -> None:
    with pytest.raises(UnavailableError, match=r"^127.0.0.1 redirects to|^127.0.0.1 answered 302"):
        get(server, target, redirect(elsewhere), None)
    assert not target.exists()


def test_a_redirection_is_followed_and_a_circle_of_them_is_not(server: Server, target: Path) -> None:
    server.answers["/there.zip"] = whole(DATA)
    get(server, target, redirect("/there.zip"))
    assert target.read_bytes() == DATA
    with pytest.raises(UnavailableError, match="answered 302"):
        get(server, target.with_name("other.zip"), redirect("/file.zip"))


def test_a_password_goes_to_its_server_and_to_no_other(server: Server, target: Path) -> None:
    with serving() as other:
        other.answers["/file.zip"] = whole(DATA)
        server.answers["/file.zip"] = redirect(other.url("/file.zip"))
        download(server.url("/file.zip", "me:s%40t@"), target, sha(DATA), MIB)
        assert server.seen[0][1]["Authorization"] == f"Basic {base64.b64encode(b'me:s@t').decode()}"
        assert "Authorization" not in other.seen[0][1]
    with pytest.raises(UnavailableError) as failure:
        download(server.url("/none.zip", "me:secret@"), target, None, MIB)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/file", "/etc/hostname", "data:,x", "http://"])
def test_other_addresses_are_not_opened(url: str, target: Path) -> None:
    with pytest.raises(UnavailableError, match="is no address that can be downloaded from"):
        download(url, target, None, MIB)


def test_a_page_has_a_largest_size(server: Server) -> None:
    server.answers["/page"] = whole(b"hello", kind="text/html")
    assert page(server.url("/page"), "text/html", 5).body == b"hello"
    with pytest.raises(UnavailableError, match="sent more than the 4 bytes"):
        page(server.url("/page"), "text/html", 4)


def test_a_page_that_drips_or_breaks_off_is_given_up(server: Server, hasty: pytest.MonkeyPatch) -> None:
    server.answers["/page"] = held(DATA, 3)
    with pytest.raises(UnavailableError, match=r"127.0.0.1 stalled: 3 bytes came in"):
        page(server.url("/page"), "text/html", MIB)
    hasty.undo()
    server.answers["/page"] = cut(DATA, 1000)
    with pytest.raises(UnavailableError, match="broke off while answering"):
        page(server.url("/page"), "text/html", MIB)


def test_certificates_that_cannot_be_read_are_no_fault_of_the_server(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^the certificates in '.*none.pem' cannot be read") as failure:
        page(server.url("/page"), "text/html", MIB, str(tmp_path / "none.pem"))
    assert not isinstance(failure.value, UnavailableError)


def test_a_file_on_this_machine_is_copied_and_checked(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source.zip"
    source.write_bytes(DATA)
    download(source.as_uri(), target, sha(DATA), MIB)
    assert target.read_bytes() == DATA
    with pytest.raises(UnavailableError, match="is not the published file"):
        download(source.as_uri(), target, sha(b"other"), MIB)
    with pytest.raises(UnavailableError, match="larger than"):
        download(source.as_uri(), target, sha(DATA), 10)
    with pytest.raises(UnavailableError, match="cannot be read"):
        download((tmp_path / "none").as_uri(), target, sha(DATA), MIB)
