"""The files of experiments: a page for each, and one of all of them."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compgcn.config import write_setting
from compgcn.errors import InputError, unknown
from compgcn.run.report import MISSING, Table, markdown, page_html
from compgcn.train.storage import replace
from reproduction.claims import RULE as CLAIMS
from reproduction.claims import Claim, Reached, judge, read_claims
from reproduction.experiment import Experiment, Row, at_home, chosen, find_folder
from reproduction.figures import Curves, draw_differences, draw_lines, draw_rows
from reproduction.tables import (
    COSTS,
    LOWER,
    NOT_RUN,
    RULE,
    TIES,
    Board,
    Figure,
    costs,
    is_converted,
    relative,
    shown,
    tables,
    title,
    verdict,
    without,
)

PLACES = {  # labels in its source -> what they are printed as
    "tbl:gcn_model_comp": "Table 1",
    "tbl:reduction": "Table 2",
    "tbl:link_pred": "Table 3",
    "tbl:link_pred_results": "Table 4",
    "tbl:nodeclass_results": "Table 5",
    "tbl:results_rel_cat": "Table 6",
    "table:rgcn_data": "Table 7",
    "fig:basis_plot": "Figure 3",
    "fig:rgcn_compare": "Figure 4",
    "fig:scale_plot": "Figure 5",
    "sec:results_gcn_encoder": "Section 6.2",
    "sec:results_basis": "Section 6.3",
    "sec:res_node_nmt": "Section 6.4",
    "sec:results_rel_cat": "Appendix A.1",
    "sec:hyperparams": "Appendix A.3",
    "eqn:main_upd": "the update equation",
}
_LABEL = re.compile(r"\b(?:tbl|table|fig|sec|eqn):\w+")


def placed(source: str) -> str:
    """A source with the places that its labels are."""
    return _LABEL.sub(lambda match: PLACES.get(match[0], match[0]), source)


SHORT = (
    "Where a row of CompGCN falls short of the paper's figure for it, that is said too: a verdict is then one on our "
    "training of it as much as on the claim."
)


def claims_table(board: Board, claims: Sequence[Claim]) -> Table:
    """What the paper claims, whether its own figures say so, and whether ours do."""

    def paper(experiment: str, row: str, metric: str) -> Reached | None:
        found = board.experiments[experiment].row(row).paper.get(metric)
        return None if found is None else Reached(found, 0.0)

    def ours(experiment: str, row: str, metric: str) -> Reached | None:
        made = board.experiments[experiment]
        line = made.row(row)
        if at_home(made, line)[1].settings is None:  # quoted
            return Reached(line.paper[metric]) if metric in line.paper else None
        found = board.real(made, line, metric)
        valid = board.real(made, line, made.metrics[0].rpartition("/")[2], "valid")
        if found is None:
            return None
        return Reached(found.mean, found.error if found.seeds > 1 else None, None if valid is None else valid.mean)

    lines = []
    for claim in claims:
        low = ", ".join(_short(board, claim))
        judged = judge(claim, ours, _lacking(board, claim)) + (f"; short of the paper's figure: {low}" if low else "")
        lines.append([claim.text, placed(claim.source), judge(claim, paper, "no figures given"), judged])
    return Table("Claims", ("the paper says", "where", "its own figures", "ours"), lines)


def _lacking(board: Board, claim: Claim) -> str:
    """What is said of a claim whose rows are not all there: that it cannot be decided, where a row says why."""
    for one in claim.compare:
        for row in map(board.experiments[one.experiment].row, one.rows):
            if row.missing:
                return f"undecided, for `{row.name}` is {without(row)}"
    return NOT_RUN


def _short(board: Board, claim: Claim) -> list[str]:
    """The rows that a claim is about of which ours are below the paper's, by the figure that verdicts go by."""
    found = []
    for one in claim.compare:
        experiment = board.experiments[one.experiment]
        metric = one.metric if "/" in one.metric else experiment.metrics[0]  # of parts, each for itself
        for row in map(experiment.row, one.rows):
            ours = board.real(experiment, row, metric)
            if ours is not None and verdict(experiment, row, metric, ours).startswith("below"):
                found.append(row.name)
    return list(dict.fromkeys(found))


