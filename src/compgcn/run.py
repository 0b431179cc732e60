"""A run: train a model on a graph, open it again, ask it. Here names become objects, and nowhere below."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.baselines.popularity import Popularity
from compgcn.compose import resolve
from compgcn.config import Config, configure, differences
from compgcn.config import Encoder as EncoderSettings
from compgcn.data import DATASETS, KnowledgeGraph
from compgcn.decoders import DECODERS, ConvESettings, build_decoder
from compgcn.encoders import Encoder, preset
from compgcn.errors import InputError, unknown
from compgcn.folder import Array, Folder, write_embeddings
from compgcn.graph import NORMS, RelationalGraph
from compgcn.ranking import by_category, by_relation, rank_triples, summary
from compgcn.sampling import seeded
from compgcn.tasks.link_prediction import Encoded, LinkPrediction, LinkPredictor
from compgcn.train import Event, Interrupted, optimise

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu, "none": lambda x: x}


class Prediction(NamedTuple):
    """One answer to a query, best first in a list of them."""

    entity: str  # its id
    name: str
    score: float  # a logit
    probability: float  # the sigmoid of the score
    known: str | None  # the split the fact already stands in


def fit(
    data: KnowledgeGraph,
    *,
    run_dir: str | Path | None = None,
    notify: Callable[[Event], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> Run:
    """Train a model on `data` in a run folder, resuming an unfinished run of the same settings.

    Args:
        data: from `compgcn.load` or `compgcn.read`.
        run_dir: the folder; `runs/<data>-<encoder>-<decoder>-<seed>` if not given.
        notify: called with every event, as `events.jsonl` gets them and one per step besides.
        interrupted: asked after every step; True stops cleanly with `compgcn.train.Interrupted`.
        settings: any of `compgcn.config`, such as `encoder="compgcn"`, `composition="corr"`, `epochs=100`, `lr=1e-3`.
    """
    return train(recommended(data.name, {"data.source": data.name, **settings}), data, run_dir, notify, interrupted)


def recommended(source: str, settings: dict[str, Any]) -> Config:
    """The defaults, then what the data set's recipe recommends, then the settings."""
    recipe = DATASETS[source].recipe if source in DATASETS else {}
    return configure(configure(Config(), recipe), settings)


