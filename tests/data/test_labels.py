"""Labels and features of nodes: read as given, split fairly where nothing is given; a mistake is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.config import parse_setting
from compgcn.data import KnowledgeGraph, read
from compgcn.data.labels import deal
from compgcn.errors import InputError
from toy import Write


@pytest.fixture
def graph_file(write: Write) -> Path:
    """a chain of twenty nodes n0 .. n19"""
    return write("g.tsv", "".join(f"n{i}\tr\tn{i + 1}\n" for i in range(19)))


def named(graph: KnowledgeGraph, part: str) -> dict[str, str]:
    return {graph.entities.ids[node]: graph.labels.classes[c] for node, c in graph.labels.splits[part].tolist()}


def test_a_header_or_a_third_column_of_something_else_is_answered_with_the_setting_for_it(
    graph_file: Path, write: Write
) -> None:
    header, rows = "person,dept,comment\n", "n1,red,new here\nn2,blue,\nn3,blue,?\n"
    for content, way in ((header + rows, "label_columns=person,dept"), (rows, "label_columns=[0,1]")):
        path = write("l.csv", content)
        with pytest.raises(InputError, match=r"is none of train, valid and test; if this line names") as error:
            read(graph_file, labels=path)
        assert way in str(error.value)
        graph = read(graph_file, labels=path, label_columns=parse_setting(way)[1])
        assert graph.labels.classes == ("blue", "red")
    with pytest.raises(InputError, match="label_columns=person,dept,part;"):
        read(graph_file, labels=write("l.csv", "person,dept,part\nn1,red,train\nn2,blue,test\n"))


def test_a_column_says_the_split_and_all_triples_are_for_training(graph_file: Path, write: Write) -> None:
    table = "node\tlabel\tsplit\nn1\tred\ttrain\nn2\tblue\tval\nn3\tblue\tTest\n"
    graph = read(graph_file, labels=write("l.tsv", table))
    assert named(graph, "train") == {"n1": "red"}
    assert named(graph, "valid") == {"n2": "blue"}
    assert named(graph, "test") == {"n3": "blue"}
    sizes = graph.statistics()
    assert (sizes["train"], sizes["valid"], sizes["test"]) == (19, 0, 0)
    assert (sizes["classes"], sizes["train_labels"], sizes["valid_labels"], sizes["test_labels"]) == (2, 1, 1, 1)


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("n1,red\nn2,blue\n", None),
        ("Entity,Class\nn1,red\nn2,blue\n", None),
        ("1,red,0.5,n1\n2,blue,0.5,n2\n", (3, 1)),
        ("colour,what\nred,n1\nblue,n2\n", ("what", "colour")),
    ],
)
def test_the_columns_are_found_or_chosen(
    graph_file: Path, write: Write, table: str, columns: tuple[str | int, ...] | None
) -> None:
    graph = read(graph_file, labels=write("l.csv", table), label_columns=columns, test_fraction=0.0)
    assert named(graph, "train") == {"n1": "red", "n2": "blue"}


def test_labels_in_parquet_are_read_alike(graph_file: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"node": ["n1", "n2"], "x": [1.0, 2.0], "label": [0, 1]}), tmp_path / "l.parquet")
    graph = read(graph_file, labels=tmp_path / "l.parquet", test_fraction=0.0)
    assert named(graph, "train") == {"n1": "0", "n2": "1"}


def test_files_of_their_own_say_the_split_and_validation_is_drawn_from_training(graph_file: Path, write: Write) -> None:
    train = write("train.tsv", "".join(f"n{i}\tc{i % 2}\n" for i in range(10)))
    test = write("test.tsv", "n15\tc0\n")
    graph = read(graph_file, labels=train, test_labels=test, valid_fraction=0.2)
    assert named(graph, "test") == {"n15": "c0"}
    assert len(named(graph, "valid")) == 2
    assert set(named(graph, "train")) | set(named(graph, "valid")) == {f"n{i}" for i in range(10)}
    assert any("2 of the training labels used for validation" in note for note in graph.notes)
    valid = write("valid.tsv", "n16\tc1\n")
    graph = read(graph_file, labels=train, valid_labels=valid, test_labels=test)
    assert named(graph, "valid") == {"n16": "c1"}
    assert len(named(graph, "train")) == 10


def test_labels_of_other_nodes_are_counted_and_none_left_is_an_error(graph_file: Path, write: Write) -> None:
    graph = read(graph_file, labels=write("l.tsv", "n1\tred\nm1\tred\nm2\tgreen\n"))
    assert graph.labels.classes == ("red",)
    assert any("2 of 3 labelled nodes not in the graph, left out, such as 'm1', 'm2'" in note for note in graph.notes)
    with pytest.raises(InputError, match="none of the 1 labelled nodes is in the graph, such as 'm1'"):
        read(graph_file, labels=write("l.tsv", "m1\tred\n"))
    path = write("l.tsv", "person\tgroup\nn1\tred\nn2\tred\nm2\tgreen\n")
    notes = read(graph_file, labels=path).notes
    assert f"the first line of '{path}' looks like a header ('person' is no node of the graph), left out" in notes
    assert "1 of 3 labelled nodes not in the graph, left out, such as 'm2'" in notes
    for absent in ("m1\tred\nn2\tred\n", "node\tlabel\nm1\tblue\nn2\tred\n"):
        assert not any("header" in note for note in read(graph_file, labels=write("l.tsv", absent)).notes)


def test_labels_may_give_names_in_place_of_ids(graph_file: Path, write: Write) -> None:
    names = write("names.tsv", "n1\tAnn\nn2\tBo\nn3\tCid\nn4\tCid\n")
    table = "who\twhat\nann\tred\nBo\tblue\n"
    graph = read(graph_file, names=names, labels=write("l.tsv", table), test_fraction=0.0)
    assert named(graph, "train") == {"n1": "red", "n2": "blue"}
    assert any("looks like a header ('who' is" in note for note in graph.notes)
    notes = read(graph_file, names=names, labels=write("l.tsv", "n1\tred\nBo\tblue\n"), test_fraction=0.0).notes
    assert "1 of 2 labelled nodes not in the graph, left out, such as 'Bo'; give all by id" in notes
    for more, expected in (("Cid\tred\n", "'Cid' is shared by 2 ids"), ("ANN\tblue\n", "several names of one node")):
        with pytest.raises(InputError, match=expected):
            read(graph_file, names=names, labels=write("l.tsv", table + more))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("n1\tred\nn2\tred\nn1\tblue\n", "line 3: the node 'n1' is labelled 'blue', and 'red' before"),
        ("n1\tred\ttrain\nn1\tred\ttest\n", "line 2: the node 'n1' is in the split test, and in train before"),
        ("n1\tred\ttrain\nn2\tred\tlater\n", "line 2: the split 'later' is none of train, valid and test"),
        ("n1\tred\nn2\n", "line 2: expected 2 columns, found 1"),
        ("n1\t\n", "line 1: column 2 is empty"),
        ("", "is empty"),
        ("node\tlabel\n", "is empty: it holds a header and no label"),
        ("a\tb\tc\td\n", "has 4 columns; say with label_columns="),
        ("n1\tred\ttest\n", "none of the labelled nodes is for training"),
    ],
)
def test_a_contradiction_or_a_bad_line_is_named(graph_file: Path, write: Write, table: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read(graph_file, labels=write("l.tsv", table))


def test_what_does_not_go_together_is_refused(graph_file: Path, write: Write) -> None:
    table = write("l.tsv", "n1\tred\n")
    for arguments, expected in (
        ({"train": graph_file, "valid": graph_file, "test": graph_file, "labels": table}, "labels go with one file"),
        ({"path": graph_file, "test_labels": table}, "give labels= for training and test_labels="),
        ({"path": graph_file, "labels": write("m.tsv", "n1\tred\ttrain\n"), "test_labels": table}, "split of its own"),
        ({"path": graph_file, "labels": table, "label_columns": ("node",)}, "columns must be 2 names"),
    ):
        with pytest.raises(InputError, match=expected):
            read(**arguments)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), st.integers(0, 3), st.floats(0, 0.45), st.floats(0, 0.45))
def test_a_draw_is_a_partition_stratified_by_class(classes: list[int], seed: int, valid: float, test: float) -> None:
    rows = np.column_stack([np.arange(len(classes)), classes])
    parts = deal(rows, np.random.default_rng(seed), valid, test)
    assert sorted(row for part in parts for row in part[:, 0].tolist()) == list(range(len(classes)))
    assert set(parts[0][:, 1].tolist()) == set(classes)
    for part, share in zip(parts[1:], (valid, test), strict=True):
        assert len(part) <= share * len(classes) + 1.5


def test_a_draw_of_large_classes_keeps_their_shares() -> None:
    classes = np.repeat([0, 1, 2], [600, 300, 100])
    rows = np.column_stack([np.arange(1000), classes])
    for part, size in zip(deal(rows, np.random.default_rng(0), 0.1, 0.2), (700, 100, 200), strict=True):
        assert abs(len(part) - size) <= 1
        np.testing.assert_allclose(np.bincount(part[:, 1]), np.array([0.6, 0.3, 0.1]) * size, atol=2.5)


@pytest.fixture
def three_nodes(write: Write) -> Path:
    return write("g.tsv", "a\tr\tb\nb\tq\tc\n")


def test_an_array_is_taken_in_the_order_of_the_ids(three_nodes: Path, tmp_path: Path) -> None:
    nodes, relations = np.arange(6, dtype=np.int16).reshape(3, 2), np.eye(2)
    np.save(tmp_path / "n.npy", nodes)
    np.save(tmp_path / "r.npy", relations)
    graph = read(three_nodes, node_features=tmp_path / "n.npy", relation_features=tmp_path / "r.npy")
    np.testing.assert_array_equal(graph.node_features, nodes)
    np.testing.assert_array_equal(graph.relation_features, relations)


@pytest.mark.parametrize(
    "columns",
    [
        {"id": ["c", "a", "z", "b"], "x": [5, 1, 0, 3], "y": [6.0, 2.0, 0.0, 4.0]},
        {"key": ["c", "a", "z", "b"], "v": [[5.0, 6.0], [1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]},
    ],
)
def test_a_table_is_matched_by_id(three_nodes: Path, tmp_path: Path, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), tmp_path / "n.parquet")
    graph = read(three_nodes, node_features=tmp_path / "n.parquet")
    np.testing.assert_array_equal(graph.node_features, [[1, 2], [3, 4], [5, 6]])


def test_what_is_left_out_of_a_table_is_counted(three_nodes: Path, tmp_path: Path) -> None:
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"id": ["a", "b", "c", "y", "z"], "name": list("ABCYZ"), "x": [1.0] * 5}), path)
    notes = read(three_nodes, node_features=path).notes
    assert f"the features of 2 entity ids in '{path}' that the graph does not have left out" in notes
    assert f"1 text column in '{path}', such as 'name', left out of the features" in notes


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"id": ["a"], "x": [1.0]}, "no features of 2 of 3 entity ids, such as 'b', 'c'"),
        ({"id": ["a", "b", "c", "a"], "x": [1.0] * 4}, "several rows for the id 'a'"),
        ({"id": ["a", "b", "c"], "x": [1.0, None, 2.0]}, "has gaps"),
        ({"id": ["a", "b", "c"], "x": [[1.0], [1.0, 2.0], [3.0]]}, "differ in length"),
        ({"id": ["a", "b", "c"], "x": [[1.0], [None], [3.0]]}, "has gaps"),
        ({"id": ["a", "b", "c"], "x": [[1.0], [2.0], [3.0]], "y": [1, 2, 3]}, "expected columns of numbers"),
        ({"id": ["a", "b", "c"]}, "expected columns of numbers"),
        ({"id": ["a", "b", "c"], "x": ["1", "2", "3"]}, "expected columns of numbers"),
        ({"id": ["a", "b", "c"], "x": [1.0, 2.0, 1e300]}, "row 2 holds a NaN or an infinity"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    three_nodes: Path, tmp_path: Path, columns: dict[str, Any], expected: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "n.parquet")
    with pytest.raises(InputError, match=expected):
        read(three_nodes, node_features=tmp_path / "n.parquet")


def test_an_array_that_does_not_fit_or_is_a_pickle_is_refused(three_nodes: Path, tmp_path: Path, write: Write) -> None:
    np.save(tmp_path / "o.npy", np.array([{}] * 3), allow_pickle=True)
    np.save(tmp_path / "s.npy", np.zeros((2, 2)))
    for file, expected in (
        (tmp_path / "o.npy", "is not an array of numbers"),
        (tmp_path / "s.npy", r"shape \[2, 2\]; expected \[3, f\]"),
        (write("x.npy", b"nonsense"), "is not an array of numbers"),
        (write("x.npz", b""), "cannot read features"),
        (tmp_path / "none.npy", "there is no file"),
    ):
        with pytest.raises(InputError, match=expected):
            read(three_nodes, node_features=file)


def test_files_that_each_begin_with_a_header_are_told_how_to_name_it(graph_file: Path, write: Write) -> None:
    files = {
        "labels": write("a.tsv", "staff\tteam\nn1\tred\n"),
        "test_labels": write("b.tsv", "staff\tteam\nn2\tred\n"),
    }
    with pytest.raises(InputError, match="if this line names the columns, say --set label_columns=staff,team"):
        read(graph_file, **files)
    assert len(read(graph_file, label_columns=("staff", "team"), **files).labels.test) == 1
