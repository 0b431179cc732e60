"""A small trained model, served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from fastapi.testclient import TestClient

import toy
from compgcn.run.run import Run
from compgcn.serve.app import create_app
from compgcn.serve.middleware import Limits
from compgcn.serve.models import ServedModel, open_all


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return toy.train(tmp_path_factory.mktemp("secret-place") / "toy-run", decoder="distmult")


@pytest.fixture
def models(run: Run) -> Mapping[str, ServedModel]:
    return open_all([run.path], Limits(), "cpu")


@pytest.fixture
def fresh(models: Mapping[str, ServedModel]) -> Iterator[TestClient]:
    """A server over `models`."""
    with TestClient(create_app(models), "http://localhost") as client:
        yield client


@pytest.fixture(scope="module")
def client(run: Run) -> Iterator[TestClient]:
    """A server that all tests of a file share."""
    with TestClient(create_app(open_all([run.path], Limits(), "cpu")), "http://localhost") as client:
        yield client
