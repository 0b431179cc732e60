"""Reports: the paper against ours, as tables and text, from the experiments and the results alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compgcn.baselines import BASELINES, FitOnce
from compgcn.data import DATASETS
from compgcn.nn.encoder import PRESETS, Encoder
from compgcn.run.report import MISSING, Table
from reproduction.experiment import Experiment, Row, at_home, control_of, results

_FB15K237 = (237, (100, 200))  # relations, and the dimensions of one layer
_SEEN = ("node embeddings", "directions", "relations", "relation embeddings")


def _methods(experiment: Experiment) -> list[Table]:
    """What every encoder sees and how many parameters its layers have: the paper's two tables, from the presets."""
    order = {
        "shared": "K d²",
        "direction": "K d²",
        "relation": "K |R| d²",
        "basis": "B K d² + B K |R|",
        "block": "K |R| d² / B",
    }
    weights = {"shared": "W", "direction": "W_dir(r)", "relation": "W_r", "basis": "W_r = Σ_b a_rb V_b"}
    weights["block"] = "W_r of B blocks"
    seen, reductions = [], []
    for name, row in PRESETS.items():
        if name == "none":
            continue
        directed = row.filters != "shared" or row.roles
        related = row.filters not in ("shared", "direction") or row.relations != "none"
        vectors = " + |R| d" if row.bases is None else " + B d + B |R|"
        size = order[row.filters] + {"scalars": " + K |R|", "vectors": vectors}.get(row.relations, "")
        encoder = Encoder(1, _FB15K237[0], _FB15K237[1], name, composition=None if row.composition else "corr")
        count = sum(weights.numel() for weights in encoder.parameters()) - _FB15K237[1][0]  # the one node's vector
        marks = ["yes", *("yes" if mark else "" for mark in (directed, related, row.relations == "vectors"))]
        seen.append([f"`{name}`", row.origin, *marks, f"O({size})", f"{count:,}"])
        own = {None: "φ(h_u, h_r)", "copy": "h_u", "mult": "a_r h_u", "add": "h_u + h_r"}
        phi = own.get(row.composition, f"{row.composition}(h_u, h_r)")
        reductions.append([f"`{name}`", row.origin, weights[row.filters], phi])
    header = ("encoder", "method", *_SEEN, "parameters", "in one layer, 100 → 200, of FB15k-237")
    return [
        Table("What they see", header, seen),
        Table("As cases of one update", ("encoder", "method", "weights", "message"), reductions),
    ]


def _datasets(experiment: Experiment) -> list[Table]:
    """The sizes of the data sets, the paper's beside those of the registry, which all that is loaded is held to.

    Of a data set that was never loaded, whose content nobody knows therefore, the registry has what others say.
    """
    lines = []
    for row in experiment.rows:
        known = DATASETS[row.name].statistics
        graphs = known.get("graphs", 1)
        entities, edges = known.get("entities", known.get("nodes", 0)), known.get("triples", known.get("edges"))
        edges = sum(known.get(part, 0) for part in ("train", "valid", "test")) if edges is None else edges
        found = {"graphs": graphs, "entities": entities / graphs, "edges": edges / graphs}
        found |= {key: known[key] for key in ("relations", "classes") if key in known}
        if not DATASETS[row.name].canonical:
            found = {}
        cells = [row.label]
        for metric in experiment.metrics:
            pair = (row.paper.get(metric), found.get(metric))
            cells.append(" / ".join(MISSING if x is None else f"{x:,.1f}".removesuffix(".0") for x in pair))
        lines.append([*cells, row.note])
    return [Table("", ("data set", *(f"{metric}, paper / ours" for metric in experiment.metrics), ""), lines)]


GENERATED: dict[str, Callable[[Experiment], list[Table]]] = {"methods": _methods, "datasets": _datasets}


LOWER = ("mr",)  # figures that are better when lower
TOLERANCE = 0.01  # of the paper's figure, within which ours counts as the same
ROOM = 0.02  # of it, beyond which no spread of ours makes it the same
NOT_RUN = "not run yet"
COSTS = ("parameters", "epochs", "seconds", "peak MiB", "seeds")

RULE = (
    f"*Reproduced* means within {100 * TOLERANCE:.0f} % of the paper's figure, twice the standard error of our mean "
    "over seeds, or the standard error of the paper's (its ±, over the root of the number of folds where it is one "
    f"over folds), whichever is widest, but never further than {100 * ROOM:.0f} % or that error of the paper's; "
    "*undecided* is further away than that, yet within twice our standard error, or of one seed, whose error nobody "
    f"knows, within {100 * ROOM:.0f} %; *above* and *below* are outside of all of it."
)
TIES = "Ranks of ours are realistic: a tie counts as its mean."


