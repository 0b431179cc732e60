"""Settings by section, read from TOML files, command lines and Python, and the spaces of a search. Imports no torch."""

from __future__ import annotations

import contextlib
import itertools
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from compgcn.errors import InputError, unknown

FORMAT = 1  # of a run folder; another one is refused
SEARCH = "search"  # the table of a TOML with the values to search

Size = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A table of the TOML; unknown keys and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class Data(Section):
    """The source of the triples, and how to read and split it."""

    source: str = ""  # a data set's name, or a file
    valid: str | None = None  # files of the other splits, where they are given
    test: str | None = None
    names: str | None = None  # a file of ids and readable names
    columns: tuple[str | int, ...] | None = None  # subject, relation and object of a table: names, or positions
    comment: str | None = None  # begins lines to skip
    literals: Literal["drop", "keep", "nodes"] | None = None  # of an RDF file; None: nodes beside labels, else drop
    exclude: tuple[str, ...] = ()  # relations to leave out
    top_relations: int | None = Field(None, ge=1)  # keep only the most frequent relations of train
    labels: str | None = None  # tables of nodes (or graphs) and their classes
    valid_labels: str | None = None
    test_labels: str | None = None
    label_columns: tuple[str | int, ...] | None = None  # node, label and perhaps split
    node_labels: str | None = None  # a table of graph, node and label, for graph classification
    node_features: str | None = None  # files of vectors
    relation_features: str | None = None
    split_seed: int = Field(0, ge=0)  # of the split of a single file
    valid_fraction: float = Field(0.1, ge=0, lt=1)
    test_fraction: float = Field(0.1, ge=0, lt=1)


# Settings of `Data` that may name a file or a folder
FILES = {"source", "valid", "test", "names", "labels", "valid_labels", "test_labels"}
FILES |= {"node_labels", "node_features", "relation_features"}


class Encoder(Section):
    """The way from entities and relations to vectors; the preset and the data decide settings that are None."""

    name: str = "compgcn"
    input: Literal["learned", "types", "labels", "features", "literals", "shared"] | None = None  # None: by the data
    composition: str | None = None
    norm: str | None = None
    flow: Literal["source_to_target", "target_to_source"] = "target_to_source"
    dims: tuple[Size, ...] = Field((100, 200), min_length=1, strict=False)  # input, then each layer
    bases: int = Field(0, ge=0)  # basis vectors (compgcn), basis matrices or blocks (rgcn-*); 0: none
    dropout: float = Field(0.1, ge=0, lt=1)  # on each direction's sum
    loop_dropout: bool = False  # on the self-loop too
    hidden_dropout: float = Field(0.3, ge=0, lt=1)  # on the entity vectors after each layer
    bias: bool = False
    batch_norm: bool = True
    activation: Literal["tanh", "relu", "none"] = "tanh"
    self_loop: bool = True
    update_loop: bool = False  # the loop has one vector, updated like a relation, not one for each layer
    tie_inverse: bool = False  # an inverse relation is its original read backwards: TransE's negative
    init_scale: float | None = Field(None, gt=0)  # standard deviation of the initial tables; None: Xavier's
    graph: Literal["given", "none", "random"] = "given"  # ablations: no edges, or edges between random entities
    fanout: tuple[Size, ...] = ()  # messages that an entity receives at most in training, by layer; (): all of them
    residual: int = Field(0, ge=0)  # dimension of raw vectors to add the encoder's to; 0: none
    statistics: Literal["mean", "pna"] = "mean"  # of messages, for conditional: pna adds deviation, maximum, minimum


class Decoder(Section):
    """The score of a triple."""

    name: str = "conve"
    entity_bias: bool | None = None
    margin: float = 9.0  # TransE, RotatE: score = margin - distance
    margin_decay: float = Field(0.0, ge=0)  # subtracted after every 10 evaluations without gain, while above 5
    filters: int | None = Field(None, ge=1)  # of a convolution; None: the decoder's usual number and size
    kernel: int | None = Field(None, ge=1)
    input_dropout: float = Field(0.0, ge=0, lt=1)  # on the input of a convolution, its feature maps, and the query
    feature_dropout: float = Field(0.3, ge=0, lt=1)
    hidden_dropout: float = Field(0.3, ge=0, lt=1)


