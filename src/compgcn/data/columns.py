"""The vocabulary that all readers share: triples as columns of text, header words, column positions and paths."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from compgcn.errors import InputError, unknown


class Library:
    """A library that is imported when it is first used: commands and the embedded graph start without pyarrow."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


pa, pc = Library("pyarrow"), Library("pyarrow.compute")

Numbers = NDArray[np.int64]
Features = NDArray[np.float32]
Columns = Sequence[str | int]  # names, or positions from 0 on

SPLITS = ("train", "valid", "test")
PACKED = {".gz": "gzip", ".zst": "zstd"}
# Words that name the subject, the relation and the object in the header of a table.
HEADERS = (
    {"head", "subject", "source", "from", "s", "h", "src", "head_id", "subject_id", "source_id"},
    {"relation", "predicate", "rel", "r", "p", "edge", "type", "property", "relation_id", "predicate_id"},
    {"tail", "object", "target", "to", "o", "t", "dst", "tail_id", "object_id", "target_id"},
)
_BESIDE = 1000  # files of a folder, at most, that are compared with a misspelt name


class Facts(NamedTuple):
    """Triples of one source."""

    columns: list[Any]  # subject, relation and object: chunked arrays of strings, dictionary-encoded or not
    notes: tuple[str, ...] = ()  # remarks for the user, a sentence each
    literals: Sequence[tuple[str, str, str]] | None = None  # node, relation and value of those kept beside the graph
    guessed: bool = False  # whether the reader took the first row for a triple without knowing the header
    names: Mapping[str, str] = MappingProxyType({})  # id -> readable name, where the source has names


class Source(Protocol):
    """Something that triples can be read from."""

    @property
    def label(self) -> str:
        """Return the name to use in an error."""

    def facts(self) -> Facts:
        """Read all triples, or raise an InputError that names the first wrong line."""


class Options(NamedTuple):
    """Options for reading a file of triples."""

    columns: Columns | None = None  # names or positions of subject, relation and object; by default the only three
    comment: str | None = None  # skip the lines of text files that start with it
    literals: str = "drop"  # leave RDF literals out; "keep" them beside the graph, or make "nodes" of them
    part: str = ""  # the split that the file holds, if it does not hold all
    named: bool = False  # whether to take names from rdfs:label


DEFAULTS = Options()


@dataclass(frozen=True)
class File:
    """File of triples, and how to read it."""

    path: Path
    options: Options = DEFAULTS

    @property
    def label(self) -> str:
        return str(self.path)


def keys(triples: Numbers, num_entities: int, num_relations: int) -> Numbers:
    """Return one number per triple; equal triples have equal numbers. [n]"""
    s, r, o = triples.T
    if num_entities**2 * num_relations >= 2**63:
        raise InputError(f"{num_entities} entities and {num_relations} relations are more than can be numbered")
    numbers: Numbers = (s * num_entities + o) * num_relations + r
    return numbers


def numbered(texts: Iterable[Any]) -> dict[Any, int]:
    """Return text -> number, for distinct texts in order of first appearance."""
    return {text: number for number, text in enumerate(dict.fromkeys(texts))}


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where needed."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def quoted(texts: Sequence[str], most: int = 3) -> str:
    """Quote the first of some texts, and count the others."""
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(f"'{text}'" for text in texts[:most]) + more


def joined(texts: Sequence[str]) -> bytes:
    """Join texts with their lengths, so that different lists give different bytes."""
    return "".join(f"{len(text)}:{text}" for text in texts).encode("utf-8", "surrogatepass")


def ranges(starts: Numbers, sizes: Numbers) -> Numbers:
    """Return the whole numbers from each start on, as many as its size, one range after the other."""
    numbers: Numbers = np.arange(sizes.sum()) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    return numbers


def checked_rows(what: str, given: Any, *sizes: int) -> Numbers:
    """Return whole numbers [n, columns] or, with one size, [n]; each must be below the size of its column."""
    values = np.asarray(given)
    if not values.size:
        values = values.astype(np.int64)  # an empty list has no kind
    width = (len(sizes),) if len(sizes) > 1 else ()
    if values.shape != (*values.shape[:1], *width) or values.dtype.kind not in "iu":
        shape = f"[n, {len(sizes)}]" if width else "[n]"
        found = f"{values.dtype} of shape {values.shape}"
        raise InputError(f"the {what} must be whole numbers of shape {shape}, not {found}")
    if ((values < 0) | (values >= np.array(sizes))).any():
        raise InputError(f"the {what} refer to rows beyond the sizes {', '.join(map(str, sizes))}")
    return np.ascontiguousarray(values, dtype=np.int64)


def checked_features(kind: str, given: Any, *rows: int) -> Features:
    """Return finite numbers [n, f]; n must be one of `rows`."""
    try:
        with np.errstate(over="ignore"):
            features = np.array(given, dtype=np.float32, order="C")
    except (TypeError, ValueError):
        raise InputError(f"the {kind} features are not an array of numbers") from None
    if features.ndim != 2 or features.shape[0] not in rows or not features.shape[1]:
        expected = " or ".join(f"[{count}, f]" for count in rows)
        raise InputError(f"the {kind} features have shape {list(features.shape)}; expected {expected}")
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise InputError(f"the {kind} features are not all finite: row {row} holds a NaN or an infinity")
    return features


