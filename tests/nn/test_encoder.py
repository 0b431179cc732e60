"""Proposition 1: every preset equals the formula of its own paper, and has as many parameters as the paper counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from compgcn.errors import InputError
from compgcn.nn.compose import COMPOSITIONS, LEARNED
from compgcn.nn.conv import CompGCNConv
from compgcn.nn.decoders import DECODERS
from compgcn.nn.encoder import PRESETS, Encoder, RelationTable
from compgcn.nn.graph import FLOWS
from oracles import (
    AWKWARD,
    NORM_FORMULAS,
    Edges,
    assert_same_with_gradients,
    compgcn_layer,
    edge_lists,
    normal,
    phi,
    sent,
    vrgcn_layer,
    weighted_sum,
)

EVERY = pytest.mark.parametrize("name", PRESETS)
DEPTHS = pytest.mark.parametrize("dims", [(4, 6), (4, 6, 2)], ids=["one layer", "two layers"])
WITH_VECTORS = [name for name, row in PRESETS.items() if row.relations == "vectors"]
WITH_LAYERS = [name for name in PRESETS if name != "none"]
COMPOSING = [name for name, row in PRESETS.items() if row.composition is None]
BASES = {"rgcn-basis": 3, "rgcn-block": 2}
TAKEN = [(name, B) for name, row in PRESETS.items() for B in {None: [0], 0: [0, 2, 4]}.get(row.bases, [2, 4])]


def encoder_of(edges: Edges, dims, name: str, **options) -> Encoder:
    """A float64 encoder without batch norm whose every parameter is random."""
    options = {"batch_norm": False, "bases": BASES.get(name, 0), **options}
    encoder = Encoder(edges.num_nodes, edges.num_relations, dims, name, **options).double()
    for i, parameter in enumerate(encoder.parameters()):
        parameter.data = normal(*parameter.shape, seed=20 + i, grad=False)
    return encoder


# the formulas, one layer each: (edges, h, layer, flow) -> h before the activation


def incoming(edges: Edges, flow: str, norm: str):
    """Every message with its weight, originals and inverses."""
    messages = sent(edges, flow)
    return list(zip(messages, NORM_FORMULAS[norm](messages, edges.num_nodes, True)[0], strict=True))


def kipf_gcn(edges: Edges, h: Tensor, layer: CompGCNConv, flow: str) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 H W, A the undirected adjacency."""
    n = edges.num_nodes
    adjacency = torch.eye(n, dtype=h.dtype)
    for src, _, dst in edges.triples:
        adjacency[src, dst] += 1
        adjacency[dst, src] += 1
    root = torch.diag(adjacency.sum(1) ** -0.5)
    return root @ adjacency @ root @ h @ layer.weight


def directed_gcn(edges: Edges, h: Tensor, layer: CompGCNConv, flow: str) -> Tensor:
    """Sum of w (h_u W_dir(r) + b_r), and h_v W_loop."""
    filters = layer.weight_original, layer.weight_inverse
    terms = [
        (m.receiver, w * (h[m.sender] @ filters[m.direction] + layer.relation_bias[m.relation]))
        for m, w in incoming(edges, flow, "symmetric")
    ]
    loop = h @ layer.weight_loop
    return weighted_sum(edges.num_nodes, terms, loop) + loop


def relational_gcn(edges: Edges, h: Tensor, layer: CompGCNConv, flow: str, filters: list[Tensor]) -> Tensor:
    """Over every relation, the mean over its neighbours of h_u W_r, and h_v W_0."""
    loop = h @ layer.weight_loop
    rows = []
    for v in range(edges.num_nodes):
        row = loop[v]
        for r, W in enumerate(filters):
            neighbours = [m.sender for m in sent(edges, flow) if m.receiver == v and m.relation == r]
            if neighbours:
                row = row + sum(h[u] @ W for u in neighbours) / len(neighbours)
        rows.append(row)
    return torch.stack(rows)


def basis_filters(layer: CompGCNConv) -> list[Tensor]:
    return [sum(a * V for a, V in zip(row, layer.bases, strict=True)) for row in layer.coefficients]


