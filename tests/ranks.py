"""Three processes that wait for work, so that many tests of several ranks start them once."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from compgcn.processes import World

MOST = 3
Work = Callable[..., Any]  # (world, *arguments); a function of a module, and arguments and result without tensors


def forking() -> ForkServerContext:
    """Return the way to start processes that are forked from one that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["warm"])
    # The process that preloads knows no other path than this in Python 3.11, and ignores what it does not find.
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))):
        ensure_running()
    return context


def _serve(rank: int, store: str, pipe: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{store}", timedelta(seconds=60), MOST, rank)
    groups = {size: dist.new_group(list(range(size))) for size in range(2, MOST + 1)}
    while (given := pipe.recv()) is not None:
        size, work, arguments = given
        try:
            pipe.send((True, work(World(groups[size]), *arguments)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
    dist.destroy_process_group()


class Ranks:
    """Calls a function in W processes, each with its world."""

    def __init__(self, folder: Path) -> None:
        context = forking()
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(MOST):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, str(folder / "store"), theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def __call__(self, size: int, work: Work, *arguments: Any) -> list[Any]:
        """Return the results of all ranks of a world of 2 or 3, or raise the first error."""
        waiting = dict(zip(self._pipes[:size], range(size), strict=True))
        for pipe in waiting:
            pipe.send((size, work, arguments))
        results: list[Any] = [None] * size
        errors = []
        while waiting:  # for all of them, so that nothing is left for the next call
            for pipe in wait(list(waiting)):
                good, result = pipe.recv()
                results[waiting.pop(pipe)] = result
                errors += [] if good else [result]
        assert not errors, errors[0]
        return results

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(10)
            process.kill()
