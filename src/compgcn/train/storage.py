"""Files and folders that are written all or nothing; tensors, whole or in shards. No pickle."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from compgcn.errors import InputError

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

_UMASK = os.umask(0o022)
os.umask(_UMASK)  # it can only be read by setting it

_PIECE = "#"  # joins the name of a tensor and the number of a piece of it; no parameter has it in its name


def settled(path: Path) -> Path:
    """What a path leads to through links, to be written there; a device, a pipe or the like is refused.

    A rename would put a file in the place of the link or the device, and leave what the link leads to as it was.
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink() or (target.exists() and not target.is_file() and not target.is_dir()):
        raise InputError(f"'{path}' exists and is not a file that could be replaced; choose another name")
    return target


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """All or nothing: under another name first, then renamed. A link stays one, to the new file."""
    target = settled(path)
    temporary = target.with_name(f".{target.name}.part")
    try:
        write(temporary)
        temporary.chmod(0o666 & ~_UMASK)  # as any other file; safetensors writes for its owner only
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except (OSError, pa.ArrowException, safetensors.SafetensorError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise InputError(f"could not write {path}: {reason(error)}; what was there before is untouched") from None


def must_differ(to: str | Path, **given: str | Path | None) -> None:
    """Refuse to write over a file that is to be read, by whatever path."""
    for what, path in given.items():
        if path is not None and Path(path).exists() and Path(to).exists() and os.path.samefile(path, to):
            raise InputError(f"the {what} are read from '{path}', so nothing is written to it; choose another file")


def replace_folder(path: Path, write: Callable[[Path], object], own: Sequence[str]) -> None:
    """The same for a folder, made anew.

    Args:
        path: the folder. One that has anything but files of our own in it is someone else's, and stays.
        write: fills the folder it is given.
        own: patterns of the names of our files.
    """
    path = settled(path)
    if path.exists() and not (path.is_dir() and all(_is_own(file, own) for file in path.iterdir())):
        raise InputError(f"'{path}' exists and is not a folder that was exported before; choose another")
    temporary, old = path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.old")
    try:
        for left in (temporary, old):  # by a kill
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir()
        write(temporary)
        if path.exists():
            path.rename(old)
        temporary.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if old.exists() and not path.exists():
            old.rename(path)
        raise InputError(f"could not write {path}: {reason(error)}; what was there before is untouched") from None


def _is_own(file: Path, patterns: Sequence[str]) -> bool:
    return file.is_file() and any(fnmatchcase(file.name, pattern) for pattern in patterns)


def reason(error: Exception) -> str:
    """What a library says is wrong, as part of a sentence; its headings are left out."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.rstrip().endswith(":")]
    return lines[0].rstrip(".") if lines else type(error).__name__


def save_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str], max_shard_mib: float | None = None
) -> None:
    """Replace a safetensors file, or its shards of at most so many MiB and the index that names them.

    A large tensor is cut along its first dimension. Shards have new names every time, and the index is replaced after
    them: until then the old ones are in force, and what no index names is removed.
    """
    plain = {name: value.detach().contiguous() for name, value in tensors.items()}
    if max_shard_mib is None:
        replace(path, lambda part: save_file(plain, part, metadata))
        return
    turn = 1 - _turn(path)
    shards = {}
    for number, shard in enumerate(_shards(plain, int(max_shard_mib * 2**20))):
        shards[f"{path.stem}-{turn}-{number:05d}{path.suffix}"] = shard
    for name, shard in shards.items():
        replace(path.with_name(name), lambda part, shard=shard: save_file(shard, part, metadata))  # type: ignore[misc]
    replace(_index(path), lambda part: part.write_text(json.dumps(list(shards))))
    for old in path.parent.glob(f"{path.stem}-*{path.suffix}"):
        if old.name not in shards:
            old.unlink()


def _index(path: Path) -> Path:
    return path.with_name(f"{path.name}.index.json")


def _files(path: Path) -> list[Path]:
    """The file itself, or the shards its index names."""
    if not _index(path).is_file():
        return [path]
    names = json.loads(_index(path).read_text())
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{_index(path).name} does not list files")
    files = [path.with_name(Path(name).name) for name in names]
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file.name} is missing")
    return files


def _turn(path: Path) -> int:
    """0 or 1, the number in the names of the shards in force; new ones take the other."""
    try:
        return int(_files(path)[0].name.removeprefix(f"{path.stem}-")[0])
    except ValueError:  # no shards, or none that could be read
        return 1


def _shards(tensors: dict[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    shards: list[dict[str, Tensor]] = [{}]
    room = limit
    for name, tensor in tensors.items():
        rows = max(1, limit // max(1, tensor[:1].nbytes)) if tensor.ndim else 1
        pieces = torch.split(tensor, rows) if tensor.nbytes > limit and tensor.ndim else [tensor]
        for number, piece in enumerate(pieces):
            if piece.nbytes > room and shards[-1]:
                shards.append({})
                room = limit
            key = name if len(pieces) == 1 else f"{name}{_PIECE}{number:05d}"
            shards[-1][key] = piece.clone()
            room -= piece.nbytes
    return shards


def load_tensors(path: Path, wanted: Sequence[str] | None = None) -> dict[str, Tensor]:
    """The tensors of a file or of its shards; those that are wanted only, where that is said and they are there."""
    pieces: dict[str, dict[str, Tensor]] = {}
    for file in _files(path):
        with safetensors.safe_open(file, "pt") as archive:
            for key in archive.keys():  # noqa: SIM118 - not a dict
                name, _, number = key.partition(_PIECE)
                if wanted is None or name in wanted:
                    pieces.setdefault(name, {})[number] = archive.get_tensor(key)
    ordered = {name: [parts[number] for number in sorted(parts)] for name, parts in pieces.items()}
    return {name: parts[0] if len(parts) == 1 else torch.cat(parts) for name, parts in ordered.items()}


class Table(NamedTuple):
    """Vectors [n, d] with what they stand for."""

    kind: str
    ids: list[str]
    names: list[str]
    vectors: Array
