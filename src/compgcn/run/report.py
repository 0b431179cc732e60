"""The HTML page of a run: its training curves, its metrics and their parts, its calibration, and examples."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from compgcn.answers.calibrate import calibration_error
from compgcn.answers.links import Links, Query
from compgcn.config import to_toml
from compgcn.data import KnowledgeGraph
from compgcn.data.columns import check_place
from compgcn.errors import InputError
from compgcn.run import plots
from compgcn.run.run import Run
from compgcn.run.search import FILTERED, journalled
from compgcn.tasks.classification import LogProbabilities
from compgcn.tasks.ranking import METRICS, SideRanks, by_category, by_relation
from compgcn.train.loop import Event
from compgcn.train.storage import replace

MISSING = "–"
_NUMBER = re.compile(r"[-−+±–.,%/ \d]*\d[-−+±–.,%/ \d]*|–")
_EXAMPLES = 10
_POOL = 1000  # facts of the best ranks, among which those with the widest margin are the examples
_ALIKE = 3  # examples of one relation, asked for the same side, at most
_BLOCK = 2**24  # scores at a time
_RELATIONS = 300  # listed at most
_CLASSES = 15  # the most classes of a confusion matrix that is written as a table
_HIGH = plots.PANEL[1]  # inches
_FOLD = re.compile(r"fold \d+ of \d+")


class Table(NamedTuple):
    """Rows of cells under a header; cells are text with * for emphasis and ` for code."""

    header: tuple[str, ...]
    rows: list[list[str]]
    title: str = ""  # that the caller writes above it


class Verbatim(str):
    """Text from outside, such as a name; the page shows its * and ` as they are."""


class Markup(str):
    """HTML that goes into the page as it is."""


Part: TypeAlias = str | Table  # text that begins with # is a heading
Drawing = tuple[str, plots.Panel, float]  # description, panel, and height in inches


def write_page(run: Run, path: Path | None = None) -> Path:
    """Write the page into one HTML file, `report.html` in the run folder by default; return its path."""
    if run.enlarged and path is None:
        raise InputError(f"the page of a run about other facts does not belong in {run.path}; say where to write it")
    path = run.path / "report.html" if path is None else check_page(path)
    parts = page(run)
    text = page_html(parts, str(parts[0]).removeprefix("# "))
    replace(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path


def check_page(path: Path) -> Path:
    """Return the path of a page, or refuse one that cannot be written."""
    return check_place(path, "the page of a run is a .html file", ".html", ".htm")


def page(run: Run) -> list[Part]:
    sizes = [f"{round(value, 1):,} {key.replace('_', ' ')}" for key, value in run.data.statistics().items()]
    about = [f"Task: {run.config.task}.", f"Data: {', '.join(sizes)}."]
    if size := parameters(run.task):
        about.append(f"{size:,} parameters.")
    if run.metrics.get("best_epoch"):
        about.append(f"The weights are those of epoch {run.metrics['best_epoch']}.")
    if not run.metrics:
        about.append("*The run is not finished: these are the metrics of its best weights so far.*")
    search = journalled(run.path)
    name = search.trials[0].name if search else run.model_name
    parts: list[Part] = [f"# {name} on {run.data.name}", " ".join(about)]
    if not plots.can_draw():
        parts.append("This page has no drawings, because matplotlib is not installed: `compgcn[plot]` brings it.")
    parts += ["## Metrics", *(_links(run) if run.config.task == "link-prediction" else _classes(run))]
    if search:
        rows = [
            [Verbatim(one.name), _figure(one.value), f"{100 * one.share:.3g}%", f"{one.spent:,.0f}", one.error]
            for one in search.trials
        ]
        header = ("candidate", f"valid {search.goal}", "trained", "seconds", "")
        parts += ["## Choice of the model", Verbatim(f"{search.reason}."), Table(header, rows)]
    settings = Markup(f"<pre>{html.escape(to_toml(run.config))}</pre>")
    parts += ["## Settings", "All settings, as a file for `compgcn train`.", settings]
    if made := run.folder.environment():
        rows = [[key.replace("_", " "), Verbatim(MISSING if value is None else value)] for key, value in made.items()]
        parts += ["## Environment", Table(("made with", ""), rows)]
    return parts


# Markup


def page_html(parts: Sequence[Part], name: str) -> str:
    """Return a page as one HTML file that needs nothing else but the pictures it names."""
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_shown(name)}</title><style>{style}</style>"
    )
    body = "\n".join(map(_markup, parts))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _markup(part: Part) -> str:
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Markup):
        return part
    if part.startswith("#"):
        marks, _, text = part.partition(" ")
        return f"<h{len(marks)}>{_inline(text)}</h{len(marks)}>"
    if part.startswith("!["):
        text, _, target = part[2:-1].partition("](")
        return f'<p><img src="{html.escape(target)}" alt="{html.escape(text)}"></p>'
    return f"<p>{_inline(part)}</p>"


def _table(table: Table) -> str:
    """Return a table whose columns of numbers are set to the right."""

    def is_number(cell: str) -> bool:
        return not cell or (not isinstance(cell, Verbatim) and _NUMBER.fullmatch(cell) is not None)

    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.header)
    marks = [' class="n"' if column and all(map(is_number, column)) else "" for column in columns]

    def line(cells: Sequence[str], tag: str) -> str:
        made = [f"<{tag}{mark}>{_inline(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True)]
        return f"<tr>{''.join(made)}</tr>"

    rows = "".join(line(cells, "td") for cells in table.rows)
    made = f"<table><thead>{line(table.header, 'th')}</thead><tbody>{rows}</tbody></table>"
    return f'<div class="wide">{made}</div>'


def _shown(text: str) -> str:
    return html.escape(plots.printable(text))


def _inline(text: str) -> str:
    """Return text as HTML, with `code` and *emphasis*."""
    if isinstance(text, Verbatim):
        return _shown(text)
    code = re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", code)


def _folded(title: str, table: Table) -> Markup:
    """Return a table that a reader unfolds."""
    return Markup(f"<details><summary>{_inline(title)}</summary>\n{_table(table)}\n</details>")


def _drawn(*drawings: Drawing) -> list[Part]:
    """Return drawings side by side; none without matplotlib."""
    if not plots.can_draw():
        return []
    figures = []
    for text, panel, height in drawings:
        drawing = plots.inline(panel, f"{re.sub('[^a-z]', '', text.lower())}-", height)
        figures.append(f'<figure role="img" aria-label="{_shown(text)}">{drawing}</figure>')
    return [Markup(f'<div class="figures">{"".join(figures)}</div>')]


# Training and calibration


def parameters(task: Any) -> int:
    """Count the trained numbers that score; 0 for a fitted baseline, and without those of a learned sampler."""
    if isinstance(task.model, LogProbabilities):
        return 0
    scoring = (one for name, one in task.model.named_parameters() if not name.startswith("adversary."))
    return sum(weights.numel() for weights in scoring)


def curve(events: Iterable[Event]) -> dict[str, list[float]]:
    """Return the loss and the validation metrics of each evaluated epoch; their means over the folds of a split."""
    rows: dict[int, list[dict[str, float]]] = {}
    for event in events:
        if event["event"] == "epoch" and _FOLD.fullmatch(event.get("part", "fold 1 of 1")):
            rows.setdefault(event["epoch"], []).append({"loss": event["loss"], **event["valid"]})
    seen = {key for many in rows.values() for one in many for key in one}
    keys: list[str] = [key for key in ("loss", "mrr", "accuracy", "log_likelihood") if key in seen]
    whole = {epoch: rows[epoch] for epoch in sorted(rows) if all(key in one for one in rows[epoch] for key in keys)}
    means = {key: [sum(one[key] for one in many) / len(many) for many in whole.values()] for key in keys if whole}
    return {"epoch": [float(epoch) for epoch in whole], **means}


def _training(run: Run) -> list[Part]:
    found = curve(run.folder.events())
    epochs, best = found.pop("epoch"), run.metrics.get("best_epoch")
    if len(epochs) < 2:
        return []
    panel = partial(plots.training, epochs=epochs, best=best)
    drawn = [name for name in ("loss", "mrr", "accuracy") if name in found]
    drawings = [(f"{name} by epoch", partial(panel, values=found[name], figure=name), _HIGH) for name in drawn]
    rows = [[f"{epoch:,.0f}", *(f"{found[name][k]:.4f}" for name in found)] for k, epoch in enumerate(epochs)]
    table = Table(("epoch", *(name.replace("_", " ") for name in found)), rows)
    return ["## Training", *_drawn(*drawings), _folded(f"The {len(rows):,} evaluations as numbers", table)]


def _calibration(run: Run, split: str) -> list[Part]:
    found = {"as the model says": run.answers.calibration(split)}
    if run.calibrated():
        found["calibrated on validation"] = run.answers.calibration(split, calibrated=True)
    found = {name: bins for name, bins in found.items() if bins}
    if not found:
        return []
    parts: list[Part] = ["## Calibration"]
    asked = "queries" if run.config.task == "link-prediction" else "items"
    for name, bins in found.items():
        error = calibration_error(bins)
        parts.append(
            f"The most probable answer for each of {sum(one.answers for one in bins):,} {asked} of {split}, {name}: "
            f"probability and share of right answers differ by {100 * error:.1f} percentage points on average "
            f"(expected calibration error {error:.4f})."
        )
    parts += _drawn(("calibration", partial(plots.calibration, found=found), _HIGH))
    for name, bins in found.items():
        rows = [[f"{one.probability:.3f}", f"{one.right:.3f}", f"{one.answers:,}"] for one in bins]
        table = Table(("probability", "share of right answers", "answers"), rows)
        parts.append(_folded(f"As numbers, {name}", table))
    return parts


# Links


def _links(run: Run) -> list[Part]:
    trained = not run.enlarged and run.metrics
    reached = trained or {split: run.evaluate(split) for split in ("valid", "test")}
    rows = []
    for split in ("valid", "test"):
        report = reached.get(split) or {}
        lines = {split: report, f"{split}, heads": report.get("head"), f"{split}, tails": report.get("tail")}
        ties = {f"{split}, ties {how}": report[how] for how in ("optimistic", "pessimistic") if report}
        if len({tuple(_figures("", part)) for part in ties.values()}) > 1:
            lines |= ties
        rows += [_figures(label, part) for label, part in lines.items() if part]
    if popular := reached.get("popularity", {}).get("test"):
        rows.append(_figures("test, by popularity alone", popular))
    if not rows:
        return ["The data have no validation or test facts, so there are no metrics.", *_training(run)]
    parts: list[Part] = [
        "Ranks are filtered, and tied scores get the mean of the ranks they share. "
        "Where ties make a difference, *ties optimistic* counts every tie as won, *ties pessimistic* as lost.",
        Table(("", *(name.upper().replace("HITS", "H") for name in METRICS)), rows),
        *([f"About the curve and the choice of the model below: {FILTERED}."] if journalled(run.path) else []),
        *_training(run),
    ]
    split = "test" if reached.get("test") else "valid"
    ranks = run.ranker.ranks(split)
    return [*parts, *_parts_of_links(run, split, ranks), *_calibration(run, split), *_examples(run, split, ranks)]


def _figures(label: str, report: Mapping[str, float]) -> list[str]:
    return [label, *(f"{report[name]:,.1f}" if name == "mr" else f"{report[name]:.4f}" for name in METRICS)]


def _parts_of_links(run: Run, split: str, ranks: SideRanks) -> list[Part]:
    """Return the metrics by category and by relation, drawn and as tables."""
    assert isinstance(run.data, KnowledgeGraph)
    relation = torch.from_numpy(run.data.splits[split])[:, 1]
    train = torch.from_numpy(run.data.train)
    categories = by_category(ranks, relation.to(run.device), train, run.data.num_relations)
    found = sorted(by_relation(ranks, relation).items(), key=lambda pair: -pair[1]["triples"])  # type: ignore[operator]
    ids, names, shared = run.data.relations.ids, run.data.relations.names, run.data.relations.shared
    relations = {ids[k] if names[k] in shared else names[k]: report for k, report in found}
    drawings: list[Drawing] = []
    for title, parts in (("By category", categories), ("By relation", relations)):
        height = 1.6 + 0.4 * min(len(parts), plots.BARS)
        drawings.append((f"MRR {title.lower()}", partial(plots.sides, title=title, parts=parts), height))
    rest = ""
    if len(relations) > _RELATIONS:
        rest = f", the {_RELATIONS} most frequent of {len(relations):,}; `compgcn evaluate --by relation` has all"
    return [
        f"## By category and relation, {split}",
        "A relation's category counts tails for a head and heads for a tail in train: from 1.5 on average, N.",
        *_drawn(*drawings),
        _by("category", categories),
        _folded(f"Every relation{rest}", _by("relation", dict(list(relations.items())[:_RELATIONS]))),
    ]


def _by(what: str, reports: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = []
    for name, report in reports.items():
        figures = [report["mrr"], report["hits@1"], report["hits@10"], report["head"]["mrr"], report["tail"]["mrr"]]
        rows.append([Verbatim(name), f"{report['triples']:,}", *(f"{figure:.4f}" for figure in figures)])
    return Table((what, "facts", "MRR", "H@1", "H@10", "MRR of heads", "MRR of tails"), rows)


class Example(NamedTuple):
    """A fact of a split of which one end was asked for."""

    query: str  # with names, and ? for the missing end
    answer: str  # the name of the true one
    rank: float
    probability: float | None  # of the true answer, for those that rank first
    instead: str  # the model's first answer that is no fact of the data
    chance: float  # its probability


def told(run: Run, split: str, sides: SideRanks, top: int) -> tuple[list[Example], list[Example]]:
    """Return the facts the model completes by the widest margin, and those whose true answer ranks last."""
    links = run.answers
    assert isinstance(links, Links)
    s, r, o = links.task.splits[split].unbind(1)
    pairs = ((s, o), (r, r + links.data.num_relations), (o, s))  # each fact is asked for its tail, then for its head
    queries = torch.stack([torch.stack(pair, 1).flatten() for pair in pairs], 1)  # given, relation, target [2n, 3]
    ranks = torch.stack((sides.tail.realistic, sides.head.realistic), 1).flatten()  # [2n]
    pool = ranks.argsort(stable=True)[:_POOL]
    best = pool[_margins(links, queries[pool]).argsort(descending=True, stable=True)]
    worst = ranks.argsort(descending=True, stable=True)
    good = [_example(links, queries[k], ranks[k].item()) for k in _varied(queries, best, top) if ranks[k] <= 1]
    bad = [_example(links, queries[k], ranks[k].item()) for k in _varied(queries, worst, top) if ranks[k] > 1]
    return good, bad


@torch.inference_mode()
def _margins(links: Links, queries: Tensor) -> Tensor:
    """Return by how much the score of each target exceeds the best score of an unknown answer [n]."""
    found = []
    for part in torch.split(queries, max(1, _BLOCK // links.data.num_entities)):
        given, relation, target = part.unbind(1)
        scores = links.scorer(given, relation)  # [B, N]
        own = scores.gather(1, target.unsqueeze(1)).squeeze(1)
        rivals = scores.index_put(links.task.known.lookup(given, relation), scores.new_tensor(-torch.inf))
        found.append(own - rivals.scatter(1, target.unsqueeze(1), -torch.inf).amax(1))
    return torch.cat(found)


def _varied(queries: Tensor, order: Tensor, top: int) -> list[int]:
    """Return the first rows of an order, with at most a few of each relation."""
    counts: Counter[int] = Counter()
    chosen = []
    for row, relation in zip(order.tolist(), queries[order, 1].tolist(), strict=True):
        counts[relation] += 1
        if counts[relation] <= _ALIKE:
            chosen.append(row)
    return chosen[:top]


def _example(links: Links, query: Tensor, rank: float) -> Example:
    names, R = links.data.entities.names, links.data.num_relations
    given, relation, target = query.tolist()
    r = relation % R
    asked: Query = (given, r, None) if relation < R else (None, r, given)
    ends = (names[given], "?") if relation < R else ("?", names[given])
    chance = links.fact(given, relation, target).probability if rank <= 1 else None
    other = links.answer([asked], top=1, new=True)[0]
    name, its = (other[0].name, other[0].probability) if other else ("", 0.0)
    question = f" — {links.data.relations.names[r]} — ".join(ends)
    return Example(question, names[target], rank, chance, name, its)


def _examples(run: Run, split: str, ranks: SideRanks) -> list[Part]:
    good, bad = told(run, split, ranks, _EXAMPLES)
    parts: list[Part] = [f"## Predictions of {split}"]
    if good:
        best = ("query", "answer", "probability", "next answer that is not in the data")
        rows = [[*map(Verbatim, one[:2]), _figure(one.probability), Verbatim(one.instead)] for one in good]
        parts += ["### Best", "The true answer ranks first, by the widest margin.", Table(best, rows)]
    if bad:
        worst = ("query", "true answer", "its rank", "the model's answer", "probability")
        rows = [
            [*map(Verbatim, one[:2]), f"{one.rank:,.10g}", Verbatim(one.instead), _figure(one.chance)] for one in bad
        ]
        parts += ["### Worst", "The true answer ranks last.", Table(worst, rows)]
    return parts


def _figure(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}"


# Classes


def _classes(run: Run) -> list[Part]:
    metrics = run.metrics
    if not metrics:
        return ["The metrics come when the run is finished.", *_training(run)]
    reports = {split: metrics[split] for split in ("valid", "test") if metrics[split]}
    lines = reports | ({"test, a regression on counted facts": metrics["facts"]["test"]} if "facts" in metrics else {})
    rows = []
    for name, report in lines.items():
        spread = f" ± {report['accuracy_sd']:.4f}" if "accuracy_sd" in report else ""
        likelihood = _figure(report.get("log_likelihood"))
        rows.append([name, f"{report['accuracy']:.4f}{spread}", f"{report['macro_f1']:.4f}", likelihood])
    if not rows:
        return ["The data have no validation or test labels, so there are no metrics.", *_training(run)]
    split = run.answers.reported
    parts: list[Part] = [
        f"Protocol: {metrics['protocol']}.",
        Table(("", "accuracy", "macro F1", "log likelihood"), rows),
        *_training(run),
        *_parts_of_classes(metrics["classes"], split, reports[split]),
    ]
    if metrics["protocol"] in ("refit", "holdout") and split == "test":
        return [*parts, *_calibration(run, split), *_items(run, split)]
    folds = f"the folds that `{metrics['protocol']}` reports on"
    return [*parts, "## Items", f"The run does not keep the models of {folds}, so it has no examples."]


def _parts_of_classes(classes: Sequence[str], split: str, report: Mapping[str, Any]) -> list[Part]:
    matrix, names = report["confusion"], [Verbatim(name) for name in classes]
    panel = partial(plots.confusion, counts=torch.tensor(matrix).numpy(), classes=classes)
    rows = [
        [Verbatim(name), *(f"{one[key]:.4f}" for key in ("precision", "recall", "f1")), f"{one['items']:,}"]
        for name, one in report["by_class"].items()
    ]
    parts: list[Part] = [
        f"## By class, {split}",
        *_drawn(("confusion matrix", panel, max(_HIGH, 0.32 * len(classes) + 1.5))),
        Table(("class", "precision", "recall", "F1", "items"), rows),
    ]
    if len(classes) <= _CLASSES:
        lines = [[name, *(f"{count:,}" for count in row)] for name, row in zip(names, matrix, strict=True)]
        parts.append(_folded("The confusion matrix as numbers", Table(("true, by predicted", *names), lines)))
    return parts


def _items(run: Run, split: str) -> list[Part]:
    """Return the items of a split that the model classifies with most certainty, wrongly and rightly."""
    found = run.classify([run.classes.vocabulary.ids[row] for row in run.classes.splits[split]])
    found.sort(key=lambda one: -one.probability)
    parts: list[Part] = [f"## Items of {split}"]
    for title, right in (("Most certain errors", False), ("Most certain and right", True)):
        rows = [
            [*map(Verbatim, (one.name, one.label, one.known or "")), f"{one.probability:.4f}"]
            for one in found
            if (one.label == one.known) is right
        ]
        table = Table(("item", "predicted", "true", "probability"), rows[:_EXAMPLES])
        parts += [f"### {title}", table if rows else "There are none."]
    return parts
