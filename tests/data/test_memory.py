"""Triples in memory, and graphs of NetworkX and PyG, are the same graph as in a file."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import compgcn
from compgcn.data import KnowledgeGraph, read
from compgcn.errors import InputError
from toy import facts

ROWS = [("a", "r", "b"), ("b", "q", "c"), ("é", "r", "a"), ("007", "q", "1e5"), ("a", "r", "b"), ("c", "q", "c")]


def columns(rows: list[tuple[str, ...]]) -> list[list[str]]:
    return [list(column) for column in zip(*rows, strict=True)]


def frame(rows: list[tuple[str, ...]]) -> Any:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    return pandas.DataFrame(rows, columns=["x", "y", "z"])


SHAPES: dict[str, Callable[[list[tuple[str, ...]]], Any]] = {
    "tuples": lambda rows: rows,
    "generator": lambda rows: (row for row in rows),
    "array": np.array,
    "pandas": frame,
    "pandas, rows chosen": lambda rows: frame([*rows, ("x", "y", "z")]).iloc[:-1].set_index(np.arange(len(rows)) * 3),
    "pandas, named": lambda rows: frame(rows).set_axis(["head", "rel", "tail"], axis=1)[["tail", "head", "rel"]],
    "pyarrow": lambda rows: pa.table(columns(rows), names=["x", "y", "z"]),
}


def same(one: KnowledgeGraph, other: KnowledgeGraph) -> None:
    assert one.fingerprint() == other.fingerprint()
    assert one.notes == other.notes
    assert one.entities.names == other.entities.names


def written(path: Path, rows: list[tuple[str, ...]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_a_graph_in_memory_is_that_of_the_file(tmp_path: Path, shape: str) -> None:
    file = written(tmp_path / "graph.csv", ROWS)
    same(read(SHAPES[shape](ROWS)), read(file))
    more = {"split_seed": 3, "valid_fraction": 0.2, "exclude": ["r"]}
    same(read(SHAPES[shape](ROWS), **more), read(file, **more))
    assert read(SHAPES[shape](ROWS), name="mine").name == "mine"


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"'), min_size=1, max_size=3)


@given(rows=st.lists(st.tuples(TEXT, TEXT, TEXT).filter(lambda row: all(t.strip(" ") for t in row)), min_size=1))
def test_whatever_the_ids_the_graph_is_that_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    file = written(tmp_path_factory.mktemp("given") / "triples.csv", list(rows))
    of_file = read(file)
    # The notes name the file, and the list is called triples.
    of_file = replace(of_file, notes=tuple(note.replace(str(file), "triples") for note in of_file.notes))
    same(read(rows), of_file)


def test_a_first_row_that_names_the_columns_is_skipped(tmp_path: Path) -> None:
    rows = [("tail", "\thead ", "relation"), ("b", "a", "r"), ("c", "b", "q")]
    file = written(tmp_path / "x.csv", rows)
    graph = read(rows)
    assert graph.fingerprint() == read(file).fingerprint() == read([("a", "r", "b"), ("b", "q", "c")]).fingerprint()
    assert graph.notes[0] == "the first line of 'triples' names the columns and was skipped"
    with pytest.raises(InputError, match="holds a header"):
        read(rows[:1])


def test_columns_are_chosen_by_name_or_position(tmp_path: Path) -> None:
    rows = [(str(i), s, o, r) for i, (s, r, o) in enumerate(ROWS)]
    expected = read(ROWS).fingerprint()
    assert read(rows, columns=(1, 3, 2)).fingerprint() == expected
    assert read(np.array(rows), columns=(1, 3, 2)).fingerprint() == expected
    assert read([("year", "who", "whom", "how"), *rows], columns=("who", "how", "whom")).fingerprint() == expected
    table = pa.table(columns(rows), names=["year", "who", "whom", "how"])
    assert KnowledgeGraph.from_triples(table, ("who", "how", "whom")).fingerprint() == expected
    assert read(table, columns=(1, 3, 2)).fingerprint() == expected


def test_three_tables_are_three_splits(tmp_path: Path) -> None:
    parts = {"train": ROWS, "valid": ROWS[:1], "test": [("new", "r", "a")]}
    files = {part: written(tmp_path / f"{part}.csv", rows) for part, rows in parts.items()}
    same(read(train=ROWS, valid=np.array(ROWS[:1]), test=parts["test"]), read(**files))
    same(read(train=files["train"], valid=ROWS[:1], test=files["test"]), read(**files))
    same(compgcn.KnowledgeGraph.from_triples(ROWS), read(files["train"]))


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ([], "'triples' is empty"),
        ([("a", "r", "b"), ("a", "r")], r"row 2: expected \(subject, relation, object\), found \('a', 'r'\)"),
        (["arb"], r"row 1: expected \(subject, relation, object\), found 'arb'"),
        ([("a", "r", "b"), ("a", "r", None)], "row 2: an id is missing"),
        ([("a", "r", float("nan"))], "row 1: an id is missing"),
        ([("a", " ", "b")], "row 1: an id is empty"),
        ([("a", "r", 0.5)], "row 1: 0.5 is no id; ids are text or whole numbers"),
        ([("a", "r", True)], "row 1: True is no id"),
        ([("a", "r", "\ud800")], "an id that is no text"),
        (np.array([[0.5, 1.0, 2.0]]), "row 1: 0.5 is no id"),
        (np.zeros((2, 2, 3)), "row 1: expected"),
        ({"a": "b"}, "triples are read from a file, or from a list of .*, not from dict"),
        (pa.table({"x": ["a"], "y": ["r"], "z": ["b"], "w": ["c"]}), "call three of them head, relation and tail"),
    ],
)
def test_what_holds_no_triples_is_refused_in_a_sentence(given_: Any, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as error:
        read(given_)
    assert "\n" not in str(error.value)


def test_a_gap_in_a_data_frame_is_refused() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    for gap in (["b", None], pandas.array(["b", None], dtype="string"), pandas.array([3, None], dtype="Int64")):
        with pytest.raises(InputError, match="row 2: an id is missing"):
            read(pandas.DataFrame({"s": ["a", "b"], "r": ["r", "r"], "o": gap}))


nx = pytest.importorskip("networkx", reason="networkx is not installed")


def test_a_networkx_graph_gives_its_edges_by_attribute_or_key() -> None:
    given = nx.MultiDiGraph()
    given.add_edge("a", "b", relation="r")
    given.add_edge("a", "b", key="q")
    given.add_edge("b", 7, relation="r")
    given.add_node("alone")
    graph = KnowledgeGraph.from_networkx(given, name="mine")
    assert {*facts(graph)} == {("a", "r", "b"), ("a", "q", "b"), ("b", "r", "7")}
    assert graph.entities.ids == ("a", "b", "7", "alone")
    assert "1 entity without any triple; kept" in graph.notes
    assert graph.name == "mine"
    simple = nx.DiGraph([("a", "b", {"kind": "r"})])
    assert facts(KnowledgeGraph.from_networkx(simple, "kind")) == [("a", "r", "b")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (nx.DiGraph([("a", "b")]), "the edge from 'a' to 'b' has no attribute 'relation'"),
        (nx.Graph([("a", "b", {"relation": "r"})]), "is undirected"),
        (nx.DiGraph(), "has no edges"),
        (nx.DiGraph([(1, "1", {"relation": "r"})]), "entity id '1' occurs more than once"),
        ([("a", "r", "b")], "expected a NetworkX graph, not list"),
    ],
)
def test_a_networkx_graph_that_does_not_fit_is_refused(given: object, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        KnowledgeGraph.from_networkx(given)


def pyg(**more: torch.Tensor) -> object:
    data = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")
    return data.Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=4, **more)


def test_a_pyg_graph_gives_its_edges_and_is_split_without_labels() -> None:
    graph = KnowledgeGraph.from_pyg(pyg(edge_type=torch.tensor([0, 2, 0])))
    assert {*facts(graph)} == {("0", "0", "1"), ("1", "2", "2"), ("2", "0", "0")}
    assert (graph.num_entities, graph.num_relations) == (4, 3)
    assert any("split into" in note for note in graph.notes)
    with pytest.raises(InputError, match="needs edge_index"):
        KnowledgeGraph.from_pyg(pyg())


def test_features_and_labels_of_a_pyg_graph_come_along() -> None:
    masks = {name: torch.eye(4)[i].bool() for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    x = torch.arange(8.0).reshape(4, 2)
    given = pyg(edge_type=torch.tensor([0, 1, 0]), x=x, y=torch.tensor([2, 0, 1, 0]), **masks)
    graph = KnowledgeGraph.from_pyg(given)
    assert [rows.tolist() for rows in graph.labels.splits.values()] == [[[0, 2]], [[1, 0]], [[2, 1]]]
    assert graph.labels.classes == ("0", "1", "2")
    np.testing.assert_array_equal(graph.node_features, x.numpy())
    assert len(graph.train) == 3
    lists = {"train_idx": torch.tensor([3]), "train_y": torch.tensor([1]), "test_idx": torch.tensor([0])}
    graph = KnowledgeGraph.from_pyg(pyg(edge_type=torch.tensor([0, 1, 0]), **lists, test_y=torch.tensor([0])))
    assert [rows.tolist() for rows in graph.labels.splits.values()] == [[[3, 1]], [], [[0, 0]]]


def test_a_heterogeneous_pyg_graph_has_nodes_by_type_and_relations_by_middle_name() -> None:
    data = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")
    given = data.HeteroData()
    given["paper"].num_nodes = 2
    given["author"].num_nodes = 2
    given["author"].y = torch.tensor([1, 0])
    given["author"].train_mask = torch.tensor([True, False])
    given["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [1, 0]])
    given["paper", "cites", "paper"].edge_index = torch.tensor([[0], [1]])
    graph = KnowledgeGraph.from_pyg(given)
    writes = {("author/0", "writes", "paper/1"), ("author/1", "writes", "paper/0")}
    assert {*facts(graph)} == writes | {("paper/0", "cites", "paper/1")}
    assert graph.labels.train.tolist() == [[graph.entities.index("author/0"), 1]]