BELOW = "below the spread of seeds"
# Beyond so many standard errors lies chance alone once in 20: Student's t, by the degrees of freedom. With more of them
# it hardly falls, and the last is taken.
_QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18)
_RULE = (
    "Differences are between models of the same seed. Seeds alone move {figure} by a standard deviation of {spreads}; "
    "a difference smaller than that is *below the spread of seeds*. *By chance* is what a difference exceeds once in "
    "20 where nothing differs but chance: Student's t times √2 times that deviation, of one seed. Up to there it is "
    "*undecided*, beyond *better* or *worse*; of {rows} rows about {wrong:.1f} would be that by chance."
)
_NO_RULE = "How far seeds lie apart is not known yet{why}, and no difference is called better or worse."


class Spread(NamedTuple):
    """How far seeds of a model lie apart: the standard deviation, and by how many degrees of freedom it is known."""

    sd: float
    freedom: int

    def by_chance(self, seeds: int) -> float:
        """How large a difference over so many pairs of models may be that differ in nothing.

        Models of one seed see the same batches, and lie closer together than this takes them to.
        """
        times = _QUANTILES[min(self.freedom, len(_QUANTILES)) - 1]
        return times * self.sd * math.sqrt(2 / seeds)


class Difference(NamedTuple):
    """How much higher the figure of a row is than that of its control, over the seeds that both have."""

    gap: float
    seeds: int


def difference_tables(board: Board, experiment: Experiment) -> list[Table]:
    """A table for each group of rows."""
    groups: dict[str, list[Row]] = {}
    for row in experiment.rows:
        groups.setdefault(row.group, []).append(row)
    return [_table(board, experiment, group, rows) for group, rows in groups.items()]


def _table(board: Board, experiment: Experiment, group: str, rows: Sequence[Row]) -> Table:
    lines = []
    for row in rows:
        settings = ", ".join(f"`{write_setting(*one)}`" for one in changed(experiment, row).items())
        against = f"`{row.control}`" if row.control else MISSING
        cells = [row.label, f"`{row.name}`", against, settings or MISSING]
        for metric in experiment.metrics:
            found = difference(board, experiment, row, metric)
            cells += [shown(board.ours(experiment, row, metric), metric), small(found.gap) if found else MISSING]
        most = limit(board, experiment, row)
        cells += [MISSING if most is None else digits(most), worth(board, experiment, row)]
        lines.append([*cells, *costs(board.results(experiment, row))])
    figures = [name for metric in experiment.metrics for name in (title(metric), "difference")]
    chance = f"{title(experiment.metrics[0])}, by chance"
    return Table(group, ("model", "row", "against", "with", *figures, chance, "", *COSTS), lines)


def changed(experiment: Experiment, row: Row) -> dict[str, Any]:
    """The settings that a row has otherwise than its control."""
    if row.control is None:
        return {}
    before, after = (chosen(*at_home(experiment, one)) for one in (experiment.row(row.control), row))
    return {name: value for name, value in after.items() if name not in before or before[name] != value}


def difference(board: Board, experiment: Experiment, row: Row, metric: str) -> Difference | None:
    """A row against its control; None unless both were run with a seed."""
    if row.control is None:
        return None
    ours, other = (board.by_seed(experiment, one, metric) for one in (row, experiment.row(row.control)))
    gaps = [ours[seed] - other[seed] for seed in ours.keys() & other.keys()]
    return Difference(statistics.fmean(gaps), len(gaps)) if gaps else None


def worth(board: Board, experiment: Experiment, row: Row) -> str:
    """What a difference comes to, in words; or why there is none."""
    metric = experiment.metrics[0]
    ours = board.ours(experiment, row, metric)
    if ours is None or ours.state:
        return NOT_RUN if ours is None else ours.state
    if row.control is None:
        return ""
    found, chance = difference(board, experiment, row, metric), _spread(board, experiment, row)
    if found is None:
        run = board.real(experiment, experiment.row(row.control), metric) is not None
        return f"`{row.control}` {'has none of its seeds' if run else f'is {NOT_RUN}'}"
    if chance is None:
        return ""
    if abs(found.gap) < chance.sd:
        return BELOW
    if abs(found.gap) <= chance.by_chance(found.seeds):
        return "undecided"
    return "better" if (found.gap > 0) != (metric.rpartition("/")[2] in LOWER) else "worse"


