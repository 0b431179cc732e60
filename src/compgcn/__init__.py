"""CompGCN: embed the entities and the relations of a knowledge graph together.

The public names are loaded when first used, so that `import compgcn` and `compgcn --help` stay instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compgcn.answers.classes import Classified as Classified
    from compgcn.answers.links import Prediction as Prediction
    from compgcn.data import GraphCollection as GraphCollection
    from compgcn.data import KnowledgeGraph as KnowledgeGraph
    from compgcn.data import load as load
    from compgcn.data import read as read
    from compgcn.errors import InputError as InputError
    from compgcn.nn.graph import RelationalGraph as RelationalGraph
    from compgcn.run.run import Run as Run
    from compgcn.run.run import fit as fit
    from compgcn.run.run import open_run as open_run


__version__ = "0.1.0"

_HOME = {
    "load": "compgcn.data",
    "read": "compgcn.data",
    "KnowledgeGraph": "compgcn.data",
    "GraphCollection": "compgcn.data",
    "RelationalGraph": "compgcn.nn.graph",
    "InputError": "compgcn.errors",
    "fit": "compgcn.run.run",
    "open_run": "compgcn.run.run",
    "Run": "compgcn.run.run",
    "Prediction": "compgcn.answers.links",
    "Classified": "compgcn.answers.classes",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'compgcn' has no attribute '{name}'")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