class Figure(NamedTuple):
    """What a row reached: the mean over seeds, the standard deviation, how many seeds there are, and what they are.

    The state is "" of results of the row's present settings; anything else is no result of the row.
    """

    mean: float
    sd: float
    seeds: int
    state: str = ""

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 of a single seed, of which it is not known."""
        return self.sd / math.sqrt(self.seeds)


class Board:
    """All results of a folder, read once."""

    def __init__(self, folder: Path, experiments: Mapping[str, Experiment]) -> None:
        self.folder, self.experiments = folder, experiments
        self._kept: dict[tuple[str, str], tuple[str, list[dict[str, Any]]]] = {}

    def _found(self, experiment: Experiment, row: Row) -> tuple[str, list[dict[str, Any]]]:
        key = (experiment.name, row.name)
        if key not in self._kept:
            self._kept[key] = results(self.folder, experiment, row)
        return self._kept[key]

    def results(self, experiment: Experiment, row: Row) -> list[dict[str, Any]]:
        """Those of a row, by seed."""
        return self._found(experiment, row)[1]

    def ours(self, experiment: Experiment, row: Row, metric: str, split: str | None = None) -> Figure | None:
        """What the row reached here, if it was run; in whatever state, which is to be shown."""
        state, runs = self._found(experiment, row)
        values = [read(result, split or experiment.split, metric) for result in runs]
        found = [value for value in values if value is not None]
        if not found:
            return None
        return Figure(statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else 0.0, len(found), state)

    def real(self, experiment: Experiment, row: Row, metric: str, split: str | None = None) -> Figure | None:
        """The same of results of the row's present settings alone: what is concluded from."""
        found = self.ours(experiment, row, metric, split)
        return None if found is None or found.state else found

    def by_seed(self, experiment: Experiment, row: Row, metric: str) -> dict[int, float]:
        """The same, seed by seed."""
        state, runs = self._found(experiment, row)
        values = {int(result["seed"]): read(result, experiment.split, metric) for result in runs if not state}
        return {seed: value for seed, value in values.items() if value is not None}


def read(result: Mapping[str, Any], split: str, metric: str) -> float | None:
    """A figure of a result by its name, such as "mrr" or "category/1-1/head/mrr"; an accuracy in %."""
    *parts, last = metric.split("/")
    tree = result["metrics"].get(split, {})
    if parts:
        tree = result.get(f"by_{parts[0]}", {})
        for part in parts[1:]:
            tree = tree.get(part, {})
    value = tree.get(last)
    return None if value is None else 100 * value if last == "accuracy" else float(value)


def number(value: float, metric: str) -> str:
    """A figure as the paper writes it."""
    last = metric.rpartition("/")[2]
    if last == "mr":
        return f"{value:,.0f}"
    return f"{value:.1f}" if last == "accuracy" else f"{value:.3f}".replace("0.", ".", 1)


def shown(figure: Figure | None, metric: str) -> str:
    """Mean ± standard deviation."""
    if figure is None:
        return MISSING
    spread = number(figure.sd, metric)
    if figure.sd and not spread.strip(".0"):  # seeds that lie so close together are still not the same
        spread = f"{figure.sd:.4f}".removeprefix("0")
    return number(figure.mean, metric) + (f" ± {spread} (seeds)" if figure.seeds > 1 else "")


def said(experiment: Experiment, row: Row, metric: str) -> str:
    """The paper's figure with its ±, and what that is over."""
    if metric not in row.paper:
        return MISSING
    over = "folds" if experiment.folds > 1 else "seeds"
    spread = f" ± {number(row.spread[metric], metric)} ({over})" if metric in row.spread else ""
    return number(row.paper[metric], metric) + spread


def without(row: Row) -> str:
    """What is said in place of a result."""
    return f"not run: {row.missing}" if row.missing else NOT_RUN


def verdict(experiment: Experiment, row: Row, metric: str, ours: Figure | None) -> str:
    """How ours stands to the paper's figure."""
    home = at_home(experiment, row)[1]
    if ours is None:
        return without(home) if home.settings is not None else "quoted"
    if ours.state:
        return ours.state
    if metric not in row.paper:
        return ""
    found = _judged(experiment, row, metric, ours)
    return found if ours.seeds >= experiment.seeds else f"{found} ({ours.seeds} of {experiment.seeds} seeds)"


def _judged(experiment: Experiment, row: Row, metric: str, ours: Figure) -> str:
    paper = row.paper[metric]
    own = row.spread.get(metric, 0.0) / math.sqrt(experiment.folds)
    same = max(TOLERANCE * abs(paper), own, min(2 * ours.error, ROOM * abs(paper)))
    above = paper - ours.mean if metric.rpartition("/")[2] in LOWER else ours.mean - paper
    if abs(above) <= same:
        return "reproduced"
    open_to = 2 * ours.error if ours.seeds > 1 else ROOM * abs(paper)  # of one seed nobody knows how far others lie
    return "undecided" if abs(above) <= open_to else "above" if above > 0 else "below"


