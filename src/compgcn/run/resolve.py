"""From the settings that a user gives to a whole config: recipes beneath them, names checked, gaps filled."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from compgcn import processes
from compgcn.config import PATHS, Config, Decoder, Training, configure, names, searchable
from compgcn.config import Encoder as EncoderSettings
from compgcn.data import DATASETS, GraphCollection, KnowledgeGraph
from compgcn.data.columns import counted, quoted
from compgcn.data.datasets import LARGE_ENCODED, LARGE_RECIPE, OWN_RECIPES, large_batch
from compgcn.errors import InputError, must_be_known, unknown
from compgcn.nn.compose import COMPOSITIONS, LEARNED, Composition, find
from compgcn.nn.conditional import ConditionalCompGCN, find_pace, is_sparse, most_queries
from compgcn.nn.decoders import DECODERS
from compgcn.nn.decoders import Row as DecoderRow
from compgcn.nn.encoder import PRESETS, must_take, preset
from compgcn.nn.graph import NORMS
from compgcn.run.build import CONDITIONAL, TASKS, Labelled, baseline_of, build_graph, find_device, labelled_items
from compgcn.tasks.edge_masking import linked
from compgcn.tasks.inputs import INPUTS, Dataset, without_test
from compgcn.tasks.objectives import OBJECTIVES, REGULARISERS, rows_alone
from compgcn.tasks.sampling import SAMPLERS
from compgcn.train.folder import Folder
from compgcn.train.recipes import CONDITIONAL_ON_CPU, beneath, epochs_on_cpu
from compgcn.train.recipes import model as find_model
from compgcn.train.recipes import scaled as scaled_to
from compgcn.train.step import OPTIMISERS

# The settings that name a row of a registry.
NAMES: dict[str, Mapping[str, object]] = {
    "encoder.name": ChainMap[str, Any](PRESETS, {CONDITIONAL: None}),
    "encoder.composition": ChainMap[str, Any](LEARNED, COMPOSITIONS),
    "encoder.norm": NORMS,
    "decoder.name": ChainMap[str, Any](DECODERS, {"none": None}),
    "training.optimiser": OPTIMISERS,
    "training.loss": OBJECTIVES,
    "training.sampler": SAMPLERS,
    "training.regulariser": ChainMap[str, Any](REGULARISERS, {"none": None}),
}

_STEP_BYTES = 2**30  # bound on the scores of a step over all entities
_COPIES = 5  # a step holds so many copies of its scores at a time: logits, gradients and intermediate tensors
_WHOLE = 50  # a config that a run or a study wrote names more settings, used or not; a person names fewer
_CHOICE = {"training.loss", "training.batch_size"}  # a user who sets one of these chooses the way to train
_SAMPLES = ("training.valid_sample", "training.test_sample")  # the part of the recipe of large graphs that then stays
_OF_TRIPLES = (  # settings of training that take vectors of entities, draw negatives or choose a loss
    "encoder_lr label_smoothing smoothing_floor sampler negatives loss_margin regulariser regularisation "
    "relation_prediction loss"
)


class Resolved(NamedTuple):
    """A whole config, sentences that a user should read before training, and whether the graph counts as large."""

    config: Config
    notes: list[str]
    large: bool


def resolve(settings: Mapping[str, Any], data: Dataset, model: str | None = None) -> Resolved:
    """Put settings over those recommended for the data or a model of `compgcn.train.recipes`, and fill the gaps."""
    config, scaled = _recommended(settings, data, model)
    why = list[str]()
    if _conditional(config) and config.training.hide is None and isinstance(data, KnowledgeGraph):
        rule, *why = hiding(data)
        config = configure(config, {"training.hide": rule})
    config = expand(config, data)
    notes = [] if len(settings) > _WHOLE else unused_settings(config, settings)
    notes += [*_size_notes(scaled, data), *label_notes(config, labelled_items(data)), *filter(None, why)]
    by_device = _conditional(config) and model in (None, CONDITIONAL) and not {"dims", "encoder.dims"} & set(settings)
    if by_device and find_device(config.training.device).type == "cpu":
        layers, width = len(config.encoder.dims) - 1, config.encoder.dims[-1]
        notes.append(
            f"on a CPU the model has {layers} layers of {width} and trains for "
            f"{counted(config.training.epochs, 'epoch')}; its recipe for a GPU is larger; encoder.dims and "
            "training.epochs set other sizes"
        )
    return Resolved(config, notes, bool(scaled))


def as_begun(config: Config, given: Iterable[str], folder: Folder) -> Config:
    """Return a config with the batch size of the run in a folder, where the memory of a device chose it there."""
    by_memory = _conditional(config) and "training.batch_size" not in {PATHS[name] for name in given}
    if not by_memory or not folder.is_run:
        return config
    return configure(config, {"training.batch_size": folder.config().training.batch_size})


def recommended(settings: Mapping[str, Any], data: Dataset, model: str | None = None) -> Config:
    """Put settings over those recommended for the data or a model, without filling the gaps."""
    return _recommended(settings, data, model)[0]


def task_of(settings: Config, data: Dataset) -> str:
    """Return the task asked for, or the one that the data are made for."""
    if isinstance(data, GraphCollection):
        fitting = ["graph-classification"]
    else:
        fitting = ["link-prediction"] if data.labels is None else ["node-classification", "link-prediction"]
    if settings.task is None:
        return fitting[0]
    if settings.task not in fitting:
        raise InputError(f"{settings.task} needs {TASKS[settings.task].needs}, which '{data.name}' is not")
    return settings.task


# Recipes


def _recommended(settings: Mapping[str, Any], data: Dataset, model: str | None) -> tuple[Config, Mapping[str, Any]]:
    """Return the config, layer over layer, and the layer that a large graph of one's own gets."""
    if model is None and configure(Config(), settings).encoder.name == CONDITIONAL:
        model = CONDITIONAL  # no recipe of a data set fits it
    own = {} if model is None else find_model(model).settings
    asked = configure(base := configure(Config(), own), settings)
    if _conditional(asked) != _conditional(base):  # they share neither decoder nor training
        raise InputError(f"--model {model} and --encoder {asked.encoder.name} do not go together; leave either out")
    large = _large(asked, settings, data, model)
    config = configure(Config(), _recipe(asked, settings, data, model))  # of the data set, or for one's own files
    config = configure(config, own)  # of the model
    config = configure(config, _by_size(asked, settings, data, model))
    config = configure(config, _fitting_batch(config, settings, data))
    config = configure(config, large)
    return configure(config, settings), large


