"""What every reader of triples hands over, and which columns of a table hold them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from compgcn.errors import InputError, unknown

Numbers = NDArray[np.int64]
Features = NDArray[np.float32]


def keys(triples: Numbers, num_entities: int, num_relations: int) -> Numbers:
    """One number per triple, equal where the triples are. [n]"""
    s, r, o = triples.T
    if num_entities**2 * num_relations >= 2**63:
        raise InputError(f"{num_entities} entities and {num_relations} relations are more than can be numbered")
    numbers: Numbers = (s * num_entities + o) * num_relations + r
    return numbers


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it must be."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def checked_features(kind: str, given: Any, rows: Mapping[int, str]) -> Features:
    """Finite numbers [n, f], for one of the numbers of rows n that there may be, each with its letter."""
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
            features = np.array(given, dtype=np.float32, order="C")
    except (TypeError, ValueError):
        raise InputError(f"the {kind} features are not an array of numbers") from None
    if features.ndim != 2 or features.shape[0] not in rows or not features.shape[1]:
        expected = " or ".join(f"[{count}, f]" for count in rows)
        letters = " or ".join(f"[{letter}, f]" for letter in rows.values())
        shape = list(features.shape)
        raise InputError(f"the {kind} features have shape {shape}; expected {expected}, that is {letters}")
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise InputError(f"the {kind} features are not all finite: row {row} holds a NaN or an infinity")
    return features


Columns = Sequence[str | int]

_BESIDE = 1000  # files of a folder, at most, that a name which is not there is compared with

# What the subject, the relation and the object of a triple are called in the header of a table.
HEADERS = (
    {"head", "subject", "source", "from", "s", "h", "src", "head_id", "subject_id", "source_id"},
    {"relation", "predicate", "rel", "r", "p", "edge", "type", "property", "relation_id", "predicate_id"},
    {"tail", "object", "target", "to", "o", "t", "dst", "tail_id", "object_id", "target_id"},
)


class Attributes(NamedTuple):
    """Literal values of nodes, kept beside a graph: row i says that `nodes[i]` has `values[i]` by `relations[i]`."""

    nodes: list[str]
    relations: list[str]
    values: list[str]


class Facts(NamedTuple):
    """The triples of one source.

    Fields:
        columns: subject, relation and object, each a pyarrow chunked array of strings, dictionary-encoded or not.
        notes: what was noticed on the way, a sentence each.
        attributes: literal values kept aside.
        guessed: whether the first row was read as a triple for want of a header that could be recognised.
        names: id -> readable name, where the source says it.
    """

    columns: list[Any]
    notes: tuple[str, ...] = ()
    attributes: Attributes | None = None
    guessed: bool = False
    names: Mapping[str, str] = MappingProxyType({})


class Source(Protocol):
    """Something that triples can be read from."""

    @property
    def label(self) -> str:
        """What to call it in an error."""

    def facts(self) -> Facts:
        """All of its triples, or an InputError that names the first line that is wrong."""


def is_header(fields: Sequence[str], words: Sequence[set[str]]) -> bool:
    """Whether each field is one of the words for what stands in its column."""
    return all(field.strip().casefold() in known for field, known in zip(fields, words, strict=True))


def named_places(fields: Sequence[str]) -> list[int] | None:
    """Where subject, relation and object stand, if the fields are words for just these, in whatever order."""
    folded = [field.strip().casefold() for field in fields]
    known = [[place for place, name in enumerate(folded) if name in words] for words in HEADERS]
    return [places[0] for places in known] if all(len(places) == 1 for places in known) else None


def check_columns(
    columns: Columns, count: int = 3, what: str = "subject, relation and object"
) -> tuple[str | int, ...]:
    """Column names, or positions from 0 on, one for each of `what`."""
    given = tuple(columns) if not isinstance(columns, str) else ()
    names = all(isinstance(column, str) for column in given)
    places = all(type(column) is int and column >= 0 for column in given)
    if len(given) != count or len(set(given)) != count or not (names or places):
        raise InputError(f"columns must be {count} names or {count} positions from 0 on, of {what}, not {columns!r}")
    return given


def locate(label: str, columns: Columns, header: Sequence[str]) -> list[int]:
    """Where the columns stand in a table whose columns are called `header`."""
    places = []
    for column in columns:
        if isinstance(column, int):
            if column >= len(header):
                raise InputError(f"'{label}' has no column {column}: it has {len(header)} columns, counted from 0")
            places.append(column)
        elif header.count(column) == 1:
            places.append(header.index(column))
        elif column in header:
            raise InputError(f"'{label}' has several columns called '{column}'; give positions from 0 on instead")
        else:
            raise InputError(f"'{label}': {unknown('column', column, header)}")
    return places


def places_of(label: str, columns: Columns | None, names: Sequence[str]) -> list[int]:
    """Where subject, relation and object stand in a table whose columns have names: as told, by name, or all three."""
    if columns is not None:
        return locate(label, columns, names)
    if (named := named_places(names)) is not None:
        return named
    if len(names) == 3:
        return [0, 1, 2]
    if len(names) < 3:
        raise InputError(f"'{label}' has the columns {', '.join(names)}; a triple has three")
    what = "call three of them head, relation and tail, or say with columns= (--columns of train) which to read"
    raise InputError(f"'{label}' has the columns {', '.join(names)}; {what}")


def naming(columns: Sequence[str], setting: str = "columns") -> str:
    """The option of a command that names these columns."""
    plain = all(name == name.strip() and not set(name) & set(',"[]{}') and not name.isdecimal() for name in columns)
    listed = ",".join(columns) if plain else json.dumps(list(columns), ensure_ascii=False, separators=(",", ":"))
    if plain and setting == "columns":
        return f"--columns {shlex.quote(listed)}"
    return f"--set {shlex.quote(f'{setting}={listed}')}"


def existing(path: str | Path) -> Path:
    """The path of a file that is there."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; give a file of triples in it, others with valid= (--valid) and test=")
    if not path.exists():
        beside = islice(path.parent.iterdir(), _BESIDE) if path.parent.is_dir() else ()
        near = get_close_matches(path.name, [file.name for file in beside], n=1, cutoff=0.8)
        raise InputError(
            f"there is no file '{path}'" + (f"; did you mean '{path.with_name(near[0])}'?" if near else "")
        )
    return path


def endings(path: Path) -> tuple[str, str]:
    """The ending that tells the format, and the one that tells the compression, if any: .gz or .zst."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    packed = suffixes.pop() if suffixes and suffixes[-1] in (".gz", ".zst") else ""
    return suffixes[-1] if suffixes else "", packed


@contextmanager
def unpacked(path: Path) -> Iterator[Any]:
    """The bytes of a file, decompressed as its ending says, as a stream."""
    _, packed = endings(path)
    if packed == ".gz":
        import gzip

        with gzip.GzipFile(path, "rb") as stream:
            yield stream
    elif packed == ".zst":
        import io

        import pyarrow as pa

        with pa.input_stream(str(path), compression="zstd") as stream:
            yield io.BufferedReader(stream)
    else:
        with path.open("rb") as stream:
            yield stream
