"""Your own graph from files: triples in any format, names, labels and features."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from compgcn.data import delimited, download, parquet, rdf
from compgcn.data.columns import Columns, Source, check_columns, endings, existing, named_places
from compgcn.data.features import read_features
from compgcn.data.graph import KnowledgeGraph, Literals, assemble, read_names, value_notes, with_names
from compgcn.data.labels import read_labels
from compgcn.data.memory import Memory, Rows
from compgcn.data.split import split
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError


def lines(path: str | Path) -> Iterator[tuple[str, list[str | None]]]:
    """Where a line stands, in words, and its subject, relation and object; a first line that names them is left out."""
    path = existing(path)
    ending, packed = endings(path)
    if ending == ".parquet" and not packed:
        for number, fields in enumerate(parquet.rows(parquet.file(path)), 1):
            yield f"row {number}", fields
        return
    if ending not in delimited.DELIMITERS:
        known = f"{', '.join(delimited.DELIMITERS)} (or .gz, .zst) or .parquet"
        raise InputError(f"cannot tell the format of '{path}'; expected a name ending in one of {known}")
    places = [0, 1, 2]
    for i, (number, texts) in enumerate(delimited.scan(delimited.file(path), 3, allow_empty=True)):
        if i == 0 and (named := named_places(texts)) is not None:
            places = named
        else:
            yield f"line {number}", [texts[place] for place in places]


log = logging.getLogger(__name__)

FORMAT = 5  # raised whenever a reader gives something else for the same file
SMALLEST = 4 * 2**20  # bytes; what is smaller is read in a moment
LARGEST = 8 * 2**30  # bytes of all entries together; those not used for longest go first
_ENDING = ".graph"
_PART = ".part"  # of what is being written
_ABANDONED = 24 * 3600.0  # seconds after which nobody is writing it any more
_SPLITS = ("train", "valid", "test")


def entry(files: Mapping[str, Path], options: Mapping[str, Any]) -> Path | None:
    """Where the graph of these files, read with these options, is kept; None if it is not to be.

    The name is a sha256 over the content of the files, their names (which the notes quote) and the options.
    """
    try:
        if os.environ.get("COMPGCN_PARSED") == "off" or sum(path.stat().st_size for path in files.values()) < SMALLEST:
            return None
        digest = hashlib.sha256(json.dumps([FORMAT, options], sort_keys=True).encode())
        for part, path in files.items():
            with path.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            digest.update(f"\n{part} {path} {content}".encode("utf-8", "surrogatepass"))
    except OSError:
        return None  # the reader says what is wrong with the file
    return download.root() / "parsed" / f"{digest.hexdigest()}{_ENDING}"


def state(files: Mapping[str, Path]) -> list[tuple[int, int, int]] | None:
    """What differs once one of the files is written again; None if one is not there."""
    try:
        found = [path.stat() for path in files.values()]
    except OSError:
        return None
    return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in found]


def load(path: Path, name: str) -> KnowledgeGraph | None:
    """The graph kept there, if there is one and it is sound."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(_sound(path)))
        row = {column: table[column].chunk(0).flatten() for column in table.column_names}
        entities, relations = (
            Vocabulary(
                kind, row[kind].to_pylist(), row[f"{kind}_names"].to_pylist() if f"{kind}_names" in row else None
            )
            for kind in ("entity", "relation")
        )
        train, valid, test = (row[part].to_numpy().reshape(-1, 3) for part in _SPLITS)
        literals = None
        if "literal_values" in row:
            literals = Literals(
                row["literal_entities"].to_numpy().astype(np.int64),
                tuple(row["literal_relations"].to_pylist()),
                tuple(row["literal_values"].to_pylist()),
            )
        graph = KnowledgeGraph(
            name, entities, relations, train, valid, test, tuple(row["notes"].to_pylist()), literals=literals
        )
        os.utime(path)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException, KeyError, IndexError, ValueError) as error:  # an InputError is a ValueError
        log.info("the entry %s of the cache cannot be used (%s); the files are read again", path, error)
        return None
    return graph


