"""A run that is being served: opened and encoded once, with lanes in front of it and all that its card shows."""

from __future__ import annotations

import contextlib
import importlib
import json
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from compgcn.answers.links import Links, Prediction
from compgcn.answers.similar import Projection, pca
from compgcn.data import Vocabulary
from compgcn.errors import InputError
from compgcn.run import Kind, Run, open_run
from compgcn.serve.batching import BusyError, Lane, LateError
from compgcn.serve.graph_index import Atlas
from compgcn.serve.middleware import POINTS, Limits

_COMPARED = 50_000  # ids in a vocabulary up to which an unknown name is answered with those that look like it
_GUESSES, _GUESSING = 8, 1.0  # unknown names that wait for such an answer, and the seconds they do
_SIZES = (10, 100)  # lists up to these lengths are made together: a long one must not make all the others long
_KINDS: tuple[Kind, ...] = ("entities", "relations", "discoveries")  # of answers with probabilities
_SHOWN = ("valid", "test", "best_epoch", "ties")  # of the metrics

# A query (head, relation, tail) by rows, None in the place that is asked for; how many answers; only new ones or not.
Query = tuple[tuple[int | None, int | None, int | None], int, bool]


class UnknownError(Exception):
    """Nothing is called that.

    Args:
        kind: of thing.
        text: what it was called.
        meant: finds the sentence with what may have been meant; None where there is nothing to look through.
        lane: where it is looked for.
    """

    def __init__(self, kind: str, text: str, meant: Callable[[], str] | None = None, lane: Lane | None = None) -> None:
        super().__init__(kind)
        self._kind, self._text, self._meant, self._lane = kind, text, meant, lane

    async def sentence(self) -> str:
        """What to answer; without a guess where too many guesses are asked for at once."""
        if self._meant is not None and self._lane is not None:
            with contextlib.suppress(BusyError, LateError):
                found: str = await self._lane.ask(self._meant, _GUESSING)
                return found
        shown = self._text if len(self._text) <= 80 else f"{self._text[:79]}…"
        return f"unknown {self._kind} '{shown}'"


