"""What to search: values of settings, as a table [search] of a TOML lists them. Imports no torch."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from compgcn.errors import InputError, unknown

# What is expected, by pydantic's name of the mistake; in braces what it knows of the setting.
_EXPECTED = {
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "at most {le}",
    "string_type": "text",
    "too_short": "a list of at least {min_length}",
}


def in_settings(error: ValidationError, where: str, options: Iterable[str], lists: Mapping[str, str]) -> InputError:
    """The first mistake in settings.

    Args:
        error: what pydantic found.
        where: what the sentence begins with.
        options: the names of settings there are.
        lists: the settings that are lists, each with an example.
    """
    first: Mapping[str, Any] = error.errors()[0]
    path, kind = _place(first), first["type"]
    if kind == "extra_forbidden":
        return InputError(f"{where}{unknown('option', path, options)}")
    if kind == "literal_error" and isinstance(first["input"], str):
        known = [choice.strip("'") for choice in first["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return InputError(f"{where}{unknown(f'value of {path}', first['input'], known)}")
    if kind == "tuple_type" and path in lists:
        expected = f"this should be a list, as in {path} = {lists[path]}"
    elif kind in _EXPECTED:
        expected = f"this should be {_EXPECTED[kind].format(**first.get('ctx', {}))}"
    else:
        expected = first["msg"].removeprefix("Value error, ").replace("Input should", "this should")
    return InputError(f"{where}{path} = {first['input']!r}: {expected}")


def in_file(error: ValidationError, path: Path) -> InputError:
    """The first mistake in a file, in pydantic's words."""
    first: Mapping[str, Any] = error.errors()[0]
    return InputError(f"{path}: {_place(first)}: {first['msg'][0].lower()}{first['msg'][1:]}")


def _place(mistake: Mapping[str, Any]) -> str:
    """Where it is, as a dotted path."""
    return ".".join(str(part) for part in mistake["loc"])


FORMAT = 1  # of a run folder; a newer one is refused
SEARCH = "search"  # the table of a TOML that says which values of which settings to try

Size = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A table of the TOML; a key it does not know is an error, and so is a value of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class Data(Section):
    """Where the triples come from."""

    source: str = ""  # a data set's name, or a file
    valid: str | None = None  # files of the other splits, where they are given
    test: str | None = None
    names: str | None = None  # a file of ids and readable names
    columns: tuple[str | int, ...] | None = None  # of subject, relation and object in a table: names, or positions
    comment: str | None = None  # lines that start with it are skipped
    literals: Literal["drop", "keep", "nodes"] = "drop"  # what becomes of those of an RDF file
    exclude: tuple[str, ...] = ()  # relations left out
    top_relations: int | None = Field(None, ge=1)  # only so many relations, those train has most of
    labels: str | None = None  # a table of nodes (or graphs) and their classes, and of those of the other splits
    valid_labels: str | None = None
    test_labels: str | None = None
    label_columns: tuple[str | int, ...] | None = None  # of node, label and perhaps split
    node_labels: str | None = None  # a table of graph, node and label, for graph classification
    node_features: str | None = None  # files of vectors
    relation_features: str | None = None
    split_seed: int = Field(0, ge=0)  # of the split made for a single file
    valid_fraction: float = Field(0.1, ge=0, lt=1)
    test_fraction: float = Field(0.1, ge=0, lt=1)
    fingerprint: str | None = None  # sha256 of what was read; a resumed run must find the same


