"""Graphs from tables with a graph column and from PyG objects: the same graphs, whatever they come as."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.data import collection, from_pyg, read_graphs
from compgcn.errors import InputError

Write = Callable[[str, str | bytes], Path]
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
    assert graphs.node_labels is not None
    assert graphs.node_labels.tolist() == [0, 1, 0, 0, 2]
    assert graphs.triples.tolist() == [[0, 1, 0], [3, 0, 2], [2, 0, 1]]
    assert [graphs.classes[c] for c in graphs.targets] == ["yes", "no", "yes"]
    assert graphs.notes == (
        "1 labelled graph without a triple or node left out: 'm4'",
        "1 self-loop kept",
        "1 graph without an edge kept",
        "2 edges of 3 in one direction only",
    )


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
        ("m1\n", None, "line 1: expected 2 columns"),
        ("graph\tlabel\n", None, "holds a header and no triple"),
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
    assert graphs.node_labels is not None
    assert graphs.node_labels.tolist() == [0, 1, 1, 1, 1, 0]
    assert graphs.node_classes == ("0", "1", "2")
    assert "2 edges of 3" not in graphs.notes[0]


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
        ([data([]), data([], y=None)], "graph 1 has no class"),
        ([data([], y=torch.tensor([0.5]))], "graph 0 has no class"),
        ([data([], y=torch.tensor([0, 1]))], "graph 0 has no class"),
        ([data([(0, 3)])], "refers to nodes beyond the 3 it has"),
        ([data([(0, 1)], edge_attr=torch.rand(1, 2))], "edge_attr of graph 0 is no relation"),
        ([data([(0, 1)], edge_type=torch.tensor([-1]))], "edge_type of graph 0 is no relation"),
        ([data([(0, 1)], edge_type=torch.tensor([0, 1]))], "has 2 rows for 1 edges"),
        ([data([], x=torch.rand(3, 2)), data([])], "the same width in every graph"),
        ([data([], x=torch.rand(3, 2)), data([], x=torch.rand(3, 1))], "the same width in every graph"),
        ([data([], num_nodes=0)], "graph 0 has no node"),
    ],
)
def test_objects_that_are_no_graphs_are_refused(items: list[Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        from_pyg(items)


def test_a_collection_taken_through_pyg_is_the_same(benchmarks: Path) -> None:
    pyg = pytest.importorskip("torch_geometric.data")
    graphs = collection.read(benchmarks / "MUTAG-graph")
    assert graphs.node_labels is not None
    items = []
    for g in range(len(graphs)):
        part = graphs.subset([g])
        assert part.node_labels is not None
        s, r, o = torch.from_numpy(part.triples).T
        fields = {"edge_index": torch.stack([s, o]), "edge_attr": torch.eye(4)[r], "y": torch.from_numpy(part.targets)}
        items.append(pyg.Data(x=torch.eye(7)[torch.from_numpy(part.node_labels)], **fields))
    again = from_pyg(items)
    for field in ("graph_of", "triples", "targets", "node_labels"):
        np.testing.assert_array_equal(getattr(again, field), getattr(graphs, field))
    assert again.statistics() == graphs.statistics()
