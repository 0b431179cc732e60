"""The page of a run has the metrics of the run, shows names as they are, and needs no other file."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from compgcn.data import Vocabulary
from compgcn.run.report import Table, Verbatim, page_html, told, write_page
from compgcn.run.run import Run, open_run
from compgcn.train.loop import Interrupted
from toy import CLASSES, Command, classify, graph, labelled, molecules, refused, train

EVIL = "<script>alert('*a* `b` & \"c\"')</script>\u202e"
VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Tags that open and close, their references, and the text of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        values = dict(attrs)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.references += [values[key] or "" for key in ("src", "href", "xlink:href") if key in values]
        self.cells += [""] if tag == "td" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.cells[-1] += data


def read(path: Path) -> tuple[str, Reader]:
    """Read a page, which stands alone and whose drawings are sound XML."""
    text = path.read_text(encoding="utf-8")
    page = Reader(text)
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert "@import" not in text
    assert all(reference.startswith(("#", "data:")) for reference in page.references)
    assert len(set(page.ids)) == len(page.ids)
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)
        assert "#333333" not in drawing  # which a dark page would swallow
    return text, page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    plain = graph(20, 5, valid=6, test=12)
    names = [f"{EVIL} {text}" if k % 3 else text for k, text in enumerate(plain.entities.ids)]
    data = replace(
        plain,
        entities=Vocabulary("entity", plain.entities.ids, names),
        relations=Vocabulary("relation", plain.relations.ids, ["lives", "born", EVIL]),
    )
    return train(tmp_path_factory.mktemp("page") / "run", data, epochs=4)


@pytest.fixture(scope="module")
def written(run: Run) -> Path:
    return write_page(run)


def test_the_page_of_links_has_its_metrics_and_shows_names_as_they_are(run: Run, written: Path) -> None:
    assert written == run.path / "report.html"
    text, page = read(written)
    assert page.tags["svg"] == 5  # loss, MRR, by category, by relation, calibration
    for report in (run.metrics["valid"], run.metrics["test"]["head"], *run.evaluate("test", "relation").values()):
        assert f"{report['mrr']:.4f}" in page.cells
    assert f"{run.config.training.lr}" in text
    assert "peak memory mib" in page.cells
    shown = EVIL.replace("\u202e", "\N{REPLACEMENT CHARACTER}")
    assert shown in page.cells
    assert any(cell.startswith(f"{shown} p") for cell in page.cells)


def test_without_matplotlib_the_page_has_its_tables_and_a_note(
    run: Run, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name))
    text, page = read(write_page(run, tmp_path / "without.html"))
    assert "matplotlib is not installed" in text
    assert page.tags["svg"] == 0
    assert page.cells == read(written)[1].cells


def test_examples_are_the_best_and_the_worst_of_their_split(run: Run) -> None:
    ranks = run.task.ranks("test")
    all_ranks = sorted([*ranks.tail.realistic.tolist(), *ranks.head.realistic.tolist()])
    good, bad = told(run, "test", ranks, top=100)
    assert [one.rank for one in bad] == sorted((one.rank for one in bad), reverse=True)
    assert bad[0].rank == all_ranks[-1]
    assert [one.rank for one in good] == [1.0] * len(good)
    assert bool(good) == (all_ranks[0] == 1)
    for one in good:
        head, relation, tail = (None if part == "?" else part for part in one.query.split(" — "))
        found = run.predict(head, relation, tail, top=100)
        assert (one.answer, one.probability) in [(answer.name, answer.probability) for answer in found]
        assert one.instead == next(answer.name for answer in found if answer.known is None)


def test_a_run_without_held_out_facts_and_an_unfinished_run_have_a_page(tmp_path: Path) -> None:
    alone = train(tmp_path / "alone", graph(empty=("valid", "test")))
    assert "The data have no validation or test facts" in read(write_page(alone))[0]
    steps = iter([False] * 8 + [True] * 9)
    with pytest.raises(Interrupted):
        train(tmp_path / "part", interrupted=lambda: next(steps), epochs=9)
    assert "The run is not finished" in read(write_page(open_run(tmp_path / "part", "cpu")))[0]


def test_the_page_of_a_classification_has_its_matrix_and_the_most_certain_errors(tmp_path: Path) -> None:
    nodes = classify(tmp_path / "nodes", labelled(40, valid=8), epochs=2, lr=0.003)
    text, page = read(write_page(nodes))
    found = [one for one in nodes.classify([f"p{k}" for k in range(13)]) if one.label != one.known]
    assert found
    certain = max(found, key=lambda one: one.probability)
    assert f"<td>{certain.name}</td><td>{certain.label}</td><td>{certain.known}</td>" in text
    assert {str(count) for row in nodes.metrics["test"]["confusion"] for count in row} <= set(page.cells)
    graphs = classify(tmp_path / "graphs", molecules(), **CLASSES | {"epochs": 2, "folds": 2})
    assert "does not keep the models of the folds" in read(write_page(graphs))[0]


def test_the_command_writes_the_same_page_and_refuses_other_places(
    command: Command, run: Run, written: Path, tmp_path: Path
) -> None:
    assert json.loads(command("report", run.path, "--to", "page.html", "--json").out) == ["page.html"]
    assert Path("page.html").read_bytes() == written.read_bytes()
    Path("b/crm-best-0").mkdir(parents=True)
    for words, sentence in (
        ((tmp_path,), "is not a run folder"),
        ((run.path, "--to", "no/page.html"), "there is no folder 'no'"),
        ((run.path, "--to", tmp_path), "a .html file"),
        ((run.path, "--to", run.path / "config.toml"), "a .html file, not 'config.toml'"),
        (("runs/mistyped",), "there is no run folder runs/mistyped"),
        ((f"{run.path}x",), f"there is no run folder {run.path}x; did you mean '{run.path}'?"),
        (("b/crm",), "there is no run folder b/crm; did you mean 'b/crm-best-0'?"),
    ):
        refused(command("report", *words), sentence)


def test_text_from_outside_has_no_markup_and_numbers_stand_at_the_right() -> None:
    table = Table(("name", "count"), [[Verbatim("*a* `b`"), "1,234"], ["*a* `b`", "–"]])
    text = page_html([table], "<t>")
    assert "<td>*a* `b`</td>" in text
    assert "<td><em>a</em> <code>b</code></td>" in text
    assert '<td class="n">1,234</td>' in text
    assert "<title>&lt;t&gt;</title>" in text
