"""Knowledge graphs: the data sets known by name, and your own files."""

from compgcn.data.registry import DATASETS, OWN_RECIPE, Source, load, where
from compgcn.data.source import find
from compgcn.data.triples import KnowledgeGraph, read
from compgcn.data.vocabulary import Vocabulary

__all__ = ["DATASETS", "OWN_RECIPE", "KnowledgeGraph", "Source", "Vocabulary", "find", "load", "read", "where"]
