"""Tables of an experiment: the paper's numbers beside ours, with a verdict and the costs of each row."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compgcn.data import DATASETS
from compgcn.nn.encoder import PRESETS, Encoder
from compgcn.run.report import MISSING, Part, Table
from reproduction.experiment import Experiment, Row, at_home, control_of
from reproduction.training import results

LOWER = ("mr", "parameters")  # metrics that are better when lower
TOLERANCE = 0.01  # share of the paper's number within which ours counts as the same
ROOM = 0.02  # share beyond which no spread over our seeds makes it the same
VISIBLE = 0.0005  # a change of an MRR that its three digits show
_TITLES = {
    "accuracy": "accuracy, %",
    "accuracy_each_fold": "accuracy by the best epoch of each fold, %",
    "parameters": "parameters",
}
COSTS = ("parameters", "epochs", "seconds", "peak MiB", "seeds")


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
    if metric == "parameters":
        return float(result["parameters"])
    tree = result.get(f"by_{parts[0]}", {}) if parts else result["metrics"].get(split, {})
    for part in parts[1:]:
        tree = tree.get(part, {})
    value = tree.get(last)
    return None if value is None else 100 * value if last.startswith("accuracy") else float(value)


def number(value: float, metric: str) -> str:
    """Format a number as the paper does."""
    last = metric.rpartition("/")[2]
    if last in LOWER:
        return f"{value:,.0f}"
    return f"{value:.1f}" if last.startswith("accuracy") else f"{value:.3f}".replace("0.", ".", 1)


def percent(share: float) -> str:
    """Format a relative change with its sign."""
    return f"{round(100 * share, 1) + 0.0:+.1f} %".replace("-", "−")  # + 0.0: no negative zero


def shown(figure: Figure | None, metric: str) -> str:
    """Format mean ± standard deviation."""
    if figure is None:
        return MISSING
    spread = number(figure.sd, metric)
    if figure.sd and not spread.strip(".0"):  # a small deviation is not zero
        spread = f"{figure.sd:.4f}".removeprefix("0")
    return number(figure.mean, metric) + (f" ± {spread}" if figure.seeds > 1 else "")


def stated(row: Row, metric: str) -> str:
    """Format the paper's number with its ±."""
    if metric not in row.paper:
        return MISSING
    spread = f" ± {number(row.spread[metric], metric)}" if metric in row.spread else ""
    return number(row.paper[metric], metric) + spread


def title(metric: str) -> str:
    """Return the name of a metric for a header."""
    *parts, last = metric.split("/")
    return " ".join([*parts[1:], _TITLES.get(last) or last.upper().replace("HITS@", "H@")])


def verdict(experiment: Experiment, row: Row, metric: str, ours: Figure) -> str:
    """Compare ours with the paper's number, if there is one, by the rule in reading.txt."""
    if metric not in row.paper:
        return MISSING
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
    """Return the cells of `COSTS`: parameters, epochs, mean seconds, peak memory and the number of seeds."""
    if not found:
        return [MISSING] * len(COSTS)
    environments = [result["environment"] for result in found]
    size, epochs = found[0]["parameters"], found[0]["config"]["training"]["epochs"]
    trained = [f"{size:,}", f"{epochs:,}"] if size else [MISSING, MISSING]  # a baseline is fitted once
    seconds = statistics.fmean(one["seconds"] for one in environments)
    own = [one["peak_memory_mib"] for one in environments if not one.get("shared_process")]
    peaks = [peak for peak in own if peak is not None]
    peak = f"{max(peaks):,}" if peaks else MISSING
    return [*trained, f"{seconds:,.0f} ({_places(environments)})", peak, str(len(found))]


