"""The endpoints give the run's own answers; every mistake gets a sentence and a status of 400 or above."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings

import toy
from clock import HANGS, Clock, until
from compgcn.cli import export
from compgcn.errors import InputError
from compgcn.run.run import Run
from compgcn.serve import shapes
from compgcn.serve.app import create_app
from compgcn.serve.middleware import Limits
from compgcn.serve.models import ServedModel, open_all
from compgcn.serve.server import LOCAL
from compgcn.serve.shapes import TOP

KEY = "a-key-of-more-than-16"
QUESTION = {"head": "p0", "relation": "lives"}
JSON = {"Content-Type": "application/json"}
KNOWN = {**QUESTION, "tail": "t0", "entity": "p1", "model": "toy-run"}


def refused(answer: Any, status: int, words: str = "") -> None:
    """Check the status, and that the answer is a sentence with these words."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"detail"}
    assert words in answer.json()["detail"]


# Answers


@pytest.mark.parametrize(
    "question",
    [
        {"head": "p0", "relation": "lives"},
        {"relation": "Lives", "tail": "name of t1", "top": 3},
        {"head": "p1", "tail": "t0", "top": 2},
        {"head": "p2", "relation": "knows", "new": True, "top": 100},
    ],
)
def test_predictions_are_the_runs_own(client: TestClient, run: Run, question: dict[str, Any]) -> None:
    found = client.post("/api/predict", json=question).json()
    assert found["model"] == "toy-run"
    assert found["answers_are"] == ("entities" if "relation" in question else "relations")
    expected = run.predict(**question)
    assert [answer["rank"] for answer in found["answers"]] == [*range(1, len(expected) + 1)]
    for answer, ours in zip(found["answers"], expected, strict=True):
        assert (answer["id"], answer["name"], answer["known"]) == (ours.id, ours.name, ours.known)
        assert answer["score"] == pytest.approx(ours.score, abs=1e-5)
        assert answer["probability"] == pytest.approx(ours.probability, abs=1e-5)


def test_concurrent_clients_each_get_their_own_answer(client: TestClient, run: Run) -> None:
    asked = [(head, top) for head in run.data.entities.ids for top in (1, 3, 1, 7)]
    with ThreadPoolExecutor(16) as threads:
        ask = lambda head, top: client.post("/api/predict", json={"head": head, "relation": "knows", "top": top})  # noqa: E731
        answers = [answer.json()["answers"] for answer in threads.map(ask, *zip(*asked, strict=True))]
    best = {head: [answer.id for answer in run.predict(head, "knows", top=7)] for head, _ in asked}
    assert [[row["id"] for row in rows] for rows in answers] == [best[head][:top] for head, top in asked]


def test_explanations_and_similar_entities_are_the_runs_own(client: TestClient, run: Run) -> None:
    found = client.post("/api/explain", json={"head": "p0", "relation": "lives", "tail": "t0", "top": 3}).json()
    expected = run.explain("p0", "lives", "t0", 3)
    assert (found["edges"], found["method"], found["known"]) == (expected.edges, expected.method, expected.known)
    contributions = [fact.contribution for fact in expected.facts]
    assert [fact["contribution"] for fact in found["facts"]] == pytest.approx(contributions, abs=1e-5)
    assert found["facts"][0]["head"] == {"id": expected.facts[0].head, "name": expected.facts[0].head_name}

    similar = client.get("/api/similar", params={"entity": "name of p0", "top": 4}).json()
    assert [near["id"] for near in similar["answers"]] == [near.id for near in run.similar("p0", 4)]


def test_look_ups_agree_with_the_graph(client: TestClient, run: Run) -> None:
    entities = client.get("/api/entities", params={"q": "NAME of T", "limit": 3}).json()
    assert {entity["id"][0] for entity in entities["entities"]} == {"t"}
    relations = client.get("/api/relations").json()
    assert sum(row["facts"] for row in relations["relations"]) == run.data.statistics()["triples"]
    around = client.get("/api/neighbourhood", params={"entity": "p0", "limit": 2}).json()
    assert len(around["facts"]) == 2 <= around["total"]
    assert all("p0" in (fact["head"]["id"], fact["tail"]["id"]) for fact in around["facts"])
    part = client.get("/api/map", params={"limit": 5}).json()
    whole = client.get("/api/map").json()["points"]
    assert (whole[:5], len(whole)) == (part["points"], run.data.num_entities)


def test_the_card_describes_the_model_and_hides_the_disk(client: TestClient, run: Run) -> None:
    models = client.get("/api/models")
    (card,) = shapes.Models.model_validate(models.json()).models
    assert models.json()["timeout"] == Limits().seconds
    assert (card.id, card.task, card.entities) == ("toy-run", "link-prediction", run.data.num_entities)
    assert card.metrics["test"]["mrr"] == run.metrics["test"]["mrr"]
    assert [epoch.epoch for epoch in card.curve] == [1, 2, 3]
    assert all(epoch.loss is not None for epoch in card.curve)
    assert card.config["decoder"]["name"] == "distmult"
    assert card.calibrated == [kind for kind in ("entities", "relations", "discoveries") if run.calibrated(kind)]
    assert "secret-place" not in models.text


