"""Claims hold, fail or stay undecided by the numbers of their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from laboratory import EXPERIMENTS, job, write
from reproduction import RESULTS
from reproduction.claims import Claim, Comparison, Reached, claims_table, committed, judge, placed
from reproduction.tables import Board

CLAIMS = committed().claims


def claim(kind: str, pairs: list[tuple[float, float]], error: float | None = 0.0, **more: Any) -> tuple[Claim, Any]:
    values = {f"{side}{k}": Reached(pair[n], error) for k, pair in enumerate(pairs) for n, side in enumerate("ab")}
    made = [Comparison(experiment="e", rows=(f"a{k}",), than=(f"b{k}",)) for k in range(len(pairs))]
    stated = Claim(text="", source="", kind=kind, compare=tuple(made), **more)  # type: ignore[arg-type]
    return stated, lambda experiment, row, metric: values.get(row)


@pytest.mark.parametrize(
    ("kind", "pairs", "error", "more", "answer"),
    [
        ("above", [(2, 1), (3, 2)], 0.0, {}, "holds"),
        ("above", [(2, 1), (2, 2)], 0.0, {}, "*does not hold*"),
        ("below", [(1, 2), (1, 3)], 0.0, {}, "holds"),
        ("below", [(1, 2), (3, 2)], 0.0, {}, "*does not hold*"),
        ("not-below", [(0.995, 1)], 0.0, {}, "holds"),
        ("not-below", [(0.9, 1)], 0.0, {}, "*does not hold*"),
        ("gain", [(1.05, 1)], 0.0, {"gain": 0.06}, "holds"),
        ("gain", [(1.03, 1)], 0.0, {"gain": 0.06}, "*does not hold*"),
        ("near", [(0.98, 1)], 0.0, {}, "holds"),
        ("near", [(0.9, 1)], 0.0, {}, "*does not hold*"),
        ("count", [(2, 1), (1, 1), (1, 2)], 0.0, {"count": 2}, "holds"),
        ("count", [(2, 1), (1, 2), (1, 2)], 0.0, {"count": 2}, "*does not hold*"),
        ("above", [(1.005, 1)], None, {}, "undecided"),
        ("above", [(0.995, 1)], None, {}, "undecided"),
        ("above", [(0.98, 1)], None, {}, "*does not hold*"),
        ("above", [(1.02, 1)], None, {}, "holds"),
        ("above", [(1.02, 1)], 0.02, {}, "undecided"),
        ("above", [(1.005, 1)], 0.001, {}, "holds"),
        ("below", [(1.005, 1)], None, {}, "undecided"),
        ("near", [(0.965, 1)], None, {}, "undecided"),
        ("near", [(1.2, 1)], 0.0, {}, "holds"),
        ("gain", [(1.005, 1)], None, {"gain": 0.06}, "*does not hold*"),
        ("gain", [(1.035, 1)], None, {"gain": 0.06}, "undecided"),
        ("gain", [(1.005, 1)], None, {"gain": 0.005}, "undecided"),
        ("gain", [(1.12, 1)], None, {"gain": 0.06}, "*more than claimed*"),
        ("count", [(1.005, 1), (2, 1)], None, {"count": 2}, "undecided"),
        ("count", [(1.005, 1), (2, 1)], None, {"count": 1}, "holds"),
        ("above", [(0, 0)], 0.0, {}, "*does not hold*"),
        ("above", [(1, 0)], 0.0, {}, "holds"),
    ],
)
def test_a_claim_holds_by_its_comparisons_and_is_undecided_within_the_error_of_seeds(
    kind: str, pairs: Any, error: float | None, more: Any, answer: str
) -> None:
    stated, value = claim(kind, pairs, error, **more)
    assert judge(stated, value, "missing").partition(":")[0] == answer
    assert judge(stated, lambda *_: None, "missing") == "missing"


@pytest.mark.parametrize(
    ("kind", "pairs", "more", "answer"),
    [
        ("count", [(2, 1), (2, 1)], {"count": 2}, "holds"),
        ("count", [(2, 1), (1, 2)], {"count": 2}, None),
        ("count", [(1, 2), (1, 2)], {"count": 2}, "*does not hold*"),
        ("above", [(2, 1), (1, 2)], {}, "*does not hold*"),
        ("above", [(2, 1), (2, 1)], {}, None),
        ("near", [(0.9, 1)], {}, "*does not hold*"),
        ("gain", [(1.05, 1)], {"gain": 0.05}, None),
    ],
)
def test_a_missing_row_leaves_a_claim_open_only_if_it_may_change_the_verdict(
    kind: str, pairs: Any, more: Any, answer: str | None
) -> None:
    stated, value = claim(kind, [*pairs, (1, 1)], **more)

    def without(experiment: str, row: str, metric: str) -> Reached | None:
        return None if row == f"a{len(pairs)}" else value(experiment, row, metric)

    found = judge(stated, without, "undecided: a row is missing").partition(":")[0]
    assert found == ("undecided" if answer is None else f"{answer} whatever the missing rows reach")


def judged(figures: dict[str, Reached], rows: tuple[str, ...], than: tuple[str, ...]) -> str:
    named = {name: one._replace(label=name) for name, one in figures.items()}
    stated = Claim(text="", source="", kind="above", compare=(Comparison(experiment="e", rows=rows, than=than),))
    return judge(stated, lambda experiment, row, metric: named.get(row), "missing")


def test_the_row_with_the_best_validation_metric_stands_for_its_model() -> None:
    figures = {"a": Reached(0.5, 0.0, 0.3), "b": Reached(0.4, 0.0, 0.4), "c": Reached(0.2, 0.0)}
    found = judged(figures, ("a", "b"), ("c", "not run"))
    assert found == "holds: +100.0 % (b by validation, against c, 1 of 2 have numbers)"


def test_opponents_are_chosen_by_validation_too() -> None:
    figures = {"a": Reached(0.5, 0.0, 0.3), "b": Reached(0.6, 0.0, 0.3), "c": Reached(0.4, 0.0, 0.4)}
    assert judged(figures, ("a",), ("b", "c")) == "holds: +25.0 % (against c)"


def test_a_difference_within_one_test_item_is_undecided() -> None:
    figures = {"a": Reached(86.0, 0.0, item=1.5), "b": Reached(85.0, 0.0, item=1.5), "c": Reached(84.0, 0.0)}
    assert judged(figures, ("a",), ("b",)).startswith("undecided")
    assert judged(figures, ("a",), ("c",)).startswith("holds")


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


def test_a_claim_names_its_rows_below_the_paper(tmp_path: Path) -> None:
    one, other = job("encoders", "distmult-compgcn-mult"), job("encoders", "distmult-dgcn")
    write(tmp_path, one, mrr=0.3)
    write(tmp_path, other, mrr=0.2)
    compare = Comparison(experiment="encoders", rows=(one.row.name,), than=(other.row.name,))
    stated = Claim(text="x", source="y", kind="above", compare=(compare,))
    found = claims_table(Board(tmp_path, EXPERIMENTS), [stated]).rows[0][-1]
    assert found == "holds: +50.0 % (against DistMult + D-GCN); below the paper: DistMult + CompGCN (Mult)"
    write(tmp_path, one, mrr=0.338)
    assert "below" not in claims_table(Board(tmp_path, EXPERIMENTS), [stated]).rows[0][-1]


def test_every_claim_has_a_verdict_by_the_committed_results() -> None:
    lines = claims_table(Board(RESULTS, EXPERIMENTS)).rows
    assert all(line[-1].startswith(("holds", "*does not hold*", "*more than claimed*", "undecided")) for line in lines)
    found = {line[0]: line for line in lines}
    worse = "D-GCN, R-GCN and W-GCN lower the MRR of TransE"
    assert found[worse][2].startswith("*does not hold*: TransE + D-GCN +1.7 %")
    (reason,) = (line[-1] for line in lines if line[0].startswith("On node classification"))
    assert reason.startswith("undecided: CompGCN on AM is not run: we have only AM (partial); so far")


def test_every_source_has_a_place_in_the_printed_paper() -> None:
    rows = [row for experiment in EXPERIMENTS.values() for row in experiment.rows]
    sources = [one.source for one in (*CLAIMS, *EXPERIMENTS.values(), *rows)]
    assert [source for source in sources if ":" in placed(source)] == []
    assert placed("tbl:link_pred_results, quoted; tbl:mine") == "Table 4, quoted; tbl:mine"