class Classifier(Section):
    """The classification of nodes or graphs, and a protocol's choice of the number of epochs."""

    baseline: str | None = None  # trained in place of the encoder
    protocol: Literal["holdout", "refit", "paper", "nested"] | None = None  # None: the first of the task
    folds: int = Field(10, ge=2)  # of the cross-validation
    inner_folds: int = Field(5, ge=2)  # within a training part, for nested
    readout: Literal["mean", "sum", "max", "attention"] = "mean"  # from the vectors of nodes to that of their graph
    candidates: tuple[dict[str, Any], ...] = ()  # for nested: settings to choose among, by dotted name


class Training(Section):
    """The training of the parameters."""

    epochs: int = Field(500, ge=0)
    epoch_size: int | None = Field(None, ge=1)  # examples of an epoch, drawn anew for each; None: all
    batch_size: int = Field(128, ge=1)
    optimiser: str = "adam"
    lr: float = Field(1e-3, gt=0)
    encoder_lr: float | None = Field(None, gt=0)  # of the encoder without the raw vectors of a residual; None: lr
    weight_decay: float = Field(0.0, ge=0)
    loss: str = "bce"
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    smoothing_floor: Literal["eps/N", "1/N"] = "eps/N"
    sampler: str = "uniform"  # of negatives, for the losses that sample
    negatives: int = Field(64, ge=1)  # per triple, if shared per batch; for kbgan, the candidates
    loss_margin: float = Field(1.0, ge=0)
    regulariser: str = "none"  # of the vectors of a batch's triples ..
    regularisation: float = Field(0.05, ge=0)  # .. and its weight
    relation_prediction: float = Field(0.0, ge=0)  # weight of a second loss, over the relations of (s, ?, o)
    hidden_answers: int = Field(16, ge=1)  # for conditional: at most so many answers of a query to hide and find
    hide: Literal["facts", "pairs"] | None = None  # and with them all edges of their pairs; None: by the data
    warm_up: int = Field(0, ge=0)  # steps in which the rate rises to lr
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    schedule_start: float = Field(0.0, ge=0, le=1)  # share of the epochs before the rate falls
    schedule_floor: float = Field(0.0, ge=0, le=1)  # the last rate, as a share of lr
    grad_clip: float | None = Field(None, gt=0)  # bound on the norm of the gradient
    precision: Literal["auto", "float32", "tf32", "mixed", "bfloat16"] = "auto"  # auto: mixed on a GPU, else float32
    step: Literal["auto", "eager", "recorded", "compiled"] = "auto"  # auto: recorded on a GPU, compiled in long runs
    deterministic: bool = False  # on a GPU, only algorithms that give the same bits every time
    patience: int = Field(25, ge=1)  # evaluations without gain before stopping
    evaluate_every: int = Field(1, ge=1)  # epochs
    valid_sample: int | None = Field(None, ge=1)  # validation triples that choose the epoch; None: all
    test_sample: int | None = Field(None, ge=1)  # triples of valid, and of test, for the metrics at the end; None: all
    checkpoint_seconds: float = Field(30.0, ge=0)  # between checkpoints, see `loop.until_next`; 0: every step
    seed: int = Field(0, ge=0, lt=2**63)
    device: str = "auto"


class Config(Section):
    """All settings of a run."""

    format: int = FORMAT
    task: Literal["link-prediction", "node-classification", "graph-classification"] | None = None  # None: by the data
    fingerprint: str | None = None  # sha256 of the data; a resumed run must find the same
    data: Data = Data()
    encoder: Encoder = Encoder()
    decoder: Decoder = Decoder()
    classifier: Classifier = Classifier()
    training: Training = Training()