def _sound(path: Path) -> Any:
    """The content of an entry, compared with the sha256 at its end; not all of Parquet has checksums of its own."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        whole = file.read_buffer()
    size = max(0, whole.size - hashlib.sha256().digest_size)
    content = whole.slice(0, size)
    if hashlib.sha256(content).digest() != whole.slice(size).to_pybytes():
        raise ValueError("its sha256 is another")
    return content


def store(path: Path, graph: KnowledgeGraph) -> None:
    """Keep the graph there; if that cannot be done, go without."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "entity": pa.array(graph.entities.ids, pa.large_string()),
        "relation": pa.array(graph.relations.ids, pa.large_string()),
        **{part: pa.array(triples.ravel().astype(np.int32)) for part, triples in graph.splits.items()},
        "notes": pa.array(graph.notes, pa.large_string()),
    }
    for vocabulary in (graph.entities, graph.relations):
        if vocabulary.names != vocabulary.ids:
            columns[f"{vocabulary.kind}_names"] = pa.array(vocabulary.names, pa.large_string())
    if graph.literals is not None:
        columns["literal_entities"] = pa.array(graph.literals.entities)
        columns["literal_relations"] = pa.array(graph.literals.relations, pa.large_string())
        columns["literal_values"] = pa.array(graph.literals.values, pa.large_string())
    row = {
        name: pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
        for name, values in columns.items()
    }
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=_PART)
        os.close(handle)
        pq.write_table(pa.table(row), temporary, compression="none", use_dictionary=False)
        with open(temporary, "rb+") as file:
            file.write(hashlib.file_digest(file, "sha256").digest())
        Path(temporary).replace(path)
        temporary = None
        _make_room(path.parent)
    except (OSError, pa.ArrowException) as error:
        log.info("the parsed graph could not be kept in %s: %s", path.parent, error)
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _make_room(folder: Path) -> None:
    """Remove the entries that were not used for longest, until the rest fits, and what killed processes left."""
    for part in folder.glob(f"*{_PART}"):
        with contextlib.suppress(OSError):  # another process was faster
            if time.time() - part.stat().st_mtime > _ABANDONED:
                part.unlink()
    used = sorted(((path.stat(), path) for path in folder.glob(f"*{_ENDING}")), key=lambda item: -item[0].st_mtime)
    total = 0
    for place, (status, path) in enumerate(used):
        total += status.st_size
        if place and total > LARGEST:
            path.unlink(missing_ok=True)


File = str | Path
Given = File | Rows  # triples: in a file, or in memory

_SHORT = 0.75  # of what valid and test were to have: with less a note says why


