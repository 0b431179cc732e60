"""The page of deviations shows what was measured, and all that is measured is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reproduction.experiment import curve as curve_of
from reproduction.pages import (
    BEGIN,
    BELOW,
    END,
    PATIENCE,
    WATCHED,
    changed,
    difference,
    difference_tables,
    draw,
    filled,
    measured,
    page,
    rule,
    small,
    stopped,
    worth,
    write_all,
)
from reproduction.tables import NOT_RUN, Board

from compgcn.config import Config, configure
from compgcn.errors import InputError
from compgcn.nn.encoder import PRESETS
from compgcn.tasks.link_prediction import _STALE
from reproduction import experiment as lab
from toy import graph, train

ROOT = Path(__file__).parents[2]
EXPERIMENTS = lab.experiments([str(path) for path in (ROOT / "experiments").glob("*.toml") if path.stem != "claims"])
FIDELITY = EXPERIMENTS["fidelity"]
PAGE = ROOT / "docs" / "fidelity.md"
SEEDS = (0.35, 0.352, 0.354)  # of the reference: a mean of .352, a standard deviation of .002


def write(folder: Path, name: str, figure: float, seed: int = 0, **more: Any) -> None:
    """A result of a row, 'experiment/row', with that MRR."""
    home, _, row = name.partition("/")
    own = EXPERIMENTS[home].row(row)
    config = lab.expected(EXPERIMENTS[home], own)
    figures = {"mrr": figure, "hits@10": figure, "optimistic": {"mrr": figure + 1e-5}, "pessimistic": {"mrr": figure}}
    result = {
        "seed": seed,
        "hash": "",
        "config": json.loads(config.model_dump_json()),
        "parameters": 7,
        "environment": {"seconds": 1.0, "peak_memory_mib": 1, "device": "cpu"},
        "metrics": {"valid": figures, "test": figures},
        "curve": {"epoch": [5, 10, config.training.epochs], "mrr": [0.1, figure, 0.2]},
    }
    path = folder / home / f"{row}-{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result | more), encoding="utf-8")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder where the reference is known, and by its seeds how far they lie apart."""
    for seed, figure in enumerate(SEEDS):
        write(tmp_path, "fidelity/reference", figure, seed)
    return tmp_path


def config_of(name: str) -> Config:
    """What a row of deviations is trained with."""
    return lab.expected(*lab.at_home(FIDELITY, FIDELITY.row(name)))


# The rows


def test_a_row_differs_from_its_control_in_what_it_says_alone() -> None:
    """And in what goes with another encoder, whatever the recipes become that references are trained by."""
    for row in FIDELITY.rows:
        if row.control is None:
            continue
        before, settings = config_of(row.control), changed(FIDELITY, row)
        implied: dict[str, Any] = {}
        if "encoder.name" in settings:
            preset = PRESETS[settings["encoder.name"]]
            implied = {"encoder.norm": preset.norm}
            implied |= {} if preset.composition is None else {"encoder.composition": preset.composition}
        assert 1 <= len(settings.keys() - implied.keys()) <= 2, row.name
        after = configure(before, settings | implied)
        assert after == config_of(row.name), row.name
        assert after.encoder.dims[-1] == before.encoder.dims[-1], row.name  # what is scored is of the same size


def test_every_row_is_a_reference_or_is_compared_with_one() -> None:
    controls = {row.control for row in FIDELITY.rows if row.control is not None}
    for row in FIDELITY.rows:
        assert (row.control is not None) or (row.name in controls), row.name
    assert FIDELITY.seeds_of[0].removeprefix("fidelity/") in controls


@pytest.mark.parametrize("name", ["flow", "bce-floor"])
@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (0.0015, BELOW),  # it takes 4.30 · √2 standard deviations, .0122
        (-0.0015, BELOW),
        (0.0055, "undecided"),
        (-0.0055, "undecided"),
        (0.0119, "undecided"),
        (0.0125, "better"),
        (-0.0125, "worse"),
    ],
)
def test_a_difference_is_held_against_how_far_seeds_lie_apart(results: Path, name: str, gap: float, words: str) -> None:
    write(results, "fidelity/bce", SEEDS[0])
    write(results, f"fidelity/{name}", SEEDS[0] + gap)
    board, row = Board(results, EXPERIMENTS), FIDELITY.row(name)
    found = difference(board, FIDELITY, row, "mrr")
    assert found is not None
    assert found.gap == pytest.approx(gap)
    assert found.seeds == 1
    assert worth(board, FIDELITY, row) == words


