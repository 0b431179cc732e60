"""Whole models by name: settings that make the models others are compared with. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from compgcn.config import BUDGET, Config, configure
from compgcn.errors import pick

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
_FACTORS: dict[str, Any] = {  # tensor factorisation, as ComplEx-N3
    "encoder.init_scale": 1e-3,
    "training.optimiser": "adagrad",
    "training.lr": 0.1,
    "training.label_smoothing": 0.0,
    "training.regulariser": "n3",
    "training.regularisation": 0.05,
    "training.schedule_start": 0.6,
    "training.schedule_floor": 0.03,
}


def _alone(decoder: str, dim: int = 200, **training: Any) -> dict[str, Any]:
    """Settings of a decoder without an encoder, by its dimension and what differs in its training."""
    parts = {"encoder.name": "none", "encoder.dims": (dim,), "decoder.name": decoder}
    return _SHORT | parts | {f"training.{name}": value for name, value in training.items()}


def _on_graph(encoder: str, decoder: str) -> dict[str, Any]:
    parts = {"encoder.name": encoder, "encoder.dims": (100, 200), "decoder.name": decoder}
    return _SHORT | parts | {"training.lr": 2e-3}


class Model(NamedTuple):
    """A whole model: settings by dotted name, a description and a reference."""

    settings: Mapping[str, Any]
    description: str
    reference: str


_CONDITIONAL: dict[str, Any] = {
    "encoder.name": "conditional",
    "encoder.composition": "mult",
    "encoder.dims": (32,) * 7,
    "encoder.bias": True,
    "decoder.name": "none",
    "training.batch_size": 64,
    "training.epochs": 8,
    "training.patience": 10,
    "training.evaluate_every": 1,
    "training.optimiser": "adam",
    "training.lr": 5e-3,
    "training.warm_up": 100,
    "training.schedule": "cosine",
    "training.schedule_start": 0.5,
    "training.schedule_floor": 0.05,
    "training.grad_clip": 1.0,
    "training.loss": "cross-entropy",
    "training.label_smoothing": 0.0,
    "training.step": "recorded",  # its kernels are fused already
}

_RATE = 5e8  # messages, the unit of `nn.conditional.Pace`, that a second passes; set by hand from runs on two cores
_TRAINED = 100.0  # seconds that the epochs on a CPU should take
CONDITIONAL_ON_CPU: dict[str, Any] = {"encoder.dims": (16,) * 5, "training.batch_size": 32}


def epochs_on_cpu(query_time: float, queries: int) -> int:
    """Return how many epochs of so many queries a CPU passes in minutes; at least one, at most those for a GPU."""
    most: int = _CONDITIONAL["training.epochs"]
    return min(max(int(_TRAINED * _RATE / max(1.0, queries * query_time)), 1), most)


_HYPER = {"decoder.input_dropout": 0.2, "decoder.hidden_dropout": 0.4}
_ROTATE = _alone("rotate", 400, loss="self-adversarial", negatives=128, schedule_start=0.3)
_KBGAN: dict[str, Any] = {
    "loss": "margin",
    "loss_margin": 3.0,
    "sampler": "kbgan",
    "negatives": 20,
    "evaluate_every": 10,
}

MODELS: dict[str, Model] = {
    # A step of TransE against all entities reads every pair of vectors.
    "transe": Model(_alone("transe", epochs=15), "TransE, one against all", "Bordes et al., NeurIPS 2013"),
    "distmult": Model(_alone("distmult", 1000) | _FACTORS, "DistMult with N3", "Yang et al., ICLR 2015"),
    "complex": Model(
        _alone("complex", 1000) | _FACTORS,
        "ComplEx with N3",
        "Trouillon et al., ICML 2016; Lacroix et al., ICML 2018",
    ),
    "complex-n3-rp": Model(
        _alone("complex", 2000, epochs=34, relation_prediction=4.0) | _FACTORS,
        "ComplEx with N3 and relation prediction",
        "Lacroix et al., ICML 2018; Chen et al., AKBC 2021",
    ),
    "rotate": Model(
        _ROTATE | {"encoder.tie_inverse": True}, "RotatE, with self-adversarial negatives", "Sun et al., ICLR 2019"
    ),
    "hole": Model(_alone("hole", 400) | _FACTORS, "HolE with N3", "Nickel et al., AAAI 2016"),
    "conve": Model(_alone("conve"), "ConvE", "Dettmers et al., AAAI 2018"),
    "convkb": Model(
        _alone("convkb", 100, loss="self-adversarial", negatives=16, epochs=15),
        "ConvKB, with sampled negatives",
        "Nguyen et al., NAACL 2018",
    ),
    "convr": Model(_alone("convr"), "ConvR", "Jiang et al., NAACL 2019"),
    "hyper": Model(_alone("hyper") | _HYPER, "HypER", "Balažević et al., ICANN 2019"),
    "conv-transe": Model(_alone("conv-transe"), "Conv-TransE", "Shang et al., AAAI 2019"),
    "sacn": Model(_on_graph("wgcn", "conv-transe"), "SACN: Conv-TransE on W-GCN", "Shang et al., AAAI 2019"),
    "kbgan": Model(
        _alone("transe", epochs=80, **_KBGAN),  # its steps are cheap
        "KBGAN: TransE with negatives that DistMult chooses",
        "Cai & Wang, NAACL 2018",
    ),
    "r-gcn": Model(
        _on_graph("rgcn-basis", "distmult"),
        "R-GCN with basis matrices, and DistMult",
        "Schlichtkrull et al., ESWC 2018",
    ),
    "vr-gcn": Model(_on_graph("vrgcn", "distmult"), "VR-GCN, and DistMult", "Ye et al., IJCAI 2019"),
    "d-gcn": Model(_on_graph("dgcn", "conve"), "Directed GCN, and ConvE", "Marcheggiani & Titov, EMNLP 2017"),
    "w-gcn": Model(_on_graph("wgcn", "conve"), "Weighted GCN, and ConvE", "Shang et al., AAAI 2019"),
    "gcn": Model(_on_graph("gcn", "conve"), "Kipf-GCN, and ConvE", "Kipf & Welling, ICLR 2017"),
    "nbfnet": Model(
        _CONDITIONAL | {"encoder.statistics": "pna", "training.hidden_answers": 1},
        "NBFNet: four statistics of the messages, one hidden answer a query",
        "Zhu et al., NeurIPS 2021",
    ),
    "conditional": Model(
        _CONDITIONAL, "CompGCN conditioned on the query, for entities it never saw too", "Zhu et al., NeurIPS 2021"
    ),
    "compgcn": Model(
        {"encoder.name": "compgcn", "decoder.name": "conve"},
        "the paper's: CompGCN, and ConvE",
        "Vashishth et al., ICLR 2020",
    ),
}


# By the size of a graph

_SPEED = {False: 1e11, True: 7e13}  # operations a second that training without an encoder reaches on a CPU and a GPU
_WIDTHS = {False: (128, 256, 512), True: (256, 512, 1024, 2048)}
_WEIGHTS = (0.1, 0.03, 0.01, 0.003, 0.001)  # of N3 in a search
_SPARSE = 16  # facts per entity below which the weight rises further
MINUTES = 5.0  # of a search, where nobody bounds it


def factorisation(
    num_entities: int,
    facts: int,
    on_gpu: bool,
    seconds: float = 60 * MINUTES,
    candidates: int | None = None,
    epochs: int = _SHORT["training.epochs"],
) -> dict[str, Any]:
    """Return dimension, batch and weight of N3 for a decoder without an encoder; a third of the time trains it.

    The weight follows a rule chosen by hand on a few graphs of 100 to 41,000 entities: it rises with the number of
    entities, and where an entity has few facts to keep its vector in check. `candidates` are the entities that a fact
    is trained against, by default all.
    """
    each = 12 * facts * (candidates or num_entities) * epochs  # operations of a dimension: three products
    widths = _WIDTHS[on_gpu]
    width = max((one for one in widths if one * each <= seconds / 3 * _SPEED[on_gpu]), default=widths[0])
    weight = 0.0016 * num_entities / math.sqrt(max(facts, 1)) * max(1.0, _SPARSE * num_entities / max(facts, 1))
    return {
        "encoder.dims": (width,),
        "training.batch_size": min(max(2 * facts // 60, 100), 1000),  # on a small graph a step sees a part of it
        "training.regularisation": float(f"{min(max(weight, 0.001), 0.1):.2g}"),
    }


def scaled(name: str, num_entities: int, facts: int, on_gpu: bool) -> dict[str, Any]:
    """Return the settings of a named model that follow from the size of one's own graph."""
    if name not in ("complex", "complex-n3-rp", "distmult"):
        return {}
    chosen = factorisation(num_entities, facts, on_gpu)
    return chosen | ({"training.relation_prediction": 0.5} if name == "complex-n3-rp" else {})


