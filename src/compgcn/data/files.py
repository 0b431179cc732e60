"""Read your own graph: triples in any format, names, labels and features."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from compgcn.data import rdf
from compgcn.data.columns import SPLITS, Columns, Options, Source, check_columns, counted, endings, existing
from compgcn.data.graph import KnowledgeGraph, assemble, read_names, value_notes
from compgcn.data.labels import read_features, read_labels
from compgcn.data.memory import Memory, Rows
from compgcn.data.tables import TABLES, Text, opened, table, text
from compgcn.errors import InputError

log = logging.getLogger(__name__)

File = str | Path
Given = File | Rows  # triples: in a file, or in memory

_SPLIT = {"split_seed", "valid_fraction", "test_fraction"}

# Add a format: one row here, or in the registry of tables.
READERS: dict[str, Callable[[Path, Options], Source]] = {**TABLES, **dict.fromkeys(rdf.FORMATS, rdf.Document)}


def read(
    path: Given | None = None,
    *,
    train: Given | None = None,
    valid: Given | None = None,
    test: Given | None = None,
    columns: Columns | None = None,
    comment: str | None = None,
    literals: str | None = None,
    exclude: str | tuple[str, ...] | list[str] = (),
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
    """Read your own graph: one file, split for you, or three files, or triples in memory.

    Tables have a triple in a line: tab-separated (.tsv, .txt, without quoting), comma-separated (.csv, with quoting),
    in UTF-8, or Parquet. RDF is N-Triples (.nt), Turtle (.ttl) or RDF/XML (.rdf, .owl, .xml). Text may be compressed
    (.gz, .zst). In place of a file you can give a list of triples (subject, relation, object), an array of them, or a
    data frame of pandas, Polars or pyarrow. Ids are text, whatever they look like. The graph's `notes` are for you.

    Args:
        path: one file of triples, split reproducibly (see `split`), unless there are labels; or a folder with one file
            each of train, valid and test, such as train.tsv.
        train, valid, test: or three files, used as they are.
        columns: names, or positions from 0 on, of subject, relation and object in a table; by default the only three.
        comment: skip the lines of a .tsv, .txt or .csv file that start with it; by default none.
        literals: "drop" RDF literals, "keep" them (as `graph.literals`, no part of the graph) or make "nodes" of them;
            by default "nodes" with labels, and "drop" without.
        exclude: ids of relations to leave out, such as the one that tells the label.
        names: a table with two columns, id and readable name, of entities and relations alike. Without it names come
            from rdfs:label.
        labels: a table of node and label, and perhaps split, for node classification.
        valid_labels, test_labels: further such tables; `labels` then holds the training labels.
        label_columns: names or positions of node and label, and perhaps split, in these tables.
        node_features, relation_features: vectors in a .npy file, in the order of the ids, or by id in a Parquet file.
        name: the name of the graph; by default that of the file.
        split_seed, valid_fraction, test_fraction: how to split one file, or its labels.
    """
    given = locals() | {"source": path if train is None else train}
    files = _files(path, train, valid, test)
    divide = "" in files  # else the parts are given
    tables = _present({"train": labels, "valid": valid_labels, "test": test_labels})
    _check_labels(divide, tables, label_columns)
    excluded = (exclude,) if isinstance(exclude, str) else tuple(exclude)
    columns = None if columns is None else check_columns(columns)
    options = Options(columns, comment, treatment(literals, bool(tables)), named=names is None)
    sources = {part: source(file, options._replace(part=part)) for part, file in files.items()}
    stem = Path(given["source"]).name.split(".")[0] if isinstance(given["source"], (str, Path)) else ""
    graph = assemble(name or stem or "graph", sources, excluded)
    graph = replace(graph, notes=(*graph.notes, *value_notes(graph)))
    if divide and not tables:
        graph = graph.divided(split_seed, valid_fraction, test_fraction)
    if names is not None:
        graph = _named(graph, names)
    if tables:
        found, notes = read_labels(tables, graph.entities, label_columns, split_seed, valid_fraction, test_fraction)
        graph = replace(graph, labels=found, notes=(*graph.notes, *notes))
    for kind, file in _present({"nodes": node_features, "relations": relation_features}).items():
        features, notes = read_features(file, graph.entities if kind == "nodes" else graph.relations)
        graph = replace(graph.with_features(**{kind: features}), notes=(*graph.notes, *notes))
    if all(isinstance(file, (str, Path)) for file in files.values()):  # triples in memory cannot be read again
        kept = given | {"columns": columns, "exclude": excluded}
        graph = replace(graph, origin=_origin(kept, {"path", "train", "name"} | (set() if divide else _SPLIT)))
    for note in graph.notes:
        log.info("%s: %s", graph.name, note)
    return graph


def source(path: Given, options: Options) -> Source:
    """Return a file of triples, its format told by its ending, or triples in memory."""
    if not isinstance(path, (str, Path)):
        return Memory(options.part or "triples", path, options.columns)
    return opened(path, READERS, options)


def treatment(literals: str | None, labelled: bool) -> str:
    """Return how to treat RDF literals where nobody says it: nodes may share them with others of their class."""
    return literals or ("nodes" if labelled else "drop")


def columns_like(path: File, columns: Columns | None, comment: str | None) -> Columns | None:
    """Return the columns of another file if this one has them, else None: its only three."""
    path = existing(path)
    if endings(path)[0] not in TABLES:
        return None
    found = table(path, Options(comment=comment))
    header = found.header()
    if columns and all(column in header if isinstance(column, str) else column < len(header) for column in columns):
        return columns
    if len(header) > 3 and isinstance(found, Text):
        what = f"'{path}' has {len(header)} columns, and not the columns of the training file"
        raise InputError(f"{what}; keep three: subject, relation and object")
    return None


def lines(path: File, columns: Columns | None = None) -> Iterator[tuple[str, list[str | None]]]:
    """Yield the place of each line, in words, with its subject, relation and object, as `columns_like` finds them."""
    chosen = columns_like(path, columns, None) if columns else None
    return table(path).lines(chosen=chosen, allow_empty=True)


def _present(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are given."""
    return {key: value for key, value in given.items() if value is not None}