class Served:
    """A model and its lanes.

    Args:
        name: what it goes by in requests.
        run: a link predictor.
        limits: of its lanes.
    """

    def __init__(self, name: str, run: Run, limits: Limits) -> None:
        if not isinstance(run.answers, Links):
            raise InputError(
                f"{run.path} is a run of {run.config.task}, and serve answers for runs that predict links; "
                f"ask it with compgcn predict {run.path} --item"
            )
        self.name, self.run, self.links, self.data = name, run, run.answers, run.answers.data
        self._turn = _turns()
        _ = self.links.encoded
        self.atlas = Atlas(self.data)
        self._warm_up()
        _ = self.card, self.relations
        self.predictions = Lane(self._predict, limits.batch, limits.queue)
        self.explanations = Lane(_one_by_one, 1, limits.queue)
        self.views = Lane(_one_by_one, 1, limits.queue)
        self.guesses = Lane(_one_by_one, 1, _GUESSES)

    @property
    def lanes(self) -> dict[str, Lane]:
        return {"predict": self.predictions, "explain": self.explanations, "look": self.views, "guess": self.guesses}

    def _warm_up(self) -> None:
        """Ask once: tables are built before the first client comes, and a broken model is found out here."""
        for vocabulary in (self.data.entities, self.data.relations):
            vocabulary.find("\0")  # what nothing is called goes through all of its tables
        if self.data.num_entities and self.data.num_relations:
            self.links.answer([(0, 0, None), (0, None, 0)], 1)

    # Names

    def entity(self, text: str) -> int:
        """The row of an entity."""
        return self._row(self.data.entities, text)

    def relation(self, text: str) -> int:
        """The row of a relation."""
        return self._row(self.data.relations, text)

    def _row(self, vocabulary: Vocabulary, text: str) -> int:
        row = vocabulary.find(text)
        if row is None:
            meant = partial(_meant, vocabulary, text) if len(vocabulary) <= _COMPARED else None
            raise UnknownError(vocabulary.kind, text, meant, self.guesses)
        return row

    def named_entity(self, row: int) -> dict[str, str]:
        return {"id": self.data.entities.ids[row], "name": self.data.entities.names[row]}

    def named_relation(self, row: int) -> dict[str, str]:
        return {"id": self.data.relations.ids[row], "name": self.data.relations.names[row]}

    def fact(self, row: Sequence[int]) -> dict[str, Any]:
        """A triple with its names."""
        s, r, o = (int(part) for part in row)
        return {"head": self.named_entity(s), "relation": self.named_relation(r), "tail": self.named_entity(o)}

    # Answers; all but the card and the relations, which are made once, come from the threads of the lanes

    def _predict(self, queries: list[Query]) -> list[list[Prediction]]:
        """The answers to a batch, scored together."""
        with self._turn:
            return self._together(queries)

    def _together(self, queries: list[Query]) -> list[list[Prediction]]:
        """Those that want about as many answers are asked for the most that any wants, and each list is cut."""
        answers: list[list[Prediction]] = [[]] * len(queries)
        groups: dict[tuple[int, bool], list[int]] = {}
        for place, (_, top, new) in enumerate(queries):
            groups.setdefault((bisect_left(_SIZES, top), new), []).append(place)
        for (_, new), places in groups.items():
            most = max(queries[place][1] for place in places)
            asked = [queries[place][0] for place in places]
            for place, found in zip(places, self.links.answer(asked, most, new), strict=True):
                answers[place] = found[: queries[place][1]]
        return answers

    def explain(self, fact: tuple[int, int, int], top: int) -> dict[str, Any]:
        """The facts that carried a prediction."""
        s, r, o = fact
        e, relations = self.data.entities.ids, self.data.relations.ids
        with self._turn:
            found = self.run.explain(e[s], relations[r], e[o], top)
        facts = [
            {
                "rank": rank,
                "head": {"id": each.head, "name": each.head_name},
                "relation": {"id": each.relation, "name": each.relation_name},
                "tail": {"id": each.tail, "name": each.tail_name},
                "contribution": each.contribution,
                "itself": found.is_itself(each),
            }
            for rank, each in enumerate(found.facts, 1)
        ]
        fields = ("score", "probability", "known", "method", "edges")
        return {**self.fact(fact), **{name: getattr(found, name) for name in fields}, "facts": facts}

    def similar(self, entity: int, top: int) -> bytes:
        """The entities nearest to one."""
        found = self.run.similar(self.data.entities.ids[entity], top)
        answers = [{"rank": rank, **near._asdict()} for rank, near in enumerate(found, 1)]
        return as_json({"entity": self.named_entity(entity), "answers": answers})

    @cached_property
    def plane(self) -> Projection:
        """Where the entities lie on the map."""
        return pca(self.links.encoded.entities.detach().float().cpu().numpy())

    @cached_property
    def _points(self) -> list[bytes]:
        """The best connected entities on the map, each as JSON: the map is the beginning of these."""
        places, types, degree = self.plane.places, self.atlas.types, self.atlas.degree
        shown = self.atlas.search("", POINTS)
        return [
            as_json({**self.named_entity(i), "x": x, "y": y, "degree": int(degree[i]), "type": types[i]})
            for i, (x, y) in zip(shown, places[shown].tolist(), strict=True)
        ]

    def map(self, limit: int) -> bytes:
        """The best connected entities on the map."""
        rest = as_json({"explained": self.plane.explained, "types": "relation"})
        return b'{"points":[' + b",".join(self._points[:limit]) + b"]," + rest[1:]

    def found(self, text: str, limit: int) -> bytes:
        """Entities by a part of their names."""
        rows, degree = self.atlas.search(text, limit), self.atlas.degree
        return as_json({"entities": [{**self.named_entity(i), "degree": int(degree[i])} for i in rows]})

    def neighbourhood(self, entity: int, limit: int) -> bytes:
        """The facts around an entity."""
        atlas = self.atlas
        facts = [
            {**self.fact(atlas.facts[i]), "split": atlas.splits[atlas.split[i]]} for i in atlas.around(entity, limit)
        ]
        return as_json({"entity": self.named_entity(entity), "total": int(atlas.degree[entity]), "facts": facts})

    @cached_property
    def relations(self) -> bytes:
        """All relations, with the number of their facts."""
        counts = self.atlas.facts_of_relation.tolist()
        return as_json({"relations": [{**self.named_relation(r), "facts": n} for r, n in enumerate(counts)]})

    @cached_property
    def card(self) -> dict[str, Any]:
        """What the model is; no path of the server's disk is in it."""
        config = self.run.config.model_dump(mode="json", include={"encoder", "decoder", "training"})
        config["training"].pop("device")
        metrics = {key: value for key, value in self.run.metrics.items() if key in _SHOWN}
        return {
            "id": self.name,
            "name": self.run.model_name,
            "data": Path(self.data.name).name,
            "task": self.run.config.task,
            "entities": self.data.num_entities,
            "relations": self.data.num_relations,
            "facts": len(self.atlas.facts),
            "parameters": sum(parameter.numel() for parameter in self.run.task.model.parameters()),
            "metrics": metrics,
            "config": config,
            "curve": _curve(self.run.path / "events.jsonl"),
            "examples": [
                {"head": self.named_entity(s), "relation": self.named_relation(r)} for s, r in self.atlas.examples()
            ],
            "calibrated": [kind for kind in _KINDS if self.run.calibrated(kind) is not None],
        }


def as_json(content: Any) -> bytes:
    """JSON; a number that is none becomes null."""
    return to_json(content, inf_nan_mode="null")


def open_all(paths: Sequence[Path], limits: Limits, device: str = "auto") -> dict[str, Served]:
    """The runs in these folders by their ids: the name of the folder, with a number where several have it."""
    served: dict[str, Served] = {}
    for path in paths:
        name = stem = path.resolve().name
        number = 1
        while name in served:
            number += 1
            name = f"{stem}-{number}"
        served[name] = Served(name, open_run(path, device), limits)
    return served


def _meant(vocabulary: Vocabulary, text: str) -> str:
    """What nothing is called, and what looks like it."""
    try:
        vocabulary.index(text)
    except InputError as error:
        return str(error)
    raise AssertionError(f"{text} is known")


_TURN = threading.Lock()


def _turns() -> AbstractContextManager[Any]:
    """What to hold while computing: where numba has only threads of its own, they serve one caller at a time."""
    for pool in ("tbbpool", "omppool"):
        try:
            importlib.import_module(f"numba.np.ufunc.{pool}")
        except ImportError:
            continue
        return nullcontext()
    return _TURN


def _one_by_one(calls: list[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


def _curve(path: Path) -> list[dict[str, Any]]:
    """Loss and validation MRR of the epochs that events.jsonl tells of; of an epoch done again, the last.

    A loss is shown of epochs that were not evaluated too, which `reproduction.experiment.curve` leaves out.
    """
    epochs: dict[int, dict[str, Any]] = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            event = json.loads(line)
            if event["event"] == "epoch":
                number = int(event["epoch"])
                found = {"epoch": number, "loss": event.get("loss"), "mrr": (event.get("valid") or {}).get("mrr")}
                epochs[number] = found
        except (ValueError, TypeError, KeyError):  # a kill cut the line short
            continue
    return list(epochs.values())