_NEGATIVES = 512  # that a batch shares in a search on a CPU, where they are a quarter of the entities at most
_EPOCHS = 20  # short ones of the conditional model in a search on a CPU
_LEAST_QUERIES = 1000  # of an epoch; fewer teach the conditional model too little
_MOST_ENCODED = 2 * 10**8  # facts · entities up to which a search on a CPU tries CompGCN, whose steps encode them all


def _factors_on_cpu(num_entities: int, facts: int, seconds: float) -> dict[str, Any]:
    """Return the settings of a factorisation in a search on a CPU: small batches, which need fewer epochs."""
    batch = min(max(2 * facts // 240, 100), 1000)
    steps = 16 * 240  # of a whole training
    sampled = num_entities > 4 * _NEGATIVES
    epochs = min(max(steps * batch // max(2 * facts, 1), 8 if sampled else 16), _SHORT["training.epochs"])
    found: dict[str, Any] = {
        "training.batch_size": batch,
        "training.epochs": epochs,
        "training.evaluate_every": 4 if sampled else 2,  # ranking all entities takes long beside few negatives
        "training.patience": epochs,  # validation may gain once the rate falls
        "training.test_sample": 10_000,
    }
    if not sampled:
        return factorisation(num_entities, facts, False, seconds) | found
    found |= {
        "training.loss": "sampled-cross-entropy",
        "training.sampler": "shared",
        "training.negatives": _NEGATIVES,
    }
    return factorisation(num_entities, facts, False, seconds, _NEGATIVES, epochs) | found


def _conditional_in_time(queries: int, facts: int) -> dict[str, Any]:
    """Return short epochs of the conditional model on a CPU, with samples to measure it by.

    `queries` are those of an epoch that there is time for; more passes over the facts than the recipe's help no more.
    """
    return {
        "training.epochs": _EPOCHS,
        "training.epoch_size": min(queries, _CONDITIONAL["training.epochs"] * 2 * facts // _EPOCHS + 1),
        "training.batch_size": 16 if queries < 2000 else 32,
        "training.evaluate_every": 5,
        "training.valid_sample": min(queries, 2000),
        "training.test_sample": 2 * queries,
    }


class Candidate(NamedTuple):
    """Named settings to try.

    The first rung compares candidates of a kind, so that the only one of its kind joins in the second, where the best
    of each kind meet. A candidate that follows another has time left over alone, where that one leads.
    """

    name: str  # in tables
    settings: Mapping[str, Any]  # by dotted name
    kind: str = ""  # of the model
    after: str = ""  # the candidate that it follows, if any
    omitted: str = ""  # why not to try it; "" for those to try


def portfolio(
    num_entities: int,
    facts: int,
    seconds: float | None,
    on_gpu: bool,
    query_time: float = 1.0,
    bias: bool = False,
) -> list[Candidate]:
    """Return the candidates of a search on a graph, the more promising first.

    One that follows another differs a little from it, and is for time left over; none follows one that is left out.
    `query_time` is that of the conditional model on a CPU, see `nn.conditional.Pace`, and `bias` whether it has biases.
    """
    sample: dict[str, Any] = {"training.step": "recorded", "training.valid_sample": 2000}
    seldom = sample | {"training.evaluate_every": 4, "training.patience": 3}
    conditional: dict[str, Any] = {"encoder.name": "conditional", "training.valid_sample": 2000}
    size = num_entities, facts
    more: dict[str, dict[str, Any]] = {"wider": {"encoder.dims": (32,) * 5}, "deeper": {"encoder.dims": (16,) * 6}}
    few = slow = ""  # why to leave the conditional model and CompGCN out
    if on_gpu:
        usual = factorisation(*size, on_gpu, seconds or 60 * MINUTES) | seldom
        more = {"four statistics": {"encoder.statistics": "pna"}}
    else:
        usual = _factors_on_cpu(*size, seconds or 60 * MINUTES) | sample
        queries = max(round((seconds or 60 * MINUTES) * _RATE / (_EPOCHS * query_time)), 1)
        conditional |= _conditional_in_time(queries, facts) | {"encoder.bias": bias}
        few = _too_few(query_time, queries)
        if num_entities * facts > _MOST_ENCODED:
            slow = "its steps take too long on a CPU; --encoder compgcn trains it alone"

    def factors(name: str, weight: float, relations: float = 0.0, width: int = 1, after: str = "") -> Candidate:
        chosen = _alone(name.lower(), relation_prediction=relations) | _FACTORS | usual
        chosen |= {"training.regularisation": weight, "encoder.dims": (width * usual["encoder.dims"][0],)}
        label = f"{name}, N3 {weight:g}" + ", relation prediction" * bool(relations) + ", wider" * (width > 1)
        return Candidate(label, chosen, "factorisation", after)

    first, *rest = sorted(_WEIGHTS, key=lambda weight: abs(math.log(weight / usual["training.regularisation"])))[:4]
    grid = [("ComplEx", first, 0.0), ("ComplEx", first, 0.5), *(("ComplEx", weight, 0.0) for weight in rest)]
    grid.append(("DistMult", first, 0.0))
    found = [factors(*one) for one in grid]
    for one in grid:
        label, (name, weight, relations) = factors(*one).name, one
        found.append(factors(*one, width=2, after=label))
        if (name, weight, 0.5 - relations) not in grid:
            found.append(factors(name, weight, 0.5 - relations, after=label))
        found += [factors(name, float(f"{x * weight:.2g}"), relations, after=label) for x in (0.6, 1.7)]
    found.insert(1, Candidate("CompGCN", seldom, "encoder", omitted=slow))
    found.insert(0, Candidate("conditional", conditional, "conditional", omitted=few))
    if not slow:
        found.append(Candidate("CompGCN, wider", seldom | {"encoder.dims": (200, 200)}, "encoder", "CompGCN"))
    if not few:
        found += [
            Candidate(f"conditional, {how}", conditional | other, "conditional", "conditional")
            for how, other in more.items()
        ]
    return found


def _too_few(query_time: float, queries: int) -> str:
    """Return why the queries of an epoch teach the conditional model too little, and in how many minutes they do."""
    if queries >= _LEAST_QUERIES:
        return ""
    minutes = math.ceil(_EPOCHS * _LEAST_QUERIES * query_time / _RATE / 60)
    return f"there is time for {queries:,} of {_LEAST_QUERIES:,} queries an epoch; give it --minutes {minutes} or a GPU"


def node_portfolio(inputs: Sequence[str], *, fitted: bool) -> list[Candidate]:
    """Return the candidates for labelled nodes, the more promising first.

    Args:
        inputs: the initial vectors that the data allow.
        fitted: whether the baselines with a support vector machine are installed.
    """
    two, sums = {"encoder.dims": (32, 32, 32)}, {"encoder.norm": "none"}
    learned = {"encoder.input": "learned", "training.weight_decay": 0.0, "training.epochs": 60}  # for every node
    mult, half = learned | {"encoder.composition": "mult"}, {"encoder.hidden_dropout": 0.5}
    rgcn = learned | half | {"encoder.name": "rgcn", "encoder.dims": (16, 16, 16), "training.weight_decay": 0.001}
    slow = {"training.lr": 0.003, "training.epochs": 120}
    # Types tell more than one vector for all.
    given = [name for name in ("features", "types", "literals") if name in inputs] or ["shared"]
    found: dict[str, dict[str, Any]] = {  # first one of every sort
        f"sub, {given[0]}": {"encoder.input": given[0]},
        "mult, 2 layers, sums, dropout, learned": mult | two | sums | half | slow,
        "R-GCN, 2 layers, sums, learned": rgcn | sums,
        "R-GCN, 2 layers, learned": rgcn,
        "facts": {"classifier.baseline": "facts"},
        "mult, 3 layers, sums, learned": mult | sums | {"encoder.dims": (32, 32, 32, 32)},
        **({"feat": {"classifier.baseline": "feat"}} if fitted else {}),
        "corr, 2 layers, sums, learned": learned | {"encoder.composition": "corr"} | two | sums,
        "mult, learned": mult,
        f"sub, 2 layers, {given[0]}": {"encoder.input": given[0]} | two,
        "mult, 2 layers, sums, learned": mult | two | sums | {"encoder.dropout": 0.3},
        **({"wl": {"classifier.baseline": "wl"}} if fitted else {}),
        "mult, sums, learned": mult | sums,
        "sub, 2 layers, sums, learned": learned | two | sums,
        **{f"sub, {name}": {"encoder.input": name} for name in given[1:]},
    }
    return [Candidate(name, settings) for name, settings in found.items()]


def model(name: str) -> Model:
    return pick("model", name, MODELS, listed=len(MODELS))


def known_as(name: str | None, config: Config) -> str | None:
    """Return the name of a model if a config has its encoder and its decoder."""
    parts = {"encoder.name": config.encoder.name, "decoder.name": config.decoder.name}
    own = MODELS[name].settings if name is not None else {}
    return name if all(own.get(path, chosen) == chosen for path, chosen in parts.items()) else None


def beneath(system: Model, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a data set's recipe that holds for a model: the budget, and the settings of parts they share.

    The training of a recipe holds only where both encoder and decoder are shared.
    """
    theirs, ours = configure(Config(), recipe), configure(Config(), system.settings)
    shared = {s for s in ("encoder", "decoder") if getattr(theirs, s).name == getattr(ours, s).name}
    if len(shared) == 2:
        shared.add("training")
    # The data decide how long to train as much as the model does.
    return {key: recipe[key] for key in recipe if key in BUDGET or key.partition(".")[0] in shared}
