"""A run that is being served: opened and encoded once, with lanes in front of it and all that its card shows."""

from __future__ import annotations

import importlib
import json
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from compgcn.answers.links import Links, Prediction
from compgcn.data import Vocabulary
from compgcn.errors import InputError
from compgcn.run import Run, open_run
from compgcn.serve.atlas import Atlas, Plane, principal_plane
from compgcn.serve.lanes import Lane
from compgcn.serve.limits import Limits

_COMPARED = 5000  # ids in a vocabulary up to which an unknown name is answered with those that look like it
_SHOWN = ("valid", "test", "best_epoch", "ties")  # of the metrics

# A query (head, relation, tail) by rows, None in the place that is asked for; how many answers; only new ones or not.
Query = tuple[tuple[int | None, int | None, int | None], int, bool]


class UnknownError(Exception):
    """Nothing is called that.

    Args:
        kind: of thing.
        text: what it was called.
        vocabulary: where to look for what may have been meant, which takes long in a large one; None for nowhere.
    """

    def __init__(self, kind: str, text: str, vocabulary: Vocabulary | None = None) -> None:
        super().__init__(kind)
        self._kind, self._text, self._vocabulary = kind, text, vocabulary

    def sentence(self) -> str:
        """What to answer."""
        if self._vocabulary is not None and len(self._vocabulary) <= _COMPARED:
            try:
                self._vocabulary.index(self._text)
            except InputError as error:
                return str(error)
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
        _ = self.card
        self.predictions = Lane(self._predict, limits.batch, limits.queue)
        self.explanations = Lane(_one_by_one, 1, limits.queue)
        self.views = Lane(_one_by_one, 1, limits.queue)

    @property
    def lanes(self) -> dict[str, Lane]:
        return {"predict": self.predictions, "explain": self.explanations, "look": self.views}

    def _warm_up(self) -> None:
        """Ask once: tables are built before the first client comes, and a broken model is found out here."""
        for vocabulary in (self.data.entities, self.data.relations):
            vocabulary.find("\0")  # what nothing is called goes through all of its tables
        if self.data.num_entities and self.data.num_relations:
            self.links.answer([(0, 0, None), (0, None, 0)], 1)

    # Names

    def entity(self, text: str) -> int:
        """The row of an entity."""
        return _row(self.data.entities, text)

    def relation(self, text: str) -> int:
        """The row of a relation."""
        return _row(self.data.relations, text)

    def named_entity(self, row: int) -> dict[str, str]:
        return {"id": self.data.entities.ids[row], "name": self.data.entities.names[row]}

    def named_relation(self, row: int) -> dict[str, str]:
        return {"id": self.data.relations.ids[row], "name": self.data.relations.names[row]}

    def fact(self, row: Sequence[int]) -> dict[str, Any]:
        """A triple with its names."""
        s, r, o = (int(part) for part in row)
        return {"head": self.named_entity(s), "relation": self.named_relation(r), "tail": self.named_entity(o)}

    # Answers; all but the card are made in the threads of the lanes

    def _predict(self, queries: list[Query]) -> list[list[Prediction]]:
        """The answers to a batch: one product of matrices for all that want as many answers."""
        with self._turn:
            return self._together(queries)

    def _together(self, queries: list[Query]) -> list[list[Prediction]]:
        answers: list[list[Prediction]] = [[]] * len(queries)
        groups: dict[tuple[int, bool], list[int]] = {}
        for place, (_, top, new) in enumerate(queries):
            groups.setdefault((top, new), []).append(place)
        for (top, new), places in groups.items():
            asked = [queries[place][0] for place in places]
            for place, found in zip(places, self.links.answer(asked, top, new), strict=True):
                answers[place] = found
        return answers

    def explain(self, fact: tuple[int, int, int], top: int) -> dict[str, Any]:
        """The facts that carried a prediction."""
        s, r, o = fact
        e, relations = self.data.entities.ids, self.data.relations.ids
        with self._turn:
            found = self.run.explain(e[s], relations[r], e[o], top)
        facts = [
            {
                "head": {"id": each.head, "name": each.head_name},
                "relation": {"id": each.relation, "name": each.relation_name},
                "tail": {"id": each.tail, "name": each.tail_name},
                "contribution": each.contribution,
            }
            for each in found.facts
        ]
        fields = ("score", "probability", "known", "method", "edges")
        return {**self.fact(fact), **{name: getattr(found, name) for name in fields}, "facts": facts}

    def similar(self, entity: int, top: int) -> dict[str, Any]:
        """The entities nearest to one."""
        found = self.run.similar(self.data.entities.ids[entity], top)
        answers = [{"rank": rank, **near._asdict()} for rank, near in enumerate(found, 1)]
        return {"entity": self.named_entity(entity), "answers": answers}

    @cached_property
    def plane(self) -> Plane:
        """Where the entities lie on the map."""
        return principal_plane(self.links.encoded.entities.detach().float().cpu().numpy())

    def map(self, limit: int) -> dict[str, Any]:
        """The best connected entities on the map."""
        places, types, degree = self.plane.places, self.atlas.types, self.atlas.degree
        shown = self.atlas.search("", limit)
        points = [
            {**self.named_entity(i), "x": x, "y": y, "degree": int(degree[i]), "type": types[i]}
            for i, (x, y) in zip(shown, places[shown].tolist(), strict=True)
        ]
        return {"points": points, "explained": self.plane.explained, "types": "relation"}

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
            "metrics": _finite(metrics),
            "config": config,
            "curve": _curve(self.run.path / "events.jsonl"),
            "examples": [
                {"head": self.named_entity(s), "relation": self.named_relation(r)} for s, r in self.atlas.examples()
            ],
            "calibrated": self.run.calibrated() is not None,
        }


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


def _row(vocabulary: Vocabulary, text: str) -> int:
    """The row of an id or a name."""
    row = vocabulary.find(text)
    if row is None:
        raise UnknownError(vocabulary.kind, text, vocabulary)
    return row


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
    """Loss and validation MRR of the epochs that events.jsonl tells of; of an epoch done again, the last."""
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
                epochs[number] = _finite(found)
        except (ValueError, TypeError, KeyError):  # a kill cut the line short
            continue
    return list(epochs.values())


def _finite(value: Any) -> Any:
    """The same with null where a number is none."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
