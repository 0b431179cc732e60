"""Verdicts, differences and claims go by the noise of seeds; pages are made of the committed results."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compgcn
from compgcn.config import configure
from compgcn.nn.encoder import PRESETS
from laboratory import EXPERIMENTS, ROOT, job
from laboratory import write as write_result
from reproduction import RESULTS, blocks
from reproduction.claims import Claim, Comparison, Reached, committed, decided, judge, placed, reason, rules
from reproduction.differences import NOISE, NOT_RUN, changed, compared, gaps, rule
from reproduction.experiment import at_home
from reproduction.pages import whole
from reproduction.tables import Board, Figure, markdown, tables, verdict
from reproduction.training import expected


@pytest.mark.parametrize(
    ("metric", "ours", "words"),
    [
        ("mrr", Figure(0.292, 0.0, 1), "reproduced"),
        ("mrr", Figure(0.25, 0.0, 1), "below"),
        ("mrr", Figure(0.32, 0.0, 1), "above"),
        ("mrr", Figure(0.32, 0.03, 4), "undecided"),  # 9 % above is not the same, however much seeds differ
        ("mrr", Figure(0.299, 0.006, 4), "reproduced"),
        ("mr", Figure(200.0, 0.0, 1), "above"),  # lower is better
        ("accuracy", Figure(77.9, 0.0, 1), "reproduced (1 of 10 seeds)"),
        ("accuracy", Figure(79.3, 0.0, 10), "above"),
        ("accuracy", Figure(79.3, 0.0, 10, 1.47), "reproduced"),  # by one item
    ],
)
def test_a_verdict_goes_by_the_distance_to_the_paper(metric: str, ours: Figure, words: str) -> None:
    name, row = ("node-classification", "mutag-feat") if metric == "accuracy" else ("encoders", "transe-none")
    assert verdict(EXPERIMENTS[name], EXPERIMENTS[name].row(row), metric, ours) == words


def test_rows_without_a_result_stand_in_one_line_with_the_papers_numbers(tmp_path: Path) -> None:
    write_result(tmp_path, job("encoders-long", "conve-compgcn-corr"))
    text = markdown(tables(Board(tmp_path, EXPERIMENTS), EXPERIMENTS["encoders-long"]))
    assert re.search(r"Not run[^:]*: ConvE \(paper \.325\); ConvE \+ D-GCN \(paper \.344\); ", text)
    assert "\n| ConvE + CompGCN (Sub)" not in text


# Committed results and pages


COMMITTED = Board(RESULTS, EXPERIMENTS)  # reads each result once


def test_every_row_has_a_committed_result_of_its_settings_or_says_why_not() -> None:
    for experiment in EXPERIMENTS.values():
        for row in experiment.rows:
            home, line = at_home(experiment, row)
            if line.settings is not None and not line.missing:
                assert COMMITTED.ours(home, line, home.metrics[0]) is not None, f"{experiment.name}/{row.name}"


def test_the_page_of_results_is_made_of_the_committed_files() -> None:
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == whole(COMMITTED, ROOT / "docs")


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_generated_blocks_are_made_of_the_committed_files(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert blocks.filled(text, COMMITTED) == text
    assert text.count("<!-- python -m reproduction tables: ") <= text.count("<!-- end -->")


FIDELITY = EXPERIMENTS["fidelity"]
SEEDS = (0.35, 0.352, 0.354)  # of the reference: mean .352, standard deviation .002


def write(folder: Path, name: str, mrr: float, seed: int = 0) -> None:
    """Write a result of a row, 'experiment/row'."""
    write_result(folder, job(*name.split("/")), seed, mrr)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with three seeds of the reference."""
    for seed, mrr in enumerate(SEEDS):
        write(tmp_path, "fidelity/reference", mrr, seed)
    return tmp_path


def verdict_of(results: Path, name: str) -> str:
    return compared(Board(results, EXPERIMENTS), FIDELITY, FIDELITY.row(name)).verdict