def weighted_gcn(edges: Edges, h: Tensor, layer: CompGCNConv, flow: str) -> Tensor:
    """(sum of w alpha_r h_u + alpha_loop h_v) W."""
    alpha = layer.relation_scale[:, 0]
    terms = [(m.receiver, w * alpha[m.relation] * h[m.sender]) for m, w in incoming(edges, flow, "symmetric")]
    return (weighted_sum(edges.num_nodes, terms, h) + layer.loop_relation * h) @ layer.weight


REDUCTIONS: dict[str, Callable[[Edges, Tensor, CompGCNConv, str], Tensor]] = {
    "gcn": kipf_gcn,
    "dgcn": directed_gcn,
    "rgcn": lambda *args: relational_gcn(*args, list(args[2].weight)),
    "rgcn-basis": lambda *args: relational_gcn(*args, basis_filters(args[2])),
    "rgcn-block": lambda *args: relational_gcn(*args, [torch.block_diag(*blocks) for blocks in args[2].blocks]),
    "wgcn": weighted_gcn,
}


def test_every_preset_has_a_formula_to_be_tested_against():
    assert set(PRESETS) == {*REDUCTIONS, *COMPOSING, "vrgcn", "none"}


@pytest.mark.parametrize("name", REDUCTIONS)
@DEPTHS
@given(edges=edge_lists(), flow=st.sampled_from(FLOWS))
@example(edges=AWKWARD, flow=FLOWS[0])
@example(edges=AWKWARD, flow=FLOWS[1])
def test_a_preset_is_the_model_of_its_paper(name, dims, edges, flow):
    encoder = encoder_of(edges, dims, name, flow=flow)
    h = encoder.nodes
    for layer in encoder.layers:
        h = torch.tanh(REDUCTIONS[name](edges, h, layer, flow))
    x, z = encoder(edges.graph())
    assert z is None
    assert_same_with_gradients(x, h, list(encoder.parameters()))


@DEPTHS
@given(edges=edge_lists(), flow=st.sampled_from(FLOWS))
@example(edges=AWKWARD, flow=FLOWS[0])
def test_vrgcn_moves_by_the_relation_towards_the_object_and_back_towards_the_subject(dims, edges, flow):
    encoder = encoder_of(edges, dims, "vrgcn", flow=flow)
    h, z = encoder.nodes, encoder.relations.weight
    for layer in encoder.layers:
        h, z = map(torch.tanh, vrgcn_layer(edges, h, z, layer.weight, layer.weight_relation))
    assert_same_with_gradients(encoder(edges.graph()), (h, z), list(encoder.parameters()))


@pytest.mark.parametrize("name", COMPOSING)
@pytest.mark.parametrize("composition", COMPOSITIONS)
@DEPTHS
def test_compgcn_is_its_update_equation_layer_by_layer(name, composition, dims):
    encoder = encoder_of(AWKWARD, dims, name, composition=composition)
    h, z = encoder.nodes, encoder.relations.weight
    for layer in encoder.layers:
        options = {"composition": composition, "norm": PRESETS[name].norm, "flow": "target_to_source"}
        h, z = compgcn_layer(AWKWARD, h, z, dict(layer.named_parameters()), **options)
        h = torch.tanh(h)
    assert_same_with_gradients(encoder(AWKWARD.graph()), (h, z), list(encoder.parameters()))


@pytest.mark.parametrize("composition", ["sub", "mult", "corr"])
@pytest.mark.parametrize("stacked", [True, False])
def test_an_updated_loop_is_one_more_relation_of_the_papers_equations(composition, stacked, monkeypatch):
    """z_loop enters the second layer as W_rel z_loop of the first, as every relation does."""
    monkeypatch.setattr("compgcn.nn.conv.is_launch_bound", lambda x: stacked)
    encoder = encoder_of(AWKWARD, (4, 6, 5), "compgcn", composition=composition, update_loop=True)
    x, z, loop = encoder.nodes, encoder.relations(), encoder.loop
    for layer in encoder.layers:
        parameters = {**dict(layer.named_parameters()), "loop_relation": loop}
        x, z = compgcn_layer(AWKWARD, x, z, parameters, composition=composition, flow="target_to_source")
        x, loop = torch.tanh(x), loop @ layer.weight_relation
    assert_same_with_gradients(encoder(AWKWARD.graph()), (x, z), list(encoder.parameters()))


