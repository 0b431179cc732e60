"""Classes and feature vectors of nodes, read from files; and the split of labelled nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compgcn.data.columns import (
    SPLITS,
    Columns,
    Numbers,
    checked_rows,
    counted,
    existing,
    joined,
    named_places,
    naming,
    pa,
    quoted,
)
from compgcn.data.tables import Parquet, table
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError

_HEADERS = (
    {"node", "entity", "id", "name", "subject", "head", "source", "item", "instance"},
    {"label", "class", "category", "type", "target", "y"},
    {"split", "part", "fold", "set", "subset", "mask"},
)
_PARTS = {
    "train": "train", "training": "train", "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid",
    "test": "test", "testing": "test",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Labels:
    """Classes of some of the nodes, in three splits.

    Args:
        classes: their names, in the order of their numbers.
        train, valid, test: int64 [n, 2], rows (entity, class); a node has one class and is in one split.
    """

    classes: tuple[str, ...]
    train: Numbers
    valid: Numbers
    test: Numbers

    def __post_init__(self) -> None:
        if len(set(self.classes)) != len(self.classes):
            raise InputError("the names of the classes must differ")
        for part in SPLITS:
            rows = checked_rows(f"{part} labels", getattr(self, part), np.iinfo(np.int64).max, len(self.classes))
            object.__setattr__(self, part, rows)

    @property
    def splits(self) -> dict[str, Numbers]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def content(self) -> bytes:
        """Return all of them as bytes, for a fingerprint."""
        parts = [f"\nclasses {len(self.classes)}\n".encode() + joined(self.classes)]
        parts += [f"\n{k} labels {len(x)}\n".encode() + x.astype("<i8").tobytes() for k, x in self.splits.items()]
        return b"".join(parts)


def read_labels(
    files: Mapping[str, str | Path],
    entities: Vocabulary,
    columns: Columns | None,
    seed: int,
    valid_fraction: float,
    test_fraction: float,
) -> tuple[Labels, tuple[str, ...]]:
    """Read tables of (node, label) or (node, label, split); return the labels and notes for the user.

    Without a column or a file that marks the test nodes, the nodes are dealt, stratified by class. Without validation
    nodes, some of the training nodes become validation nodes.

    Args:
        files: "train" -> a table of all labels, or of the training labels, with "valid" and "test" for the others.
        entities: the nodes of the graph; labels of other nodes are left out.
        columns: names or positions of node and label, and perhaps of the split.
        seed, valid_fraction, test_fraction: of a drawn split.
    """
    found, notes = _collect(files, columns)
    row_of = {text: row for row, text in enumerate(entities.ids)}
    if not row_of.keys() & found.keys():  # names in place of ids
        row_of = {text: row for text in found if (row := entities.find(text)) is not None}
        if len(set(row_of.values())) < len(row_of):
            raise InputError("the labels have several names of one node; give ids in place of names")
    absent = [node for node in found if node not in row_of]
    if len(absent) == len(found):
        what = f"none of the {len(found):,} labelled nodes is in the graph, such as {quoted(absent)}"
        raise InputError(f"{what}; give their ids or names")
    first, file = next(iter(found)), next(iter(files.values()))
    alike = sum(label == found[first][0] for label, _ in found.values())
    if absent[:1] == [first] and alike == 1 and first in table(file).header():
        del found[absent.pop(0)]
        notes.append(f"the first line of '{file}' looks like a header ('{first}' is no node of the graph), left out")
    if absent:
        count = f"{len(absent):,} of {len(found):,}"
        ids = "; give all by id" * bool({*absent} & {*entities.names})
        notes.append(f"{count} labelled nodes not in the graph, left out, such as {quoted(absent)}{ids}")
    known = {row_of[node]: entry for node, entry in found.items() if node in row_of}
    classes = sorted({label for label, _ in known.values()})
    number = {label: i for i, label in enumerate(classes)}
    rows = np.array([(node, number[label]) for node, (label, _) in known.items()], dtype=np.int64)  # [n, 2]
    parts = np.array([part for _, part in known.values()])
    splits = {part: rows[parts == part] for part in SPLITS}
    rng = np.random.default_rng(seed)
    if not any(part for _, part in known.values()):
        splits = dict(zip(SPLITS, deal(rows, rng, valid_fraction, test_fraction), strict=True))
        sizes = " / ".join(f"{len(part):,}" for part in splits.values())
        notes.append(f"labelled nodes split into {sizes} (train / valid / test) with seed {seed}, stratified by class")
        if test_fraction and not len(splits["test"]):
            notes.append("no class is large enough for a test part, so there will be no test figure")
    elif not len(splits["valid"]) and valid_fraction and len(splits["train"]):
        splits["train"], splits["valid"], _ = deal(splits["train"], rng, valid_fraction, 0.0)
        if len(splits["valid"]):
            taken = f"{len(splits['valid']):,} of the training labels"
            notes.append(f"{taken} used for validation, drawn with seed {seed}, stratified by class")
    if not len(splits["train"]):
        raise InputError("none of the labelled nodes is for training; mark some with the split 'train'")
    return Labels(tuple(classes), **splits), tuple(notes)


def _collect(files: Mapping[str, str | Path], columns: Columns | None) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Return node -> label and split ("" if nothing tells it), and notes."""
    found: dict[str, tuple[str, str]] = {}
    repeated = []
    for default, file in files.items():
        for place, node, label, part in _rows(file, columns):
            if part and len(files) > 1:
                raise InputError(f"'{file}' has a split of its own; give one table, or tables without that column")
            entry = (label, default if len(files) > 1 else part)
            before = found.setdefault(node, entry)
            if before is entry:
                continue
            if before[0] != label:
                raise InputError(f"{place}: the node '{node}' is labelled '{label}', and '{before[0]}' before")
            if before != entry:
                what = f"{place}: the node '{node}' is in the split {entry[1]}, and in {before[1]} before"
                names = f"; if this line names the columns, say {naming(table(file).header(), 'label_columns')}"
                raise InputError(what + names * place.endswith(", line 1"))
            repeated.append(place)
    if not repeated:
        return found, []
    return found, [f"{counted(len(repeated), 'repeated label')} dropped, the first in {repeated[0]}"]


