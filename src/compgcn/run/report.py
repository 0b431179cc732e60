"""The page of a run: how it was trained, how good it is and where, and what it gets right and wrong."""

from __future__ import annotations

import html
import importlib.util
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from compgcn.answers.calibrate import calibration_error
from compgcn.answers.classes import Classified
from compgcn.config import to_toml
from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError
from compgcn.run import Run
from compgcn.run import plots as panels
from compgcn.run.plots import BARS, PANEL, confusion, inline
from compgcn.tasks.classification import LogProbabilities
from compgcn.tasks.ranking import SideRanks, by_category, by_relation
from compgcn.train.storage import replace

MISSING = "–"
_NUMBER = re.compile(r"[-−+±–.,%/ \d]*\d[-−+±–.,%/ \d]*|–")


class Table(NamedTuple):
    """Rows of cells under a header; cells are text with * for emphasis and ` for code."""

    title: str
    header: tuple[str, ...]
    rows: list[list[str]]


class Verbatim(str):
    """Text from outside, such as a name: shown letter by letter, while other text has `code` and *emphasis* in it."""

    __slots__ = ()


class Figures(NamedTuple):
    """Drawings side by side: what each shows, in words, and an <svg> element."""

    drawings: list[tuple[str, str]]


class Listing(NamedTuple):
    """Lines of a file."""

    text: str


class Folded(NamedTuple):
    """Parts that a reader can unfold."""

    title: str
    parts: Sequence[Part]


Part: TypeAlias = "str | Table | Figures | Listing | Folded"


