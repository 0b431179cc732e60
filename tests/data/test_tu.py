"""The TU format: the published collections have their sizes, any bytes give a collection or one error with its line."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
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


def openers(files: dict[str, str] | dict[str, bytes]) -> dict[str, Callable[[], io.BytesIO]]:
    content = {name: text if isinstance(text, bytes) else text.encode() for name, text in files.items()}
    return {name: partial(io.BytesIO, value) for name, value in content.items()}


def read(**changes: str | bytes | None) -> GraphCollection:
    """The files above with some of them changed, or taken away."""
    files = {**FILES, **{f"X_{name}.txt": text for name, text in changes.items()}}
    return collection.read(openers({name: text for name, text in files.items() if text is not None}))  # type: ignore[type-var]


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


def test_a_folder_and_a_mapping_of_its_files_are_the_same(tmp_path: Path) -> None:
    for name, text in {**FILES, "README.txt": "read me"}.items():
        (tmp_path / name).write_text(text)
    assert collection.found(tmp_path)
    assert not collection.found(tmp_path / "README.txt")
    graphs = collection.read(tmp_path, name="mine")
    assert graphs.fingerprint() == read().fingerprint()
    assert (graphs.name, graphs.origin) == ("mine", {"source": str(tmp_path)})
    inside = collection.read({f"folder/{name}": opener for name, opener in openers(FILES).items()})
    assert inside.fingerprint() == graphs.fingerprint()


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
        lambda text: text.replace("\n", "\r"),
        lambda text: "\ufeff" + text.replace("\n", "\n\n"),
        lambda text: text.replace("\n", " \n  \n\t"),
        lambda text: text.rstrip("\n").replace(", ", ","),
        lambda text: "+" + text if text[0].isdigit() else text,
    ):
        assert collection.read(openers({name: change(text) for name, text in FILES.items()})).fingerprint() == expected


def test_nodes_in_any_order_are_sorted_by_graph_and_everything_with_them() -> None:
    graphs = read(graph_indicator="2\n1\n1\n1\n", A="2, 3\n3, 2\n3, 4\n4, 3\n", node_labels="6\n6\n6\n8\n",
                  node_attributes=".25, 4\n0.5, 1\n-1, 20\n0, 3\n")  # fmt: skip
    assert graphs.fingerprint() == read().fingerprint()
    assert "the nodes were put in the order of their graphs" in graphs.notes


def test_graphs_without_any_edge_are_read() -> None:
    graphs = read(A="", edge_labels="")
    assert graphs.triples.shape == (0, 3)
    assert graphs.notes == ("2 graphs without an edge kept",)


BAD = {
    "a node beyond the last": ({"A": "1, 2\n\n2, 9\n"}, r"'X_A\.txt', line 3: node 9 is not one of the 1 to 4"),
    "a node from 0": ({"A": "0, 1\n"}, "line 1: node 0"),
    "an edge across graphs": ({"A": "1, 2\n3, 4\n"}, "line 2: node 3 is in graph 1 and node 4 in graph 2"),
    "three columns": ({"A": "1, 2\n1, 2, 3\n"}, "line 2: expected 2 values separated by commas, found 3"),
    "a word": ({"A": "1, x\n"}, "line 1: expected a whole number, found 'x'"),
    "a hexadecimal": ({"A": "1, 0x2\n"}, "line 1: expected a whole number, found '0x2'"),
    "a decimal": ({"graph_labels": "1\n1.5\n"}, "line 2: expected a whole number, found '1.5'"),
    "an empty value": ({"A": "1, \n"}, "line 1: expected a whole number, found ''"),
    "a number of 70 bits": ({"graph_labels": f"1\n{2**70}\n"}, "line 2: a number is too large for 64 bits"),
    "bytes that are no text": ({"A": b"1, \xff\n"}, "line 1: expected a whole number, found '\ufffd'"),
    "a graph beyond the last": ({"graph_indicator": "1\n1\n1\n3\n"}, "line 4: graph 3 is not one of the 1 to 2"),
    "a graph without a node": ({"graph_indicator": "1\n1\n1\n1\n"}, "gives graph 2 no node"),
    "too few node labels": ({"node_labels": "6\n"}, r"has 1 lines where 'X_graph_indicator\.txt' has 4"),
    "too many edge labels": ({"edge_labels": "5\n" * 5}, r"has 5 lines where 'X_A\.txt' has 4"),
    "no graph labels": ({"graph_labels": "\n"}, r"'X_graph_labels\.txt' is empty"),
    "a missing file": ({"graph_labels": None}, r"there is no file 'X_graph_labels\.txt' among the files given"),
    "attributes of two widths": ({"node_attributes": "1, 2\n1\n1, 2\n1, 2\n"}, "line 2: expected 2 values"),
    "an attribute that is no number": ({"node_attributes": "1\n2\nnan\n4\n"}, "line 3: expected a number, found 'nan'"),
    "an attribute too large": ({"node_attributes": "1\n2\n3\n1e99\n"}, "line 4: a number is too large for 32 bits"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named_with_its_file_and_line(case: str) -> None:
    changes, expected = BAD[case]
    with pytest.raises(InputError, match=expected):
        read(**changes)  # type: ignore[arg-type]


def test_a_place_without_or_with_several_collections_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found none"):
        collection.read(tmp_path)
    with pytest.raises(InputError, match="found 2 of them: X, Y"):
        collection.read(openers({**FILES, "Y_A.txt": ""}))
    with pytest.raises(InputError, match="is not a folder"):
        collection.read(tmp_path / "nothing")


def test_a_file_that_cannot_be_read_is_one_sentence() -> None:
    def broken() -> io.BytesIO:
        raise OSError("the disk is on fire")

    with pytest.raises(InputError, match=r"'X_A\.txt' cannot be read: the disk is on fire"):
        collection.read({**openers(FILES), "X_A.txt": broken})


pieces = st.sampled_from([b"1", b"2", b"3", b"-", b"+", b",", b", ", b" ", b"\t", b"\n", b"\r\n", b"\r", b".", b"e",
                          b"0x", b"nan", b"99999999999999999999", b"\xff", b'"', b"\x00", b"NA"])  # fmt: skip
jumble = st.one_of(st.binary(max_size=30), st.lists(pieces, max_size=12).map(b"".join))


def answer(reader: Callable[[], Any]) -> Any:
    try:
        return reader()
    except InputError as error:
        return str(error)


@settings(max_examples=300)
@given(st.sampled_from([name[2:-4] for name in FILES]), jumble)
def test_any_bytes_give_a_collection_or_one_error_that_names_a_file(name: str, content: bytes) -> None:
    found = answer(lambda: read(**{name: content}))
    assert re.search(r"'X_\w+\.txt'", found) if isinstance(found, str) else len(found) > 0


@settings(max_examples=500)
@given(jumble, st.integers(1, 2), st.booleans())
def test_the_fast_reading_of_numbers_is_the_line_by_line_one(content: bytes, width: int, decimal: bool) -> None:
    file, kind = collection._File("X", content), float if decimal else int
    slow = answer(lambda: [[kind(value) for value in row] for row in collection._scan(file, width, decimal)])
    assert answer(lambda: collection._table(file, width, decimal=decimal).tolist()) == slow


@pytest.mark.parametrize(
    ("folder", "sizes", "means"),
    [
        ("MUTAG-graph", (188, 3_371, 7_442, 4, 7, 2), (17.9, 39.6)),
        ("PTC_MR-graph", (344, 4_915, 10_108, 4, 18, 2), (14.3, 29.4)),
    ],
)
def test_the_published_collections_have_their_sizes(
    benchmarks: Path, folder: str, sizes: tuple[int, ...], means: tuple[float, float]
) -> None:
    graphs = collection.read(benchmarks / folder)
    n = graphs.statistics()
    assert tuple(n[key] for key in ("graphs", "nodes", "edges", "relations", "node_labels", "classes")) == sizes
    assert (round(n["mean_nodes"], 1), round(n["mean_edges"], 1)) == means
    assert graphs.both_directions
    assert graphs.notes == ("every edge stands there in both directions",)
