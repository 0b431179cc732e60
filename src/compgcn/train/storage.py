"""Files that are replaced all or nothing, and tensors in safetensors files. No pickle."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from compgcn import processes
from compgcn.errors import InputError

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

_UMASK = os.umask(0o022)
os.umask(_UMASK)  # it can only be read by setting it


class Table(NamedTuple):
    """Vectors [n, d] with the ids and names they stand for."""

    kind: str
    ids: list[str]
    names: list[str]
    vectors: Array


def settled(path: Path) -> Path:
    """Follow links to the file to replace; refuse a device, a pipe or the like, which a rename would remove."""
    target = Path(os.path.realpath(path))
    if target.is_symlink() or (target.exists() and not target.is_file() and not target.is_dir()):
        raise InputError(f"'{path}' exists and is not a file that could be replaced; choose another name")
    return target


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Replace a file as `replace_here` does; of several processes the first does it, and the others wait for it."""
    if processes.rank() == 0:
        replace_here(path, write)
    processes.wait()


class WriteError(OSError):
    """A file could not be written; the message is whole."""


def replace_here(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under a temporary name, then rename it over the old one. A link stays one, to the new file."""
    target = settled(path)
    part = f".{target.name}.{secrets.token_hex(4)}.part"  # of this writer alone: others may write the file too
    temporary, there = target.with_name(part), target.is_file()
    try:
        write(temporary)
        temporary.chmod(target.stat().st_mode & 0o777 if there else 0o666 & ~_UMASK)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, WriteError):  # of a second file that `write` replaces
            raise
        if isinstance(error, (OSError, pa.ArrowException, safetensors.SafetensorError)):
            kept = "; the old file is untouched" if there else ""
            raise WriteError(f"could not write {path}: {reason(error)}{kept}") from None
        raise


def append(path: Path, lines: str) -> None:
    """Append lines to a file, in the place of a last one that a kill or a full disk cut short."""
    try:
        with path.open("ab+") as file:
            if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            file.write(lines.encode())
    except OSError as error:
        raise WriteError(f"could not write {path}: {reason(error)}; the same command goes on from here") from None


def must_differ(to: str | Path | None, **given: str | Path | None) -> None:
    """Refuse to write over an input file, by whatever path."""
    for what, path in given.items():
        if path and to and os.path.exists(path) and os.path.exists(to) and os.path.samefile(path, to):
            raise InputError(f"the {what} are read from '{path}', so nothing is written to it; choose another file")


def reason(error: Exception) -> str:
    """Return the first line of a library's message, as part of a sentence."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.rstrip().endswith(":")]
    return lines[0].rstrip(".") if lines else type(error).__name__


class Split(NamedTuple):
    """Tables of which every process has some rows: this one those from `start` to `stop`, of `total`."""

    weights: tuple[str, ...]
    start: int
    stop: int
    total: int

    def cuts(self, name: str, shape: Sequence[int]) -> bool:
        """Return whether a tensor, a weight or the optimiser's state of one, is such a table."""
        return bool(len(shape)) and any(f".{weight}." in f".{name}." for weight in self.weights)


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str], split: Split | None = None) -> None:
    """Replace a safetensors file; tables that are split go into a file of every process beside it.

    The file names those that belong to it, and is replaced after they are written: a kill at any moment leaves the old
    file with the old tables.
    """
    plain = {name: value.detach().contiguous() for name, value in tensors.items()}
    files = []
    if split is not None:
        own = {name: plain.pop(name) for name, value in tensors.items() if split.cuts(name, value.shape)}
        turn = 1 - int((read_metadata(path) if path.is_file() else {}).get("turn", "1"))
        numbers = range(1, processes.size() + 1)
        files = [f"{path.stem}-{'ab'[turn]}-{number}-of-{len(numbers)}{path.suffix}" for number in numbers]
        replace_here(path.with_name(files[processes.rank()]), lambda part: save_file(own, part))
        processes.wait()
        metadata = metadata | {"turn": str(turn), "rows": str(split.total), "files": json.dumps(files)}
    replace(path, lambda part: save_file(plain, part, metadata))
    if processes.rank() == 0:
        for old in pieces(path):
            if old.name not in files:
                old.unlink()


def pieces(path: Path) -> list[Path]:
    """Return the files beside a safetensors file that hold parts of its tables, or did before."""
    return sorted(path.parent.glob(f"{path.stem}-[ab]-*-of-*{path.suffix}"))


def read_metadata(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, "pt") as archive:
        return archive.metadata() or {}


def load_tensors(path: Path, wanted: Sequence[str] | None = None, split: Split | None = None) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, or those of the wanted ones that it holds.

    Tables are whole, wherever their rows lie; of those that `split` cuts, only its rows are read.
    """
    metadata = read_metadata(path)
    try:
        files = [path.with_name(name) for name in json.loads(metadata.get("files", "[]"))]
        total = int(metadata.get("rows", "0"))
    except (ValueError, TypeError) as error:
        raise safetensors.SafetensorError(f"its metadata name no files: {error}") from None
    found = _read(path, wanted, split, 0, split.total if split else 0)
    each = max(1, -(-total // max(1, len(files))))
    parts: dict[str, list[Tensor]] = {}
    for number, file in enumerate(files):
        first, last = (min(place * each, total) for place in (number, number + 1))
        for table, rows in _read(file, wanted, split, first, last).items():
            parts.setdefault(table, []).append(rows)
    return found | {name: torch.cat(rows) for name, rows in parts.items()}


def _read(path: Path, wanted: Sequence[str] | None, split: Split | None, first: int, last: int) -> dict[str, Tensor]:
    """Return the tensors of one file, whose tables have the rows from `first` to `last`."""
    found = {}
    with safetensors.safe_open(path, "pt") as archive:
        for name in archive.keys():  # noqa: SIM118 - not a dict
            if wanted is not None and name not in wanted:
                continue
            part = archive.get_slice(name)
            if split is not None and split.cuts(name, part.get_shape()):
                begin, end = (min(max(place, first), last) - first for place in (split.start, split.stop))
                found[name] = part[begin:end]
            else:
                found[name] = archive.get_tensor(name)
    return found
