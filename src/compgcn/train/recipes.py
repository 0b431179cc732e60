"""Whole models by name: settings that make the models others are compared with. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from compgcn.config import Config, configure
from compgcn.errors import unknown

# The data decide how long to train as much as the model does.
_BUDGET = {"training.epochs", "training.patience", "training.evaluate_every"}

# Cross-entropy over all entities, on triples from both sides, at a falling rate, brings old models to new figures in
# tens of epochs (Lacroix et al., 2018; Ruffinelli et al., 2020).
_SHORT: dict[str, Any] = {
    "training.loss": "cross-entropy",
    "training.batch_size": 1000,
    "training.epochs": 40,
    "training.evaluate_every": 5,
    "training.patience": 10,
    "training.schedule": "cosine",
}
_ALONE: dict[str, Any] = {**_SHORT, "encoder.name": "none", "encoder.dims": (200,)}
_FACTORS: dict[str, Any] = {  # tensor factorisation, as ComplEx-N3
    **_ALONE,
    "encoder.init_scale": 1e-3,
    "training.optimiser": "adagrad",
    "training.lr": 0.1,
    "training.label_smoothing": 0.0,
    "training.regulariser": "n3",
    "training.regularisation": 0.05,
    "training.schedule_start": 0.6,
    "training.schedule_floor": 0.03,
}
_GRAPH: dict[str, Any] = {**_SHORT, "encoder.dims": (100, 200), "training.lr": 2e-3}


class Model(NamedTuple):
    """A whole model: settings by dotted name, a description and a reference."""

    settings: Mapping[str, Any]
    description: str
    reference: str


MODELS: dict[str, Model] = {
    "transe": Model(
        {**_ALONE, "decoder.name": "transe", "training.epochs": 15},  # its step reads every pair of vectors
        "TransE, one against all",
        "Bordes et al., NeurIPS 2013",
    ),
    "distmult": Model(
        {**_FACTORS, "decoder.name": "distmult", "encoder.dims": (1000,)},
        "DistMult with N3",
        "Yang et al., ICLR 2015",
    ),
    "complex": Model(
        {**_FACTORS, "decoder.name": "complex", "encoder.dims": (1000,)},
        "ComplEx with N3",
        "Trouillon et al., ICML 2016; Lacroix et al., ICML 2018",
    ),
    "complex-n3-rp": Model(
        {
            **_FACTORS,
            "decoder.name": "complex",
            "encoder.dims": (2000,),
            "training.epochs": 34,
            "training.relation_prediction": 4.0,
        },
        "ComplEx with N3 and relation prediction",
        "Lacroix et al., ICML 2018; Chen et al., AKBC 2021",
    ),
    "rotate": Model(
        {
            **_ALONE,
            "decoder.name": "rotate",
            "encoder.dims": (400,),
            "encoder.tie_inverse": True,
            "training.loss": "self-adversarial",
            "training.negatives": 128,
            "training.schedule_start": 0.3,
        },
        "RotatE, with self-adversarial negatives",
        "Sun et al., ICLR 2019",
    ),
    "hole": Model(
        {**_FACTORS, "decoder.name": "hole", "encoder.dims": (400,)},
        "HolE with N3",
        "Nickel et al., AAAI 2016",
    ),
    "conve": Model({**_ALONE, "decoder.name": "conve"}, "ConvE", "Dettmers et al., AAAI 2018"),
    "convkb": Model(
        {
            **_ALONE,
            "decoder.name": "convkb",
            "encoder.dims": (100,),
            "training.loss": "self-adversarial",
            "training.negatives": 16,
            "training.epochs": 15,
        },
        "ConvKB, with sampled negatives",
        "Nguyen et al., NAACL 2018",
    ),
    "convr": Model({**_ALONE, "decoder.name": "convr"}, "ConvR", "Jiang et al., NAACL 2019"),
    "hyper": Model(
        {**_ALONE, "decoder.name": "hyper", "decoder.input_dropout": 0.2, "decoder.hidden_dropout": 0.4},
        "HypER",
        "Balažević et al., ICANN 2019",
    ),
    "conv-transe": Model({**_ALONE, "decoder.name": "conv-transe"}, "Conv-TransE", "Shang et al., AAAI 2019"),
    "sacn": Model(
        {**_GRAPH, "encoder.name": "wgcn", "decoder.name": "conv-transe"},
        "SACN: Conv-TransE on W-GCN",
        "Shang et al., AAAI 2019",
    ),
    "kbgan": Model(
        {
            **_ALONE,
            "decoder.name": "transe",
            "training.loss": "margin",
            "training.loss_margin": 3.0,
            "training.sampler": "kbgan",
            "training.negatives": 20,
            "training.epochs": 80,  # its steps are cheap
            "training.evaluate_every": 10,
        },
        "KBGAN: TransE with negatives that DistMult chooses",
        "Cai & Wang, NAACL 2018",
    ),
    "r-gcn": Model(
        {**_GRAPH, "encoder.name": "rgcn-basis", "decoder.name": "distmult"},
        "R-GCN with basis matrices, and DistMult",
        "Schlichtkrull et al., ESWC 2018",
    ),
    "vr-gcn": Model(
        {**_GRAPH, "encoder.name": "vrgcn", "decoder.name": "distmult"},
        "VR-GCN, and DistMult",
        "Ye et al., IJCAI 2019",
    ),
    "d-gcn": Model(
        {**_GRAPH, "encoder.name": "dgcn", "decoder.name": "conve"},
        "Directed GCN, and ConvE",
        "Marcheggiani & Titov, EMNLP 2017",
    ),
    "w-gcn": Model(
        {**_GRAPH, "encoder.name": "wgcn", "decoder.name": "conve"},
        "Weighted GCN, and ConvE",
        "Shang et al., AAAI 2019",
    ),
    "gcn": Model(
        {**_GRAPH, "encoder.name": "gcn", "decoder.name": "conve"},
        "Kipf-GCN, and ConvE",
        "Kipf & Welling, ICLR 2017",
    ),
    "compgcn": Model(
        {"encoder.name": "compgcn", "decoder.name": "conve"},
        "the paper's: CompGCN, and ConvE",
        "Vashishth et al., ICLR 2020",
    ),
}


def model(name: str) -> Model:
    """Return the model of that name."""
    if name not in MODELS:
        raise unknown("model", name, MODELS, listed=len(MODELS))
    return MODELS[name]


def beneath(system: Model, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a data set's recipe that holds for a model: the budget, and the settings of parts they share.

    A recipe is for an encoder, a decoder and their training; for another encoder or decoder its settings do not hold,
    and neither does its training.
    """
    theirs, ours = configure(Config(), recipe), configure(Config(), system.settings)
    shared = {s for s in ("encoder", "decoder") if getattr(theirs, s).name == getattr(ours, s).name}
    if len(shared) == 2:
        shared.add("training")
    return {key: recipe[key] for key in recipe if key in _BUDGET or key.partition(".")[0] in shared}
