"""Processes of the agent of torchrun, forked from one that has imported everything, and work for them in tests."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from compgcn import data, processes
from compgcn.cli import main
from compgcn.errors import InputError
from compgcn.run.run import Run
from compgcn.train.step import Step
from ranks import forking
from toy import CONDITIONAL, Result, graph, train

STEP = 5  # at which a process fails or is killed
# The first steps of Adam make a rounding error of a gradient that is zero as large as any other.
BASE = {"optimiser": "sgd", "lr": 0.3, "encoder.dropout": 0.0, "encoder.hidden_dropout": 0.0, "checkpoint_seconds": 0.0}
MODELS = {"conditional": BASE | CONDITIONAL, "conve": BASE | {"entity_bias": True}}
DATA = {"people": 12, "towns": 4, "valid": 8, "test": 8}


def launch(folder: Path, number: int, work: Callable[..., None], *arguments: Any, restarts: int = 0) -> Result:
    """Call a function in so many processes as torchrun does; return its exit code and what all of them print."""
    forking()
    logs = DefaultLogsSpecs(str(folder / "logs"), redirects=Std.ALL)
    config = LaunchConfig(1, 1, number, logs, "tested", rdzv_backend="c10d", rdzv_endpoint="localhost:0")
    config.max_restarts, config.start_method = restarts, "forkserver"
    before = {
        which: signal.getsignal(which) for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    }
    code = 0
    try:
        elastic_launch(config, work)(*arguments)
    except ChildFailedError:
        code = 1
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
    said = ["".join(file.read_text() for file in sorted((folder / "logs").rglob(f"{what}.log"))) for what in STREAMS]
    return Result(code, *said)


STREAMS = ("stdout", "stderr")


def report(run: Run) -> dict[str, Any]:
    """Run the commands that torchrun starts; all processes answer, the first writes."""
    queries, folder = run.path.parent / "queries.tsv", run.path.parent
    run.predict_file(queries, folder / f"{run.path.name}.parquet", top=3)
    run.export(folder / f"{run.path.name}.npy")
    return {"metrics": run.metrics, "parts": run.evaluate("test", by="relation")}


def training(folder: Path, more: dict[str, Any], gpus: int) -> None:
    """Train models, let them answer, and export them; the second process is killed once in the last training."""
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(gpus)))
    processes.join()
    assert dist.get_backend() == ("cpu:gloo,cuda:nccl" if gpus > 1 else "gloo")
    found = {}
    events = dict.fromkeys(MODELS, 0)
    for name, settings in MODELS.items():

        def listen(event: dict[str, Any], name: str = name) -> None:
            events[name] += 1
            first = processes.rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
            if first and events[[*MODELS][-1]] == STEP:
                os.kill(os.getpid(), signal.SIGKILL)

        found[name] = report(train(folder / name, graph(**DATA), notify=listen, **settings, **more))
        assert processes.agreed(found[name]["metrics"]["test"]["mrr"]) == found[name]["metrics"]["test"]["mrr"]
    if processes.rank() == 0:
        (folder / "report.json").write_text(json.dumps(found))
    processes.leave()


def reading(folder: Path) -> None:
    """Read files; write the fingerprint and the notes of each graph, and the most rows of text in this process."""
    processes.join()
    found, encode = [], data.graph._encode
    for files in json.loads((folder / "files.json").read_text()):
        rows = []

        def counting(tables: Any, rows: list[int] = rows) -> Any:
            rows.append(sum(len(columns[0]) for columns in tables))
            return encode(tables)

        data.graph._encode = counting
        parts = {} if len(files) == 1 else dict(zip(("train", "valid", "test"), files, strict=True))
        graph = data.read(**parts) if parts else data.read(files[0])
        found.append((graph.fingerprint(), graph.notes, max(rows)))
    (folder / f"graphs-{processes.rank()}.json").write_text(json.dumps(found))
    processes.leave()


def command(arguments: list[str], fails: int | None = None) -> None:
    """Run a command; one of its processes may fail in a step."""
    if os.environ["RANK"] == str(fails):
        Step.__call__ = dying(InputError("the second has failed"))  # type: ignore[method-assign]
    sys.argv = ["compgcn", *arguments]
    main()


def dying(error: BaseException) -> Any:
    steps, call = 0, Step.__call__

    def step(self: Step, *given: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == STEP:
            raise error
        return call(self, *given)

    return step
