"""Knowledge graphs: the data sets known by name, and your own files."""

from compgcn.data.files import read
from compgcn.data.labels import Labels
from compgcn.data.registry import DATASETS, OWN_RECIPE, Source, load
from compgcn.data.source import find
from compgcn.data.triples import KnowledgeGraph
from compgcn.data.vocabulary import Vocabulary

__all__ = ["DATASETS", "OWN_RECIPE", "KnowledgeGraph", "Labels", "Source", "Vocabulary", "find", "load", "read"]
