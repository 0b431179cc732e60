"""The TU format of graph classification: a folder of text files, one of them named `<name>_A.txt`.

Nodes and graphs are numbered from 1, in the order of their lines. `_A` lists edges `i, j`, as a rule in both
directions; `_graph_indicator` has the graph of each node, `_graph_labels` the class of each graph. Optional are
`_edge_labels` (the relations), `_node_labels` and `_node_attributes`.
"""

from __future__ import annotations

import io
import logging
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compgcn.data.arrays import Features, Numbers
from compgcn.data.collection import GraphCollection, observe
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError

log = logging.getLogger(__name__)

Opener = Callable[[], Any]  # gives a binary stream

_EDGES = "_A.txt"
_UNUSED = ("_edge_attributes.txt", "_graph_attributes.txt")
_SHOWN = 40  # characters of a wrong value in an error
# Text made of these alone means the same to pyarrow as it does here; with others, 0x10 and nan are numbers to it.
_PLAIN = b"0123456789+-.eE, \t\r\n"
_WHOLE = re.compile(rb"[+-]?[0-9]+")
_DECIMAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class _File(NamedTuple):
    label: str
    content: bytes


def found(folder: str | Path) -> bool:
    """Whether a folder looks like one of this format."""
    return Path(folder).is_dir() and any(Path(folder).glob(f"*{_EDGES}"))


def read(source: str | Path | Mapping[str, Opener], *, name: str | None = None) -> GraphCollection:
    """Read a collection of graphs; edge labels are its relations.

    Args:
        source: a folder, or the files of one by name, each with what opens it as a binary stream.
        name: what to call it; the prefix of the files when not given.
    """
    files, place = _files(source)
    prefix = _prefix(files, place)
    load = partial(_load, files, place, prefix)
    labels = load("_graph_labels.txt")
    classes, targets = _labels(labels)
    indicator = load("_graph_indicator.txt")
    graph_of = _numbered(indicator, 1, "graph", len(targets), labels)[:, 0]
    empty = np.flatnonzero(np.bincount(graph_of, minlength=len(targets)) == 0)
    if len(empty):
        raise InputError(f"'{indicator.label}' gives graph {empty[0] + 1} no node; every graph needs at least one")
    edges = load(_EDGES)
    ends = _numbered(edges, 2, "node", len(graph_of), indicator)  # [E, 2]
    _check_within(graph_of, ends, edges)
    relations, rels = _optional_labels(load("_edge_labels.txt", optional=True), len(ends), edges)
    node_classes, node_labels = _optional_labels(load("_node_labels.txt", optional=True), len(graph_of), indicator)
    attributes = load("_node_attributes.txt", optional=True)
    features = None if attributes is None else _attributes(attributes, len(graph_of), indicator)

    order = np.argsort(graph_of, kind="stable")
    number = np.empty_like(order)  # [N], the new number of a node
    number[order] = np.arange(len(order))
    notes = [f"the file '{prefix}{ending}' is not used" for ending in _UNUSED if f"{prefix}{ending}" in files]
    if (np.diff(graph_of) < 0).any():
        notes.append("the nodes were put in the order of their graphs")
    collection = GraphCollection(
        name or prefix,
        Vocabulary("relation", relations or ("edge",)),
        classes,
        graph_of=graph_of[order],
        triples=np.column_stack(
            [number[ends[:, 0]], np.zeros(len(ends), int) if rels is None else rels, number[ends[:, 1]]]
        ),
        targets=targets,
        node_labels=None if node_labels is None else node_labels[order],
        node_classes=node_classes,
        node_features=None if features is None else features[order],
        graph_ids=tuple(str(g + 1) for g in range(len(targets))),
        origin={} if isinstance(source, Mapping) else {"source": str(source)},
    )
    collection = replace(collection, notes=(*notes, *observe(collection)))
    for note in collection.notes:
        log.info("%s: %s", collection.name, note)
    return collection


def _files(source: str | Path | Mapping[str, Opener]) -> tuple[dict[str, Opener], str]:
    """File name -> what opens it, and what to call the place."""
    if isinstance(source, Mapping):
        return {name.rsplit("/", 1)[-1]: opener for name, opener in source.items()}, "the files given"
    folder = Path(source)
    if not folder.is_dir():
        raise InputError(f"'{folder}' is not a folder; the TU format is a folder with a file '*{_EDGES}'")
    return {path.name: partial(path.open, "rb") for path in sorted(folder.iterdir()) if path.is_file()}, f"'{folder}'"


def _prefix(files: Mapping[str, Opener], place: str) -> str:
    names = [file.removesuffix(_EDGES) for file in files if file.endswith(_EDGES)]
    if len(names) != 1:
        what = f"{len(names)} of them: {', '.join(names)}" if names else "none"
        raise InputError(f"expected one file '*{_EDGES}' among {place}, found {what}")
    return names[0]


