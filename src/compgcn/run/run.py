"""A run: train a model on a graph or on many, open it again, ask it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from compgcn import processes
from compgcn.answers.calibrate import fit_temperature, restored, stored
from compgcn.answers.discover import Discovery, discover, weighing
from compgcn.answers.links import Links, Prediction, Progress, must_count
from compgcn.answers.links import fitted as fitted_scalings
from compgcn.config import FILES, Config, configure, differences
from compgcn.data import GraphCollection, KnowledgeGraph, files
from compgcn.errors import InputError
from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.run.build import CONDITIONAL, build_items, build_ranker, find_device
from compgcn.run.protocols import PROTOCOLS, ClassSession, LinkSession, Metrics, fitted, ranking
from compgcn.run.resolve import as_begun, must_suffice, resolve
from compgcn.tasks.classification import Graphs, Items, Nodes, log_probabilities
from compgcn.tasks.inputs import Dataset
from compgcn.tasks.link_prediction import NO_VECTORS, Encoded, Ranker
from compgcn.tasks.sampling import randomness
from compgcn.train.folder import Folder, default_folder
from compgcn.train.loop import Event
from compgcn.train.recipes import known_as
from compgcn.train.storage import Array, Split, Table, must_differ

if TYPE_CHECKING:  # loaded by the methods that need them
    from compgcn.answers.classes import Classes, Classified
    from compgcn.answers.explain import Explanation, Method
    from compgcn.answers.score import Scored, Written
    from compgcn.answers.similar import Neighbours, Similar

Kind = Literal["entities", "relations", "classes", "discoveries"]  # of answers with probabilities


def fit(
    data: Dataset,
    *,
    model: str | None = None,
    minutes: float | None = None,
    trials: int | None = None,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    notify: Callable[[Event], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> Run:
    """Train a model on `data` in a run folder, resuming an unfinished run of the same settings.

    Args:
        data: from `compgcn.load` or `compgcn.read`; a collection of graphs, to classify them.
        model: a whole model by its name in `compgcn.train.recipes`, such as "sacn"; the settings go over it.
        minutes, trials: compare models on validation for so long, or by so many trainings, and keep the best one; see
            `compgcn.run.portfolio`.
        run_dir: the folder; `runs/<data>-<encoder>-<decoder>-<seed>` if not given, with the parts of a
            model `runs/<data>-<model>-<seed>`, of a comparison `runs/<data>-best-<seed>`, for labels `best-labels`.
        overwrite: whether to remove a run that is in the folder, of whatever settings, and begin anew.
        notify: called with every event of `events.jsonl`, and for every step and every block of an evaluation or a
            calibration.
        interrupted: asked after every step and every such block; True stops cleanly with
            `compgcn.train.loop.Interrupted`.
        settings: any of `compgcn.config`, such as `encoder="compgcn"`, `composition="corr"`, `epochs=100`, `lr=1e-3`;
            `task="node-classification"` and the like where the data leave a choice.
    """
    if not isinstance(data, (KnowledgeGraph, GraphCollection)):
        raise InputError(f"fit takes a graph, such as compgcn.read('triples.tsv'), not {data!r}")
    origin = {f"data.{key}": value for key, value in (data.origin or {"source": data.name}).items()}
    if minutes is not None or trials is not None:
        from compgcn.run import portfolio

        given = {**origin, **settings}
        budget = portfolio.budget(minutes, trials, given, data, model)
        assert isinstance(data, KnowledgeGraph)  # or it is refused
        assert not isinstance(budget, str)
        return portfolio.search(given, data, budget, run_dir, notify, interrupted, overwrite)
    config = resolve({**origin, **settings}, data, model).config
    folder = Folder(run_dir or default_folder(config, known_as(model, config)))
    config = config if overwrite else as_begun(config, settings, folder)
    return train(config, data, folder.path, notify, interrupted, overwrite)


def train(
    config: Config,
    data: Dataset,
    run_dir: str | Path | None = None,
    notify: Callable[[Event], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    overwrite: bool = False,
) -> Run:
    """Begin, resume or simply open the run of a resolved config in its folder; with `overwrite`, begin it anew."""
    folder = Folder(run_dir or default_folder(config))
    device = find_device(config.training.device)
    must_suffice(config, data)
    if processes.size() > 1 and config.task != "link-prediction":
        raise InputError(f"torchrun trains link prediction, and this is {config.task}; train it without torchrun")
    if folder.is_run and not overwrite:
        _must_match(folder, config)
        if folder.is_calibrated:
            return Run(folder, device)
        folder.data(data.name)  # a damaged file shows now, not after the training
    elif not overwrite and (folder.path / "search").exists():
        raise InputError(f"{folder.path} holds an unfinished search; choose another --run-dir, or say --overwrite")
    record = folder.recorded(notify or (lambda event: None))
    with randomness(config.training.seed, device):
        # Built before there is a folder: an error leaves none behind.
        session = open_session(config, data, folder, device, record, lambda: processes.anyone(interrupted()))
        if isinstance(session, LinkSession):
            folder.split = _split(session.task)
        with folder.lock():
            if overwrite:
                folder.clear()
            if folder.is_run:
                _must_match(folder, config)
            else:
                folder.create(config, data)
            if not folder.is_calibrated:  # another process may have been quicker
                _train(session)
    return Run(folder, device)


def _split(task: Ranker) -> Split | None:
    """Return the weights of which every process has some rows, if there are any."""
    if processes.size() == 1 or isinstance(task.model, ConditionalCompGCN):
        return None
    from compgcn.shards.link_prediction import ENTITY_ROWS
    from compgcn.shards.rows import Rows

    rows = Rows(task.num_entities, processes.World())
    return Split(ENTITY_ROWS, rows.start, rows.stop, rows.total)


def open_session(
    config: Config,
    data: Dataset,
    folder: Folder,
    device: torch.device,
    record: Callable[[Event], None],
    interrupted: Callable[[], bool],
) -> LinkSession | ClassSession:
    """Build the model of a run with fresh weights, and all that training it takes."""
    if isinstance(data, KnowledgeGraph) and config.task == "link-prediction":
        return LinkSession(config, data, folder, device, record, interrupted)
    return ClassSession(config, data, folder, device, record, interrupted)


def _train(session: LinkSession | ClassSession) -> None:
    """Train, measure and calibrate; or only calibrate a run that was stopped in between."""
    folder, config = session.folder, session.config
    session.record({"event": "start", "time": time.time(), "task": config.task})
    if folder.is_finished:
        metrics, session.seconds = folder.metrics(), folder.seconds()
        if isinstance(session, LinkSession):
            folder.restore(session.task.model)
        elif config.classifier.protocol == "holdout":
            folder.restore(session.items.model)
    else:
        metrics = _measure(session)
        folder.describe_environment(session.device, config.training.seed, session.seconds)
        folder.finish(metrics)
    _calibrate(session)
    folder.end_calibration()
    session.record({"event": "end", "best_epoch": metrics["best_epoch"], "seconds": round(session.seconds, 3)})


def _measure(session: LinkSession | ClassSession) -> Metrics:
    if isinstance(session, LinkSession):
        return ranking(session)
    if not isinstance(session.items, (Nodes, Graphs)):
        return fitted(session, session.items)
    return PROTOCOLS[session.config.classifier.protocol or "refit"](session)


def _calibrate(session: LinkSession | ClassSession) -> None:
    """Fit the probabilities of the model to validation, if training left it out."""
    if isinstance(session, LinkSession):
        session.task.model.eval()
        links = Links(session.config, session.data, session.task)
        if fit_probabilities(links, lambda kind: session.told(f"calibrating {kind}")):
            session.folder.keep_calibration(stored(links.scalings, links.weighing))
    elif session.config.classifier.protocol == "holdout" and len(valid := session.validation()[1]):
        found = log_probabilities(session.items, valid, session.training.batch_size)
        if (scaling := fit_temperature(found, session.targets[valid])) is not None:
            session.folder.keep_calibration(stored({"classes": scaling}, None))


def fit_probabilities(links: Links, told: Callable[[str], Progress | None] = lambda kind: None) -> bool:
    """Calibrate the answers of a link predictor, then its discoveries; return whether validation was large enough.

    `told` maps "entities", "relations" and "discoveries" to functions that are told of the progress.
    """
    links.scalings = fitted_scalings(links, told)
    links.weighing = weighing(links, told("discoveries"))
    return any(links.scalings.values())


def _must_match(folder: Folder, config: Config) -> None:
    if changed := differences(folder.config(), config):
        state = "a finished" if folder.is_finished else "an unfinished"
        raise InputError(
            f"{folder.path} holds {state} run with other options ({'; '.join(changed)}); choose another --run-dir, "
            "or say --overwrite to remove that run and train anew"
        )


def open_run(path: str | Path, device: str = "auto") -> Run:
    """Open the run in a folder."""
    return Run(Folder(path), find_device(device))


class Run:
    """A trained model with its vocabulary and data, all from its folder."""

    newcomers = 0  # unseen entities, see `with_facts` and `with_graph`

    def __init__(self, folder: Folder, device: torch.device) -> None:
        self.folder, self.device = folder, device
        self.enlarged = False  # whether it has facts that the folder does not hold
        self.metrics = folder.metrics()
        self.config = configure(folder.config(), self.metrics.get("settings", {}))  # of the candidate chosen
        self.data = folder.data(self.config.data.source)

    def __repr__(self) -> str:
        return f"Run('{self.path}': {self.model_name} on {self.data.name}{'' if self.metrics else ', unfinished'})"

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def model_name(self) -> str:
        """The encoder and the decoder, those that it has, or the protocol."""
        e, classifier = self.config.encoder.name, self.config.classifier
        if classifier.protocol is None:
            return e if e == CONDITIONAL else f"{e} + {self.config.decoder.name}".removeprefix("none + ")
        return f"{classifier.baseline or e}, {classifier.protocol}"

    @cached_property
    def task(self) -> Ranker | Items:
        """The model with the best weights: a ranker of links, or all the items of a classification."""
        config, device, data = self.config, self.device, self.data
        nodes, relations = self.folder.features()
        built: Ranker | Items
        with randomness(config.training.seed, device):
            if isinstance(data, GraphCollection):
                built = build_items(config, data if nodes is None else replace(data, node_features=nodes), device)
            elif config.task == "link-prediction":
                built = build_ranker(config, data.with_features(nodes, relations), device)
            else:
                built = build_items(config, data.with_features(nodes, relations), device, whole=True)
        if isinstance(built, Ranker):
            self.folder.split = _split(built)
        self.folder.restore(built.model)
        built.model.eval()
        return built

    @cached_property
    def answers(self) -> Links | Classes:
        scalings, found = restored(self.folder.calibration())
        if isinstance(self.task, Ranker) and isinstance(self.data, KnowledgeGraph):
            links = Links(self.config, self.data, self.task)
            links.scalings = scalings
            links.weighing = found if len(self.data.valid) else None  # it weighs rates that validation tells
            return links
        from compgcn.answers.classes import Classes

        assert not isinstance(self.task, Ranker)
        classes = Classes(self.config, self.data, self.task, self.metrics)
        classes.scalings = scalings
        return classes

    def calibrated(self, kind: Kind | None = None) -> str | None:
        """Return the split that calibrates the probabilities of a kind of answer; None if nothing does.

        The kind is "entities" by default, or "classes" in a classification.
        """
        if kind is None:
            kind = "entities" if isinstance(self.answers, Links) else "classes"
        if kind == "discoveries":
            return "valid" if isinstance(self.answers, Links) and self.answers.weighing else None
        return "valid" if self.answers.scalings.get(kind) else None

    def calibrate(self) -> bool:
        """Calibrate a link predictor that has no calibration; return whether validation was large enough."""
        links = self._links()
        if self.enlarged:
            raise InputError(f"a run about other facts has the calibration of {self.path}; calibrate that run")
        found = fit_probabilities(links)
        if found:
            self.folder.keep_calibration(stored(links.scalings, links.weighing))
        return found

    @property
    def ranker(self) -> Ranker:
        """The link predictor on its graph."""
        return self._links().task

    @property
    def encoded(self) -> Encoded:
        """The vectors of the whole graph, made once."""
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
        """Predict the tails of (head, relation, ?), heads of (?, relation, tail) or relations of (head, ?, tail).

        Ids and names both work. `new` leaves out facts of the data; `plausible` leaves out entities that train never
        has at that end of the relation. Neither changes scores and probabilities.
        """
        links = self._links()
        query = links.query(head, relation, tail)
        must_count("top", top)
        return links.answer([query], top, new, plausible)[0]

    def explain(self, head: str, relation: str, tail: str, top: int = 5, *, method: Method = "auto") -> Explanation:
        """Return the facts of train that carry a prediction, by ids or names; see `compgcn.answers.explain.explain`.

        `method`: "exact" leaves out each fact in turn, "gradient" takes the slope of the score; "auto" is exact if that
        is little work.
        """
        from compgcn.answers.explain import explain

        return explain(self._links(), head, relation, tail, top, method)

    def similar(
        self, name: str, top: int = 10, kind: Literal["entity", "relation", "graph"] = "entity"
    ) -> list[Similar]:
        """Return the nearest neighbours of an entity or a relation, by id or name, by the cosine of their vectors.

        Inverses are relations too, as "borders (inverse)"; a run that classifies graphs compares graphs.
        """
        if kind == "entity" and isinstance(self.data, GraphCollection):
            kind = "graph"
        if kind not in self._neighbours:
            raise self._has_none(kind, self._neighbours)
        return self._neighbours[kind].nearest(name, top)

    @cached_property
    def _neighbours(self) -> dict[str, Neighbours]:
        from compgcn.answers.similar import Neighbours

        return {table.kind: Neighbours(table) for table in self.answers.tables()}

    def must_spare(self, to: str | Path | None) -> None:
        """Refuse to write over a file that the run was trained on."""
        given = self.config.data.model_dump(include=FILES).values() if to is not None else ()
        for place in (Path(), *self.path.resolve().parents):  # a relative path may lead from any of them
            for read in (place / str(file) for file in given if file is not None):
                for file in read.glob("*") if os.path.isdir(read) else (read,):  # one that cannot be read has none
                    must_differ(to, data=file)

    def predict_file(
        self,
        queries: str | Path,
        to: str | Path,
        top: int = 10,
        *,
        new: bool = False,
        plausible: bool = False,
        notify: Progress | None = None,
    ) -> Written:
        """Answer a table of queries, each with `?` for one of head, relation and tail, and write a table of answers.

        The files end in .tsv, .csv or .parquet, see `compgcn.answers.score.answer_file`; `new` and `plausible` as in
        `predict`.
        """
        from compgcn.answers.score import answer_file

        must_differ(to, queries=queries)
        self.must_spare(to)
        return answer_file(self._links(), queries, to, top, new, notify, plausible=plausible)

    def score(self, facts: files.Given, *, doubtful: bool = False, notify: Progress | None = None) -> list[Scored]:
        """Return score, probability, ranks and split of facts, known or not.

        Args:
            facts: triples (head, relation, tail) by ids or names, in a table as for `predict_file` or in memory, as
                `compgcn.read` takes them.
            doubtful: sort the least believable first, see `compgcn.answers.score.Scores.doubtful`.
            notify: called with the facts scored so far, and their number.
        """
        from compgcn.answers.score import facts_of, score_facts

        links = self._links()
        found = score_facts(links, facts_of(links, facts), notify)
        return list((found.doubtful() if doubtful else found).named(links))

    def score_file(
        self, facts: files.Given, to: str | Path, *, doubtful: bool = False, notify: Progress | None = None
    ) -> int:
        """Write the scores to a .parquet, .csv or .tsv file; return the number of facts."""
        from compgcn.answers.rows import check_table
        from compgcn.answers.score import facts_of, score_facts, write_scores

        links, table = self._links(), check_table(to)
        if isinstance(facts, (str, Path)):
            must_differ(table, facts=facts)
        self.must_spare(table)
        found = score_facts(links, facts_of(links, facts), notify)
        return write_scores(links, found.doubtful() if doubtful else found, table)

    def discover(
        self,
        relation: str | None = None,
        top: int = 100,
        per_relation: int | None = None,
        *,
        all_heads: bool = False,
        notify: Progress | None = None,
    ) -> list[Discovery]:
        """Return the most probable facts that no split holds, best first; see `compgcn.answers.discover.discover`.

        `top` in all and `per_relation` of each at most; `all_heads` asks about every entity, not only likely heads.
        """
        return discover(self._links(), relation, top, per_relation, all_heads=all_heads, notify=notify)

    def with_facts(self, facts: files.Given) -> Run:
        """Return this run with more facts in its graph; the folder stays as it is.

        The row of an unseen entity is trained on its facts, and nothing else is. The facts count as facts of train.

        Args:
            facts: a file of triples (head, relation, tail), or triples in memory as `compgcn.read` takes them, by ids
                or names; relations must be known.
                `data.notes` of the returned run lists unseen entities and dropped facts.
        """
        from compgcn.run.unseen import add_facts

        if self.folder.split is not None:
            raise InputError("several processes share the entities of this run; add facts without torchrun")
        links, data = self._links(), self._links().data
        if not isinstance(links.task.model, ConditionalCompGCN):
            data = data.with_features(*self.folder.features())
        larger, task = add_facts(self.config, data, links.task, facts)
        return self._about(larger, task, self.newcomers + larger.num_entities - data.num_entities)

    def with_graph(self, graph: KnowledgeGraph | str | Path) -> Run:
        """Return this run on another graph with the same relations, without training; the folder stays as it is.

        Only a model conditioned on the query can do it. It sees the graph's train; all three splits count as known.

        Args:
            graph: from `compgcn.read` or `compgcn.load`; or a data set's name, or a file, all of whose facts are train.
                Its relations must be known, by id or name.
        """
        from compgcn.run.unseen import ask_about, read_graph

        links = self._links()
        data = read_graph(graph, self.config.data) if isinstance(graph, (str, Path)) else graph
        if not isinstance(data, KnowledgeGraph):
            raise InputError(f"with_graph takes a graph, such as compgcn.read('triples.tsv'), not {data!r}")
        asked, task = ask_about(self.config, data, links.task, links.data.relations)
        return self._about(asked, task, asked.num_entities)

    def _about(self, data: KnowledgeGraph, task: Ranker, newcomers: int) -> Run:
        """Return this run with other data and its model on them."""
        other = Run(self.folder, self.device)
        other.enlarged, other.newcomers = True, newcomers
        other.data, other.task = data, task
        return other

    def classify(self, names: str | Sequence[str] | GraphCollection | None = None) -> list[Classified]:
        """Classify nodes or graphs by id or name; by default all nodes without a label.

        A run that classifies graphs takes a collection of other graphs too.
        """
        return self.classes.classify(names)

    @property
    def classes(self) -> Classes:
        if isinstance(self.answers, Links):
            raise InputError(f"the run {self.path} predicts links and has no classes; ask it with predict")
        return self.answers

    def _links(self) -> Links:
        if not isinstance(self.answers, Links):
            raise InputError(
                f"{self.path} is a run of {self.config.task} and predicts no links; ask for classes with "
                f"run.classify, or compgcn predict {self.path} --item"
            )
        return self.answers

    def evaluate(
        self, split: str | None = None, by: Literal["relation", "category", "side", "class"] | None = None
    ) -> dict[str, Any]:
        """Return the metrics of a split, whole or by relation, category or side of links, or by class.

        The default split is test, or valid if the protocol has no test.
        """
        return self.answers.evaluate(split, by)

    def entity_embeddings(self) -> tuple[list[str], Array]:
        """Return names and vectors [N, d] of all entities."""
        return self._embeddings("entity")

    def relation_embeddings(self) -> tuple[list[str], Array]:
        """Return names and vectors [2R, d] of all relations: originals, then inverses."""
        return self._embeddings("relation")

    def graph_embeddings(self) -> tuple[list[str], Array]:
        """Return ids and vectors [G, d] of all graphs."""
        return self._embeddings("graph")

    def _embeddings(self, kind: str) -> tuple[list[str], Array]:
        tables: dict[str, Table] = {table.kind: table for table in self.answers.tables()}
        if kind not in tables:
            raise self._has_none(kind, tables)
        return tables[kind].names, tables[kind].vectors

    def _has_none(self, kind: str, kinds: Iterable[str]) -> InputError:
        if kind == "entity" and isinstance(self.task.model, ConditionalCompGCN):
            return InputError(NO_VECTORS)
        return InputError(f"the run {self.path} has vectors of {' and '.join(kinds)}, and none of {kind}")

    def export(self, path: str | Path, format: str | None = None) -> int:
        """Write all vectors with ids and names; return their number.

        The ending of the name, .parquet, .tsv, .npy, .w2v or .vec, gives the format, or one of
        `compgcn.answers.export.FORMATS`: "projector" writes a folder for TensorBoard.
        """
        from compgcn.answers.export import write_vectors

        self.must_spare(path)
        return write_vectors(Path(path), self.answers.tables(), format)
