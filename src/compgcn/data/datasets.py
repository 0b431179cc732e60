"""The data sets known by name, and the way from a config's [data] to a graph; `datasets.toml` has a row for each."""

from __future__ import annotations

import gzip
import hashlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from compgcn.config import Data
from compgcn.data import collection, download
from compgcn.data.collection import GraphCollection, read_graphs
from compgcn.data.columns import SPLITS, endings, numbered
from compgcn.data.download import FILES, Files
from compgcn.data.files import read
from compgcn.data.graph import KnowledgeGraph, assemble, read_names, top_relations
from compgcn.data.tables import text
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError, pick, unknown

Paths = Mapping[str, Path]

_STEPS, _LEAST, _MOST = 64, 4096, 2**20  # of an epoch over a large graph; examples in one of them
# A number as RDF writes it; another mirror may write it with more or fewer zeros.
_NUMBER = re.compile(r'"([^"]*)"\^\^<http://www\.w3\.org/2001/XMLSchema#(double|float|decimal)>')
_ANY = {"source", "top_relations", "split_seed", "valid_fraction", "test_fraction"}  # settings of data sets by name too


class Source(NamedTuple):
    """A data set: where it comes from and what it must contain."""

    name: str
    task: str
    description: str
    load: Callable[[Paths], KnowledgeGraph | GraphCollection]  # from the paths of its files, by role
    licence: str
    citation: str
    statistics: dict[str, int]  # the published sizes; loaded data must have them
    recipe: dict[str, Any]  # settings recommended for training on it, by dotted key
    files: Files | None = None  # its mirrors; None if it comes with the package
    canonical: str = ""  # published content, see `canonical`; "" if unknown


def load(name: str) -> KnowledgeGraph | GraphCollection:
    """Return the data set called `name`, fetched on first use and compared with its published content."""
    source = pick("data set", name, DATASETS, listed=len(DATASETS))
    if source.files is None:
        return _checked(source, source.load({}))
    with download.located(name, source.files) as paths:
        graph = _checked(source, source.load(paths))
    cached = (download.entries(name, source.files) or {}).values()
    unverified = [entry.path.name for entry in cached if not entry.verified and entry.path in paths.values()]
    if unverified:
        note = f"no checksum of {', '.join(unverified)} is published: as first downloaded, but unverified"
        graph = replace(graph, notes=(*graph.notes, note))
    return graph


def find(data: Data, task: str | None = None) -> KnowledgeGraph | GraphCollection:
    """Return the data that a config's [data] names: a data set, or your own files.

    A folder in the TU format holds graphs; so does a table of triples if the task is graph classification.
    """
    found = _find(data, task)
    if data.top_relations is None:
        return found
    if isinstance(found, GraphCollection):
        raise InputError("data.top_relations cuts down one graph, not a collection of them; leave it out")
    return top_relations(found, data.top_relations)


def _find(data: Data, task: str | None) -> KnowledgeGraph | GraphCollection:
    if data.source in DATASETS:
        chosen = data.model_dump(exclude_defaults=True, exclude=_ANY)
        if chosen and chosen != {"literals": "drop"}:  # the default of earlier runs
            what = f"the data set '{data.source}' is read in its own way, with its own splits and names"
            raise InputError(f"{what}; leave {' and '.join(chosen)} out")
        graph = load(data.source)
        if task == "link-prediction" and isinstance(graph, KnowledgeGraph) and graph.labels is not None:
            graph = graph.divided(data.split_seed, data.valid_fraction, data.test_fraction)  # published for its labels
        return graph
    if not Path(data.source).exists() and "." not in data.source and "/" not in data.source:
        raise unknown("data set", data.source, DATASETS, listed=len(DATASETS))
    if collection.found(data.source):
        return collection.read(data.source)
    if task == "graph-classification":
        if data.labels is None:
            raise InputError(f"'{data.source}' needs a table of graphs and their classes; name it with --labels")
        return read_graphs(data.source, labels=data.labels, nodes=data.node_labels, label_columns=data.label_columns)
    settings = data.model_dump(exclude={"source", "node_labels", "top_relations"})
    alone = data.valid is None and data.test is None
    return read(data.source, **settings) if alone else read(train=data.source, **settings)


def where(source: Source) -> str:
    """Return where a data set is: `embedded` in the package, `local`, `cached`, `to fetch`, or `missing`."""
    return "embedded" if source.files is None else download.place(source.name, source.files)