def test_a_row_differs_from_its_control_only_in_its_own_settings() -> None:
    for row in FIDELITY.rows:
        if row.control is None:
            assert row.name in {other.control for other in FIDELITY.rows}, "it is compared with nothing"
            continue
        before, settings = expected(*at_home(FIDELITY, FIDELITY.row(row.control))), changed(FIDELITY, row)
        implied: dict[str, Any] = {}
        if "encoder.name" in settings:
            preset = PRESETS[settings["encoder.name"]]
            implied = {"encoder.norm": preset.norm}
            implied |= {} if preset.composition is None else {"encoder.composition": preset.composition}
        assert 1 <= len(settings.keys() - implied.keys()) <= 2, row.name
        after = configure(before, settings | implied)
        assert after == expected(*at_home(FIDELITY, row)), row.name
        assert after.encoder.dims[-1] == before.encoder.dims[-1], row.name


@pytest.mark.parametrize("name", ["flow", "bce-floor"])
@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (0.0015, NOISE),
        (-0.0015, NOISE),
        (0.0119, "undecided"),
        (-0.0055, "undecided"),
        (0.0125, "better"),
        (-0.0125, "worse"),
    ],
)
def test_a_difference_is_judged_by_the_noise_of_seeds(results: Path, name: str, gap: float, words: str) -> None:
    """With 2 degrees of freedom, chance reaches 4.30 · √2 standard deviations, .0122."""
    write(results, "fidelity/bce", SEEDS[0])
    write(results, f"fidelity/{name}", SEEDS[0] + gap)
    found = compared(Board(results, EXPERIMENTS), FIDELITY, FIDELITY.row(name))
    assert found == (pytest.approx(gap), pytest.approx(4.30 * 0.002 * 2**0.5), words)


@given(st.dictionaries(st.integers(0, 5), st.floats(0, 1)), st.dictionaries(st.integers(0, 5), st.floats(0, 1)))
def test_differences_are_between_the_seeds_that_both_have(ours: dict[int, float], others: dict[int, float]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Board, "by_seed", lambda self, _, row, metric: ours if row.name == "flow" else others)
        found = gaps(Board(ROOT, EXPERIMENTS), FIDELITY, FIDELITY.row("flow"), "mrr")
    assert sorted(found) == sorted(ours[seed] - others[seed] for seed in ours.keys() & others.keys())


def test_more_seeds_decide_more(results: Path) -> None:
    for ours, others, words in ((3, 1, "undecided"), (3, 2, "better")):
        for name, mrr, seeds in (("bce-floor", 0.361, ours), ("bce", 0.35, others)):
            for seed in range(seeds):
                write(results, f"fidelity/{name}", mrr, seed)
        assert verdict_of(results, "bce-floor") == words


def test_the_noise_is_pooled_over_models_with_the_same_decoder(results: Path) -> None:
    write(results, "fidelity/flow", SEEDS[0] + 0.0096)
    write(results, "encoders/distmult-compgcn-mult", 0.33)
    write(results, "fidelity/distmult-bias", 0.32)
    assert verdict_of(results, "flow") == "undecided"
    assert verdict_of(results, "distmult-bias") == "", "the noise of ConvE says nothing about DistMult"
    for name in ("mult", "sub"):
        for seed, mrr in enumerate(SEEDS):
            write(results, f"encoders/conve-compgcn-{name}", mrr - 0.05, seed)
    assert "| `conve` | .0020 | 6 | " in markdown(rule(Board(results, EXPERIMENTS), FIDELITY))
    assert verdict_of(results, "flow") == "better"
    for seed, mrr in enumerate(SEEDS):  # the root of the mean of .002², .002² and .004²
        write(results, "encoders/conve-compgcn-mult", 0.3 + 2 * (mrr - 0.35), seed)
    assert "| `conve` | .0028 |" in markdown(rule(Board(results, EXPERIMENTS), FIDELITY))