def _paths() -> dict[str, str]:
    """Map every name of a setting to its dotted path; a key of several sections has the path as its only name."""
    paths: dict[str, list[str]] = {"task": ["task"], "fingerprint": ["fingerprint"]}
    for section, field in Config.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            paths[section] = [f"{section}.name"] if "name" in field.annotation.model_fields else [section]
            for key in field.annotation.model_fields:
                paths[f"{section}.{key}"] = [f"{section}.{key}"]
                paths.setdefault(key, []).append(f"{section}.{key}")
    return {name: found[0] for name, found in paths.items() if len(found) == 1}


PATHS = _paths()

# Names of settings in other libraries.
_CALLED = {
    **dict.fromkeys(("learning_rate", "lr_rate", "learningrate", "step_size"), "training.lr"),
    **dict.fromkeys(("embedding_dim", "embedding_size", "dim", "hidden_dim", "hidden_size"), "encoder.dims"),
    **dict.fromkeys(("batch", "batchsize", "bs"), "training.batch_size"),
    **dict.fromkeys(("n_epochs", "num_epochs", "max_epochs", "epoch"), "training.epochs"),
    **dict.fromkeys(("optimizer", "optim"), "training.optimiser"),
    **dict.fromkeys(("regularization", "reg", "l3"), "training.regularisation"),
    **dict.fromkeys(("regularizer",), "training.regulariser"),
    **dict.fromkeys(("num_negatives", "negative_samples", "num_negs_per_pos"), "training.negatives"),
    **dict.fromkeys(("l2", "wd"), "training.weight_decay"),
    **dict.fromkeys(("early_stopping",), "training.patience"),
}

# The settings that are lists, each with an example.
LISTS = {
    "data.columns": '["head", "relation", "tail"]',
    "data.exclude": '["year", "rating"]',
    "data.label_columns": '["node", "class"]',
    "encoder.dims": "[100, 200]",
    "encoder.fanout": "[15, 10]",
    "classifier.candidates": "[{training.lr = 0.01}, {training.lr = 0.001}]",
}


def configure(base: Config, settings: Mapping[str, Any], where: str = "") -> Config:
    """Return `base` with settings by name; a wrong name or value is one sentence that begins with `where`."""
    tree = base.model_dump()
    for name, value in settings.items():
        path = PATHS.get(name)
        if path is None:
            raise _no_setting(name, where)
        if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
            raise InputError(f"{where}{path} = {value!r}: this is not UTF-8, as a run's config must be; rename it")
        section, _, key = path.rpartition(".")
        (tree[section] if section else tree)[key] = _plain(value)
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise _in_settings(error, where) from None


def _no_setting(name: str, where: str) -> InputError:
    sections = [full for full in PATHS if full.endswith(f".{name}")]
    if sections:
        return InputError(f"{where}option '{name}' is ambiguous; say {' or '.join(sections)}")
    if known := _CALLED.get(name.rpartition(".")[2].casefold()):
        return InputError(f"{where}unknown option '{name}'; did you mean '{known}'?")
    return InputError(f"{where}{unknown('option', name, PATHS)}")


def _plain(value: Any) -> Any:
    """Return Python numbers for those of NumPy and torch, and tuples for lists and arrays; other values as they are."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    if isinstance(value, dict):  # a candidate
        for name, item in (flat := names(value)).items():
            if item is None:
                raise InputError(f"{name} = None in a candidate cannot be kept in a run's config; leave it out")
        return {name: _plain(item) for name, item in flat.items()}
    return value


def _in_settings(error: ValidationError, where: str) -> InputError:
    """Return the first mistake in settings as a sentence."""
    first: Mapping[str, Any] = error.errors()[0]
    path, kind = ".".join(str(part) for part in first["loc"]), first["type"]
    if kind == "literal_error" and isinstance(first["input"], str):
        known = [choice.strip("'") for choice in first["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return InputError(f"{where}{unknown(f'value of {path}', first['input'], known)}")
    expected = first["msg"].replace("Input should", "this should").replace("Tuple should", "this should")
    if kind == "tuple_type" and path in LISTS:
        expected = f"this should be a list, as in {path} = {LISTS[path]}"
    return InputError(f"{where}{path} = {first['input']!r}: {expected}")


# Settings of a command line


def parse_setting(text: str) -> tuple[str, Any]:
    """Parse `key=value`; the value is TOML or else text, and for a list see `as_list`."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"'{text}' is not a setting; write key=value, such as training.lr=0.001")
    name, read = name.strip(), value.strip()
    plain = PATHS.get(name) == "data.exclude" and not read.startswith(("[", '"', "'"))  # a relation may be called 1.50
    with contextlib.suppress(tomllib.TOMLDecodeError):
        if not plain and len(tree := tomllib.loads(f"value = {value}")) == 1:
            read = tree["value"]
    return name, as_list(PATHS[name], read) if PATHS.get(name) in LISTS else read


