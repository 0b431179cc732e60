"""Implementations by others; tests that compare with a missing one are skipped."""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def pykeen() -> ModuleType:
    """PyKEEN, whose import compiles a function in a way that torch deprecates."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.script` is deprecated", DeprecationWarning)
        module = pytest.importorskip("pykeen", reason="PyKEEN is not installed; pip install compgcn[peers]")
        import_module("pykeen.evaluation")
        import_module("pykeen.nn.modules")
    return module