def markdown(parts: Sequence[str | Table]) -> str:
    """A page as Markdown."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        cells = [[cell.replace("|", "\\|") for cell in line] for line in (part.header, *part.rows)]
        lines = ["| " + " | ".join(line) + " |" for line in cells]
        texts.append("\n".join([lines[0], "|" + "---|" * len(part.header), *lines[1:]]))
    return "\n\n".join(texts) + "\n"


# The colours of drawings follow those of the page: --line and the colour of text.
_STYLE = """
:root{color-scheme:light dark;--text:#1f2328;--soft:#59636e;--back:#fff;--line:#d8dee4;--wash:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--soft:#9198a1;--back:#0d1117;--line:#3d444d;--wash:#151b23}}
body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:var(--text);
background:var(--back)}
h1{font-size:1.7rem;line-height:1.25}h2{font-size:1.25rem;margin:2.2rem 0 .6rem;padding-bottom:.25rem;
border-bottom:1px solid var(--line)}h3{font-size:1.05rem}p{max-width:60rem}
.wide{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;font-size:14px}
td,th{padding:.3rem .8rem;text-align:left;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:break-word;min-width:3.5rem;max-width:26rem}td:first-child:not(.n){min-width:8rem}
th{font-weight:600;color:var(--soft)}th.n,td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tbody tr:hover{background:var(--wash)}img{max-width:100%;background:#fff}
code,pre{background:var(--wash);font-family:ui-monospace,monospace;font-size:.92em}code{padding:0 .2em}
pre{padding:.8rem 1rem;overflow-x:auto;line-height:1.4}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1rem}
figure{margin:0;max-width:36rem}figure svg{display:block;width:100%;height:auto}
details{margin:1rem 0}summary{cursor:pointer;color:var(--soft)}
"""


def page_html(parts: Sequence[Part], name: str) -> str:
    """A page as one HTML file that needs nothing else but the pictures that it names."""
    style = " ".join(_STYLE.split("\n")).strip()
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_shown(name)}</title><style>{style}</style>"
    )
    body = "\n".join(map(_part, parts))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _part(part: Part) -> str:
    match part:
        case Table():
            return _table(part)
        case Figures():
            drawn = [f'<figure role="img" aria-label="{_shown(text)}">{svg}</figure>' for text, svg in part.drawings]
            return f'<div class="figures">{"".join(drawn)}</div>'
        case Listing():
            return f"<pre>{html.escape(part.text)}</pre>"
        case Folded():
            inner = "\n".join(map(_part, part.parts))
            return f"<details><summary>{_inline(part.title)}</summary>\n{inner}\n</details>"
    if part.startswith("#") and not isinstance(part, Verbatim):
        marks, _, text = part.partition(" ")
        return f"<h{len(marks)}>{_inline(text)}</h{len(marks)}>"
    if part.startswith("![") and not isinstance(part, Verbatim):
        text, _, target = part[2:-1].partition("](")
        return f'<p><img src="{html.escape(target)}" alt="{html.escape(text)}"></p>'
    return f"<p>{_inline(part)}</p>"


def _table(table: Table) -> str:
    """Columns of numbers only are set to the right."""
    right = [
        bool(table.rows) and all(not row[k] or _is_number(row[k]) for row in table.rows)
        for k in range(len(table.header))
    ]

    def line(cells: Sequence[str], tag: str) -> str:
        marks = [' class="n"' if number else "" for number in right]
        made = [f"<{tag}{mark}>{_inline(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True)]
        return f"<tr>{''.join(made)}</tr>"

    rows = "".join(line(cells, "td") for cells in table.rows)
    made = f"<table><thead>{line(table.header, 'th')}</thead><tbody>{rows}</tbody></table>"
    return f'<div class="wide">{made}</div>'


def _is_number(cell: str) -> bool:
    return not isinstance(cell, Verbatim) and _NUMBER.fullmatch(cell) is not None


def _shown(text: str) -> str:
    """Any text as HTML; characters that would turn or hide what stands beside them are replaced."""
    return html.escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def _inline(text: str) -> str:
    """`code` and *emphasis*."""
    if isinstance(text, Verbatim):
        return _shown(text)
    pieces = html.escape(text).split("`")
    made = [f"<code>{piece}</code>" if k % 2 else piece for k, piece in enumerate(pieces)]
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", "".join(made))


_POOL = 1000  # facts among which those that were told most clearly are looked for
_ALIKE = 3  # at most so many examples of one relation, asked for the same side
_BLOCK = 2**24  # scores at a time


class Example(NamedTuple):
    """A fact of a split of which one end was asked for."""

    question: str  # with names, and ? for what was asked
    answer: str  # the name of the true one
    rank: float
    probability: float | None  # of the true answer, where it was looked for
    instead: str  # what the model says first that is no fact of the data
    chance: float  # the probability of that


class _Queries(NamedTuple):
    """Every fact twice, asked for its tail and for its head, one after the other [2n]."""

    given: Tensor  # the entity that is known
    relation: Tensor  # R to 2R for heads
    target: Tensor
    rank: Tensor


def told(run: Run, split: str, sides: SideRanks, top: int) -> tuple[list[Example], list[Example]]:
    """The facts whose missing end the model found most clearly, and those where the true answer ranks last."""
    queries = _queries(run, split, sides)
    by_rank = queries.rank.argsort(stable=True)
    pool = by_rank[:_POOL]
    best = pool[_leads(run, queries, pool).argsort(descending=True, stable=True)]
    worst = queries.rank.argsort(descending=True, stable=True)
    good = [_example(run, queries, row, True) for row in _varied(queries, best, top) if queries.rank[row] <= 1]
    bad = [_example(run, queries, row, False) for row in _varied(queries, worst, top) if queries.rank[row] > 1]
    return good, bad


def _queries(run: Run, split: str, sides: SideRanks) -> _Queries:
    s, r, o = run.ranker.splits[split].unbind(1)
    R = run.ranker.num_relations
    pairs = ((s, o), (r, r + R), (o, s), (sides.tail.realistic, sides.head.realistic))
    return _Queries(*(torch.stack(pair, 1).flatten() for pair in pairs))


@torch.inference_mode()
def _leads(run: Run, queries: _Queries, rows: Tensor) -> Tensor:
    """By how much the score of each target exceeds the best of those that are no known answer [n]."""
    task, found = run.ranker, []
    for part in torch.split(rows, max(1, _BLOCK // task.num_entities)):
        given, relation, target = queries.given[part], queries.relation[part], queries.target[part]
        scores = task.model.score(run.encoded, given, relation)  # [B, N]
        own = scores.gather(1, target.unsqueeze(1)).squeeze(1)
        rivals = scores.index_put(task.known.lookup(given, relation), scores.new_tensor(-torch.inf))
        found.append(own - rivals.scatter(1, target.unsqueeze(1), -torch.inf).amax(1))
    return torch.cat(found) if found else rows.double()


def _varied(queries: _Queries, order: Tensor, top: int) -> list[int]:
    """The first of an order, not too many of a kind."""
    chosen: list[int] = []
    counts: dict[int, int] = {}
    for row, relation in zip(order.tolist(), queries.relation[order].tolist(), strict=True):
        counts[relation] = counts.get(relation, 0) + 1
        if counts[relation] <= _ALIKE:
            chosen.append(row)
        if len(chosen) == top:
            break
    return chosen


def _example(run: Run, queries: _Queries, row: int, probable: bool) -> Example:
    """One of them with names; the probability of the true answer is looked for where it stands among the first."""
    assert isinstance(run.data, KnowledgeGraph)
    R, entities, relations = run.data.num_relations, run.data.entities, run.data.relations
    given, relation, target = (int(part[row]) for part in queries[:3])
    rank = float(queries.rank[row])
    tail = relation < R
    asked = partial(run.predict, entities.ids[given] if tail else None, relations.ids[relation % R])
    asked = asked if tail else partial(asked, tail=entities.ids[given])
    shown, told = entities.names[given], relations.names[relation % R]
    question = f"{shown} — {told} — ?" if tail else f"? — {told} — {shown}"
    chance = None
    if probable:  # before it stand those that are known answers too
        known = len(run.ranker.known.lookup(queries.given[row : row + 1], queries.relation[row : row + 1])[0])
        answers = asked(top=known + int(rank))
        chance = next((one.probability for one in answers if one.entity == entities.ids[target]), None)
    other = asked(top=1, new=True)
    name, its = (other[0].name, other[0].probability) if other else ("", 0.0)
    return Example(question, entities.names[target], rank, chance, name, its)


def classified(run: Run, split: str, top: int) -> tuple[list[Classified], list[Classified]]:
    """The items of a split whose class the model was most certain of, rightly and wrongly."""
    classes = run.classes
    found = run.classify([classes.vocabulary.ids[row] for row in classes.splits[split]])
    found.sort(key=lambda one: -one.probability)
    right, wrong = ([one for one in found if (one.label == one.known) is so] for so in (True, False))
    return right[:top], wrong[:top]


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
    ranks = run.ranker.ranks(split)
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


_FOLD = re.compile(r"fold \d+ of \d+")


def parameters(task: Any) -> int:
    """How many numbers were trained of those that score; none of what was fitted, nor of what chose the negatives."""
    if isinstance(task.model, LogProbabilities):
        return 0
    scoring = (one for name, one in task.model.named_parameters() if not name.startswith("adversary."))
    return sum(weights.numel() for weights in scoring)


def curve(path: Path) -> dict[str, list[float]]:
    """Loss and validation figures of the epochs that were evaluated; of a cross-validation their means over folds."""
    rows: dict[int, list[dict[str, float]]] = {}
    for event in _events(path):
        if event.get("event") == "epoch" and _FOLD.fullmatch(event.get("part", "fold 1 of 1")):
            rows.setdefault(event["epoch"], []).append({"loss": event["loss"], **event["valid"]})
    columns: dict[str, list[float]] = {"epoch": []}
    seen = {key for many in rows.values() for one in many for key in one}
    keys = [key for key in ("loss", "mrr", "accuracy", "log_likelihood") if key in seen]
    for epoch in sorted(rows):
        if all(key in one for one in rows[epoch] for key in keys):
            columns["epoch"].append(epoch)
            for key in keys:
                values = [one[key] for one in rows[epoch]]
                columns.setdefault(key, []).append(sum(values) / len(values))
    return columns


def _events(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # cut short by a kill
            continue
