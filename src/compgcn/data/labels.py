"""The classes of nodes, and which of them are for training, validation and test: read from a table, or drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compgcn.data import delimited, parquet
from compgcn.data.columns import Columns, endings, existing, is_header, locate, naming
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError

Rows = NDArray[np.int64]

_HEADERS = (
    {"node", "entity", "id", "name", "subject", "head", "source", "item", "instance"},
    {"label", "class", "category", "type", "target", "y"},
    {"split", "part", "fold", "set", "subset", "mask"},
)
_PARTS = {
    "train": "train", "training": "train", "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid",
    "test": "test", "testing": "test",
}  # fmt: skip
_NAMED = 3  # ids quoted in a note or an error


@dataclass(frozen=True, eq=False)
class Labels:
    """The classes of some of the nodes, in three splits.

    Args:
        classes: their names, in order of their numbers.
        train, valid, test: int64 [n, 2], rows (entity, class); a node has one class and is in one split.
    """

    classes: tuple[str, ...]
    train: Rows
    valid: Rows
    test: Rows

    def __post_init__(self) -> None:
        if len(set(self.classes)) != len(self.classes):
            raise InputError("the names of the classes must differ")
        for part in ("train", "valid", "test"):
            rows = np.asarray(getattr(self, part))
            if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
                what = f"{rows.dtype} of shape {rows.shape}"
                raise InputError(f"the {part} labels must be whole numbers of shape [n, 2], not {what}")
            rows = np.ascontiguousarray(rows, dtype=np.int64)
            if (rows < 0).any() or (rows[:, 1] >= len(self.classes)).any():
                raise InputError(f"the {part} labels refer to classes beyond the {len(self.classes)} there are")
            object.__setattr__(self, part, rows)

    @property
    def splits(self) -> dict[str, Rows]:
        return {"train": self.train, "valid": self.valid, "test": self.test}


def read_labels(
    files: Mapping[str, str | Path],
    entities: Vocabulary,
    columns: Columns | None = None,
    seed: int = 0,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> tuple[Labels, tuple[str, ...]]:
    """The labels in tables of (node, label) or (node, label, split), and what was noticed.

    Where neither a column nor a file says which are for test, the nodes are dealt, stratified by class; where none are
    for validation, some of those for training become so.

    Args:
        files: "train" -> a table of all labels, or of those for training, with "valid" and "test" for the others.
        entities: the nodes of the graph; labels of others are counted and left out.
        columns: names or positions of node and label, and of the split where there is one.
        seed, valid_fraction, test_fraction: of what is drawn.
    """
    found, notes = _collect(files, columns)
    row_of = {text: row for row, text in enumerate(entities.ids)}
    absent = [node for node in found if node not in row_of]
    quoted = ", ".join(f"'{node}'" for node in absent[:_NAMED])
    if len(absent) == len(found):
        raise InputError(f"none of the {len(found):,} labelled nodes is in the graph, such as {quoted}; give their ids")
    if absent:
        notes.append(f"{len(absent):,} of {len(found):,} labelled nodes not in the graph, left out, such as {quoted}")
    known = {row_of[node]: entry for node, entry in found.items() if node in row_of}
    classes = sorted({label for label, _ in known.values()})
    number = {label: i for i, label in enumerate(classes)}
    rows = np.array([(node, number[label]) for node, (label, _) in known.items()], dtype=np.int64)  # [n, 2]
    parts = np.array([part for _, part in known.values()])
    splits = {part: rows[parts == part] for part in ("train", "valid", "test")}
    rng = np.random.default_rng(seed)
    if not any(part for _, part in known.values()):
        splits = dict(zip(splits, deal(rows, rng, valid_fraction, test_fraction), strict=True))
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
    """Node -> label and split, "" where neither a column nor the choice of files says; what was noticed besides."""
    found: dict[str, tuple[str, str]] = {}
    repeated, first_repeated = 0, ""
    for default, file in files.items():
        for number, node, label, part in _rows(file, columns):
            if part and len(files) > 1:
                raise InputError(f"'{file}' has a split of its own; give one table, or tables without that column")
            entry = (label, default if len(files) > 1 else part)
            before = found.setdefault(node, entry)
            if before is not entry:
                place = f"'{file}', line {number}"
                if before[0] != label:
                    raise InputError(f"{place}: the node '{node}' is labelled '{label}', and '{before[0]}' before")
                if before != entry:
                    raise InputError(
                        f"{place}: the node '{node}' is in the split {entry[1]}, and in {before[1]} before"
                    )
                repeated, first_repeated = repeated + 1, first_repeated or place
    many = "label" if repeated == 1 else "labels"
    return found, [f"{repeated:,} repeated {many} dropped, the first in {first_repeated}"] if repeated else []


def _rows(file: str | Path, columns: Columns | None) -> Iterator[tuple[int, str, str, str]]:
    """Line number, node, label and split ("" where there is no such column) of each row of a table."""
    path = existing(file)
    in_parquet = endings(path)[0] == ".parquet"
    if in_parquet:
        header = parquet.column_names(str(path))
        take, _ = _places(str(path), header, columns)
        found = parquet.strings(str(path), take)
        rows: Iterator[tuple[int, list[str]]] = enumerate(
            map(list, zip(*(c.to_pylist() for c in found), strict=True)), 1
        )
    else:
        text = delimited.file(path)
        header = delimited.first(text)
        take, named = _places(text.label, header, columns)
        rows = delimited.scan(text, len(header), take=take)
        if named:
            next(rows)
    empty = True
    for number, (node, label, *rest) in rows:
        part = _PARTS.get(rest[0].strip().casefold()) if rest else ""
        if part is None:
            what = f"the split '{rest[0]}' is none of train, valid and test"
            raise InputError(f"'{path}', line {number}: {what}{_instead(header, columns) if empty else ''}")
        empty = False
        yield number, node, label, part
    if empty:
        raise InputError(f"'{path}' is empty: it holds a header and no label")


def _instead(header: list[str], columns: Columns | None) -> str:
    """What to say of a first row without a split: that it may name the columns, or that the third may be another."""
    if columns is not None:
        return ""
    count = 3 if header[2].strip().casefold() in _HEADERS[2] else 2
    named = naming(header[:count], "label_columns")
    return f"; if this line names the columns, say {named}; if the third is no split, --set 'label_columns=[0,1]'"


def _places(label: str, header: list[str], columns: Columns | None) -> tuple[list[int], bool]:
    """Where node, label and perhaps split stand, and whether the first line only names them."""
    if columns is not None:
        places = locate(label, columns, header)
        chosen = [header[place] for place in places]
        return places, isinstance(columns[0], str) or is_header(chosen, _HEADERS[: len(chosen)])
    folded = [name.strip().casefold() for name in header]
    known = [[i for i, name in enumerate(folded) if name in words] for words in _HEADERS]
    if all(len(places) == 1 for places in known[:2]) and len(known[2]) <= 1:
        return [place for places in known for place in places], True
    if len(header) in (2, 3):
        return list(range(len(header))), False
    raise InputError(
        f"'{label}' has {len(header)} columns; say with label_columns= which hold node and label (and split)"
    )


def deal(rows: Rows, rng: np.random.Generator, valid_fraction: float, test_fraction: float) -> tuple[Rows, Rows, Rows]:
    """Train, valid and test out of rows (entity, class), each class in every split as nearly as whole nodes allow.

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
    """Which of `size` places in a row are taken, if `wanted` of them are, evenly apart. [size]"""
    step = min(wanted / size, 1.0) if size else 0.0
    taken = np.floor(np.arange(size + 1) * step + rng.random())
    places: NDArray[np.bool_] = np.diff(taken) > 0
    return places
