"""Calibration finds the scaling behind the answers, keeps every rank, and stays with the run."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

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
    fit_weighing,
    restored,
    stored,
)
from compgcn.answers.links import log_odds_among, reliability, unbeaten
from compgcn.errors import InputError
from compgcn.run.report import write_page
from compgcn.run.run import Run, open_run

SCORES = st.lists(st.tuples(st.floats(-30, 30), st.booleans()), min_size=1, max_size=8)
# With enough validation to be calibrated on
run = toy.trained(toy.graph(people=40, towns=5, valid=30, test=30), epochs=5, decoder="distmult", loss="cross-entropy")


@pytest.fixture
def plain(run: Run) -> Run:
    """The same run without its calibration."""
    opened = open_run(run.path)
    opened.answers.scalings = {}
    return opened


def answers(slope: float, intercept: float, size: int = 20_000) -> Reliability:
    """Answers that are right as often as this scaling predicts."""
    generator = torch.Generator().manual_seed(0)
    odds = 3 * torch.randn(size, generator=generator, dtype=torch.double)
    right = torch.rand(size, generator=generator) < torch.sigmoid(slope * odds + intercept)
    return Reliability(odds, torch.zeros_like(odds), right, torch.zeros_like(right))


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.3, 1.5), (4.0, -2.0)])
def test_the_scaling_that_made_the_answers_is_found(slope: float, intercept: float) -> None:
    made = answers(slope, intercept)
    found = fit_scaling(made)
    assert not found.among
    assert (found.slope, found.intercept) == pytest.approx((slope, intercept), abs=0.15, rel=0.1)
    assert found.error_after == calibration_error(made.bins(found)) < 0.02
    assert found.error_before == calibration_error(made.bins())
    swapped = fit_scaling(Reliability(made.among, made.own, made.right, made.first))
    assert swapped.among


def test_scores_that_mislead_keep_their_order() -> None:
    found = fit_scaling(answers(-2.0, -1.0, 2000))
    assert (found(torch.linspace(-9, 9, 50), torch.zeros(50, dtype=torch.bool)).diff() >= 0).all()


def test_perfect_separation_is_still_not_certain() -> None:
    odds = torch.linspace(-5, 5, 200, dtype=torch.double)
    found = fit_scaling(Reliability(odds, odds, odds > 0, odds > 9))
    assert math.isfinite(found.slope)
    assert 0.5 < found(torch.tensor([5.0]), torch.tensor([False])).item() < 1


def test_too_few_answers_give_no_calibration() -> None:
    odds = torch.zeros(100)
    assert fit_scaling(Reliability(odds, odds, torch.arange(100) < 9, odds > 0)) is None
    assert fit_scaling(Reliability(odds, odds, torch.arange(100) < 91, odds > 0)) is None
    assert fit_temperature(torch.zeros(9, 3), torch.zeros(9, dtype=torch.long)) is None
    assert fit_weighing(odds, torch.arange(100) < 19) is None


def test_the_weighing_that_made_the_discoveries_is_found() -> None:
    made = answers(0.7, -2.0)
    found = fit_weighing(made.own, made.right)
    assert found[:2] == pytest.approx((0.7, -2.0), abs=0.1)
    assert found[2:4] == (20_000, int(made.right.sum()))


def test_the_temperature_of_the_logits_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(20_000, 4, generator=generator, dtype=torch.double) * 2
    targets = torch.multinomial(true.softmax(1), 1, generator=generator)[:, 0]
    found = fit_temperature((true * 3).log_softmax(1), targets)
    assert found.slope == pytest.approx(1 / 3, rel=0.05)
    assert found.error_after < 0.02 < found.error_before


def test_the_error_is_the_mean_distance_of_probability_and_share() -> None:
    chances = torch.tensor([0.05] * 4 + [0.75] * 4 + [1.0] * 2)
    right = torch.tensor([True, False, False, False] + [True] * 4 + [False, True])
    assert calibration_error(bins(chances, right)) == pytest.approx((4 * 0.2 + 4 * 0.25 + 2 * 0.5) / 10)
    assert calibration_error([]) == 0


@given(SCORES)
def test_an_answer_competes_with_unknown_answers_alone(rows: list[tuple[float, bool]]) -> None:
    scores = torch.tensor([[score for score, _ in rows]], dtype=torch.double)
    known, places = torch.tensor([[known for _, known in rows]]), torch.arange(len(rows)).unsqueeze(0)
    found = log_odds_among(scores, scores.masked_fill(known, -torch.inf), places)[0].sigmoid()
    for i, (score, _) in enumerate(rows):
        others = sum(math.exp(other) for j, (other, known) in enumerate(rows) if j != i and not known)
        assert found[i].item() == pytest.approx(math.exp(score) / (math.exp(score) + others), rel=1e-6, abs=1e-12)


@given(SCORES, st.tuples(st.floats(0.01, 5), st.floats(-9, 9), st.floats(0.01, 5), st.floats(-9, 9)))
def test_a_higher_score_never_gets_a_lower_probability_among_new_or_among_known_answers(
    rows: list[tuple[float, bool]], numbers: tuple[float, float, float, float]
) -> None:
    scores = torch.tensor([[score for score, _ in rows]], dtype=torch.double)
    known = torch.tensor([known for _, known in rows])
    ranked, places = scores.masked_fill(known, -torch.inf), torch.arange(len(rows)).unsqueeze(0)
    scaling = Scaling(*numbers, True, 0, 0.0, 0.0, 0.0)
    found = scaling(log_odds_among(scores, ranked, places), unbeaten(scores, ranked, places))[0]
    for group in (known, ~known):
        order = scores[0, group].argsort(stable=True)
        assert (found[group][order].diff() >= -1e-12).all()


def test_first_answers_have_a_fit_of_their_own() -> None:
    generator = torch.Generator().manual_seed(0)
    odds = 3 * torch.randn(20_000, generator=generator, dtype=torch.double)
    first = torch.rand(20_000, generator=generator) < 0.2
    chances = torch.sigmoid(torch.where(first, 0.5 * odds + 2, odds - 1))
    made = Reliability(odds, odds, torch.rand(20_000, generator=generator) < chances, first)
    found = fit_scaling(made)
    assert found[:4] == pytest.approx((1.0, -1.0, 0.5, 2.0), abs=0.15)
    assert calibration_error(made.where(first).bins(found)) < 0.03


# In a run


def test_calibration_changes_probabilities_and_nothing_else(run: Run, plain: Run) -> None:
    questions = ({"head": "p1", "relation": "lives"}, {"tail": "t1", "relation": "born"}, {"head": "p1", "tail": "t1"})
    for question in questions:
        before, after = plain.predict(**question, top=99), run.predict(**question, top=99)
        assert [a[:3] + a[4:] for a in before] == [a[:3] + a[4:] for a in after]
        assert [a.probability for a in before] != [a.probability for a in after]
    best = reliability(plain.answers, "valid", top=1)
    assert plain.answers.calibration("valid") == best.bins()
    assert run.answers.calibration("valid", calibrated=True) == best.bins(run.answers.scalings["entities"])


@pytest.mark.parametrize("kind", ["entities", "relations"])
def test_it_is_fitted_to_the_answers_shown_if_valid_were_unknown(run: Run, plain: Run, kind: Any) -> None:
    data = run.data
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
    assert scaling.answers == len(shown)
    assert scaling.error_after == calibration_error(found.bins(scaling))


def test_a_run_without_a_calibration_can_be_calibrated(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run" / "calibration.json"
    shutil.copytree(run.path, path.parent)
    path.unlink()
    old = open_run(path.parent)
    assert old.calibrated() is None
    total = sum(answer.probability for answer in old.predict("p1", tail="t1", top=99))
    assert total == pytest.approx(1.0)  # the softmax of the model
    assert old.calibrate()
    assert path.read_bytes() == (run.path / "calibration.json").read_bytes()


def test_a_run_with_more_facts_leaves_the_folder_as_it_is(run: Run) -> None:
    before = toy.contents(run.path)
    more = run.with_facts([("p1", "knows", "p2")])
    assert more.calibrated() == "valid"
    for write in (more.calibrate, lambda: write_page(more)):
        with pytest.raises(InputError, match="a run about other facts"):
            write()
    assert toy.contents(run.path) == before


@pytest.mark.parametrize("content", ['{"discoveries": {"slope": 1}}', '{"entities": 3}', '{"entities": TEXT}'])
def test_a_damaged_calibration_is_refused(content: str) -> None:
    with pytest.raises(InputError, match=r"calibration\.json of the run is damaged"):
        restored(json.loads(content.replace("TEXT", json.dumps(dict.fromkeys(Scaling._fields, "0.5")))))


def test_a_stored_calibration_reads_back_and_may_lack_a_kind(run: Run) -> None:
    calibration = {"entities": None, "relations": Scaling(0.5, -1.25, 0.25, 1.5, True, 1234, -0.5, 0.25, 0.125)}
    discoveries = Weighing(0.5, -1.0, 1234, 56, -0.5)
    content = json.loads(json.dumps(stored(calibration, discoveries)))
    assert restored(content) == (calibration, discoveries)
    assert restored(stored(calibration)) == (calibration, None)
    opened = open_run(run.path)
    opened.answers.scalings = calibration
    assert (opened.calibrated(), opened.calibrated("relations"), opened.calibrated("classes")) == (None, "valid", None)


def test_too_little_validation_leaves_a_run_uncalibrated(tmp_path: Path) -> None:
    run = toy.train(tmp_path / "run", epochs=1)
    assert run.calibrated() is None
    assert not (run.path / "calibration.json").exists()
    assert not run.calibrate()


def test_classes_are_calibrated_if_the_protocol_holds_out_validation(tmp_path: Path) -> None:
    data = toy.labelled(60, valid=15)
    held = toy.classify(tmp_path / "held", data, protocol="holdout", epochs=8)
    assert held.calibrated() == "valid"
    assert toy.classify(tmp_path / "all", data, protocol="refit", epochs=1).calibrated() is None
    plain = open_run(held.path)
    plain.answers.scalings = {}
    before, after = plain.classify(["p1", "p2"]), held.classify(["p1", "p2"])
    assert [a[:3] + a[4:] for a in before] == [a[:3] + a[4:] for a in after]
    assert [a.probability for a in before] != [a.probability for a in after]
    assert sum(one.answers for one in held.classes.calibration("test", calibrated=True)) == 20
