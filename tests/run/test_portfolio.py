"""The search over models of a graph: deterministic by trials, blind to test, resumed to the bit, an ordinary run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import compgcn
from compgcn.config import Config
from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError
from compgcn.run import portfolio
from compgcn.run.plan import Outline
from compgcn.run.report import write_page
from compgcn.run.run import Run, open_run
from compgcn.run.search import Budget, journalled
from compgcn.train.folder import MODEL
from compgcn.train.loop import Event, Interrupted
from compgcn.train.recipes import Candidate
from compgcn.train.recipes import portfolio as candidates_of
from toy import CONDITIONAL, SMALL, Command, flags, graph, lasting, refused, write_tsv

GIVEN = {"data.source": "toy", "device": "cpu"}
FACTORS = {**SMALL, "encoder": "none", "dims": (8,), "decoder": "complex", "loss": "cross-entropy", "epochs": 9}
FEW = [
    Candidate("conditional", {**SMALL, **CONDITIONAL, "epochs": 3}, "conditional"),
    *(Candidate(f"ComplEx {lr}", {**FACTORS, "lr": lr}, "factorisation") for lr in (0.01, 0.02, 0.05, 0.1)),
]


@pytest.fixture(scope="module", autouse=True)
def few() -> Iterator[None]:
    with mock.patch.object(portfolio, "portfolio", return_value=FEW):
        yield


@pytest.fixture(scope="module")
def whole(few: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A search that nothing disturbed."""
    return searched(tmp_path_factory.mktemp("whole") / "run")


class Steps:
    """A clock that counts steps and epochs, each with its seconds."""

    def __init__(self, step: float = 1.0, epoch: float = 1.0) -> None:
        self.now, self.seconds = 0.0, {"step": step, "epoch": epoch}

    def tick(self, event: Event) -> None:
        self.now += self.seconds.get(event["event"], 0.0)


def searched(folder: Path, data: KnowledgeGraph | None = None, trials: int = 7, **how: Any) -> Run:
    return portfolio.search(GIVEN, data or graph(people=12), Budget(trials=trials), folder, **how)


def told(folder: Path) -> list[dict[str, Any]]:
    """The journal, but for the seconds and the fingerprints."""
    lines = (folder / "search" / "journal.jsonl").read_text().splitlines()
    left_out = ("spent", "triples")
    return [{key: x for key, x in json.loads(line).items() if key not in left_out} for line in lines]


def test_a_number_of_trials_gives_the_same_model_every_time_whatever_test_holds(tmp_path: Path, whole: Run) -> None:
    data = graph(people=12)
    other = searched(tmp_path / "run", replace(data, test=data.test[:1]))
    assert told(other.path) == told(whole.path)
    assert (other.path / MODEL).read_bytes() == (whole.path / MODEL).read_bytes()
    assert other.metrics["test"] != whole.metrics["test"]


@pytest.mark.parametrize("steps", [1, 20, 60])
def test_a_stopped_search_resumes_to_the_same_bits(tmp_path: Path, whole: Run, steps: int) -> None:
    seen = list[Event]()
    with pytest.raises(Interrupted):
        searched(tmp_path / "b", notify=seen.append, interrupted=lambda: len(seen) >= steps)
    assert not (tmp_path / "b" / "metrics.json").exists(), "the test metrics come last"
    with pytest.raises(InputError, match="holds a search with other --minutes or --trials; give it --trials 7, or "):
        searched(tmp_path / "b", trials=1)
    with pytest.raises(InputError, match="holds an unfinished search"):
        compgcn.fit(graph(), run_dir=tmp_path / "b", model="distmult", epochs=1)
    with pytest.raises(InputError, match="holds an unfinished search; the train command that began it resumes it"):
        open_run(tmp_path / "b").predict("p0", "lives")
    seen.clear()
    resumed = searched(tmp_path / "b", notify=seen.append)
    assert [event["note"] for event in seen if "note" in event] == [f"the search in {resumed.path} resumes"]
    trials = [line for line in told(resumed.path) if line["event"] != "stop"]
    assert trials == told(whole.path)
    assert (resumed.path / MODEL).read_bytes() == (whole.path / MODEL).read_bytes()


