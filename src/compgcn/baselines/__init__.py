"""Baselines by name: each is trained in place of an encoder and makes a run folder like any other.

There are two kinds: features of nodes with a classifier that is fitted once, and a module trained epoch by epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from compgcn.baselines.facts import fact_features, feat_features, fit_regression
from compgcn.baselines.fitted import FitOnce, Variant
from compgcn.baselines.networks import GraphNetwork, build_dgcnn, build_gin, extra
from compgcn.baselines.pachysan import build_pachysan
from compgcn.baselines.rdf2vec import rdf2vec_features
from compgcn.baselines.svm import fit_svm
from compgcn.baselines.wl import wl_features
from compgcn.config import Classifier, Config, Decoder, Encoder, Section, Training, differences
from compgcn.data import GraphCollection
from compgcn.errors import InputError, unknown
from compgcn.tasks.inputs import Start

__all__ = ["BASELINES", "Baseline", "FitOnce", "Variant", "find_baseline", "must_fit"]

Build = Callable[[Config, GraphCollection, Start], GraphNetwork]  # makes a network with fresh weights

# The data decide the first dimension of these recipes.
_STEPS = {"encoder.hidden_dropout": 0.5, "training.batch_size": 32, "training.lr": 0.001}
_FALLING = _STEPS | {"training.lr": 0.01, "training.schedule": "linear"}


class Baseline(NamedTuple):
    task: str
    how: FitOnce | Build  # a network is trained epoch by epoch
    description: str
    reference: str
    needs: tuple[str, ...] = ()  # modules of the extra `baselines`
    recipe: Mapping[str, Any] = MappingProxyType({})  # default settings, before those of the data


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
        build_pachysan,
        "convolutions over a sequence of nodes, each with the ten around it in a canonical order",
        "Niepert et al. 2016",
        needs=("pynauty",),
        recipe={"encoder.dims": (1, 16, 8, 128), "training.epochs": 50, **_STEPS},
    ),
    "dgcnn": Baseline(
        "graph-classification",
        build_dgcnn,
        "graph convolutions, then convolutions over the nodes sorted by their last channel",
        "Zhang et al. 2018",
        needs=("torch_geometric",),
        recipe={"encoder.dims": (1, 32, 32, 32, 1), "training.epochs": 100, **_STEPS},
    ),
    "gin": Baseline(
        "graph-classification",
        build_gin,
        "sums over neighbours, each through two dense layers, and the sums over the nodes at every depth",
        "Xu et al. 2019",
        needs=("torch_geometric",),
        recipe={"encoder.dims": (1, 32, 32, 32, 32), "training.epochs": 150, **_FALLING},
    ),
}


def find_baseline(name: str, task: str) -> Baseline:
    """Return the baseline of this name; refuse one for another task."""
    fitting = [known for known, row in BASELINES.items() if row.task == task]
    if name not in BASELINES:
        raise unknown("baseline", name, fitting or BASELINES)
    row = BASELINES[name]
    if row.task != task:
        others = f"; those for it are {', '.join(fitting)}" if fitting else ", which has none"
        raise InputError(f"the baseline '{name}' is for {row.task}, not for {task}{others}")
    return row


def must_fit(row: Baseline, config: Config) -> None:
    """Refuse to train a baseline without its libraries, or with settings that it does not use."""
    for module in row.needs:
        extra(module)
    e, c = config.encoder, config.classifier
    if e.name != Encoder().name:
        raise InputError(f"the baseline '{c.baseline}' takes the place of an encoder; name only one")
    once = isinstance(row.how, FitOnce)
    readout, candidates = Classifier().readout, () if once else c.candidates
    used: dict[str, Section] = {"classifier": c.model_copy(update={"readout": readout, "candidates": candidates})}
    if once:
        what = "is fitted once"
        used |= {"encoder": Encoder(), "decoder": Decoder(), "training": Training(seed=config.training.seed)}
    else:
        what = "is a network of its own"
        used["encoder"] = Encoder(input=e.input, dims=e.dims, hidden_dropout=e.hidden_dropout, graph=e.graph)
    for change in differences(config.model_copy(update=used), config):
        raise InputError(f"the baseline '{c.baseline}' {what} and has no {change.partition(':')[0]}; leave it out")