def test_no_encoder_is_the_table_itself():
    encoder = Encoder(6, 3, (5, 8, 4), "none")
    x, z = encoder(AWKWARD.graph())
    assert x is encoder.nodes
    assert x.shape == (6, 4)
    assert z is None
    assert [name for name, _ in encoder.named_parameters()] == ["nodes"]


# the released behaviour, written out with dense matrices


def released_layer(edges: Edges, h: Tensor, z: Tensor, layer: CompGCNConv, composition: str) -> Tensor:
    """(original + inverse + loop) / 3 (+ bias), messages from object to subject for the original half."""
    N, R = edges.num_nodes, edges.num_relations
    total = phi(composition, h, layer.loop_relation.expand_as(h)) @ layer.weight_loop
    for half, W in enumerate((layer.weight_original, layer.weight_inverse)):
        pairs = [((s, o) if half == 0 else (o, s), r + half * R) for s, r, o in edges.triples]  # (receiver, sender), r
        degree = [sum(receiver == v for (receiver, _), _ in pairs) for v in range(N)]
        inverse_root = [d**-0.5 if d else 0.0 for d in degree]
        for (receiver, sender), r in pairs:
            message = inverse_root[receiver] * inverse_root[sender] * phi(composition, h[sender], z[r]) @ W
            total = total + torch.eye(N, dtype=h.dtype)[receiver].unsqueeze(1) * message
    out = total / 3
    return out if layer.bias is None else out + layer.bias


