"""Figures of data sets: formats, panels, repeatable bytes, and refusals."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

import toy
from compgcn.data import GraphCollection, KnowledgeGraph, Vocabulary
from compgcn.data.statistics import summarise
from compgcn.errors import InputError
from compgcn.run.plots import check_figure, draw_summary

MAGIC = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def molecules() -> GraphCollection:
    return replace(toy.molecules(), relations=Vocabulary("relation", ["$single_$", "double" * 20]))


@pytest.mark.parametrize("kind", MAGIC)
@pytest.mark.parametrize("data", [toy.graph(empty=("valid", "test")), molecules()], ids=["links", "graphs"])
def test_a_figure_has_the_format_of_its_ending(
    tmp_path: Path, kind: str, data: KnowledgeGraph | GraphCollection
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"x.{kind}"
    draw_summary(summarise(data), path)
    drawn = path.read_bytes()
    assert drawn.startswith(MAGIC[kind])
    for place, words in ((path, "full; the old file is untouched"), (path.with_stem("new"), "full$")):
        with mock.patch("os.fsync", side_effect=OSError("full")), pytest.raises(OSError, match=words):
            draw_summary(summarise(data), place)
    assert path.read_bytes() == drawn
    if kind == "svg":
        draw_summary(summarise(data), path)
        assert path.read_bytes() == drawn


def test_many_relations_are_drawn_by_rank_and_few_by_name(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    many = [(i % 5, i, (i + 1) % 5) for i in range(40)]
    texts = []
    for data in (toy.graph(), toy.numbered(many, 5, 40, test=many[:3])):
        draw_summary(summarise(data), tmp_path / "x.svg")
        texts.append((tmp_path / "x.svg").read_text())
    assert "<!-- lives -->" in texts[0]
    assert "<!-- rank of the relation -->" in texts[1]
    assert all("<!-- Leakage -->" in text for text in texts)


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'compgcn\[plot\]'"):
        check_figure(tmp_path / "x.png")