def _recipe(asked: Config, settings: Mapping[str, Any], data: Dataset, model: str | None) -> dict[str, Any]:
    """Return the part of the recipe of a data set, or of that for one's own files, that holds for the model asked for.

    A baseline's own recipe goes over it.
    """
    task = task_of(asked, data)
    recipe = dict(DATASETS[asked.data.source].recipe if _has_recipe(asked, task) else OWN_RECIPES[task])
    if model is not None:
        if task != "link-prediction":
            raise InputError(f"the model '{model}' is one of link prediction, not of {task}; choose an encoder instead")
        recipe = beneath(find_model(model), recipe)
    usual, left_out = configure(Config(), recipe), set[str]()
    if _own_composition(asked):
        left_out |= {"encoder.composition", "encoder.norm"}
    if configure(usual, settings).decoder.name != usual.decoder.name:  # the sizes are those of another decoder
        left_out |= {"decoder.filters", "decoder.kernel"}
    baseline = baseline_of(asked, task)
    if baseline is None:
        return {name: value for name, value in recipe.items() if name not in left_out}
    kept = ("classifier.",) if _fitted_once(asked, task) else ("classifier.", "training.")
    return {name: value for name, value in recipe.items() if name.startswith(kept)} | dict(baseline.recipe)


def _has_recipe(asked: Config, task: str) -> bool:
    return asked.data.source in DATASETS and DATASETS[asked.data.source].task == task


def _own_composition(config: Config) -> bool:
    return _conditional(config) or preset(config.encoder.name).composition is not None