def _places(environments: Sequence[Mapping[str, Any]]) -> str:
    """Name the devices, and the number of other runs there at the same time."""
    most: dict[str, int] = {}
    for one in environments:
        device = str(one["device"]).replace(" 1 threads", " 1 thread")
        most[device] = max(one.get("beside", 0), most.get(device, 0))
    return " / ".join(f"{device}, +{n}" if n else device for device, n in most.items())


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows by group, in the order of the file."""
    return {group: [row for row in rows if row.group == group] for group in dict.fromkeys(row.group for row in rows)}


def tables(board: Board, experiment: Experiment) -> list[Part]:
    """Return the tables of an experiment, each with the sentences that belong below it."""
    if experiment.kind == "generated":
        return [*_methods()] if experiment.name == "methods" else [_datasets(experiment)]
    if experiment.kind == "figure":
        return [_points(board, experiment)]
    if "/" in experiment.metrics[0]:
        models = experiment.rows
        lines = [[title(one), *(_pair(board, experiment, row, one) for row in models)] for one in experiment.metrics]
        return [Table(("metric, paper / ours", *(row.label for row in models)), lines)]
    made: list[Part] = []
    for group, every in grouped(experiment.rows).items():
        trained = [row for row in every if at_home(experiment, row)[1].settings is not None]
        waiting = [row for row in trained if board.ours(experiment, row, experiment.metrics[0]) is None]
        rows = [row for row in every if row not in waiting]
        papers = any(row.paper for row in rows)
        made += [(_beside_paper if papers else _alone)(board, experiment, group, rows), *_not_run(experiment, waiting)]
        if len(experiment.metrics) > 1 and papers:
            made.append(_other_metrics(board, experiment, group, rows))
        made += _ties(board, experiment, rows)
    return made


def _not_run(experiment: Experiment, rows: Sequence[Row]) -> list[Part]:
    """Name rows without a result in a paragraph, with the paper's numbers and by reason."""
    metric, named = experiment.metrics[0], dict[str, list[str]]()
    for row in rows:
        reason = at_home(experiment, row)[1].missing
        paper = f" (paper {stated(row, metric)})" if metric in row.paper else ""
        named.setdefault(f" ({reason})" if reason else "", []).append(row.label + paper)
    return [" ".join(f"Not run{reason}: {'; '.join(labels)}." for reason, labels in named.items())] if rows else []


def _beside_paper(board: Board, experiment: Experiment, group: str, rows: Sequence[Row]) -> Table:
    """Compare rows by the first metric, with their costs and, beside an encoder, the same decoder without one."""
    metric, lines = experiment.metrics[0], []
    for row in rows:
        ours, difference, judged = board.ours(experiment, row, metric), MISSING, "quoted"
        if ours is not None:
            judged = verdict(experiment, row, metric, ours)
            if metric in row.paper:
                gap = ours.mean - row.paper[metric]
                difference = ("+" if gap >= 0 else "−") + number(abs(gap), metric)
        lines.append([row.label, stated(row, metric), shown(ours, metric), difference, judged])
    header = ("model", f"paper, {title(metric)}", "ours", "difference", "verdict")
    return _with_costs(board, experiment, rows, Table(header, lines, group))


def _alone(board: Board, experiment: Experiment, group: str, rows: Sequence[Row]) -> Table:
    """Return every metric of rows without numbers of a paper."""
    lines = [[row.label, *(shown(board.ours(experiment, row, one), one) for one in experiment.metrics)] for row in rows]
    return _with_costs(board, experiment, rows, Table(("model", *map(title, experiment.metrics)), lines, group))


def _with_costs(board: Board, experiment: Experiment, rows: Sequence[Row], table: Table) -> Table:
    """Add the costs of rows and, beside an encoder, the same decoder without one."""
    controls = any(control_of(experiment, row) for row in rows)
    for row, line in zip(rows, table.rows, strict=True):
        line += [_without_encoder(board, experiment, row)] if controls else []
        line += costs(board.results(experiment, row))
    return table._replace(header=(*table.header, *(("without encoder",) if controls else ()), *COSTS))


def _without_encoder(board: Board, experiment: Experiment, row: Row) -> str:
    """Return what the control of a row reached, and how its training differs."""
    control, metric = control_of(experiment, row), experiment.metrics[0]
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
    same = ("evaluate_every", "patience", "device")
    changed = [name for name in ours if name in other and ours[name] != other[name] and name not in same]
    words += [f"{other['epochs']} epochs"] if "epochs" in changed else []
    words += [str(other["loss"])] if "loss" in changed else []
    rest = [f"{name.replace('_', ' ')} {other[name]}" for name in changed if name not in ("epochs", "loss")]
    return [*words, *(rest if len(rest) <= 1 else ["another recipe"])]


