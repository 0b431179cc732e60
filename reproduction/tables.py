"""Tables of an experiment: the paper's numbers beside ours, with a verdict and the costs of each row."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compgcn.baselines import BASELINES, FitOnce
from compgcn.data import DATASETS
from compgcn.nn.encoder import PRESETS, Encoder
from compgcn.run.report import MISSING, Part, Table
from reproduction.experiment import Experiment, Row, at_home, control_of
from reproduction.training import results

LOWER = ("mr", "parameters")  # metrics that are better when lower
TOLERANCE = 0.01  # share of the paper's number within which ours counts as the same
ROOM = 0.02  # share beyond which no spread over our seeds makes it the same
NOT_RUN = "not run yet"
_TITLES = {
    "accuracy": "accuracy, %",
    "accuracy_each_fold": "accuracy by the best epoch of each fold, %",
    "parameters": "parameters",
}
COSTS = ("parameters", "epochs", "seconds", "peak MiB", "seeds")

RULE = (
    f"*Reproduced*: our mean is within {100 * TOLERANCE:.0f} % of the paper's number, within twice the standard error "
    "of our mean over seeds, within one item of a classification, or within the standard error of the paper's number "
    f"(its ±, divided by the root of the number of folds where it is over folds); beyond {100 * ROOM:.0f} %, only the "
    "item and the paper's error count. *Undecided*: "
    "further away, but within twice our standard error, or for one seed, whose error is unknown, within "
    f"{100 * ROOM:.0f} %. *Above* and *below*: outside all of these."
)
TIES = "Our ranks are realistic: tied candidates share their mean rank."


class Figure(NamedTuple):
    """A metric of a row: mean and standard deviation over seeds, and the difference that one item makes."""

    mean: float
    sd: float
    seeds: int
    item: float = 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean; 0 for a single seed, whose error is unknown."""
        return self.sd / math.sqrt(self.seeds)


class Board:
    """All results of a folder, read once."""

    def __init__(self, folder: Path, experiments: Mapping[str, Experiment]) -> None:
        self.folder, self.experiments = folder, experiments
        self._kept: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def results(self, experiment: Experiment, row: Row) -> list[dict[str, Any]]:
        """Return the results of a row by seed."""
        key = (experiment.name, row.name)
        if key not in self._kept:
            self._kept[key] = results(self.folder, experiment, row)
        return self._kept[key]

    def by_seed(self, experiment: Experiment, row: Row, metric: str, split: str | None = None) -> dict[int, float]:
        """Return a metric of a row for each seed that has it."""
        runs = self.results(experiment, row)
        values = {int(one["seed"]): read(one, split or experiment.split, metric) for one in runs}
        return {seed: value for seed, value in values.items() if value is not None}

    def ours(self, experiment: Experiment, row: Row, metric: str, split: str | None = None) -> Figure | None:
        """Return what a row reached; None if it has no result."""
        found = list(self.by_seed(experiment, row, metric, split).values())
        if not found:
            return None
        (first, *_), last = self.results(experiment, row), metric.rpartition("/")[2]
        counts = first["metrics"].get(split or experiment.split, {}).get("confusion", [])
        item = 100 / sum(map(sum, counts)) if counts and last.startswith("accuracy") else 0.0
        return Figure(statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else 0.0, len(found), item)


def read(result: Mapping[str, Any], split: str, metric: str) -> float | None:
    """Return a metric of a result by its name, such as "mrr" or "category/1-1/head/mrr"; an accuracy in %."""
    *parts, last = metric.split("/")
    tree = result.get(f"by_{parts[0]}", {}) if parts else result["metrics"].get(split, {}) | _count(result)
    for part in parts[1:]:
        tree = tree.get(part, {})
    value = tree.get(last)
    return None if value is None else 100 * value if last.startswith("accuracy") else float(value)