def limit(board: Board, experiment: Experiment, row: Row) -> float | None:
    """How large the difference of a row to its control may be by chance; None where that is not known."""
    found, chance = difference(board, experiment, row, experiment.metrics[0]), _spread(board, experiment, row)
    return None if found is None or chance is None else chance.by_chance(found.seeds)


def rule(board: Board, experiment: Experiment) -> str:
    """When a difference is one."""
    spreads = []
    for decoder in dict.fromkeys(_decoder(experiment, row) for row in experiment.rows):
        several = _several(board, experiment, decoder)
        if several:
            chance, names = _pooled(several.values()), ", ".join(f"`{name}`" for name in several)
            spreads.append(
                f"{digits(chance.sd)} with `{decoder}` ({chance.freedom} degrees of freedom, pooled from {names})"
            )
    if not spreads:
        names = ", ".join(f"`{name}`" for name in experiment.seeds_of)
        return _NO_RULE.format(why=f": none of {names} has two seeds" if names else "")
    rows = sum(row.control is not None for row in experiment.rows)
    return _RULE.format(figure=title(experiment.metrics[0]), spreads="; ".join(spreads), rows=rows, wrong=rows / 20)


def _spread(board: Board, experiment: Experiment, row: Row) -> Spread | None:
    """How far seeds of models with the scoring function of a row lie apart; None: none of them has two."""
    several = _several(board, experiment, _decoder(experiment, row))
    return _pooled(several.values()) if several else None


def _several(board: Board, experiment: Experiment, decoder: str) -> dict[str, Figure]:
    """The rows of `seeds_of` with a scoring function and more than one seed, by the figure that verdicts go by."""
    found = {}
    for name in experiment.seeds_of:
        home, _, row = name.partition("/")
        if home not in board.experiments:
            raise unknown("experiment", home, board.experiments)
        place = board.experiments[home], board.experiments[home].row(row)
        figure = board.real(*place, experiment.metrics[0], experiment.split)
        if _decoder(*place) == decoder and figure is not None and figure.seeds > 1:
            found[name] = figure
    return found


def _pooled(several: Iterable[Figure]) -> Spread:
    """The deviation about the mean of each, of all together."""
    figures = list(several)
    freedom = sum(one.seeds - 1 for one in figures)
    return Spread(math.sqrt(sum((one.seeds - 1) * one.sd**2 for one in figures) / freedom), freedom)


def _decoder(experiment: Experiment, row: Row) -> str:
    return str(chosen(*at_home(experiment, row))["decoder.name"])


def small(value: float) -> str:
    """A difference, which may be too small for the digits that figures have."""
    return ("+" if value >= 0 else "−") + digits(abs(value))


def digits(value: float) -> str:
    """One without a sign."""
    return f"{value:.4f}".removeprefix("0")


NAME = "fidelity"  # of the experiment, and of the page
BEGIN, END = "<!-- compgcn report --all -->\n", "<!-- end of compgcn report --all -->"
_BLOCK = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
_CELL = re.compile(r"(<!-- measured: ([a-z0-9., -]+?) -->)[^|\n]*")  # of a table, up to its end

PATIENCE = (3, 5, 10, 25, 100)
# Rows that show what ties and stopping do: the model of the reference, where it trains for longer and is evaluated more
# often, and those of the paper's headline and of its own loss.
WATCHED = (
    ("encoders", "conve-compgcn-corr"),
    ("link-prediction", "fb15k-237-compgcn"),
    ("encoders", "conve-compgcn-corr-bce"),
    ("link-prediction", "wn18rr-compgcn"),
)
_RULES = ("optimistic", "realistic", "pessimistic")


class Stop(NamedTuple):
    """Where training would have ended: the epoch, None if nothing ended it, and the best figure until then."""

    epoch: int | None
    best: float


def filled(text: str, board: Board) -> str:
    """The page with its measured parts made anew: the cells that name rows, and the block of tables."""
    if len(_BLOCK.findall(text)) != 1:
        raise InputError(f"the page {NAME}.md has no place for tables; give it the lines '{BEGIN.strip()}' and '{END}'")
    experiment = board.experiments[NAME]

    def cell(match: re.Match[str]) -> str:
        rows = [experiment.row(name.strip()) for name in match[2].split(",")]
        return f"{match[1]} {'; '.join(_price(board, experiment, row, len(rows) > 1) for row in rows)} "

    return _BLOCK.sub(lambda _: f"{BEGIN}\n{measured(board)}\n{END}", _CELL.sub(cell, text))