@given(st.dictionaries(st.integers(0, 5), st.floats(0, 1)), st.dictionaries(st.integers(0, 5), st.floats(0, 1)))
def test_a_difference_is_the_mean_over_the_seeds_that_both_have(
    ours: dict[int, float], others: dict[int, float]
) -> None:
    """So that what a seed does to both does not show: the same added to both leaves it as it is."""
    both = sorted(ours.keys() & others.keys())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Board, "by_seed", lambda self, _, row, metric: ours if row.name == "flow" else others)
        found = difference(Board(ROOT, EXPERIMENTS), FIDELITY, FIDELITY.row("flow"), "mrr")
    if not both:
        assert found is None
    else:
        assert found is not None
        assert found.seeds == len(both)
        assert found.gap == pytest.approx(sum(ours[seed] - others[seed] for seed in both) / len(both))


def test_more_seeds_decide_more(results: Path) -> None:
    """Those that a row and its control both have."""
    row = FIDELITY.row("bce-floor")
    for gap, ours, others, words in (
        (0.011, 1, 1, "undecided"),
        (0.011, 3, 1, "undecided"),
        (0.011, 3, 2, "better"),
        (0.008, 3, 2, "undecided"),
        (0.008, 3, 3, "better"),
    ):
        for name, figure, seeds in (("bce-floor", 0.35 + gap, ours), ("bce", 0.35, others)):
            for seed in range(seeds):
                write(results, f"fidelity/{name}", figure, seed)
        assert worth(Board(results, EXPERIMENTS), FIDELITY, row) == words, (gap, ours, others)


def test_more_models_with_seeds_decide_more_by_the_spread_of_all(results: Path) -> None:
    """The reference alone leaves .0096 open; two more models of such a spread make it 6 degrees of freedom."""
    write(results, "fidelity/flow", SEEDS[0] + 0.0096)
    assert worth(Board(results, EXPERIMENTS), FIDELITY, FIDELITY.row("flow")) == "undecided"
    for name in ("mult", "sub"):
        for seed, figure in enumerate(SEEDS):
            write(results, f"encoders/conve-compgcn-{name}", figure - 0.05, seed)
    board = Board(results, EXPERIMENTS)
    assert ".0020 with `conve` (6 degrees of freedom, " in rule(board, FIDELITY)
    assert worth(board, FIDELITY, FIDELITY.row("flow")) == "better"
    for seed, figure in enumerate(SEEDS):  # the square root of the mean of .002², .002² and .004²
        write(results, "encoders/conve-compgcn-mult", 0.3 + 2 * (figure - 0.35), seed)
    assert ".0028 with `conve`" in rule(Board(results, EXPERIMENTS), FIDELITY)


def test_a_model_is_held_against_seeds_of_its_own_scoring_function(results: Path) -> None:
    write(results, "encoders/distmult-compgcn-mult", 0.33)
    write(results, "fidelity/distmult-bias", 0.32)
    row = FIDELITY.row("distmult-bias")
    assert worth(Board(results, EXPERIMENTS), FIDELITY, row) == "", "that of ConvE says nothing of it"
    for seed, figure in enumerate(SEEDS):
        write(results, "encoders/distmult-compgcn-sub", figure, seed)
    assert worth(Board(results, EXPERIMENTS), FIDELITY, row) == "undecided"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0218, "+.0218"), (-0.0023, "−.0023"), (10.5, "+10.5000"), (-100.5, "−100.5000"), (0, "+.0000")],
)
def test_a_difference_keeps_all_its_digits_before_the_point(value: float, text: str) -> None:
    assert small(value) == text


