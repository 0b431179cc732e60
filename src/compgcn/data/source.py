"""From the settings of a config's [data] to the graph."""

from __future__ import annotations

from pathlib import Path

from compgcn.config import Data
from compgcn.data.files import read
from compgcn.data.registry import DATASETS, load
from compgcn.data.triples import KnowledgeGraph
from compgcn.errors import InputError, unknown


def find(data: Data) -> KnowledgeGraph:
    """The graph that a config's [data] names: a data set, or files of one's own."""
    if data.source in DATASETS:
        if data.valid is not None or data.test is not None or data.names is not None:
            raise InputError(f"the data set '{data.source}' has its own splits and names; leave those options out")
        return load(data.source)
    if not Path(data.source).exists() and "." not in data.source and "/" not in data.source:
        raise unknown("data set", data.source, DATASETS)
    if data.valid is not None or data.test is not None:
        return read(train=data.source, valid=data.valid, test=data.test, names=data.names)
    return read(
        data.source,
        names=data.names,
        split_seed=data.split_seed,
        valid_fraction=data.valid_fraction,
        test_fraction=data.test_fraction,
    )
