"""A run: train a model on a graph or on many, open it again, ask it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from compgcn.answers.calibrate import restored, restored_weighing, stored
from compgcn.answers.classes import Classes, Classified
from compgcn.answers.discover import Discovery, discover
from compgcn.answers.explain import Contribution, Explanation, Method, explain
from compgcn.answers.export import write_vectors
from compgcn.answers.links import Links, Prediction
from compgcn.answers.rows import check_table
from compgcn.answers.score import Scored, Written, answer_file, facts_of, score_facts, write_scores
from compgcn.answers.similar import Neighbours, Similar
from compgcn.config import Config, configure, differences
from compgcn.data import GraphCollection, KnowledgeGraph, files
from compgcn.errors import InputError
from compgcn.run.build import TASKS, build_task, chosen_protocol, find_device, must_fill_batches, must_suffice
from compgcn.run.probabilities import CALIBRATED, calibrate, fit_probabilities
from compgcn.run.protocols import Session
from compgcn.run.resolve import candidates, expand, filled_in, recommended, with_features
from compgcn.run.unseen import Given, add_facts
from compgcn.tasks.inputs import Dataset
from compgcn.tasks.link_prediction import Encoded
from compgcn.tasks.sampling import randomness
from compgcn.train.folder import Folder, default_folder
from compgcn.train.loop import Event
from compgcn.train.storage import Array, Table, must_differ

__all__ = [
    "Classified",
    "Contribution",
    "Discovery",
    "Explanation",
    "Prediction",
    "Run",
    "Scored",
    "Similar",
    "fit",
    "open_run",
    "train",
]

Kind = Literal["entities", "relations", "classes", "discoveries"]  # of answers with probabilities


def fit(
    data: Dataset,
    *,
    model: str | None = None,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    notify: Callable[[Event], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> Run:
    """Train a model on `data` in a run folder, resuming an unfinished run of the same settings.

    Args:
        data: from `compgcn.load` or `compgcn.read`; a collection of graphs, to classify them.
        model: a whole system by its name in `compgcn.train.recipes`, such as "sacn"; the settings go over it.
        run_dir: the folder; `runs/<data>-<encoder>-<decoder>-<seed>` if not given, with a model
            `runs/<data>-<model>-<seed>`.
        overwrite: whether a run that is in the folder, of whatever settings, is removed and one begun anew.
        notify: called with every event, as `events.jsonl` gets them, and besides one per step and one per block of
            an evaluation or a calibration.
        interrupted: asked after every step, and every block of an evaluation or a calibration; True stops cleanly with
            `compgcn.train.loop.Interrupted`.
        settings: any of `compgcn.config`, such as `encoder="compgcn"`, `composition="corr"`, `epochs=100`, `lr=1e-3`;
            `task="node-classification"` and the like where the data leave a choice.
    """
    if not isinstance(data, (KnowledgeGraph, GraphCollection)):
        raise InputError(f"fit takes a graph, such as compgcn.read('triples.tsv'), not {data!r}")
    origin = {f"data.{key}": value for key, value in (data.origin or {"source": data.name}).items()}
    config = recommended({**origin, **settings}, data, model)
    if run_dir is None and model is not None:
        run_dir = default_folder(config, model)
    return train(config, data, run_dir, notify, interrupted, overwrite)


def train(
    config: Config,
    data: Dataset,
    run_dir: str | Path | None = None,
    notify: Callable[[Event], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    overwrite: bool = False,
) -> Run:
    """Begin, resume or simply open the run of this config in its folder; or begin it in the place of the one there."""
    config = expand(config, data)
    chosen_among = candidates(config, data)  # what is wrong with one is said before anything is trained
    folder = Folder(run_dir or default_folder(config), config.training.max_shard_mib)
    device = find_device(config.training.device)
    if folder.is_run and not overwrite:
        _must_match(folder, config)
        if folder.is_calibrated:
            return Run(folder, device)
    with randomness(config.training.seed, device):
        built = build_task(config, data, device)  # what is wrong is said before there is a folder
        must_fill_batches(config, built)
        assert config.task is not None
        must_suffice(config, chosen_among, TASKS[config.task].items(data))
        with folder.lock():
            if folder.is_run and overwrite:
                folder.clear()
            if folder.is_run:
                _must_match(folder, config)
            else:
                folder.create(config, data)
            if not folder.is_calibrated:  # another process may have been quicker
                _train(built, config, data, folder, device, notify, interrupted)
    return Run(folder, device)


def _train(
    built: Any,
    config: Config,
    data: Dataset,
    folder: Folder,
    device: torch.device,
    notify: Callable[[Event], None] | None,
    interrupted: Callable[[], bool],
) -> None:
    def record(event: Event) -> None:
        if event["event"] not in ("step", "progress"):
            folder.append(event)
        if notify is not None:
            notify(event)

    assert config.task is not None
    row = TASKS[config.task]
    splits, targets, classes = row.items(data)
    session = Session(
        config,
        built,
        lambda config: build_task(config, data, device),
        {split: torch.from_numpy(items).to(device) for split, items in splits.items()},
        torch.from_numpy(targets).to(device),
        classes,
        folder,
        device,
        record,
        interrupted,
        candidates(config, data),
    )
    record({"event": "start", "time": time.time(), "task": config.task})
    if folder.is_finished:  # it was stopped while it was calibrated
        metrics, session.seconds = folder.metrics(), folder.seconds()
        if config.classifier.protocol in CALIBRATED:
            folder.restore(built.model)
    else:
        metrics = chosen_protocol(config)(session)
        folder.describe_environment(device, config.training.seed, session.seconds)
        folder.finish(metrics)  # before anything else is begun: what was measured is not to be lost
    calibrate(session, data)
    folder.end_calibration()
    record({"event": "end", "best_epoch": metrics["best_epoch"], "seconds": round(session.seconds, 3)})


def _must_match(folder: Folder, config: Config) -> None:
    changed = differences(folder.config(), config)
    if changed:
        state = "a finished" if folder.is_finished else "an unfinished"
        raise InputError(
            f"{folder.path} holds {state} run with other options ({'; '.join(changed)}); choose another --run-dir, "
            "or say --overwrite to remove that run and train anew"
        )


def open_run(path: str | Path, device: str = "auto") -> Run:
    """The run in a folder, to evaluate, predict and export from."""
    return Run(Folder(path), find_device(device))


class Run:
    """A trained model with its vocabulary and data: all of it comes from the folder."""

    newcomers = 0  # entities that training never saw, see `with_facts`

    def __init__(self, folder: Folder, device: torch.device) -> None:
        self.folder, self.device = folder, device
        self.enlarged = False  # by facts that the folder does not hold
        self.metrics = folder.metrics()
        config = configure(folder.config(), self.metrics.get("settings", {}))  # those of the candidate chosen
        self.data = folder.data(config.data.source)
        self.config = filled_in(config, self.data, folder)

    def __repr__(self) -> str:
        return f"Run('{self.path}': {self.model_name} on {self.data.name}{'' if self.metrics else ', unfinished'})"

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def model_name(self) -> str:
        """What it is, in a few words."""
        e, classifier = self.config.encoder.name, self.config.classifier
        if classifier.protocol is None:
            return f"{e} + {self.config.decoder.name}"
        return f"{classifier.baseline or e}, {classifier.protocol}"

    @cached_property
    def task(self) -> Any:
        """The model with the best weights, ready to answer: a task, or all the items of a classification."""
        with randomness(self.config.training.seed, self.device):
            task = build_task(self.config, with_features(self.data, self.folder), self.device, whole=True)
        self.folder.restore(task.model)
        task.model.eval()
        return task

    @cached_property
    def answers(self) -> Links | Classes:
        """What the model can be asked."""
        assert self.config.task is not None
        found = TASKS[self.config.task].answers(self.config, self.data, self.task, self.metrics)
        found.scalings = restored(self.folder.calibration())
        if isinstance(found, Links):
            found.weighing = restored_weighing(self.folder.calibration())
        return found

    def calibrated(self, kind: Kind | None = None) -> str | None:
        """The split that the probabilities of a kind of answer are calibrated on; None where they are the model's own.

        Without a kind, of entities, or of the classes of a run that has such.
        """
        if kind is None:
            kind = "entities" if isinstance(self.answers, Links) else "classes"
        if kind == "discoveries":
            return "valid" if isinstance(self.answers, Links) and self.answers.weighing else None
        return "valid" if self.answers.scalings.get(kind) else None

    def calibrate(self) -> bool:
        """Calibrate a link predictor that was trained without, on validation; whether there was enough to fit to."""
        links = self._links()
        if self.enlarged:
            raise InputError(f"a run with more facts is calibrated as {self.path} is; calibrate that one, without them")
        fit_probabilities(links)
        found = any(links.scalings.values())
        if found:
            self.folder.keep_calibration(stored(links.scalings, links.weighing))
        return found

    @property
    def encoded(self) -> Encoded:
        """Vectors of the whole graph, made once."""
        return self._links().encoded

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        *,
        new: bool = False,
        plausible: bool = False,
    ) -> list[Prediction]:
        """The most probable tails of (head, relation, ?), heads of (?, relation, tail) or relations of (head, ?, tail).

        Ids and names both work. With `new`, facts that stand in the data already are left out; with `plausible`,
        entities that are never, in train, at that end of that relation. Scores and probabilities stay as they are.
        """
        links = self._links()
        query = links.query(head, relation, tail)
        if not isinstance(top, int) or top < 1:
            raise InputError(f"top must be a whole number from 1 on, not {top!r}")
        return links.answer([query], top, new, plausible)[0]

    def explain(self, head: str, relation: str, tail: str, top: int = 5, *, method: Method = "auto") -> Explanation:
        """The facts of train that carried a prediction, with what the score would lose without each; ids and names.

        With method "exact" every fact of the receptive field is left out in turn and the graph encoded again; with
        "gradient" the score's slope stands for that; "auto" is exact where the receptive field is small.
        """
        return explain(self._links(), head, relation, tail, top, method)

    def similar(
        self, name: str, top: int = 10, kind: Literal["entity", "relation", "graph"] = "entity"
    ) -> list[Similar]:
        """The nearest neighbours of an entity or a relation, by id or name, by the cosine of what the encoder makes.

        Inverses are relations too, as "borders (inverse)"; of a run that classifies graphs the entities are the graphs.
        """
        if kind == "entity" and isinstance(self.data, GraphCollection):
            kind = "graph"
        if kind not in self._neighbours:
            raise InputError(f"the run {self.path} has vectors of {' and '.join(self._neighbours)}, and none of {kind}")
        return self._neighbours[kind].nearest(name, top)

    @cached_property
    def _neighbours(self) -> dict[str, Neighbours]:
        """Of each kind of vectors, made once."""
        return {table.kind: Neighbours(table) for table in self.answers.tables()}

    def predict_file(
        self,
        queries: str | Path,
        to: str | Path,
        top: int = 10,
        *,
        new: bool = False,
        plausible: bool = False,
        notify: Callable[[int, int], None] | None = None,
    ) -> Written:
        """Answer a file of queries, in each of which one of head, relation and tail is `?` or empty, to another file.

        See `compgcn.answers.score.answer_file`.
        """
        must_differ(to, queries=queries)
        return answer_file(self._links(), queries, to, top, new, notify, plausible=plausible)

    def score(
        self, facts: files.Given, *, doubtful: bool = False, notify: Callable[[int, int], None] | None = None
    ) -> list[Scored]:
        """How believable facts are, known ones or others: score, probability, ranks, and the split each stands in.

        Args:
            facts: triples (head, relation, tail) by ids or names, in a table as for `predict_file` or in memory, as
                `compgcn.read` takes them.
            doubtful: the least believable first, see `compgcn.answers.score.Scores.doubtful`; else as they are given.
            notify: called with the facts scored so far, and how many there are.
        """
        links = self._links()
        found = score_facts(links, facts_of(links, facts), notify)
        return list((found.doubtful() if doubtful else found).named(links))

    def score_file(
        self,
        facts: files.Given,
        to: str | Path,
        *,
        doubtful: bool = False,
        notify: Callable[[int, int], None] | None = None,
    ) -> int:
        """The same, to a .parquet, .csv or .tsv file; how many facts there were."""
        links, table = self._links(), check_table(to)
        if isinstance(facts, (str, Path)):
            must_differ(table, facts=facts)
        found = score_facts(links, facts_of(links, facts), notify)
        return write_scores(links, found.doubtful() if doubtful else found, table)

    def discover(
        self,
        relation: str | None = None,
        top: int = 100,
        per_relation: int | None = None,
        *,
        all_heads: bool = False,
        notify: Callable[[int, int], None] | None = None,
    ) -> list[Discovery]:
        """The most probable facts that stand in no split, best first; see `compgcn.answers.discover.discover`."""
        return discover(self._links(), relation, top, per_relation, all_heads=all_heads, notify=notify)

    def with_facts(self, facts: Given) -> Run:
        """This run with more facts in its graph, nothing trained: what is asked of it is answered with them.

        Entities that training never saw are placed by their facts: their vectors are what their neighbours send. The
        facts count as facts of train from then on; the folder stays as it is.

        Args:
            facts: a file of triples, or triples (head, relation, tail), by ids or names; relations must be known. What
                was noticed of them, such as who is new, is in `data.notes` of what is returned.
        """
        links = self._links()
        data = links.data.with_features(*self.folder.features())
        other = Run(self.folder, self.device)
        other.enlarged = True
        other.data, other.task = add_facts(self.config, data, links.task, facts)
        other.newcomers = self.newcomers + other.data.num_entities - data.num_entities
        return other

    def classify(self, names: str | Sequence[str] | GraphCollection | None = None) -> list[Classified]:
        """The class of each of these nodes or graphs; of all nodes without a label, if none are given.

        To a run that classifies graphs a collection of others can be given.
        """
        return self.classes.classify(names)

    @property
    def classes(self) -> Classes:
        """The answers of a run that classifies."""
        if not isinstance(self.answers, Classes):
            raise InputError(f"the run {self.path} predicts links and has no classes; ask it with predict")
        return self.answers

    def _links(self) -> Links:
        if not isinstance(self.answers, Links):
            raise InputError(
                f"{self.path} is a run of {self.config.task}, and this asks one that predicts links; "
                f"ask for classes with run.classify, or compgcn predict {self.path} --item"
            )
        return self.answers

    def evaluate(
        self, split: str | None = None, by: Literal["relation", "category", "side", "class"] | None = None
    ) -> dict[str, Any]:
        """Metrics of a split: of all of it, or in parts: by relation, category or side of links, or by class.

        Without a split, of the one that the run reports on: test, or valid where its protocol has no test.
        """
        return self.answers.evaluate(split, by)

    def entity_embeddings(self) -> tuple[list[str], Array]:
        """Names and vectors [N, d] of all entities, as the encoder makes them."""
        return self._embeddings("entity")

    def relation_embeddings(self) -> tuple[list[str], Array]:
        """Names and vectors [2R, d] of all relations: originals, then inverses."""
        return self._embeddings("relation")

    def graph_embeddings(self) -> tuple[list[str], Array]:
        """Ids and vectors [G, d] of all graphs, as the readout makes them."""
        return self._embeddings("graph")

    def _embeddings(self, kind: str) -> tuple[list[str], Array]:
        tables: dict[str, Table] = {table.kind: table for table in self.answers.tables()}
        if kind not in tables:
            raise InputError(f"the run {self.path} has vectors of {' and '.join(tables)}, and none of {kind}")
        return tables[kind].names, tables[kind].vectors

    def export(self, path: str | Path, format: str | None = None) -> int:
        """Write all vectors with ids and names; how many vectors that was.

        The format goes by the ending of the name, .parquet, .tsv, .npy, .w2v or .vec, or is one of
        `compgcn.answers.export.FORMATS`: "projector" writes a folder for TensorBoard.
        """
        return write_vectors(Path(path), self.answers.tables(), format)
