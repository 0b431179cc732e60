"""Over HTTP one gets what the run answers; what cannot be answered gets a sentence and a 4xx, and nothing else."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings

import toy
from clock import HANGS, Clock
from compgcn.data import Vocabulary
from compgcn.errors import InputError
from compgcn.run import Run
from compgcn.serve import documents, shapes
from compgcn.serve.app import create_app
from compgcn.serve.middleware import LOCAL, TOP, Limits
from compgcn.serve.models import Served, open_all

KEY = "a-key-of-more-than-16"
QUESTION = {"head": "p0", "relation": "lives"}
KNOWN = {**QUESTION, "tail": "t0", "entity": "p1", "model": "toy-run"}


def refused(answer: Any, status: int, words: str) -> None:
    """The status, and a sentence with these words."""
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
def test_a_prediction_is_that_of_the_run(client: TestClient, run: Run, question: dict[str, Any]) -> None:
    found = client.post("/api/predict", json=question).json()
    shapes.Predictions.model_validate(found)
    assert found["model"] == "toy-run"
    assert found["answers_are"] == ("entities" if "relation" in question else "relations")
    expected = run.predict(**question)
    assert [answer["entity"] for answer in found["answers"]] == [answer.entity for answer in expected]
    for rank, (answer, ours) in enumerate(zip(found["answers"], expected, strict=True), 1):
        assert (answer["rank"], answer["name"], answer["known"]) == (rank, ours.name, ours.known)
        assert answer["score"] == pytest.approx(ours.score, abs=1e-5)
        assert answer["probability"] == pytest.approx(ours.probability, abs=1e-5)


def test_many_at_once_each_get_their_own_answer(client: TestClient, run: Run) -> None:
    heads = [*run.data.entities.ids] * 4
    with ThreadPoolExecutor(16) as threads:
        ask = lambda head: client.post("/api/predict", json={"head": head, "relation": "knows", "top": 1})  # noqa: E731
        answers = list(threads.map(ask, heads))
    best = {head: run.predict(head, "knows", top=1)[0].entity for head in set(heads)}
    assert [answer.json()["answers"][0]["entity"] for answer in answers] == [best[head] for head in heads]


def test_lists_of_about_one_length_are_made_together_and_cut(models: dict[str, Served], run: Run) -> None:
    links, asked = models["toy-run"].links, []
    answer = links.answer
    with mock.patch.object(links, "answer", lambda rows, *given: asked.append(len(rows)) or answer(rows, *given)):
        queries = [((row, 2, None), top, False) for row, top in enumerate((1, 3, 7, 10, 11, 12))]
        found = models["toy-run"]._predict(queries)
    assert asked == [4, 2]
    people = run.data.entities.ids
    for ((row, *_), top, _), got in zip(queries, found, strict=True):
        expected = [prediction.entity for prediction in run.predict(people[row], "knows", top=top)]
        assert [prediction.entity for prediction in got] == expected


def test_an_explanation_and_neighbours_are_those_of_the_run(client: TestClient, run: Run) -> None:
    found = client.post("/api/explain", json={"head": "p0", "relation": "lives", "tail": "t0", "top": 3}).json()
    shapes.Explained.model_validate(found)
    expected = run.explain("p0", "lives", "t0", 3)
    assert (found["edges"], found["method"], found["known"]) == (expected.edges, expected.method, expected.known)
    assert [fact["contribution"] for fact in found["facts"]] == pytest.approx(
        [fact.contribution for fact in expected.facts], abs=1e-5
    )
    assert found["facts"][0]["head"] == {"id": expected.facts[0].head, "name": expected.facts[0].head_name}

    alike = client.get("/api/similar", params={"entity": "name of p0", "top": 4}).json()
    shapes.SimilarEntities.model_validate(alike)
    assert [near["entity"] for near in alike["answers"]] == [near.entity for near in run.similar("p0", 4)]


def test_one_can_look_around(client: TestClient, run: Run) -> None:
    entities = client.get("/api/entities", params={"q": "NAME of T", "limit": 3}).json()
    shapes.Entities.model_validate(entities)
    assert {entity["id"][0] for entity in entities["entities"]} == {"t"}
    relations = client.get("/api/relations").json()
    shapes.Relations.model_validate(relations)
    assert sum(row["facts"] for row in relations["relations"]) == run.data.statistics()["triples"]
    around = client.get("/api/neighbourhood", params={"entity": "p0", "limit": 2}).json()
    shapes.Neighbourhood.model_validate(around)
    assert len(around["facts"]) == 2 <= around["total"]
    assert all("p0" in (fact["head"]["id"], fact["tail"]["id"]) for fact in around["facts"])
    plane = client.get("/api/map", params={"limit": 5}).json()
    shapes.Map.model_validate(plane)
    assert len(plane["points"]) == 5
    whole = client.get("/api/map").json()["points"]
    assert whole[:5] == plane["points"]
    assert len(whole) == run.data.num_entities


def test_the_card_says_what_the_model_is_and_nothing_of_the_disk(client: TestClient, run: Run) -> None:
    models = client.get("/api/models")
    (card,) = shapes.Models.model_validate(models.json()).models
    assert models.json()["timeout"] == Limits().seconds
    assert (card.id, card.task, card.entities) == ("toy-run", "link-prediction", run.data.num_entities)
    assert card.metrics["test"]["mrr"] == run.metrics["test"]["mrr"]
    assert [epoch.epoch for epoch in card.curve] == [1, 2, 3]
    assert all(epoch.loss is not None for epoch in card.curve)
    assert card.config["decoder"]["name"] == "distmult"
    assert card.examples
    assert "secret-place" not in models.text


def test_several_runs_of_one_name_have_ids_of_their_own(run: Run) -> None:
    models = open_all([run.path, run.path], Limits(), "cpu")
    assert list(models) == ["toy-run", "toy-run-2"]
    with TestClient(create_app(models), "http://localhost") as client:
        assert client.post("/api/predict", json={**QUESTION, "model": "toy-run-2"}).json()["model"] == "toy-run-2"
        assert client.get("/health").json() == {"status": "ok", "models": 2}


def test_a_run_that_classifies_is_refused_at_the_start(tmp_path: Path) -> None:
    run = toy.train(tmp_path / "classes", toy.labelled(), epochs=1, folds=2, **{"encoder.dims": (4, 4)})
    with pytest.raises(InputError, match="node-classification, and serve answers for runs that predict links"):
        open_all([run.path], Limits(), "cpu")


# What cannot be answered


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("predict", {"head": "p00", "relation": "lives"}, 404, "unknown entity 'p00'; did you mean"),
        ("predict", {"head": "p0", "relation": "loves"}, 404, "did you mean 'lives'"),
        ("predict", {**QUESTION, "model": "other"}, 404, "unknown model 'other'"),
        ("predict", {"head": "p0"}, 400, "give two of head, relation and tail"),
        ("predict", {**QUESTION, "tail": "p1"}, 400, "give two of head, relation and tail"),
        ("predict", {**QUESTION, "top": TOP + 1}, 422, "top: "),
        ("predict", {**QUESTION, "top": "many"}, 422, "top: "),
        ("predict", {**QUESTION, "hed": "p1"}, 422, "hed: "),
        ("predict", {"head": "x" * 3000, "relation": "lives"}, 422, "head: "),
        ("predict", [], 422, "the body: "),
        ("explain", {**QUESTION, "tail": "p1000"}, 404, "unknown entity"),
        ("explain", QUESTION, 422, "tail: "),
    ],
)
def test_a_question_that_makes_no_sense_gets_a_sentence(
    client: TestClient, path: str, body: Any, status: int, words: str
) -> None:
    refused(client.post(f"/api/{path}", json=body), status, words)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"head": "\\ud800", "relation": "lives"}',
        b'{"top": ' + b"9" * 6000 + b"}",
    ],
)
def test_a_body_that_is_no_json_gets_a_sentence(client: TestClient, body: bytes) -> None:
    answer = client.post("/api/predict", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert set(answer.json()) == {"detail"}
    assert client.post("/api/predict", json=QUESTION).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/neighbourhood", 422),
        ("/api/neighbourhood?entity=nobody", 404),
        ("/api/neighbourhood?entity=p0&limit=501", 422),
        ("/api/similar?entity=p0&top=0", 422),
        ("/api/map?limit=1000000", 422),
        ("/api/entities?limit=1000", 422),
        ("/api/entities?model=other", 404),
        (f"/api/entities?q={'x' * 3000}", 422),
        ("/static/..%2Fapp.py", 404),
        ("/static/app.py", 404),
        ("/nothing", 404),
        ("/api/predict", 405),
    ],
)
def test_a_look_at_what_is_not_there_gets_a_sentence(client: TestClient, path: str, status: int) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert set(answer.json()) == {"detail"}


def test_a_body_that_is_not_marked_as_json_gets_told_how(client: TestClient) -> None:
    answer = client.post("/api/predict", content=json.dumps(QUESTION).encode(), headers={"content-type": "text/plain"})
    refused(answer, 422, "send the header 'content-type: application/json'")


def test_the_card_names_the_kinds_of_answers_with_calibrated_probabilities(client: TestClient, run: Run) -> None:
    (card,) = client.get("/api/models").json()["models"]
    kinds = ("entities", "relations", "discoveries")
    assert card["calibrated"] == [kind for kind in kinds if run.calibrated(kind)]


def test_a_body_too_large_is_refused_whether_its_length_is_told_or_not(client: TestClient) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(9):
            yield b" " * 8192

    refused(client.post("/api/predict", content=b" " * 65537), 413, "larger than 65536 bytes")
    refused(client.post("/api/predict", content=pieces()), 413, "larger than 65536 bytes")


def test_without_the_key_nothing_of_a_model_is_told(models: dict[str, Served]) -> None:
    app = create_app(models, key=KEY)
    with TestClient(app, "http://example.org") as client:
        paths = app.openapi()["paths"]
        closed = [path for path, rows in paths.items() if any("security" in row for row in rows.values())]
        assert len(closed) == 9
        for given in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {KEY}"},
            {"X-API-Key": KEY[:-1]},
        ):
            for path in (*closed, "/nothing"):
                refused(client.get(path, headers=given), 401, "give the key")
        for right in ({"Authorization": f"Bearer {KEY}"}, {"X-API-Key": KEY}):
            assert client.post("/api/predict", json=QUESTION, headers=right).status_code == 200
        for path in ("/health", "/", "/docs", "/openapi.json", "/static/plotly.min.js"):
            assert client.get(path).status_code == 200


def test_without_a_key_another_sites_name_for_this_machine_is_refused(models: dict[str, Served]) -> None:
    with TestClient(create_app(models, hosts=LOCAL)) as client:
        for host, status in (("evil.example", 400), ("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]:80", 200)):
            assert client.get("/api/models", headers={"Host": host}).status_code == status


def test_what_a_page_of_another_site_asks_is_not_computed(client: TestClient) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        for path in ("/api/map", "/api/models", "/metrics"):
            assert client.get(path, headers={"Sec-Fetch-Site": site}).status_code == status
        assert client.get("/", headers={"Sec-Fetch-Site": site}).status_code == 200  # a link may lead to the page


def test_every_answer_has_the_headers_that_keep_a_browser_safe(client: TestClient) -> None:
    for path in ("/health", "/", "/docs", "/api/models", "/nothing", "/api/map?limit=0"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers


# Too much, too slow, broken


def by(clock: Clock) -> dict[str, Any]:
    """How a client is told to have the server go by a clock."""
    return {"loop_factory": clock.loop}


def stuck(models: dict[str, Served], monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Predictions that do not come before the second event is set; the first says that one is being worked on."""
    begun, go = threading.Event(), threading.Event()
    links = models["toy-run"].links
    answer = links.answer

    def slow(*given: Any) -> Any:
        begun.set()
        assert go.wait(HANGS)
        return answer(*given)

    monkeypatch.setattr(links, "answer", slow)
    return begun, go


