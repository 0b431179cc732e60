"""Large files that were read before: the graph as it was, found by what is in the files and how they were read.

An entry is a Parquet file of a single row and its sha256, written under another name and renamed. Whatever is wrong
with an entry or its folder, the files are read again: a cache is never a reason to fail.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compgcn.data import cache
from compgcn.data.triples import KnowledgeGraph, Literals
from compgcn.data.vocabulary import Vocabulary

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
    return cache.root() / "parsed" / f"{digest.hexdigest()}{_ENDING}"


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