def test_the_winner_is_an_ordinary_run_that_says_why_it_won(whole: Run, tmp_path: Path) -> None:
    run, found = whole, journalled(whole.path)
    assert found.trials[0].share == 1.0
    lines = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["event"] == "epoch"]
    assert [line["epoch"] for line in epochs] == list(range(1, run.config.training.epochs + 1))
    assert epochs[-1]["best_epoch"] == run.metrics["best_epoch"]
    assert max(line["valid"]["mrr"] for line in epochs if line["valid"]) == found.trials[0].value
    assert {trial.name for trial in found.trials} == {name for name, *_ in FEW}
    assert [path.name for path in (run.path / "search").iterdir()] == ["journal.jsonl"], "no weights of the losers"
    again = open_run(run.path)
    assert again.predict(head="p0", relation="lives", top=1)
    assert again.evaluate()["mrr"] == pytest.approx(run.metrics["test"]["mrr"])
    page = write_page(again, tmp_path / "page.html").read_text()
    assert "Choice of the model" in page
    assert "<h2>Training" in page
    assert "none + " not in page
    assert all(name in page for name, *_ in FEW)
    assert "filters ranks by train and valid alone" in page


@pytest.mark.parametrize("during", ["evaluating test", "calibrating entities"])
def test_a_search_stopped_in_the_last_evaluation_trains_nothing_again(tmp_path: Path, whole: Run, during: str) -> None:
    seen = list[Event]()
    with pytest.raises(Interrupted):
        searched(tmp_path / "b", notify=seen.append, interrupted=lambda: any(one.get("what") == during for one in seen))
    seen.clear()
    resumed = searched(tmp_path / "b", notify=seen.append)
    assert seen[0]["note"] == f"the search in {resumed.path} has ended; its winner is evaluated and calibrated next"
    assert not {event["event"] for event in seen} & {"step", "epoch", "trial", "cost"}
    assert lasting(resumed.path) == lasting(whole.path)
    assert resumed.folder.is_calibrated


def test_a_finished_search_trains_no_more_and_refuses_another_budget(tmp_path: Path) -> None:
    run, events = searched(tmp_path / "run"), list[Event]()
    assert searched(run.path, notify=events.append).metrics == run.metrics
    assert [event["event"] for event in events] == ["search", "winner"]
    assert events[0]["note"].split("; ")[0] == f"the search in {run.path} is finished"
    with pytest.raises(InputError, match="holds a search with other --minutes or --trials"):
        searched(run.path, trials=1)
    assert searched(run.path, trials=1, overwrite=True).path == run.path
    assert sum(line["event"] == "end" and line["share"] > 0 for line in told(run.path)) == 1
    (run.path / "search" / "journal.jsonl").write_text("")
    with pytest.raises(InputError, match="holds a run without a search"):
        searched(run.path, trials=1)


@pytest.mark.parametrize("more", [1, 40])
def test_fewer_minutes_than_it_had_end_a_search_with_its_best_model(tmp_path: Path, more: int) -> None:
    steps, about = Steps(), (GIVEN, graph(people=12))
    judged = list[Event]()

    def tell(event: Event) -> None:
        steps.tick(event)
        judged.extend([event] * ("value" in event or bool(judged)))

    def search(seconds: float, **how: Any) -> Run:
        return portfolio.search(*about, Budget(seconds=seconds), tmp_path / "run", tell, clock=lambda: steps.now, **how)

    with pytest.raises(Interrupted):
        search(500.0, interrupted=lambda: steps.now > 5)
    with pytest.raises(InputError, match=r"judged no model yet; give it --minutes 8\.3"):
        search(1.0)
    with pytest.raises(Interrupted):
        search(500.0, interrupted=lambda: len(judged) > more)
    with pytest.raises(InputError, match="or --minutes below those it had to end it"):
        search(450.0)
    now = steps.now
    run = search(1.0)
    values = [line["value"] for line in told(run.path) if line["event"] == "end" and line["value"]]
    assert (journalled(run.path).trials[0].value, steps.now) == (max(values), now), "no step of training"
    epochs = [event["epoch"] for event in run.folder.events() if event["event"] == "epoch"]
    assert run.config.training.epochs == max(epochs)
    assert run.metrics["test"]
    assert run.predict(head="p0", relation="lives", top=1)


def test_a_candidate_that_does_not_fit_into_memory_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = portfolio.build_links

    def too_large(config: Config, *others: Any) -> Any:
        if config.encoder.name == "conditional":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return build(config, *others)

    monkeypatch.setattr(portfolio, "build_links", too_large)
    found = journalled(searched(tmp_path / "run").path)
    assert "it does not fit into memory" in {one.error for one in found.trials if one.name == "conditional"}


def test_a_search_without_a_model_leaves_the_folder_to_another_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portfolio, "portfolio", lambda *sizes: [Candidate("no", {"decoder.name": "nothing"})])
    with pytest.raises(InputError, match=r"found no model .*; choose one with --model"):
        searched(tmp_path / "run", trials=1)
    monkeypatch.setattr(portfolio, "portfolio", lambda *sizes: FEW)
    assert searched(tmp_path / "run", trials=2).metrics["test"]


