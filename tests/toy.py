"""Graphs and settings small enough to train in a blink, and ways to stop a run at a chosen moment."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from compgcn.cli import main
from compgcn.config import Config
from compgcn.data import GraphCollection, KnowledgeGraph, Labels, Vocabulary
from compgcn.run.build import build_items, build_links
from compgcn.run.run import Run, fit

SMALL: dict[str, Any] = {
    "decoder": "conve",
    "loss": "bce",
    "encoder.dims": (8, 16),
    "filters": 4,
    "kernel": 3,
    "batch_size": 8,
    "lr": 0.01,
    "epochs": 3,
    "device": "cpu",
}

CONDITIONAL: dict[str, Any] = {  # over SMALL
    "encoder": "conditional",
    "decoder": "none",
    "loss": "cross-entropy",
    "encoder.dims": (8, 8, 8),
}

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}  # of processes, see conftest.py


def graph(
    people: int = 8, towns: int = 4, *, empty: tuple[str, ...] = (), valid: int = 3, test: int = 3
) -> KnowledgeGraph:
    """People who live in one town and were born in another; everyone in a town speaks its tongue."""
    entities = [f"p{i}" for i in range(people)] + [f"t{i}" for i in range(towns)]
    facts = [(i, 0, people + i % towns) for i in range(people)]
    facts += [(i, 1, people + (3 * i + i // towns + 1) % towns) for i in range(people)]
    facts += [(i, 2, (i + 1) % people) for i in range(people)]
    order = np.random.default_rng(0).permutation(np.array(facts))
    parts = {"valid": order[:valid], "test": order[valid : valid + test], "train": order[valid + test :]}
    parts |= dict.fromkeys(empty, order[:0])
    return KnowledgeGraph(
        "toy",
        Vocabulary("entity", entities, [f"name of {text}" for text in entities]),
        Vocabulary("relation", ["lives", "born", "knows"]),
        **parts,
    )


def facts(graph: KnowledgeGraph, *splits: str) -> list[tuple[str, str, str]]:
    """The triples of some splits, of all if none is named, by their ids."""
    rows = np.concatenate([graph.splits[split] for split in splits or graph.splits])
    e, r = graph.entities.ids, graph.relations.ids
    return [(e[s], r[p], e[o]) for s, p, o in rows.tolist()]


def write_tsv(path: Path, graph: KnowledgeGraph, *splits: str) -> Path:
    """A file of these triples."""
    path.write_text("".join("\t".join(fact) + "\n" for fact in facts(graph, *splits)))
    return path


def write_labels(path: Path, graph: KnowledgeGraph) -> Path:
    """A file of the labels of a graph, with their splits."""
    e, classes = graph.entities.ids, graph.labels.classes
    rows = [(e[n], classes[c], split) for split, some in graph.labels.splits.items() for n, c in some.tolist()]
    path.write_text("".join("\t".join(row) + "\n" for row in [("node", "label", "split"), *rows]))
    return path


def numbered(
    train: Any, entities: int, relations: Sequence[str] | int = 1, *, valid: Any = (), test: Any = ()
) -> KnowledgeGraph:
    """A graph of triples of numbers, its entities called 0, 1 .. and its relations so, or by their names."""
    names = [str(k) for k in range(relations)] if isinstance(relations, int) else relations
    parts = [np.array(part, dtype=np.int64).reshape(-1, 3) for part in (train, valid, test)]
    ids = [str(k) for k in range(entities)]
    return KnowledgeGraph("numbered", Vocabulary("entity", ids), Vocabulary("relation", names), *parts)


def train(folder: Path, data: Any = None, small: dict[str, Any] = SMALL, **settings: Any) -> Run:
    """A run with the small settings, and these."""
    notify = settings.pop("notify", None)
    interrupted = settings.pop("interrupted", lambda: False)
    data = graph() if data is None else data
    return fit(data, run_dir=folder, notify=notify, interrupted=interrupted, **(small | settings))


def flags(settings: dict[str, Any]) -> list[str]:
    """Settings as options of `compgcn train`."""
    written = {name: str(list(value)) if isinstance(value, tuple) else value for name, value in settings.items()}
    return [word for name, value in written.items() for word in ("--set", f"{name}={value}")]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under a folder -> its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


LASTING = ("config.toml", "metrics.json", "model.safetensors", "triples.parquet", "vocabulary.parquet")


def lasting(folder: Path) -> dict[str, bytes]:
    """The files that must not depend on how often a run was disturbed."""
    return {name: (folder / name).read_bytes() for name in LASTING}


class Killed(BaseException):
    """The process ends here; nothing may catch it."""


@contextmanager
def killed_at_rename(k: int, *, before: bool) -> Iterator[list[str]]:
    """Die at the k-th rename: before it, with the new file cut short, or right after it. Yields the names so far."""
    names: list[str] = []
    rename = Path.replace

    def dying(self: Path, target: Path) -> Path:
        names.append(Path(target).name)
        if len(names) == k and before:
            self.write_bytes(self.read_bytes()[: self.stat().st_size // 2])
            raise Killed
        result = rename(self, target)
        if len(names) == k:
            raise Killed
        return result

    with mock.patch.object(Path, "replace", dying):
        yield names


def killed_at_event(k: int, seen: list[dict[str, Any]] | None = None) -> Callable[[dict[str, Any]], None]:
    """A listener that dies at the k-th event, steps included, and keeps those it has seen."""
    seen = [] if seen is None else seen

    def notify(event: dict[str, Any]) -> None:
        seen.append(event)
        if len(seen) == k:
            raise Killed

    return notify


class Result:
    """Exit code and output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