def _price(board: Board, experiment: Experiment, row: Row, named: bool) -> str:
    """The difference of a row to its control, and what it comes to."""
    found, words = difference(board, experiment, row, experiment.metrics[0]), worth(board, experiment, row)
    parts = [part for part in ("" if found is None else small(found.gap), words) if part]
    return f"{row.label}: {', '.join(parts)}" if named else ", ".join(parts)


def measured(board: Board) -> str:
    """All tables, as Markdown."""
    experiment = board.experiments[NAME]
    compared = [row for row in experiment.rows if row.control is not None]
    known = sum(board.real(experiment, row, experiment.metrics[0]) is not None for row in compared)
    run = f"All {known} were run." if known == len(compared) else f"{known} of {len(compared)} were run so far."
    parts: list[str | Table] = ["## The rows", f"{run} {rule(board, experiment)}"]
    for table in difference_tables(board, experiment):
        parts += [f"### {table.title}", table]
    parts += ["## Ties", *_ties(board), "## Stopping", *_stopping(board)]
    return markdown(parts)


def _watched(board: Board) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Name, state and results of each row that is watched; no results if they are of other settings than the row's."""
    found = []
    for name, row in WATCHED:
        if name not in board.experiments:
            continue
        home, own = at_home(board.experiments[name], board.experiments[name].row(row))
        reached = board.ours(home, own, "mrr")
        state = NOT_RUN if reached is None else reached.state
        found.append((f"`{home.name}/{own.name}`", state, [] if state else board.results(home, own)))
    return found


def _ties(board: Board) -> list[str | Table]:
    """The MRR of test by the three rules, means over seeds."""
    lines = []
    for name, state, results in _watched(board):
        cells = [MISSING] * (len(_RULES) + 1)
        if results:
            reports = [result["metrics"]["test"] for result in results]
            rules = [[(report if one == "realistic" else report[one])["mrr"] for report in reports] for one in _RULES]
            widest = max(map(_apart, results))
            cells = [f"{statistics.fmean(values):.5f}".lstrip("0") for values in rules]
            cells.append(f"{widest:.0e}" if widest else "0")
        lines.append([name, ", ".join(str(result["seed"]) for result in results) or state, *cells])
    header = ("row", "seeds", *(f"{one}, MRR" for one in _RULES), "furthest apart")
    text = (
        "MRR of test with every tie taken for the better, for its mean and for the worse, the mean over seeds; and how "
        "far the first and the last are apart in the seed where that is most, to the six digits that results have. "
        "Ranks here are of logits. The released code sorts sigmoids, which are the same, 1, for all logits above 17 in "
        "float32; what ties that makes cannot be told from results."
    )
    return [text, Table("", header, lines), _widest(board)]


def _widest(board: Board) -> str:
    """The row, of all that were run, in which ties matter most."""
    apart = {
        f"`{experiment.name}/{row.name}`": max(_apart(result) for result in board.results(experiment, row))
        for experiment in board.experiments.values()
        for row in experiment.rows
        if row.same_as is None and board.real(experiment, row, "mrr") is not None
    }
    name = max(apart, key=lambda one: apart[one], default=None)
    return "" if name is None else f"Of all {len(apart)} rows of links it is {apart[name]:.0e} at most, in {name}."


def _apart(result: Mapping[str, Any]) -> float:
    """By how much MRR depends on ties."""
    test = result["metrics"]["test"]
    return float(test["optimistic"]["mrr"] - test["pessimistic"]["mrr"])


def stopped(curve: Mapping[str, Sequence[float]], patience: int) -> Stop:
    """Where training stops after so many evaluations without gain, by the validation MRR of a longer training."""
    best, stale = float("-inf"), 0
    for epoch, figure in zip(curve["epoch"], curve["mrr"], strict=True):
        stale = 0 if figure > best else stale + 1
        best = max(best, figure)
        if stale == patience:
            return Stop(int(epoch), best)
    return Stop(None, best)


