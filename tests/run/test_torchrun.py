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

from compgcn import processes
from compgcn.cli import main
from compgcn.errors import InputError
from compgcn.run import Run, open_run
from compgcn.train.step import Step
from toy import CONDITIONAL, ENVIRONMENT, SMALL, Command, Killed, flags, graph, train, write_tsv

KILLED = 5  # step
SETTINGS = CONDITIONAL | {"checkpoint_seconds": 0.0}
DATA = {"people": 12, "towns": 4, "valid": 8, "test": 8}


def torchrun(number: int, *arguments: object, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    """Run this file or a module in so many processes; the time-out is for a hang alone."""
    words = ["--nproc-per-node", number, "--max-restarts", restarts, "--rdzv-backend", "c10d"]
    command = [sys.executable, "-m", "torch.distributed.run", *words, "--rdzv-endpoint", "localhost:0", *arguments]
    paths = [str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=900)


def report(run: Run, folder: Path) -> dict[str, Any]:
    """What the commands that torchrun starts make of a run; all processes answer, the first writes."""
    queries = folder / "queries.tsv"
    run.predict_file(queries, folder / "answers.parquet", top=3)
    run.export(folder / "vectors.npy")
    return {"metrics": run.metrics, "parts": run.evaluate("test", by="relation")}


def worker(folder: Path) -> None:
    """Train, answer and export; the second process is killed in its first training."""
    processes.join()
    events = 0

    def listen(event: dict[str, Any]) -> None:
        nonlocal events
        events += 1
        if processes.rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and events == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)

    found = report(train(folder / "run", graph(**DATA), notify=listen, **SETTINGS), folder)
    assert processes.agreed(found["metrics"]["test"]["mrr"]) == found["metrics"]["test"]["mrr"]
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


def close(found: Any, expected: Any) -> None:
    """The same numbers up to rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            close(found[key], value)
    else:
        assert found == (pytest.approx(expected, rel=1e-4) if isinstance(expected, float) else expected)


def test_two_processes_of_which_one_is_killed_end_with_the_answers_of_one(tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    for folder in (alone, together):
        folder.mkdir()
        (folder / "queries.tsv").write_text("p0\tlives\t?\n?\tknows\tp3\np1\t?\tp2\n")
    expected = report(train(alone / "run", graph(**DATA), **SETTINGS), alone)
    done = torchrun(2, __file__, "worker", together, restarts=1)
    assert done.returncode == 0, done.stderr
    close(json.loads((together / "report.json").read_text()), expected)
    ours, theirs = (pq.read_table(folder / "answers.parquet").to_pydict() for folder in (together, alone))
    assert ours["id"] == theirs["id"]
    np.testing.assert_allclose(ours["probability"], theirs["probability"], rtol=1e-3)
    vectors = [np.load(folder / "vectors.npy") for folder in (together, alone)]
    np.testing.assert_allclose(*vectors, atol=1e-4)
    close(open_run(together / "run").evaluate("test", by="relation"), expected["parts"])


def test_a_run_goes_on_with_more_and_with_fewer_processes_after_one_fails(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_tsv(tmp_path / "graph.tsv", graph(**DATA))
    settings = flags(SMALL | SETTINGS)
    failed = torchrun(2, __file__, "failing", "train", data, *settings, "--run-dir", tmp_path / "run")
    assert failed.returncode != 0
    assert failed.stderr.count("error: the second has failed\n") == 1, failed.stderr
    assert "stopped" not in failed.stderr
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
    assert [event["epoch"] for event in events if event["event"] == "epoch"] == [1, 2, 3]
    ours, theirs = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("run", "alone"))
    close(ours, theirs)


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    worker(Path(given[0])) if what == "worker" else failing(given)