class Encoder(Section):
    """How entities and relations become vectors; what is None is filled in from the preset."""

    name: str = "compgcn"
    input: Literal["learned", "types", "labels", "features", "literals", "shared"] | None = None  # None: by the data
    composition: str | None = None
    norm: str | None = None
    flow: Literal["source_to_target", "target_to_source"] = "target_to_source"
    dims: tuple[Size, ...] = Field((100, 200), min_length=1, strict=False)  # of the input, then of each layer
    bases: int = Field(0, ge=0)  # basis vectors (compgcn), basis matrices or blocks (rgcn-*); 0: none
    dropout: float = Field(0.1, ge=0, lt=1)  # on each direction's sum
    loop_dropout: bool = False  # on the self-loop too
    hidden_dropout: float = Field(0.3, ge=0, lt=1)  # on the entity vectors after each layer
    bias: bool = False
    batch_norm: bool = True
    activation: Literal["tanh", "relu", "none"] = "tanh"
    self_loop: bool = True
    add_inverse: bool | None = None  # send along edges backwards too; None: unless every edge is there both ways
    tie_inverse: bool = False  # an inverse relation starts as its original read backwards: TransE's negative
    init_scale: float | None = Field(None, gt=0)  # standard deviation of the initial tables; None: Xavier's
    graph: Literal["given", "none", "random"] = "given"  # ablations: no edges, or edges between random entities
    residual: int = Field(0, ge=0)  # dimension of raw vectors that the encoder's are added to; 0: none
    edge_dropout: float = Field(0.0, ge=0, lt=1)  # share of the edges left out of a step


class Decoder(Section):
    """How a triple is scored."""

    name: str = "conve"
    entity_bias: bool | None = None
    margin: float = 9.0  # TransE, RotatE: score = margin - distance
    margin_decay: float = Field(0.0, ge=0)  # subtracted from the margin ..
    margin_patience: int = Field(10, ge=1)  # .. every so many evaluations without gain
    filters: int | None = Field(None, ge=1)  # of a convolution; None: as many, and of the size, usual for the decoder
    kernel: int | None = Field(None, ge=1)
    height: int | None = Field(None, ge=1)  # each vector is laid out height x width; None: as square as can be
    input_dropout: float = Field(0.0, ge=0, lt=1)  # on what is convolved, on its feature maps, and on the query
    feature_dropout: float = Field(0.3, ge=0, lt=1)
    hidden_dropout: float = Field(0.3, ge=0, lt=1)
    generator: str = "distmult"  # of the sampler kbgan: a decoder, with tables of its own


class Classifier(Section):
    """How nodes or graphs are classified, and how the number of epochs is found."""

    baseline: str | None = None  # trained in place of the encoder
    protocol: Literal["holdout", "refit", "paper", "nested"] | None = None  # None: the first of the task
    folds: int = Field(10, ge=2)  # of the cross-validation
    inner_folds: int = Field(5, ge=2)  # within a training part, for nested
    choose_by: Literal["accuracy", "log_likelihood"] | None = None  # None: accuracy for paper, else log_likelihood
    readout: Literal["mean", "sum", "max", "attention"] = "mean"  # from the vectors of nodes to that of their graph
    class_weights: bool = False  # every class counts the same in the loss, however rare
    candidates: tuple[str, ...] = ()  # for nested: settings to choose among, 'training.lr = 0.01, encoder.bias = true'


class Training(Section):
    """How the parameters are found."""

    epochs: int = Field(500, ge=0)
    batch_size: int = Field(128, ge=1)
    optimiser: Literal["adam", "adagrad", "sgd"] = "adam"
    lr: float = Field(1e-3, gt=0)
    encoder_lr: float | None = Field(None, gt=0)  # of the encoder, but for the raw vectors of a residual; None: lr
    weight_decay: float = Field(0.0, ge=0)
    loss: Literal["bce", "cross-entropy", "margin", "self-adversarial", "sampled-cross-entropy"] = "bce"
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    smoothing_floor: Literal["eps/N", "1/N"] = "eps/N"
    sampler: Literal["uniform", "shared", "kbgan"] = "uniform"  # of negatives, for the losses that sample
    negatives: int = Field(64, ge=1)  # per triple, if shared per batch; for kbgan, those it chooses from
    loss_margin: float = Field(1.0, ge=0)
    temperature: float = Field(1.0, ge=0)  # of the self-adversarial weights
    regulariser: Literal["none", "n3", "dura"] = "none"  # of the vectors of a batch's triples ..
    regularisation: float = Field(0.05, ge=0)  # .. and its weight
    relation_prediction: float = Field(0.0, ge=0)  # weight of a second loss, over the relations of (s, ?, o)
    remove_batch_edges: bool = False  # in link prediction, encode a batch without the edges of its own triples
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    schedule_start: float = Field(0.0, ge=0, le=1)  # share of the epochs before the rate begins to fall
    schedule_floor: float = Field(0.0, ge=0, le=1)  # what the rate falls to, as a share of lr
    grad_clip: float | None = Field(None, gt=0)  # bound on the norm of the gradient
    precision: Literal["auto", "float32", "tf32", "mixed", "bfloat16"] = "auto"  # auto: mixed on a GPU, else float32
    cuda_graph: bool = True  # on a GPU, record a step and replay it
    compile: bool | None = None  # fuse the step with torch.compile; None: on a GPU, if the run is long enough to gain
    deterministic: bool = False  # on a GPU, only what gives the same bits every time
    patience: int = Field(25, ge=1)  # evaluations without gain before stopping
    evaluate_every: int = Field(1, ge=1)  # epochs
    valid_sample: int | None = Field(None, ge=1)  # of links, validation triples that choose the epoch; None: all
    checkpoint_seconds: float = Field(30.0, ge=0)  # at the earliest, see `train.until_next`; 0: after every step
    max_shard_mib: float | None = Field(None, gt=0)  # cut the weights into files of at most this size
    seed: int = Field(0, ge=0, lt=2**63)
    device: str = "auto"