# Tables


def tables(board: Board, experiment: Experiment) -> list[Table]:
    """The tables of an experiment."""
    if experiment.kind == "generated":
        return GENERATED[experiment.name](experiment)
    if experiment.kind == "figure":
        return [_points(board, experiment)]
    if "/" in experiment.metrics[0]:
        return [_transposed(board, experiment)]
    groups = list(dict.fromkeys(row.group for row in experiment.rows))
    parts = [(group, [row for row in experiment.rows if row.group == group]) for group in groups]
    made = [_compared(board, experiment, group, rows) for group, rows in parts]
    if len(experiment.metrics) > 1:
        made += [_all_figures(board, experiment, group, rows) for group, rows in parts]
    return made


def _compared(board: Board, experiment: Experiment, group: str, rows: Sequence[Row]) -> Table:
    """The figure that verdicts go by, with what it took; beside an encoder the same decoder without one."""
    metric = experiment.metrics[0]
    controls = any(control_of(experiment, row) for row in rows)
    beside = ("without encoder",) if controls else ()
    header = ("model", f"paper, {title(metric)}", "ours", "difference", "verdict", *beside, *COSTS)
    lines = []
    for row in rows:
        ours, paper = board.ours(experiment, row, metric), row.paper.get(metric)
        difference = MISSING
        if ours is not None and not ours.state and paper is not None:
            difference = signed(ours.mean - paper, metric)
        cells = [row.label, said(experiment, row, metric), shown(ours, metric)]
        cells += [difference, verdict(experiment, row, metric, ours)]
        if controls:
            cells.append(_without_encoder(board, experiment, row, metric))
        lines.append([*cells, *costs(board.results(experiment, row))])
    return Table(group, header, lines)


_FIRST = {"epochs": "{} epochs", "loss": "{}"}  # what is always said of a control that has it otherwise
_NAMED = 1  # more settings than that are not named one by one


def _without_encoder(board: Board, experiment: Experiment, row: Row, metric: str) -> str:
    """What the control of a row reached, and in which ways it was trained otherwise."""
    control = control_of(experiment, row)
    if control is None:
        return MISSING
    found = shown(board.real(*control, metric), metric)
    mine, theirs = (board.results(*one)[:1] for one in ((experiment, row), control))
    if found == MISSING or not mine or not theirs:
        return found
    words = _otherwise(*(one[0]["config"] for one in (mine, theirs)))
    return f"{found} ({', '.join(words)})" if words else found


def _otherwise(config: Mapping[str, Any], control: Mapping[str, Any]) -> list[str]:
    """In which ways a control was trained otherwise; many that cannot be said in a word each are another recipe."""
    ours, other = ({**one["training"], **one["decoder"]} for one in (config, control))
    changed = [name for name in ours if ours[name] != other.get(name) and name not in ("evaluate_every", "patience")]
    first = [form.format(other[name]) for name, form in _FIRST.items() if name in changed]
    rest = [f"{name.replace('_', ' ')} {other.get(name)}" for name in changed if name not in _FIRST]
    wide = [f"{_width(control):,} dimensions"] * (_width(config) != _width(control))
    return [*wide, *first, *(rest if len(rest) <= _NAMED else ["another recipe"])]


def _width(config: Mapping[str, Any]) -> int:
    """The dimension of the vectors that are scored."""
    encoder = config["encoder"]
    return int(encoder.get("residual") or encoder["dims"][-1])


def is_converted(result: Mapping[str, Any]) -> bool:
    """Whether a result was recorded before results held all that they hold now."""
    return result.get("parameters") is None


def _places(environments: Sequence[Mapping[str, Any]]) -> str:
    """Where a row was trained, and beside how many others at most, whose use of the device its seconds include."""
    most: dict[str, int] = {}
    for one in environments:
        most[str(one["device"])] = max(one.get("beside") or 0, most.get(str(one["device"]), 0))
    return " / ".join(f"{device}, beside up to {beside} more" if beside else device for device, beside in most.items())