@pytest.mark.parametrize("composition", ["sub", "mult", "corr"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
def test_the_released_preset_computes_what_the_released_code_did(composition, bias, training):
    encoder = encoder_of(AWKWARD, (4, 6), "released", composition=composition, bias=bias, batch_norm=True)
    encoder.train(training)
    (layer,), (norm,) = encoder.layers, encoder.norms
    norm.running_mean.copy_(normal(6, seed=1, grad=False))
    norm.running_var.copy_(normal(6, seed=2, grad=False).abs())
    h = released_layer(AWKWARD, encoder.nodes, encoder.relations.weight, layer, composition)
    if training:
        mean, variance = h.mean(0), h.var(0, correction=0)
    else:
        mean, variance = norm.running_mean.clone(), norm.running_var.clone()
    expected = torch.tanh((h - mean) / (variance + norm.eps) ** 0.5 * norm.weight + norm.bias)
    z = encoder.relations.weight @ layer.weight_relation
    assert_same_with_gradients(encoder(AWKWARD.graph()), (expected, z), list(encoder.parameters()))


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_divided_by_three_a_layer_is_the_undivided_one_with_nine_times_the_eps_of_its_batch_norm(bias):
    """In values and in every gradient; a bias is taken out by either."""
    encoder = encoder_of(AWKWARD, (4, 6), "released", composition="corr", bias=bias, batch_norm=True)
    (layer,), (norm,) = encoder.layers, encoder.norms
    norm.eps = 0.1  # so that it shows
    h = 3 * released_layer(AWKWARD, encoder.nodes, encoder.relations.weight, layer, "corr")
    z = encoder.relations.weight @ layer.weight_relation

    def undivided(eps: float) -> Tensor:
        return torch.tanh((h - h.mean(0)) / (h.var(0, correction=0) + eps) ** 0.5 * norm.weight + norm.bias)

    found = encoder(AWKWARD.graph())
    assert_same_with_gradients(found, (undivided(9 * norm.eps), z), list(encoder.parameters()))
    assert not torch.allclose(found[0], undivided(norm.eps))


def test_the_sequence_is_sum_bias_batch_norm_activation_dropout():
    seen = []
    encoder = Encoder(
        6, 3, (4, 6), bias=True, hidden_dropout=0.5, activation=lambda h: seen.append(h) or torch.ones_like(h)
    )
    torch.manual_seed(0)
    x, _ = encoder(AWKWARD.graph())
    torch.testing.assert_close(seen[0].mean(0), torch.zeros(6), atol=1e-6, rtol=0)  # normalised after the bias
    assert set(x.unique().tolist()) == {0.0, 2.0}  # dropped after the activation
    assert encoder.eval()(AWKWARD.graph())[0].eq(1).all()


# parameter counts, after the paper's comparison of methods


def layer_parameters(name: str, K: int, d: int, R: int, B: int) -> int:
    """Everything except the table of entities and the batch norms; R counts the inverses."""
    return {
        "none": 0,
        "gcn": K * d * d,
        "dgcn": 3 * K * d * d + K * R * d,  # the second term: biases per relation
        "wgcn": K * d * d + K * (R + 1),  # the loop has a number too
        "rgcn": K * (R + 1) * d * d,
        "rgcn-basis": K * (B + 1) * d * d + K * R * B,
        "rgcn-block": K * (R * d * d // max(B, 1) + d * d),
        "vrgcn": 2 * K * d * d + R * d,
        **dict.fromkeys(COMPOSING, 4 * K * d * d + K * d + (B * d + R * B if B else R * d)),
    }[name]


def count(encoder: Encoder) -> int:
    tables = {"nodes"} | {f"norms.{name}" for name, _ in encoder.norms.named_parameters()}
    return sum(p.numel() for name, p in encoder.named_parameters() if name not in tables)


@pytest.mark.parametrize(("name", "B"), TAKEN)
@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("R", [1, 5])
def test_parameters_are_as_many_as_the_comparison_of_methods_says(name, K, R, B):
    encoder = Encoder(7, R, (8,) * (K + 1), name, bases=B)
    assert count(encoder) == layer_parameters(name, K, 8, 2 * R, B)
    assert encoder.nodes.shape == (7, 8)


# relation tables


def test_basis_vectors_are_mixed_for_the_first_layer_only():
    encoder = encoder_of(AWKWARD, (4, 6, 2), "compgcn", composition="mult", bases=2)
    table = encoder.relations
    assert table.weight.shape == (2, 4)
    assert table.alpha.shape == (2 * AWKWARD.num_relations, 2)
    z = torch.stack([sum(table.alpha[r, b] * table.weight[b] for b in range(2)) for r in range(6)])
    torch.testing.assert_close(table(), z)
    for layer in encoder.layers:
        z = z @ layer.weight_relation
    torch.testing.assert_close(encoder(AWKWARD.graph())[1], z)
    assert all("bases" not in name for name, _ in encoder.layers.named_parameters())


@pytest.mark.parametrize("options", [{}, {"bases": 2}, {"features": normal(3, 4, grad=False)}])
@pytest.mark.parametrize("name", [name for name, row in DECODERS.items() if row.backwards is not None])
def test_tied_inverses_are_their_originals_read_backwards(options, name):
    backwards = DECODERS[name].backwards
    table = RelationTable(3, 4, tie_inverse=backwards, **options)
    z = table()
    assert z.shape == (6, 4)
    assert torch.equal(z[3:], backwards(z[:3]))
    assert sum(weights.numel() for weights in table.parameters()) == (
        0 if "features" in options else 12 if not options else 14
    )


@pytest.mark.parametrize("backwards", [torch.neg, torch.clone])
@pytest.mark.parametrize("options", [{}, {"bases": 2}, {"residual": 4}])
def test_inverses_that_start_tied_by_a_sign_come_out_so(backwards, options):
    encoder = Encoder(AWKWARD.num_nodes, AWKWARD.num_relations, [4, 6], tie_inverse=backwards, **options)
    with torch.no_grad():
        for weights in encoder.parameters():
            weights += 0.3 * torch.randn_like(weights)  # what starts at zero hides nothing
    z = encoder(AWKWARD.graph())[1]
    half = AWKWARD.num_relations
    torch.testing.assert_close(z[half : 2 * half], backwards(z[:half]))


@pytest.mark.parametrize("tie_inverse", [None, torch.neg])
@pytest.mark.parametrize("bases", [0, 2])
def test_without_inverses_a_table_has_one_row_per_relation(tie_inverse, bases):
    table = RelationTable(3, 4, inverses=False, bases=bases, tie_inverse=tie_inverse)
    assert table().shape == (3, 4)
    features = normal(3, 4, grad=False)
    table = RelationTable(3, 4, inverses=False, tie_inverse=tie_inverse, features=features)
    assert torch.equal(table(), features)
    assert not list(table.parameters())


def test_given_features_are_used_as_they_are():
    nodes, relations = normal(6, 4, grad=False), normal(6, 4, seed=1, grad=False)
    encoder = encoder_of(AWKWARD, (4, 6), "compgcn", node_features=nodes, relation_features=relations)
    assert encoder.nodes is None
    assert not list(encoder.relations.parameters())
    (layer,) = encoder.layers
    h, z = compgcn_layer(
        AWKWARD, nodes, relations, dict(layer.named_parameters()), norm="symmetric", flow="target_to_source"
    )
    assert_same_with_gradients(encoder(AWKWARD.graph()), (torch.tanh(h), z), list(encoder.parameters()))


def test_features_of_the_originals_alone_give_inverses_by_a_learned_map():
    features = normal(3, 4, grad=False)
    encoder = encoder_of(AWKWARD, (4, 6), "compgcn", relation_features=features)
    z = encoder.relations()
    torch.testing.assert_close(z[:3], features)
    torch.testing.assert_close(z[3:], features @ encoder.relations.inverse)
    encoder(AWKWARD.graph())[0].sum().backward()
    assert encoder.relations.inverse.grad.any()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"node_features": torch.zeros(5, 4)}, r"node features must have shape \[6, 4\], not \[5, 4\]"),
        ({"node_features": torch.zeros(6, 3)}, r"node features must have shape \[6, 4\], not \[6, 3\]"),
        ({"relation_features": torch.zeros(4, 4)}, r"shape \[3, 4\] or \[6, 4\], not \[4, 4\]"),
        (
            {"relation_features": torch.zeros(6, 4), "tie_inverse": torch.neg},
            r"shape \[3, 4\], not \[6, 4\]; inverses are tied",
        ),
        ({"relation_features": torch.zeros(6, 4), "add_inverse": False}, r"shape \[3, 4\], not \[6, 4\]"),
        ({"name": "gcn", "composition": "corr"}, "encoder 'gcn' has composition 'copy'"),
        ({"name": "compgnc"}, "unknown encoder 'compgnc'; did you mean .*'compgcn'"),
        ({"residual": 8, "dims": (4,)}, "without a layer there is nothing to add to a residual"),
        ({"dims": ()}, r"at least one positive dimension, not \[\]"),
        ({"update_loop": True, "self_loop": False}, "needs a loop with a relation vector"),
        ({"update_loop": True, "name": "rgcn"}, "needs a loop with a relation vector"),
        ({"update_loop": True, "name": "vrgcn"}, "needs a loop with a relation vector"),
        ({"dims": (4, 0)}, r"at least one positive dimension, not \[4, 0\]"),
    ],
)
def test_a_wrong_option_is_answered_with_a_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        Encoder(**{"num_nodes": 6, "num_relations": 3, "dims": (4, 6), **options})