def _by_size(asked: Config, settings: Mapping[str, Any], data: Dataset, model: str | None) -> dict[str, Any]:
    """Return the settings of a model that follow from the size of the graph and the device."""
    if model is None or not isinstance(data, KnowledgeGraph):
        return {}
    device = find_device(asked.training.device)
    if model != CONDITIONAL:
        size = data.num_entities, len(data.train)
        return {} if asked.data.source in DATASETS else scaled_to(model, *size, device.type == "cuda")
    if device.type != "cpu":
        return {}
    # Without biases, a CPU computes only the states that a query reaches; where it reaches most, it has them.
    whole = configure(configure(asked, {**CONDITIONAL_ON_CPU, "encoder.bias": False}), settings)
    e, phi, given = whole.encoder, find(whole.encoder.composition or "mult"), {PATHS[name] for name in settings}
    if {"training.epochs", "encoder.bias"} <= given or len(e.dims) < 2 or not isinstance(phi, Composition):
        return CONDITIONAL_ON_CPU  # `expand` refuses other sizes and compositions
    graph = build_graph(whole, data.train, data, device)
    pace = find_pace(graph, len(e.dims) - 1, sparse=is_sparse(phi, e.statistics, bias=e.bias))
    chosen = {"encoder.bias": not pace.sparse, "training.epochs": epochs_on_cpu(pace.time, pace.queries)}
    return CONDITIONAL_ON_CPU | chosen


def _fitting_batch(config: Config, settings: Mapping[str, Any], data: Dataset) -> dict[str, Any]:
    """Return the batch of a model conditioned on the query, as far as it fits into memory."""
    whole = configure(config, settings)
    if not _conditional(whole) or not isinstance(data, KnowledgeGraph):
        return {}
    dims, device = whole.encoder.dims, find_device(whole.training.device)
    most = int(processes.agreed(most_queries(data.num_entities, dims[-1], len(dims) - 1, device)))
    return {"training.batch_size": min(config.training.batch_size, most)}


def _large(asked: Config, settings: Mapping[str, Any], data: Dataset, model: str | None) -> dict[str, Any]:
    """Return the recipe for a large graph of one's own, without the parts that a user decides."""
    task = task_of(asked, data)
    if not isinstance(data, KnowledgeGraph) or task != "link-prediction" or _has_recipe(asked, task):
        return {}
    if step_bytes(data) <= _STEP_BYTES:
        return {}
    given = {PATHS[name] for name in settings}
    encoders = {name for name in given if name.startswith("encoder.")} - ({*LARGE_RECIPE} - {"encoder.name"})
    layers = "encoder.dims" in given and len(asked.encoder.dims) > 1
    if model is not None or given & _CHOICE:
        recipe = {name: LARGE_RECIPE[name] for name in _SAMPLES}
    elif asked.encoder.name != "none" and (encoders or layers or data.node_features is not None):
        recipe = {**LARGE_ENCODED, "training.batch_size": large_batch(len(data.train))}
    else:
        recipe = LARGE_RECIPE
    if _own_composition(asked):
        given.add("encoder.composition")
    return {name: value for name, value in recipe.items() if name not in given}


def step_bytes(data: KnowledgeGraph) -> int:
    """Estimate the bytes that the scores of a step over all entities take with the recipe for one's own files."""
    batch: int = OWN_RECIPES["link-prediction"]["training.batch_size"]
    return _COPIES * 4 * batch * data.num_entities


def _size_notes(large: Mapping[str, Any], data: Dataset) -> list[str]:
    if not large or not isinstance(data, KnowledgeGraph):
        return []
    notes = []
    how = ", ".join(f"{name}={value}" for name, value in large.items() if name in _CHOICE)
    if how:
        notes.append(
            f"a step that scores all {data.num_entities:,} entities would take about {step_bytes(data) / 2**30:.1f} "
            f"GiB, so that negatives are drawn instead: {how}; give either to train in another way"
        )
    if large.get("encoder.name") == "none":
        notes.append("the model has no encoder, which passes over the whole graph in every step; --encoder adds one")
    chooses, ends = (large.get(f"training.{name}") or 0 for name in ("valid_sample", "test_sample"))
    if 0 < chooses < len(data.valid):
        notes.append(f"{chooses:,} of {len(data.valid):,} validation triples choose the epoch (training.valid_sample)")
    if 0 < ends < max(len(data.valid), len(data.test)):
        notes.append(
            f"the metrics at the end are of {ends:,} triples of each split, drawn at random (training.test_sample); "
            "compgcn evaluate ranks all"
        )
    return notes


