"""From the settings that are given to a whole config."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from compgcn.baselines import FitOnce, find_baseline, must_be_installed
from compgcn.baselines.fitted import must_not_train
from compgcn.baselines.networks import must_be_used
from compgcn.config import PATHS, Config, configure, names, parse_settings, searchable
from compgcn.config import Encoder as EncoderSettings
from compgcn.data import DATASETS, LARGE_RECIPE, OWN_RECIPES, GraphCollection, KnowledgeGraph, large_batch
from compgcn.errors import InputError, unknown
from compgcn.nn.compose import Composition
from compgcn.nn.decoders import DECODERS
from compgcn.nn.encoder import preset
from compgcn.nn.graph import NORMS
from compgcn.run.build import TASKS, TaskRow, find_composition, protocol_of, task_of
from compgcn.tasks.inputs import INPUTS, Dataset
from compgcn.train.folder import Folder
from compgcn.train.recipes import beneath
from compgcn.train.recipes import model as find_model

_SAMPLED = ("margin", "self-adversarial", "sampled-cross-entropy")


class Rule(NamedTuple):
    """Settings of one kind, which configs they have a part in, and in words why they have none in others."""

    names: frozenset[str]
    used: Callable[[Config], bool]
    why: Callable[[Config], str]


def _rule(listed: str, used: Callable[[Config], bool], why: Callable[[Config], str]) -> Rule:
    section, _, rest = listed.partition(".")
    return Rule(frozenset(f"{section}.{name}" for name in rest.split()), used, why)


def _loss(config: Config) -> str:
    return f"the loss is '{config.training.loss}'"


_LAYERS = _rule(
    "encoder.norm flow bases dropout loop_dropout hidden_dropout bias batch_norm activation self_loop edge_dropout "
    "graph",
    lambda config: len(config.encoder.dims) > 1,
    lambda config: f"the encoder '{config.encoder.name}' has no layer",
)
_LINKS = (
    _LAYERS,
    _rule(
        "decoder.margin margin_decay margin_patience",
        lambda config: DECODERS[config.decoder.name].margin,
        lambda config: f"the decoder '{config.decoder.name}' has no margin",
    ),
    _rule(
        "decoder.filters kernel height input_dropout feature_dropout hidden_dropout",
        lambda config: not isinstance(DECODERS[config.decoder.name].query, str),
        lambda config: f"the decoder '{config.decoder.name}' has no convolution",
    ),
    _rule(
        "decoder.generator",
        lambda config: config.training.sampler == "kbgan",
        lambda config: f"the sampler is '{config.training.sampler}'",
    ),
    _rule("training.negatives sampler", lambda config: config.training.loss in _SAMPLED, _loss),
    _rule("training.loss_margin", lambda config: config.training.loss == "margin", _loss),
    _rule("training.temperature", lambda config: config.training.loss == "self-adversarial", _loss),
    _rule("training.label_smoothing", lambda config: config.training.loss not in _SAMPLED, _loss),
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


def idle(config: Config, given: Iterable[str]) -> list[str]:
    """A sentence for each setting of those given, by any of its names, that the config makes no use of.

    One that is given as what it would be anyway, as in the file of a whole run, is passed over.
    """
    usual, found = names(Config().model_dump()), []
    chosen = names(config.model_dump())
    for name in dict.fromkeys(PATHS[name] for name in given):
        if chosen[name] == usual[name]:
            continue
        if config.task != "link-prediction" and name.startswith("decoder."):
            found.append(f"{name} has no effect: {config.task} has no decoder")
        rules = (*_ANY, *_LINKS) if config.task == "link-prediction" else _ANY
        unused = (rule for rule in rules if name in rule.names and not rule.used(config))
        found += [f"{name} has no effect: {rule.why(config)}" for rule in unused]
    return found


_STEP_BYTES = 2**30  # that the scores of a step over all entities may take
_CHOICE = {"training.loss", "training.batch_size"}  # who names one of these has a way to train of their own ..
_HOW = {*_CHOICE, *LARGE_RECIPE} - {"training.valid_sample"}  # .. in place of all that large graphs are trained with
_COPIES = 5  # of its scores, 4 bytes each, that such a step holds at a time: logits, what is made of them, gradients


def recommended(settings: Mapping[str, Any], data: Dataset, model: str | None = None) -> Config:
    """The defaults, then what the data set's recipe (or that for one's own files) recommends, then the settings.

    With a model, a row of `MODELS`, its settings come before one's own, and what the recipe says of others is left out.
    A baseline's own recipe comes before the data set's, of which it takes how to classify and, unless it is fitted
    once, how to train. Over the recipe for one's own files goes that for large graphs, see `scaled`.
    """
    return configure(configure(_usual(settings, data, model), scaled(settings, data, model)), settings)


def scaled(settings: Mapping[str, Any], data: Dataset, model: str | None = None) -> dict[str, Any]:
    """What is recommended because a graph of one's own is large.

    How to train is left to who chooses a loss, a batch size or a model, and what chooses the epoch to who says so.
    """
    whole = configure(_usual(settings, data, model), settings)
    task, given = task_of(whole, data), {PATHS[name] for name in settings}
    if task != "link-prediction" or _has_recipe(whole, task) or step_bytes(data) <= _STEP_BYTES:
        return {}
    if model is not None or given & _CHOICE:
        given |= _HOW
    if preset(whole.encoder.name).composition is not None:
        given.add("encoder.composition")
    assert isinstance(data, KnowledgeGraph)
    recipe = {**LARGE_RECIPE, "training.batch_size": large_batch(len(data.train))}
    return {name: value for name, value in recipe.items() if name not in given}


def step_bytes(data: Dataset) -> int:
    """About what the scores of a step over all entities take with the recipe for one's own files."""
    batch: int = OWN_RECIPES["link-prediction"]["training.batch_size"]
    return _COPIES * 4 * batch * data.num_entities if isinstance(data, KnowledgeGraph) else 0


