"""docs/server.md: its examples run against a model of `world`, its tables match the schema and the limits."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import compgcn
from compgcn.serve import shapes
from compgcn.serve.app import create_app
from compgcn.serve.middleware import Limits
from compgcn.serve.models import open_all
from compgcn.serve.shapes import FACTS, FOUND, NAME, POINTS, TOP

TEXT = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^curl .+$", TEXT, re.MULTILINE)
SHAPES = {
    "health": shapes.Health,
    "models": shapes.Models,
    "entities": shapes.Entities,
    "relations": shapes.Relations,
    "predict": shapes.Predictions,
    "explain": shapes.Explained,
    "neighbourhood": shapes.Neighbourhood,
    "similar": shapes.SimilarEntities,
    "map": shapes.Map,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("runs") / "world"
    compgcn.fit(compgcn.load("world"), run_dir=folder, epochs=1, dims=(8, 8), batch_size=512, decoder="distmult")
    with TestClient(create_app(open_all([folder], Limits(), "cpu")), "http://127.0.0.1:8000") as client:
        yield client


def endpoint(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_gets_an_answer_of_the_described_shape(world: TestClient, line: str) -> None:
    words = shlex.split(line)[1:]
    options = {words[i]: words[i + 1] for i in range(len(words) - 1) if words[i] in ("-X", "-H", "-d")}
    (url,) = (word for word in words if word.startswith("http://"))
    name, _, value = options.get("-H", "Accept: */*").partition(": ")
    answer = world.request(options.get("-X", "GET"), url, content=options.get("-d"), headers={name: value})
    assert answer.status_code == 200
    if shape := SHAPES.get(endpoint(url)):
        found = shape.model_validate(answer.json())
        assert all(getattr(found, key) for key in ("answers", "facts", "points", "entities") if hasattr(found, key))
    else:
        assert "compgcn_requests_total" in answer.text


def test_every_endpoint_has_an_example_and_a_row_with_its_parameters_and_keys(world: TestClient) -> None:
    schema = world.get("/openapi.json").json()
    shown = {endpoint(re.findall(r"http://[^' ]+", line)[0]) for line in EXAMPLES}
    assert shown == {path.rpartition("/")[2] for path in schema["paths"]}
    rows = re.findall(r"^\| `(GET|POST) (/[\w/]+)` \| (.+?) \| (.+?) \|$", TEXT, re.MULTILINE)
    assert [path for _, path, *_ in rows] == list(schema["paths"])
    for method, path, takes, answers in rows:
        operation: dict[str, Any] = schema["paths"][path][method.lower()]
        given = [row["name"] for row in operation.get("parameters", ())]
        if method == "POST":
            reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            given = list(schema["components"]["schemas"][reference.rpartition("/")[2]]["properties"])
        assert sorted(re.findall(r"`(\w+)`", takes)) == sorted(given), path
        keys = SHAPES[endpoint(path)].model_fields if endpoint(path) in SHAPES else ()
        assert [word for word in re.findall(r"`(\w+)`", answers) if word in keys] == list(keys), path


def test_the_documented_limits_are_true() -> None:
    limits = Limits()
    (section,) = re.findall(r"^\*\*Limits\.\*\* (.+?)\n\n", TEXT, re.MULTILINE | re.DOTALL)
    words = " ".join(section.split())
    for stated in (
        f"{TOP:,} answers or neighbours, {FOUND} entities of a search, {FACTS} facts, {POINTS:,} points",
        f"names of {NAME:,} characters",
        f"more than {limits.body // 1024} KiB",
        f"more than {limits.read_seconds:.0f} seconds to send a request",
        f"{limits.write_seconds:.0f} seconds to take an answer",
        f"without a request for {limits.idle_seconds} seconds",
        f"{limits.connections - 1:,} connections may be open",
    ):
        assert stated in words