def named_places(fields: Sequence[str], words: Sequence[set[str]]) -> list[int] | None:
    """Return the position of each kind of column, if exactly one field names each."""
    folded = [field.strip().strip('"').strip().casefold() for field in fields]
    known = [[place for place, name in enumerate(folded) if name in kind] for kind in words]
    return [places[0] for places in known] if all(len(places) == 1 for places in known) else None


def picked(
    label: str, header: Sequence[str], columns: Columns | None, words: Sequence[set[str]] = HEADERS
) -> tuple[list[int], bool]:
    """Return the positions of the wanted columns in a table with this first line, and whether it names them.

    Args:
        columns: their names or positions; by default those that the words tell, or the only ones.
        words: the words that name each kind of column.
    """
    if columns is not None:
        places = [_located(label, header, column) for column in columns]
        return places, isinstance(columns[0], str) or named_places([header[i] for i in places], words) is not None
    if (named := named_places(header, words)) is not None:
        return named, True
    if len(header) == len(words):
        return list(range(len(words))), False
    what = "call three of them head, relation and tail, or say with columns= (train --columns) which to read"
    raise InputError(f"'{label}' has the columns {', '.join(header)}; {what}")


def _located(label: str, header: Sequence[str], column: str | int) -> int:
    if isinstance(column, int):
        if column >= len(header):
            raise InputError(f"'{label}' has no column {column}: it has {len(header)} columns, counted from 0")
        return column
    if header.count(column) > 1:
        raise InputError(f"'{label}' has several columns called '{column}'; give positions from 0 on instead")
    if column not in header:
        raise InputError(f"'{label}': {unknown('column', column, header)}")
    return header.index(column)


def headless(label: str, columns: list[Any], named: bool) -> tuple[list[Any], tuple[str, ...]]:
    """Return columns without a first row that names them, and a note on it."""
    if not named:
        return columns, ()
    if len(columns[0]) == 1:
        raise InputError(f"'{label}' is empty: it holds a header and no other line")
    return [column[1:] for column in columns], (f"the first line of '{label}' names the columns and was skipped",)


def check_columns(
    columns: Columns, count: int = 3, what: str = "subject, relation and object"
) -> tuple[str | int, ...]:
    """Return column names, or positions from 0 on, one for each of `what`."""
    given = tuple(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else ()
    names = all(isinstance(column, str) for column in given)
    places = all(type(column) is int and column >= 0 for column in given)
    if len(given) != count or len(set(given)) != count or not (names or places):
        raise InputError(f"columns must be {count} names or {count} positions from 0 on, of {what}, not {columns!r}")
    return given


def naming(columns: Sequence[str], setting: str = "columns") -> str:
    """Return the command-line option that names these columns."""
    plain = not any(name != name.strip() or set(name) & set(',"[]{}') or name.isdecimal() for name in columns)
    listed = ",".join(columns) if plain else json.dumps(list(columns), ensure_ascii=False, separators=(",", ":"))
    if plain and setting == "columns":
        return f"--columns {shlex.quote(listed)}"
    return f"--set {shlex.quote(f'{setting}={listed}')}"


def existing(path: str | Path) -> Path:
    """Return the path of a file that exists."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; name a file in it")
    if not path.exists():
        raise InputError(f"there is no file '{path}'{meant(path)}")
    return path


def existing_run(path: Path) -> Path:
    """Return the path of a run folder, or refuse one that does not exist."""
    if not path.exists():
        raise InputError(f"there is no run folder {path}{meant(path)}")
    return path


def meant(path: Path) -> str:
    """Return a question for the path beside a missing one whose name looks like its own or goes on, if there is one."""
    beside = islice(path.parent.iterdir(), _BESIDE) if path.parent.is_dir() else ()
    names = sorted(file.name for file in beside)
    near = get_close_matches(path.name, names, n=1, cutoff=0.8) or [k for k in names if k.startswith(path.name)]
    return f"; did you mean '{path.with_name(near[0])}'?" if near else ""


def check_place(path: str | Path, what: str, *known: str) -> Path:
    """Return the path of a file to write, or refuse it before any work is done."""
    path = Path(path)
    if path.suffix.lower() not in known:
        raise InputError(f"{what}, not '{path.name}'")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder '{path.parent}' to put '{path.name}' in; make it first")
    if path.exists() and not path.is_file():
        raise InputError(f"'{path}' exists and is not a file that could be replaced; choose another name")
    return path


def endings(path: Path) -> tuple[str, str]:
    """Return the ending of the format, and the ending of the compression (.gz, .zst or none)."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    packed = suffixes.pop() if suffixes and suffixes[-1] in PACKED else ""
    return suffixes[-1] if suffixes else "", packed


def unpacked(path: Path) -> io.BufferedReader:
    """Open a file as a stream of bytes, decompressed according to its ending."""
    return io.BufferedReader(pa.input_stream(str(path), compression=PACKED.get(endings(path)[1])))