def of_size(settings: Mapping[str, Any], data: Dataset, model: str | None = None) -> list[str]:
    """That a graph is trained on, or judged, in another way because it is large, where that is so."""
    changed, notes = scaled(settings, data, model), []
    if not changed:
        return []
    assert isinstance(data, KnowledgeGraph)
    how = ", ".join(f"{name}={value}" for name, value in changed.items() if name in _CHOICE)
    if how:
        notes.append(
            f"a step that scores all {data.num_entities:,} entities would take about {step_bytes(data) / 2**30:.1f} "
            f"GiB, so that negatives are drawn instead: {how}; give either to train in another way"
        )
    sample = changed.get("training.valid_sample")
    if sample is not None and sample < len(data.valid):
        notes.append(
            f"the epoch is chosen by {sample:,} of {len(data.valid):,} validation triples (training.valid_sample); the "
            "metrics at the end are of all"
        )
    return notes


def _has_recipe(config: Config, task: str) -> bool:
    known = DATASETS.get(config.data.source)
    return known is not None and known.task == task


def _usual(settings: Mapping[str, Any], data: Dataset, model: str | None) -> Config:
    """What is beneath the settings, whatever the size of the data."""
    system = None if model is None else find_model(model)
    own: Mapping[str, Any] = {} if system is None else system.settings
    asked = configure(configure(Config(), own), settings)
    task = task_of(asked, data)
    recipe = dict(DATASETS[asked.data.source].recipe if _has_recipe(asked, task) else OWN_RECIPES[task])
    if system is not None:
        if task != "link-prediction":
            raise InputError(f"the model '{model}' is one of link prediction, not of {task}; choose an encoder instead")
        recipe = beneath(system, recipe)
    if preset(asked.encoder.name).composition is not None:  # an encoder that has its own, and its usual norm
        recipe = {key: recipe[key] for key in recipe if key not in ("encoder.composition", "encoder.norm")}
    baseline = find_baseline(asked.classifier.baseline, task)
    if baseline is not None:
        kept = ("classifier.",) if isinstance(baseline.how, FitOnce) else ("classifier.", "training.")
        recipe = {key: value for key, value in recipe.items() if key.startswith(kept)}
        recipe |= baseline.recipe
    usual = configure(configure(Config(), recipe), own)
    if configure(usual, settings).decoder.name != usual.decoder.name:  # the recipe's sizes are those of another one
        usual = configure(usual, {"decoder.filters": None, "decoder.kernel": None})
    return usual


def expand(config: Config, data: Dataset) -> Config:
    """Fill in what a preset, a decoder or the data decide, and refuse names that are none."""
    task = task_of(config, data)
    preset(config.encoder.name)  # a name that is none is refused before anything is read
    baseline = find_baseline(config.classifier.baseline, task)
    same = {"task": task, "data.fingerprint": _fingerprint(config, data)}
    if baseline is None:
        return configure(config, same | _of_encoder(config, data, TASKS[task]) | TASKS[task].complete(config, data))
    assert config.classifier.baseline is not None
    must_be_installed(config.classifier.baseline)
    if config.encoder.name != EncoderSettings().name:
        raise InputError(f"the baseline '{config.classifier.baseline}' takes the place of an encoder; name only one")
    if isinstance(baseline.how, FitOnce):
        must_not_train(config)
        return configure(config, {**same, "classifier.protocol": protocol_of(config, task)})
    must_be_used(config)
    own = _of_network(config, data, TASKS[task])
    return configure(config, same | own | TASKS[task].complete(config, data) | {"encoder.add_inverse": None})


