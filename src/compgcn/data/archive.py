"""Named members out of an archive, and nothing else of it: no code runs, no path of its own is ever written to."""

from __future__ import annotations

import gzip
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from compgcn.errors import InputError

# RuntimeError stands for a password, NotImplementedError for a way of packing that zipfile does not know.
_BROKEN = (
    *(OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, struct.error),
    *(ValueError, OverflowError, LookupError, RuntimeError, NotImplementedError),
)
_CHUNK = 1 << 20


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
        return bytes(stream.read(_CHUNK))


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
        while bounded.read(_CHUNK):  # the checksum stands at the end
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
        chunk = self._stream.read(min(size, _CHUNK) if size >= 0 else _CHUNK)
        self._left -= len(chunk)
        if self._left < 0:
            raise _too_large(self._limit, self._label)
        return chunk
