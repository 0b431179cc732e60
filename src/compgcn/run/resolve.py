"""From the settings that a user gives to a whole config: recipes beneath them, names checked, gaps filled."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from compgcn import processes
from compgcn.config import PATHS, Config, Decoder, Training, configure, names, searchable
from compgcn.config import Encoder as EncoderSettings
from compgcn.data import (
    DATASETS,
    LARGE_ENCODED,
    LARGE_RECIPE,
    OWN_RECIPES,
    GraphCollection,
    KnowledgeGraph,
    large_batch,
)
from compgcn.data.columns import Numbers, counted, quoted
from compgcn.data.labels import deal
from compgcn.errors import InputError, unknown
from compgcn.nn.compose import COMPOSITIONS, LEARNED, Composition, find
from compgcn.nn.conditional import ConditionalCompGCN, most_queries
from compgcn.nn.decoders import DECODERS
from compgcn.nn.decoders import Row as DecoderRow
from compgcn.nn.encoder import PRESETS, preset
from compgcn.nn.graph import NORMS
from compgcn.run.build import CONDITIONAL, TASKS, Labelled, baseline_of, find_device, labelled_items
from compgcn.tasks.edge_masking import linked
from compgcn.tasks.inputs import INPUTS, Dataset
from compgcn.tasks.objectives import OBJECTIVES, REGULARISERS, rows_alone
from compgcn.tasks.sampling import SAMPLERS
from compgcn.train.folder import Folder
from compgcn.train.recipes import beneath, conditional_on_cpu
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
_CHOICE = {"training.loss", "training.batch_size"}  # a user who sets one of these chooses the way to train
_SAMPLES = {"training.valid_sample", "training.test_sample"}
_HOW = {*_CHOICE, *LARGE_RECIPE, *LARGE_ENCODED} - _SAMPLES  # the recipe of large graphs, which that choice replaces
_OF_TRIPLES = (  # settings of training that take vectors of entities or draw negatives
    *("encoder_lr", "label_smoothing", "smoothing_floor", "sampler", "negatives", "loss_margin"),
    *("regulariser", "regularisation", "relation_prediction", "remove_batch_edges"),
)


class Resolved(NamedTuple):
    """A whole config, sentences that a user should read before training, and whether the graph counts as large."""

    config: Config
    notes: list[str]
    large: bool


def resolve(settings: Mapping[str, Any], data: Dataset, model: str | None = None) -> Resolved:
    """Put settings over those recommended for the data or a model of `compgcn.train.recipes`, and fill the gaps."""
    config, scaled = _recommended(settings, data, model)
    why = ""
    if _conditional(config) and config.training.hide is None and isinstance(data, KnowledgeGraph):
        rule, why = hiding(data)
        config = configure(config, {"training.hide": rule})
    config = expand(config, data)
    notes = [*unused_settings(config, settings), *_size_notes(scaled, data), *label_notes(config, labelled_items(data))]
    if why:
        notes.append(why)
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


def _recommended(settings: Mapping[str, Any], data: Dataset, model: str | None) -> tuple[Config, dict[str, Any]]:
    """Return the config, and the settings of it that a large graph of one's own gets.

    From the bottom: the defaults, the recipe of the data set or that for one's own files, the recipe for large graphs,
    and the settings. A model comes before the settings and drops what the recipe says of other models; a baseline's
    recipe comes before the data set's, of which it takes how to classify and, unless it is fitted once, how to train.
    """
    if model is None and configure(Config(), settings).encoder.name == CONDITIONAL:
        model = CONDITIONAL  # no recipe of a data set fits it
    system = None if model is None else find_model(model)
    own: Mapping[str, Any] = {} if system is None else system.settings
    asked = configure(configure(Config(), own), settings)
    task = task_of(asked, data)
    known = DATASETS.get(asked.data.source)
    has_recipe = known is not None and known.task == task
    recipe = dict(known.recipe if known is not None and has_recipe else OWN_RECIPES[task])
    if system is not None:
        if task != "link-prediction":
            raise InputError(f"the model '{model}' is one of link prediction, not of {task}; choose an encoder instead")
        recipe = beneath(system, recipe)
    if _own_composition(asked):  # an encoder that has its own, and its usual norm
        recipe = {key: recipe[key] for key in recipe if key not in ("encoder.composition", "encoder.norm")}
    baseline = baseline_of(asked, task)
    if baseline is not None:
        kept = ("classifier.",) if _fitted_once(asked, task) else ("classifier.", "training.")
        recipe = {key: value for key, value in recipe.items() if key.startswith(kept)}
        recipe |= baseline.recipe
    usual = configure(configure(Config(), recipe), own)
    whole = configure(usual, settings)
    if whole.decoder.name != usual.decoder.name:  # the recipe's sizes are those of another decoder
        usual = configure(usual, {"decoder.filters": None, "decoder.kernel": None})
    if model is not None and known is None and isinstance(data, KnowledgeGraph):
        on_gpu = find_device(whole.training.device).type == "cuda"
        usual = configure(usual, scaled_to(model, data.num_entities, len(data.train), on_gpu))
    if _conditional(whole) and isinstance(data, KnowledgeGraph):
        if model == CONDITIONAL and find_device(whole.training.device).type == "cpu":
            usual = configure(usual, conditional_on_cpu(data.num_entities, len(data.train)))
        whole = configure(usual, settings)
        dims, device = whole.encoder.dims, find_device(whole.training.device)
        most = processes.agreed(most_queries(data.num_entities, dims[-1], len(dims) - 1, device))
        usual = configure(usual, {"training.batch_size": min(usual.training.batch_size, int(most))})
    scaled: dict[str, Any] = {}
    if task == "link-prediction" and not has_recipe and step_bytes(data) > _STEP_BYTES:
        scaled = _scaled(settings, whole, data, model)
    return configure(configure(usual, scaled), settings), scaled


def _own_composition(config: Config) -> bool:
    return _conditional(config) or preset(config.encoder.name).composition is not None


def _scaled(settings: Mapping[str, Any], whole: Config, data: Dataset, model: str | None) -> dict[str, Any]:
    """Return the recipe for large graphs, without the parts that a user decides: see `_HOW`."""
    given = {PATHS[name] for name in settings}
    if model is not None or given & _CHOICE:
        given |= _HOW
    if _own_composition(whole):
        given.add("encoder.composition")
    recipe = LARGE_RECIPE
    if isinstance(data, KnowledgeGraph) and _encodes(given, whole, data):
        recipe = {**LARGE_ENCODED, "training.batch_size": large_batch(len(data.train))}
    return {name: value for name, value in recipe.items() if name not in given}


def _encodes(given: Iterable[str], config: Config, data: KnowledgeGraph) -> bool:
    """Return whether a user asks for an encoder, by a setting of its layers or by features for it to start from."""
    if config.encoder.name == "none":
        return False
    asked = {name for name in given if name.startswith("encoder.")} - {*LARGE_RECIPE} | {"encoder.name"} & {*given}
    layers = "encoder.dims" in given and len(config.encoder.dims) > 1
    return bool(asked) or layers or data.node_features is not None


def step_bytes(data: Dataset) -> int:
    """Estimate the bytes that the scores of a step over all entities take with the recipe for one's own files."""
    batch: int = OWN_RECIPES["link-prediction"]["training.batch_size"]
    return _COPIES * 4 * batch * data.num_entities if isinstance(data, KnowledgeGraph) else 0


