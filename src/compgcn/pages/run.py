"""The page of a run: how it was trained, how good it is and where, and what it gets right and wrong."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from compgcn.answers.calibration import calibration_error
from compgcn.config import to_toml
from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError
from compgcn.pages.examples import Example, classified, told
from compgcn.pages.markup import Figures, Folded, Listing, Part, Verbatim, page_html
from compgcn.plots import run as panels
from compgcn.plots.classification import confusion
from compgcn.plots.figure import BARS, PANEL, inline
from compgcn.ranking import by_category, by_relation
from compgcn.results import curve, parameters
from compgcn.run import Run
from compgcn.storage import replace
from compgcn.tables import MISSING, Table

_METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")
_ENDINGS = (".html", ".htm")
_EXAMPLES = 10
_RELATIONS = 300  # listed at most
_CLASSES = 15  # up to which a confusion matrix is written as a table

Panel = tuple[str, Callable[[Any], None], float]  # what it shows, what draws it, how many inches high


def write_page(run: Run, path: Path | None = None) -> Path:
    """One HTML file that needs nothing else; where it was written, `report.html` in the run folder if not said."""
    if run.enlarged and path is None:
        raise InputError(f"the page of a run with more facts is none of {run.path}; say where to write it")
    path = run.path / "report.html" if path is None else check_page(path)
    text = page_html(page(run), f"{run.model_name} on {run.data.name}")
    replace(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path


def check_page(path: Path) -> Path:
    """The path of a page to be, refused before any work is done for it."""
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; give the name of a file")
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(f"the page of a run is written to a .html file, not '{path.name}'")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder '{path.parent}' to put '{path.name}' in; make it first")
    return path


def page(run: Run) -> list[Part]:
    """The parts of it."""
    parts: list[Part] = [f"# {run.model_name} on {run.data.name}", *_summary(run)]
    if importlib.util.find_spec("matplotlib") is None:
        parts.append("There are no drawings on this page, for matplotlib is not installed: `compgcn[plot]` brings it.")
    parts += ["## Figures reached", *(_links(run) if run.config.task == "link-prediction" else _classes(run))]
    parts += ["## Settings", "All of them, as a file that `compgcn train` takes.", Listing(to_toml(run.config))]
    environment = run.path / "environment.json"
    if environment.is_file():
        made = json.loads(environment.read_text(encoding="utf-8"))
        rows = [[key.replace("_", " "), Verbatim(MISSING if value is None else value)] for key, value in made.items()]
        parts += ["## Environment", Table("", ("made with", ""), rows)]
    return parts


def _summary(run: Run) -> list[Part]:
    sizes = [f"{round(value, 1):,} {key.replace('_', ' ')}" for key, value in run.data.statistics().items()]
    size = parameters(run.task)
    about = [f"Task: {run.config.task}.", f"Data: {', '.join(sizes)}."]
    about += [f"{size:,} parameters."] if size else []
    if run.metrics.get("best_epoch"):
        about.append(f"The weights are those of epoch {run.metrics['best_epoch']}.")
    if not run.metrics:
        about.append("*The run is not finished: this is what its best weights so far reach.*")
    return [" ".join(about)]


# What is drawn


def _drawn(wanted: Sequence[Panel]) -> list[Part]:
    """Panels side by side, where there is something to draw and something to draw it with."""
    if not wanted or importlib.util.find_spec("matplotlib") is None:
        return []
    return [Figures([(text, inline(panel, _mark(text), height)) for text, panel, height in wanted])]


def _mark(text: str) -> str:
    return "".join(c for c in text.lower() if "a" <= c <= "z") + "-"


def _training(run: Run) -> list[Part]:
    """Loss and validation figure against the epoch, and the same as numbers."""
    path = run.path / "events.jsonl"
    found = curve(path) if path.is_file() else {"epoch": []}
    if len(found["epoch"]) < 2:
        return []
    best = run.metrics.get("best_epoch")
    names = [name for name in ("loss", "mrr", "accuracy") if name in found]
    wanted = [(f"{name} by epoch", partial(_curve, found=found, name=name, best=best), PANEL[1]) for name in names]
    columns = [name for name in found if name != "epoch"]
    rows = [[f"{e:,}", *(f"{found[c][k]:.4f}" for c in columns)] for k, e in enumerate(found["epoch"])]
    table = Table("", ("epoch", *(name.replace("_", " ") for name in columns)), rows)
    return ["## Training", *_drawn(wanted), Folded(f"The {len(rows):,} evaluations as numbers", [table])]


def _curve(axes: Any, *, found: Mapping[str, Sequence[float]], name: str, best: int | None) -> None:
    panels.training(axes, found["epoch"], found[name], name, best)


def _calibration(run: Run, split: str) -> list[Part]:
    found = {"as the model says": run.answers.calibration(split)}
    if run.calibrated():
        found["calibrated on validation"] = run.answers.calibration(split, calibrated=True)
    found = {name: bins for name, bins in found.items() if bins}
    if not found:
        return []
    parts: list[Part] = ["## Calibration"]
    for name, bins in found.items():
        total = sum(one.answers for one in bins)
        error = calibration_error(bins)
        parts.append(
            f"The first answer to each of {total:,} questions of {split}, {name}: on average, probability and share of "
            f"right answers lie {100 * error:.1f} percentage points apart (expected calibration error {error:.4f})."
        )
    parts += _drawn([("calibration", lambda axes: panels.calibration(axes, found), PANEL[1])])
    for name, bins in found.items():
        rows = [[f"{one.probability:.3f}", f"{one.right:.3f}", f"{one.answers:,}"] for one in bins]
        table = Table("", ("probability", "share that is right", "answers"), rows)
        parts.append(Folded(f"As numbers, {name}", [table]))
    return parts


# Links


def _links(run: Run) -> list[Part]:
    reached = run.metrics or {split: run.evaluate(split) for split in ("valid", "test")}
    rows = []
    for split in ("valid", "test"):
        report = reached.get(split) or {}
        lines = {split: report, f"{split}, heads": report.get("head"), f"{split}, tails": report.get("tail")}
        ties = {f"{split}, ties {how}": report[how] for how in ("optimistic", "pessimistic") if report}
        if len({tuple(_figures("", part)) for part in ties.values()}) > 1:
            lines |= ties
        rows += [_figures(label, part) for label, part in lines.items() if part]
    popular = reached.get("popularity", {}).get("test")
    rows += [_figures("test, by popularity alone", popular)] if popular else []
    if not rows:
        return ["Nothing was held out for validation or test, so there are no figures.", *_training(run)]
    parts: list[Part] = [
        "Filtered ranks; those of tied scores are the mean of the ranks they share. "
        "Where ties make a difference, *ties optimistic* has the figures with every tie won, *ties pessimistic* with "
        "every tie lost.",
        Table("", ("", *(name.upper().replace("HITS", "H") for name in _METRICS)), rows),
        *_training(run),
    ]
    split = "test" if reached.get("test") else "valid"
    ranks = run.task.ranks(split)
    parts += _parts_of_links(run, split, ranks)
    parts += _calibration(run, split)
    good, bad = told(run, split, ranks, _EXAMPLES)
    return [*parts, *_told(split, good, bad)]


def _figures(label: str, report: Mapping[str, float]) -> list[str]:
    return [label, *(f"{report[name]:,.1f}" if name == "mr" else f"{report[name]:.4f}" for name in _METRICS)]


def _parts_of_links(run: Run, split: str, ranks: Any) -> list[Part]:
    """By category and by relation, drawn and as tables."""
    assert isinstance(run.data, KnowledgeGraph)
    relation = torch.from_numpy(run.data.splits[split])[:, 1]
    train = torch.from_numpy(run.data.train)
    categories = by_category(ranks, relation.to(run.device), train, run.data.num_relations)
    found = sorted(by_relation(ranks, relation).items(), key=lambda pair: -pair[1]["triples"])  # type: ignore[operator]
    names, ids = run.data.relations.names, run.data.relations.ids
    shared = Counter(names)
    relations = {names[k] if shared[names[k]] == 1 else ids[k]: report for k, report in found}
    drawings: list[Panel] = [
        (f"MRR {title.lower()}", partial(panels.sides, title=title, parts=parts), 1.6 + 0.4 * min(len(parts), BARS))
        for title, parts in (("By category", categories), ("By relation", relations))
    ]
    more = len(relations) - _RELATIONS
    rest = f", the {_RELATIONS} most frequent of {len(relations):,}; `compgcn evaluate --by relation` has all" * (
        more > 0
    )
    return [
        f"## By category and relation, {split}",
        "A relation's category counts tails for a head and heads for a tail in train: from 1.5 on average, N.",
        *_drawn(drawings),
        _by("category", categories),
        Folded(f"Every relation{rest}", [_by("relation", dict(list(relations.items())[:_RELATIONS]))]),
    ]


def _by(what: str, reports: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = []
    for name, report in reports.items():
        figures = [f"{report[key]:.4f}" for key in ("mrr", "hits@1", "hits@10")]
        sides = [f"{report[side]['mrr']:.4f}" for side in ("head", "tail")]
        rows.append([Verbatim(name), f"{report['triples']:,}", *figures, *sides])
    return Table("", (what, "facts", "MRR", "H@1", "H@10", "MRR of heads", "MRR of tails"), rows)


def _told(split: str, good: Sequence[Example], bad: Sequence[Example]) -> list[Part]:
    parts: list[Part] = [f"## Predictions of {split}"]
    if good:
        rows = [
            [*map(Verbatim, (one.question, one.answer)), _chance(one.probability), Verbatim(one.instead)]
            for one in good
        ]
        best = ("question", "answer", "probability", "the next that is not in the data")
        parts += ["### Best", "Answered right, and by the widest margin.", Table("", best, rows)]
    if bad:
        rows = [
            [
                Verbatim(one.question),
                Verbatim(one.answer),
                f"{one.rank:,.10g}",
                Verbatim(one.instead),
                _chance(one.chance),
            ]
            for one in bad
        ]
        worst = ("question", "true answer", "its rank", "the model's answer", "probability")
        parts += ["### Worst", "Where the true answer ranks last.", Table("", worst, rows)]
    return parts


def _chance(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}"


# Classes


def _classes(run: Run) -> list[Part]:
    metrics = run.metrics
    if not metrics:
        return ["The figures come when the run is finished.", *_training(run)]
    reports = {split: metrics[split] for split in ("valid", "test") if metrics[split]}
    lines = reports | ({"test, a regression on counted facts": metrics["facts"]["test"]} if "facts" in metrics else {})
    rows = []
    for name, report in lines.items():
        spread = f" ± {report['accuracy_sd']:.4f}" if "accuracy_sd" in report else ""
        rows.append([name, f"{report['accuracy']:.4f}{spread}", f"{report['macro_f1']:.4f}"])
        rows[-1].append(f"{report['log_likelihood']:.4f}" if "log_likelihood" in report else MISSING)
    if not rows:
        return ["No label was held out for validation or test, so there are no figures.", *_training(run)]
    parts: list[Part] = [
        f"Protocol: {metrics['protocol']}.",
        Table("", ("", "accuracy", "macro F1", "log likelihood"), rows),
        *_training(run),
    ]
    split = run.answers.reported
    parts += _parts_of_classes(metrics["classes"], split, reports[split])
    if metrics["protocol"] not in ("refit", "holdout") or split != "test":
        why = (
            f"The models of the folds that `{metrics['protocol']}` reports on are not kept, so no single item is shown."
        )
        return [*parts, "## Items", why]
    parts += _calibration(run, split)
    return [*parts, *_items(run, split)]


def _parts_of_classes(classes: Sequence[str], split: str, report: Mapping[str, Any]) -> list[Part]:
    matrix = report["confusion"]
    tall = max(PANEL[1], 0.32 * len(classes) + 1.5)
    drawing: Panel = ("confusion matrix", lambda axes: confusion(axes, torch.tensor(matrix).numpy(), classes), tall)
    by_class = report["by_class"]
    rows = [
        [Verbatim(name), *(f"{one[key]:.4f}" for key in ("precision", "recall", "f1")), f"{one['items']:,}"]
        for name, one in by_class.items()
    ]
    parts: list[Part] = [f"## By class, {split}", *_drawn([drawing])]
    parts.append(Table("", ("class", "precision", "recall", "F1", "items"), rows))
    if len(classes) <= _CLASSES:
        names = [Verbatim(name) for name in classes]
        lines = [[name, *(f"{count:,}" for count in row)] for name, row in zip(names, matrix, strict=True)]
        parts.append(Folded("The confusion matrix as numbers", [Table("", ("true, by predicted", *names), lines)]))
    return parts


def _items(run: Run, split: str) -> list[Part]:
    right, wrong = classified(run, split, _EXAMPLES)
    parts: list[Part] = [f"## Items of {split}"]
    for title, some in (("Most certain errors", wrong), ("Most certain and right", right)):
        rows = [
            [Verbatim(one.name), Verbatim(one.label), Verbatim(one.known or ""), f"{one.probability:.4f}"]
            for one in some
        ]
        table = Table("", ("item", "predicted", "true", "probability"), rows)
        parts += [f"### {title}", table if rows else "There are none."]
    return parts