def test_what_is_not_known_is_said_and_not_concluded_from(results: Path) -> None:
    row = FIDELITY.row("bce-floor")
    assert worth(Board(results, EXPERIMENTS), FIDELITY, row) == NOT_RUN
    write(results, "fidelity/bce-floor", 0.3)
    assert worth(Board(results, EXPERIMENTS), FIDELITY, row) == "`bce` is not run yet"
    write(results, "fidelity/bce", 0.3, seed=5)
    assert worth(Board(results, EXPERIMENTS), FIDELITY, row) == "`bce` has none of its seeds"
    (results / "fidelity" / "bce-5.json").unlink()
    write(results, "fidelity/bce", 0.3, config=lab.expected(FIDELITY, row).model_dump(mode="json"))
    board = Board(results, EXPERIMENTS)
    assert worth(board, FIDELITY, FIDELITY.row("bce")) == lab.OLDER
    assert difference(board, FIDELITY, row, "mrr") is None
    assert ".0020" in rule(board, FIDELITY)
    assert "pooled from `fidelity/reference`)" in rule(board, FIDELITY)
    (results / "fidelity" / "reference-1.json").unlink()
    (results / "fidelity" / "reference-2.json").unlink()
    write(results, "fidelity/flow", 0.2)
    board = Board(results, EXPERIMENTS)
    assert "not known yet: none of `fidelity/reference`, " in rule(board, FIDELITY)
    assert worth(board, FIDELITY, FIDELITY.row("flow")) == ""


def test_differences_may_do_without_seeds_but_not_with_those_of_a_row_there_is_not(results: Path) -> None:
    write(results, "fidelity/flow", 0.2)
    board, row = Board(results, EXPERIMENTS), FIDELITY.row("flow")
    bare = FIDELITY.model_copy(update={"seeds_of": ()})
    assert "not known yet, and no difference" in rule(board, bare)
    assert worth(board, bare, row) == ""
    for name, sentence in (
        ("encoder/x", "did you mean 'encoders'"),
        ("encoders/conve-nome", "did you mean 'conve-none'"),
    ):
        with pytest.raises(InputError, match=sentence):
            worth(board, FIDELITY.model_copy(update={"seeds_of": (name,)}), row)


def test_a_line_has_the_settings_the_figures_and_the_differences(results: Path) -> None:
    write(results, "fidelity/norm-none", 0.33)
    made = difference_tables(Board(results, EXPERIMENTS), FIDELITY)
    lines = {line[1]: line for table in made for line in table.rows}
    assert list(lines) == [f"`{row.name}`" for row in FIDELITY.rows]
    figures = [".330", "−.0200", ".330", "−.0200", ".0122"]
    assert lines["`norm-none`"][2:10] == ["`reference`", '`encoder.norm = "none"`', *figures, "worse"]
    over = ".352 ± .002 (seeds)"
    assert lines["`reference`"][2:10] == ["–", "–", over, "–", over, "–", "–", ""]


def test_the_figure_of_differences_has_every_row_that_was_run_and_what_chance_may_do(results: Path) -> None:
    figure = results / "figure.svg"
    assert not draw(Board(results, EXPERIMENTS), FIDELITY, figure), "the reference alone is no difference"
    write(results, "fidelity/norm-none", 0.33)
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reproduction.pages.draw_differences", lambda *args: drawn.append(args))
        assert draw(Board(results, EXPERIMENTS), FIDELITY, figure)
    (label, gap, by_chance), *more = drawn[0][1]
    assert (label, more) == ("no norm", [])
    assert gap == pytest.approx(-0.02)
    assert by_chance == pytest.approx(4.30 * 0.002 * 2**0.5)
    assert draw(Board(results, EXPERIMENTS), FIDELITY, figure)
    assert figure.stat().st_size > 0


def test_the_report_of_differences_has_their_rule_and_notes(results: Path) -> None:
    board = Board(results, EXPERIMENTS)
    parts = page(board, FIDELITY)
    assert rule(board, FIDELITY) in parts
    assert sum(isinstance(part, str) and part.startswith("- ") for part in parts) == len(FIDELITY.rows)


# Ties and stopping


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(1, 50))
def test_a_patience_chooses_the_best_until_it_ends_training_and_a_greater_one_chooses_no_worse(
    figures: list[float], patience: int
) -> None:
    curve = {"epoch": [5 * (k + 1) for k in range(len(figures))], "mrr": figures}
    stop, longer = stopped(curve, patience), stopped(curve, patience + 1)
    run = len(figures) if stop.epoch is None else stop.epoch // 5
    assert stop.best == max(figures[:run])
    assert max(figures[: max(run - patience, 0)], default=0.0) == stop.best or stop.epoch is None
    assert longer.best >= stop.best
    assert stop.epoch is None or longer.epoch is None or longer.epoch > stop.epoch
    if patience >= len(figures):
        assert stop == (None, max(figures))


