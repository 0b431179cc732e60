"""Collections of graphs: subsets, folds, tables, objects of PyG and the TU format; a mistake is one error."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.data import collection, from_pyg, read_graphs
from compgcn.data.collection import GraphCollection, folds, noted
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError
from toy import Write

Graph = tuple[int, list[tuple[int, int, int]], int]


@st.composite
def graphs(draw: st.DrawFn) -> list[Graph]:
    """(number of nodes, edges within, class) of each graph; relations 0 .. 2, classes 0 .. 1."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.integers(1, 4))
        node = st.integers(0, size - 1)
        edges = draw(st.lists(st.tuples(node, st.integers(0, 2), node), max_size=6))
        found.append((size, edges, draw(st.integers(0, 1))))
    return found


def build(items: list[Graph], shuffle: int = 0) -> GraphCollection:
    """Their disjoint union; node n of the union has label n % 3 and features (n, -n)."""
    sizes = [size for size, _, _ in items]
    before = np.cumsum(sizes) - sizes
    rows = [(s + at, r, o + at) for (_, edges, _), at in zip(items, before, strict=True) for s, r, o in edges]
    triples = np.array(rows, dtype=np.int64).reshape(-1, 3)
    N = sum(sizes)
    graph_of = np.repeat(np.arange(len(items)), sizes)
    if shuffle:  # graphs in any order; within a graph the order is kept
        order = np.random.default_rng(shuffle).random(len(items))
        triples = triples[np.argsort(order[graph_of[triples[:, 0]]], kind="stable")]
    return GraphCollection(
        "made up",
        Vocabulary("relation", ["r0", "r1", "r2"]),
        ("no", "yes"),
        graph_of=graph_of,
        triples=triples,
        targets=np.array([label for _, _, label in items]),
        node_labels=np.arange(N) % 3,
        node_classes=("C", "N", "O"),
        node_features=np.column_stack([np.arange(N), -np.arange(N)]).astype(np.float32),
    )


@given(graphs(), st.data())
def test_a_subset_is_what_building_from_its_graphs_gives(items: list[Graph], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(items) - 1), max_size=8))
    part, made = build(items).subset(chosen), build([items[g] for g in chosen])
    np.testing.assert_array_equal(part.graph_of, made.graph_of)
    np.testing.assert_array_equal(part.triples, made.triples)
    np.testing.assert_array_equal(part.targets, made.targets)
    assert part.graph_ids == tuple(str(g) for g in chosen)
    starts = np.cumsum([0, *(size for size, _, _ in items)])
    nodes = [n for g in chosen for n in range(starts[g], starts[g + 1])]
    assert part.node_features[:, 0].tolist() == nodes
    assert part.node_labels.tolist() == [n % 3 for n in nodes]


@given(graphs(), st.integers(1, 99))
def test_the_order_of_graphs_among_the_edges_does_not_matter(items: list[Graph], seed: int) -> None:
    assert build(items, shuffle=seed).fingerprint() == build(items).fingerprint()


@given(graphs())
def test_edges_in_both_directions_are_recognised(items: list[Graph]) -> None:
    rows = [{(s, r, o) for s, r, o in edges} for _, edges, _ in items]
    expected = all((o, r, s) in edges for edges in rows for s, r, o in edges)
    assert build(items).both_directions == expected
    doubled = [(size, edges + [(o, r, s) for s, r, o in edges], label) for size, edges, label in items]
    assert build(doubled).both_directions


def test_what_is_odd_is_counted() -> None:
    items: list[Graph] = [(2, [(0, 0, 1), (0, 0, 1), (0, 1, 0)], 0), (1, [], 1), (2, [(0, 0, 1), (1, 0, 0)], 1)]
    assert list(noted(build(items)).notes) == [
        "1 repeated edge kept",
        "1 self-loop kept",
        "1 graph without an edge kept",
        "2 edges of 5 in one direction only",
    ]
    assert list(noted(build(items[2:])).notes) == ["every edge is there in both directions"]
    assert list(noted(build([(2, [(0, 0, 1)], 0)])).notes) == []