def _count(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the number of parameters; none of a result of the old format."""
    return {"parameters": result["parameters"]} if result.get("parameters") else {}


def number(value: float, metric: str) -> str:
    """Format a number as the paper does."""
    last = metric.rpartition("/")[2]
    if last == "mr":
        return f"{value:,.0f}"
    return f"{value:.1f}" if last.startswith("accuracy") else f"{value:.3f}".replace("0.", ".", 1)


def shown(figure: Figure | None, metric: str) -> str:
    """Format mean ± standard deviation."""
    if figure is None:
        return MISSING
    spread = number(figure.sd, metric)
    if figure.sd and not spread.strip(".0"):  # a small deviation is not zero
        spread = f"{figure.sd:.4f}".removeprefix("0")
    return number(figure.mean, metric) + (f" ± {spread} (seeds)" if figure.seeds > 1 else "")


def stated(experiment: Experiment, row: Row, metric: str) -> str:
    """Format the paper's number with its ±."""
    if metric not in row.paper:
        return MISSING
    over = "folds" if experiment.folds > 1 else "seeds"
    spread = f" ± {number(row.spread[metric], metric)} ({over})" if metric in row.spread else ""
    return number(row.paper[metric], metric) + spread


def title(metric: str) -> str:
    """Return the name of a metric for a header."""
    *parts, last = metric.split("/")
    return " ".join([*parts[1:], _TITLES.get(last) or last.upper().replace("HITS@", "H@")])


def not_run(row: Row) -> str:
    """Say that a row has no result, with the reason if it gives one."""
    return f"not run: {row.missing}" if row.missing else NOT_RUN


def verdict(experiment: Experiment, row: Row, metric: str, ours: Figure | None) -> str:
    """Compare ours with the paper's number by `RULE`."""
    home = at_home(experiment, row)[1]
    if ours is None:
        return not_run(home) if home.settings is not None else "quoted"
    if metric not in row.paper:
        return ""
    paper = row.paper[metric]
    own = row.spread.get(metric, 0.0) / math.sqrt(experiment.folds)
    same = max(TOLERANCE * abs(paper), own, ours.item, min(2 * ours.error, ROOM * abs(paper)))
    possible = 2 * ours.error if ours.seeds > 1 else ROOM * abs(paper)
    above = paper - ours.mean if metric.rpartition("/")[2] in LOWER else ours.mean - paper
    if abs(above) <= same:
        found = "reproduced"
    else:
        found = "undecided" if abs(above) <= possible else "above" if above > 0 else "below"
    return found if ours.seeds >= experiment.seeds else f"{found} ({ours.seeds} of {experiment.seeds} seeds)"


def costs(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the cells of `COSTS`: parameters, epochs, mean seconds, peak memory and the seeds."""
    if not found:
        return [MISSING] * len(COSTS)
    environments = [result["environment"] for result in found]
    baseline = BASELINES.get(found[0]["config"].get("classifier", {}).get("baseline") or "")
    fitted = baseline is not None and isinstance(baseline.how, FitOnce)
    size, epochs = found[0].get("parameters"), found[0]["config"]["training"]["epochs"]
    seconds = statistics.fmean(one["seconds"] for one in environments)
    peaks = [one["environment"]["peak_memory_mib"] for one in found if one.get("parameters") is not None]  # else old
    known = [peak for peak in peaks if peak is not None]  # None: several rows shared a process
    seeds = ", ".join(str(result["seed"]) for result in found)
    trained = [MISSING, MISSING] if fitted else [f"{size:,}" if size else MISSING, f"{epochs:,}"]
    return [*trained, f"{seconds:,.0f} ({_places(environments)})", f"{max(known):,}" if known else MISSING, seeds]


def _places(environments: Sequence[Mapping[str, Any]]) -> str:
    """Name the devices, and the number of rows trained there at the same time, which the seconds include."""
    most: dict[str, int] = {}
    for one in environments:
        most[str(one["device"])] = max(one.get("beside") or 0, most.get(str(one["device"]), 0))
    return " / ".join(f"{device}, with up to {n} other runs" if n else device for device, n in most.items())


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows by group, in the order of the file."""
    return {group: [row for row in rows if row.group == group] for group in dict.fromkeys(row.group for row in rows)}


def tables(board: Board, experiment: Experiment) -> list[Table]:
    """Return the tables of an experiment."""
    if experiment.kind == "generated":
        return _methods() if experiment.name == "methods" else [_datasets(experiment)]
    if experiment.kind == "figure":
        return [_points(board, experiment)]
    if "/" in experiment.metrics[0]:
        rows = experiment.rows
        lines = [[title(one), *(_pair(board, experiment, row, one) for row in rows)] for one in experiment.metrics]
        return [Table("", ("metric, paper / ours", *(row.label for row in rows)), lines)]
    groups = grouped(experiment.rows)
    made = [_compared(board, experiment, group, rows) for group, rows in groups.items()]
    if len(experiment.metrics) > 1:
        made += [_all_metrics(board, experiment, group, rows) for group, rows in groups.items()]
    return made


def _compared(board: Board, experiment: Experiment, group: str, rows: Sequence[Row]) -> Table:
    """Compare rows by the first metric, with their costs and, beside an encoder, the same decoder without one."""
    metric = experiment.metrics[0]
    controls = any(control_of(experiment, row) for row in rows)
    header = ("model", f"paper, {title(metric)}", "ours", "difference", "verdict")
    lines = []
    for row in rows:
        ours, paper = board.ours(experiment, row, metric), row.paper.get(metric)
        difference = MISSING
        if ours is not None and paper is not None:
            gap = ours.mean - paper
            difference = ("+" if gap >= 0 else "−") + number(abs(gap), metric)
        cells = [row.label, stated(experiment, row, metric), shown(ours, metric), difference]
        cells.append(verdict(experiment, row, metric, ours))
        cells += [_without_encoder(board, experiment, row, metric)] if controls else []
        lines.append([*cells, *costs(board.results(experiment, row))])
    return Table(group, (*header, *(("without encoder",) if controls else ()), *COSTS), lines)


def _without_encoder(board: Board, experiment: Experiment, row: Row, metric: str) -> str:
    """Return what the control of a row reached, and how its training differs."""
    control = control_of(experiment, row)
    if control is None:
        return MISSING
    found = shown(board.ours(*control, metric, experiment.split), metric)
    mine, theirs = (board.results(*one)[:1] for one in ((experiment, row), control))
    if found == MISSING or not mine or not theirs:
        return found
    words = _differences(mine[0]["config"], theirs[0]["config"])
    return f"{found} ({', '.join(words)})" if words else found


def _differences(config: Mapping[str, Any], control: Mapping[str, Any]) -> list[str]:
    """Name how the training of a control differs; more than one unnamed setting is "another recipe"."""
    widths = [int(one["encoder"].get("residual") or one["encoder"]["dims"][-1]) for one in (config, control)]
    words = [f"{widths[1]:,} dimensions"] if widths[0] != widths[1] else []
    ours, other = ({**one["training"], **one["decoder"]} for one in (config, control))
    changed = [name for name in ours if ours[name] != other.get(name) and name not in ("evaluate_every", "patience")]
    words += [f"{other['epochs']} epochs"] if "epochs" in changed else []
    words += [str(other["loss"])] if "loss" in changed else []
    rest = [f"{name.replace('_', ' ')} {other.get(name)}" for name in changed if name not in ("epochs", "loss")]
    return [*words, *(rest if len(rest) <= 1 else ["another recipe"])]


def _pair(board: Board, experiment: Experiment, row: Row, metric: str) -> str:
    """Return the paper's number and ours."""
    paper = number(row.paper[metric], metric) if metric in row.paper else MISSING
    paper += f" or {number(row.also[metric], metric)}" if metric in row.also else ""
    return f"{paper} / {shown(board.ours(experiment, row, metric), metric)}"


def _all_metrics(board: Board, experiment: Experiment, group: str, rows: Sequence[Row]) -> Table:
    """Return every metric of every row and, of ranks, the MRR with ties ranked worst and best."""
    lines, ranked = [], "mrr" in experiment.metrics
    for row in rows:
        lines.append([row.label, *(_pair(board, experiment, row, metric) for metric in experiment.metrics)])
        if ranked:
            reports = [result["metrics"][experiment.split] for result in board.results(experiment, row)]
            bounds = [[report[ties]["mrr"] for report in reports] for ties in ("pessimistic", "optimistic")]
            ties = " to ".join(f"{statistics.fmean(one):.5f}".lstrip("0") for one in bounds) if reports else MISSING
            lines[-1].append(ties)
    header = ("model", *(f"{title(metric)}, paper / ours" for metric in experiment.metrics))
    header += ("MRR by ties",) if ranked else ()
    return Table(f"{group}, all metrics" if group else "All metrics", header, lines)


def _points(board: Board, experiment: Experiment) -> Table:
    """Return a line for each point of a figure."""
    metric, lines = experiment.metrics[0], []
    for row in experiment.rows:
        ours, change = board.ours(experiment, row, metric), relative(board, experiment, row)
        cells = [row.label, shown(ours, metric), MISSING if change is None else f"{100 * change[0]:+.1f} %"]
        lines.append([*cells, NOT_RUN if ours is None else "", *costs(board.results(experiment, row))])
    return Table("", ("model", f"ours, {title(metric)}", f"relative to {experiment.reference}", "", *COSTS), lines)


def relative(board: Board, experiment: Experiment, row: Row) -> tuple[float, float] | None:
    """Return the change of a point from the figure's reference as a share, and its standard deviation over seeds."""
    metric, reference = experiment.metrics[0], experiment.reference
    others = [one for one in experiment.rows if one.name == reference or (one.series, one.x) == (reference, row.x)]
    ours, base = (board.ours(experiment, one, metric) for one in (row, others[0]))
    return None if ours is None or base is None else (ours.mean / base.mean - 1, ours.sd / base.mean)


_FB15K237 = (237, (100, 200))  # relations, and the dimensions of one layer
_WEIGHTS = {  # filters of a preset -> order of parameters, and the weight of a message
    "shared": ("K d²", "W"),
    "direction": ("K d²", "W_dir(r)"),
    "relation": ("K |R| d²", "W_r"),
    "basis": ("B K d² + B K |R|", "W_r = Σ_b a_rb V_b"),
    "block": ("K |R| d² / B", "W_r of B blocks"),
}


def _methods() -> list[Table]:
    """Return the paper's two tables of encoders, made from the presets: what each uses, and its message."""
    used, reductions = [], []
    for name, row in PRESETS.items():
        if name == "none":
            continue
        order, weight = _WEIGHTS[row.filters]
        directed = row.filters != "shared" or row.roles
        related = row.filters not in ("shared", "direction") or row.relations != "none"
        vectors = " + |R| d" if row.bases is None else " + B d + B |R|"
        order += {"scalars": " + K |R|", "vectors": vectors}.get(row.relations, "")
        encoder = Encoder(1, *_FB15K237, name, composition=None if row.composition else "corr")
        count = sum(weights.numel() for weights in encoder.parameters()) - _FB15K237[1][0]  # less its one node's vector
        marks = ["yes", *("yes" if mark else "" for mark in (directed, related, row.relations == "vectors"))]
        used.append([f"`{name}`", row.origin, *marks, f"O({order})", f"{count:,}"])
        own = {None: "φ(h_u, h_r)", "copy": "h_u", "mult": "a_r h_u", "add": "h_u + h_r"}
        message = own.get(row.composition, f"{row.composition}(h_u, h_r)")
        reductions.append([f"`{name}`", row.origin, weight, message])
    seen = ("node embeddings", "directions", "relations", "relation embeddings")
    header = ("encoder", "method", *seen, "parameters", "in one layer, 100 → 200, of FB15k-237")
    return [
        Table("Inputs of encoders", header, used),
        Table("Special cases of one update", ("encoder", "method", "weights", "message"), reductions),
    ]


def _datasets(experiment: Experiment) -> Table:
    """Compare the paper's sizes of data sets with the registry's, except those of data never loaded."""
    lines = []
    for row in experiment.rows:
        known = DATASETS[row.name].statistics
        graphs = known.get("graphs", 1)
        entities, edges = known.get("entities", known.get("nodes", 0)), known.get("triples", known.get("edges"))
        edges = sum(known.get(part, 0) for part in ("train", "valid", "test")) if edges is None else edges
        found = {"graphs": graphs, "entities": entities / graphs, "edges": edges / graphs}
        found |= {key: known[key] for key in ("relations", "classes") if key in known}
        found = found if DATASETS[row.name].canonical else {}
        cells = [row.label]
        for metric in experiment.metrics:
            pair = (row.paper.get(metric), found.get(metric))
            cells.append(" / ".join(MISSING if x is None else f"{x:,.1f}".removesuffix(".0") for x in pair))
        lines.append([*cells, row.note])
    return Table("", ("data set", *(f"{metric}, paper / ours" for metric in experiment.metrics), ""), lines)


def markdown(parts: Sequence[Part]) -> str:
    """Return headings, paragraphs and tables as Markdown."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        cells = [[cell.replace("|", "\\|") for cell in line] for line in (part.header, *part.rows)]
        lines = ["| " + " | ".join(line) + " |" for line in cells]
        texts.append("\n".join([lines[0], "|" + "---|" * len(part.header), *lines[1:]]))
    return "\n\n".join(texts) + "\n"