def test_training_stops_where_the_curve_of_a_longer_one_says(tmp_path: Path) -> None:
    settings, data = {"epochs": 30, "lr": 0.1}, graph()
    whole = curve_of(train(tmp_path / "long", data, patience=1000, **settings).path / "events.jsonl")
    ends = set()
    for patience in (1, 2, 4):
        curve = curve_of(train(tmp_path / str(patience), data, patience=patience, **settings).path / "events.jsonl")
        stop = stopped(whole, patience)
        assert (stop.epoch or 30, stop.best) == (curve["epoch"][-1], max(curve["mrr"]))
        ends.add(stop.epoch)
    assert len(ends) > 1  # so that patience mattered


def test_the_tables_of_ties_and_of_stopping_are_of_present_results(results: Path) -> None:
    write(results, "encoders/conve-compgcn-corr", 0.35)
    for seed, figure in enumerate(SEEDS):
        write(results, "link-prediction/fb15k-237-compgcn", figure, seed)
    write(results, "link-prediction/wn18rr-compgcn", 0.4, curve={"epoch": [1], "mrr": [0.4]}, hash="x")
    text = measured(Board(results, EXPERIMENTS))
    assert "| `encoders/conve-compgcn-corr` | 0 | .35001 | .35000 | .35000 | 1e-05 |" in text
    assert "| `link-prediction/fb15k-237-compgcn` | 0, 1, 2 | .35201 | .35200 | .35200 | 1e-05 |" in text
    stops = ["–"] * len(PATIENCE)  # three evaluations tell nothing of a patience of three
    assert f"| `encoders/conve-compgcn-corr` | 0 | 3 | 5 epochs | .3500 | {' | '.join(stops)} |" in text
    assert "| `encoders/conve-compgcn-corr-bce` | not run yet |" in text
    assert re.search(r"`link-prediction/wn18rr-compgcn` \| 0 \| 1 \|.*not known", text)  # it ended before its time
    longer = {"epoch": [5, 10, 15, 20, 25, 45], "mrr": [0.1, 0.3, 0.2, 0.2, 0.2, 0.35]}
    write(results, "encoders/conve-compgcn-corr", 0.35, curve=longer)
    assert "| epoch 25 of 45, −.0500 | never | – |" in measured(Board(results, EXPERIMENTS))


# The page


def test_the_page_is_that_of_the_committed_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text, Board(ROOT / "results", lab.experiments())) == text


def test_every_row_that_is_compared_stands_beside_the_point_that_it_measures() -> None:
    cells = re.findall(r"<!-- measured: (.+?) -->", PAGE.read_text(encoding="utf-8"))
    named = [name.strip() for cell in cells for name in cell.split(",")]
    assert sorted(named) == sorted(row.name for row in FIDELITY.rows if row.control is not None)


def test_what_the_page_says_of_the_recipes_is_so() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    ours, transe, encoders = config_of("reference"), config_of("transe"), EXPERIMENTS["encoders"]
    short, long = ours.training.epochs, transe.training.epochs
    for name, longer in (("reference", "conve-compgcn-corr"), ("no-encoder", "conve-none")):
        other = lab.expected(encoders, encoders.row(longer))
        assert short < other.training.epochs == long
        assert configure(other, {"training.epochs": short}) == config_of(name)
    assert "with the recipe of the comparison of encoders, which has the paper's own figures beside ours" in text
    assert f"for {short} epochs in place of {long}; with other scoring functions for {long}, against rows" in text
    for row in FIDELITY.rows:
        config = config_of(row.name)
        same = config.decoder.name == ours.decoder.name
        assert config.data.source == "fb15k-237", row.name
        assert config.training.epochs == (short if same else long), row.name
        if row.control is None:
            assert lab.at_home(FIDELITY, row)[0] == (FIDELITY if same else encoders), row.name
    assert "that of the rows here is cross-entropy" in text
    assert ours.training.loss == "cross-entropy"
    evaluations = transe.training.epochs // transe.training.evaluate_every
    assert f"it falls after {_STALE} evaluations without gain" in text
    assert f"these trainings have {evaluations} evaluations" in text
    assert evaluations < _STALE


