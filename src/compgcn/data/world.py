"""The embedded graph: countries, cities, languages, currencies and time zones, small enough to train in a minute.

`tools/build_world.py` writes the file this reads; `world.NOTICE` says where the facts come from.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from importlib import resources

import numpy as np

from compgcn.data.triples import KnowledgeGraph
from compgcn.data.vocabulary import Vocabulary

FILE = "world.tsv.gz"


def load() -> KnowledgeGraph:
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