def test_the_fingerprint_changes_with_the_data_and_not_with_the_name() -> None:
    one = build([(2, [(0, 0, 1)], 0), (1, [], 1)])
    others: list[dict[str, Any]] = [
        {"targets": np.array([1, 1])},
        {"triples": np.array([[0, 1, 1]])},
        {"node_labels": np.array([0, 0, 0])},
        {"node_features": None},
        {"classes": ("a", "b")},
    ]
    prints = [one.fingerprint(), *(replace(one, **other).fingerprint() for other in others)]
    assert len(set(prints)) == len(prints)
    assert replace(one, name="other", notes=("x",)).fingerprint() == one.fingerprint()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"graph_of": np.array([1, 0, 1])}, "must stand together"),
        ({"graph_of": np.array([0, 0, 0])}, "graph 1 has no node"),
        ({"graph_of": np.array([0, 0, 2])}, "refer to rows beyond the sizes 2"),
        ({"graph_of": np.array([0.0, 0, 1])}, "whole numbers of shape .*, not float64"),
        ({"targets": np.array([0, -1])}, "targets refer to rows beyond"),
        ({"triples": np.array([[0, 0, 2]])}, "edge 0 goes from graph 0 to graph 1"),
        ({"triples": np.array([[0, 3, 1]])}, "beyond the sizes 3, 3, 3"),
        ({"node_labels": np.array([0, 1])}, "2 node labels were given for 3 nodes"),
        ({"node_labels": np.array([0, 1, 3])}, "node labels refer to rows beyond the sizes 3"),
        ({"node_features": np.zeros((2, 1))}, r"shape \[2, 1\]; expected \[3, f\]"),
        ({"graph_ids": ("a",)}, "1 graph ids were given for 2 graphs"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        replace(build([(2, [(0, 0, 1)], 0), (1, [], 1)]), **change)


cases = st.lists(st.integers(0, 4), min_size=2, max_size=80).flatmap(
    lambda targets: st.tuples(st.just(targets), st.integers(2, len(targets)), st.integers(0, 99))
)


@given(cases)
def test_every_example_is_in_one_fold_and_folds_differ_by_at_most_one(case: tuple[list[int], int, int]) -> None:
    targets, k, seed = case
    parts = folds(targets, k, seed)
    assert len(parts) == k
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(targets)))
    assert np.ptp([len(part) for part in parts]) <= 1
    counts = np.array([np.bincount(np.array(targets)[part], minlength=5) for part in parts])
    assert (np.ptp(counts, axis=0) <= 1).all()


@pytest.mark.parametrize("k", [-1, 0, 1, 4])
def test_a_number_of_folds_that_cannot_be_is_refused(k: int) -> None:
    with pytest.raises(InputError, match=f"3 examples cannot be dealt over {k} folds"):
        folds([0, 1, 1], k, 0)


Row = tuple[str, str, str, str]

TRIPLES = "m1\ta\tsingle\tb\nm2\ta\tdouble\ta\nm1\tb\tsingle\tc\n"
LABELS = "m2\tyes\nm1\tno\n"

name = st.sampled_from(["a", "b", "007", "7", "é"])