def test_the_models_whose_seeds_say_how_far_they_lie_apart_are_those_that_the_page_says() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert "models of that comparison with the same scoring function, and the reference, with three seeds each" in text
    compared = [row for row in EXPERIMENTS["encoders"].rows if re.match(r"\w+-compgcn-(sub|mult|corr|b50)$", row.name)]
    assert sorted(FIDELITY.seeds_of) == sorted(["fidelity/reference", *(f"encoders/{row.name}" for row in compared)])
    board = Board(ROOT / "results", EXPERIMENTS)
    for home, _, name in (one.partition("/") for one in FIDELITY.seeds_of):
        assert len(board.results(EXPERIMENTS[home], EXPERIMENTS[home].row(name))) == 3, name


def test_what_the_page_says_of_more_training_is_so() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    board, encoders, links = (
        Board(ROOT / "results", EXPERIMENTS),
        EXPERIMENTS["encoders"],
        EXPERIMENTS["link-prediction"],
    )

    def figure(home: lab.Experiment, name: str) -> float:
        found = board.real(home, home.row(name), "mrr")
        assert found is not None
        return found.mean

    longer = figure(encoders, "conve-compgcn-corr") - figure(FIDELITY, "reference")
    layer = [row for row in FIDELITY.rows if row.group == "The layer" and row.control is not None]
    gaps = [difference(board, FIDELITY, row, "mrr") for row in layer]
    assert "The reference itself gains more by training on than any change of its layer makes" in text
    assert all(gap is not None and abs(gap.gap) < longer for gap in gaps)
    assert "225 epochs of it reach as much as 45 to 90 of cross-entropy" in text
    between = figure(encoders, "conve-compgcn-corr"), figure(links, "fb15k-237-compgcn")
    assert between[0] <= figure(encoders, "conve-compgcn-corr-bce") <= between[1]
    for row in FIDELITY.rows:
        for result in board.results(FIDELITY, row) if config_of(row.name).decoder.name == "conve" else ():
            assert max(result["curve"]["mrr"]) == result["curve"]["mrr"][-1], row.name  # it is still learning


def test_what_the_page_says_of_the_ablations_is_so() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    board = Board(ROOT / "results", EXPERIMENTS)
    verdicts = {row.name: worth(board, FIDELITY, row) for row in FIDELITY.rows if row.group == "Ablations"}
    assert "without the encoder the model is worse, without any edge it is not by more than chance" in text
    assert "with wrong edges it is worse too" in text
    assert [verdicts["no-encoder"], verdicts["graph-random"]] == ["worse", "worse"]
    assert verdicts["graph-none"] in ("undecided", BELOW)


def test_what_the_page_says_of_the_trainings_that_it_watches_is_so() -> None:
    assert "In all these trainings the rate falls towards the end" in PAGE.read_text(encoding="utf-8")
    for home, name in WATCHED:
        training = lab.expected(EXPERIMENTS[home], EXPERIMENTS[home].row(name)).training
        assert training.schedule != "constant", name
        assert training.epochs // training.evaluate_every > min(PATIENCE), name  # or no patience would tell anything


def test_a_new_result_changes_the_page_and_nothing_that_is_written_by_hand(results: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    write(results, "fidelity/norm-none", 0.33)
    made = filled(text, Board(results, EXPERIMENTS))
    assert "no norm: −.0200, worse; " in made
    assert filled(made, Board(results, EXPERIMENTS)) == made
    assert filled(made, Board(ROOT / "results", lab.experiments())) == text


def test_a_page_without_a_place_for_tables_or_with_an_unknown_row_is_one_sentence(results: Path) -> None:
    board = Board(results, EXPERIMENTS)
    with pytest.raises(InputError, match="has no place for tables"):
        filled("# Nothing", board)
    with pytest.raises(InputError, match="did you mean 'norm-none'"):
        filled(f"| <!-- measured: norm-nonne --> |\n{BEGIN}{END}", board)


def test_the_report_of_everything_fills_the_page_beside_it(results: Path, tmp_path: Path) -> None:
    chosen = {name: EXPERIMENTS[name] for name in ("fidelity", "link-prediction", "encoders")}
    board = Board(results, chosen)
    folder = tmp_path / "docs"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reproduction.pages.write_one", lambda *_: [])
        patch.setattr("reproduction.pages.whole", lambda *_: "")
        assert write_all(board, folder / "results.md") == [folder / "results.md"]
        (folder / "fidelity.md").write_text(f"{BEGIN}{END}\n", encoding="utf-8")
        assert write_all(board, folder / "results.md") == [folder / "results.md", folder / "fidelity.md"]
    assert "## Stopping" in (folder / "fidelity.md").read_text(encoding="utf-8")