def _size_notes(scaled: Mapping[str, Any], data: Dataset) -> list[str]:
    """Return the notes on a large graph."""
    if not scaled or not isinstance(data, KnowledgeGraph):
        return []
    notes = []
    how = ", ".join(f"{name}={value}" for name, value in scaled.items() if name in _CHOICE)
    if how:
        notes.append(
            f"a step that scores all {data.num_entities:,} entities would take about {step_bytes(data) / 2**30:.1f} "
            f"GiB, so that negatives are drawn instead: {how}; give either to train in another way"
        )
    if scaled.get("encoder.name") == "none":
        notes.append("the model has no encoder, which passes over the whole graph in every step; --encoder adds one")
    chooses, ends = (scaled.get(f"training.{name}") or 0 for name in ("valid_sample", "test_sample"))
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
    fingerprint = data.fingerprint()
    if config.fingerprint not in (None, fingerprint):
        raise InputError(
            f"the data are not those the config was written for: their fingerprint is {fingerprint}, not "
            f"{config.fingerprint}; leave it out to train on them anyway"
        )
    if _conditional(config):
        return configure(config, {"task": task, "fingerprint": fingerprint, **_of_conditional(config, data, task)})
    own = _of_links(config) if task == "link-prediction" else _of_classes(config, task)
    if config.classifier.baseline is None:
        own |= _of_encoder(config, data, task)
    else:
        own = _of_baseline(config, data, task, own)
    return configure(config, {"task": task, "fingerprint": fingerprint, **own})


def _must_be_known(config: Config) -> None:
    chosen = names(config.model_dump())
    for path, table in NAMES.items():
        if chosen[path] is not None and chosen[path] not in table:
            section, _, key = path.partition(".")
            raise unknown(section if key == "name" else key, chosen[path], table)


