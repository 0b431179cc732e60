"""Messages and their weights are what the definitions count; graphs side by side behave as they do one by one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.errors import InputError
from compgcn.nn.conv import CompGCNConv
from compgcn.nn.graph import FLOWS, NORMS, Messages, Norm, RelationalGraph
from oracles import AWKWARD, NORM_FORMULAS, Edges, edge_lists, normal, sent

EVERY_NORM = pytest.mark.parametrize("norm", NORMS)
EVERY_FLOW = pytest.mark.parametrize("flow", FLOWS)
INVERSES = pytest.mark.parametrize("add_inverse", [True, False], ids=["with inverses", "without inverses"])


@EVERY_FLOW
@INVERSES
@given(edges=edge_lists())
def test_messages_run_both_ways_with_a_relation_of_their_own(flow, add_inverse, edges):
    messages = edges.graph().messages(flow, add_inverse)
    ours = torch.stack((messages.sender, messages.receiver, messages.relation, messages.direction), 1)
    assert sorted(map(tuple, ours.tolist())) == sorted(sent(edges, flow, add_inverse))
    assert messages.num_nodes == edges.num_nodes
    assert messages.num_directions == 1 + add_inverse
    assert messages.num_relations == edges.num_relations * (1 + add_inverse)


def weights_by_message(edges: Edges, norm: str, flow: str, add_inverse: bool, self_loop: bool):
    """Ours and the definition's: pairs (message, weight) in one order, and the weights of the loops."""
    messages = edges.graph().messages(flow, add_inverse)
    weights = messages.weights(Norm(norm, self_loop, torch.float64))
    ours = zip(messages.sender, messages.receiver, messages.relation, messages.direction, weights.message, strict=True)
    expected_messages = sent(edges, flow, add_inverse)
    expected, loops = NORM_FORMULAS[norm](expected_messages, edges.num_nodes, self_loop)
    theirs = [(*m, w) for m, w in zip(expected_messages, expected, strict=True)]
    loop = [1.0] * edges.num_nodes if weights.loop is None else weights.loop.tolist()
    return sorted([v.item() for v in row] for row in ours), sorted(map(list, theirs)), loop, loops


@EVERY_NORM
@EVERY_FLOW
@INVERSES
@pytest.mark.parametrize("self_loop", [True, False], ids=["loop", "no loop"])
@given(edges=edge_lists())
def test_a_norm_equals_its_definition_by_loops(norm, flow, add_inverse, self_loop, edges):
    ours, theirs, loops, expected_loops = weights_by_message(edges, norm, flow, add_inverse, self_loop)
    assert [row[:4] for row in ours] == [row[:4] for row in theirs]
    assert [row[4] for row in ours] == pytest.approx([row[4] for row in theirs], rel=1e-12)
    if self_loop:
        assert loops == pytest.approx(expected_loops, rel=1e-12)


@EVERY_FLOW
def test_messages_and_weights_are_made_once(flow):
    graph = AWKWARD.graph()
    messages = graph.messages(flow)
    assert graph.messages(flow) is messages
    norm = Norm("mean")
    assert messages.plan(norm) is messages.plan(norm)
    assert messages.plan(norm).by_row.order is messages.plan(Norm("none")).by_row.order, "sorted once for all norms"
    assert messages.weights(Norm("mean")) is messages.weights(Norm("mean", True, torch.float32))
    kipf = messages.weights(Norm("kipf", self_loop=True))
    assert messages.weights(Norm("kipf")) is kipf is not messages.weights(Norm("kipf", self_loop=False))
    assert messages.weights(Norm("mean", True, torch.float64)).message.dtype == torch.float64


def test_triples_are_read_as_subject_relation_object():
    graph = RelationalGraph.from_triples(torch.tensor(AWKWARD.triples), AWKWARD.num_nodes, AWKWARD.num_relations)
    assert_same(graph, AWKWARD.graph())
    assert graph.num_edges == len(AWKWARD.triples)


def side_by_side(graphs: list[RelationalGraph]) -> RelationalGraph:
    """Return the disjoint union of graphs over the same relations."""
    sizes = torch.tensor([graph.num_nodes for graph in graphs])
    starts = (sizes.cumsum(0) - sizes).tolist()
    src, dst = (torch.cat([getattr(g, end) + n for g, n in zip(graphs, starts, strict=True)]) for end in ("src", "dst"))
    rel, graph_of_node = torch.cat([graph.rel for graph in graphs]), torch.repeat_interleave(sizes)
    return RelationalGraph(src, dst, rel, int(sizes.sum()), graphs[0].num_relations, graph_of_node)