def costs(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Parameters, epochs at most, seconds and peak memory, of the mean seed, and which seeds."""
    if not found:
        return [MISSING] * len(COSTS)
    environments = [result["environment"] for result in found]
    baseline = BASELINES.get(found[0]["config"].get("classifier", {}).get("baseline") or "")
    fitted = baseline is not None and isinstance(baseline.how, FitOnce)
    size, epochs = found[0].get("parameters"), found[0]["config"]["training"]["epochs"]
    seconds = statistics.fmean(one["seconds"] for one in environments)
    peaks = [one["environment"]["peak_memory_mib"] for one in found if not is_converted(one)]
    known = [peak for peak in peaks if peak is not None]  # it is not where rows were trained in one process
    seeds = ", ".join(str(result["seed"]) for result in found)
    trained = [MISSING, MISSING] if fitted else [f"{size:,}" if size else MISSING, f"{epochs:,}"]
    return [*trained, f"{seconds:,.0f} ({_places(environments)})", f"{max(known):,}" if known else MISSING, seeds]


def _all_figures(board: Board, experiment: Experiment, group: str, rows: Sequence[Row]) -> Table:
    """Every figure, paper / ours."""
    lines = []
    for row in rows:
        cells = [row.label]
        for metric in experiment.metrics:
            paper = number(row.paper[metric], metric) if metric in row.paper else MISSING
            paper += f" or {number(row.also[metric], metric)}" if metric in row.also else ""
            cells.append(f"{paper} / {shown(board.ours(experiment, row, metric), metric)}")
        lines.append([*cells, _ties(board.results(experiment, row), experiment.split)])
    header = ("model", *(f"{title(metric)}, paper / ours" for metric in experiment.metrics), "MRR by ties")
    return Table(f"{group}, every figure" if group else "Every figure", header, lines)


def _ties(found: Sequence[Mapping[str, Any]], split: str) -> str:
    """The MRR if every tie is taken for the worse, and for the better; the means over seeds."""
    if not found:
        return MISSING
    reports = [result["metrics"][split] for result in found]
    means = (statistics.fmean(one[ties]["mrr"] for one in reports) for ties in ("pessimistic", "optimistic"))
    return " to ".join(f"{mean:.5f}".lstrip("0") for mean in means)


def _transposed(board: Board, experiment: Experiment) -> Table:
    """A line for each figure, paper / ours of each model."""
    lines = []
    for metric in experiment.metrics:
        cells = [title(metric)]
        for row in experiment.rows:
            paper = number(row.paper[metric], metric) if metric in row.paper else MISSING
            cells.append(f"{paper} / {shown(board.ours(experiment, row, metric), metric)}")
        lines.append(cells)
    return Table("", ("figure, paper / ours", *(row.label for row in experiment.rows)), lines)


def _points(board: Board, experiment: Experiment) -> Table:
    """A line for each point of a figure, and its change relative to what the figure compares with."""
    metric, lines = experiment.metrics[0], []
    for row in experiment.rows:
        ours = board.ours(experiment, row, metric)
        change = relative(board, experiment, row)
        cells = [row.label, shown(ours, metric), MISSING if change is None else f"{100 * change.share:+.1f} %"]
        lines.append([*cells, NOT_RUN if ours is None else ours.state, *costs(board.results(experiment, row))])
    header = ("model", f"ours, {title(metric)}", f"relative to {experiment.reference}", "")
    return Table("", (*header, *COSTS), lines)


class Change(NamedTuple):
    """How far a point of a figure lies from its reference, as a share, and its standard deviation over seeds."""

    share: float
    sd: float


def relative(board: Board, experiment: Experiment, row: Row) -> Change | None:
    """The change from the reference of a figure: a row, or the series of that name at the same place."""
    metric, reference = experiment.metrics[0], experiment.reference
    others = [one for one in experiment.rows if one.name == reference or (one.series, one.x) == (reference, row.x)]
    ours, base = (board.real(experiment, one, metric) for one in (row, others[0]))
    if ours is None or base is None or not base.mean:
        return None
    return Change(ours.mean / base.mean - 1, ours.sd / base.mean)


def title(metric: str) -> str:
    """The name of a figure, for a header."""
    *parts, last = metric.split("/")
    short = last.upper().replace("HITS@", "H@") if last != "accuracy" else "accuracy, %"
    return " ".join([*parts[1:], short])


def signed(value: float, metric: str) -> str:
    return ("+" if value >= 0 else "−") + number(abs(value), metric)


# All tables in one


def summary(board: Board) -> Table:
    """Every row of the tables that was run, in one."""
    lines = []
    for experiment in board.experiments.values():
        for row in experiment.rows if experiment.kind == "table" and "/" not in experiment.metrics[0] else ():
            metric = experiment.metrics[0]
            ours = board.real(experiment, row, metric)
            if ours is None or row.same_as is not None:
                continue
            data = DATASETS[board.results(experiment, row)[0]["config"]["data"]["source"]].name
            cells = [experiment.title, f"`{data}`", row.label, title(metric)]
            cells += [said(experiment, row, metric), shown(ours, metric)]
            lines.append([*cells, verdict(experiment, row, metric, ours), *costs(board.results(experiment, row))[1:]])
    return Table("", ("table", "data", "model", "figure", "paper", "ours", "verdict", *COSTS[1:]), lines)