def test_missing_results_are_named_and_support_no_verdict(tmp_path: Path) -> None:
    assert verdict_of(tmp_path, "bce-floor") == NOT_RUN
    write(tmp_path, "fidelity/bce-floor", 0.3)
    write(tmp_path, "fidelity/bce", 0.3)
    assert verdict_of(tmp_path, "bce-floor") == ""


@pytest.mark.parametrize("name", ["fb15k-237", "wn18rr"])
def test_the_shares_of_vanished_messages_are_those_of_the_data(name: str) -> None:
    if "COMPGCN_DATA" not in os.environ:
        pytest.skip("COMPGCN_DATA is not set: the published data sets are not at hand")
    data = compgcn.load(name)
    ends = data.train[:, 0], data.train[:, 2]
    shares = [np.mean(~np.isin(sender, receiver)) for receiver, sender in (ends, ends[::-1])]
    cells = " | ".join(f"{share:.1%}".replace("%", " %") for share in shares)
    assert f"| `{name}` | {cells} |" in (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")


CLAIMS = committed().claims


def claim(kind: str, pairs: list[tuple[float, float]], error: float | None = 0.0, **more: Any) -> tuple[Claim, Any]:
    values = {f"{side}{k}": Reached(pair[n], error) for k, pair in enumerate(pairs) for n, side in enumerate("ab")}
    made = [Comparison(experiment="e", rows=(f"a{k}",), than=(f"b{k}",)) for k in range(len(pairs))]
    stated = Claim(text="", source="", kind=kind, compare=tuple(made), **more)
    return stated, lambda experiment, row, metric: values.get(row)


@pytest.mark.parametrize(
    ("kind", "pairs", "error", "more", "answer"),
    [
        ("above", [(2, 1), (3, 2)], 0.0, {}, "yes"),
        ("above", [(2, 1), (2, 2)], 0.0, {}, "no"),
        ("below", [(1, 2), (1, 3)], 0.0, {}, "yes"),
        ("below", [(1, 2), (3, 2)], 0.0, {}, "no"),
        ("not-below", [(0.995, 1)], 0.0, {}, "yes"),
        ("not-below", [(0.9, 1)], 0.0, {}, "no"),
        ("gain", [(1.05, 1)], 0.0, {"gain": 0.06}, "yes"),
        ("gain", [(1.03, 1)], 0.0, {"gain": 0.06}, "no"),
        ("near", [(0.98, 1)], 0.0, {}, "yes"),
        ("near", [(0.9, 1)], 0.0, {}, "no"),
        ("tied", [(2, 1), (1, 1), (1, 2)], 0.0, {"count": 2}, "yes"),
        ("count", [(2, 1), (1, 1), (1, 2)], 0.0, {"count": 2}, "no"),
        ("count", [(2, 1), (1, 2), (1, 2)], 0.0, {"count": 2}, "no"),
        ("above", [(1.005, 1)], None, {}, "open"),
        ("above", [(0.995, 1)], None, {}, "open"),
        ("above", [(0.97, 1)], None, {}, "no"),
        ("above", [(1.03, 1)], None, {}, "yes"),
        ("above", [(1.02, 1)], 0.02, {}, "open"),
        ("above", [(1.005, 1)], 0.001, {}, "yes"),
        ("below", [(1.005, 1)], None, {}, "open"),
        ("near", [(0.965, 1)], None, {}, "open"),
        ("near", [(1.2, 1)], 0.0, {}, "yes"),
        ("gain", [(1.005, 1)], None, {"gain": 0.06}, "no"),
        ("gain", [(1.035, 1)], None, {"gain": 0.06}, "open"),
        ("gain", [(1.06, 1)], None, {"gain": 0.06}, "open"),
        ("gain", [(1.06, 1)], 0.001, {"gain": 0.06}, "yes"),
        ("gain", [(1.12, 1)], None, {"gain": 0.06}, "more"),
        ("count", [(1.005, 1), (2, 1)], None, {"count": 2}, "open"),
        ("count", [(1.005, 1), (2, 1)], None, {"count": 1}, "yes"),
    ],
)
def test_a_claim_holds_by_its_comparisons_and_is_open_within_the_error_of_seeds(
    kind: str, pairs: Any, error: float | None, more: Any, answer: str
) -> None:
    stated, value = claim(kind, pairs, error, **more)
    assert judge(stated, value).answer == answer
    assert judge(stated, lambda *_: None).answer == "open"


@pytest.mark.parametrize(
    ("kind", "pairs", "more", "answer"),
    [
        ("count", [(2, 1), (2, 1)], {"count": 2}, "yes"),
        ("count", [(2, 1), (1, 2)], {"count": 2}, "open"),
        ("count", [(1, 2), (1, 2)], {"count": 2}, "no"),
        ("above", [(2, 1), (1, 2)], {}, "no"),
        ("above", [(2, 1), (2, 1)], {}, "open"),
        ("near", [(0.9, 1)], {}, "no"),
        ("gain", [(1.05, 1)], {"gain": 0.05}, "open"),
    ],
)
def test_a_missing_row_leaves_a_claim_open_only_if_it_may_change_the_verdict(
    kind: str, pairs: Any, more: Any, answer: str
) -> None:
    stated, value = claim(kind, [*pairs, (1, 1)], **more)

    def without(experiment: str, row: str, metric: str) -> Reached | None:
        return None if row == f"a{len(pairs)}" else value(experiment, row, metric)

    found = judge(stated, without)
    assert found.answer == answer
    assert (reason(stated, found, "a row is missing") == "a row is missing") == (answer == "open")


VALUES = st.lists(st.tuples(*[st.integers(90, 110)] * 4), min_size=1, max_size=3)  # ours and the paper's, of two rows
KINDS = ("above", "below", "not-below", "near", "count", "tied", "gain")


@given(VALUES, st.sampled_from(KINDS), st.sampled_from([("mrr", max), ("mr", min)]), st.sets(st.sampled_from("ab")))
def test_just_the_named_rows_change_the_answer_by_the_papers_numbers(
    found: list[tuple[int, ...]], kind: str, metric: tuple[str, Any], systems: set[str]
) -> None:
    stated, _ = claim(kind, [(1, 1)] * len(found), count=2, gain=0.05)
    compare = tuple(one.model_copy(update={"metric": metric[0]}) for one in stated.compare)
    stated = stated.model_copy(update={"compare": compare})

    def ours(_: str, row: str, __: str, raised: set[str] | frozenset[str] = frozenset()) -> Reached:
        mine, paper = found[int(row[1])]["ab".index(row[0]) :: 2]
        label = f"{row} CompGCN" if row[0] in systems else row
        return Reached(metric[1](mine, paper) if label in raised else mine, 0.5, label=label)

    def answer(raised: set[str]) -> str:
        return judge(stated, lambda *key: ours(*key, raised)).answer

    every = {f"{side}{k} CompGCN" for k in range(len(found)) for side in systems}
    judged = decided(stated, ours, lambda _, row, __: Reached(found[int(row[1])][2 + "ab".index(row[0])]))
    below = set(judged.below)
    assert below <= every
    assert (judged.answer == answer(every)) == (not below)
    assert judged.answer == answer(set())
    assert judged.then == (answer(below) if below else "")
    assert {answer(below - {name}) for name in below} <= {judged.answer}, "none is named in vain"


@pytest.mark.parametrize(
    ("kind", "pair", "metric", "words"),
    [
        ("near", (0.998, 1), "mrr", "a is 0.2 % worse than b, but chance (± 2.8 %) can hide a loss over 3 %"),
        ("near", (0.965, 1), "mrr", "a is 3.5 % worse than b, but chance (± 2.8 %) can explain a loss over 3 %"),
        ("not-below", (1.015, 1), "mrr", "a is 1.5 % better than b, but chance (± 2.8 %) can hide a loss over 1 %"),
        ("above", (0.996, 1), "mrr", "a is 0.4 % worse than b, which chance can explain"),
        ("above", (80, 100), "mr", "a is 20.0 % better than b"),
        ("above", (999, 1000), "parameters", "a has 0.1 % fewer parameters than b"),
        ("count", (2, 1), "mrr", "higher in 1 of 1 comparisons"),
        ("tied", (2, 1), "mrr", "better or equal in 1 of 1 comparisons"),
    ],
)
def test_a_reason_says_what_chance_can_do(kind: str, pair: tuple[float, float], metric: str, words: str) -> None:
    compare = (Comparison(experiment="e", rows=("a",), than=("b",), metric=metric),)
    stated = Claim(text="", source="", kind=kind, compare=compare, count=1)
    found = judge(stated, lambda _, row, __: Reached(pair["ab".index(row)], label=row))
    assert reason(stated, found, "missing") == words


def test_the_rules_name_the_training_of_every_claim() -> None:
    about = next(one for one in rules(COMMITTED) if "binary cross-entropy" in one)
    graphs = {k for k, stated in enumerate(CLAIMS, 1) if stated.compare[0].metric == "accuracy"}
    assert {*map(int, re.findall(r"\b\d+\b", about)), *graphs, 1, 2} >= set(range(1, len(CLAIMS) + 1))


def compared_rows(figures: dict[str, Reached], rows: tuple[str, ...], than: tuple[str, ...]) -> tuple[str, str]:
    """Return the answer to a claim that some rows are above others, and the reason."""
    named = {name: one._replace(label=name) for name, one in figures.items()}
    stated = Claim(text="", source="", kind="above", compare=(Comparison(experiment="e", rows=rows, than=than),))
    found = judge(stated, lambda experiment, row, metric: named.get(row))
    return found.answer, reason(stated, found, "missing")


def test_the_row_with_the_best_validation_metric_stands_for_its_side() -> None:
    figures = {"a": Reached(0.5, 0.0, 0.3), "b": Reached(0.4, 0.0, 0.4), "c": Reached(0.2, 0.0)}
    assert compared_rows(figures, ("a", "b"), ("c", "not run")) == ("yes", "b is 100.0 % better than c")
    figures = {"a": Reached(0.5, 0.0, 0.3), "b": Reached(0.6, 0.0, 0.3), "c": Reached(0.4, 0.0, 0.4)}
    assert compared_rows(figures, ("a",), ("b", "c")) == ("yes", "a is 25.0 % better than c")


def test_a_difference_within_one_test_item_is_open() -> None:
    figures = {"a": Reached(86.0, 0.0, item=1.5), "b": Reached(85.0, 0.0, item=1.5), "c": Reached(84.0, 0.0)}
    assert compared_rows(figures, ("a",), ("b",))[0] == "open"
    assert compared_rows(figures, ("a",), ("c",))[0] == "yes"


def test_every_claim_compares_existing_rows_and_the_papers_numbers_decide_it() -> None:
    for stated in CLAIMS:
        for one in stated.compare:
            experiment = EXPERIMENTS[one.experiment]
            assert one.metric in (*experiment.metrics, "parameters")
            for name in one.rows:
                assert experiment.kind == "figure" or one.metric in experiment.row(name).paper, (stated.text, name)
            assert all(experiment.row(name) for name in one.than)
    for stated, data in zip(CLAIMS[:2], ("fb15k-237", "wn18rr"), strict=True):  # against every other row
        every = [row.name for row in EXPERIMENTS["link-prediction"].rows if row.name.startswith(data)]
        rows = [name for name in every if not name.endswith("-all")]  # another training of the same model
        assert all(sorted((*one.rows, *one.than)) == sorted(rows) for one in stated.compare)


def test_every_source_has_a_place_in_the_printed_paper() -> None:
    rows = [row for experiment in EXPERIMENTS.values() for row in experiment.rows]
    sources = [one.source for one in (*CLAIMS, *EXPERIMENTS.values(), *rows)]
    assert [source for source in sources if ":" in placed(source)] == []
    assert placed("tbl:link_pred_results, quoted; tbl:mine") == "Table 4, quoted; tbl:mine"