Command = Callable[..., Result]
Write = Callable[[str, str | bytes], Path]  # a fixture of the data tests: write a file by its name and content


def command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], main: Callable[[], None] = main
) -> Command:
    """`compgcn ARGUMENTS` inside this process; however slow that is, it tells nothing now and then."""
    monkeypatch.setattr("compgcn.cli.train._QUIET", math.inf)

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["compgcn", *map(str, arguments)])
        capfd.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


def refused(result: Result, *words: str) -> None:
    """One sentence on stderr with these words in it, exit code 1, nothing else."""
    assert result.code == 1, result
    assert result.out == "", result
    assert result.err.startswith("error: "), result
    assert result.err.count("\n") == 1, result
    assert "Traceback" not in result.err, result
    for word in words:
        assert word in result.err, (word, result)


# Classification

CLASSES: dict[str, Any] = {
    "encoder.dims": (8, 8),
    "epochs": 25,
    "lr": 0.1,
    "weight_decay": 0.0,
    "folds": 3,
    "device": "cpu",
}


def labelled(people: int = 24, *, typed: bool = True, valid: int = 0) -> KnowledgeGraph:
    """People who buy at one of two shops or sell at the other, which is their class; far behind, a chain of towns."""
    shops, towns = people, people + 2
    sides = np.arange(people) % 2
    facts = [(i, int(side), shops + int(side)) for i, side in enumerate(sides)]
    facts += [(towns + i, 2, towns + i + 1) for i in range(5)] + [(shops, 2, towns), (shops + 1, 2, towns)]
    person = towns + 6
    facts += [(i, 3, person) for i in range(people)] if typed else []
    names = [f"p{i}" for i in range(people)] + ["a", "b"] + [f"t{i}" for i in range(6)] + ["Person"]
    rows = np.column_stack([np.arange(people), sides])
    third = people // 3
    return KnowledgeGraph(
        "shops",
        Vocabulary("entity", names),
        Vocabulary("relation", ["buys", "sells", "near", "rdf:type"]),
        np.array(facts),
        np.empty((0, 3), dtype=np.int64),
        np.empty((0, 3), dtype=np.int64),
        labels=Labels(("buyer", "seller"), rows[third + valid :], rows[third : third + valid], rows[:third]),
    )


def molecules(graphs: int = 18, seed: int = 0) -> GraphCollection:
    """Rings of three to six nodes: those of one class are held together by one kind of edge, and mostly of one kind."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 7, graphs)
    starts = np.cumsum(sizes) - sizes
    targets = np.arange(graphs) % 2
    triples, labels = [], []
    for start, size, target in zip(starts, sizes, targets, strict=True):
        for i in range(size):
            ends = (start + i, start + (i + 1) % size)
            triples += [(ends[0], target, ends[1]), (ends[1], target, ends[0])]
            labels.append(target if i else 2)
    return GraphCollection(
        "rings",
        Vocabulary("relation", ["single", "double"]),
        ("no", "yes"),
        graph_of=np.repeat(np.arange(graphs), sizes),
        triples=np.array(triples),
        targets=targets,
        node_labels=np.array(labels),
        node_classes=("C", "N", "H"),
        graph_ids=tuple(f"m{i}" for i in range(graphs)),
    )


def classify(folder: Path, data: KnowledgeGraph | GraphCollection, **settings: Any) -> Run:
    """A classification with small settings, and these."""
    return train(folder, data, CLASSES, **settings)


def trained(
    data: Any = None, work: Callable[..., Run] = train, each: Sequence[dict[str, Any]] | None = None, **settings: Any
) -> Any:
    """A fixture of a module: a run with these settings, or one after the other with each of some more."""

    @pytest.fixture(scope="module", params=each, ids=None if each is None else str)
    def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
        return work(tmp_path_factory.mktemp("run") / "run", data, **settings | getattr(request, "param", {}))

    return run


def write_tu(folder: Path, graphs: GraphCollection) -> Path:
    """The graphs in the TU format."""
    folder.mkdir()
    files = {
        "A": [f"{s + 1}, {o + 1}" for s, _, o in graphs.triples],
        "edge_labels": graphs.triples[:, 1].tolist(),
        "graph_indicator": (graphs.graph_of + 1).tolist(),
        "graph_labels": graphs.targets.tolist(),
        "node_labels": [] if graphs.node_labels is None else graphs.node_labels.tolist(),
    }
    for name, lines in files.items():
        (folder / f"toy_{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


def build_task(config: Config, data: KnowledgeGraph | GraphCollection, device: torch.device) -> Any:
    """Make the task of link prediction or the items of a classification, with fresh weights."""
    return build_links(config, data, device) if config.task == "link-prediction" else build_items(config, data, device)
