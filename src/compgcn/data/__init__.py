"""Knowledge graphs and collections of graphs: the data sets known by name, and your own files."""

from __future__ import annotations

from compgcn.data.collection import GraphCollection, read_graphs
from compgcn.data.datasets import DATASETS, Source, find, load, where
from compgcn.data.files import read
from compgcn.data.graph import KnowledgeGraph
from compgcn.data.labels import Labels
from compgcn.data.memory import from_pyg
from compgcn.data.vocabulary import Vocabulary

__all__ = [
    "DATASETS",
    "GraphCollection",
    "KnowledgeGraph",
    "Labels",
    "Source",
    "Vocabulary",
    "find",
    "from_pyg",
    "load",
    "read",
    "read_graphs",
    "where",
]
