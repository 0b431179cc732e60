"""Graphs of NetworkX and PyG become the same facts, with their features and labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError

nx = pytest.importorskip("networkx", reason="networkx is not installed")


def facts(graph: KnowledgeGraph) -> set[tuple[str, str, str]]:
    e, r = graph.entities.ids, graph.relations.ids
    return {(e[s], r[p], e[o]) for rows in graph.splits.values() for s, p, o in rows.tolist()}


def test_a_networkx_graph_gives_its_edges_by_attribute_or_key() -> None:
    given = nx.MultiDiGraph()
    given.add_edge("a", "b", relation="r")
    given.add_edge("a", "b", key="q")
    given.add_edge("b", 7, relation="r")
    given.add_node("alone")
    graph = KnowledgeGraph.from_networkx(given, name="mine")
    assert facts(graph) == {("a", "r", "b"), ("a", "q", "b"), ("b", "r", "7")}
    assert graph.entities.ids == ("a", "b", "7", "alone")
    assert "1 entity without any triple; kept" in graph.notes
    assert graph.name == "mine"
    simple = nx.DiGraph([("a", "b", {"kind": "r"})])
    assert facts(KnowledgeGraph.from_networkx(simple, "kind")) == {("a", "r", "b")}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (nx.DiGraph([("a", "b")]), "the edge from 'a' to 'b' has no attribute 'relation'"),
        (nx.MultiDiGraph([("a", "b")]), "has no attribute 'relation'"),
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
    assert facts(graph) == {("0", "0", "1"), ("1", "2", "2"), ("2", "0", "0")}
    assert (graph.num_entities, graph.num_relations) == (4, 3)
    assert any("split into" in note for note in graph.notes)
    with pytest.raises(InputError, match="needs edge_index"):
        KnowledgeGraph.from_pyg(pyg())


def test_features_and_labels_of_a_pyg_graph_come_along() -> None:
    masks = {name: torch.eye(4)[i].bool() for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    x = torch.arange(8.0).reshape(4, 2)
    given = pyg(edge_type=torch.tensor([0, 1, 0]), x=x, y=torch.tensor([2, 0, 1, 0]), **masks)
    graph = KnowledgeGraph.from_pyg(given)
    assert graph.labels is not None
    assert [rows.tolist() for rows in graph.labels.splits.values()] == [[[0, 2]], [[1, 0]], [[2, 1]]]
    assert graph.labels.classes == ("0", "1", "2")
    np.testing.assert_array_equal(graph.node_features, x.numpy())
    assert len(graph.train) == 3
    lists = {"train_idx": torch.tensor([3]), "train_y": torch.tensor([1]), "test_idx": torch.tensor([0])}
    graph = KnowledgeGraph.from_pyg(pyg(edge_type=torch.tensor([0, 1, 0]), **lists, test_y=torch.tensor([0])))
    assert graph.labels is not None
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
    assert facts(graph) == {
        ("author/0", "writes", "paper/1"),
        ("author/1", "writes", "paper/0"),
        ("paper/0", "cites", "paper/1"),
    }
    assert graph.labels is not None
    assert graph.labels.train.tolist() == [[graph.entities.index("author/0"), 1]]