def _pair(board: Board, experiment: Experiment, row: Row, metric: str) -> str:
    """Return the paper's number and ours."""
    paper = number(row.paper[metric], metric) if metric in row.paper else MISSING
    paper += f" or {number(row.also[metric], metric)}" if metric in row.also else ""
    return f"{paper} / {shown(board.ours(experiment, row, metric), metric)}"


def _other_metrics(board: Board, experiment: Experiment, group: str, rows: Sequence[Row]) -> Table:
    """Return the metrics after the first, the paper's beside ours."""
    others = experiment.metrics[1:]
    lines = [[row.label, *(_pair(board, experiment, row, metric) for metric in others)] for row in rows]
    header = ("model", *(f"{title(metric)}, paper / ours" for metric in others))
    return Table(header, lines, f"{group}, other metrics" if group else "Other metrics")


def _ties(board: Board, experiment: Experiment, rows: Sequence[Row]) -> list[Part]:
    """Name the rows whose MRR ties move visibly."""
    moved = []
    for row in rows if "mrr" in experiment.metrics else ():
        reports = [result["metrics"][experiment.split] for result in board.results(experiment, row)]
        if reports:
            low, high = (
                statistics.fmean(one[ties]["mrr"] for one in reports) for ties in ("pessimistic", "optimistic")
            )
            moved += [f"{row.label} {low:.5f} to {high:.5f}".replace(" 0.", " .")] if high - low >= VISIBLE else []
    return [f"MRR with all ties ranked worst and best: {'; '.join(moved)}."] if moved else []


def _points(board: Board, experiment: Experiment) -> Table:
    """Return a line for each point of a figure."""
    metric, lines = experiment.metrics[0], []
    for row in experiment.rows:
        ours, change = board.ours(experiment, row, metric), relative(board, experiment, row)
        moved = MISSING if change is None else percent(change[0])
        lines.append([row.label, shown(ours, metric), moved, *costs(board.results(experiment, row))])
    return Table(("model", f"ours, {title(metric)}", f"relative to {experiment.reference}", *COSTS), lines)


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
        Table(header, used, "Inputs of encoders"),
        Table(("encoder", "method", "weights", "message"), reductions, "Special cases of one update"),
    ]


def _datasets(experiment: Experiment) -> Table:
    """Compare the paper's sizes of data sets with the registry's, except those of data never loaded."""
    lines = []
    for row in experiment.rows:
        known = DATASETS[row.name].statistics
        graphs = known.get("graphs", 1)
        entities, edges = known.get("entities") or known["nodes"], known.get("triples") or known.get("edges")
        edges = edges or sum(known[part] for part in ("train", "valid", "test"))
        found = {"graphs": graphs, "entities": entities / graphs, "edges": edges / graphs}
        found |= {key: known[key] for key in ("relations", "classes") if key in known}
        found = found if DATASETS[row.name].canonical else {}
        cells = [row.label]
        for metric in experiment.metrics:
            pair = (row.paper.get(metric), found.get(metric))
            cells.append(" / ".join(MISSING if x is None else f"{x:,.1f}".removesuffix(".0") for x in pair))
        lines.append([*cells, row.note])
    return Table(("data set", *(f"{metric}, paper / ours" for metric in experiment.metrics), ""), lines)


def markdown(parts: Sequence[Part]) -> str:
    """Return headings, paragraphs, items of lists and tables as Markdown."""
    text, after_item = "", False
    for part in parts:
        item = isinstance(part, str) and part.startswith("- ")
        text += ("\n" if item and after_item else "\n\n") + (part if isinstance(part, str) else _pipes(part))
        after_item = item
    return text.strip() + "\n"


def _pipes(table: Table) -> str:
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (table.header, *table.rows)]
    lines = ["| " + " | ".join(line) + " |" for line in cells]
    return "\n".join([lines[0], "|" + "---|" * len(table.header), *lines[1:]])