def test_the_clock_bounds_a_search_by_seconds(tmp_path: Path) -> None:
    steps = Steps()
    about = GIVEN, graph(people=12), Budget(seconds=120.0)
    drawn = torch.get_rng_state()
    run = portfolio.search(*about, tmp_path / "run", steps.tick, clock=lambda: steps.now)
    assert torch.equal(torch.get_rng_state(), drawn), "a search leaves the caller's random numbers alone"
    lines = (run.path / "search" / "journal.jsonl").read_text().splitlines()
    spent = sum(json.loads(line).get("spent", 0.0) for line in lines)
    assert 30.0 < spent <= 120.0
    assert run.metrics["test"]["mrr"] > 0


# Candidates and defaults


@pytest.mark.parametrize("sizes", [(14, 1592), (135, 5216), (2034, 32888), (14541, 272115)])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_candidates_have_names_of_their_own_and_settings_that_resolve(sizes: tuple[int, int], on_gpu: bool) -> None:
    found = candidates_of(*sizes, 300.0, on_gpu)
    assert len({name for name, *_ in found}) == len(found)
    judge = portfolio.LinkJudge(GIVEN, graph(), Path())
    for one in found:
        assert judge.config(one, 0.01).training.epochs >= 1


@pytest.mark.parametrize(
    ("entities", "facts", "query_time", "sampled", "encoder", "conditional"),
    [
        (250, 900, 100_000, False, True, True),
        (2034, 32_888, 1_100_000, False, True, True),
        (3100, 13_000, 1_400_000, True, True, True),
        (14_541, 240_000, 7_400_000, True, False, True),
        (14_541, 272_115, 8_100_000, True, False, False),
        (40_943, 86_835, 610_000, True, False, True),
        (40_943, 86_835, 18_000_000, True, False, False),
    ],
)
def test_on_a_cpu_a_graph_gets_models_that_learn_within_the_time(
    entities: int, facts: int, query_time: float, sampled: bool, encoder: bool, conditional: bool
) -> None:
    """Five minutes: few negatives in place of many entities; epochs of the conditional model that cost the same."""
    rows = candidates_of(entities, facts, 300.0, False, query_time)
    found, omitted = ({row.name: row.settings for row in rows if bool(row.omitted) is out} for out in (False, True))
    reasons = {row.name: row.omitted for row in rows}
    loss = next(settings["training.loss"] for name, settings in found.items() if "ComplEx" in name)
    assert (loss == "sampled-cross-entropy") == sampled
    assert {name in found for name in ("CompGCN", "CompGCN, wider")} == {encoder}
    assert {name in found for name in ("conditional", "conditional, wider", "conditional, deeper")} == {conditional}
    if conditional:
        enough = min(7.5e9 / query_time, 8 * 2 * facts / 20)  # of an epoch, and all of them pass eight times
        assert found["conditional"]["training.epoch_size"] == pytest.approx(enough, rel=0.01)
    else:
        enough = re.search(r"of 1,000 queries an epoch; give it --minutes (\d+) or a GPU", reasons["conditional"])
        assert enough is not None
        assert int(enough[1]) <= 60, "an hour is enough for all of them"
        times = (60.0 * (int(enough[1]) - i) for i in (0, 1))
        longer, shorter = (candidates_of(entities, facts, seconds, False, query_time)[0] for seconds in times)
        assert (longer.name, longer.omitted, bool(shorter.omitted)) == ("conditional", "", True)
    assert set(omitted) == {name for name, there in (("CompGCN", encoder), ("conditional", conditional)) if not there}
    on_gpu = candidates_of(entities, facts, 300.0, True)
    assert {"CompGCN", "conditional"} <= {row.name for row in on_gpu}
    assert not any(row.omitted for row in on_gpu)


def test_the_time_of_ranking_counts_every_entity_beside_few_negatives(tmp_path: Path) -> None:
    data, steps = graph(people=60), Steps()

    def cost(loss: str) -> float:
        settings = {**FACTORS, "epochs": 400, "loss": loss, "sampler": "shared", "negatives": 1}
        judge = portfolio.LinkJudge(GIVEN, data, tmp_path / loss, steps.tick, clock=lambda: steps.now)
        return judge.cost(Candidate("one", settings)).seconds

    ranking = portfolio._FORWARD * 400 * 2 * len(data.valid) / FACTORS["batch_size"]
    difference = cost("sampled-cross-entropy") - cost("cross-entropy")
    assert difference == pytest.approx(ranking * (data.num_entities - 1))