def test_runs_with_the_same_folder_name_get_different_ids(run: Run) -> None:
    models = open_all([run.path, run.path], Limits(), "cpu")
    assert list(models) == ["toy-run", "toy-run-2"]
    with TestClient(create_app(models), "http://localhost") as client:
        assert client.post("/api/predict", json={**QUESTION, "model": "toy-run-2"}).json()["model"] == "toy-run-2"
        assert client.get("/health").json() == {"status": "ok", "models": 2}


def test_a_classification_run_is_refused(tmp_path: Path) -> None:
    run = toy.train(tmp_path / "classes", toy.labelled(), epochs=1, folds=2, **{"encoder.dims": (4, 4)})
    with pytest.raises(InputError, match="node-classification, and serve needs a run that predicts links"):
        open_all([run.path], Limits(), "cpu")


# Mistakes of clients


@pytest.mark.parametrize(
    ("path", "given", "status", "words"),
    [
        ("predict", {"json": {"head": "p00", "relation": "lives"}}, 404, "unknown entity 'p00'; did you mean"),
        ("predict", {"json": {"head": "p0", "relation": "loves"}}, 404, "did you mean 'lives'"),
        ("predict", {"json": {**QUESTION, "model": "other"}}, 404, "unknown model 'other'"),
        ("predict", {"json": {"head": "p0"}}, 400, "give two of head, relation and tail"),
        ("predict", {"json": {**QUESTION, "top": TOP + 1}}, 422, "top: "),
        ("predict", {"json": {**QUESTION, "hed": "p1"}}, 422, "hed: "),
        ("predict", {"json": []}, 422, "the body: "),
        ("predict", {"content": b"\xff\xfe", "headers": JSON}, 422, "the body is not JSON"),
        ("predict", {"content": b"{}"}, 422, "send the header 'content-type: application/json'"),
        ("explain", {"json": QUESTION}, 422, "tail: "),
    ],
)
def test_a_wrong_question_gets_a_sentence(
    client: TestClient, path: str, given: dict[str, Any], status: int, words: str
) -> None:
    refused(client.post(f"/api/{path}", **given), status, words)


def test_a_large_body_gets_413_with_and_without_a_length(client: TestClient) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(9):
            yield b" " * 8192

    for body in (b" " * 65537, pieces()):
        assert client.post("/api/predict", content=body).status_code == 413


def test_only_clients_with_the_key_learn_about_a_model(models: Mapping[str, ServedModel]) -> None:
    app = create_app(models, key=KEY)
    with TestClient(app, "http://example.org") as client:
        paths = app.openapi()["paths"]
        closed = [(path, method) for path, rows in paths.items() for method, row in rows.items() if "security" in row]
        assert {path for path, _ in closed} == {*paths} - {"/health"}
        for wrong in ({}, {"Authorization": f"Basic {KEY}"}, {"X-API-Key": KEY[:-1]}):
            for path, method in closed:
                body = {"json": QUESTION} if method == "post" else {}
                refused(client.request(method, path, headers=wrong, **body), 401, "give the key")
        for right in ({"Authorization": f"Bearer {KEY}"}, {"X-API-Key": KEY}):
            assert client.post("/api/predict", json=QUESTION, headers=right).status_code == 200
        for path in ("/health", "/", "/docs", "/openapi.json", "/static/plotly.min.js"):
            assert client.get(path).status_code == 200


def test_a_page_of_another_site_is_refused(client: TestClient) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        for path in ("/api/map", "/api/models", "/metrics"):
            assert client.get(path, headers={"Sec-Fetch-Site": site}).status_code == status
        assert client.get("/", headers={"Sec-Fetch-Site": site}).status_code == 200  # a link may lead to the page


def test_a_foreign_host_name_is_refused_and_every_answer_has_safety_headers(models: Mapping[str, ServedModel]) -> None:
    with TestClient(create_app(models, hosts=LOCAL)) as client:
        for host, status in (("evil.example", 400), ("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]:80", 200)):
            assert client.get("/api/models", headers={"Host": host}).status_code == status
            for path in ("/health", "/", "/static/index.html", "/docs", "/api/models", "/nothing", "/api/map?limit=0"):
                headers = client.get(path, headers={"Host": host}).headers
                assert headers["x-content-type-options"] == "nosniff"
                assert "default-src 'none'" in headers["content-security-policy"]
                assert "access-control-allow-origin" not in headers
        assert client.get("/api/models", headers={"Host": "localhost"}).headers["cache-control"] == "no-store"


def test_without_plotly_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compgcn.cli.export.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'compgcn\[serve\]'"):
        export.serve([])


# Load, delay, failure