def as_list(path: str, value: Any) -> Any:
    """Return the list of a command line: one value is a list of one, and commas separate the parts of text.

    Whole numbers become numbers if all parts are.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return [value]
    parts = [part.strip() for part in value.split(",")]
    numbers = path != "data.exclude" and all(part.isdecimal() for part in parts)
    return [int(part) for part in parts] if numbers else parts


# Settings of a TOML file


def read_config(path: Path) -> Config:
    """Read a config from a TOML file; missing keys take their defaults."""
    return configure(Config(), read_settings(path), f"{path}: ")


def read_settings(path: Path) -> dict[str, Any]:
    """Read the settings of a TOML file, by name."""
    tree = read_tree(path)
    if SEARCH in tree:
        raise InputError(f"{path} has a table [{SEARCH}]: give the file to compgcn tune, or with --search")
    return _by_name(tree, path)


def read_search(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the settings of a TOML file, by name, and its table [search]; either may be empty."""
    tree = read_tree(path)
    search = tree.pop(SEARCH, {})
    if not isinstance(search, dict):
        raise InputError(f"{path}: {SEARCH} = {search!r}: this should be a table [{SEARCH}]")
    return _by_name(tree, path), search


def read_tree(path: Path) -> dict[str, Any]:
    """Read a TOML file; refuse one of another format."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no config file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None
    version = tree.pop("format", FORMAT)
    if version != FORMAT:
        raise InputError(f"{path} is of format {version!r}, and this version of compgcn reads {FORMAT}; update compgcn")
    return tree


def _by_name(tree: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings of the tables of a file, by name."""
    for name in tree.keys() - Config.model_fields.keys():
        if "." in PATHS.get(name, ""):
            raise InputError(f"{path}: '{name}' belongs into the table [{PATHS[name].partition('.')[0]}]")
        raise InputError(f"{path}: {unknown('option', name, [*Config.model_fields, *PATHS])}")
    return names(tree)