class Config(Section):
    """All settings of a run."""

    format: int = Field(default_factory=lambda: FORMAT, ge=1)
    task: Literal["link-prediction", "node-classification", "graph-classification"] | None = None  # None: by the data
    data: Data = Data()
    encoder: Encoder = Encoder()
    decoder: Decoder = Decoder()
    classifier: Classifier = Classifier()
    training: Training = Training()


def _paths() -> dict[str, str]:
    """Every name a setting goes by -> its dotted path; a key that several sections have goes by the path alone."""
    paths: dict[str, list[str]] = {"task": ["task"]}
    for section, field in Config.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            paths[section] = [f"{section}.name"] if "name" in field.annotation.model_fields else [section]
            for key in field.annotation.model_fields:
                paths[f"{section}.{key}"] = [f"{section}.{key}"]
                paths.setdefault(key, []).append(f"{section}.{key}")
    return {name: found[0] for name, found in paths.items() if len(found) == 1}


PATHS = _paths()

# What settings are called elsewhere.
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
    "classifier.candidates": '["training.lr = 0.01", "training.lr = 0.001"]',
}


def configure(base: Config, settings: Mapping[str, Any], where: str = "") -> Config:
    """`base` with settings by name; an unknown name or a value of the wrong kind is one sentence, `where` before it."""
    tree = base.model_dump()
    for name, value in settings.items():
        path = PATHS.get(name)
        if path is None:
            sections = [full for full in PATHS if full.endswith(f".{name}")]
            if sections:
                raise InputError(f"{where}option '{name}' is ambiguous; say {' or '.join(sections)}")
            if known := _CALLED.get(name.rpartition(".")[2].casefold()):
                raise InputError(f"{where}unknown option '{name}'; did you mean '{known}'?")
            raise InputError(f"{where}{unknown('option', name, PATHS)}")
        if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
            raise InputError(
                f"{where}{path} = {value!r}: this is not UTF-8, which a run's config is written in; rename it"
            )
        *parents, key = path.split(".")
        table = tree
        for parent in parents:
            table = table[parent]
        table[key] = _plain(value)
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise in_settings(error, where, [*PATHS, *Config.model_fields], LISTS) from None


def _plain(value: Any) -> Any:
    """The Python number in a scalar of an array library; everything else as it is."""
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    return value.item() if hasattr(value, "item") else value


