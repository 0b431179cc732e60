"""A run: train a model on a graph, open it again, ask it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compgcn.baselines.popularity import Popularity
from compgcn.build import (
    build_task,
    default_folder,
    expand,
    find_device,
    must_be_trainable,
    must_fill_batches,
    recommended,
)
from compgcn.config import Config, differences
from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError, unknown
from compgcn.folder import Folder
from compgcn.ranking import by_category, by_relation, rank_triples, summary
from compgcn.storage import Array, write_embeddings
from compgcn.tasks.link_prediction import Encoded, LinkPrediction
from compgcn.train import Event, Interrupted, optimise


class Prediction(NamedTuple):
    """One answer to a query, best first in a list of them."""

    entity: str  # its id
    name: str
    score: float  # a logit
    probability: float  # the sigmoid of the score, or its softmax after training with cross-entropy
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
    if not isinstance(data, KnowledgeGraph):
        raise InputError(f"fit takes a graph, such as compgcn.read('triples.tsv'), not {data!r}")
    origin = {f"data.{key}": value for key, value in (data.origin or {"source": data.name}).items()}
    return train(recommended({**origin, **settings}), data, run_dir, notify, interrupted)


def train(
    config: Config,
    data: KnowledgeGraph,
    run_dir: str | Path | None = None,
    notify: Callable[[Event], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Run:
    """Begin, resume or simply open the run of this config in its folder."""
    config = expand(config, data)
    folder = Folder(run_dir or default_folder(config), config.training.max_shard_mib)
    device = find_device(config.training.device)
    if folder.is_run:
        _must_match(folder, config)
        if folder.is_finished:
            return Run(folder, device)
    must_be_trainable(data)
    with _seed(config.training.seed, device):
        task = build_task(config, data, device)
        must_fill_batches(task)
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


def _must_match(folder: Folder, config: Config) -> None:
    changed = differences(folder.config(), config)
    if changed:
        state = "a finished" if folder.is_finished else "an unfinished"
        raise InputError(
            f"{folder.path} holds {state} run with other options ({'; '.join(changed)}); choose another --run-dir"
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

    def __repr__(self) -> str:
        e, d = self.config.encoder.name, self.config.decoder.name
        return f"Run('{self.path}': {e} + {d} on {self.data.name}{'' if self.metrics else ', unfinished'})"

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
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        *,
        new: bool = False,
    ) -> list[Prediction]:
        """The most probable tails of (head, relation, ?), or heads of (?, relation, tail); ids and names both work.

        With `new`, facts that stand in the data already are left out.
        """
        if relation is None or (head is None) == (tail is None):
            raise InputError("a prediction needs a relation and either a head or a tail")
        if not isinstance(top, int) or top < 1:
            raise InputError(f"top must be a whole number from 1 on, not {top!r}")
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
        known = self._known(s, r)
        best = scores.sort(descending=True, stable=True).indices.tolist()
        best = [o for o in best if o not in known][:top] if new else best[:top]
        probability = self._probabilities(scores)
        ids, names = self.data.entities.ids, self.data.entities.names
        values, chances = scores[best].tolist(), probability[best].tolist()
        rows = zip(best, values, chances, strict=True)
        return [Prediction(ids[o], names[o], score, chance, known.get(o)) for o, score, chance in rows]

    def _probabilities(self, scores: Tensor) -> Tensor:
        """Of each entity [N]: among all where training weighed them against each other, else each for itself."""
        together = self.config.training.loss == "cross-entropy"
        return scores.double().softmax(0) if together else scores.double().sigmoid()

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