# raw vectors beside the encoder, and edges left out


@pytest.mark.parametrize("name", WITH_LAYERS)
def test_a_residual_starts_from_its_raw_vectors_alone(name):
    encoder = Encoder(AWKWARD.num_nodes, AWKWARD.num_relations, (4, 6), name, bases=BASES.get(name, 0), residual=8)
    rows = torch.tensor([0, 0, 1, 1, 2, 2])  # nodes that share an input share a raw vector
    assert torch.equal(encoder(AWKWARD.graph(), rows)[0], encoder.residual.nodes[rows])
    x, z = encoder(AWKWARD.graph())
    assert encoder.dim == 8
    assert torch.equal(x, encoder.residual.nodes)
    assert z is None or torch.equal(z, encoder.residual.relations())
    (x.sum() if z is None else x.sum() + z.sum()).backward()
    assert encoder.residual.weight.grad.any()  # so it does not stay there


@pytest.mark.parametrize("name", WITH_LAYERS)
def test_a_residual_adds_an_image_of_what_the_encoder_gives(name):
    encoder = encoder_of(AWKWARD, (4, 6), name, residual=8)
    ours = [part for part in encoder(AWKWARD.graph()) if part is not None]
    residual, encoder.residual = encoder.residual, None
    h, z = encoder(AWKWARD.graph())
    theirs = [residual.nodes + h @ residual.weight]
    if z is not None:
        theirs.append(residual.relations.weight + z @ residual.weight_relation)
    assert_same_with_gradients(ours, theirs, [*encoder.parameters(), *residual.parameters()])