@EVERY_NORM
@given(st.lists(edge_lists(max_relations=1), min_size=1, max_size=4))
def test_a_union_gives_each_graph_what_it_gets_alone(norm, graphs):
    graphs = [edges._replace(num_relations=2) for edges in graphs]
    layer = CompGCNConv(4, 3, 2, norm=norm).double()
    rel = normal(4, 4)
    xs = [normal(edges.num_nodes, 4, seed=i) for i, edges in enumerate(graphs)]
    union = side_by_side([edges.graph() for edges in graphs])
    together = layer(torch.cat(xs), rel, union)[0]
    alone = [layer(x, rel, edges.graph())[0] for x, edges in zip(xs, graphs, strict=True)]
    torch.testing.assert_close(together, torch.cat(alone))
    sizes = [edges.num_nodes for edges in graphs]
    assert union.graph_of_node.tolist() == [i for i, size in enumerate(sizes) for _ in range(size)]
    assert union.num_edges == sum(len(edges.triples) for edges in graphs)


def test_triples_of_another_shape_are_refused():
    with pytest.raises(InputError, match=r"triples must have shape \[n, 3\], not \[3, 4\]"):
        RelationalGraph.from_triples(torch.zeros(3, 4, dtype=torch.long), 5, 2)


@given(edge_lists(), st.integers(0, 2**31))
def test_a_random_graph_keeps_the_edges_of_each_relation_and_repeats_with_its_seed(edges, seed):
    graph = edges.graph()
    one, two = (graph.randomised(torch.Generator().manual_seed(seed)) for _ in range(2))
    assert torch.equal(one.rel.sort()[0], graph.rel.sort()[0])
    assert torch.equal(one.src, two.src)
    assert torch.equal(one.dst, two.dst)
    assert (one.num_nodes, one.num_relations) == (graph.num_nodes, graph.num_relations)


@pytest.mark.parametrize(
    ("src", "dst", "rel", "sentence"),
    [
        ([0, 5], [0, 1], [0, 0], r"node index 5 is outside \[0, 5\)"),
        ([0, 1], [0, -1], [0, 0], r"node index -1 is outside \[0, 5\)"),
        ([0, 1], [0, 1], [0, 2], r"relation index 2 is outside \[0, 2\)"),
        ([0, 1], [0, 1], [-3, 0], r"relation index -3 is outside \[0, 2\)"),
        ([0, 1], [0], [0, 0], r"vectors of one length, not of shapes \(\(2,\), \(1,\), \(2,\)\)"),
        ([[0, 1]], [[0, 1]], [[0, 0]], r"vectors of one length, not of shapes \(\(1, 2\)"),
        ([0.0, 1.0], [0.0, 1.0], [0.0, 0.0], r"must be torch.int64, not torch.float32"),
    ],
)
def test_bad_edges_are_answered_with_a_sentence(src, dst, rel, sentence):
    with pytest.raises(InputError, match=sentence):
        RelationalGraph(torch.tensor(src), torch.tensor(dst), torch.tensor(rel), 5, 2)


