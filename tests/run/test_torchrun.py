"""Several processes train, resume and answer as one does; if one fails, all end, and one sentence says why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from compgcn import processes
from compgcn.cli import main
from compgcn.errors import InputError
from compgcn.run import Run, open_run
from compgcn.train.step import Step
from compgcn.train.storage import Split, load_tensors
from toy import CONDITIONAL, ENVIRONMENT, SMALL, Command, Killed, flags, graph, train, write_tsv

KILLED = 5  # step
# The first steps of Adam make a rounding error of a gradient that is zero as large as any other.
BASE = {"optimiser": "sgd", "lr": 0.3, "encoder.dropout": 0.0, "encoder.hidden_dropout": 0.0, "checkpoint_seconds": 0.0}
MODELS = {"conditional": BASE | CONDITIONAL, "conve": BASE | {"entity_bias": True}}
DATA = {"people": 12, "towns": 4, "valid": 8, "test": 8}


def torchrun(number: int, *arguments: object, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    """Run this file or a module in so many processes; the time-out is for a hang alone."""
    words = ["--nproc-per-node", number, "--max-restarts", restarts, "--rdzv-backend", "c10d"]
    command = [sys.executable, "-m", "torch.distributed.run", *words, "--rdzv-endpoint", "localhost:0", *arguments]
    paths = [str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=900)


def report(run: Run) -> dict[str, Any]:
    """Run the commands that torchrun starts; all processes answer, the first writes."""
    queries, folder = run.path.parent / "queries.tsv", run.path.parent
    run.predict_file(queries, folder / f"{run.path.name}.parquet", top=3)
    run.export(folder / f"{run.path.name}.npy")
    return {"metrics": run.metrics, "parts": run.evaluate("test", by="relation")}


def worker(folder: Path) -> None:
    """Train models, let them answer, and export them; the second process is killed once in the last training."""
    processes.join()
    found = {}
    events = dict.fromkeys(MODELS, 0)
    for name, settings in MODELS.items():

        def listen(event: dict[str, Any], name: str = name) -> None:
            events[name] += 1
            first = processes.rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
            if first and events[[*MODELS][-1]] == KILLED:
                os.kill(os.getpid(), signal.SIGKILL)

        found[name] = report(train(folder / name, graph(**DATA), notify=listen, **settings))
        assert processes.agreed(found[name]["metrics"]["test"]["mrr"]) == found[name]["metrics"]["test"]["mrr"]
    if processes.rank() == 0:
        (folder / "report.json").write_text(json.dumps(found))
    processes.leave()


def failing(arguments: list[str]) -> None:
    """Run a command whose second process fails in a step."""
    if os.environ["RANK"] == "1":
        Step.__call__ = dying(InputError("the second has failed"))  # type: ignore[method-assign]
    sys.argv = ["compgcn", *arguments]
    main()


def dying(error: BaseException) -> Any:
    steps, call = 0, Step.__call__

    def step(self: Step, *given: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == KILLED:
            raise error
        return call(self, *given)

    return step


def close(found: Any, expected: Any, place: str = "") -> None:
    """The same numbers up to rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for key, value in expected.items():
            close(found[key], value, f"{place} {key}")
    else:
        assert found == (pytest.approx(expected, rel=1e-4) if isinstance(expected, float) else expected), place


def losses(folder: Path) -> dict[str, float]:
    """The loss of every epoch."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return {str(event["epoch"]): event["loss"] for event in events if event["event"] == "epoch"}


def test_two_processes_of_which_one_is_killed_end_with_the_answers_of_one(tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    for folder in (alone, together):
        folder.mkdir()
        (folder / "queries.tsv").write_text("p0\tlives\t?\n?\tknows\tp3\np1\t?\tp2\n")
    done = torchrun(2, __file__, "worker", together, restarts=1)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    found = json.loads((together / "report.json").read_text())
    for name, settings in MODELS.items():
        expected = report(train(alone / name, graph(**DATA), **settings))
        close(losses(together / name), losses(alone / name), name)
        close(found[name], expected, name)
        ours, theirs = (pq.read_table(folder / f"{name}.parquet").to_pydict() for folder in (together, alone))
        assert ours["id"] == theirs["id"]
        np.testing.assert_allclose(ours["probability"], theirs["probability"], rtol=1e-3)
        vectors = [np.load(folder / f"{name}.npy") for folder in (together, alone)]
        np.testing.assert_allclose(*vectors, atol=1e-4)
        run = open_run(together / name)
        close(run.evaluate("test", by="relation"), expected["parts"])
        assert run.predict("p0", "lives")[0].entity == open_run(alone / name).predict("p0", "lives")[0].entity
    kept = load_tensors(together / "conve/model.safetensors", ["encoder.nodes"], Split(("encoder.nodes",), 3, 11, 16))
    whole = load_tensors(together / "conve/model.safetensors", ["encoder.nodes"])
    assert torch.equal(kept["encoder.nodes"], whole["encoder.nodes"][3:11])  # over two files of eight rows


def test_a_run_goes_on_with_more_and_with_fewer_processes_after_one_fails(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_tsv(tmp_path / "graph.tsv", graph(**DATA))
    settings = flags(SMALL | MODELS["conve"] | {"entity_bias": "true"})
    failed = torchrun(2, __file__, "failing", "train", data, *settings, "--run-dir", tmp_path / "run")
    assert failed.returncode != 0
    assert failed.stderr.count("error: the second has failed\n") == 1, failed.stderr
    assert failed.stderr.count("error: ") == 1, failed.stderr
    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", dying(Killed()))
        with pytest.raises(Killed):
            command("train", data, *settings, "--run-dir", "run")
    done = torchrun(3, "-m", "compgcn", "train", data, *settings, "--run-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("resuming the run") == 1
    assert done.stdout.count("popularity baseline") == 1
    assert command("train", data, *settings, "--run-dir", "alone").code == 0
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events].count("start") == 3
    ours, theirs = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("run", "alone"))
    close(losses(tmp_path / "run"), losses(tmp_path / "alone"))
    close(ours, theirs)


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    worker(Path(given[0])) if what == "worker" else failing(given)
