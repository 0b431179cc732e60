"""Verdicts and tables, and the pages made of the committed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from laboratory import EXPERIMENTS, ROOT, job, write
from reproduction import RESULTS, blocks
from reproduction.experiment import at_home
from reproduction.pages import page, whole, write_one
from reproduction.tables import MISSING, NOT_RUN, Board, Figure, costs, relative, shown, stated, tables, verdict
from reproduction.training import expected


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (Figure(0.294, 0.0, 1), "reproduced"),
        (Figure(0.292, 0.0, 1), "reproduced"),
        (Figure(0.25, 0.0, 1), "below"),
        (Figure(0.32, 0.0, 1), "above"),
        (Figure(0.32, 0.03, 4), "undecided"),  # 9 % above is not the same, however much seeds differ
        (Figure(0.299, 0.006, 4), "reproduced"),
        (None, NOT_RUN),
    ],
)
def test_a_verdict_goes_by_the_distance_to_the_paper(ours: Figure | None, words: str) -> None:
    experiment = EXPERIMENTS["encoders"]
    assert verdict(experiment, experiment.row("transe-none"), "mrr", ours) == words


def test_a_verdict_names_reasons_missing_seeds_and_the_better_side() -> None:
    nodes, encoders = EXPERIMENTS["node-classification"], EXPERIMENTS["encoders"]
    row = nodes.row("am-compgcn")
    assert verdict(nodes, row, "accuracy", None) == f"not run: {row.missing}"
    assert verdict(nodes, nodes.row("mutag-feat"), "accuracy", Figure(77.9, 0.0, 1)) == "reproduced (1 of 10 seeds)"
    assert verdict(nodes, nodes.row("mutag-feat"), "accuracy", Figure(77.9, 0.0, 10)) == "reproduced"
    assert verdict(nodes, nodes.row("mutag-feat"), "accuracy", Figure(79.3, 0.0, 10)) == "above"
    assert verdict(nodes, nodes.row("mutag-feat"), "accuracy", Figure(79.3, 0.0, 10, 1.47)) == "reproduced"
    assert verdict(encoders, encoders.row("transe-none"), "mr", Figure(200.0, 0.0, 1)) == "above"  # lower is better


def test_a_spread_is_shown_with_its_digits_and_its_kind() -> None:
    experiment = EXPERIMENTS["graph-classification"]
    assert shown(Figure(0.3165, 0.0004, 3), "mrr") == ".317 ± .0004 (seeds)"
    assert shown(Figure(71.6, 1.0, 2), "accuracy") == "71.6 ± 1.0 (seeds)"
    assert stated(experiment, experiment.row("ptc-compgcn-sub"), "accuracy") == "71.6 ± 12.0 (folds)"


def test_costs_name_shared_devices_and_leave_out_unknown_memory(tmp_path: Path) -> None:
    one = job("encoders", "conve-dgcn")
    for seed, beside in enumerate((None, 4, 2)):
        write(
            tmp_path, one, seed, environment={"seconds": 2.0, "peak_memory_mib": 9, "device": "cpu", "beside": beside}
        )
    found: list[Any] = Board(tmp_path, EXPERIMENTS).results(one.experiment, one.row)
    assert costs(found) == ["7", "45", "2 (cpu, with up to 4 other runs)", "9", "0, 1, 2"]
    assert costs([{**found[0], "parameters": None}])[3] == MISSING  # a result of the old format
    write(tmp_path, one, parameters=None)
    text = str(page(Board(tmp_path, EXPERIMENTS), one.experiment))
    assert "1 of the 3 results predate the present format" in text


def test_a_point_of_a_figure_has_its_change_and_the_spread_of_its_seeds(tmp_path: Path) -> None:
    one = job("bases", "b5")
    write(tmp_path, job("encoders", "conve-compgcn-corr"), mrr=0.4)
    for seed, mrr in enumerate((0.3, 0.34)):
        write(tmp_path, one, seed, mrr)
    found = relative(Board(tmp_path, EXPERIMENTS), one.experiment, one.row)
    assert found == pytest.approx((0.32 / 0.4 - 1, 0.04 / 2**0.5 / 0.4))
    assert [path.name for path in write_one(Board(tmp_path, EXPERIMENTS), one.experiment)][-1] == "figure.svg"


def test_a_control_trained_in_another_way_says_how(tmp_path: Path) -> None:
    for name in ("conve-none", "transe-none", "transe-compgcn-sub-all", "conve-dgcn", "conve-compgcn-sub"):
        write(tmp_path, job("encoders", name))
    made = [one for one in tables(Board(tmp_path, EXPERIMENTS), EXPERIMENTS["encoders"]) if "ours" in one.header]
    found = {line[0]: line[table.header.index("without encoder")] for table in made for line in table.rows}
    label = EXPERIMENTS["encoders"].row("transe-compgcn-sub-all").label
    assert found[label] == ".250 (45 epochs, self-adversarial, another recipe)"
    assert found["ConvE + CompGCN (Sub)"] == ".250 (kernel 7)"
    assert found["ConvE + D-GCN"] == ".250"


def test_the_tables_of_data_sets_and_methods_are_the_papers() -> None:
    board = Board(RESULTS, EXPERIMENTS)
    sizes = {line[0]: line for line in tables(board, EXPERIMENTS["datasets"])[0].rows}
    assert sizes["AM"][2] == "1,666,764 / –"  # never loaded, so not measured
    assert sizes["WN18RR"][2] == "40,943 / 40,943"
    used, _ = tables(board, EXPERIMENTS["methods"])
    found = {line[0].strip("`"): ("".join("x" if cell else "-" for cell in line[2:6]), line[6]) for line in used.rows}
    paper = {"gcn": "x---", "dgcn": "xx--", "wgcn": "x-x-", "rgcn-basis": "xxx-", "compgcn": "xxxx"}
    assert {name: found[name][0] for name in paper} == paper
    assert found["compgcn"][1] == "O(K d² + B d + B |R|)"
    assert found["vrgcn"] == ("xxxx", "O(K d² + |R| d)")


def test_a_step_per_edge_with_fewer_queries_is_compared_by_query(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"settings": {"encoder.statistics": "mean"}, "batch": 64, "steps": {"ours": {"ms": 20.0, "mib": 100.0}}}
    row |= {"per_edge": {"queries": 16, "ms": 50.0, "mib": 900.0}, "ranks": {"number": 8, "ms": 11.0}}
    report = {"data": "toy", "environment": {"device": "GPU"}, "rows": [row]}
    monkeypatch.setattr(blocks, "load", lambda name: report if name == "h200/conditional" else None)
    step, ranks = list(blocks._lines_of("h200", short=False))
    assert step[2:5] == ["20 ms, 100 MiB", "50 ms, 900 MiB for 16 queries", "10×, a query"]
    assert ranks[2:5] == ["11 ms", MISSING, MISSING]
    assert list(blocks._lines_of("h200", short=True)) == [step]


# Committed results and pages


def test_every_row_has_a_committed_result_of_its_settings_or_says_why_not() -> None:
    board = Board(RESULTS, EXPERIMENTS)
    for experiment in EXPERIMENTS.values():
        for row in experiment.rows:
            home, line = at_home(experiment, row)
            if line.settings is not None and not line.missing:
                assert board.ours(home, line, home.metrics[0]) is not None, f"{experiment.name}/{row.name}"


def test_the_page_of_results_is_made_of_the_committed_files() -> None:
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == whole(
        Board(RESULTS, EXPERIMENTS), ROOT / "docs"
    )


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_generated_blocks_are_made_of_the_committed_files(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert blocks.filled(text, Board(RESULTS, EXPERIMENTS)) == text
    assert text.count("<!-- python -m reproduction tables: ") <= text.count("<!-- end -->")


def test_the_basis_matrices_of_rgcn_are_those_that_are_better_on_validation() -> None:
    found = {
        name: json.loads((RESULTS / "encoders" / f"{name}-0.json").read_text(encoding="utf-8"))
        for name in ("conve-rgcn", "conve-rgcn-b10")
    }
    assert [one["config"]["encoder"]["bases"] for one in found.values()] == [30, 10]
    assert found["conve-rgcn"]["metrics"]["valid"]["mrr"] > found["conve-rgcn-b10"]["metrics"]["valid"]["mrr"]
    rows = [row for row in EXPERIMENTS["rgcn"].rows if row.series == "R-GCN" and not row.same_as]
    assert all(expected(EXPERIMENTS["rgcn"], row).encoder.bases in (0, 30) for row in rows)