# Gaps


def expand(config: Config, data: Dataset) -> Config:
    """Fill in what a preset, a decoder or the data decide, and refuse unknown names."""
    task = task_of(config, data)
    _must_be_known(config)
    baseline_of(config, task)  # refuses an unknown name
    fingerprint = must_match(config.fingerprint, data)
    if _conditional(config):
        return configure(config, {"task": task, "fingerprint": fingerprint, **_of_conditional(config, data, task)})
    own = _of_links(config) if task == "link-prediction" else _of_classes(config, task)
    if config.classifier.baseline is None:
        own |= _of_encoder(config, data, task)
    else:
        own = _of_baseline(config, data, task, own)
    return configure(config, {"task": task, "fingerprint": fingerprint, **own})


def must_match(wanted: str | None, data: Dataset) -> str:
    """Return the fingerprint of the data; refuse data other than those that a config was written for."""
    fingerprint = data.fingerprint()
    if wanted not in (None, fingerprint):
        raise InputError(
            f"the data are not those the config was written for: their fingerprint is {fingerprint}, not {wanted}; "
            "leave it out to train on them anyway"
        )
    return fingerprint


def trial_inputs(settings: Mapping[str, Any], data: Dataset) -> tuple[dict[str, Any], Dataset]:
    """Return the settings and the data of trials, which never see test; refuse data other than the settings' own."""
    if "fingerprint" in settings:
        must_match(settings["fingerprint"], data)
    return {name: value for name, value in settings.items() if name != "fingerprint"}, without_test(data)


def _must_be_known(config: Config) -> None:
    chosen = names(config.model_dump())
    for path, table in NAMES.items():
        if chosen[path] is not None and chosen[path] not in table:
            section, _, key = path.partition(".")
            raise unknown(section if key == "name" else key, chosen[path], table)