def parse_setting(text: str) -> tuple[str, Any]:
    """`key=value` from a command line; the value is TOML, or a string where it is not; of a list, see `as_list`."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"'{text}' is not a setting; write key=value, such as training.lr=0.001")
    try:
        tree = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        tree = {}
    name, read = name.strip(), tree["value"] if len(tree) == 1 else value.strip()
    return name, as_list(PATHS[name], read) if PATHS.get(name) in LISTS else read


def as_list(path: str, value: Any) -> Any:
    """What a command line gives for a list: a single value is a list of one, and text is parted at its commas.

    Whole numbers are numbers where all parts are; settings to choose among have commas of their own, and stay whole.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str) or path == "classifier.candidates":
        return [str(value) if path == "data.exclude" else value]  # a relation may be called 1999
    parts = [part.strip() for part in value.split(",")]
    numbers = path != "data.exclude" and all(part.isdecimal() for part in parts)
    return [int(part) for part in parts] if numbers else parts


def parse_settings(text: str) -> dict[str, Any]:
    """Several settings in one text, as in an inline table of TOML: `training.lr = 0.01, encoder.dims = [32, 32]`."""
    try:
        tree = tomllib.loads(f"settings = {{{text}}}")
    except tomllib.TOMLDecodeError:
        tree = {}
    if len(tree) != 1:
        raise InputError(f"'{text}' are not settings; write them as 'training.lr = 0.01, encoder.dims = [32, 32]'")
    return names(tree["settings"])


