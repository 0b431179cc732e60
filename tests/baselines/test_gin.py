"""GIN is what its paper's equation says."""

from __future__ import annotations

import torch

import toy
from compgcn.baselines.networks import GIN
from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.classification import GraphClassifier, Graphs


def test_gin_sums_over_neighbours_and_over_the_nodes_of_every_depth() -> None:
    rings = toy.molecules()
    torch.manual_seed(0)
    net = GIN(3, dims=(5, 5)).double().eval()
    items = Graphs(GraphClassifier(net, net.dim, 2), rings, rings.node_labels, torch.device("cpu"))  # type: ignore[arg-type]
    graph, rows = items.batch(torch.tensor([4]))
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    adjacency[graph.src, graph.dst] = 1.0
    x = torch.eye(3, dtype=torch.float64)[rows]
    expected = [x.sum(0)]
    for layer, norm in zip(net.layers, net.norms, strict=True):
        x = norm(layer.nn(x + adjacency @ x)).relu()
        expected.append(x.sum(0))
    torch.testing.assert_close(net(graph, rows, 1)[0], torch.cat(expected))


def test_gin_does_not_care_for_kind_direction_or_number_of_edges() -> None:
    torch.manual_seed(0)
    net = GIN(2, dims=(4, 4, 4)).eval()
    rows, graph_of = torch.tensor([0, 1, 0]), torch.zeros(3, dtype=torch.long)

    def vector(src: list[int], dst: list[int], rel: list[int]) -> torch.Tensor:
        ends = (torch.tensor(values) for values in (src, dst, rel))
        found: torch.Tensor = net(RelationalGraph(*ends, 3, 2, graph_of), rows, 1)
        return found

    one = vector([0, 1], [1, 2], [0, 1])
    other = vector([2, 1, 0, 0], [1, 0, 1, 1], [0, 0, 1, 0])
    torch.testing.assert_close(one, other)
    assert not torch.allclose(one, vector([0, 0], [1, 2], [0, 1]))


def test_given_features_take_the_place_of_kinds() -> None:
    torch.manual_seed(0)
    features = torch.randn(3, 6)
    net = GIN(3, features, dims=(4,))
    assert net.dim == 6 + 4
    torch.testing.assert_close(net.start(torch.tensor([2, 2, 0])), features[[2, 2, 0]])