def _of_baseline(config: Config, data: Dataset, task: str, own: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that a baseline leaves and those that the data decide; refuse settings it does not use."""
    from compgcn.baselines import must_fit

    baseline = baseline_of(config, task)
    assert baseline is not None
    must_fit(baseline, config)
    if _fitted_once(config, task):
        return {"classifier.protocol": own["classifier.protocol"]}
    chosen = _input(config, data, task)
    start = INPUTS[chosen].start(data)
    inputs = start.size if start.features is None else start.features.shape[1]
    return {"encoder.input": chosen, "encoder.dims": (inputs, *config.encoder.dims[1:]), **own}


def _of_links(config: Config) -> dict[str, Any]:
    """Return the settings that the decoder decides."""
    d = config.decoder
    if config.classifier.candidates:
        raise InputError("link prediction has no candidates to choose among; search for settings with compgcn tune")
    if d.name == "none":
        raise InputError(f"the encoder '{config.encoder.name}' needs a decoder; name one, such as --decoder distmult")
    row = DECODERS[d.name]
    if config.encoder.tie_inverse:
        _must_tie(config.encoder.name, d.name, row)
    step = config.training.step
    if config.encoder.fanout:
        _must_sample(config)
        step = "eager"  # batches differ in shape
    elif step != "eager" and config.encoder.name == "none" and rows_alone(config.training):
        step = "recorded"  # the compiler takes no gradients by rows
    return {
        "decoder.entity_bias": row.entity_bias if d.entity_bias is None else d.entity_bias,
        "decoder.filters": d.filters or row.settings.filters,
        "decoder.kernel": d.kernel or row.settings.kernel,
        "training.step": step,
    }


def _must_sample(config: Config) -> None:
    """Refuse sampled messages where the loss asks for all entities."""
    e, training = config.encoder, config.training
    layers = 0 if e.name == "none" else len(e.dims) - 1
    if len(e.fanout) != layers:
        raise InputError(f"encoder.fanout = {list(e.fanout)} should have one number for each of the {layers} layers")
    if not OBJECTIVES[training.loss].samples:
        known = ", ".join(name for name, one in OBJECTIVES.items() if one.samples)
        raise InputError(
            f"the loss '{training.loss}' scores all entities, and encoder.fanout encodes those of a batch; take a loss "
            f"with negatives: {known}"
        )


def _of_conditional(config: Config, data: Dataset, task: str) -> dict[str, Any]:
    """Return the settings that the data decide for a model conditioned on the query; refuse parts it does not have."""
    e, d = config.encoder, config.decoder
    if task != "link-prediction" or not isinstance(data, KnowledgeGraph):
        raise InputError(f"the encoder '{CONDITIONAL}' predicts links; choose another for {task}")
    if d.name not in ("none", Decoder().name):
        raise InputError(f"the encoder '{CONDITIONAL}' scores by itself; leave the decoder '{d.name}' out")
    if len(e.dims) < 2 or len(set(e.dims)) > 1:
        raise InputError(
            f"the encoder '{CONDITIONAL}' takes one width, once for the input and once for each layer, such as "
            f"encoder.dims = [32, 32, 32] for two layers, not {list(e.dims)}"
        )
    composition = e.composition or "mult"
    with torch.random.fork_rng(devices=[]):  # leaves the caller's random numbers alone
        ConditionalCompGCN(1, e.dims[0], 1, composition, e.statistics)  # refuses what does not fit
    if config.training.loss not in (Training().loss, "cross-entropy"):
        raise InputError(f"the encoder '{CONDITIONAL}' is trained by cross-entropy; leave '{config.training.loss}' out")
    return {
        "encoder.composition": composition,
        "decoder.name": "none",
        "training.loss": "cross-entropy",
        "training.hide": config.training.hide or hiding(data)[0],
    }


def hiding(data: KnowledgeGraph) -> tuple[str, str]:
    """Choose the rule for the other edges between the entities of a hidden fact; return it and a sentence, if needed.

    Training should look like validation: where validation asks about entities that no fact joins, far more often than
    training does, all edges of a hidden fact's pair go with it.
    """
    train = torch.from_numpy(data.train)
    valid, usual = linked(torch.from_numpy(data.valid), train), linked(train, train)
    if not valid and not usual:
        return "facts", ""  # both rules hide the same
    rule, what = "facts", "only the hidden fact itself leaves the graph"
    if len(data.valid) and 2 * valid < usual:
        rule, what = "pairs", "all edges between its two entities leave the graph with a hidden fact"
    shares = f"{valid:.0%} of validation and of {usual:.0%} of training facts"
    why = f"another training fact joins the entities of {shares}" if len(data.valid) else "no validation facts decide"
    return rule, f"{what} (training.hide={rule}): {why}"


def _must_tie(encoder: str, decoder: str, row: DecoderRow) -> None:
    """Refuse tied inverses that the decoder could not score as their originals read backwards."""
    if row.backwards is None:
        raise InputError(f"decoder '{decoder}' reads no triple backwards; leave encoder.tie_inverse out")
    z = torch.arange(1.0, 5.0)
    of_sign = any(torch.equal(row.backwards(z), sign * z) for sign in (1, -1))  # which every linear map keeps
    if not of_sign and preset(encoder).relations == "vectors":
        raise InputError(
            f"encoder '{encoder}' maps the vectors of relations, so that inverses no longer are what decoder "
            f"'{decoder}' reads backwards; leave encoder.tie_inverse out"
        )


def _of_classes(config: Config, task: str) -> dict[str, Any]:
    """Return the settings that a task of classification decides."""
    protocols = TASKS[task].protocols
    protocol = config.classifier.protocol or protocols[0]
    must_be_known(f"protocol for {task}", protocol, protocols)
    if config.classifier.candidates and protocol != "nested":
        raise InputError(
            f"the protocol '{protocol}' chooses among no candidates; take --protocol nested, or compgcn tune before"
        )
    return {"classifier.protocol": protocol, "training.loss": "cross-entropy"}


def _of_encoder(config: Config, data: Dataset, task: str) -> dict[str, Any]:
    """Return the settings that the preset of an encoder and the data decide."""
    e, row = config.encoder, preset(config.encoder.name)
    composition = e.composition or row.composition or "corr"
    phi = find(composition)
    chosen = _input(config, data, task)
    dims = _dims(e, data, chosen)
    must_take(e.name, e.composition, e.bases or 0, dims)
    if isinstance(phi, Composition):
        for dim in dims[:-1]:
            phi(torch.zeros(1, dim), torch.zeros(1, dim))  # not every composition takes every dimension
    return {
        "encoder.input": chosen,
        "encoder.composition": composition,
        "encoder.norm": e.norm or row.norm,
        "encoder.dims": dims,
        "encoder.bases": e.bases or row.bases or 0,
    }


def _input(config: Config, data: Dataset, task: str) -> str:
    chosen, inputs = config.encoder.input, TASKS[task].inputs
    if chosen is None:
        return next(name for name in inputs if INPUTS[name].there(data))
    must_be_known(f"encoder.input for {task}", chosen, inputs)
    return chosen


def _dims(encoder: EncoderSettings, data: Dataset, chosen: str) -> tuple[int, ...]:
    """Return the dimensions in use: given features decide the first, and without layers there is only one."""
    dims = encoder.dims[-1:] if encoder.name == "none" else encoder.dims
    relations = getattr(data, "relation_features", None) if preset(encoder.name).relations == "vectors" else None
    nodes = INPUTS[chosen].start(data).features if chosen in ("features", "literals") else None
    given = [table for table in (nodes, relations) if table is not None]
    return (given[0].shape[1], *dims[1:]) if given else dims


def candidates(config: Config, data: Dataset) -> list[Config]:
    """Return the configs that a nested run chooses among: its own with each of `classifier.candidates`."""
    found = []
    for one in config.classifier.candidates:
        where = f"classifier.candidates: {one}: "
        settings = {searchable(name, where): value for name, value in one.items()}
        found.append(expand(configure(config, settings, where), data))
    return found or [config]


# Labels


def must_suffice(config: Config, data: Dataset) -> None:
    """Refuse a protocol that would stop half-way: too few items for its folds, no epoch to choose, a single class."""
    c, items = config.classifier, labelled_items(data)
    if c.protocol is None:
        return
    pool = items.splits["train"] if c.protocol == "holdout" else items.pool
    if not len(pool):
        raise InputError("there is no labelled item to train on; mark some with the split 'train'")
    present = np.unique(items.targets[pool])
    if len(present) == 1:
        raise InputError(f"all labels to train on are of one class, '{items.classes[present[0]]}'; give labels of two")
    once = _fitted_once(config, config.task)
    if c.protocol == "holdout":
        if not once:
            _must_validate(config, items)
        return
    if not once and not all(one.training.epochs for one in candidates(config, data)):
        raise InputError("training.epochs is 0, and this protocol chooses the number of epochs; allow at least one")
    dealt = [("folds", c.folds, len(pool))]
    if c.protocol == "nested":
        dealt.append(("inner_folds", c.inner_folds, len(pool) - -(-len(pool) // c.folds)))  # of a training part
    for name, k, examples in dealt:
        if examples < k:
            what = f"{counted(examples, 'example')} cannot be dealt over {k} folds"
            raise InputError(f"{what}; give more labels, or lower classifier.{name}, which trains one model")


def label_notes(config: Config, items: Labelled) -> list[str]:
    """Return the notes on labels that are missing or rare."""
    protocol = config.classifier.protocol
    if protocol is None or not len(pool := items.pool):
        return []
    notes = []
    unchosen = protocol == "holdout" and not len(items.splits["valid"]) and not config.data.valid_fraction
    if unchosen and not _fitted_once(config, config.task):
        notes.append("there are no validation labels to choose the epoch by, so the last one is kept")
    counts = dict(zip(items.classes, np.bincount(items.targets[pool], minlength=len(items.classes)), strict=True))
    if unseen := [name for name, count in counts.items() if not count]:
        notes.append(f"{counted(len(unseen), 'class')} without a training label to learn it from: {quoted(unseen)}")
    folds = config.classifier.folds
    rare = [name for name, count in counts.items() if 0 < count < folds]
    if rare and protocol != "holdout":
        what = f"{counted(len(rare), 'class')} with fewer training labels than the {folds} folds"
        notes.append(f"{what}, missing from some of them: {quoted(rare)}")
    return notes


def _fitted_once(config: Config, task: str | None) -> bool:
    """Return whether a baseline is fitted without epochs, as those of nodes are; those of graphs are networks."""
    return task == "node-classification" and config.classifier.baseline is not None


def _must_validate(config: Config, items: Labelled) -> None:
    """Refuse to draw validation labels from so few that none is drawn."""
    fraction, labels = config.data.valid_fraction, counted(len(items.splits["train"]), "training label")
    if fraction and not len(items.validation(config.data)[1]):
        raise InputError(
            f"no validation label can be drawn from {labels}, so nothing would choose the epoch; take --protocol "
            f"refit, raise data.valid_fraction = {fraction}, or set it to 0"
        )


# Settings without effect


class Rule(NamedTuple):
    """Settings, the configs that use them, and why others do not, a text to format with the config."""

    names: frozenset[str]
    used: Callable[[Config], bool]
    why: str


def _rule(listed: str, used: Callable[[Config], bool], why: str) -> Rule:
    section, _, rest = listed.partition(".")
    return Rule(frozenset(f"{section}.{name}" for name in rest.split()), used, why)


def _samples(config: Config) -> bool:
    return OBJECTIVES[config.training.loss].samples


def _conditional(config: Config) -> bool:
    return config.encoder.name == CONDITIONAL


_LOSS, _DECODER = "the loss is '{0.training.loss}'", "the decoder '{0.decoder.name}'"
_LINKS = (
    Rule(  # a model conditioned on the query has few parts
        frozenset(
            {f"encoder.{name}" for name in EncoderSettings.model_fields}
            - {f"encoder.{name}" for name in ("name", "composition", "dims", "bias", "statistics", "graph")}
            | {f"decoder.{name}" for name in Decoder.model_fields}
            | {f"training.{name}" for name in _OF_TRIPLES.split()}
        ),
        lambda c: not _conditional(c),
        "the encoder '{0.encoder.name}' has no part that takes it",
    ),
    Rule(
        frozenset({"encoder.statistics", "training.hidden_answers", "training.hide"}),
        _conditional,
        f"only the encoder '{CONDITIONAL}' takes it",
    ),
    _rule(
        "encoder.norm flow bases dropout loop_dropout hidden_dropout bias batch_norm activation self_loop update_loop "
        "graph fanout",
        lambda c: len(c.encoder.dims) > 1,
        "the encoder '{0.encoder.name}' has no layer",
    ),
    _rule("decoder.margin margin_decay", lambda c: DECODERS[c.decoder.name].margin, f"{_DECODER} has no margin"),
    _rule(
        "decoder.filters kernel input_dropout feature_dropout hidden_dropout",
        lambda c: not isinstance(DECODERS[c.decoder.name].query, str),
        f"{_DECODER} has no convolution",
    ),
    _rule("training.negatives sampler", _samples, _LOSS),
    _rule("training.loss_margin", lambda c: c.training.loss == "margin", _LOSS),
    _rule("training.label_smoothing", lambda c: not _samples(c), _LOSS),
    _rule("training.smoothing_floor", lambda c: c.training.loss == "bce", _LOSS),
    _rule("training.regularisation", lambda c: c.training.regulariser != "none", "there is no regulariser"),
)
_CONSTANT = "the schedule is 'constant'"
_ANY = (_rule("training.schedule_start schedule_floor", lambda c: c.training.schedule != "constant", _CONSTANT),)


def unused_settings(config: Config, given: Iterable[str]) -> list[str]:
    """Return a sentence for each given setting, by any of its names, that differs from its default without effect."""
    links = config.task == "link-prediction"
    rules = (*_ANY, *_LINKS) if links else _ANY
    found, usual, chosen = [], names(Config().model_dump()), names(config.model_dump())
    for name in (path for path in (PATHS[name] for name in given) if chosen[path] != usual[path]):
        why = next((rule.why for rule in rules if name in rule.names and not rule.used(config)), None)
        if name.startswith("decoder.") and not links:
            why = "{0.task} has no decoder"
        found += [] if why is None else [f"{name} has no effect: {why.format(config)}"]
    return found
