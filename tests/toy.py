"""Graphs and settings small enough to train in a blink, and ways to stop a run at a chosen moment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from compgcn.cli import main
from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.run import Run, fit

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


def write_tsv(path: Path, graph: KnowledgeGraph, *splits: str) -> Path:
    """The triples of some splits, of all if none is named, by their ids."""
    rows = np.concatenate([graph.splits[split] for split in splits or graph.splits])
    e, r = graph.entities.ids, graph.relations.ids
    path.write_text("".join(f"{e[s]}\t{r[p]}\t{e[o]}\n" for s, p, o in rows))
    return path


def train(folder: Path, data: KnowledgeGraph | None = None, **settings: Any) -> Run:
    """A run with the small settings, and these."""
    notify = settings.pop("notify", None)
    interrupted = settings.pop("interrupted", lambda: False)
    data = graph() if data is None else data
    return fit(data, run_dir=folder, notify=notify, interrupted=interrupted, **(SMALL | settings))


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


def killed_at_event(k: int) -> Callable[[dict[str, Any]], None]:
    """A listener that dies at the k-th event, steps included."""
    seen = 0

    def notify(event: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1
        if seen == k:
            raise Killed

    return notify


class Result:
    """What a command left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


Command = Callable[..., Result]


def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """`compgcn ARGUMENTS` inside this process."""

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