def _stopping(board: Board) -> list[str | Table]:
    """What each patience would have chosen on the curves there are."""
    lines = []
    for name, state, results in _watched(board):
        lines += [[name, str(one["seed"]), *_stops(one)] for one in results]
        if not results:
            lines.append([name, state, *[MISSING] * (3 + len(PATIENCE))])
    header = ("row", "seed", "evaluations", "every", "best, MRR of valid", *(f"patience {one}" for one in PATIENCE))
    text = (
        "Where training would have stopped after so many evaluations without gain, and what that costs: the validation "
        f"MRR of the weights chosen less that of the best ones. *Never*: it would have gone on to the end; {MISSING}: "
        "there were not more evaluations than that, so that nothing is known."
    )
    return [text, Table("", header, lines)]


def _stops(result: Mapping[str, Any]) -> list[str]:
    curve, training = result["curve"], result["config"]["training"]
    best, epochs = max(curve["mrr"]), training["epochs"]
    cells = [str(len(curve["epoch"])), f"{training['evaluate_every']} epochs", f"{best:.4f}".lstrip("0")]
    for patience in PATIENCE:
        stop = stopped(curve, patience)
        if stop.epoch not in (None, epochs):
            cells.append(f"epoch {stop.epoch} of {epochs}, {small(stop.best - best)}")
        elif curve["epoch"][-1] < epochs:  # a run that its own patience ended says nothing of a greater one
            cells.append("not known")
        else:
            cells.append("never" if len(curve["epoch"]) > patience else MISSING)
    return cells


_LINES = 6  # about so many in one panel
_ANSWERS = 30  # of which a share is drawn; that of fewer is chance

_INTRO = (
    "What the paper reports and what this package reaches, row by row. This page is made from the committed "
    "results by `compgcn report --all`; `compgcn reproduce NAME` trains what has not been run yet. Sources are places "
    "in the paper."
)

_CONVERTED = (
    "{} of the {} results were recorded before `compgcn reproduce` wrote results, and lack parameters, categories and "
    "calibration; their peak memory is that of a process with other rows in it, and is left out."
)


def page(board: Board, experiment: Experiment, level: int = 1, figure: str | None = None) -> list[str | Table]:
    """An experiment as headings, paragraphs and tables."""
    parts: list[str | Table] = [f"{'#' * level} {experiment.title}"]
    about = [f"Source: {placed(experiment.source)}."]
    about += [f"Ranks of the paper: {experiment.ranks}."] if experiment.ranks else []
    about += [experiment.note] if experiment.note else []
    parts.append(" ".join(about))
    found = [result for row in experiment.rows for result in board.results(experiment, row)]
    if any(result.get("smoke") for result in found):
        parts.append("These are trial runs of small models on a small graph, and no results.")
    if figure is not None:
        parts.append(f"![{experiment.title}]({figure})")
    compared = experiment.kind == "differences"
    for table in difference_tables(board, experiment) if compared else tables(board, experiment):
        parts += [f"{'#' * (level + 1)} {table.title}"] if table.title else []
        parts.append(table)
    noted = experiment.kind in ("table", "differences")
    notes = [f"{row.label}: {placed(row.note)}" for row in experiment.rows if row.note and noted]
    parts += [f"- {note}." for note in dict.fromkeys(notes)]
    converted = sum(map(is_converted, found))
    if converted:
        parts.append(_CONVERTED.format(converted, len(found)))
    if compared:
        parts.append(rule(board, experiment))
    if experiment.kind == "table":
        judged = "/" not in experiment.metrics[0] and any(experiment.metrics[0] in row.paper for row in experiment.rows)
        parts += [" ".join([RULE] * judged + [TIES] * bool(experiment.ranks))] if judged or experiment.ranks else []
    return parts


def write_one(board: Board, experiment: Experiment) -> list[Path]:
    """report.md, report.html and, where there is something to draw, figure.svg, in the folder of its results."""
    folder = board.folder / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [folder / "figure.svg"] if draw(board, experiment, folder / "figure.svg") else []
    parts = page(board, experiment, figure="figure.svg" if drawn else None)
    texts = {"report.md": markdown(parts), "report.html": page_html(parts, experiment.title)}
    for name, text in texts.items():
        _write(folder / name, text)
    return [*(folder / name for name in texts), *drawn]


def write_all(board: Board, path: Path) -> list[Path]:
    """Every report, a page with the claims and all tables, and, where it lies beside that, the page of deviations."""
    written = [file for experiment in board.experiments.values() for file in write_one(board, experiment)]
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, whole(board, path.parent))
    prices = path.parent / f"{NAME}.md"
    if prices.is_file() and NAME in board.experiments:
        _write(prices, filled(prices.read_text(encoding="utf-8"), board))
        written.insert(0, prices)
    return [path, *written]