def read(
    path: Given | None = None,
    *,
    train: Given | None = None,
    valid: Given | None = None,
    test: Given | None = None,
    columns: Columns | None = None,
    comment: str | None = None,
    literals: str = "drop",
    exclude: Sequence[str] = (),
    names: File | None = None,
    labels: File | None = None,
    valid_labels: File | None = None,
    test_labels: File | None = None,
    label_columns: Columns | None = None,
    node_features: File | None = None,
    relation_features: File | None = None,
    name: str | None = None,
    split_seed: int = 0,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> KnowledgeGraph:
    """Read your own graph: one file, split for you, or three files, or as many tables in memory.

    What was noticed is in `notes`.

    Tables have a triple in a line: tab-separated (.tsv, .txt, without quoting), comma-separated (.csv, with quoting),
    in UTF-8, or Parquet. RDF is N-Triples (.nt), Turtle (.ttl) or RDF/XML (.rdf, .owl, .xml). Text may be compressed
    (.gz, .zst). In place of a file there can be a list of triples (subject, relation, object), an array of them, or a
    data frame of pandas, Polars or pyarrow. Ids are text, whatever they look like.

    Args:
        path: one file of triples, split reproducibly (see `split`), unless there are labels; or a folder with one file
            each of train, valid and test, such as train.tsv.
        train, valid, test: or three files, used as they are.
        columns: names, or positions from 0 on, of subject, relation and object in a table; by default the only three.
        comment: lines of a .tsv, .txt or .csv file that start with it are skipped; by default none is a comment.
        literals: what becomes of RDF literals: "drop", "keep" (as `graph.literals`, no part of the graph) or "nodes".
        exclude: ids of relations to leave out, such as the one that tells the label.
        names: a table with two columns, id and readable name, of entities and relations alike; ids it does not mention
            keep the id as their name. Without it names are those that RDF gives by rdfs:label, unless literals are
            nodes.
        labels: a table of node and label, and perhaps split, for node classification.
        valid_labels, test_labels: further such tables; `labels` is then that of training.
        label_columns: names or positions of node and label, and perhaps split, in these tables.
        node_features, relation_features: vectors in a .npy file, in the order of the ids, or by id in a Parquet file.
        name: what to call the graph; by default after the file.
        split_seed, valid_fraction, test_fraction: how one file, or its labels, are split.
    """
    files = _files(path, train, valid, test)
    divide = "" in files  # else the parts are given
    tables = _present({"train": labels, "valid": valid_labels, "test": test_labels})
    _check(divide, tables, label_columns)
    options: dict[str, Any] = {
        "columns": None if columns is None else check_columns(columns),
        "comment": comment,
        "literals": literals,
        "exclude": (exclude,) if isinstance(exclude, str) else tuple(exclude),
    }
    drawn = {"split_seed": split_seed, "valid_fraction": valid_fraction, "test_fraction": test_fraction}
    stem = _stem(next(iter(files.values())) if path is None else path)
    graph = _triples(name or stem, files, options, drawn if divide and not tables else None, named=names is None)
    if names is not None:
        texts = read_names(delimited.file(names))
        graph = with_names(graph, texts, texts)
    if tables:
        found, notes = read_labels(tables, graph.entities, label_columns, split_seed, valid_fraction, test_fraction)
        graph = replace(graph, labels=found, notes=(*graph.notes, *notes))
    graph = _with_features(graph, node_features, relation_features)
    origin = {
        "source": train if path is None else path,
        "valid": valid,
        "test": test,
        "names": names,
        "labels": labels,
        "valid_labels": valid_labels,
        "test_labels": test_labels,
        "node_features": node_features,
        "relation_features": relation_features,
    }
    settings = options | {"label_columns": None if label_columns is None else tuple(label_columns)}
    settings |= drawn if divide else {}
    if all(isinstance(file, (str, Path)) for file in files.values()):  # what was in memory cannot be read again
        graph = replace(graph, origin={key: str(file) for key, file in _present(origin).items()} | _present(settings))
    for note in graph.notes:
        log.info("%s: %s", graph.name, note)
    return graph


def _with_features(graph: KnowledgeGraph, nodes: File | None, relations: File | None) -> KnowledgeGraph:
    """The graph with the features in these files; what was left out of them is noted."""
    node_features, some = (None, ()) if nodes is None else read_features(nodes, graph.entities)
    relation_features, others = (None, ()) if relations is None else read_features(relations, graph.relations)
    graph = graph.with_features(node_features, relation_features)
    return replace(graph, notes=(*graph.notes, *some, *others))


def _present(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given of some options."""
    return {key: value for key, value in given.items() if value is not None}


def _files(path: Given | None, train: Given | None, valid: Given | None, test: Given | None) -> dict[str, Given]:
    """The one file under "", or the three by split, as they are given or as a folder has them."""
    given: dict[str, Given] = _present({"train": train, "valid": valid, "test": test})
    if path is not None and given:
        raise InputError(f"give either one file or train, valid and test files, not both a path and {', '.join(given)}")
    if path is None and len(given) < 3:
        missing = [part for part in ("train", "valid", "test") if part not in given]
        raise InputError(f"{' and '.join(missing)} missing: give train, valid and test files, or one file to be split")
    if path is None:
        return given
    return _in_folder(Path(path)) if isinstance(path, (str, Path)) and Path(path).is_dir() else {"": path}


def _in_folder(folder: Path) -> dict[str, Given]:
    """The one file each of train, valid and test in a folder."""
    found = {part: sorted(folder.glob(f"{part}.*")) for part in ("train", "valid", "test")}
    if any(len(files) != 1 for files in found.values()):
        what = "one file each of train, valid and test, such as train.tsv, or a file '*_A.txt' of the TU format"
        raise InputError(f"cannot tell what the folder '{folder}' holds; expected {what}; or name a file in it")
    return {part: files[0] for part, files in found.items()}


def _check(divide: bool, tables: Mapping[str, File], label_columns: Columns | None) -> None:
    if tables and not divide:
        raise InputError("labels go with one file of triples, all of which are for training; give that file alone")
    if tables and ("train" not in tables or ("valid" in tables and "test" not in tables)):
        raise InputError("give labels= for training and test_labels=, with or without valid_labels=")
    if label_columns is not None:
        check_columns(label_columns, len(label_columns), "node and label, and perhaps split")
        if len(label_columns) not in (2, 3):
            raise InputError(f"label_columns must be those of node and label, and perhaps split, not {label_columns!r}")


def _stem(first: Given) -> str:
    return (Path(first).name.split(".")[0] if isinstance(first, (str, Path)) else "") or "graph"


def source(
    path: Given,
    columns: Columns | None = None,
    comment: str | None = None,
    literals: str = "drop",
    part: str = "",
    named: bool = False,
) -> Source:
    """A file of triples, its format told by its ending, or triples in memory.

    Args:
        columns, comment, literals: as for `read`.
        part: the split that it is, if it is not all.
        named: whether names are taken from the file, where it has any.
    """
    if not isinstance(path, (str, Path)):
        return Memory(part or "triples", path, columns)
    path = existing(path)
    ending, packed = endings(path)
    if ending in rdf.FORMATS:
        return rdf.file(path, literals=literals, part=part, named=named)
    if ending == ".parquet" and not packed:
        return parquet.file(path, columns=columns)
    if ending in delimited.DELIMITERS:
        return delimited.file(path, columns=columns, comment=comment, header=True)
    known = ", ".join((*delimited.DELIMITERS, *rdf.FORMATS, ".parquet"))
    raise InputError(f"cannot tell the format of '{path}'; expected a name ending in one of {known} (or .gz, .zst)")


def like(path: File, columns: Columns | None, comment: str | None, literals: str) -> Source:
    """A file of triples read as another was: its columns too, where it has them, else three of its own."""
    path = existing(path)
    ending, _ = endings(path)
    if ending in delimited.DELIMITERS:
        header = delimited.first(delimited.file(path, comment=comment))
    else:
        header = parquet.column_names(str(path)) if ending == ".parquet" else []
    there = [column in header if isinstance(column, str) else column < len(header) for column in columns or ()]
    if not all(there):
        columns = None
    if ending in delimited.DELIMITERS and columns is None and len(header) > 3:
        what = f"'{path}' has {len(header)} columns, and not those that were read of the file trained on"
        raise InputError(f"{what}; keep three: subject, relation and object")
    return source(path, columns, comment, literals)


def _triples(
    name: str, files: Mapping[str, Given], options: Mapping[str, Any], drawn: Mapping[str, Any] | None, named: bool
) -> KnowledgeGraph:
    """The graph of the files, split if `drawn` says how; large ones are parsed once and kept."""
    sources = {
        part: source(file, options["columns"], options["comment"], options["literals"], part, named)
        for part, file in files.items()
    }
    paths = {part: Path(file) for part, file in files.items() if isinstance(file, (str, Path))}
    before = state(paths)
    kept = entry(paths, {**options, "split": drawn, "named": named}) if len(paths) == len(files) else None
    graph = None if kept is None else load(kept, name)
    if graph is None:
        graph = assemble(name, sources, exclude=options["exclude"])
        graph = replace(graph, notes=(*graph.notes, *value_notes(graph)))
        graph = graph if drawn is None else divided(graph, *drawn.values())
        if kept is not None and state(paths) == before:  # else it may be the graph of another content
            store(kept, graph)
    return graph


def divided(graph: KnowledgeGraph, seed: int, valid_fraction: float, test_fraction: float) -> KnowledgeGraph:
    """The graph with its training triples split in three."""
    parts = split(
        graph.train,
        graph.num_entities,
        graph.num_relations,
        seed=seed,
        valid_fraction=valid_fraction,
        test_fraction=test_fraction,
    )
    sizes = " / ".join(f"{len(part):,}" for part in parts)
    note = f"split into {sizes} (train / valid / test) with seed {seed}, triples over one pair of entities together"
    train, valid, test = parts
    wanted = (valid_fraction + test_fraction) * sum(map(len, parts))
    if len(valid) + len(test) < _SHORT * wanted:
        note += (
            f"; that is less than {100 * valid_fraction:g} % and {100 * test_fraction:g} % for valid and test, since "
            "every entity and every relation must keep a triple in train"
        )
    return replace(graph, train=train, valid=valid, test=test, notes=(*graph.notes, note))
