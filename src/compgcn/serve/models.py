"""A served model: a run opened and encoded once, its names and answers as JSON, and the queues in front of it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property, partial
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeVar

from fastapi import HTTPException, Response
from pydantic_core import to_json

from compgcn.answers.explain import Contribution
from compgcn.answers.links import Links, Prediction, Query
from compgcn.answers.paths import Step
from compgcn.answers.similar import pca
from compgcn.data import Vocabulary
from compgcn.errors import InputError
from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.run.run import Kind, Run, open_run
from compgcn.serve.batching import Batcher
from compgcn.serve.graph_index import GraphIndex
from compgcn.serve.middleware import Limits
from compgcn.serve.shapes import POINTS
from compgcn.train.loop import Event

_KINDS: tuple[Kind, ...] = ("entities", "relations", "discoveries")  # of answers with probabilities
_PROPAGATIONS = 4  # queries of a model conditioned on the query that are answered in one go
_PASSED = 2**24  # edges that a query for a relation may pass in all: about a second on a core
_METRICS = ("valid", "test", "best_epoch", "ties")  # that the card shows

Asked = tuple[Query, int, bool]  # rows of head, relation and tail, one None; number of answers; new facts only
Answer = TypeVar("Answer")


class ServedModel:
    """A link predictor and its queues: predictions in batches, explanations and look-ups one by one."""

    def __init__(self, name: str, run: Run, limits: Limits) -> None:
        if not isinstance(run.answers, Links):
            raise InputError(
                f"{run.path} is a run of {run.config.task}, and serve needs a run that predicts links; "
                f"use compgcn predict {run.path} --item"
            )
        self.name, self.run, self.links, self.data = name, run, run.answers, run.answers.data
        self.index = GraphIndex(self.data)
        self._turn = _turn()
        self._warm_up()
        waits = limits.queue, limits.seconds
        batch = limits.batch if self.has_vectors else min(limits.batch, _PROPAGATIONS)
        self.predictions = Batcher((name, "predict"), self._predict, batch, *waits)
        self.explanations = Batcher[Callable[[], Response], Response]((name, "explain"), _one_by_one, 1, *waits)
        self._views = Batcher[Callable[[], Any], Any]((name, "look"), _one_by_one, 1, *waits)
        self.queues: tuple[Batcher[Any, Any], ...] = (self.predictions, self.explanations, self._views)

    def _warm_up(self) -> None:
        """Build every table before the first client asks, and find a broken model now."""
        for vocabulary in (self.data.entities, self.data.relations):
            vocabulary.find("\0")
        if self.data.num_entities and self.data.num_relations:
            self.links.answer([(0, 0, None)], 1)
            if self.has_vectors:  # else a query for each relation
                self.links.answer([(0, None, 0)], 1)
        _ = self.card, self.relations, self.links.known_relations

    @property
    def has_vectors(self) -> bool:
        """Whether entities have vectors, to be compared and to be drawn."""
        return not isinstance(self.links.task.model, ConditionalCompGCN)

    def must_answer(self, query: Query) -> None:
        """Refuse a query for a relation that would pass too often through the graph."""
        passed = self.data.num_relations * self.links.task.graph.num_edges
        if query[1] is None and not self.has_vectors and passed > _PASSED:
            raise InputError(
                f"this model goes through the graph once for each of its {self.data.num_relations} relations to find "
                "the relation of two entities, which takes too long here; ask for a head or a tail"
            )

    # Names

    async def entity(self, text: str) -> int:
        return await self._row(self.data.entities, text)

    async def relation(self, text: str) -> int:
        return await self._row(self.data.relations, text)

    async def _row(self, vocabulary: Vocabulary, text: str) -> int:
        row = vocabulary.find(text)
        if row is None:
            try:  # on a thread: suggestions take time
                row = await self.look(vocabulary.index, text)
            except InputError as error:
                raise HTTPException(404, str(error)) from None
        return row

    def named_entity(self, row: int) -> dict[str, str]:
        return {"id": self.data.entities.ids[row], "name": self.data.entities.names[row]}

    def named_relation(self, row: int) -> dict[str, str]:
        return {"id": self.data.relations.ids[row], "name": self.data.relations.names[row]}

    def named_fact(self, s: int, r: int, o: int) -> dict[str, Any]:
        return {"head": self.named_entity(s), "relation": self.named_relation(r), "tail": self.named_entity(o)}

    # Answers, computed on the threads of the queues

    async def look(self, work: Callable[..., Answer], *given: Any) -> Answer:
        """Return the answer of a method below that scores nothing, or of a vocabulary."""
        answer: Answer = await self._views.ask(partial(work, *given))
        return answer

    def _predict(self, asked: list[Asked]) -> list[list[Prediction]]:
        """Answer a batch; score the queries that want the same number of answers together."""
        answers: list[list[Prediction]] = [[]] * len(asked)
        groups: dict[tuple[int, bool], list[int]] = {}
        for place, (_, top, new) in enumerate(asked):
            groups.setdefault((top, new), []).append(place)
        with self._turn:
            for (top, new), places in groups.items():
                found = self.links.answer([asked[place][0] for place in places], top, new)
                for place, answer in zip(places, found, strict=True):
                    answers[place] = answer
        return answers

    def explain(self, fact: tuple[int, int, int], top: int) -> Response:
        """Return the facts behind a prediction, with their contributions."""
        given = self.named_fact(*fact)
        with self._turn:
            found = self.run.explain(given["head"]["id"], given["relation"]["id"], given["tail"]["id"], top)

        def parts(each: Contribution | Step) -> dict[str, Any]:
            return {part: {"id": getattr(each, part), "name": getattr(each, f"{part}_name")} for part in given}

        facts = [
            {"rank": rank, **parts(each), "contribution": each.contribution, "itself": found.is_itself(each)}
            for rank, each in enumerate(found.facts, 1)
        ]
        paths = []
        for rank, path in enumerate(found.paths, 1):
            steps = [{**parts(one), "forward": one.forward, "importance": one.importance} for one in path.steps]
            paths.append({"rank": rank, "importance": path.importance, "steps": steps})
        fields = {name: getattr(found, name) for name in ("score", "probability", "known", "method", "edges", "hidden")}
        return as_json({**given, **fields, "facts": facts, "paths": paths})

    def similar(self, entity: int, top: int) -> Response:
        found = self.run.similar(self.data.entities.ids[entity], top)
        answers = [{"rank": rank, **near._asdict()} for rank, near in enumerate(found, 1)]
        return as_json({"entity": self.named_entity(entity), "answers": answers})

    def search(self, text: str, limit: int) -> Response:
        """Return the entities with this text in their names or ids."""
        rows, degree = self.index.search(text, limit), self.index.degree
        return as_json({"entities": [{**self.named_entity(row), "degree": int(degree[row])} for row in rows]})

    def neighbourhood(self, entity: int, limit: int) -> Response:
        """Return the facts about an entity, and the split of each."""
        index = self.index
        facts = [
            {**self.named_fact(*index.facts[i].tolist()), "split": index.splits[index.split[i]]}
            for i in index.around(entity, limit)
        ]
        return as_json({"entity": self.named_entity(entity), "total": int(index.degree[entity]), "facts": facts})

    def map(self, limit: int) -> Response:
        """Return the best connected entities on the map."""
        points, explained = self._map
        return as_json({"points": points[:limit], "explained": explained, "types": "relation"})

    @cached_property
    def _map(self) -> tuple[list[dict[str, Any]], list[float]]:
        """Every point of the map, and the share of the variance along each axis."""
        shown, types, degree = self.index.by_degree[:POINTS], self.index.types, self.index.degree
        plane = pca(self.links.encoded.entities.detach().float().cpu().numpy(), shown)
        points = [
            {**self.named_entity(row), "x": x, "y": y, "degree": int(degree[row]), "type": types[row]}
            for row, (x, y) in zip(shown.tolist(), plane.places.tolist(), strict=True)
        ]
        return points, plane.explained

    @cached_property
    def relations(self) -> list[dict[str, Any]]:
        return [{**self.named_relation(r), "facts": n} for r, n in enumerate(self.index.facts_of_relation.tolist())]

    @cached_property
    def card(self) -> dict[str, Any]:
        """Description of the model, without any path of the server's disk."""
        config = self.run.config.model_dump(mode="json", include={"encoder", "decoder", "training"})
        config["training"].pop("device")
        examples = self.index.examples()
        return {
            "id": self.name,
            "name": self.run.model_name,
            "data": Path(self.data.name).name,
            "task": self.run.config.task,
            "entities": self.data.num_entities,
            "relations": self.data.num_relations,
            "facts": len(self.index.facts),
            "parameters": sum(parameter.numel() for parameter in self.run.task.model.parameters()),
            "metrics": {key: value for key, value in self.run.metrics.items() if key in _METRICS},
            "config": config,
            "curve": _curve(self.run.folder.events()),
            "examples": [{"head": self.named_entity(s), "relation": self.named_relation(r)} for s, r in examples],
            "vectors": self.has_vectors,
            "calibrated": [kind for kind in _KINDS if self.run.calibrated(kind) is not None],
        }


