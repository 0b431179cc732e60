"""The tasks, a row each: all that tells one from another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from compgcn.answers.classes import Classes
from compgcn.answers.links import Links
from compgcn.assembly.items import build_graphs, build_links, build_nodes, labelled_nodes
from compgcn.baselines import FitOnce, find_baseline
from compgcn.config import Config
from compgcn.data import GraphCollection, KnowledgeGraph
from compgcn.data.arrays import Numbers
from compgcn.decoders import DECODERS
from compgcn.decoders import Row as DecoderRow
from compgcn.errors import InputError, unknown
from compgcn.inputs import Dataset
from compgcn.presets import preset
from compgcn.protocols import Metrics, Session, fitted, holdout, nested, paper, ranking, refit


class TaskRow(NamedTuple):
    """All that tells one task from another.

    Fields:
        description, reference: what is predicted, and whose way of measuring it is followed.
        takes: whether data are made for it.
        fits: whether they can be used for it.
        needs: what they must be, in words.
        inputs: what its nodes can start from, the first that the data have being the default.
        protocols: by name, the first being the default.
        complete: the settings it fills in.
        build: makes what is trained, see `build_task`.
        items: which items are for what, the class of each, and the names of the classes.
        answers: what a trained model can be asked, from its config, data and what was built of them.
    """

    description: str
    reference: str
    takes: Callable[[Any], bool]
    fits: Callable[[Any], bool]
    needs: str
    inputs: tuple[str, ...]
    protocols: Mapping[str, Callable[[Session], Metrics]]
    complete: Callable[[Config, Any], dict[str, Any]]
    build: Callable[[Config, Any, torch.device, bool], Any]
    items: Callable[[Any], tuple[dict[str, Numbers], Numbers, tuple[str, ...]]]
    answers: Callable[[Config, Any, Any, Mapping[str, Any]], Links | Classes]


def task_of(settings: Config, data: Dataset) -> str:
    """The task that is asked for, or else the first that the data are made for."""
    if settings.task is None:
        return next(name for name, row in TASKS.items() if row.takes(data))
    if not TASKS[settings.task].fits(data):
        raise InputError(f"{settings.task} needs {TASKS[settings.task].needs}, which '{data.name}' is not")
    return settings.task


def protocol_of(config: Config, task: str) -> str:
    """The protocol that is asked for, or else the task's first."""
    protocols = TASKS[task].protocols
    default, *_ = protocols
    protocol = config.classifier.protocol or default
    if protocol not in protocols:
        raise unknown(f"protocol for {task}", protocol, protocols)
    if config.classifier.candidates and protocol != "nested":
        raise InputError(
            f"the protocol '{protocol}' chooses among no candidates; take --protocol nested, or compgcn tune before"
        )
    return protocol


def _complete_links(config: Config, data: KnowledgeGraph) -> dict[str, Any]:
    if config.decoder.name not in DECODERS:
        raise unknown("decoder", config.decoder.name, DECODERS)
    if config.decoder.generator not in DECODERS:
        raise unknown("decoder.generator", config.decoder.generator, DECODERS)
    if config.encoder.add_inverse is False:
        raise InputError("link prediction asks for heads through inverse relations; leave encoder.add_inverse out")
    if config.classifier.candidates:
        raise InputError("link prediction chooses among no candidates; search for settings with compgcn tune")
    d, row = config.decoder, DECODERS[config.decoder.name]
    if config.encoder.tie_inverse:
        _must_tie(config.encoder.name, d.name, row)
    return {
        "decoder.entity_bias": row.entity_bias if d.entity_bias is None else d.entity_bias,
        "decoder.filters": d.filters or row.settings.filters,
        "decoder.kernel": d.kernel or row.settings.kernel,
        "encoder.add_inverse": True,
    }


def _must_tie(encoder: str, decoder: str, row: DecoderRow) -> None:
    """Refuse to tie what cannot be: an inverse must be its original read backwards where it is scored."""
    if row.backwards is None:
        raise InputError(f"decoder '{decoder}' reads no triple backwards; leave encoder.tie_inverse out")
    z = torch.arange(1.0, 5.0)
    of_sign = any(torch.equal(row.backwards(z), sign * z) for sign in (1, -1))  # which every linear map keeps
    if not of_sign and preset(encoder).relations == "vectors":
        raise InputError(
            f"encoder '{encoder}' maps the vectors of relations, after which inverses are no more what decoder "
            f"'{decoder}' reads backwards; leave encoder.tie_inverse out"
        )


def _complete_classes(config: Config, data: Dataset) -> dict[str, Any]:
    both = isinstance(data, GraphCollection) and data.both_directions
    inverse = config.encoder.add_inverse
    return {
        "encoder.add_inverse": not both if inverse is None else inverse,
        "classifier.protocol": protocol_of(config, task_of(config, data)),
        "training.loss": "cross-entropy",
    }


TASKS: dict[str, TaskRow] = {
    "link-prediction": TaskRow(
        description="the facts that are missing from a graph, by rank among all entities",
        reference="Bordes et al., NeurIPS 2013",
        takes=lambda data: isinstance(data, KnowledgeGraph) and data.labels is None,
        fits=lambda data: isinstance(data, KnowledgeGraph),
        needs="a knowledge graph",
        inputs=("features", "learned", "literals"),
        protocols={"ranking": ranking},
        complete=_complete_links,
        build=build_links,
        items=lambda data: ({}, np.empty(0, dtype=np.int64), ()),
        answers=Links,
    ),
    "node-classification": TaskRow(
        description="the classes of nodes, from some that have labels",
        reference="Schlichtkrull et al., ESWC 2018",
        takes=lambda data: isinstance(data, KnowledgeGraph) and data.labels is not None,
        fits=lambda data: isinstance(data, KnowledgeGraph) and data.labels is not None,
        needs="a knowledge graph with labels of some of its nodes",
        inputs=("features", "types", "learned", "literals", "shared"),
        protocols={"refit": refit, "holdout": holdout},
        complete=_complete_classes,
        build=build_nodes,
        items=labelled_nodes,
        answers=Classes,
    ),
    "graph-classification": TaskRow(
        description="the classes of whole graphs, by cross-validation",
        reference="Xu et al., ICLR 2019",
        takes=lambda data: isinstance(data, GraphCollection),
        fits=lambda data: isinstance(data, GraphCollection),
        needs="a collection of graphs",
        inputs=("labels", "features", "shared"),
        protocols={"paper": paper, "nested": nested},
        complete=_complete_classes,
        build=build_graphs,
        items=lambda data: ({"train": np.arange(len(data))}, data.targets, data.classes),
        answers=Classes,
    ),
}


def build_task(config: Config, data: Dataset, device: torch.device, *, whole: bool = False) -> Any:
    """What a config describes, with fresh weights: the task of link prediction, or the items of a classification.

    With `whole`, the nodes of a graph are all of them, and not only those with a label.
    """
    assert config.task is not None
    return TASKS[config.task].build(config, data, device, whole)


def chosen_protocol(config: Config) -> Callable[[Session], Metrics]:
    """How a whole config is trained and reported."""
    assert config.task is not None
    baseline = find_baseline(config.classifier.baseline, config.task)
    if baseline is not None and isinstance(baseline.how, FitOnce):
        return fitted
    default, *_ = TASKS[config.task].protocols
    return TASKS[config.task].protocols[config.classifier.protocol or default]