def _of_baseline(config: Config, data: Dataset, task: str, own: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that a baseline leaves and those that the data decide; refuse settings it does not use."""
    from compgcn.baselines import FitOnce, find_baseline, must_fit

    baseline = find_baseline(config.classifier.baseline, task)
    assert baseline is not None
    must_fit(baseline, config)
    if isinstance(baseline.how, FitOnce):
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
        raise InputError(
            f"the encoder '{config.encoder.name}' needs a decoder: name one, such as --decoder distmult, or leave the "
            f"encoder to --model {CONDITIONAL}"
        )
    row = DECODERS[d.name]
    _must_sample(config)
    if config.encoder.tie_inverse:
        _must_tie(config.encoder.name, d.name, row)
    step = config.training.step
    if config.encoder.fanout:
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
    """Refuse sampled messages where the loss asks for all entities, or a batch for the edges it leaves out."""
    e, training = config.encoder, config.training
    layers = 0 if e.name == "none" else len(e.dims) - 1
    if not e.fanout:
        return
    if len(e.fanout) != layers:
        raise InputError(f"encoder.fanout = {list(e.fanout)} should have one number for each of the {layers} layers")
    if training.loss in OBJECTIVES and not OBJECTIVES[training.loss].samples:
        known = ", ".join(name for name, one in OBJECTIVES.items() if one.samples)
        raise InputError(
            f"the loss '{training.loss}' scores all entities, and encoder.fanout encodes those of a batch; take a loss "
            f"with negatives: {known}"
        )
    if training.remove_batch_edges:
        raise InputError("training.remove_batch_edges needs all messages; leave it out, or encoder.fanout")


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
    if protocol not in protocols:
        raise unknown(f"protocol for {task}", protocol, protocols)
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
    if row.composition not in (None, composition):
        raise InputError(f"encoder '{e.name}' has composition '{row.composition}'; leave composition out")
    if row.bases is None and e.bases:
        raise InputError(f"encoder '{e.name}' has no bases; leave encoder.bases out")
    chosen = _input(config, data, task)
    dims = _dims(e, data, chosen)
    if isinstance(phi, Composition):
        for dim in dims[:-1]:
            phi(torch.zeros(1, dim), torch.zeros(1, dim))  # not every composition takes every dimension
    if e.residual and len(dims) == 1:
        raise InputError("encoder.residual needs a layer whose vectors it adds; leave it out, or name two encoder.dims")
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
    if chosen not in inputs:
        raise unknown(f"encoder.input for {task}", chosen, inputs)
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


def must_suffice(config: Config, candidates: Sequence[Config], items: Labelled) -> None:
    """Refuse a protocol that would stop half-way: too few items for its folds, no epoch to choose, a single class."""
    protocol = config.classifier.protocol
    if protocol is None:
        return
    pool = items.splits["train"] if protocol == "holdout" else _pool(items)
    if not len(pool):
        raise InputError("there is no labelled item to train on; mark some with the split 'train'")
    present = np.unique(items.targets[pool])
    if len(present) == 1:
        raise InputError(f"all labels to train on are of one class, '{items.classes[present[0]]}'; give labels of two")
    once = _fitted_once(config, config.task or "")  # without epochs to choose
    if protocol == "holdout":
        if not once:
            _must_validate(config, items)
        return
    if not once and not all(one.training.epochs for one in candidates):
        raise InputError("training.epochs is 0, and this protocol chooses the number of epochs; allow at least one")
    k, n = config.classifier.folds, len(pool)
    _must_deal(n, k, "classifier.folds", "")
    if protocol == "nested":
        _must_deal(n - -(-n // k), config.classifier.inner_folds, "classifier.inner_folds", " left in a training part")


def label_notes(config: Config, items: Labelled) -> list[str]:
    """Return the notes on labels that are missing or rare."""
    protocol, pool = config.classifier.protocol, _pool(items)
    if protocol is None or not len(pool):
        return []
    notes = []
    unchosen = protocol == "holdout" and not len(items.splits["valid"]) and not config.data.valid_fraction
    if unchosen and not _fitted_once(config, config.task or ""):
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


def _pool(items: Labelled) -> Numbers:
    """Return all items that may be trained on and chosen by."""
    parts = [rows for split, rows in items.splits.items() if split != "test"]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _fitted_once(config: Config, task: str) -> bool:
    baseline = baseline_of(config, task)
    if baseline is None:
        return False
    from compgcn.baselines import FitOnce

    return isinstance(baseline.how, FitOnce)


def _must_deal(n: int, k: int, setting: str, which: str) -> None:
    if k > n:
        advice = f"set {setting} to {'2' if n == 2 else f'a number from 2 to {n}'}" if n > 1 else "give more labels"
        raise InputError(f"{counted(n, 'example')}{which} cannot be dealt over {k} folds; {advice}")


def _must_validate(config: Config, items: Labelled) -> None:
    """Refuse to draw validation labels from so few that none is drawn."""
    train, settings = items.splits["train"], config.data
    if len(items.splits["valid"]) or not settings.valid_fraction:
        return
    rows = np.column_stack((train, items.targets[train]))
    if not len(deal(rows, np.random.default_rng(settings.split_seed), settings.valid_fraction, 0.0)[1]):
        raise InputError(
            f"no validation label can be drawn from {counted(len(train), 'training label')}, so nothing would choose "
            f"the epoch; take --protocol refit, raise data.valid_fraction = {settings.valid_fraction}, or set it to 0"
        )


# Settings without effect


class Rule(NamedTuple):
    """Settings, the configs that use them, and why others do not."""

    names: frozenset[str]
    used: Callable[[Config], bool]
    why: Callable[[Config], str]


def _rule(listed: str, used: Callable[[Config], bool], why: Callable[[Config], str]) -> Rule:
    section, _, rest = listed.partition(".")
    return Rule(frozenset(f"{section}.{name}" for name in rest.split()), used, why)


def _loss(config: Config) -> str:
    return f"the loss is '{config.training.loss}'"


def _samples(config: Config) -> bool:
    return OBJECTIVES[config.training.loss].samples


def _conditional(config: Config) -> bool:
    return config.encoder.name == CONDITIONAL


_LINKS = (
    Rule(  # a model conditioned on the query has few parts
        frozenset(
            {f"encoder.{name}" for name in EncoderSettings.model_fields}
            - {"encoder.name", "encoder.composition", "encoder.dims", "encoder.statistics", "encoder.graph"}
            | {f"decoder.{name}" for name in Decoder.model_fields}
            | {f"training.{name}" for name in (*_OF_TRIPLES, "loss")}
        ),
        lambda config: not _conditional(config),
        lambda config: f"the encoder '{CONDITIONAL}' has no part that takes it",
    ),
    Rule(
        frozenset({"encoder.statistics", "training.hidden_answers", "training.hide"}),
        _conditional,
        lambda config: f"only the encoder '{CONDITIONAL}' takes it",
    ),
    _rule(
        "encoder.norm flow bases dropout loop_dropout hidden_dropout bias batch_norm activation self_loop update_loop "
        "graph fanout",
        lambda config: len(config.encoder.dims) > 1,
        lambda config: f"the encoder '{config.encoder.name}' has no layer",
    ),
    _rule(
        "decoder.margin margin_decay",
        lambda config: DECODERS[config.decoder.name].margin,
        lambda config: f"the decoder '{config.decoder.name}' has no margin",
    ),
    _rule(
        "decoder.filters kernel input_dropout feature_dropout hidden_dropout",
        lambda config: not isinstance(DECODERS[config.decoder.name].query, str),
        lambda config: f"the decoder '{config.decoder.name}' has no convolution",
    ),
    _rule("training.negatives sampler", _samples, _loss),
    _rule("training.loss_margin", lambda config: config.training.loss == "margin", _loss),
    _rule("training.label_smoothing", lambda config: not _samples(config), _loss),
    _rule("training.smoothing_floor", lambda config: config.training.loss == "bce", _loss),
    _rule(
        "training.regularisation",
        lambda config: config.training.regulariser != "none",
        lambda config: "there is no regulariser",
    ),
)
_ANY = (
    _rule(
        "training.schedule_start schedule_floor",
        lambda config: config.training.schedule != "constant",
        lambda config: "the schedule is 'constant'",
    ),
)


def unused_settings(config: Config, given: Iterable[str]) -> list[str]:
    """Return a sentence for each given setting, by any of its names, that differs from its default without effect."""
    usual, found = names(Config().model_dump()), []
    chosen = names(config.model_dump())
    for name in dict.fromkeys(PATHS[name] for name in given):
        if chosen[name] == usual[name]:
            continue
        if config.task != "link-prediction" and name.startswith("decoder."):
            found.append(f"{name} has no effect: {config.task} has no decoder")
        rules = (*_ANY, *_LINKS) if config.task == "link-prediction" else _ANY
        why = next((rule.why(config) for rule in rules if name in rule.names and not rule.used(config)), None)
        found += [] if why is None else [f"{name} has no effect: {why}"]
    return found
