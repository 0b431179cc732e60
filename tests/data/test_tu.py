"""The TU format: the published collections have their sizes, any bytes give a collection or one error."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.data import collection
from compgcn.data.collection import GraphCollection
from compgcn.errors import InputError

# Two graphs: a triangle of two kinds of edge with an odd label, and a single node.
FILES = {
    "X_A.txt": "1, 2\n2, 1\n2, 3\n3, 2\n",
    "X_graph_indicator.txt": "1\n1\n1\n2\n",
    "X_graph_labels.txt": "1\n-1\n",
    "X_node_labels.txt": "6\n6\n8\n6\n",
    "X_edge_labels.txt": "5\n5\n7\n7\n",
    "X_node_attributes.txt": "0.5, 1\n-1, 2e1\n0, 3\n.25, 4.\n",
}


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def read(**changes: str | bytes | None) -> GraphCollection:
    """Read the files above with some of them changed, or taken away."""
    files = {**FILES, **{f"X_{name}.txt": text for name, text in changes.items()}}
    with tempfile.TemporaryDirectory() as folder:
        return collection.read(write(Path(folder), {name: text for name, text in files.items() if text is not None}))


def test_the_files_say_what_is_in_the_collection() -> None:
    graphs = read()
    assert (graphs.name, len(graphs), graphs.graph_ids) == ("X", 2, ("1", "2"))
    assert graphs.triples.tolist() == [[0, 0, 1], [1, 0, 0], [1, 1, 2], [2, 1, 1]]
    assert (graphs.relations.ids, graphs.classes, graphs.node_classes) == (("5", "7"), ("-1", "1"), ("6", "8"))
    assert graphs.targets.tolist() == [1, 0]
    assert graphs.node_labels is not None
    assert graphs.node_labels.tolist() == [0, 0, 1, 0]
    assert graphs.node_features is not None
    assert graphs.node_features.tolist() == [[0.5, 1], [-1, 20], [0, 3], [0.25, 4]]
    assert graphs.both_directions
    assert graphs.notes == ("1 graph without an edge kept", "every edge stands there in both directions")


def test_a_folder_and_its_files_are_the_same(tmp_path: Path) -> None:
    write(tmp_path, {**FILES, "README.txt": "read me"})
    assert collection.found(tmp_path)
    assert not collection.found(tmp_path / "README.txt")
    graphs = collection.read(tmp_path, name="mine")
    assert graphs.fingerprint() == read().fingerprint()
    assert (graphs.name, graphs.origin) == ("mine", {"source": str(tmp_path)})
    assert collection.read(tmp_path / name for name in FILES).fingerprint() == graphs.fingerprint()


def test_labels_and_attributes_need_not_be_there() -> None:
    graphs = read(node_labels=None, edge_labels=None, node_attributes=None)
    assert graphs.relations.ids == ("edge",)
    assert graphs.node_labels is None
    assert graphs.node_features is None
    assert graphs.statistics()["node_labels"] == 0
    assert read(edge_attributes="1.5\n", graph_attributes="2\n").notes[:2] == (
        "the file 'X_edge_attributes.txt' is not used",
        "the file 'X_graph_attributes.txt' is not used",
    )


def test_line_ends_blank_lines_spaces_and_a_byte_order_mark_change_nothing() -> None:
    expected = read().fingerprint()
    for change in (
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text.replace("\n", "\n\n"),
        lambda text: text.rstrip("\n").replace(", ", ","),
        lambda text: "+" + text if text[0].isdigit() else text,
    ):
        assert read(**{name[2:-4]: change(text) for name, text in FILES.items()}).fingerprint() == expected


def test_nodes_in_any_order_are_sorted_by_graph_and_everything_with_them() -> None:
    graphs = read(graph_indicator="2\n1\n1\n1\n", A="2, 3\n3, 2\n3, 4\n4, 3\n", node_labels="6\n6\n6\n8\n",
                  node_attributes=".25, 4\n0.5, 1\n-1, 20\n0, 3\n")  # fmt: skip
    assert graphs.fingerprint() == read().fingerprint()
    assert "the nodes were put in the order of their graphs" in graphs.notes


BAD: dict[str, tuple[dict[str, str | bytes | None], str]] = {
    "a node beyond the last": ({"A": "1, 2\n\n2, 9\n"}, r"'X_A\.txt' refers to number 9; expected 1 to 4"),
    "an edge across graphs": ({"A": "1, 2\n3, 4\n", "edge_labels": None}, "edges must stay in one graph"),
    "three columns": ({"A": "1, 2, 3\n"}, "has 3 numbers in a line; expected 2"),
    "a word": ({"A": "1, x\n"}, r"'X_A\.txt' cannot be read: .*' x'"),
    "a graph without a node": ({"graph_indicator": "1\n1\n1\n1\n", "A": ""}, "lines where|no node"),
    "too few node labels": ({"node_labels": "6\n"}, r"'X_node_labels\.txt' has 1 lines where 4 are needed"),
    "a missing file": ({"graph_labels": None}, r"there is no file 'X_graph_labels\.txt'"),
    "an attribute that is no number": ({"node_attributes": "1\n2\nnan\n4\n"}, "row 2 holds a NaN"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named_with_its_file(case: str) -> None:
    changes, expected = BAD[case]
    with pytest.raises(InputError, match=expected):
        read(**changes)


def test_a_place_without_or_with_several_collections_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found none"):
        collection.read(tmp_path)
    with pytest.raises(InputError, match="found X, Y"):
        collection.read(write(tmp_path, {**FILES, "Y_A.txt": ""}))
    with pytest.raises(InputError, match="is not a folder"):
        collection.read(tmp_path / "nothing")


pieces = st.sampled_from([b"1", b"2", b"3", b"-", b"+", b",", b", ", b" ", b"\t", b"\n", b"\r\n", b"\r", b".", b"e",
                          b"0x", b"nan", b"99999999999999999999", b"\xff", b'"', b"\x00", b"NA"])  # fmt: skip
jumble = st.one_of(st.binary(max_size=30), st.lists(pieces, max_size=12).map(b"".join))


@given(st.sampled_from([name[2:-4] for name in FILES]), jumble)
def test_any_bytes_give_a_collection_or_one_input_error(name: str, content: bytes) -> None:
    with contextlib.suppress(InputError):
        assert len(read(**{name: content})) > 0