def _rows(file: str | Path, columns: Columns | None) -> Iterator[tuple[str, str, str, str]]:
    """Yield the place of each row of a table, in words, with its node, label and split ("" without such a column)."""
    source = table(file)
    header = source.header()
    chosen = _places(source.label, header) if columns is None else columns
    empty = True
    for place, (node, label, *rest) in source.lines(_HEADERS[: len(chosen)], chosen):
        part = _PARTS.get(rest[0].strip().casefold()) if rest else ""
        if part is None:
            hint = ""
            if empty and columns is None:
                count = 3 if header[2].strip().casefold() in _HEADERS[2] else 2
                hint = f"; if this line names the columns, say {naming(header[:count], 'label_columns')}"
                hint += "; if the third is no split, --set 'label_columns=[0,1]'"
            raise InputError(f"'{file}', {place}: the split '{rest[0]}' is none of train, valid and test{hint}")
        empty = False
        yield f"'{file}', {place}", node, label, part
    if empty:
        raise InputError(f"'{file}' is empty: it holds a header and no label")


def _places(label: str, header: list[str]) -> list[int]:
    """Return the positions of node, label and perhaps split: those that the first line names, or the only ones."""
    named = named_places(header, _HEADERS) or named_places(header, _HEADERS[:2])
    if named is None and len(header) not in (2, 3):
        what = "say with label_columns= (--set label_columns=NODE,LABEL) which hold node and label (and split)"
        raise InputError(f"'{label}' has {len(header)} columns; {what}")
    return named or list(range(len(header)))