def test_a_full_queue_is_answered_503_and_the_rest_is_answered(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    models = open_all([run.path], Limits(queue=2), "cpu")
    begun, go = stuck(models, monkeypatch)
    with TestClient(create_app(models), "http://localhost") as client, ThreadPoolExecutor(3) as threads:
        ask = lambda: client.post("/api/predict", json=QUESTION)  # noqa: E731
        first = threads.submit(ask)
        assert begun.wait(HANGS)
        others = [threads.submit(ask) for _ in range(2)]
        while models["toy-run"].predictions.waiting < 2:
            pass
        full = ask()
        refused(full, 503, "too many")
        assert full.headers["retry-after"] == "1"
        assert client.get("/health").status_code == 200
        go.set()
        assert [asked.result().status_code for asked in (first, *others)] == [200] * 3


def test_looking_around_has_a_queue_and_a_time_limit_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    models = open_all([run.path], Limits(queue=1), "cpu")
    begun, go = threading.Event(), threading.Event()
    monkeypatch.setattr(models["toy-run"].atlas, "search", lambda *_: begun.set() or (go.wait(HANGS) and [0]))
    clock, limits = Clock(), Limits(seconds=1000)
    with TestClient(create_app(models, limits), "http://localhost", backend_options=by(clock)) as client:
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(client.get, "/api/entities?q=p")
            assert begun.wait(HANGS)
            second = threads.submit(client.get, "/api/neighbourhood?entity=p0")
            while models["toy-run"].views.waiting < 1:
                pass
            refused(client.get("/api/neighbourhood?entity=p1"), 503, "too many")
            assert client.get("/api/relations").status_code == client.get("/api/models").status_code == 200
            clock.leap(1001)
            refused(first.result(), 504, "too long")
            refused(second.result(), 504, "too long")
        go.set()


def test_an_answer_that_takes_too_long_is_504_and_the_next_is_given(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    models = open_all([run.path], Limits(), "cpu")
    begun, go = stuck(models, monkeypatch)
    clock, limits = Clock(), Limits(seconds=1000)
    with (
        TestClient(create_app(models, limits), "http://localhost", backend_options=by(clock)) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        late = threads.submit(client.post, "/api/predict", json=QUESTION)
        assert begun.wait(HANGS)
        clock.leap(1001)
        refused(late.result(), 504, "too long")
        go.set()
        assert client.get("/api/similar?entity=p0").status_code == 200


def test_unknown_names_wait_for_nobody_and_nobody_waits_for_them(
    models: dict[str, Served], fresh: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr("compgcn.serve.models._meant", lambda *_: go.wait(HANGS))
    monkeypatch.setattr("compgcn.serve.models._GUESSING", 0.2)
    with ThreadPoolExecutor(32) as threads:
        asked = [threads.submit(fresh.post, "/api/predict", json={**QUESTION, "head": f"x{i}"}) for i in range(32)]
        assert fresh.get("/health").status_code == 200
        assert fresh.post("/api/predict", json=QUESTION).status_code == 200
        assert fresh.get("/api/neighbourhood?entity=p0").status_code == 200
        for number, each in enumerate(asked):
            refused(each.result(), 404, f"unknown entity 'x{number}'")
        go.set()


def test_a_typo_among_thousands_of_iris_is_found_with_little_work(
    models: dict[str, Served], fresh: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    iris = [f"https://example.org/resource/{'item' * (number % 9)}/{number}" for number in range(4000)]
    monkeypatch.setattr(models["toy-run"], "data", SimpleNamespace(entities=Vocabulary("entity", iris)))
    compared = []

    def counting(text: str, names: list[str], **given: Any) -> list[str]:
        compared.append(len(text) * sum(map(len, names)))
        return get_close_matches(text, names, **given)

    monkeypatch.setattr("compgcn.errors.get_close_matches", counting)
    for typo, words in ((iris[70] + "x", f"'{iris[70]}'"), ("x" * 2000, "unknown entity 'xxx"), ("h", "'h'")):
        refused(fresh.post("/api/predict", json={**QUESTION, "head": typo}), 404, words)
    assert 0 < max(compared) <= 2**20


def test_what_nobody_foresaw_is_a_500_without_details_and_the_server_goes_on(
    models: dict[str, Served], fresh: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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


# Counters and descriptions


def test_the_counters_are_in_the_format_of_prometheus(fresh: TestClient) -> None:
    for _ in range(3):
        fresh.post("/api/predict", json=QUESTION)
    fresh.get("/api/map?limit=0")
    text = fresh.get("/metrics").text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'compgcn_\w+(\{(\w+="[^"\n]*",?)+\})? [0-9.e+-]+', line) for line in lines)
    assert 'compgcn_requests_total{route="/api/predict",status="200"} 3.0' in lines
    assert 'compgcn_requests_total{route="/api/map",status="422"} 1.0' in lines
    assert 'compgcn_request_seconds_count{route="/api/predict"} 3' in lines
    assert 'compgcn_answered_total{model="toy-run",lane="predict"} 3.0' in lines


def test_the_descriptions_name_every_endpoint_and_load_nothing_from_elsewhere(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    page = client.get("/docs").text
    for path in schema["paths"]:
        assert path in page
    assert not re.search(r"(src|href)=['\"]?(https?:)?//", page)
    script = client.get("/static/plotly.min.js")
    assert script.headers["content-type"].startswith(("text/javascript", "application/javascript"))


def test_where_there_is_no_page_a_line_says_where_to_read(
    models: dict[str, Served], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(documents, "PAGE", tmp_path)
    with TestClient(create_app(models), "http://localhost") as client:
        assert "/docs" in client.get("/").text
    (tmp_path / "index.html").write_text("<h1>Hello</h1>")
    with TestClient(create_app(models), "http://localhost") as client:
        assert client.get("/").text == "<h1>Hello</h1>"


def test_every_endpoint_describes_its_answer_and_its_refusals(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            if path not in ("/metrics",):
                assert "$ref" in operation["responses"]["200"]["content"]["application/json"]["schema"], path
            if path != "/health":
                assert "401" in operation["responses"], path
    assert "HTTPValidationError" not in json.dumps(schema)


@pytest.fixture(scope="module")
def described(run: Run) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(open_all([run.path], Limits(), "cpu")))


@pytest.mark.parametrize("mode", schemathesis.GenerationMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("path", ["predict", "explain", "entities", "relations", "neighbourhood", "similar", "map"])
def test_nothing_the_schema_allows_or_forbids_breaks_the_server(
    described: Any, path: str, mode: schemathesis.GenerationMode
) -> None:
    operation = described[f"/api/{path}"]["POST" if path in ("predict", "explain") else "GET"]

    @given(operation.as_strategy(generation_mode=mode))
    @settings(max_examples=20, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def asked(case: schemathesis.Case) -> None:
        for part in (case.body, case.query):  # half of the names are some that are known, to get further
            if isinstance(part, dict):
                part |= {key: KNOWN[key] for key, text in part.items() if key in KNOWN and len(str(text)) % 2}
        answer = case.call(headers={"Host": "localhost"})
        assert answer.status_code < 500, answer.text
        assert str(answer.status_code) in operation.definition.raw["responses"] or answer.status_code == 405

    asked()
