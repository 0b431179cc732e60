"""A knowledge graph as three arrays of triples over two vocabularies, and how one is read from files."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compgcn.data import delimited
from compgcn.data.split import Triples, first, split
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError

log = logging.getLogger(__name__)

Features = NDArray[np.float32]

_HEADERS = (
    {"head", "subject", "source", "from", "s", "h", "src", "head_id", "subject_id", "source_id"},
    {"relation", "predicate", "rel", "r", "p", "edge", "type", "property", "relation_id", "predicate_id"},
    {"tail", "object", "target", "to", "o", "t", "dst", "tail_id", "object_id", "target_id"},
)


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Entities, relations, and the facts (s, r, o) that hold between them, in three splits.

    Args:
        name: what to call it in reports.
        entities, relations: N ids and R ids.
        train, valid, test: int64 [n, 3], rows (s, r, o).
        notes: what was noticed on the way in, a sentence each.
        node_features: float32 [N, f], or None.
        relation_features: float32 [R, f] or, inverses after originals, [2R, f], or None.
        origin: the settings of a config's [data] that read this graph again; its name alone if nothing is known.
    """

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: Triples
    valid: Triples
    test: Triples
    notes: tuple[str, ...] = ()
    node_features: Features | None = None
    relation_features: Features | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = np.array([len(self.entities), len(self.relations), len(self.entities)])
        for part in ("train", "valid", "test"):
            given = np.asarray(getattr(self, part))
            if given.ndim != 2 or given.shape[1] != 3 or given.dtype.kind not in "iu":
                what = f"{given.dtype} of shape {given.shape}"
                raise InputError(f"the {part} triples must be whole numbers of shape [n, 3], not {what}")
            triples = np.ascontiguousarray(given, dtype=np.int64)
            if ((triples < 0) | (triples >= sizes)).any():
                what = f"{sizes[0]} entities and {sizes[1]} relations"
                raise InputError(f"the {part} triples refer to rows beyond the {what} of the vocabulary")
            object.__setattr__(self, part, triples)

    def __repr__(self) -> str:
        n = self.statistics()
        sizes = f"{n['entities']:,} entities, {n['relations']:,} relations, {n['triples']:,} triples"
        return f"KnowledgeGraph('{self.name}': {sizes})"

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @property
    def splits(self) -> dict[str, Triples]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def statistics(self) -> dict[str, int]:
        """The sizes a paper's table of data sets gives."""
        counts = {part: len(triples) for part, triples in self.splits.items()}
        return {
            "entities": self.num_entities,
            "relations": self.num_relations,
            "triples": sum(counts.values()),
            **counts,
        }

    def fingerprint(self) -> str:
        """sha256 over ids, triples and features: equal data gives equal fingerprints, whatever file it came from."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update(f"{vocabulary.kind} {len(vocabulary)}\n".encode())
            digest.update("".join(f"{len(text)}:{text}" for text in vocabulary.ids).encode("utf-8", "surrogatepass"))
        for part, triples in self.splits.items():
            digest.update(f"\n{part} {len(triples)}\n".encode())
            digest.update(triples.astype("<i8").tobytes())
        for kind, features in (("node", self.node_features), ("relation", self.relation_features)):
            if features is not None:
                digest.update(f"\n{kind} features {features.shape}\n".encode())
                digest.update(features.astype("<f4").tobytes())
        return digest.hexdigest()

    def with_features(self, nodes: Any = None, relations: Any = None) -> KnowledgeGraph:
        """The same graph with feature vectors; what is not given stays as it is.

        Args:
            nodes: [N, f], anything numpy can read as numbers.
            relations: [R, f], or [2R, f] with the inverses after the originals.
        """
        N, R = self.num_entities, self.num_relations
        graph = self
        if nodes is not None:
            graph = replace(graph, node_features=_features("node", nodes, {N: "N"}))
        if relations is not None:
            graph = replace(graph, relation_features=_features("relation", relations, {R: "R", 2 * R: "2R"}))
        return graph


def _features(kind: str, given: Any, rows: Mapping[int, str]) -> Features:
    try:
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


def read(
    path: str | Path | None = None,
    *,
    train: str | Path | None = None,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    names: str | Path | None = None,
    name: str | None = None,
    split_seed: int = 0,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> KnowledgeGraph:
    """Read your own graph: one file, split for you, or three files.

    A line holds the ids of a subject, a relation and an object. Files are tab-separated (.tsv, .txt, without quoting)
    or comma-separated (.csv, with quoting), gzipped (.gz) or not, in UTF-8. What was noticed is in `notes`.

    Args:
        path: one file of triples, split reproducibly (see `split`).
        train, valid, test: or three files, used as they are.
        names: a file with two columns, id and readable name, of entities and relations alike; ids it does not mention
            keep the id as their name.
        name: what to call the graph; by default after the file.
        split_seed, valid_fraction, test_fraction: how one file is split.
    """
    given = {part: file for part, file in (("train", train), ("valid", valid), ("test", test)) if file is not None}
    if path is not None and given:
        raise InputError(f"give either one file or train, valid and test files, not both a path and {', '.join(given)}")
    if path is None and len(given) < 3:
        missing = [part for part in ("train", "valid", "test") if part not in given]
        raise InputError(f"{' and '.join(missing)} missing: give train, valid and test files, or one file to be split")
    texts = {part: delimited.file(file) for part, file in given.items()} if path is None else {"": delimited.file(path)}
    labels = {} if names is None else read_names(delimited.file(names))
    graph = assemble(name or _stem(path if path is not None else train), texts, labels, header=True)
    files = {"source": path if path is not None else train, "valid": valid, "test": test, "names": names}
    origin: dict[str, Any] = {key: str(file) for key, file in files.items() if file is not None}
    if path is not None:
        graph = _split(graph, split_seed, valid_fraction, test_fraction)
        origin |= {"split_seed": split_seed, "valid_fraction": valid_fraction, "test_fraction": test_fraction}
    graph = replace(graph, origin=origin)
    for note in graph.notes:
        log.info("%s: %s", graph.name, note)
    return graph


def _stem(path: str | Path | None) -> str:
    return Path(path or "").name.split(".")[0] or "graph"


def assemble(
    name: str,
    texts: Mapping[str, delimited.Text],
    entity_names: Mapping[str, str] | None = None,
    relation_names: Mapping[str, str] | None = None,
    *,
    header: bool = False,
) -> KnowledgeGraph:
    """Read the texts of train, valid and test (or one text, all of it train) over one vocabulary.

    The vocabulary is the union of the splits, in order of first appearance; nothing but repetitions is left out.

    Args:
        texts: one entry, or the three splits in order.
        entity_names, relation_names: id -> readable name; the latter defaults to the former.
        header: whether a first line that only names the columns is skipped.
    """
    notes: list[str] = []
    tables = []
    for text in texts.values():
        columns = delimited.columns(text, 3)
        if header and _is_header([column[0].as_py() for column in columns]):
            columns = [column.slice(1) for column in columns]
            notes.append(f"the first line of '{text.label}' names the columns and was skipped")
            if not len(columns[0]):
                raise InputError(f"'{text.label}' is empty: it holds a header and no triple")
        tables.append(columns)
    triples, entity_ids, relation_ids = _encode(tables)
    parts = [
        _distinct(part, rows, len(entity_ids), len(relation_ids), notes)
        for part, rows in zip(texts, triples, strict=True)
    ]
    none = np.empty((0, 3), dtype=np.int64)
    relation_names = entity_names if relation_names is None else relation_names
    graph = KnowledgeGraph(
        name,
        _vocabulary("entity", entity_ids, entity_names or {}),
        _vocabulary("relation", relation_ids, relation_names or {}),
        *(parts if len(parts) == 3 else (parts[0], none, none)),
    )
    return replace(graph, notes=(*notes, *_observations(graph)))


def _is_header(fields: Sequence[str]) -> bool:
    return all(field.strip().casefold() in words for field, words in zip(fields, _HEADERS, strict=True))


def _vocabulary(kind: str, ids: Sequence[str], names: Mapping[str, str]) -> Vocabulary:
    return Vocabulary(kind, ids, [names.get(text) or text for text in ids] if names else None)


def read_names(text: delimited.Text, *, width: int = 2) -> dict[str, str]:
    """Id -> name from the first two columns of a table; it may mention ids the graph does not have."""
    ids, names = (column.to_pylist() for column in delimited.columns(text, width, allow_empty=True)[:2])
    return dict(zip(ids, names, strict=True))


def _encode(tables: Sequence[Sequence[Any]]) -> tuple[list[Triples], list[str], list[str]]:
    """Columns of strings -> triples of numbers, and the ids the numbers stand for, in order of first appearance."""
    lengths = [len(columns[0]) for columns in tables]
    subjects, relations, objects = ([columns[i] for columns in tables] for i in range(3))
    ends, entity_ids = _codes([*subjects, *objects], interleave=2)  # [n, 2]
    rels, relation_ids = _codes(relations, interleave=1)  # [n, 1]
    triples = np.column_stack([ends[:, 0], rels[:, 0], ends[:, 1]])  # [n, 3]
    return np.split(triples, np.cumsum(lengths)[:-1]), entity_ids, relation_ids


def _codes(columns: Sequence[Any], *, interleave: int) -> tuple[Triples, list[str]]:
    """One numbering over dictionary-encoded columns, read row by row across `interleave` equal parts of them."""
    import pyarrow as pa

    joined = pa.chunked_array([chunk for column in columns for chunk in column.chunks]).unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in joined.chunks]).astype(np.int64)
    codes = codes.reshape(interleave, -1).T.ravel()  # row by row
    used = np.flatnonzero(np.bincount(codes))  # a skipped header leaves strings that no row uses
    number = np.zeros(used[-1] + 1, dtype=np.int64)
    number[used] = np.arange(len(used))
    order = np.argsort(first(number[codes], len(used)))
    number[used[order]] = np.arange(len(used))
    ids = joined.chunk(0).dictionary.take(pa.array(used[order])).to_pylist()
    return number[codes].reshape(-1, interleave), ids


def keys(triples: Triples, num_entities: int, num_relations: int) -> Triples:
    """One number per triple, equal where the triples are. [n]"""
    s, r, o = triples.T
    if num_entities**2 * num_relations >= 2**63:
        raise InputError(f"{num_entities} entities and {num_relations} relations are more than can be numbered")
    numbers: Triples = (s * num_entities + o) * num_relations + r
    return numbers


def _distinct(part: str, triples: Triples, num_entities: int, num_relations: int, notes: list[str]) -> Triples:
    """The triples without repetitions, in their order; what was dropped is noted."""
    _, kept = np.unique(keys(triples, num_entities, num_relations), return_index=True)
    dropped = len(triples) - len(kept)
    if not dropped:
        return triples
    notes.append(f"{_count(dropped, 'repeated triple')} dropped{f' from {part}' if part else ''}")
    return triples[np.sort(kept)]


def _observations(graph: KnowledgeGraph) -> list[str]:
    """What someone who trains on the graph should know; none of it changes the graph."""
    N, R = graph.num_entities, graph.num_relations
    number = {part: keys(triples, N, R) for part, triples in graph.splits.items()}
    notes = []
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        shared = len(np.intersect1d(number[one], number[other], assume_unique=True)) if len(number[other]) else 0
        if shared:
            notes.append(f"leakage: {_count(shared, 'triple')} of {other} also in {one}")
    loops = sum(int((triples[:, 0] == triples[:, 2]).sum()) for triples in graph.splits.values())
    if loops:
        notes.append(f"{_count(loops, 'self-loop')} (subject and object are the same entity) kept")
    for kind, size, places in (("entity", N, [0, 2]), ("relation", R, [1])):
        unseen = size - int(np.count_nonzero(np.bincount(graph.train[:, places].ravel(), minlength=size)))
        if unseen:
            notes.append(f"{_count(unseen, kind)} only in valid or test, never in train; kept")
    vocabulary = (*graph.entities.ids, *graph.relations.ids)
    spaced = sum(text != text.strip() for text in vocabulary)
    if spaced:
        notes.append(f"{_count(spaced, 'id')} with a space at the start or the end, kept as written")
    return notes


def _count(number: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def _split(graph: KnowledgeGraph, seed: int, valid_fraction: float, test_fraction: float) -> KnowledgeGraph:
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
    return replace(graph, train=train, valid=valid, test=test, notes=(*graph.notes, note))