def whole(board: Board, beside: Path) -> str:
    """The page of all experiments; links to figures lead there from the folder `beside`."""
    claims = find_folder() / "claims.toml"
    parts: list[str | Table] = ["# Results", _INTRO]
    if claims.is_file():
        table = claims_table(board, read_claims(claims))
        parts += ["## Claims", f"{CLAIMS} {SHORT}", table]
    for experiment in board.experiments.values():
        if experiment.name == NAME and (beside / f"{NAME}.md").is_file():
            parts += [f"## {experiment.title}", f"On a page of its own: [{NAME}.md]({NAME}.md)."]
            continue
        figure = board.folder / experiment.name / "figure.svg"
        link = Path(os.path.relpath(figure, beside)).as_posix() if figure.is_file() else None
        parts += page(board, experiment, 2, link)
    return markdown(parts)


def _write(path: Path, text: str) -> None:
    replace(path, lambda part: part.write_text(text, encoding="utf-8"))


def draw(board: Board, experiment: Experiment, path: Path) -> bool:
    """Draw an experiment that has results: paper and ours of each row, differences, or lines; whether it was."""
    if experiment.kind == "generated" or importlib.util.find_spec("matplotlib") is None:
        return False
    metric = experiment.metrics[0]
    if experiment.kind == "figure":
        return _draw_lines(board, experiment, path)
    if experiment.kind == "differences":
        return _draw_differences(board, experiment, path)
    rows = []
    for row in experiment.rows:
        ours = board.real(experiment, row, metric)
        rows.append((_label(row), row.paper.get(metric), None if ours is None else (ours.mean, ours.sd)))
    if all(ours is None for _, _, ours in rows):
        return False
    draw_rows(experiment.title, rows, title(metric), *_best(board, experiment), path)
    return True


def _draw_lines(board: Board, experiment: Experiment, path: Path) -> bool:
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for row in experiment.rows:
        change = relative(board, experiment, row)
        if change is not None and row.x is not None:
            lines.setdefault(row.series, []).append((row.x, 100 * change.share, 100 * change.sd))
    if sum(map(len, lines.values())) < 2:
        return False
    labels = (experiment.axis, f"{title(experiment.metrics[0])} relative to {experiment.reference}, %")
    draw_lines(experiment.title, lines, labels, path)
    return True


def _draw_differences(board: Board, experiment: Experiment, path: Path) -> bool:
    metric = experiment.metrics[0]
    found = [(row, difference(board, experiment, row, metric)) for row in experiment.rows]
    rows = [(row.label, one.gap, limit(board, experiment, row)) for row, one in found if one is not None]
    if rows:
        draw_differences(experiment.title, rows, title(metric), path)
    return bool(rows)


def _best(board: Board, experiment: Experiment) -> tuple[Curves, Curves]:
    """Validation curves and calibration of the rows with the highest figures of each group, of their first seed."""
    metric = experiment.metrics[0].rpartition("/")[2]
    scale = 100 if metric == "accuracy" else 1
    groups: dict[str, list[tuple[float, Row]]] = {}
    for row in experiment.rows:
        ours = board.real(experiment, row, experiment.metrics[0])
        if ours is not None and len(board.results(experiment, row)[0]["curve"].get(metric, ())) > 1:
            groups.setdefault(row.group, []).append((ours.mean, row))
    curves: dict[str, Any] = {}
    calibration: dict[str, Any] = {}
    for found in groups.values():
        for _, row in sorted(found, key=lambda pair: -pair[0])[: max(1, _LINES // len(groups))]:
            result = board.results(experiment, row)[0]
            curves[_label(row)] = (result["curve"]["epoch"], [scale * value for value in result["curve"][metric]])
            bins = [one for one in result.get("calibration") or () if one["answers"] >= _ANSWERS]
            if bins:
                calibration[_label(row)] = ([one["probability"] for one in bins], [one["right"] for one in bins])
    return curves, calibration


def _label(row: Row) -> str:
    """A row in a few words."""
    return f"{row.label}, {row.group}" if row.group and row.group not in row.label else row.label
