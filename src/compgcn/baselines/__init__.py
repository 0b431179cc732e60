"""What models are held against: the baselines, by name.

A baseline is trained in place of an encoder, in a run folder like any other. There are two kinds: what is fitted once,
features of the nodes and a classifier on them; and a module that is trained epoch by epoch, as an encoder's is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, NamedTuple

from compgcn.baselines.facts import fact_features, feat_features, fit_regression
from compgcn.baselines.fitted import FitOnce, Variant
from compgcn.baselines.networks import build_dgcnn, build_gin
from compgcn.baselines.pachysan import build_pachysan
from compgcn.baselines.rdf2vec import rdf2vec_features
from compgcn.baselines.svm import fit_svm
from compgcn.baselines.wl import wl_features
from compgcn.config import Config
from compgcn.data import GraphCollection
from compgcn.errors import InputError, unknown
from compgcn.tasks.classification import GraphClassifier
from compgcn.tasks.inputs import Start

__all__ = ["BASELINES", "Baseline", "FitOnce", "Trained", "Variant", "find_baseline", "must_be_installed"]

_PROJECTS = {"sklearn": "scikit-learn", "torch_geometric": "torch-geometric"}  # named otherwise than their module

# How networks of whole graphs are trained; the input's dimension, 1 in their recipes, is for the data to say.
_STEPS = {"training.batch_size": 32, "training.lr": 0.001}
_FALLING = {"training.batch_size": 32, "training.lr": 0.01, "training.schedule": "linear"}


class Trained(NamedTuple):
    """A module that takes the place of `compgcn.tasks.classification.Classifier` in the usual protocols.

    Fields:
        build: from the settings, the graphs and what their nodes start from, a module with fresh weights:
            `vectors(graph, rows, number)` gives those of the graphs of a disjoint union [G, d], and `head`, an
            `nn.Linear`, the logits [G, C].
    """

    build: Callable[[Config, GraphCollection, Start], GraphClassifier]


class Baseline(NamedTuple):
    """One baseline.

    Fields:
        task: what it is for.
        how: the kind, with what makes it.
        description, reference: what it does, and whose it is.
        needs: the modules of the extra `baselines` that it imports.
        recipe: settings it takes unless told otherwise, before those of the data.
    """

    task: str
    how: FitOnce | Trained
    description: str
    reference: str
    needs: tuple[str, ...] = ()
    recipe: Mapping[str, Any] = MappingProxyType({})


BASELINES: dict[str, Baseline] = {
    "feat": Baseline(
        "node-classification",
        FitOnce(feat_features, fit_svm),
        "a node's relations, in and out: alone, with the kind of their other end, with that end itself; a linear SVM",
        "Paulheim and Fürnkranz 2012",
        needs=("sklearn",),
    ),
    "wl": Baseline(
        "node-classification",
        FitOnce(wl_features, fit_svm),
        "the Weisfeiler-Lehman kernel for RDF: the subtrees in a node's neighbourhood; a linear SVM",
        "de Vries 2013, de Vries and de Rooij 2015",
        needs=("sklearn",),
    ),
    "rdf2vec": Baseline(
        "node-classification",
        FitOnce(rdf2vec_features, fit_svm),
        "random walks of four steps as sentences, word2vec on them; a linear SVM",
        "Ristoski and Paulheim 2016",
        needs=("sklearn", "gensim"),
    ),
    "facts": Baseline(
        "node-classification",
        FitOnce(fact_features, fit_regression),
        "logistic regression on how often a node has each path of up to two relations to each kind of node",
        "a control of this package",
    ),
    "pachysan": Baseline(
        "graph-classification",
        Trained(build_pachysan),
        "convolutions over a sequence of nodes, each with the ten around it in a canonical order",
        "Niepert et al. 2016",
        needs=("pynauty",),
        recipe={"encoder.dims": (1, 16, 8, 128), "encoder.hidden_dropout": 0.5, "training.epochs": 50, **_STEPS},
    ),
    "dgcnn": Baseline(
        "graph-classification",
        Trained(build_dgcnn),
        "graph convolutions, then convolutions over the nodes sorted by what came of them",
        "Zhang et al. 2018",
        needs=("torch_geometric",),
        recipe={"encoder.dims": (1, 32, 32, 32, 1), "encoder.hidden_dropout": 0.5, "training.epochs": 100, **_STEPS},
    ),
    "gin": Baseline(
        "graph-classification",
        Trained(build_gin),
        "sums over neighbours, each through two dense layers, and the sums over the nodes at every depth",
        "Xu et al. 2019",
        needs=("torch_geometric",),
        recipe={"encoder.dims": (1, 32, 32, 32, 32), "encoder.hidden_dropout": 0.5, "training.epochs": 150, **_FALLING},
    ),
}


def find_baseline(name: str | None, task: str) -> Baseline | None:
    """The baseline of this name, if one is named; one for another task is refused."""
    if name is None:
        return None
    fitting = [known for known, row in BASELINES.items() if row.task == task]
    if name not in BASELINES:
        raise unknown("baseline", name, fitting or BASELINES)
    row = BASELINES[name]
    if row.task != task:
        others = f"; those for it are {', '.join(fitting)}" if fitting else ", which has none"
        raise InputError(f"the baseline '{name}' is for {row.task}, not for {task}{others}")
    return row


def must_be_installed(name: str) -> None:
    """Refuse to train a baseline without its libraries."""
    missing = [_PROJECTS.get(module, module) for module in BASELINES[name].needs if find_spec(module) is None]
    if missing:
        raise InputError(
            f"the baseline '{name}' needs {' and '.join(missing)}, not installed here: pip install 'compgcn[baselines]'"
        )