def test_an_epoch_that_the_estimate_trained_is_evaluated(tmp_path: Path) -> None:
    steps = Steps(0.01, 10.0)  # the estimate ends with an epoch
    judge = portfolio.LinkJudge(GIVEN, graph(people=12), tmp_path, steps.tick, clock=lambda: steps.now)
    one = Candidate("one", {**FACTORS, "evaluate_every": 2, "batch_size": 8})
    assert judge.cost(one).seconds > 0
    assert 0 < judge.train(one, 1 / 9, final=False)[0] <= 1


def test_a_candidate_that_stops_early_is_trained_whole(tmp_path: Path) -> None:
    judge = portfolio.LinkJudge(GIVEN, graph(people=12), tmp_path, lambda event: None)
    one = Candidate("one", {**FACTORS, "epochs": 1000, "lr": 1e-9, "patience": 1})
    assert judge.train(one, 0.5, final=False)[1] == 1.0


def test_a_candidate_that_the_estimate_trained_to_its_end_is_shown_as_trained(tmp_path: Path) -> None:
    judge = portfolio.LinkJudge(GIVEN, graph(people=12), tmp_path, lambda event: None, clock=lambda: 0.0)
    assert judge.cost(Candidate("one", {**FACTORS, "epochs": 3})) == (0.0, 1.0)
    assert judge.cost(Candidate("two", {**FACTORS, "epochs": 3, "regularisation": 0.5})).least == 1 / 3


def test_only_triples_of_ones_own_are_searched_by_default() -> None:
    data, mine, most = graph(people=40, valid=12), {"data.source": "mine.tsv"}, Budget(seconds=300.0)
    assert portfolio.budget(None, None, mine, data) == most
    assert portfolio.budget(None, None, {**mine, "training.seed": 3}, data) == most
    assert portfolio.budget(None, None, {"data.source": "world"}, data) == "", "it has a recipe"
    assert portfolio.budget(None, None, {**mine, "epochs": 3}, data) == ""
    assert portfolio.budget(None, None, mine, data, "complex") == ""
    assert "too large" in portfolio.budget(None, None, mine, Outline(90_000, 9, 2_000_000))
    assert portfolio.budget(None, None, mine, Outline(14_541, 237, 310_000)) == most
    assert "only 3 triples" in portfolio.budget(None, None, mine, graph())


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_tsv(tmp_path / "mine.tsv", graph(people=60))


def test_train_compares_models_and_prints_why_one_was_kept(command: Command, data: Path) -> None:
    shown = command("train", data, "--trials", 7, "--device", "cpu")
    assert "comparing models on validation for 7 trainings" in shown.out
    assert all(name in shown.out for name, *_ in FEW)
    assert "has the highest validation mrr of 5 candidates" in shown.out
    assert "run folder runs/mine-best-0" in shown.out
    assert "  valid 0." in shown.err
    assert "filters ranks by train and valid alone" in shown.out
    again = command("train", data, "--trials", 7, "--device", "cpu").out
    assert "the search in runs/mine-best-0 is finished; --overwrite searches anew" in again
    report = json.loads(command("train", data, "--trials", 7, "--device", "cpu", "--json").out)
    assert len(report["candidates"]) == 5
    assert report["test"]["mrr"] > 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--minutes", 1, "--model", "complex"), ("minutes bound a comparison", "'complex' is one model")),
        (("--trials", 3, *flags(SMALL)), ("trials bound a comparison", "it chooses decoder itself; leave either")),
        (("--trials", 3, "--minutes", 1), ("give one of them",)),
        (("--trials", 3, "--set", "valid_fraction=0"), ("no validation triples",)),
    ],
    ids=["model", "settings", "both", "no validation"],
)
def test_a_search_beside_a_model_is_refused(
    command: Command, data: Path, words: tuple[Any, ...], expected: tuple[str, ...]
) -> None:
    refused(command("train", data, *words), *expected)


@pytest.mark.parametrize("bound", [("minutes", -1), ("minutes", "1"), ("minutes", math.nan), ("trials", 0)], ids=str)
def test_a_search_is_bounded_by_a_positive_number(tmp_path: Path, bound: tuple[str, Any]) -> None:
    with pytest.raises(InputError, match=r"should be a positive (whole )?number, not "):
        compgcn.fit(graph(), run_dir=tmp_path, **dict([bound]))


def test_models_compete_for_triples_of_ones_own(command: Command, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Budget] = []
    search: Callable[..., Run] = portfolio.search

    def shorter(settings: Any, data: Any, budget: Budget, *rest: Any) -> Run:
        given.append(budget)
        return search(settings, data, Budget(trials=1), *rest)

    monkeypatch.setattr(portfolio, "search", shorter)
    assert "for at most 5 min (--minutes, --trials)" in command("train", data).out
    assert given == [Budget(seconds=300.0)]