def large_batch(triples: int) -> int:
    """Return the batch size for a large graph with so many training triples, each an example from both sides.

    64 steps make an epoch, each a pass over the graph, but no batch is smaller than 4,096 or larger than 2^20 examples,
    whose scores against 512 negatives take 2 GiB.
    """
    return min(max(-(-2 * triples // _STEPS), _LEAST), _MOST)


def _checked(source: Source, graph: KnowledgeGraph | GraphCollection) -> KnowledgeGraph | GraphCollection:
    """Return the graph if it has the published sizes and content."""
    found = graph.statistics()
    wrong = [
        f"{found[what]:,} {what} where {published:,} are published"
        for what, published in source.statistics.items()
        if found[what] != published
    ]
    if not wrong and source.canonical and canonical(graph) != source.canonical:
        wrong = ["the sizes agree but what they say differs"]
    if wrong:
        raise InputError(f"the files of '{source.name}' are not the published data set: {', '.join(wrong)}")
    return replace(graph, origin={})  # its name is enough to find it again


def canonical(graph: KnowledgeGraph | GraphCollection) -> str:
    """Return a sha256 over the triples of each split as a set of strings: one for all mirrors.

    Ids are numbered in the order of their UTF-8 bytes, and the triples of a split sorted by these numbers; RDF numbers
    count by value. Labels of nodes count too. A collection, whose nodes have no ids, has its fingerprint.
    """
    if isinstance(graph, GraphCollection):
        return graph.fingerprint()
    digest = hashlib.sha256()
    number = []
    for vocabulary in (graph.entities, graph.relations):
        ids = [_NUMBER.sub(_by_value, text).encode("utf-8", "surrogatepass") for text in vocabulary.ids]
        order = sorted(range(len(ids)), key=ids.__getitem__)
        digest.update(b"".join(b"%d:%b" % (len(ids[row]), ids[row]) for row in order))
        number.append(np.argsort(np.array(order, dtype=np.int64)))  # row -> place in the order
    entity, relation = number
    for part, triples in graph.splits.items():
        s, r, o = triples.T
        rows = np.column_stack([entity[s], relation[r], entity[o]])  # [n, 3]
        rows = rows[np.lexsort(rows.T[::-1])]
        digest.update(f"\n{part} {len(rows)}\n".encode() + rows.astype("<i8").tobytes())
    for part, labelled in graph.labels.splits.items() if graph.labels is not None else ():
        rows = np.column_stack([entity[labelled[:, 0]], labelled[:, 1]])  # [n, 2]; classes are sorted by name
        rows = rows[np.argsort(rows[:, 0])]
        digest.update(f"\n{part} labels {len(rows)}\n".encode() + rows.astype("<i8").tobytes())
    return digest.hexdigest()


def _by_value(number: re.Match[str]) -> str:
    with suppress(ValueError):
        return f"{float(number[1])!r} {number[2]}"
    return number[0]  # no number after all


def load_world() -> KnowledgeGraph:
    """Return the graph that comes with the package: lines `split <tab> subject <tab> relation <tab> object`."""
    packed = resources.files("compgcn.data").joinpath("world.tsv.gz").read_bytes()
    rows = [line.split("\t") for line in gzip.decompress(packed).decode().splitlines()]
    entities = numbered(end for _, s, _, o in rows for end in (s, o))
    relations = numbered(r for _, _, r, _ in rows)
    names = [relation.replace("_", " ") for relation in relations]
    vocabularies = Vocabulary("entity", list(entities)), Vocabulary("relation", list(relations), names)
    facts = [(home, (entities[s], relations[r], entities[o])) for home, s, r, o in rows]
    train, valid, test = (np.array([fact for home, fact in facts if home == part]) for part in SPLITS)
    return KnowledgeGraph("world", *vocabularies, train, valid, test)


def _triples(name: str, name_columns: int, paths: Paths) -> KnowledgeGraph:
    """Read a file of triples for each split, and readable names where a mirror has them."""
    entities, relations = (
        read_names(text(paths[role]), width=width) if role in paths else {}
        for role, width in (("entities", name_columns), ("relations", 2))
    )
    return assemble(name, {part: text(paths[part]) for part in SPLITS}).named(entities, relations)


def _labelled(name: str, columns: tuple[str, str], telltale: str, paths: Paths) -> KnowledgeGraph:
    """Read an RDF graph, with literals as nodes, and two tables of labelled nodes.

    The relation `telltale` gives the labels away; only the RDF/XML of a mirror still holds it.
    """
    return read(
        paths["graph"],
        literals="nodes",
        exclude=(telltale,) if telltale and endings(paths["graph"])[0] == ".owl" else (),
        labels=paths["train"],
        test_labels=paths["test"],
        label_columns=columns,
        valid_fraction=0.0,  # the protocol chooses the validation labels
        name=name,
    )


def _source(name: str, row: dict[str, Any]) -> Source:
    """Return a row of the table; its task says how its files are read."""
    columns, telltale = tuple(row.pop("label_columns", ())), row.pop("telltale", "")
    triples = partial(_triples, name, row.pop("name_columns", 2))
    readers: dict[str, Callable[[Paths], KnowledgeGraph | GraphCollection]] = {
        "link-prediction": triples if name in FILES else lambda _: load_world(),
        "node-classification": partial(_labelled, name, columns, telltale),
        "graph-classification": lambda paths: collection.read(paths.values(), name=name),
    }
    recipe = {**_RECIPES.get(row.pop("recipe", ""), {}), **_tuples(row.pop("settings", {}))}
    return Source(name=name, load=readers[row["task"]], recipe=recipe, files=FILES.get(name), **row)


def _rows(table: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and row of every data set; a row with `sets` stands for several, in pairs NAME and NAME-ind."""
    for name, row in table.items():
        if "sets" not in row:
            yield name, row
        for one, (*sizes, digest) in row.pop("sets", {}).items():
            statistics = dict(zip(("entities", "relations", *SPLITS), sizes, strict=True))
            known = one.removesuffix("-ind")
            about = f"{row['description']}; {one}-ind has unseen entities with its relations"
            about = about if one == known else f"unseen entities with the relations of {known}"
            yield one, {**row, "description": about, "statistics": statistics, "canonical": digest}


def _tuples(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}


_TABLE = tomllib.loads(resources.files("compgcn.data").joinpath("datasets.toml").read_text(encoding="utf-8"))
_RECIPES = {name: _tuples(recipe) for name, recipe in _TABLE["recipes"].items()}
LARGE_RECIPE, LARGE_ENCODED = _RECIPES["large"], _RECIPES["large-encoded"]
OWN_RECIPES = {
    "link-prediction": _RECIPES["own"],
    "node-classification": _RECIPES["node"],
    "graph-classification": _RECIPES["molecule"],
}
DATASETS: dict[str, Source] = {name: _source(name, row) for name, row in _rows(_TABLE["datasets"])}
