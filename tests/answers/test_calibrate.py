"""Probabilities that can be believed: what is fitted, what it may not change, and where it is kept."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import toy
from compgcn.answers.calibrate import (
    Reliability,
    Scaling,
    Weighing,
    bins,
    calibration_error,
    fit_scaling,
    fit_temperature,
    restored,
    restored_weighing,
    stored,
)
from compgcn.answers.links import Links, fitted, log_odds_among, reliability, unbeaten
from compgcn.errors import InputError
from compgcn.run import Run, open_run
from compgcn.run.report import _calibration, write_page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """With enough validation to be calibrated on."""
    data = toy.graph(people=40, towns=5, valid=30, test=30)
    return toy.train(tmp_path_factory.mktemp("run") / "run", data, epochs=5, decoder="distmult", loss="cross-entropy")


def answers(slope: float, intercept: float, size: int = 20_000) -> Reliability:
    """Answers that are right as often as this scaling says."""
    generator = torch.Generator().manual_seed(0)
    odds = 3 * torch.randn(size, generator=generator, dtype=torch.double)
    right = torch.rand(size, generator=generator) < torch.sigmoid(slope * odds + intercept)
    return Reliability(odds, torch.zeros_like(odds), right, torch.zeros_like(right))


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.3, 1.5), (4.0, -2.0)])
def test_the_scaling_that_made_the_answers_is_found(slope: float, intercept: float) -> None:
    made = answers(slope, intercept)
    found = fit_scaling(made)
    assert found is not None
    assert not found.among
    assert (found.slope, found.intercept) == pytest.approx((slope, intercept), abs=0.15, rel=0.1)
    assert found.error_after < 0.02
    assert found.error_before == calibration_error(made.bins())
    assert calibration_error(made.bins(found)) == found.error_after


def test_the_more_likely_of_the_two_log_odds_is_taken() -> None:
    own, nothing, right, first = answers(1.0, 0.0)
    for one, among in (
        (Reliability(own, nothing, right, first), False),
        (Reliability(nothing, own, right, first), True),
    ):
        found = fit_scaling(one)
        assert found is not None
        assert found.among == among


@pytest.mark.parametrize("slope", [-2.0, 0.0])
def test_scores_that_say_nothing_or_the_opposite_keep_their_order(slope: float) -> None:
    found = fit_scaling(answers(slope, -1.0, 2000))
    assert found is not None
    assert found.slope > 0
    assert (found(torch.linspace(-9, 9, 50), torch.zeros(50, dtype=torch.bool)).diff() >= 0).all()


def test_what_is_told_apart_without_exception_is_still_not_certain() -> None:
    odds = torch.linspace(-5, 5, 200, dtype=torch.double)
    found = fit_scaling(Reliability(odds, odds, odds > 0, odds > 9))
    assert found is not None
    assert math.isfinite(found.slope)
    assert 0.5 < found(torch.tensor([5.0]), torch.tensor([False])).item() < 1


def test_a_few_answers_are_too_few() -> None:
    odds = torch.zeros(100)
    assert fit_scaling(Reliability(odds, odds, torch.arange(100) < 9, odds > 0)) is None
    assert fit_scaling(Reliability(odds, odds, torch.arange(100) < 91, odds > 0)) is None
    assert fit_temperature(torch.zeros(9, 3), torch.zeros(9, dtype=torch.long)) is None


def test_the_temperature_that_was_taken_from_the_logits_is_given_back() -> None:
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(20_000, 4, generator=generator, dtype=torch.double) * 2
    targets = torch.multinomial(true.softmax(1), 1, generator=generator)[:, 0]
    found = fit_temperature((true * 3).log_softmax(1), targets)
    assert found is not None
    assert found.slope == pytest.approx(1 / 3, rel=0.05)
    assert found.error_after < 0.02 < found.error_before


def test_the_error_is_how_far_probability_and_share_lie_apart() -> None:
    chances = torch.tensor([0.05] * 4 + [0.75] * 4 + [1.0] * 2)
    right = torch.tensor([True, False, False, False] + [True] * 4 + [False, True])
    assert calibration_error(bins(chances, right)) == pytest.approx((4 * 0.2 + 4 * 0.25 + 2 * 0.5) / 10)
    assert calibration_error([]) == 0


@given(st.lists(st.tuples(st.floats(-30, 30), st.booleans()), min_size=1, max_size=8))
def test_among_what_is_not_known_an_answer_stands_against_no_other_known_one(rows: list[tuple[float, bool]]) -> None:
    scores = torch.tensor([[score for score, _ in rows]], dtype=torch.double)
    known = torch.tensor([[known for _, known in rows]])
    places = torch.arange(len(rows)).unsqueeze(0)
    found = log_odds_among(scores, scores.masked_fill(known, -torch.inf), places)[0].sigmoid()
    for i, (score, _) in enumerate(rows):
        others = sum(math.exp(other) for j, (other, known) in enumerate(rows) if j != i and not known)
        assert found[i].item() == pytest.approx(math.exp(score) / (math.exp(score) + others), rel=1e-6, abs=1e-12)


@given(
    st.lists(st.tuples(st.floats(-30, 30), st.booleans()), min_size=1, max_size=8),
    st.tuples(st.floats(0.01, 5), st.floats(-9, 9), st.floats(0.01, 5), st.floats(-9, 9)),
)
def test_of_the_new_answers_and_of_the_known_ones_a_higher_score_is_no_lower_probability(
    rows: list[tuple[float, bool]], numbers: tuple[float, float, float, float]
) -> None:
    """Though the first answer has a fit of its own, whatever that fit is."""
    scores = torch.tensor([[score for score, _ in rows]], dtype=torch.double)
    known = torch.tensor([known for _, known in rows])
    ranked, places = scores.masked_fill(known, -torch.inf), torch.arange(len(rows)).unsqueeze(0)
    scaling = Scaling(*numbers, True, 0, 0.0, 0.0, 0.0)
    found = scaling(log_odds_among(scores, ranked, places), unbeaten(scores, ranked, places))[0]
    for group in (known, ~known):
        order = scores[0, group].argsort(stable=True)
        assert (found[group][order].diff() >= -1e-12).all()


def test_first_answers_that_are_right_more_often_have_a_fit_of_their_own() -> None:
    generator = torch.Generator().manual_seed(0)
    odds = 3 * torch.randn(20_000, generator=generator, dtype=torch.double)
    first = torch.rand(20_000, generator=generator) < 0.2
    chances = torch.sigmoid(torch.where(first, 0.5 * odds + 2, odds - 1))
    given = Reliability(odds, odds, torch.rand(20_000, generator=generator) < chances, first)
    found = fit_scaling(given)
    assert found is not None
    assert found[:4] == pytest.approx((1.0, -1.0, 0.5, 2.0), abs=0.15)
    assert calibration_error(given.where(first).bins(found)) < 0.03
    assert calibration_error(given.bins(found)) < 0.02


# In a run


def test_a_run_is_calibrated_when_it_is_trained_and_opens_so(run: Run) -> None:
    assert run.calibrated() == "valid"
    again = open_run(run.path)
    assert isinstance(again.answers, Links)
    assert again.answers.scalings == run.answers.scalings == fitted(again.answers)
    assert again.predict("p1", "lives") == run.predict("p1", "lives")
    assert [row["split"] for row in [json.loads((run.path / "calibration.json").read_text())]] == ["valid"]


def test_calibration_changes_probabilities_and_nothing_else(run: Run) -> None:
    plain = open_run(run.path)
    plain.answers.scalings = {}
    questions = ({"head": "p1", "relation": "lives"}, {"tail": "t1", "relation": "born"}, {"head": "p1", "tail": "t1"})
    for question in questions:
        before, after = plain.predict(**question, top=99), run.predict(**question, top=99)
        assert [a[:3] + a[4:] for a in before] == [a[:3] + a[4:] for a in after]
        assert [a.probability for a in before] != [a.probability for a in after]
    best = reliability(plain.answers, "valid", top=1)
    assert plain.answers.calibration("valid") == best.bins()
    assert run.answers.calibration("valid", calibrated=True) == best.bins(run.answers.scalings["entities"])


def test_a_fact_alone_has_the_score_and_probability_it_has_as_an_answer(run: Run) -> None:
    data, links = run.data, run.answers
    assert isinstance(links, Links)
    for s, r in ((0, 0), (3, 2)):
        for answer in run.predict(data.entities.ids[s], data.relations.ids[r], top=99):
            alone = links.fact(s, r, data.entities.index(answer.entity))
            assert (alone[:2], alone.known) == (answer[:2], answer.known)
            assert alone[2:4] == pytest.approx(answer[2:4])


@pytest.mark.parametrize("kind", ["entities", "relations"])
def test_what_it_is_fitted_to_are_the_answers_that_would_be_shown_were_valid_not_known(run: Run, kind: str) -> None:
    plain, data = open_run(run.path), run.data
    plain.answers.scalings = {}
    e, r = data.entities.ids, data.relations.ids
    asked = {(e[s], r[p], None) for s, p, _ in data.valid} | {(None, r[p], e[o]) for _, p, o in data.valid}
    if kind == "relations":
        asked = {(e[s], None, e[o]) for s, _, o in data.valid}
    shown = []
    for query in asked:
        shown += [a for a in plain.predict(*query, top=99) if a.known not in ("train", "test")][:10]
    found = reliability(plain.answers, "valid", kind)
    assert int(found.right.sum()) == sum(answer.known == "valid" for answer in shown)
    assert sorted(found.own.sigmoid().tolist()) == pytest.approx(sorted(a.probability for a in shown), abs=1e-6)
    scaling = run.answers.scalings[kind]
    assert scaling is not None
    assert scaling.answers == len(shown)
    assert scaling.error_after == calibration_error(found.bins(scaling))


def test_a_run_without_a_calibration_opens_and_can_be_calibrated(run: Run, tmp_path: Path) -> None:
    kept = (run.path / "calibration.json").read_bytes()
    (run.path / "calibration.json").unlink()
    try:
        old = open_run(run.path)
        assert old.calibrated() is None
        total = sum(answer.probability for answer in old.predict("p1", "lives", top=99))
        assert total == pytest.approx(1.0)  # the softmax of the model
        assert old.calibrate()
        assert open_run(run.path).calibrated() == "valid"
    finally:
        (run.path / "calibration.json").write_bytes(kept)


def test_only_the_kinds_that_could_be_fitted_are_called_calibrated(command: toy.Command, run: Run) -> None:
    path = run.path / "calibration.json"
    kept = path.read_bytes()
    path.write_text(json.dumps({**json.loads(kept), "entities": None, "discoveries": None}))
    try:
        opened = open_run(run.path)
        assert (opened.calibrated(), opened.calibrated("relations")) == (None, "valid")
        assert (opened.calibrated("discoveries"), opened.calibrated("classes")) == (None, None)
        entities = command("predict", run.path, "--head", "p1", "--relation", "lives").out
        relations = command("predict", run.path, "--head", "p1", "--tail", "t1").out
        assert entities.splitlines()[-1].strip() == "probabilities not calibrated"
        assert "probabilities calibrated on valid" in [line.strip() for line in relations.splitlines()]
        assert not any("calibrated on validation" in str(part) for part in _calibration(opened, "test"))
    finally:
        path.write_bytes(kept)
    assert any("calibrated on validation" in str(part) for part in _calibration(run, "test"))


def test_a_run_with_more_facts_leaves_the_folder_as_it_is(run: Run) -> None:
    before = toy.contents(run.path)
    more = run.with_facts([("p1", "knows", "p2")])
    assert more.calibrated() == "valid"
    for write in (more.calibrate, lambda: write_page(more)):
        with pytest.raises(InputError, match="a run with more facts"):
            write()
    assert toy.contents(run.path) == before


@pytest.mark.parametrize(
    "content", ['{"discoveries": {"slope": -1}}', "{", "[]", '{"entities": 3}', '{"entities": {"slope": 1}}']
)
def test_a_damaged_calibration_is_one_sentence(run: Run, content: str) -> None:
    kept = (run.path / "calibration.json").read_bytes()
    (run.path / "calibration.json").write_text(content)
    try:
        with pytest.raises(InputError, match=r"calibration\.json"):
            open_run(run.path).predict("p1", "lives")
    finally:
        (run.path / "calibration.json").write_bytes(kept)


def test_what_is_stored_is_what_is_read() -> None:
    calibration = {"entities": Scaling(0.5, -1.25, 0.25, 1.5, True, 1234, -0.5, 0.25, 0.125), "relations": None}
    discoveries = Weighing(0.5, -1.0, 1234, 56, -0.5)
    content = json.loads(json.dumps(stored(calibration, discoveries)))
    assert (restored(content), restored_weighing(content)) == (calibration, discoveries)
    assert restored_weighing(stored(calibration)) is None


def test_too_little_validation_leaves_a_run_as_it_is(tmp_path: Path) -> None:
    run = toy.train(tmp_path / "run", epochs=1)
    assert run.calibrated() is None
    assert not (run.path / "calibration.json").exists()
    assert not run.calibrate()


def test_classes_are_calibrated_where_the_protocol_leaves_validation(tmp_path: Path) -> None:
    data = toy.labelled(60, valid=15)
    held = toy.classify(tmp_path / "held", data, protocol="holdout", epochs=8)
    assert held.calibrated() == "valid"
    assert toy.classify(tmp_path / "all", data, protocol="refit", epochs=3).calibrated() is None
    plain = open_run(held.path)
    plain.answers.scalings = {}
    before, after = plain.classify(["p1", "p2"]), held.classify(["p1", "p2"])
    assert [a[:3] + a[4:] for a in before] == [a[:3] + a[4:] for a in after]
    assert [a.probability for a in before] != [a.probability for a in after]
    assert sum(one.answers for one in held.classes.calibration("test", calibrated=True)) == 20


def test_evaluate_says_the_error_before_and_after_and_draws_it(command: toy.Command, run: Run) -> None:
    result = command("evaluate", run.path, "--plot", "trust.svg")
    assert result.code == 0, result
    said = [line for line in result.out.splitlines() if line.startswith("expected calibration error 0.")]
    assert [line.rpartition(", ")[2] for line in said] == ["the ten best to a query)", "the first to each)"]
    assert all("after calibration on valid" in line for line in said)
    drawn = Path("trust.svg").read_text()
    assert "Reliability" in drawn
    table = command("predict", run.path, "--head", "p1", "--relation", "lives").out
    assert "probabilities calibrated on valid" in [line.strip() for line in table.splitlines()]


def test_a_query_with_a_known_answer_is_said_to_be_asked_for_another(command: toy.Command, run: Run) -> None:
    said = "an answer is known already: the probability of a new one holds if another is still missing\n"
    assert command("predict", run.path, "--head", "p1", "--relation", "lives").out.endswith(said)
    assert command("predict", run.path, "--head", "p1", "--relation", "lives", "--new").out.endswith(said)
    nothing = command("predict", run.path, "--head", "t1", "--relation", "lives")
    assert (nothing.code, said in nothing.out) == (0, False), "no town lives anywhere"
