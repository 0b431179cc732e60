"""The generated tables of README.md and docs/, rewritten from the committed results and benchmarks.

A block stands between the lines `<!-- python -m reproduction tables: NAME -->` and `<!-- end -->`. A cell of a table
that starts with `<!-- measured: ROW, ROW -->` gets the differences of these rows of the experiment `fidelity`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import mean
from typing import Any

from compgcn.run.plan import OPERATIONS, Outline, Plan, Rates, plan
from compgcn.run.report import MISSING, Table
from compgcn.run.resolve import resolve
from compgcn.shards.link_prediction import SUPPORTED
from reproduction import BENCHMARKS, RESULTS
from reproduction.claims import verdicts
from reproduction.differences import deviations, price
from reproduction.experiment import Row, at_home, chosen, control_of, experiments
from reproduction.large import settings_of, sizes_of
from reproduction.pages import draw_large, draw_speed, stage_of
from reproduction.tables import Board, Figure, costs, markdown, number, shown, stated, title, verdict

MACHINES = ("h200", "cpu")
_BLOCK = re.compile(r"(<!-- python -m reproduction tables: (\S+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_CELL = re.compile(r"(<!-- measured: ([a-z0-9., -]+?) -->)[^|\n]*")  # to the end of a cell


def filled(text: str, board: Board) -> str:
    """Return a page with its generated blocks and cells made anew."""

    def cell(match: re.Match[str]) -> str:
        return f"{match[1]} {price(board, [name.strip() for name in match[2].split(',')])} "

    return _BLOCK.sub(lambda match: match[1] + BLOCKS[match[2]](board), _CELL.sub(cell, text))


def load(name: str) -> Any:
    """Return a committed measurement; None if it is not there."""
    path = BENCHMARKS / f"{name}.json"
    text = path.read_text(encoding="utf-8") if path.is_file() else "null"
    return json.loads(text.replace('"1 CPU cores"', '"1 CPU core"'))


# Accuracy

_CONDITIONAL, _NEW = "conditional", "CompGCN conditioned on the query"
_HEADLINES = (_CONDITIONAL, "link-prediction", "node-classification", "graph-classification")
_COMPGCN = re.compile(r"CompGCN( \(|,|$).*")  # with a composition, a number of layers or a loss
_DATA, _MOST = ("FB15k-237", "WN18RR"), 6  # of the comparison of systems


def accuracy(board: Board) -> str:
    """Return CompGCN's rows of the headline tables, the conditional one first, and the number of claims that hold.

    Among the rows of CompGCN for a data set, the one with the best validation metric stands for it.
    """
    lines = []
    for experiment in (board.experiments[name] for name in _HEADLINES):
        metric, best, groups = experiment.metrics[0], dict[str, tuple[float, Row, Figure]](), dict[str, str]()
        for row in experiment.rows:
            ours, valid = (board.ours(experiment, row, metric, split) for split in (None, "valid"))
            if ours is None or valid is None:
                continue
            data = chosen(*at_home(experiment, row))["data.source"]
            if row.label == _NEW and (control := control_of(experiment, row)) is not None:
                beside = f"without an encoder {shown(board.ours(*control, metric), metric)}"
                cells = [experiment.title, f"`{data}`", title(metric), MISSING]
                lines.append([*cells, shown(ours, metric), beside])
            elif row.same_as is not None or not _COMPGCN.fullmatch(row.label):
                continue
            elif row.group == groups.setdefault(data, row.group):  # the first protocol
                best[data] = max(best.get(data, (0.0, row, ours)), (valid.mean, row, ours), key=itemgetter(0))
        for data, (_, row, ours) in best.items():
            cells = [experiment.title, f"`{data}`", title(metric), stated(row, metric)]
            lines.append([*cells, shown(ours, metric), verdict(experiment, row, metric, ours)])
    found = [ours for _, ours, _ in verdicts(board)]
    yes, no, undecided, more = (sum(one.answer == answer for one in found) for answer in ("yes", "no", "open", "more"))
    below = sum(one.answer == "no" and bool(one.below) for one in found)
    claims = (
        "*Reproduced*: no further from the paper's number than 1 %, one test item, or the error of seeds or folds; "
        "*below*: further below. ± is a standard deviation over seeds, the paper's over folds for graphs. We took "
        f"{len(found)} statements from the paper, and some overlap. Our results support {yes}, contradict {no} and "
        f"leave {undecided} open{f'; in {more} the gain is larger than claimed' if more else ''}. For {below} of the "
        "contradicted ones, the paper's own number for CompGCN would change the answer."
    )
    return markdown([Table(("table", "data", "metric", "paper", "ours", "verdict"), lines), claims])


def choice(board: Board) -> str:
    """Return the systems with the best validation MRR on the first data set: test MRR and seconds on both."""
    found: dict[str, dict[str, tuple[float, str, str]]] = {}
    for experiment in (board.experiments[name] for name in ("systems", "link-prediction", _CONDITIONAL)):
        for row in experiment.rows:
            ours, valid = (board.ours(experiment, row, "mrr", split) for split in ("test", "valid"))
            if ours is not None and valid is not None and row.group in _DATA:
                seconds = costs(board.results(experiment, row))[2]
                found.setdefault(row.label, {})[row.group] = (valid.mean, shown(ours, "mrr"), seconds)
    ranked = sorted((one for one in found.items() if _DATA[0] in one[1]), key=lambda one: -one[1][_DATA[0]][0])
    none = (0.0, MISSING, MISSING)
    lines = [[label, *(cell for group in _DATA for cell in by.get(group, none)[1:])] for label, by in ranked[:_MOST]]
    return markdown([Table(("model", *(name for group in _DATA for name in (f"{group}, MRR", "seconds"))), lines)])


def search(board: Board) -> str:
    """Return what a search on each graph kept, beside the best single models by validation, with their test MRR."""
    lines = []
    for path in sorted((BENCHMARKS / "search").glob("*.json")):
        report, alone = json.loads(path.read_text(encoding="utf-8")), dict[str, tuple[float, str]]()
        for experiment in (board.experiments[name] for name in ("defaults", "systems", *_HEADLINES[:2])):
            for row in experiment.rows:
                rows = board.results(experiment, row)
                found = [one for one in rows if one["config"]["data"]["source"] == report["data"]]
                if found and row.same_as is None and not row.group.startswith("Ablations"):
                    test, valid = (mean(one["metrics"][split]["mrr"] for one in found) for split in ("test", "valid"))
                    alone[row.label] = valid, f"{row.label} {_short(test)}"
        beside = "; ".join(text for _, text in sorted(alone.values(), reverse=True)[:3])
        cells = [f"`{report['data']}`", report["device"], f"{report['seconds']:,.0f}", report["winner"]]
        lines.append([*cells, _short(report["test"]), beside])
    names = ("data", "on", "seconds", "chosen on validation", "its test MRR", "the best single models by validation")
    return markdown([Table(names, lines)])


# Speed


def _cost(cost: Mapping[str, Any] | None, epoch: bool = False) -> str:
    """Format time and memory, with the seconds of an epoch between them if asked."""
    if cost is None:
        return MISSING
    ms = cost["ms"]
    parts = [f"{ms:.2f} ms" if ms < 10 else f"{ms:,.0f} ms" if ms < 10_000 else f"{ms / 1000:,.1f} s"]
    parts += [f"{cost['seconds_per_epoch']:,.2f} s"] if epoch else []
    parts += [] if cost.get("mib") is None else [f"{cost['mib']:,.0f} MiB"]
    return ", ".join(parts)


def benchmarks(_: Board, short: bool = False) -> str:
    """Return our times beside the per-edge definition's and PyKEEN's, on every machine."""
    names = ("measured", "on", "ours", "per edge", "faster", "PyKEEN, DistMult, d 200")
    lines = [line for machine in MACHINES for line in _lines_of(machine, short)]
    return markdown([Table(names, lines)])


def _lines_of(machine: str, short: bool) -> Iterator[list[str]]:
    def line(
        what: str, ours: Mapping[str, Any], theirs: Mapping[str, Any] | None = None, peer: str = MISSING
    ) -> list[str]:
        faster = MISSING if theirs is None else f"{theirs['ms'] / ours['ms']:,.0f}×"
        return [what, report["environment"]["device"], _cost(ours), _cost(theirs), faster, peer]

    def steps(what: str, found: Mapping[str, Any], how: str) -> Iterator[list[str]]:
        eager = found.get("ours, eager", found["ours"])
        yield line(f"training step, {what}", eager, found.get("per edge"), _cost(found.get("PyKEEN")))
        if "ours, eager" in found:
            yield line(f"the same, {how} as one CUDA graph", found["ours"])

    for data in ("fb15k-237",) if short else ("fb15k-237", "wn18rr"):
        if report := load(f"{machine}/step-{data}"):
            decoder, encoder = report["config"]["decoder"], report["config"]["encoder"]
            model = f"{decoder['name']} + {encoder['name']} ({encoder['composition']})"
            yield from steps(f"{data}, {model}, batch {report['batch']}", report["steps"], "compiled and recorded")
    if report := load(f"{machine}/conditional"):
        for row in report["rows"][: 1 if short else None]:
            ours, theirs, queries = row["steps"]["ours"], row["per_edge"], row["batch"]
            model = f"{report['data']}, conditional ({row['settings']['encoder.statistics']})"
            cells = line(f"training step, {model}, {queries} queries", ours, theirs if "ms" in theirs else None)
            if theirs.get("queries", queries) < queries:
                times = theirs["ms"] / ours["ms"] * queries / theirs["queries"]
                cells[3:5] = [f"{cells[3]} for {theirs['queries']} queries", f"{times:,.0f}×, a query"]
            yield cells
            if not short:
                yield line(f"filtered ranks, {model}, {row['ranks']['number']:,} ranks", {"ms": row["ranks"]["ms"]})
    if not short and (report := load(f"{machine}/costs-fb15k-237")):
        how = "compiled and recorded" if report["compiled"] else "recorded"
        for row in report["rows"]:
            if {"PyKEEN", "ours"} <= row["steps"].keys():
                yield from steps(f"{report['data']}, {row['label']}, batch {row['batch']}", row["steps"], how)
    if report := load(f"{machine}/kernels"):
        layer = "layer, forward and backward"
        for row in [] if short else report["layer"]:
            what = f"{layer}, {report['data']}, {row['composition']}, 100 → 200"
            yield line(what, row["ours"], row["per_edge"])
        last = report["scaling"][-1]
        yield line(f"{layer}, {last['messages']:,} messages, mult, 100 → 100", last["ours"], last["per_edge"])
    if not short and (report := load(f"{machine}/evaluate")):
        what = f"filtered test evaluation, {report['data']}, {report['ranks']:,} ranks"
        yield line(what, {"ms": report["ours"]["ms"]})


def step_costs(_: Board) -> str:
    """Return the cost of every decoder with every encoder: a step, an epoch of steps and the peak memory."""
    report, lines = load(f"{MACHINES[0]}/costs-fb15k-237"), []
    names = {"ours": "ours, recorded", "ours, eager": "ours, eager", "per edge": "per edge", "PyKEEN": "PyKEEN"}
    for row in report["rows"]:
        cells = [row["label"], f"{row['batch']:,}", f"{row['parameters']:,}"]
        for kind in names:
            found = row["steps"].get(kind)
            own = f", {found['parameters']:,} parameters" if found and "parameters" in found else ""
            cells.append(_cost(found, epoch=True) + own if found else row.get("left_out", {}).get(kind, MISSING))
        lines.append(cells)
    made, how = report["environment"], ", compiled" if report["compiled"] else ""
    stated = f"{report['data']}, {made['device']}, torch {made['torch']}{how}, {made['date']}:"
    return markdown([stated, Table(("model", "batch", "parameters", *names.values()), lines)])


_STAGES = ("epoch", "evaluate", "calibrate", "predict", "discover")


def large_graphs(_: Board) -> str:
    """Return time and memory of every stage on synthetic graphs, and the recipe's accuracy beside popularity's."""
    rows, trained = [], []
    for report in (load(f"{machine}/large") for machine in MACHINES):
        stage = partial(_of_stage, key="cpu_seconds" if report["environment"]["processor"] else "seconds")
        for row in report["rows"]:
            device = row.get("environment", report["environment"])["device"]
            size = f"{row['triples']:,}, {row['entities']:,}, {row['relations']:,}"
            for model, found in row["models"].items():
                cells = [stage(stage_of(found, name)) for name in _STAGES]
                rows.append([device, size, model, stage(row.get("read")), *cells])
            if "mrr" in (done := row.get("recipe", {})):
                took = f"{done['seconds']:,.0f} s, {done['cpu_seconds']:,.0f} s of the processor, {done['gib']:.1f} GiB"
                trained.append([device, size, took, _short(done["mrr"]), _short(done["popularity"])])
    sizes = "triples, entities, relations"
    header = ("on", sizes, "model", "read", "an epoch", "ranks", "calibrate", "1,000 predictions", "`discover`")
    recipe = Table(("on", sizes, "the whole recipe", "test MRR", "of popularity"), trained)
    return markdown([Table(header, rows), recipe])


def _of_stage(found: Mapping[str, Any] | None, key: str) -> str:
    if found and "failed" in found:
        return "does not fit" if "OutOfMemory" in found["failed"] else "fails"
    return MISSING if not found or key not in found else f"{found[key]:,.1f} s, {found['gib']:.1f} GiB"


# Accuracy of the answers


def measured(_: Board) -> str:
    """Return the measured accuracy of what a trained model answers."""
    rows = [*_unseen(), *_explanations(), *_probabilities(), *_discoveries()]
    served = load("cpu/serving")
    what = f"predictions per second of `serve`, {served['connections']} connections, {served['environment']['device']}"
    late = f"99 % within {served['ms']['p99']:.0f} ms, {served['errors']} errors"
    rows.append([what, served["data"], f"{served['requests_per_second']:.0f}", late])
    return markdown([Table(("what", "data", "measured", "compared with"), rows)])


_short = partial(number, metric="mrr")  # three digits
_ASKED = {
    "newcomer_given_mrr": "MRR of queries about them",
    "newcomer_answer_mrr": "MRR of queries they answer",
    "entity_mrr": "mean of the MRR of each one's queries",
    "degree_1_mrr": "MRR of queries with those of 2 to 9 facts",
    "degree_10_mrr": "MRR of queries with those of 10 to 99 facts",
    "degree_100_mrr": "MRR of queries with those of 100 facts or more",
    "ordinary_mrr": "MRR of queries without them",
}


def _unseen() -> Iterator[list[str]]:
    for key, what in _ASKED.items():
        for data, report in load("unseen")["data"].items():
            rows = [row for row in report["rows"] if key in row["test"]["newcomers"]]
            if not rows:
                continue
            names = ("newcomers", "popularity", "random", "trained")
            ours, *others, whole = (_short(mean(row["test"][name][key] for row in rows)) for name in names)
            beside = f"popularity {others[0]}, random {others[1]}, trained with them {whole}"
            if key == "ordinary_mrr":
                beside = f"before they are added {_short(mean(row['mrr'] for row in rows))}, trained with them {whole}"
            yield [f"unseen entities, {what}", data, ours, beside]


def _explanations() -> Iterator[list[str]]:
    for data, report in load("explanations")["data"].items():
        for row in report["rows"]:
            how = f"exact for {row['exact']} of {row['facts']}" if row["method"] == "auto" else row["method"]
            listed, some = ("facts on the 3 paths", "as many") if how == "paths" else ("3 facts", "3")
            what = f"score lost without the {listed} that `explain` lists first, {how}"
            beside = (
                f"{some} random facts {row['drop_random']:.2f}; more in {row['listed']['larger']:.0%} of {row['facts']}"
            )
            yield [what, data, f"{row['listed']['drop']:.2f}", beside]


def _probabilities() -> Iterator[list[str]]:
    for data, row in load("calibration")["data"].items():
        for what in ("the ten best entities", "the best entity"):
            after, before = (_short(row["answers"][what][when]["error"]) for when in ("after", "before"))
            yield [f"calibration error, {what}", data, after, f"uncalibrated {before}"]


def _discoveries() -> Iterator[list[str]]:
    for data, row in load("discoveries")["data"].items():
        found = {one["top"]: f"{one['in_test']:.0%}" for one in row["fitted"]}
        rest = ", ".join(f"{share} of {top:,}" for top, share in found.items() if top > 100)
        what = "facts that `discover` lists first, found in the hidden test split: of 100"
        yield [what, data, found[100], f"of 20 {found[20]}; {rest}"]


# Several devices


GRAPHS = {  # entities, relations, triples
    "Wikidata5M": (4_600_000, 822, 20_600_000),
    "Freebase": (86_000_000, 14_824, 338_000_000),
    "WikiKG90Mv2": (91_000_000, 1_387, 601_000_000),
}
MODELS: dict[str, dict[str, Any]] = {"DistMult": {}, "DistMult + CompGCN": {"encoder": "compgcn"}}
DEVICES = (8, 64, 256)
# Trainings that the constants of a plan follow.
FITTED = dict.fromkeys(("60000:12000:100", "300000:110000:100", "1000000:200000:100"), "memory and time")
FITTED["300000:60000:100, large"] = "memory"
_MEMORY = 80  # GiB
_ENTITIES = 14_541  # of FB15k-237


def rates(step: dict[str, Any], kernels: dict[str, Any], costs: dict[str, Any]) -> Rates:
    """Derive the rates of a GPU from the committed reports of its benchmarks.

    A copy gives the stream; the two largest graphs of a layer, forward and backward, the rows gathered; a step of
    DistMult over all entities the products; and the eager step less the recorded one the calls.
    """
    small, large = kernels["scaling"][-2:]
    more, took = large["messages"] - small["messages"], (large["ours"]["ms"] - small["ours"]["ms"]) / 1000
    row = next(one for one in costs["rows"] if one["label"] == "DistMult")
    work = 6 * row["batch"] * _ENTITIES * row["settings"]["encoder.dims"][-1]
    calls = (step["steps"]["ours, eager"]["ms"] - step["steps"]["ours"]["ms"]) / 1000
    return Rates(
        device="cuda",
        stream=step["copy_gb_s"] * 1e9,
        gather=3 * 4 * 100 * more / took,
        products=work / (row["steps"]["ours"]["ms"] / 1000),
        call=calls / OPERATIONS,
    )


def paper_graphs(_: Board) -> str:
    """Return public graphs on many GPUs, by the rates of the one that was measured."""
    here = rates(*(load(f"h200/{name}") for name in ("step-fb15k-237", "kernels", "costs-fb15k-237")))
    rows = []
    for name, sizes in GRAPHS.items():
        data = Outline(*sizes)
        for model, settings in MODELS.items():
            config = resolve({"data.source": "outline.tsv", **settings}, data).config
            rows += [[name, model, str(number), *_cells(plan(config, data, number, here))] for number in DEVICES]
    stated = (
        f"Rates of the NVIDIA H200: {here.stream / 1e12:.1f} TB/s of numbers in order, {here.gather / 1e12:.1f} TB/s "
        f"of gathered rows, {here.products / 1e12:.0f} TFLOP/s of products, {1e6 * here.call:.0f} µs a call. Assumed, "
        f"not measured: a GPU sends {here.network / 1e9:.0f} GB/s."
    )
    columns = ("graph", "model", "GPUs", "GiB a GPU", f"fits {_MEMORY}", "GiB of host a GPU", "MB sent a step")
    return markdown([stated, Table((*columns, "step", "hours an epoch", "most time for"), rows)])


def _cells(made: Plan) -> list[str]:
    seconds = made.seconds
    slow = max((key for key in seconds if key not in ("step", "epoch", "evaluation")), key=lambda key: seconds[key])
    gib = made.peak / 2**30
    step = f"{seconds['step']:.1f} s" if seconds["step"] >= 1 else f"{1000 * seconds['step']:.0f} ms"
    memory = [f"{gib:.0f}", "yes" if gib <= _MEMORY else "**no**", f"{made.host / 2**30:.0f}"]
    return [*memory, f"{made.sent / 1e6:,.0f}", step, f"{seconds['epoch'] / 3600:,.2g}", slow]


def of_size(size: str, here: Rates) -> Plan:
    """Return the plan for one process, by TRIPLES:ENTITIES:RELATIONS as `settings_of` has it."""
    triples, entities, relations = sizes_of(size)
    data = Outline(entities, relations, triples)
    return plan(resolve({"data.source": "outline.tsv", **settings_of(size)}, data).config, data, 1, here)


def planned(_: Board) -> str:
    """Return plans by the rates measured before each training of a synthetic graph, beside what it took."""
    lines = []
    for size, row in load("plan")["data"].items():
        made, found = of_size(size, Rates(**row["rates"])), row["measured"]
        e, d, training = made.config.encoder, made.config.decoder, made.config.training
        triples, entities = (f"{number:,}" for number in sizes_of(size)[:2])
        peaks = [f"{peak / 2**20:,.0f} MiB" for peak in (made.peak, found["peak"])]
        planned = made.seconds["epoch"] + made.seconds["evaluation"]
        model = f"{e.name} + {d.name}, {training.loss}"
        lines.append([triples, entities, model, *peaks, *(f"{one:,.0f} s" for one in (planned, found["seconds"]))])
        lines[-1].append(FITTED.get(size, "nothing"))
    memory, time = ("peak memory, planned", "measured"), ("epoch and evaluation, planned", "measured")
    return markdown([Table(("triples", "entities", "model", *memory, *time, "fitted to its"), lines)])


def shared_out(_: Board) -> str:
    """Return what several processes can train, as the package declares and tests it."""
    rows = []
    for row in SUPPORTED:
        names = ", ".join(f"`{name}`" for name in row.names)
        rows.append([row.part, names, row.how, "the same" if row.same else "other random numbers"])
    return markdown([Table(("part", "names", "how", "numbers of one process"), rows)])


BLOCKS: dict[str, Callable[[Board], str]] = {
    "accuracy": accuracy,
    "choice": choice,
    "search": search,
    "speed": partial(benchmarks, short=True),
    "benchmarks": benchmarks,
    "costs": step_costs,
    "large": large_graphs,
    "measured": measured,
    "deviations": deviations,
    "planned": planned,
    "paper-graphs": paper_graphs,
    "shared-out": shared_out,
}


def write_blocks(root: Path) -> list[Path]:
    """Rewrite the generated blocks of README.md and docs/ in place; return the pages that changed."""
    board, written = Board(RESULTS, experiments()), []
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        made = filled(text, board)
        if made != text:
            path.write_text(made, encoding="utf-8")
            written.append(path)
    draw_speed([load(f"{machine}/kernels") for machine in MACHINES], root / "docs" / "speed.svg")
    draw_large(load(f"{MACHINES[0]}/large"), root / "docs" / "large.svg")
    return written
