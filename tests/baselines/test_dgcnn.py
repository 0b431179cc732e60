"""DGCNN is what its paper's equations say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import toy
from compgcn.baselines.networks import DGCNN, usual_size
from compgcn.tasks.classification import GraphClassifier, Graphs


@pytest.mark.parametrize("kept", [10, 13])
def test_dgcnn_propagates_sorts_and_convolves(kept: int) -> None:
    rings = toy.molecules()
    torch.manual_seed(0)
    net = DGCNN(3, kept=kept, channels=(4, 3, 1), filters=(2, 3), hidden=5).double().eval()
    items = Graphs(GraphClassifier(net, net.dim, 2), rings, rings.node_labels, torch.device("cpu"))  # type: ignore[arg-type]
    graph, rows = items.batch(torch.tensor([4]))
    adjacency = torch.eye(graph.num_nodes, dtype=torch.float64)
    adjacency[graph.src, graph.dst] = 1.0
    x, depths = torch.eye(3, dtype=torch.float64)[rows], []
    for layer in net.layers:
        x = torch.tanh((adjacency / adjacency.sum(1, keepdim=True)) @ x @ layer.weight.T)
        depths.append(x)
    nodes = torch.cat(depths, 1)
    line = torch.zeros(kept, 8, dtype=torch.float64)
    line[: len(nodes)] = nodes[nodes[:, -1].argsort(descending=True)]
    first = F.conv1d(line.view(1, 1, -1), net.first.weight.unsqueeze(1), net.first.bias, stride=8).relu()
    expected = net.dense(net.second(F.max_pool1d(first, 2)).relu().flatten(1)).relu()
    torch.testing.assert_close(net(graph, rows, 1), expected)


def test_of_a_large_graph_only_the_first_nodes_of_the_order_are_seen() -> None:
    torch.manual_seed(0)
    net = DGCNN(2, kept=10, hidden=4).eval()
    sort = net.sort(torch.arange(24.0).view(12, 2), torch.zeros(12, dtype=torch.long), dim_size=1)
    assert sort.view(10, 2)[:, 1].tolist() == [23.0 - 2 * i for i in range(10)]


def test_so_many_nodes_are_kept_that_six_in_ten_graphs_have_them() -> None:
    sizes = np.array([3, 9, 5, 7, 1, 8, 4, 6, 2, 10])
    assert usual_size(sizes) == 4
    assert np.mean(sizes > usual_size(sizes)) == 0.6