def test_a_full_queue_gives_503_and_a_late_answer_504(run: Run) -> None:
    clock, limits = Clock(), Limits(queue=1, seconds=1000)
    models = open_all([run.path], limits, "cpu")
    batcher = models["toy-run"].predictions
    begun, go, work = threading.Event(), threading.Event(), batcher._work
    batcher._work = lambda asked: begun.set() or (go.wait(HANGS) and work(asked))
    ask = lambda: client.post("/api/predict", json=QUESTION)  # noqa: E731
    served = TestClient(create_app(models, limits), "http://localhost", backend_options={"loop_factory": clock.loop})
    with served as client, ThreadPoolExecutor(2) as threads:
        first = threads.submit(ask)
        assert begun.wait(HANGS)
        second = threads.submit(ask)
        until(lambda: not batcher._queue.empty())
        full = ask()
        refused(full, 503, "too many")
        assert full.headers["retry-after"] == "1"
        assert client.get("/health").status_code == client.get("/api/relations").status_code == 200
        clock.leap(1001)
        refused(first.result(), 504, "too long")
        refused(second.result(), 504, "too long")
        go.set()
        until(batcher._queue.empty)
        assert ask().status_code == 200


def test_an_unexpected_error_gives_500_without_details_and_the_server_goes_on(
    models: Mapping[str, ServedModel],
    fresh: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("/secret-place")

    with monkeypatch.context() as patch:
        patch.setattr(models["toy-run"].links, "answer", broken)
        answer = fresh.post("/api/predict", json=QUESTION)
    refused(answer, 500, "something went wrong on the server")
    assert "secret" not in answer.text
    assert "secret-place" in caplog.text
    assert fresh.post("/api/predict", json=QUESTION).status_code == 200


# Metrics and schema


def test_requests_and_batches_are_counted(fresh: TestClient) -> None:
    def counters() -> dict[str, float]:
        rows = (line.rsplit(" ", 1) for line in fresh.get("/metrics").text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    before = counters()
    for _ in range(3):
        fresh.post("/api/predict", json=QUESTION)
    fresh.get("/api/map?limit=0")
    after = counters()
    for name, more in {
        'compgcn_requests_total{route="/api/predict",status="200"}': 3,
        'compgcn_requests_total{route="/api/map",status="422"}': 1,
        'compgcn_request_seconds_count{route="/api/predict"}': 3,
        'compgcn_answered_total{lane="predict",model="toy-run"}': 3,
        'compgcn_batches_total{lane="predict",model="toy-run"}': 3,
        'compgcn_waiting{lane="predict",model="toy-run"}': 0,
    }.items():
        assert after[name] - before.get(name, 0) == more


def test_the_docs_page_names_every_endpoint_and_loads_nothing_from_elsewhere(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert "HTTPValidationError" not in json.dumps(schema)
    page = client.get("/docs").text
    for path in (*schema["paths"], "leave out facts that are in the data already"):
        assert path in page
    assert not re.search(r"(src|href)=['\"]?(https?:)?//", page)
    script = client.get("/static/plotly.min.js")
    assert script.headers["content-type"].startswith(("text/javascript", "application/javascript"))


@pytest.fixture(scope="module")
def described(run: Run) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(open_all([run.path], Limits(), "cpu")))


@pytest.mark.parametrize("mode", schemathesis.GenerationMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("path", ["predict", "explain", "entities", "relations", "neighbourhood", "similar", "map"])
def test_no_request_inside_or_outside_the_schema_breaks_the_server(
    described: Any, path: str, mode: schemathesis.GenerationMode
) -> None:
    operation = described[f"/api/{path}"]["POST" if path in ("predict", "explain") else "GET"]

    @given(operation.as_strategy(generation_mode=mode))
    @settings(max_examples=15, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def asked(case: schemathesis.Case) -> None:
        for part in (case.body, case.query):  # replace half of the names by known ones, to get further
            if isinstance(part, dict):
                part |= {key: KNOWN[key] for key, text in part.items() if key in KNOWN and len(str(text)) % 2}
        answer = case.call(headers={"Host": "localhost"})
        assert answer.status_code < 500, answer.text
        assert str(answer.status_code) in operation.definition.raw["responses"] or answer.status_code == 405

    asked()


# A model without vectors of entities


def test_a_model_conditioned_on_the_query_is_served_without_map_and_likeness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy.train(tmp_path / "run", epochs=1, **toy.CONDITIONAL)
    with TestClient(create_app(open_all([run.path], Limits(), "cpu")), "http://localhost") as client:
        (card,) = client.get("/api/models").json()["models"]
        assert (card["name"], card["vectors"]) == ("conditional", False)
        for question in (QUESTION, {"head": "p0", "tail": "t0"}):
            answers = client.post("/api/predict", json=question).json()["answers"]
            assert [one["id"] for one in answers] == [one.id for one in run.predict(**question)]
        assert client.get("/api/neighbourhood", params={"entity": "p1"}).status_code == 200
        monkeypatch.setattr("compgcn.serve.models._PASSED", 1)
        refused(client.post("/api/predict", json={"head": "p0", "tail": "t0"}), 400, "once for each of its 3 relations")
        refused(client.get("/api/map"), 400, "gives no entity a vector of its own")
        refused(client.get("/api/similar", params={"entity": "p1"}), 400, "gives no entity a vector of its own")
