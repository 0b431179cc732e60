"""Settings every test shares: properties are drawn from a fixed sequence, so that a failure is the same everywhere."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

# Graphs of a few nodes gain nothing from threads, and lose much where several test processes share the cores; the
# variables are for the commands that tests start.
os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
os.environ["COMPGCN_COMMIT"] = "tested"  # or every run would ask git
os.fsync = lambda file: None  # no test turns the power off

import numba
import pytest
import torch
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import toy

torch.set_num_threads(1)
numba.set_num_threads(1)

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # the GPU kernels are tested without a GPU; read when triton is imported

settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,  # the first call of a kernel compiles it
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _cache_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No test reads or writes what the user has fetched."""
    folder = tmp_path_factory.mktemp("cache") / "compgcn"
    os.environ["COMPGCN_CACHE"] = str(folder)  # of the commands that tests start, too
    return folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> toy.Command:
    """`compgcn ARGUMENTS` inside this process, in an empty folder."""
    import toy  # here, not above: what it imports reads the settings above

    monkeypatch.chdir(tmp_path)
    return toy.command(monkeypatch, capfd)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the slowest tests first, in one piece, so that one process has them all and builds the wheel once."""
    items.sort(key=lambda item: item.path.name != "test_wheel.py")


def pytest_collection_finish() -> None:
    """Exclude all imported objects from garbage collection, which tests of memory run often."""
    gc.collect()
    gc.freeze()