def _of_network(config: Config, data: Dataset, row: TaskRow) -> dict[str, Any]:
    """What a baseline that is trained starts from."""
    chosen = _input(config, data, row)
    start = INPUTS[chosen].start(data)
    inputs = start.size if start.features is None else start.features.shape[1]
    return {"encoder.input": chosen, "encoder.dims": (inputs, *config.encoder.dims[1:])}


def _of_encoder(config: Config, data: Dataset, task: TaskRow) -> dict[str, Any]:
    """What the preset of an encoder and the data decide of it."""
    e, row = config.encoder, preset(config.encoder.name)
    if e.norm is not None and e.norm not in NORMS:
        raise unknown("norm", e.norm, NORMS)
    composition = e.composition or row.composition or "corr"
    phi = find_composition(composition)
    if row.composition not in (None, composition):
        raise InputError(f"encoder '{e.name}' has composition '{row.composition}'; leave composition out")
    if row.bases is None and e.bases:
        raise InputError(f"encoder '{e.name}' has no bases; leave encoder.bases out")
    chosen = _input(config, data, task)
    dims = _dims(e, data, chosen)
    if isinstance(phi, Composition):
        for dim in dims[:-1]:
            phi(torch.zeros(1, dim), torch.zeros(1, dim))  # not every one takes every dimension
    if e.residual and len(dims) == 1:
        raise InputError("encoder.residual needs a layer whose vectors it adds; leave it out, or name two encoder.dims")
    return {
        "encoder.input": chosen,
        "encoder.composition": composition,
        "encoder.norm": e.norm or row.norm,
        "encoder.dims": dims,
        "encoder.bases": e.bases or row.bases or 0,
    }


def _fingerprint(config: Config, data: Dataset) -> str:
    fingerprint = data.fingerprint()
    if config.data.fingerprint not in (None, fingerprint):
        raise InputError(
            f"the data are not those the config was written for: data.fingerprint is {fingerprint}, not "
            f"{config.data.fingerprint}; leave it out to train on them anyway"
        )
    return fingerprint


def candidates(config: Config, data: Dataset) -> list[Config]:
    """The configs that a nested run chooses among, filled in: its own with each of `classifier.candidates`."""
    found = []
    for text in config.classifier.candidates:
        where = f"classifier.candidates: '{text}': "
        settings = {searchable(name, where): value for name, value in parse_settings(text).items()}
        found.append(expand(configure(config, settings, where), data))
    return found or [config]


def _input(config: Config, data: Dataset, row: TaskRow) -> str:
    chosen = config.encoder.input
    if chosen is None:
        return next(name for name in row.inputs if INPUTS[name].there(data))
    if chosen not in row.inputs:
        raise unknown(f"encoder.input for {task_of(config, data)}", chosen, row.inputs)
    return chosen


def _dims(encoder: EncoderSettings, data: Dataset, chosen: str) -> tuple[int, ...]:
    """The dimensions in use: features that are given decide the first, and without layers there is only one."""
    dims = encoder.dims[-1:] if encoder.name == "none" else encoder.dims
    relations = getattr(data, "relation_features", None) if preset(encoder.name).relations == "vectors" else None
    nodes = INPUTS[chosen].start(data).features if chosen in ("features", "literals") else None
    given = [table for table in (nodes, relations) if table is not None]
    return (given[0].shape[1], *dims[1:]) if given else dims


# Of a run that was trained before


def filled_in(config: Config, data: Dataset, folder: Folder) -> Config:
    """The config of a run; what one of an earlier build left open is filled in as for a new run."""
    encoder = config.encoder
    if config.classifier.baseline is not None or None not in (config.task, encoder.input, encoder.add_inverse):
        return config
    try:
        whole = expand(configure(config, {"data.fingerprint": None}), with_features(data, folder))
    except InputError as error:
        raise InputError(
            f"the run folder {folder.path} is of an earlier build, and its settings leave open what is needed now "
            f"({error}); remove the folder, train again"
        ) from None
    return configure(whole, {"data.fingerprint": config.data.fingerprint})


def with_features(data: Dataset, folder: Folder) -> Dataset:
    """The data with the features that were given to the run."""
    nodes, relations = folder.features()
    if isinstance(data, GraphCollection):
        return data if nodes is None else replace(data, node_features=nodes)
    return data.with_features(nodes, relations)