@EVERY
def test_the_same_edges_are_left_out_of_every_layer(name):
    encoder = encoder_of(AWKWARD, (4, 6, 2), name)
    keep = normal(len(AWKWARD.triples), grad=False)
    x = encoder.nodes
    z = None if encoder.relations is None else encoder.relations()
    for layer in encoder.layers:
        x, z = layer(x, z, AWKWARD.graph(), keep=keep)
        x, z = torch.tanh(x), torch.tanh(z) if name == "vrgcn" else z
    torch.testing.assert_close(encoder(AWKWARD.graph(), keep=keep), (x, z))


@pytest.mark.parametrize("model", [*WITH_LAYERS, *LEARNED])
@DEPTHS
@pytest.mark.parametrize("flow", FLOWS)
def test_some_nodes_hear_around_them_what_they_hear_in_the_whole_graph(model, dims, flow):
    name, composition = ("compgcn", model) if model in LEARNED else (model, None)
    encoder = encoder_of(AWKWARD, dims, name, composition=composition, flow=flow, residual=5)
    graph, nodes = AWKWARD.graph(), torch.tensor([4, 2])
    near, kept = graph.around(nodes, len(dims) - 1), normal(graph.num_edges, grad=False)
    every = graph.sampled(nodes, [99] * (len(dims) - 1), flow)
    for (parts, rows, places), keep in ((near, None), (near, kept), (every, None)):
        ours, theirs = encoder(parts, rows, keep)[0][places], encoder(graph, keep=keep)[0][nodes]
        assert_same_with_gradients(ours, theirs, list(encoder.parameters()))


# options and ablations


ABLATIONS = {
    "no graph": ({}, lambda graph: graph.without_edges()),
    "random graph": ({}, lambda graph: graph.randomised(torch.Generator().manual_seed(0))),
    "no self-loop": ({"self_loop": False}, lambda graph: graph),
    "no inverses": ({"add_inverse": False}, lambda graph: graph),
    "tied inverses": ({"tie_inverse": torch.neg}, lambda graph: graph),
    "no self-loop, no graph": ({"self_loop": False}, lambda graph: graph.without_edges()),
}


@EVERY
@pytest.mark.parametrize("ablation", ABLATIONS)
def test_ablations_run_and_stay_finite(name, ablation):
    torch.manual_seed(0)
    options, change = ABLATIONS[ablation]
    encoder = Encoder(6, 3, (4, 6, 2), name, bases=BASES.get(name, 0), **options)
    x, z = encoder(change(AWKWARD.graph()))
    assert x.shape == (6, 2)
    assert x.isfinite().all()
    x.square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())
    if name in WITH_VECTORS:
        assert z.shape == (3 if ablation == "no inverses" else 6, 2)


def test_every_table_and_matrix_starts_xavier_normal():
    torch.manual_seed(0)
    encoder = Encoder(300, 100, (200, 150), "compgcn")
    drawn = {
        "nodes": encoder.nodes,
        "relations": encoder.relations.weight,
        **dict(encoder.layers[0].named_parameters()),
    }
    for name, matrix in drawn.items():
        expected = (2 / sum(matrix.shape)) ** 0.5
        assert matrix.std().item() == pytest.approx(expected, rel=0.15), name


def test_the_numbers_of_wgcn_start_normal_so_that_no_relation_starts_as_the_loop():
    torch.manual_seed(0)
    (layer,) = Encoder(3, 5000, (2, 2), "wgcn").layers
    found = torch.cat((layer.relation_scale, layer.loop_relation))
    assert found.shape == (10001, 1)
    assert (found.mean().item(), found.std().item()) == pytest.approx((0, 1), abs=0.05)