def assert_same(ours: RelationalGraph, theirs: RelationalGraph):
    assert (ours.num_nodes, ours.num_relations) == (theirs.num_nodes, theirs.num_relations)
    for name in ("src", "dst", "rel"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    assert (ours.graph_of_node is None) == (theirs.graph_of_node is None)
    assert ours.graph_of_node is None or torch.equal(ours.graph_of_node, theirs.graph_of_node)


@st.composite
def graphs_of_the_same_relations(draw: st.DrawFn) -> list[RelationalGraph]:
    edges = draw(st.lists(edge_lists(), min_size=1, max_size=4))
    relations = max(one.num_relations for one in edges)
    return [one._replace(num_relations=relations).graph() for one in edges]


@given(graphs=graphs_of_the_same_relations())
def test_a_graph_and_a_union_survive_the_way_through_pyg(graphs):
    data = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")
    union = side_by_side(graphs)
    for graph in (graphs[0], union):
        assert_same(RelationalGraph.from_pyg(graph.to_pyg()), graph)
    assert_same(RelationalGraph.from_pyg(data.Batch.from_data_list([graph.to_pyg() for graph in graphs])), union)


def test_a_pyg_graph_has_the_relations_that_are_asked_for_else_those_it_names_else_those_of_its_edges():
    data = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")
    edges, relation = AWKWARD.tensors()
    given = data.Data(edge_index=edges, edge_type=relation, num_nodes=AWKWARD.num_nodes)
    assert RelationalGraph.from_pyg(given).num_relations == 2
    assert RelationalGraph.from_pyg(given, num_relations=3).num_relations == 3
    given.num_relations = 4
    assert RelationalGraph.from_pyg(given).num_relations == 4
    assert RelationalGraph.from_pyg(given, num_relations=3).num_relations == 3
    with pytest.raises(InputError, match=r"relation index 1 is outside \[0, 1\)"):
        RelationalGraph.from_pyg(given, num_relations=1)
    typed = data.HeteroData()
    typed["paper"].num_nodes = 2
    typed["paper", "cites", "paper"].edge_index = torch.tensor([[0], [1]])
    assert [RelationalGraph.from_pyg(typed, R).num_relations for R in (None, 3)] == [1, 3]


@pytest.mark.parametrize("batch", [torch.zeros(5, dtype=torch.long), torch.zeros(6, dtype=torch.int32)])
def test_a_batch_that_does_not_name_a_graph_for_each_node_is_refused(batch):
    data = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")
    edges, relation = AWKWARD.tensors()
    with pytest.raises(InputError, match=r"graph_of_node must be torch.int64 of shape \[6\], not torch.int"):
        RelationalGraph.from_pyg(data.Data(edge_index=edges, edge_type=relation, num_nodes=6, batch=batch))


def test_a_networkx_graph_numbers_its_nodes_and_relations_in_order():
    nx = pytest.importorskip("networkx", reason="networkx is not installed")
    given = nx.MultiDiGraph(
        [("b", "a", {"relation": "r"}), ("a", "c", {"relation": "q"}), ("b", "c", {"relation": "r"})]
    )
    graph = RelationalGraph.from_networkx(given)
    rows = list(zip(graph.src.tolist(), graph.rel.tolist(), graph.dst.tolist(), strict=True))
    assert sorted(rows) == [(0, 0, 1), (0, 0, 2), (1, 1, 2)]
    assert (graph.num_nodes, graph.num_relations) == (3, 2)


def told(messages: Messages, weights: torch.Tensor, numbers: torch.Tensor, inner: set[int]) -> list[tuple[float, ...]]:
    """The messages to inner nodes and their weights, by the numbers nodes have in the whole graph."""
    parts = (numbers[messages.sender], numbers[messages.receiver], messages.relation, weights)
    return sorted(row for row in zip(*(part.tolist() for part in parts), strict=True) if row[1] in inner)


def test_a_part_of_a_graph_stays_on_its_device() -> None:
    (part,) = AWKWARD.graph().around(torch.tensor([1, 3]), 1).layers
    with pytest.raises(InputError, match="move the whole graph"):
        part.to("cpu")


@EVERY_NORM
@EVERY_FLOW
@INVERSES
@given(edges=edge_lists(), hops=st.integers(0, 3), seed=st.integers(0, 99))
def test_the_layers_around_some_nodes_have_what_is_heard_in_each_and_weigh_it_as_the_whole_does(
    norm, flow, add_inverse, edges, hops, seed
):
    whole = edges.graph()
    nodes = torch.randperm(whole.num_nodes, generator=torch.Generator().manual_seed(seed))[:2]
    layers, kept, places = whole.around(nodes, hops)
    near = [set(nodes.tolist())]
    pairs = list(zip(whole.src.tolist(), whole.dst.tolist(), strict=True))
    for _ in range(hops):
        reached = near[-1]
        near.append(reached | {v for u, v in pairs if u in reached} | {u for u, v in pairs if v in reached})
    assert kept[places].tolist() == nodes.tolist()
    assert [set(kept[: part.num_nodes].tolist()) for part in layers] == near[:0:-1]
    theirs = whole.messages(flow, add_inverse)
    known, everything = theirs.weights(Norm(norm)), torch.arange(whole.num_nodes)
    for part, receivers in zip(layers, near[-2::-1], strict=True):
        assert set(kept[: part.num_receivers].tolist()) == receivers
        ours = part.messages(flow, add_inverse)
        weights, numbers = ours.weights(Norm(norm)), kept[: part.num_nodes]
        heard = told(theirs, known.message, everything, receivers)
        assert told(ours, weights.message, numbers, set(numbers.tolist())) == heard
        if known.loop is not None:
            torch.testing.assert_close(weights.loop, known.loop[numbers[: part.num_receivers]])