@given(st.lists(st.tuples(st.sampled_from(["g1", "g2", "g3"]), name, st.sampled_from(["r", "q"]), name), min_size=1))
def test_a_table_with_a_graph_column_is_read_back(rows: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        triples, labels = Path(folder) / "t.tsv", Path(folder) / "l.tsv"
        triples.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
        labels.write_text("g3\tx\ng1\ty\ng2\tx\n")
        graphs = read_graphs(triples, labels=labels)
    ids = [g for g in ("g3", "g1", "g2") if any(row[0] == g for row in rows)]
    assert list(graphs.graph_ids) == ids
    assert [graphs.classes[c] for c in graphs.targets] == [{"g3": "x", "g1": "y", "g2": "x"}[g] for g in ids]
    nodes = [(g, n) for g in ids for n in dict.fromkeys(end for row in rows if row[0] == g for end in (row[1], row[3]))]
    assert [ids[g] for g in graphs.graph_of] == [g for g, _ in nodes]
    found = [(nodes[s], graphs.relations.ids[r], nodes[o]) for s, r, o in graphs.triples.tolist()]
    assert found == [((g, s), r, (g, o)) for wanted in ids for g, s, r, o in rows if g == wanted]


def test_the_table_of_nodes_gives_labels_and_graphs_without_edges(write: Write) -> None:
    nodes = write("n.tsv", "m3\tx\tO\nm1\tc\tN\nm1\tb\tC\nm1\ta\tC\nm2\ta\tC\n")
    labels = write("l.tsv", LABELS + "m3\tyes\nm4\tno\n")
    graphs = read_graphs(write("t.tsv", TRIPLES), labels=labels, nodes=nodes)
    assert graphs.graph_ids == ("m2", "m1", "m3")
    assert graphs.node_classes == ("C", "N", "O")
    assert graphs.node_labels.tolist() == [0, 1, 0, 0, 2]
    assert graphs.triples.tolist() == [[0, 1, 0], [3, 0, 2], [2, 0, 1]]
    assert [graphs.classes[c] for c in graphs.targets] == ["yes", "no", "yes"]
    assert graphs.notes[0] == "1 labelled graph without a triple or node left out: 'm4'"


def test_lines_that_name_the_columns_are_skipped_and_said_so(write: Write) -> None:
    plain = read_graphs(write("t.tsv", TRIPLES), labels=write("l.tsv", LABELS))
    headed = read_graphs(
        write("h.csv", ("graph\tsource\trelation\ttarget\n" + TRIPLES).replace("\t", ",")),
        labels=write("k.tsv", "Graph\tClass\n" + LABELS),
    )
    assert headed.fingerprint() == plain.fingerprint()
    assert [note for note in headed.notes if "names the columns" in note] == [*headed.notes[:2]]
    assert headed.name == "h"


@pytest.mark.parametrize(
    ("labels", "nodes", "expected"),
    [
        ("m1\tno\n", None, "has no class for 1 graph: 'm2'"),
        (LABELS + "m1\tyes\n", None, "more than one line: 'm1'"),
        (LABELS, "m1\ta\tC\n", "not so for 3 nodes"),
        (LABELS, "m1\ta\tC\nm1\tb\tC\nm1\tc\tC\nm2\ta\tC\nm1\ta\tN\n", "not so for 1 node"),
        ("m1\tno\ttrain\nm2\tyes\ttest\n", None, "have no split; say with label_columns"),
        ("graph\tlabel\n", None, "holds a header"),
    ],
)
def test_tables_that_do_not_fit_together_are_refused(
    write: Write, labels: str, nodes: str | None, expected: str
) -> None:
    files = {} if nodes is None else {"nodes": write("n.tsv", nodes)}
    with pytest.raises(InputError, match=expected):
        read_graphs(write("t.tsv", TRIPLES), labels=write("l.tsv", labels), **files)


def data(edges: list[tuple[int, int]], **fields: Any) -> SimpleNamespace:
    """The fields of a PyG Data object, without PyG."""
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    return SimpleNamespace(edge_index=index, **{"y": torch.tensor([0]), "num_nodes": 3, **fields})


def test_relations_labels_and_classes_of_pyg_objects() -> None:
    hot = torch.eye(3)
    graphs = from_pyg(
        [
            data([(0, 1), (1, 0)], edge_attr=hot[[1, 1]], x=hot[[0, 1, 1]], y=torch.tensor([5])),
            data([(0, 2)], edge_attr=hot[[0]], x=hot[[1, 1, 0]], y=torch.tensor(-1)),
        ],
        name="mine",
    )
    assert graphs.triples.tolist() == [[0, 1, 1], [1, 1, 0], [3, 0, 5]]
    assert graphs.relations.ids == ("0", "1", "2")
    assert (graphs.classes, graphs.targets.tolist()) == (("-1", "5"), [1, 0])
    assert graphs.node_labels.tolist() == [0, 1, 1, 1, 1, 0]
    assert graphs.node_classes == ("0", "1", "2")


def test_edge_types_come_first_and_other_features_stay_features() -> None:
    graphs = from_pyg([data([(0, 1)], edge_type=torch.tensor([2]), edge_attr=torch.rand(1, 4), x=torch.ones(3, 2))])
    assert graphs.triples.tolist() == [[0, 2, 1]]
    assert graphs.num_relations == 3
    assert graphs.node_labels is None
    np.testing.assert_array_equal(graphs.node_features, np.ones((3, 2)))
    plain = from_pyg([data([(0, 1)]), data([])])
    assert plain.relations.ids == ("edge",)
    assert plain.num_nodes == 6


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], "the list of graphs is empty"),
        ([SimpleNamespace(y=0)], "graph 0 has no edge_index"),
        ([data([], y=torch.tensor([0.5]))], "graph 0 has no class"),
        ([data([], y=torch.tensor([0, 1]))], "graph 0 has no class"),
        ([data([], num_nodes=0)], "graph 0 has no node"),
        ([data([]), data([], y=None)], "graph 1 has no class"),
        ([data([(0, 3)])], "refers to nodes beyond the 3 it has"),
        ([data([(0, 1)], edge_attr=torch.rand(1, 2))], "edge_attr of graph 0 is no relation"),
        ([data([(0, 1)], edge_type=torch.tensor([-1]))], "edge_type of graph 0 is no relation"),
        ([data([(0, 1)], edge_type=torch.tensor([0, 1]))], "has 2 rows for 1 edges"),
        ([data([], x=torch.rand(3, 2)), data([])], "the same width in every graph"),
        ([data([], x=torch.rand(3, 2)), data([], x=torch.rand(3, 1))], "the same width in every graph"),
    ],
)
def test_objects_that_are_no_graphs_are_refused(items: list[Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        from_pyg(items)


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
    assert graphs.node_labels.tolist() == [0, 0, 1, 0]
    assert graphs.node_features.tolist() == [[0.5, 1], [-1, 20], [0, 3], [0.25, 4]]
    assert graphs.both_directions


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