def deal(
    rows: Numbers, rng: np.random.Generator, valid_fraction: float, test_fraction: float
) -> tuple[Numbers, Numbers, Numbers]:
    """Split rows (entity, class) in train, valid and test, each class as evenly as whole nodes allow.

    Every class keeps a node in train. The others stand in a row, class by class and shuffled within, and are taken
    from it at even distances.
    """
    order = np.lexsort((rng.random(len(rows)), rows[:, 1]))
    starts = np.unique(rows[order, 1], return_index=True)[1]
    free = np.delete(order, starts)
    in_test = _evenly(len(free), round(test_fraction * len(rows)), rng)
    in_valid = _evenly(len(free) - int(in_test.sum()), round(valid_fraction * len(rows)), rng)
    test, rest = free[in_test], free[~in_test]
    valid = rest[in_valid]
    train = np.setdiff1d(order, np.concatenate([test, valid]))
    return rows[train], rows[np.sort(valid)], rows[np.sort(test)]


def _evenly(size: int, wanted: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which of `size` places in a row to take to have `wanted` of them, evenly apart. [size]"""
    step = min(wanted / size, 1.0) if size else 0.0
    taken = np.floor(np.arange(size + 1) * step + rng.random())
    places: NDArray[np.bool_] = np.diff(taken) > 0
    return places


def read_features(path: str | Path, vocabulary: Vocabulary) -> tuple[Any, tuple[str, ...]]:
    """Return an array with a row for each id of the vocabulary, and notes on the rows and columns left out.

    A .npy file has the rows in the order of the vocabulary. A Parquet file has the ids in the column `id`, or else in
    its first, and the numbers in the others, or in one column of lists.
    """
    path = existing(path)
    if path.suffix.lower() == ".npy":
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False), ()
        except (ValueError, OSError, EOFError) as error:
            raise InputError(f"'{path}' is not an array of numbers in .npy format: {error}") from None
    if path.suffix.lower() == ".parquet":
        return _matched(Parquet(path), vocabulary)
    raise InputError(f"cannot read features from '{path}'; expected a name ending in .npy or .parquet")


def _matched(source: Parquet, vocabulary: Vocabulary) -> tuple[Any, tuple[str, ...]]:
    """Return the rows of the ids of a vocabulary, in its order, and notes."""
    label, names = source.label, source.header()
    place = names.index("id") if "id" in names else 0
    ids = source.read([place])[0].to_pylist()
    row_of = {text: row for row, text in enumerate(ids)}
    if len(row_of) < len(ids):
        twice = next(text for row, text in enumerate(ids) if row_of[text] != row)
        raise InputError(f"'{label}' has several rows for the id '{twice}'; keep one of them")
    missing = [text for text in vocabulary.ids if text not in row_of]
    if missing:
        count = f"{len(missing):,} of {len(vocabulary):,} {vocabulary.kind} ids"
        raise InputError(f"'{label}' has no features of {count}, such as {quoted(missing)}")
    found = source.table().remove_column(place)
    texts = [one.name for one in found.schema if pa.types.is_string(one.type)]
    numbers = _numbers(label, found.drop_columns(texts))
    notes = []
    if others := len(row_of) - len(vocabulary):
        left_out = counted(others, f"{vocabulary.kind} id")
        notes.append(f"the features of {left_out} in '{label}' that the graph does not have left out")
    if texts:
        columns = counted(len(texts), "text column")
        notes.append(f"{columns} in '{label}', such as {quoted(texts)}, left out of the features")
    return numbers[[row_of[text] for text in vocabulary.ids]], tuple(notes)


def _numbers(label: str, found: Any) -> Any:
    """Return the numbers of a table, [rows, f]: its columns, or the lists in its only one."""
    columns = [column.combine_chunks() for column in found.columns]
    if len(columns) == 1 and pa.types.is_nested(columns[0].type):
        if len(columns[0].value_lengths().unique()) > 1:
            raise InputError(f"'{label}': the lists in '{found.column_names[0]}' differ in length or have gaps")
        columns = [columns[0].flatten()]
    if not columns or not all(pa.types.is_floating(c.type) or pa.types.is_integer(c.type) for c in columns):
        raise InputError(f"'{label}': expected columns of numbers, or one of lists of numbers, beside that of ids")
    if any(column.null_count for column in columns):
        raise InputError(f"'{label}' has gaps in its columns of numbers; give every row its numbers")
    return np.concatenate([column.to_numpy().reshape(len(found), -1) for column in columns], axis=1)
