"""The files of the explorer page, as they are."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "src" / "compgcn" / "serve" / "page"
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in PAGE.glob("*.js")}
MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setHTML"


def test_no_script_makes_markup_or_code_out_of_text() -> None:
    assert {name: re.findall(MARKUP, text) for name, text in SCRIPTS.items()} == {name: [] for name in SCRIPTS}


def test_every_file_that_the_page_names_is_there_and_none_comes_from_elsewhere() -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    named = re.findall(r'(?:src|href)="([^"#]+)"', html)
    named += [f"static/{name}" for text in SCRIPTS.values() for name in re.findall(r'from "\./([^"]+)"', text)]
    assert len(named) > len(SCRIPTS)
    assert {name for name in named if not (PAGE / name.removeprefix("static/")).is_file()} == set()
    everything = [*SCRIPTS.values(), html, (PAGE / "style.css").read_text(encoding="utf-8")]
    assert {url for text in everything for url in re.findall(r"https?://[^\s\"']+", text)} == {
        "http://www.w3.org/2000/svg"
    }


def test_the_page_has_neither_script_nor_style_inside_its_markup() -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", html) == []