def _origin(given: Mapping[str, Any], but: set[str]) -> dict[str, Any]:
    """Return the arguments of `read` as settings of a config, but for some."""
    found = {key: value for key, value in _present(given).items() if key not in but}
    return {
        key: str(value) if isinstance(value, Path) else tuple(value) if isinstance(value, list) else value
        for key, value in found.items()
    }


def _files(path: Given | None, train: Given | None, valid: Given | None, test: Given | None) -> dict[str, Given]:
    """Return the one file under "", or the three by split."""
    given: dict[str, Given] = _present({"train": train, "valid": valid, "test": test})
    if path is not None and given:
        raise InputError(f"give either one file or train, valid and test files, not both a path and {', '.join(given)}")
    if path is None and len(given) < 3:
        missing = [part for part in SPLITS if part not in given]
        raise InputError(f"{' and '.join(missing)} missing: give train, valid and test files, or one file to be split")
    if path is None:
        return given
    if not isinstance(path, (str, Path)) or not Path(path).is_dir():
        return {"": path}
    found = {part: sorted(Path(path).glob(f"{part}.*")) for part in SPLITS}
    if any(len(files) != 1 for files in found.values()):
        what = "one file each of train, valid and test, such as train.tsv, or a file '*_A.txt' of the TU format"
        raise InputError(f"cannot tell what the folder '{path}' holds; expected {what}; or name a file in it")
    return {part: files[0] for part, files in found.items()}


def _named(graph: KnowledgeGraph, names: File) -> KnowledgeGraph:
    """Return the graph with the names of a file; refuse one whose ids are all unknown."""
    texts = read_names(text(names))
    entities, relations = ([one for one in some.ids if one in texts] for some in (graph.entities, graph.relations))
    if not entities and not relations:
        raise InputError(f"no id in the first column of '{names}' is in the graph; the second is for the names")
    note = f"names of {counted(len(entities), 'entity')} and {counted(len(relations), 'relation')} taken from '{names}'"
    if others := texts.keys() - {*entities, *relations}:
        note += f"; {counted(len(others), 'id')} of it not in the graph"
    return replace(graph.named(texts, texts), notes=(*graph.notes, note))


def _check_labels(divide: bool, tables: Mapping[str, File], label_columns: Columns | None) -> None:
    if tables and not divide:
        raise InputError("labels go with one file of triples, all of which are for training; give that file alone")
    if tables and ("train" not in tables or ("valid" in tables and "test" not in tables)):
        raise InputError("give labels= for training and test_labels=, with or without valid_labels=")
    if label_columns is not None:
        count = 3 if len(label_columns) == 3 else 2
        check_columns(label_columns, count, "node and label, and perhaps split")
