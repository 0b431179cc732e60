"""Reports: verdicts, tables, and the pages that are made of the committed results."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from reproduction.pages import page, whole
from reproduction.tables import MISSING, NOT_RUN, RULE, Board, Figure, relative, said, shown, summary, tables, verdict

from compgcn.run.report import markdown, page_html
from laboratory import EXPERIMENTS, ROOT, job, write
from reproduction import experiment as lab


def test_results_of_other_settings_are_neither_averaged_nor_judged(tmp_path: Path) -> None:
    one, experiment = job("node-classification", "mutag-compgcn"), EXPERIMENTS["node-classification"]
    write(tmp_path, one, 0, {"training.lr": 0.5}.items())
    write(tmp_path, one, 1, {"training.lr": 0.4}.items())
    found = Board(tmp_path, EXPERIMENTS).ours(experiment, one.row, "accuracy")
    assert found == Figure(75.0, 0.0, 1, lab.OLDER)
    assert verdict(experiment, one.row, "accuracy", found) == "older settings"
    write(tmp_path, one, 2)
    assert Board(tmp_path, EXPERIMENTS).ours(experiment, one.row, "accuracy") == Figure(75.0, 0.0, 1)
    assert [one["seed"] for one in Board(tmp_path, EXPERIMENTS).results(experiment, one.row)] == [2]


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (Figure(0.294, 0.0, 1), "reproduced"),
        (Figure(0.292, 0.0, 1), "reproduced"),
        (Figure(0.25, 0.0, 1), "below"),
        (Figure(0.32, 0.0, 1), "above"),
        (Figure(0.32, 0.03, 4), "undecided"),  # however much seeds differ, 9 % above is not the same
        (Figure(0.299, 0.006, 4), "reproduced"),
        (None, NOT_RUN),
    ],
)
def test_a_verdict_goes_by_the_distance_to_the_paper(ours: Figure | None, expected: str) -> None:
    experiment = EXPERIMENTS["encoders"]
    assert verdict(experiment, experiment.row("transe-none"), "mrr", ours) == expected


def test_a_row_that_was_not_run_says_why_where_that_is_known() -> None:
    experiment = EXPERIMENTS["node-classification"]
    row = experiment.row("am-compgcn")
    assert verdict(experiment, row, "accuracy", None) == f"not run: {row.missing}"
    assert row.missing


def test_a_lower_mean_rank_is_better() -> None:
    experiment = EXPERIMENTS["encoders"]
    assert verdict(experiment, experiment.row("transe-none"), "mr", Figure(200.0, 0.0, 1)) == "above"


def test_a_verdict_says_how_many_seeds_it_lacks() -> None:
    experiment = EXPERIMENTS["node-classification"]
    row = experiment.row("mutag-feat")
    assert verdict(experiment, row, "accuracy", Figure(77.9, 0.0, 1)) == "reproduced (1 of 10 seeds)"
    assert verdict(experiment, row, "accuracy", Figure(77.9, 0.0, 10)) == "reproduced"


def test_a_spread_that_is_small_is_not_none_at_all() -> None:
    assert shown(Figure(0.3165, 0.0004, 3), "mrr") == ".317 ± .0004 (seeds)"
    assert shown(Figure(0.3165, 0.0, 3), "mrr") == ".317 ± .000 (seeds)"


def test_a_spread_says_what_it_is_over() -> None:
    experiment = EXPERIMENTS["graph-classification"]
    assert said(experiment, experiment.row("ptc-compgcn"), "accuracy") == "71.6 ± 12.0 (folds)"
    assert shown(Figure(71.6, 1.0, 2), "accuracy") == "71.6 ± 1.0 (seeds)"


def test_the_rule_stands_under_experiments_with_verdicts_alone() -> None:
    board = Board(ROOT / "nowhere", EXPERIMENTS)
    ruled = {name for name, one in EXPERIMENTS.items() if any(RULE in str(part) for part in page(board, one))}
    assert {"encoders", "node-classification"} <= ruled
    assert not {"categories", "graph-classification-nested", "bases", "datasets"} & ruled


def test_a_result_from_before_says_so_and_shows_no_memory(tmp_path: Path) -> None:
    one = job("encoders", "conve-dgcn")
    write(tmp_path, one)
    text = markdown(page(Board(tmp_path, EXPERIMENTS), one.experiment))
    assert "123,456" in text
    assert "| 45 |" in text  # epochs
    assert "recorded before" not in text
    write(tmp_path, one, parameters=None)
    text = markdown(page(Board(tmp_path, EXPERIMENTS), one.experiment))
    assert "123,456" not in text
    assert "1 of the 1 results were recorded before" in text


def test_a_point_of_a_figure_has_its_change_and_the_spread_of_its_seeds(tmp_path: Path) -> None:
    one, base = job("bases", "b5"), job("encoders", "conve-compgcn-corr")
    write(tmp_path, base, metrics={"valid": {}, "test": {"mrr": 0.4}})
    for seed, figure in enumerate((0.3, 0.34)):
        write(tmp_path, one, seed, metrics={"valid": {}, "test": {"mrr": figure}})
    found = relative(Board(tmp_path, EXPERIMENTS), one.experiment, one.row)
    assert found == pytest.approx((0.32 / 0.4 - 1, 0.04 / 2**0.5 / 0.4))


def test_a_control_that_was_trained_otherwise_says_how(tmp_path: Path) -> None:
    one, control = job("encoders", "conve-compgcn-corr-bce"), job("encoders", "conve-none")
    write(tmp_path, one)
    write(tmp_path, control)
    for name in ("conve-dgcn", "conve-compgcn-sub"):
        write(tmp_path, job("encoders", name))
    made = [one for one in tables(Board(tmp_path, EXPERIMENTS), one.experiment) if "without encoder" in one.header]
    found = {line[0]: line[table.header.index("without encoder")] for table in made for line in table.rows}
    assert found[one.row.label] == ".250 (45 epochs, cross-entropy, another recipe)"  # rate, batches and schedule too
    assert found["ConvE + CompGCN (Sub)"] == ".250 (kernel 7)"
    assert found["ConvE + D-GCN"] == ".250"


def test_the_seconds_of_a_row_trained_beside_others_say_so(tmp_path: Path) -> None:
    """Of several seeds, the most that there were beside one."""
    one = job("encoders", "conve-dgcn")
    for seed, beside in enumerate((None, 4, 2)):
        write(tmp_path, one, seed)
        path = one._replace(seed=seed).file(tmp_path)
        result = json.loads(path.read_text())
        result["environment"]["beside"] = beside
        path.write_text(json.dumps(result))
    text = markdown(page(Board(tmp_path, EXPERIMENTS), one.experiment))
    assert f"({result['environment']['device']}, beside up to 4 more)" in text


def test_sizes_that_were_never_measured_are_not_ours() -> None:
    found = {line[0]: line for line in tables(Board(ROOT / "results", EXPERIMENTS), EXPERIMENTS["datasets"])[0].rows}
    assert found["AM"][2] == "1,666,764 / –"
    assert found["WN18RR"][2] == "40,943 / 40,943"


def test_the_page_of_results_is_that_of_the_committed_files() -> None:
    board = Board(ROOT / "results", lab.experiments())
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == whole(board, ROOT / "docs")
    assert len(summary(board).rows) >= 9


def test_a_peak_of_memory_that_is_not_known_is_left_out(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["systems"]
    for peak, expected in ((None, MISSING), (1208, "1,208")):
        board = Board(tmp_path, EXPERIMENTS)
        result = json.loads((ROOT / "results/systems/fb15k-237-hyper-0.json").read_text(encoding="utf-8"))
        result["environment"]["peak_memory_mib"] = peak
        (tmp_path / "systems").mkdir(exist_ok=True)
        (tmp_path / "systems/fb15k-237-hyper-0.json").write_text(json.dumps(result), encoding="utf-8")
        assert summary(board).rows[0][-2] == expected
        assert summary(board).rows[0][2] == experiment.row("fb15k-237-hyper").label


def test_the_table_of_methods_is_the_papers() -> None:
    seen, _ = tables(Board(ROOT / "results", EXPERIMENTS), EXPERIMENTS["methods"])
    found = {line[0].strip("`"): ("".join("x" if cell else "-" for cell in line[2:6]), line[6]) for line in seen.rows}
    paper = {"gcn": "x---", "dgcn": "xx--", "wgcn": "x-x-", "rgcn-basis": "xxx-", "compgcn": "xxxx"}
    assert {name: found[name][0] for name in paper} == paper
    assert found["compgcn"][1] == "O(K d² + B d + B |R|)"
    assert found["vrgcn"] == ("xxxx", "O(K d² + |R| d)")  # messages by role, and no bases
    assert "\\|R\\|" in markdown([seen])
    assert "<code>gcn</code>" in page_html([seen], "x")


def test_the_basis_matrices_of_rgcn_are_those_that_are_better_on_validation() -> None:
    found = {
        name: json.loads((ROOT / "results/encoders" / f"{name}-0.json").read_text(encoding="utf-8"))
        for name in ("conve-rgcn", "conve-rgcn-b10")
    }
    few, many = (found[name]["config"]["encoder"]["bases"] for name in ("conve-rgcn-b10", "conve-rgcn"))
    assert (few, many) == (10, 30)
    assert found["conve-rgcn"]["metrics"]["valid"]["mrr"] > found["conve-rgcn-b10"]["metrics"]["valid"]["mrr"]
    rows = [row for row in EXPERIMENTS["rgcn"].rows if row.series == "R-GCN" and not row.same_as]
    assert all(lab.expected(EXPERIMENTS["rgcn"], row).encoder.bases in (0, many) for row in rows)


def test_every_row_has_a_committed_result_of_its_settings_or_says_why_not() -> None:
    board = Board(ROOT / "results", EXPERIMENTS)
    for experiment in EXPERIMENTS.values():
        for row in experiment.rows:
            home, line = lab.at_home(experiment, row)
            if line.settings is not None and not line.missing:
                found = board.ours(home, line, home.metrics[0])
                assert found is not None, f"{experiment.name}/{row.name}"
                assert found.state == "", f"{experiment.name}/{row.name}"


def test_what_the_readme_says_of_complex_is_so() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "ComplEx with nothing around it is as good and quicker" in text
    board = Board(ROOT / "results", EXPERIMENTS)

    def reached(home: str, name: str) -> tuple[float, float]:
        experiment = EXPERIMENTS[home]
        found, runs = (
            board.real(experiment, experiment.row(name), "mrr"),
            board.results(experiment, experiment.row(name)),
        )
        assert found is not None
        return found.mean, statistics.fmean(run["environment"]["seconds"] for run in runs)

    for data in ("fb15k-237", "wn18rr"):
        ours, others = (reached("link-prediction", f"{data}-{model}") for model in ("compgcn", "complex"))
        assert others[0] > ours[0] - 0.005
        assert others[1] < ours[1]
    assert reached("systems", "fb15k-237-complex-n3-rp") > reached("systems", "fb15k-237-complex")
