"""`data info` of a name, a file, a folder of splits or of graphs: text, JSON and a figure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import toy
from compgcn.data import DATASETS
from toy import Command, graph, refused, write_tsv

TU = {"A": "1, 2\n2, 1\n", "graph_indicator": "1\n1\n2\n", "graph_labels": "0\n1\n", "node_labels": "3\n3\n4\n"}


@pytest.fixture
def molecules(tmp_path: Path) -> Path:
    folder = tmp_path / "molecules"
    folder.mkdir()
    for name, text in TU.items():
        (folder / f"M_{name}.txt").write_text(text)
    return folder


@pytest.mark.parametrize("words", [["--columns", "3,0,1"], ["--columns", "d,a,b"], ["--set", "columns=d,a,b"]])
def test_the_columns_of_a_table_are_named_as_for_train(command: Command, words: list[str]) -> None:
    header = "" if words[1][0] == "3" else "a,b,c,d\n"
    Path("table.csv").write_text(header + "".join(f"likes,tea,x{i},p{i}\n" for i in range(9)))
    report = json.loads(command("data", "info", "table.csv", *words, "--json").out)
    assert report["by_relation"] == {"likes": 9}
    assert report["entities"] == 10


def test_a_folder_of_graphs_is_described(command: Command, molecules: Path) -> None:
    shown = command("data", "info", molecules).out
    assert "M: 2 graphs, 3 nodes, 2 edges (1.5 and 1.0 a graph), 1 relation, 2 node labels, 2 classes" in shown
    assert "note: 1 graph without an edge kept" in shown
    assert re.search(r"^ *3 +2 +66\.7 %", shown, re.MULTILINE)
    report = json.loads(command("data", "info", molecules, "--json").out)
    assert report["graphs"] == 2
    assert report["distributions"]["classes of graphs"] == {"all": {"0": 1, "1": 1}}


def test_a_folder_of_three_splits_is_described_with_its_leakage(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for split in ("train", "valid", "test"):
        write_tsv(tmp_path / "mine" / f"{split}.tsv", graph(), split)
    shown = command("data", "info", "mine").out
    assert "mine: 12 entities, 3 relations, 24 triples (18 train, 3 valid, 3 test)" in shown
    assert "symmetric relations: none" in shown
    assert re.search(r"^any of these +\d+ +\d+\.\d % +\d+ +\d+\.\d %", shown, re.MULTILINE)
    assert shown.partition("\n")[0] in command("train", "mine/", *toy.flags({**toy.SMALL, "epochs": 0})).out


def test_few_or_no_validation_triples_are_noted(command: Command, tmp_path: Path) -> None:
    lines = [f"a\tr\ta{i}\n" for i in range(100)] + [f"b{i}\tr\tb{j}\n" for i in range(6) for j in range(i)]
    (tmp_path / "small.tsv").write_text("".join(lines))
    shown = command("data", "info", "small.tsv").out
    assert "115 triples (104 train, 5 valid, 6 test)" in shown
    assert "note: only 5 validation triples: which epoch is best is a matter of chance" in shown
    (tmp_path / "once.tsv").write_text("".join(f"a{i}\tr\tb{i}\n" for i in range(50)))
    shown = command("data", "info", "once.tsv").out
    assert "split into 50 / 0 / 0 (train / valid / test)" in shown
    assert "every entity and every relation must keep a triple in train" in shown
    assert "note: no validation triples: which epoch is best cannot be told, and the last one is kept" in shown
    assert "valid" not in command("data", "info", "world").out.partition("note:")[2].partition("\n")[0]


def test_values_in_a_table_are_named_with_the_way_to_leave_them_out(command: Command, tmp_path: Path) -> None:
    lines = [f"film{i}\tyear\t{1990 + i}\nfilm{i}\tnext\tfilm{i + 1}\n" for i in range(20)]
    (tmp_path / "films.tsv").write_text("".join(lines))
    shown = command("data", "info", "films.tsv").out
    assert "note: the objects of 'year' are numbers or dates, and became 20 entities" in shown
    way = re.search(r"--set '(exclude=.*)'", shown)
    assert way is not None
    left = command("data", "info", "films.tsv", "--set", way[1]).out
    assert "20 triples of 1 excluded relation left out" in left
    assert "numbers or dates" not in left


def test_sizes_stand_beside_the_published_and_the_papers(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    row = DATASETS["world"]
    with_paper = SimpleNamespace(**row._asdict() | {"paper": {"entities": 3000, "mean_nodes": 25.5}})
    monkeypatch.setitem(DATASETS, "world", with_paper)  # type: ignore[arg-type]
    shown = command("data", "info", "world").out
    assert re.search(r"^entities +3,090 +3,090 +3,000", shown, re.MULTILINE)
    assert re.search(r"^mean nodes +- +- +25\.5", shown, re.MULTILINE)
    assert json.loads(command("data", "info", "world", "--json").out)["paper"]["entities"] == 3000


def test_a_figure_is_drawn_and_a_bad_ending_refused_before_any_work(command: Command, molecules: Path) -> None:
    pytest.importorskip("matplotlib")
    assert "the figure is x.png" in command("data", "info", molecules, "--plot", "x.png").out
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
    refused(command("data", "info", "nothing.tsv", "--plot", "x.gif"), "a .png, .pdf or .svg file")


def test_long_names_keep_their_ends_and_the_longest_bar_is_that_of_the_most_frequent(command: Command) -> None:
    names = [f"{i}{'long ' * 20}{i}" for i in range(2)]
    Path("x.tsv").write_text("".join(f"a{i}\t{names[i % 4 == 0]}\tb{i}\n" for i in range(40)))
    shown = command("data", "info", "x.tsv").out
    assert re.search(r"^0long .*long 0 +30 +█{28}$", shown, re.MULTILINE)
    assert re.search(r"^1long .*long 1 +10 +█{9} *$", shown, re.MULTILINE)


def test_a_terminal_without_blocks_gets_plain_letters(tmp_path: Path) -> None:
    write_tsv(tmp_path / "x.tsv", graph())
    line = [sys.executable, "-m", "compgcn", "data", "info", "x.tsv"]
    environment = {**toy.ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert shown.isascii()
    assert "##" in shown
    assert "?" not in shown