def _load(files: Mapping[str, Opener], place: str, prefix: str, ending: str, *, optional: bool = False) -> Any:
    """A file's content, or None for one that is not there and need not be."""
    label = f"{prefix}{ending}"
    if label not in files:
        if optional:
            return None
        raise InputError(f"there is no file '{label}' among {place}")
    try:
        with files[label]() as stream:
            return _File(label, stream.read().removeprefix(b"\xef\xbb\xbf"))
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise InputError(f"'{label}' cannot be read: {error}") from None


def _numbered(file: _File, width: int, what: str, size: int, other: _File) -> Numbers:
    """Numbers of things 1 .. size, which have a line each in the other file, as rows from 0. [n, width]"""
    rows = _table(file, width)
    wrong = np.flatnonzero(((rows < 1) | (rows > size)).any(axis=1))
    if len(wrong):
        row = rows[wrong[0]]
        given = row[(row < 1) | (row > size)][0]
        raise _wrong(file, wrong[0], f"{what} {given} is not one of the 1 to {size} that '{other.label}' has lines for")
    return rows - 1


def _check_within(graph_of: Numbers, ends: Numbers, edges: _File) -> None:
    homes = graph_of[ends]  # [E, 2]
    across = np.flatnonzero(homes[:, 0] != homes[:, 1])
    if len(across):
        (i, j), (one, two) = ends[across[0]] + 1, homes[across[0]] + 1
        what = f"node {i} is in graph {one} and node {j} in graph {two}"
        raise _wrong(edges, across[0], f"{what}; an edge must join two nodes of one graph")


def _labels(file: _File) -> tuple[tuple[str, ...], Numbers]:
    """The distinct labels in order, and the row of each line's label among them."""
    values, rows = np.unique(_table(file, 1)[:, 0], return_inverse=True)
    if not len(values):
        raise InputError(f"'{file.label}' is empty: expected a number on each line, found none")
    return tuple(str(value) for value in values), rows.astype(np.int64)


def _optional_labels(file: _File | None, length: int, other: _File) -> tuple[tuple[str, ...], Numbers | None]:
    if file is None or (not length and not file.content.strip()):
        return (), None
    names, rows = _labels(file)
    _check_length(file, len(rows), length, other)
    return names, rows


def _attributes(file: _File, length: int, other: _File) -> Features:
    width = next((line.count(b",") + 1 for _, line in _lines(file)), 1)
    values = _table(file, width, decimal=True)
    _check_length(file, len(values), length, other)
    with np.errstate(over="ignore"):
        features: Features = values.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(wrong):
        raise _wrong(file, wrong[0], "a number is too large for 32 bits")
    return features


def _check_length(file: _File, given: int, expected: int, other: _File) -> None:
    if given != expected:
        raise InputError(f"'{file.label}' has {given:,} lines where '{other.label}' has {expected:,}; they must agree")


def _table(file: _File, width: int, *, decimal: bool = False) -> NDArray[Any]:
    """The numbers of a file: int64 [n, width], or float64 if they may be decimal.

    pyarrow reads what is plainly right; anything else is read line by line, so that an error can name the line.
    """
    import pyarrow as pa
    from pyarrow import csv

    if not file.content.translate(None, _PLAIN):
        names = [str(i) for i in range(width)]
        try:
            table = csv.read_csv(
                io.BytesIO(file.content),
                read_options=csv.ReadOptions(column_names=names, block_size=1 << 24),
                parse_options=csv.ParseOptions(quote_char=False),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.float64() if decimal else pa.int64()), null_values=[]
                ),
            )
            return np.column_stack([column.to_numpy() for column in table.columns])
        except pa.ArrowException:
            pass  # the reading below says what is wrong, or knows better
    kind = float if decimal else int
    rows = [[kind(value) for value in values] for values in _scan(file, width, decimal)]
    return np.array(rows, dtype=np.float64 if decimal else np.int64).reshape(-1, width)


def _scan(file: _File, width: int, decimal: bool) -> Iterator[list[bytes]]:
    """The definition: the values of each line, or an InputError that names the first that is wrong."""
    form, what = (_DECIMAL, "a number") if decimal else (_WHOLE, "a whole number")
    for line, content in _lines(file):
        values = [value.strip(b" \t") for value in content.split(b",")]
        if len(values) != width:
            many = "value" if width == 1 else "values separated by commas"
            raise InputError(f"'{file.label}', line {line}: expected {width} {many}, found {len(values)}")
        for value in values:
            if not form.fullmatch(value):
                shown = value[:_SHOWN].decode("utf-8", "replace")
                raise InputError(f"'{file.label}', line {line}: expected {what}, found '{shown}'")
            if not decimal and (len(value) > _SHOWN or not -(2**63) <= int(value) < 2**63):
                raise InputError(f"'{file.label}', line {line}: a number is too large for 64 bits")
        yield values


def _lines(file: _File) -> Iterator[tuple[int, bytes]]:
    """Number and content of each line that is not blank."""
    for number, line in enumerate(file.content.splitlines(), start=1):
        if line.strip(b" \t"):
            yield number, line


def _wrong(file: _File, row: int, what: str) -> InputError:
    """An error about a row of numbers, with the number of its line."""
    line = next(number for at, (number, _) in enumerate(_lines(file)) if at == row)
    return InputError(f"'{file.label}', line {line}: {what}")
