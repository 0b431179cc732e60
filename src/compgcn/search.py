"""What is searched for settings: among which values, on which data, judged by what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from compgcn.assembly.compositions import LEARNED
from compgcn.assembly.settings import expand, recommended
from compgcn.compose import COMPOSITIONS
from compgcn.config import PATHS, Config, names
from compgcn.data import GraphCollection
from compgcn.decoders import DECODERS
from compgcn.errors import InputError, unknown
from compgcn.folder import default_folder
from compgcn.inputs import Dataset
from compgcn.norms import NORMS
from compgcn.presets import PRESETS
from compgcn.space import Space

# The paper's table of hyper-parameters, which it gives for link prediction; layers are counted in `paper_grid`.
LAYERS = (1, 2, 3)
PAPER: dict[str, tuple[Any, ...]] = {
    "training.lr": (1e-3, 1e-4),
    "training.batch_size": (128, 256),
    "encoder.dropout": (0.0, 0.1, 0.2, 0.3),
}


def paper_grid(config: Config) -> Space:
    """The values the paper searched, as far as the task and the encoder have such a setting, and those of the config.

    For classifications the paper names none; theirs is the same table, with the higher rate that suits few examples,
    and without batches where all nodes are trained on at once.
    """
    dims = config.encoder.dims
    space: Space = {"encoder.dims": tuple((dims[0], *(dims[-1],) * layers) for layers in LAYERS), **PAPER}
    if config.encoder.name == "none":
        space = {path: values for path, values in PAPER.items() if path != "encoder.dropout"}
    elif config.task != "link-prediction":
        space["training.lr"] = (1e-2, *PAPER["training.lr"])
        if config.task != "graph-classification":
            del space["training.batch_size"]
    own = names(config.model_dump())
    return {path: values if own[path] in values else (own[path], *values) for path, values in space.items()}


def without_test(data: Dataset) -> Dataset:
    """The data with an empty test part; a collection of graphs has none to begin with."""
    if isinstance(data, GraphCollection):
        return data
    labels = None if data.labels is None else replace(data.labels, test=data.labels.test[:0])
    return replace(data, test=data.test[:0], labels=labels)


@dataclass(frozen=True)
class Plan:
    """What is searched, in what, and where it is kept.

    Args:
        settings: those given, by name; what is searched comes on top.
        data: what to train on, see `without_test`.
        space: what to search.
        folder: of the study.
        model: a whole system that the settings go over, see `compgcn.models`.
        budget: settings that bound a trial only, some of `compgcn.config.BUDGET`, by path; they go over the settings.
    """

    settings: Mapping[str, Any]
    data: Dataset
    space: Space
    folder: Path
    model: str | None = None
    budget: Mapping[str, Any] = field(default_factory=dict)

    def config(self, chosen: Mapping[str, Any] | None = None) -> Config:
        """The settings of a trial, filled in."""
        return self.final({**self.budget, **(chosen or {})})

    def final(self, chosen: Mapping[str, Any]) -> Config:
        """The settings with those of a trial, filled in, without what bounded the trials only."""
        named = {PATHS.get(name, name): value for name, value in self.settings.items()}
        return expand(recommended({**named, **chosen}, self.data, self.model), self.data)

    @cached_property
    def goal(self) -> str:
        """The figure of validation that is to rise."""
        config = self.config()
        if config.task == "link-prediction":
            return "mrr"
        own = "accuracy" if config.classifier.protocol == "paper" else "log_likelihood"
        return config.classifier.choose_by or own


def plan(
    settings: Mapping[str, Any],
    data: Dataset,
    space: Space | None,
    folder: Path | None = None,
    model: str | None = None,
    budget: Mapping[str, Any] | None = None,
) -> Plan:
    """A search that can begin: its settings fit the data, there is something to search and something to judge by.

    Without a space it is the paper's grid, without a folder `runs/<data>-<encoder>-<decoder>-tune`, of a model
    `runs/<data>-<model>-tune`.
    """
    data = without_test(data)
    made = Plan(settings, data, {}, Path(), model, budget or {})
    config = made.config()
    if config.classifier.protocol == "nested":
        raise InputError(
            "the protocol 'nested' chooses within its folds: give the table [search] to compgcn train with --search"
        )
    if config.task == "link-prediction" and not len(data.splits["valid"]):  # type: ignore[union-attr]
        raise InputError(f"'{data.name}' has no validation triples to judge by; split it, or give --valid")
    if config.classifier.protocol == "holdout" and not config.data.valid_fraction and not _validation(data):
        raise InputError(f"'{data.name}' has no validation labels to judge by; raise data.valid_fraction")
    if space is None and config.classifier.baseline is not None:
        raise InputError(f"the paper has no grid for '{config.classifier.baseline}': list values in a table [search]")
    space = paper_grid(config) if space is None else space
    if not space:
        raise InputError("there is nothing to search: list the values of some setting in a table [search]")
    _check_names(space)
    place = default_folder(config, model)
    return replace(made, space=space, folder=folder or place.with_name(f"{place.name.rpartition('-')[0]}-tune"))


def _check_names(space: Space) -> None:
    """Every name that is listed must be one: what else is wrong with a trial may be so only beside its other values."""
    tables: dict[str, Iterable[str]] = {
        "encoder.name": PRESETS,
        "encoder.composition": (*COMPOSITIONS, *LEARNED),
        "encoder.norm": NORMS,
        "decoder.name": DECODERS,
    }
    for path, known in tables.items():
        for name in space.get(path, ()):
            if name is not None and name not in known:
                raise InputError(f"[search]: {unknown(path, name, known)}")


def _validation(data: Dataset) -> int:
    labels = getattr(data, "labels", None)
    return 0 if labels is None else len(labels.valid)