def train(
    config: Config,
    data: KnowledgeGraph,
    run_dir: str | Path | None = None,
    notify: Callable[[Event], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Run:
    """Begin, resume or simply open the run of this config in its folder."""
    config = expand(config, data)
    folder = Folder(run_dir or default_folder(config))
    device = find_device(config.training.device)
    if folder.is_run:
        _must_match(folder, config)
        if folder.is_finished:
            return Run(folder, device)
    _must_be_trainable(data)
    with _seed(config.training.seed, device):
        task = build_task(config, data, device)
        _must_fill_batches(task)
        with folder.lock():
            if folder.is_run:
                _must_match(folder, config)
            else:
                folder.create(config, data)
            if not folder.is_finished:  # another process may have been quicker
                _train(task, config, folder, device, notify, interrupted)
    return Run(folder, device)


def _train(
    task: LinkPrediction,
    config: Config,
    folder: Folder,
    device: torch.device,
    notify: Callable[[Event], None] | None,
    interrupted: Callable[[], bool],
) -> None:
    def record(event: Event) -> None:
        if event["event"] != "step":
            folder.append(event)
        if notify is not None:
            notify(event)

    record({"event": "start", "time": time.time(), "steps": config.training.epochs * task.steps_per_epoch})
    progress = optimise(task, config.training, folder, record, interrupted)
    folder.restore(task.model)
    record({"event": "evaluate", "seconds": round(progress.seconds, 3)})
    popularity = Popularity(task.train, task.num_entities)
    metrics: dict[str, Any] = {}
    for split in ("valid", "test"):
        if interrupted():
            raise Interrupted
        metrics[split] = summary(task.ranks(split))
    metrics["best_epoch"], metrics["ties"] = progress.best_epoch, "realistic"
    baseline = rank_triples(popularity.score, task.splits["test"], task.known, task.num_entities)
    metrics["popularity"] = {"test": summary(baseline)}
    folder.describe_environment(device, config.training.seed, progress.seconds)
    folder.finish(metrics)
    record({"event": "end", "best_epoch": progress.best_epoch, "seconds": round(progress.seconds, 3)})


def open_run(path: str | Path, device: str = "auto") -> Run:
    """The run in a folder, to evaluate, predict and export from."""
    return Run(Folder(path), find_device(device))


class Run:
    """A trained model with its vocabulary and facts: all of it comes from the folder."""

    def __init__(self, folder: Folder, device: torch.device) -> None:
        self.folder, self.device = folder, device
        self.config = folder.config()
        self.data = folder.graph(self.config.data.source)
        self.metrics = folder.metrics()

    @property
    def path(self) -> Path:
        return self.folder.path

    @cached_property
    def task(self) -> LinkPrediction:
        """The model with the best weights, ready to rank and to answer."""
        data = self.data.with_features(*self.folder.features())
        with _seed(self.config.training.seed, self.device):
            task = build_task(self.config, data, self.device)
        self.folder.restore(task.model)
        task.model.eval()
        return task

    @cached_property
    def encoded(self) -> Encoded:
        """Vectors of the whole graph, made once."""
        with torch.inference_mode():
            return self.task.model.encode(self.task.graph)

    def predict(
        self, head: str | None = None, relation: str | None = None, tail: str | None = None, top: int = 10
    ) -> list[Prediction]:
        """The most probable tails of (head, relation, ?), or heads of (?, relation, tail); ids and names both work."""
        if relation is None or (head is None) == (tail is None):
            raise InputError("a prediction needs a relation and either a head or a tail")
        if top < 1:
            raise InputError(f"top must be at least 1, not {top}")
        r = self.data.relations.index(relation)
        if head is not None:
            s = self.data.entities.index(head)
        else:
            assert tail is not None
            s, r = self.data.entities.index(tail), r + self.data.num_relations
        with torch.inference_mode():
            query = (torch.tensor([i], device=self.device) for i in (s, r))
            scores = self.task.model.score(self.encoded, *query)[0]  # [N]
        if not torch.isfinite(scores).all():
            raise InputError("the model's scores are not finite; train again with a lower training.lr")
        best = scores.sort(descending=True, stable=True).indices[: min(top, len(scores))].tolist()
        known = self._known(s, r)
        probability = scores.double().sigmoid()
        ids, names = self.data.entities.ids, self.data.entities.names
        return [Prediction(ids[o], names[o], float(scores[o]), float(probability[o]), known.get(o)) for o in best]

    def _known(self, s: int, r: int) -> dict[int, str]:
        """Answers of a query that stand in the data -> their split."""
        inverse = r >= self.data.num_relations
        r, given, wanted = (r - self.data.num_relations, 2, 0) if inverse else (r, 0, 2)
        found: dict[int, str] = {}
        for split, triples in self.data.splits.items():
            rows = triples[(triples[:, 1] == r) & (triples[:, given] == s)]
            found = dict.fromkeys(rows[:, wanted].tolist(), split) | found
        return found

    def evaluate(
        self, split: str = "test", by: Literal["relation", "category", "side"] | None = None
    ) -> dict[str, Any]:
        """Filtered metrics of a split: of all of it, or by relation, category or side."""
        if split not in self.data.splits:
            raise unknown("split", split, self.data.splits)
        triples = torch.from_numpy(self.data.splits[split])
        sides = self.task.ranks(split)
        if by is None or by == "side":
            report = summary(sides)
            return report if by is None else {side: report[side] for side in ("head", "tail") if report}
        if by == "relation":
            reports = by_relation(sides, triples[:, 1])
            return {self.data.relations.ids[index]: report for index, report in reports.items()}
        if by == "category":
            train = torch.from_numpy(self.data.train)
            return dict(by_category(sides, triples[:, 1].to(self.device), train, self.data.num_relations))
        raise unknown("way to split metrics", by, ("relation", "category", "side"))

    def entity_embeddings(self) -> tuple[list[str], Array]:
        """Names and vectors [N, d] of all entities, as the encoder makes them."""
        return list(self.data.entities.names), self.encoded.entities.float().cpu().numpy()

    def relation_embeddings(self) -> tuple[list[str], Array]:
        """Names and vectors [2R, d] of all relations: originals, then inverses."""
        names = list(self.data.relations.names)
        return names + [f"{name} (inverse)" for name in names], self.encoded.relations.float().cpu().numpy()

    def export(self, path: str | Path) -> int:
        """Write both tables with ids and names to a .parquet or .tsv file; how many vectors that was."""
        tables = [
            (self.data.entities.ids, *self.entity_embeddings()),
            (self._relation_ids(), *self.relation_embeddings()),
        ]
        kinds = [kind for kind, table in zip(("entity", "relation"), tables, strict=True) for _ in table[0]]
        ids, names = ([text for table in tables for text in table[i]] for i in (0, 1))
        return write_embeddings(Path(path), kinds, ids, names, np.concatenate([table[2] for table in tables]))

    def _relation_ids(self) -> list[str]:
        ids = list(self.data.relations.ids)
        return ids + [f"{text} (inverse)" for text in ids]


def expand(config: Config, data: KnowledgeGraph) -> Config:
    """Fill in what a preset, a decoder or the data decide, and refuse names that are none."""
    row = preset(config.encoder.name)
    if config.decoder.name not in DECODERS:
        raise unknown("decoder", config.decoder.name, DECODERS)
    if config.encoder.norm is not None and config.encoder.norm not in NORMS:
        raise unknown("norm", config.encoder.norm, NORMS)
    resolve(config.encoder.composition or "corr")  # even where the preset has its own
    composition = row.composition or config.encoder.composition or "corr"
    dims = _dims(config.encoder, data)
    for dim in dims[:-1]:
        resolve(composition)(torch.zeros(1, dim), torch.zeros(1, dim))  # not every one takes every dimension
    fingerprint = data.fingerprint()
    if config.data.fingerprint not in (None, fingerprint):
        raise InputError(
            f"the data are not those the config was written for: data.fingerprint is {fingerprint}, not "
            f"{config.data.fingerprint}; leave it out to train on them anyway"
        )
    bias = config.decoder.entity_bias
    return configure(
        config,
        {
            "data.fingerprint": fingerprint,
            "encoder.composition": composition,
            "encoder.norm": config.encoder.norm or row.norm,
            "encoder.dims": dims,
            "decoder.entity_bias": DECODERS[config.decoder.name].entity_bias if bias is None else bias,
        },
    )


def _dims(encoder: EncoderSettings, data: KnowledgeGraph) -> tuple[int, ...]:
    """The dimensions in use: features that are given decide the first, and without layers there is only one."""
    dims = encoder.dims[-1:] if encoder.name == "none" else encoder.dims
    tables = (data.node_features, data.relation_features if preset(encoder.name).relations == "vectors" else None)
    given = [table for table in tables if table is not None]
    return (given[0].shape[1], *dims[1:]) if given else dims


def build_task(config: Config, data: KnowledgeGraph, device: torch.device) -> LinkPrediction:
    """The model and the task a config describes, with fresh weights."""
    splits = {name: torch.from_numpy(triples).to(device) for name, triples in data.splits.items()}
    graph = RelationalGraph.from_triples(splits["train"], data.num_entities, data.num_relations)
    if config.encoder.graph == "none":
        graph = graph.without_edges()
    elif config.encoder.graph == "random":
        graph = graph.randomised(seeded(config.training.seed))
    model = build_model(config, data).to(device)
    margin = (config.decoder.margin_decay, config.decoder.margin_patience)
    return LinkPrediction(model, graph, splits, config.training, margin)


def build_model(config: Config, data: KnowledgeGraph) -> LinkPredictor:
    """The encoder and the decoder a config describes."""
    e, d = config.encoder, config.decoder
    features = [None if f is None else torch.as_tensor(f) for f in (data.node_features, data.relation_features)]
    encoder = Encoder(
        data.num_entities,
        data.num_relations,
        e.dims,
        e.name,
        composition=e.composition,
        norm=e.norm,
        flow=e.flow,
        bases=e.bases,
        dropout=e.dropout,
        loop_dropout=e.loop_dropout,
        hidden_dropout=e.hidden_dropout,
        bias=e.bias,
        batch_norm=e.batch_norm,
        activation=ACTIVATIONS[e.activation],
        self_loop=e.self_loop,
        tie_inverse=e.tie_inverse,
        node_features=features[0],
        relation_features=features[1],
    )
    conve = ConvESettings(
        filters=d.filters,
        kernel=d.kernel,
        feature_dropout=d.feature_dropout,
        hidden_dropout=d.hidden_dropout,
        height=d.height,
    )
    decoder = build_decoder(
        d.name, data.num_entities, e.dims[-1], entity_bias=d.entity_bias, margin=d.margin, conve=conve
    )
    return LinkPredictor(encoder, decoder, tie_inverse=e.tie_inverse)


def default_folder(config: Config) -> Path:
    """runs/<data>-<encoder>-<decoder>-<seed>"""
    source = Path(config.data.source).name.split(".")[0] or "graph"
    return Path("runs") / f"{source}-{config.encoder.name}-{config.decoder.name}-{config.training.seed}"


def find_device(name: str) -> torch.device:
    """The device of that name; "auto" is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros((), device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(f"the device '{name}' is not there; use cpu, or auto for the best there is") from None
    return device


def _must_match(folder: Folder, config: Config) -> None:
    changed = differences(folder.config(), config)
    if changed:
        state = "a finished" if folder.is_finished else "an unfinished"
        raise InputError(
            f"{folder.path} holds {state} run with other options ({'; '.join(changed)}); choose another --run-dir"
        )


def _must_be_trainable(data: KnowledgeGraph) -> None:
    if not len(data.train):
        raise InputError(f"the graph '{data.name}' has no training triples")
    if data.num_entities < 2:
        raise InputError(f"the graph '{data.name}' has only one entity, so there is nothing to tell apart")


def _must_fill_batches(task: LinkPrediction) -> None:
    """Refuse batches of one query where the decoder normalises over the batch."""
    normalises = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in task.model.decoder.modules())
    if normalises and task.examples // task.steps_per_epoch < 2:
        raise InputError(
            f"with training.batch_size = {task.settings.batch_size} a batch can hold a single query, and this decoder "
            "normalises over the batch; raise batch_size"
        )


@contextmanager
def _seed(seed: int, device: torch.device) -> Iterator[None]:
    """Every random number inside comes from the seed, and none outside is touched."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which reaches every device
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