def names(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, those in tables by dotted name."""
    tables = {name: value for name, value in tree.items() if isinstance(value, dict)}
    plain = {name: value for name, value in tree.items() if name not in tables}
    return plain | {f"{name}.{key}": value for name, table in tables.items() for key, value in table.items()}


def write_setting(path: str, value: Any) -> str:
    """One setting as TOML, `training.lr = 0.01`."""
    return f"{path} = {_toml(value)}"


def read_config(path: Path) -> Config:
    """The config in a TOML file, as of today's format; keys it leaves out take their defaults."""
    return configure(Config(), read_settings(path), f"{path}: ")


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, by name; a file of a newer format is refused."""
    tree = read_tree(path)
    if SEARCH in tree:
        raise InputError(f"{path} has a table [{SEARCH}]: give the file to compgcn tune, or with --search")
    return flat(tree, path)


def read_search(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings in a TOML file, by name, and its table of what to search; either may be empty."""
    tree = read_tree(path)
    search = tree.pop(SEARCH, {})
    if not isinstance(search, dict):
        raise InputError(f"{path}: {SEARCH} = {search!r}: this should be a table [{SEARCH}]")
    return flat(tree, path), search


def read_tree(path: Path) -> dict[str, Any]:
    """What is in a TOML file; one of a newer format is refused."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no config file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None
    version = tree.pop("format", FORMAT)
    if type(version) is not int or version < 1:
        raise InputError(f"{path}: format = {version!r}: this should be a whole number from 1 on")
    if version > FORMAT:
        raise InputError(
            f"{path} is of format {version}, newer than the {FORMAT} this version of compgcn reads; update compgcn"
        )
    return tree


def flat(tree: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The settings in a tree of tables, by name."""
    for name in tree.keys() - Config.model_fields.keys():
        if "." in PATHS.get(name, ""):
            raise InputError(f"{path}: '{name}' belongs into the table [{PATHS[name].partition('.')[0]}]")
        raise InputError(f"{path}: {unknown('option', name, [*Config.model_fields, *PATHS])}")
    return names(tree)


# What a resumed run may change: where it runs and how often it saves; and, the data being the same, how they are named.
_READING = Data.model_fields.keys() - {"split_seed", "valid_fraction", "test_fraction", "fingerprint"}
_FREE = {"training.device", "training.checkpoint_seconds", *(f"data.{key}" for key in _READING)}


# What may be searched: what the model is and how it is trained; nothing that makes its figures those of another task.
_FIXED = {"seed", "device", "deterministic", "checkpoint_seconds", "max_shard_mib", "evaluate_every", "valid_sample"}
SEARCHABLE = {
    *(f"encoder.{key}" for key in Encoder.model_fields if key not in ("graph", "input")),
    *(f"decoder.{key}" for key in Decoder.model_fields),
    *("classifier.readout", "classifier.class_weights"),
    *(f"training.{key}" for key in Training.model_fields.keys() - _FIXED),
}

# What bounds a training: on the command line of a search it bounds the trials, and not what is trained with the best.
BUDGET = ("training.epochs", "training.patience", "training.evaluate_every")


def searchable(name: str, where: str = "") -> str:
    """The path of a setting that may be searched; one sentence for any other name."""
    path = PATHS.get(name)
    if path is None:
        configure(Config(), {name: None}, where)
    if path not in SEARCHABLE:
        raise InputError(f"{where}{path or name} is not searched: what is tried must answer the same question")
    return path


def changes(old: Config, new: Config) -> dict[str, Any]:
    """The settings of `new` that differ from those of `old`, by path."""
    before = dict(_leaves(old))
    return {path: value for path, value in _leaves(new) if value != before[path]}


def differences(old: Config, new: Config) -> list[str]:
    """`section.key: old -> new` for every setting that makes another run."""
    a, b = (dict(_leaves(config)) for config in (old, new))
    if a["data.fingerprint"] != b["data.fingerprint"]:
        return [f"data.source: {a['data.source']!r} -> {b['data.source']!r}, with other triples or features"]
    return [f"{path}: {a[path]!r} -> {b[path]!r}" for path in a if a[path] != b[path] and path not in _FREE]


def _leaves(config: Config) -> list[tuple[str, Any]]:
    return list(names(config.model_dump()).items())


def to_toml(config: Config) -> str:
    """The config as TOML; settings that are None are left out."""
    lines, section = [], ""
    for path, value in _leaves(config):
        table, _, key = path.rpartition(".")
        if table != section:
            lines += ["", f"[{table}]"]
            section = table
        if value is not None:
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(value)


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included; whole ones where both ends are; evenly in their logarithm or not."""

    low: float
    high: float
    log: bool


Space = dict[str, tuple[Any, ...] | Range]  # by path: values to choose among, or a range of them


def parse_space(table: Mapping[str, Any], where: str = "") -> Space:
    """The table [search] of a TOML: a list of values for each setting, or `{low, high, log}`."""
    space: Space = {}
    for name, given in _flat(table).items():
        path = searchable(name, where)
        if isinstance(given, dict):
            space[path] = _range(path, given, where)
        elif isinstance(given, list) and given:
            space[path] = tuple(_frozen(value) for value in given)
        else:
            raise InputError(f"{where}{path} = {given!r}: this should be a list of values, or {{low, high, log}}")
        ends = space[path]
        for value in ends[:2] if isinstance(ends, Range) else ends:
            configure(Config(), {path: value}, where)  # of the right kind
    return space


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names for what stands in [search.training] or as training.lr; a range is a table too, and stays one."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        inner = isinstance(value, dict) and name in Config.model_fields
        found |= {f"{name}.{key}": below for key, below in value.items()} if inner else {name: value}
    return found


def _range(path: str, given: Mapping[str, Any], where: str) -> Range:
    for key in given.keys() - {"low", "high", "log"}:
        raise InputError(f"{where}{path}: {unknown('key of a range', key, ('low', 'high', 'log'))}")
    low, high, log = given.get("low"), given.get("high"), given.get("log", False)
    numbers = all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in (low, high))
    if not numbers or not isinstance(log, bool) or not low < high or (log and not low > 0):  # type: ignore[operator]
        raise InputError(f"{where}{path} = {dict(given)}: a range needs numbers low < high, above 0 if log = true")
    return Range(low, high, log)  # type: ignore[arg-type]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def grid_size(space: Space) -> float:
    """How many combinations a space has; without end if one of its settings is a range."""
    return math.prod(math.inf if isinstance(values, Range) else len(values) for values in space.values())


def candidates(space: Space) -> tuple[str, ...]:
    """Every combination of a space of lists, as `classifier.candidates` takes them."""
    ranges = [path for path, values in space.items() if isinstance(values, Range)]
    if ranges or not space:
        what = f"{ranges[0]} is a range" if ranges else "there is nothing to search"
        raise InputError(f"{what}; a nested run tries every combination, so list the values of [search]")
    combinations = itertools.product(*space.values())
    return tuple(
        ", ".join(write_setting(path, value) for path, value in zip(space, values, strict=True))
        for values in combinations
    )