def names(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten tables: settings by dotted name."""
    tables = {name: value for name, value in tree.items() if isinstance(value, dict)}
    plain = {name: value for name, value in tree.items() if name not in tables}
    return plain | {f"{name}.{key}": value for name, table in tables.items() for key, value in table.items()}


def to_toml(config: Config) -> str:
    """Write a config as TOML; settings that are None are left out."""
    lines, section = [], ""
    for path, value in names(config.model_dump()).items():
        table, _, key = path.rpartition(".")
        if table != section:
            lines += ["", f"[{table}]"]
            section = table
        if value is not None:
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def write_setting(path: str, value: Any) -> str:
    """Write one setting as TOML, `training.lr = 0.01`."""
    return f"{path} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(write_setting(name, item) for name, item in value.items()) + "}"
    return repr(value)


# Comparing configs

# Settings that a resumed run may change: where it runs, how often it saves and, with the same data, their names.
_READING = Data.model_fields.keys() - {"split_seed", "valid_fraction", "test_fraction"}
_FREE = {"training.device", "training.checkpoint_seconds", *(f"data.{key}" for key in _READING)}


def changes(old: Config, new: Config) -> dict[str, Any]:
    """Return the settings of `new` that differ from those of `old`, by path."""
    before, after = names(old.model_dump()), names(new.model_dump())
    return {path: value for path, value in after.items() if value != before[path]}


def differences(old: Config, new: Config) -> list[str]:
    """Return `section.key: old -> new` for every setting that makes another run."""
    if old.fingerprint != new.fingerprint:
        what, was, now = "triples, features or labels", old.data.source, new.data.source
        moved = f"data.source: {was!r} -> {now!r}, with other {what}"
        return [f"the {what} of {now!r} have changed" if was == now else moved]
    before = names(old.model_dump())
    return [f"{path}: {before[path]!r} -> {now!r}" for path, now in changes(old, new).items() if path not in _FREE]


# Searching

# A search may change the model and its training, but nothing that makes its figures those of another task.
_FIXED = {"seed", "device", "deterministic", "checkpoint_seconds", "evaluate_every", "valid_sample"}
SEARCHABLE = {
    *(f"encoder.{key}" for key in Encoder.model_fields if key not in ("graph", "input")),
    *(f"decoder.{key}" for key in Decoder.model_fields),
    "classifier.readout",
    *(f"training.{key}" for key in Training.model_fields.keys() - _FIXED),
}

# Bounds of a training: on the command line of a search they hold for the trials, not for the final training.
BUDGET = ("training.epochs", "training.patience", "training.evaluate_every")


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included; whole ones if both ends are; evenly in their logarithm or not."""

    low: float
    high: float
    log: bool


Space = dict[str, tuple[Any, ...] | Range]  # by path: values to choose among, or a range of them


def searchable(name: str, where: str = "") -> str:
    """Return the path of a setting that may be searched; refuse any other name."""
    path = PATHS.get(name)
    if path is None:
        raise _no_setting(name, where)
    if path not in SEARCHABLE:
        raise InputError(f"{where}{path} is not searched: all trials must answer the same question")
    return path


def parse_space(table: Mapping[str, Any], where: str = "") -> Space:
    """Parse the table [search] of a TOML: a list of values for each setting, or `{low, high, log}`."""
    space: Space = {}
    flat: dict[str, Any] = {}
    for name, value in table.items():
        inner = isinstance(value, dict) and name in Config.model_fields  # [search.training], not a range
        flat |= {f"{name}.{key}": below for key, below in value.items()} if inner else {name: value}
    for name, given in flat.items():
        path = searchable(name, where)
        if isinstance(given, dict):
            space[path] = _range(path, given, where)
        elif isinstance(given, list) and given:
            space[path] = _plain(given)
        else:
            raise InputError(f"{where}{path} = {given!r}: this should be a list of values, or {{low, high, log}}")
        ends = space[path]
        for value in ends[:2] if isinstance(ends, Range) else ends:
            configure(Config(), {path: value}, where)  # refuse values of another type
    return space


def _range(path: str, given: Mapping[str, Any], where: str) -> Range:
    for key in given.keys() - {"low", "high", "log"}:
        raise InputError(f"{where}{path}: {unknown('key of a range', key, ('low', 'high', 'log'))}")
    low, high, log = given.get("low"), given.get("high"), given.get("log", False)
    numbers = all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in (low, high))
    if not numbers or not isinstance(log, bool) or not low < high or (log and not low > 0):  # type: ignore[operator]
        raise InputError(f"{where}{path} = {dict(given)}: a range needs numbers low < high, above 0 if log = true")
    return Range(low, high, log)  # type: ignore[arg-type]


def grid_size(space: Space) -> float:
    """Return the number of combinations of a space; infinite if one of its settings is a range."""
    return math.prod(math.inf if isinstance(values, Range) else len(values) for values in space.values())


def candidates(space: Space) -> tuple[dict[str, Any], ...]:
    """Return every combination of a space of lists, for `classifier.candidates`."""
    ranges = [path for path, values in space.items() if isinstance(values, Range)]
    if ranges or not space:
        what = f"{ranges[0]} is a range" if ranges else "there is nothing to search"
        raise InputError(f"{what}; a nested run tries every combination, so list the values of [search]")
    return tuple(dict(zip(space, values, strict=True)) for values in itertools.product(*space.values()))