def open_all(paths: Sequence[Path], limits: Limits, device: str = "auto") -> Mapping[str, ServedModel]:
    """Open runs by id: the folder's name, with a number where several folders share it."""
    served: dict[str, ServedModel] = {}
    for path in paths:
        stem = path.resolve().name
        numbered = (f"{stem}-{number}" for number in count(2))
        name = next(name for name in chain([stem], numbered) if name not in served)
        served[name] = ServedModel(name, open_run(path, device), limits)
    return served


def as_json(content: Any) -> Response:
    """Return an answer in JSON, with null for infinite numbers and NaN."""
    return Response(to_json(content, inf_nan_mode="null"), media_type="application/json")


def _one_by_one(tasks: list[Callable[[], Answer]]) -> list[Answer]:
    return [task() for task in tasks]


_TURN = threading.Lock()


def _turn() -> AbstractContextManager[Any]:
    """Return a lock for computations if numba has only its own threading layer, which serves one thread at a time."""
    for layer in ("tbbpool", "omppool"):
        with suppress(ImportError):
            importlib.import_module(f"numba.np.ufunc.{layer}")
            return nullcontext()
    return _TURN


def _curve(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return loss and validation MRR of each epoch; the last event of an epoch counts."""
    epochs = {event["epoch"]: event for event in events if event["event"] == "epoch"}
    return [{"epoch": epoch, "loss": one["loss"], "mrr": one["valid"].get("mrr")} for epoch, one in epochs.items()]
