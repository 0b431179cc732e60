"""Features from files: rows in the order of the ids, or found by id, and never from a pickle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compgcn.data import read
from compgcn.errors import InputError

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def graph_file(write: Write) -> Path:
    return write("g.tsv", "a\tr\tb\nb\tq\tc\n")


def test_an_array_is_taken_in_the_order_of_the_ids(graph_file: Path, tmp_path: Path) -> None:
    nodes, relations = np.arange(6, dtype=np.int16).reshape(3, 2), np.eye(2)
    np.save(tmp_path / "n.npy", nodes)
    np.save(tmp_path / "r.npy", relations)
    graph = read(graph_file, node_features=tmp_path / "n.npy", relation_features=tmp_path / "r.npy")
    np.testing.assert_array_equal(graph.node_features, nodes)
    np.testing.assert_array_equal(graph.relation_features, relations)


@pytest.mark.parametrize(
    "columns",
    [
        {"id": ["c", "a", "z", "b"], "x": [5, 1, 0, 3], "y": [6.0, 2.0, 0.0, 4.0]},
        {"key": ["c", "a", "z", "b"], "v": [[5.0, 6.0], [1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]},
        {"name": ["C", "A", "Z", "B"], "id": ["c", "a", "z", "b"], "v": [[5, 6], [1, 2], [0, 0], [3, 4]]},
        {"id": ["c", "a", "b"], "v": pa.FixedSizeListArray.from_arrays(pa.array([5.0, 6, 1, 2, 3, 4]), 2)},
    ],
)
def test_a_table_is_matched_by_id(graph_file: Path, tmp_path: Path, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), tmp_path / "n.parquet")
    graph = read(graph_file, node_features=tmp_path / "n.parquet")
    np.testing.assert_array_equal(graph.node_features, [[1, 2], [3, 4], [5, 6]])


def test_what_is_left_out_of_a_table_is_counted(graph_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"id": ["a", "b", "c", "y", "z"], "name": list("ABCYZ"), "x": [1.0] * 5}), path)
    notes = read(graph_file, node_features=path).notes
    assert f"the features of 2 entity ids in '{path}' that the graph does not have left out" in notes
    assert f"1 text column in '{path}', such as 'name', left out of the features" in notes
    pq.write_table(pa.table({"id": ["a", "b", "c"], "x": [1.0] * 3}), path)
    assert not any("left out" in note for note in read(graph_file, node_features=path).notes)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"id": ["a"], "x": [1.0]}, "no features of 2 of 3 entity ids, such as 'b', 'c'"),
        ({"id": ["a", "b", "c", "a"], "x": [1.0] * 4}, "several rows for the id 'a'"),
        ({"id": ["a", "b", "c"], "x": [1.0, None, 2.0]}, "has gaps"),
        ({"id": ["a", "b", "c"], "x": [[1.0], [1.0, 2.0], [3.0]]}, "differ in length"),
        ({"id": ["a", "b", "c"], "x": [[1.0], [None], [3.0]]}, "has gaps"),
        ({"id": ["a", "b", "c"], "x": ["1", "2", "3"]}, "expected columns of numbers"),
        ({"id": ["a", "b", "c"], "x": [[1.0], [2.0], [3.0]], "y": [1, 2, 3]}, "expected columns of numbers"),
        ({"id": ["a", "b", "c"], "x": [1.0, 2.0, 1e300]}, "row 2 holds a NaN or an infinity"),
        ({"id": ["a", "b", "c"]}, "expected columns of numbers"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    graph_file: Path, tmp_path: Path, columns: dict[str, Any], expected: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "n.parquet")
    with pytest.raises(InputError, match=expected):
        read(graph_file, node_features=tmp_path / "n.parquet")


def test_an_array_that_does_not_fit_or_is_a_pickle_is_refused(graph_file: Path, tmp_path: Path, write: Write) -> None:
    np.save(tmp_path / "o.npy", np.array([{}] * 3), allow_pickle=True)
    np.save(tmp_path / "s.npy", np.zeros((2, 2)))
    np.save(tmp_path / "cut.npy", np.zeros((3, 200)))
    whole = (tmp_path / "cut.npy").read_bytes()
    for file, expected in (
        (tmp_path / "o.npy", "is not an array of numbers"),
        (tmp_path / "s.npy", r"shape \[2, 2\]; expected \[3, f\]"),
        (write("cut.npy", whole[:-8]), "is not an array of numbers"),
        (write("x.npy", b"nonsense"), "is not an array of numbers"),
        (write("x.npz", b""), "cannot read features"),
        (tmp_path / "none.npy", "there is no file"),
    ):
        with pytest.raises(InputError, match=expected):
            read(graph_file, node_features=file)
