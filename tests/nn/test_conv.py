"""The layer equals the paper's update equation edge by edge, and is a good citizen of torch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from itertools import product
from random import Random

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

import compgcn.nn.filters
import compgcn.nn.graph
from compgcn.errors import InputError
from compgcn.kernels import Combine
from compgcn.nn.compose import COMPOSITIONS, LEARNED, Composition, Learned
from compgcn.nn.conv import CompGCNConv
from compgcn.nn.filters import FILTERS
from compgcn.nn.graph import FLOWS, NORMS, RelationalGraph
from oracles import AWKWARD, Edges, assert_same_with_gradients, compgcn_layer, edge_lists, normal

IN, OUT = 4, 3
EVERY_PHI = pytest.mark.parametrize("composition", COMPOSITIONS)
SHUFFLES = st.integers(0, 2**31).map(Random)
EVERY_FILTER = pytest.mark.parametrize("filters", FILTERS)
EVERY_LEARNED = pytest.mark.parametrize("learned", LEARNED.values(), ids=list(LEARNED))
EVERY_ROW = pytest.mark.parametrize(
    "composition", [*COMPOSITIONS, *LEARNED.values()], ids=lambda row: getattr(row, "name", row)
)
COUNTED = pytest.mark.parametrize("counted", [False, True], ids=["all edges", "edges of some weight"])


def inputs(edges: Edges, add_inverse: bool = True, seed: int = 0, width: int = IN, dtype: torch.dtype = torch.float64):
    rows = edges.num_relations * (1 + add_inverse)
    return normal(edges.num_nodes, width, seed=seed, dtype=dtype), normal(rows, width, seed=seed + 1, dtype=dtype)


def layer_of(edges: Edges, composition: str | Composition | Learned = "corr", seed: int = 5, **options) -> CompGCNConv:
    """A float64 layer whose every parameter is random, biases included."""
    layer = CompGCNConv(IN, OUT, edges.num_relations, composition, **options).double()
    for i, parameter in enumerate(layer.parameters()):
        parameter.data = normal(*parameter.shape, seed=seed + i, grad=False)
    return layer


def stored(layer: CompGCNConv, *args) -> list[int]:
    """The sizes of the tensors that a call keeps for the gradient."""
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        layer(*args)
    return sizes


def names(layer: CompGCNConv) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in layer.named_parameters()}


# the update equation


def test_the_layer_has_the_parameters_of_the_paper_and_a_vector_for_the_loop():
    matrix = (5, 7)
    expected = dict.fromkeys(("weight_original", "weight_inverse", "weight_loop", "weight_relation"), matrix)
    assert names(CompGCNConv(5, 7, 3)) == {**expected, "loop_relation": (1, 5)}
    assert names(CompGCNConv(5, 7, 3, bias=True)) == {**expected, "loop_relation": (1, 5), "bias": (7,)}
    assert names(CompGCNConv(5, 7, 3, add_inverse=False)).keys() == expected.keys() - {"weight_inverse"} | {
        "loop_relation"
    }
    assert names(CompGCNConv(5, 7, 3, self_loop=False)).keys() == expected.keys() - {"weight_loop"}


@EVERY_PHI
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize(("add_inverse", "self_loop"), list(product([True, False], repeat=2)))
def test_the_layer_equals_the_update_equation_edge_by_edge(composition, norm, flow, add_inverse, self_loop):
    options = {"norm": norm, "flow": flow, "add_inverse": add_inverse, "self_loop": self_loop}
    layer = layer_of(AWKWARD, composition, **options)
    x, rel = inputs(AWKWARD, add_inverse)
    parameters = dict(layer.named_parameters())
    ours = layer(x, rel, *AWKWARD.tensors())
    theirs = compgcn_layer(AWKWARD, x, rel, parameters, composition=composition, **options)
    assert_same_with_gradients(ours, theirs, (x, rel, *parameters.values()))


@EVERY_ROW
@settings(max_examples=15)
@given(edges=edge_lists(), norm=st.sampled_from(sorted(NORMS)), flow=st.sampled_from(FLOWS), rest=st.data())
def test_the_layer_is_right_on_any_graph_of_which_edges_count_any_number_of_times(composition, edges, norm, flow, rest):
    """A composition with parameters is composed pair by pair, with its own code."""
    self_loop, add_inverse = rest.draw(st.booleans()), rest.draw(st.booleans())
    options = {"norm": norm, "flow": flow, "self_loop": self_loop, "add_inverse": add_inverse}
    layer, (x, rel) = layer_of(edges, composition, bias=True, **options), inputs(edges, add_inverse)
    size, parameters = len(edges.triples), dict(layer.named_parameters())
    counts = rest.draw(st.none() | st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=size, max_size=size))
    phi = composition if isinstance(composition, str) else layer.phi
    theirs = compgcn_layer(edges, x, rel, parameters, composition=phi, counts=counts, **options)
    ours = layer(x, rel, *edges.tensors(), keep=None if counts is None else torch.tensor(counts))
    assert_same_with_gradients(ours, theirs, (x, rel, *parameters.values()))


def test_a_composition_of_ones_own_works_like_a_row_of_the_table():
    own = Composition("scaled", Combine.MULT, lift=lambda x: 2 * x)
    x, rel = inputs(AWKWARD)
    layer = layer_of(AWKWARD, own)
    theirs = compgcn_layer(AWKWARD, 2 * x, rel, dict(layer.named_parameters()), composition="mult")
    assert_same_with_gradients(layer(x, rel, *AWKWARD.tensors()), theirs, (x, rel, *layer.parameters()))


OPTIONS = {
    "plain": {},
    "dropout": {"dropout": 1.0},
    "loop dropout": {"dropout": 1.0, "loop_dropout": True},
    "one way": {"add_inverse": False},
    "bias": {"bias": True, "flow": "target_to_source"},
}


@pytest.mark.parametrize("composition", [*COMPOSITIONS, "ntn"])
@pytest.mark.parametrize("norm", ["symmetric", "kipf"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@COUNTED
def test_loops_as_messages_give_the_same_layer(monkeypatch, composition, norm, options, counted):
    layer, (x, rel) = (
        layer_of(AWKWARD, composition, norm=norm, **options),
        inputs(AWKWARD, options.get("add_inverse", True)),
    )
    (part,) = AWKWARD.graph().around(torch.tensor([1, 3]), 1).layers
    for graph, rows in ((AWKWARD.graph(), x), (part, x[: part.num_nodes])):
        keep = torch.arange(graph.num_edges).double() % 3 / 2 if counted else None
        folded = layer(rows, rel, graph, keep=keep)
        with monkeypatch.context() as patch:
            patch.setattr("compgcn.nn.conv.is_launch_bound", lambda x: True)
            stacked = layer(rows, rel, graph, keep=keep)
        assert_same_with_gradients(stacked, folded, (x, rel, *layer.parameters()))


# compositions with parameters


@EVERY_FILTER
@EVERY_LEARNED
def test_a_learned_composition_made_in_parts_is_the_same(monkeypatch, learned, filters):
    layer, (x, rel) = layer_of(AWKWARD, learned, filters=filters, bases=1), inputs(AWKWARD)
    whole = layer(x, rel, AWKWARD.graph())
    monkeypatch.setattr(compgcn.nn.filters, "_ROWS", 3)
    assert_same_with_gradients(layer(x, rel, AWKWARD.graph()), whole, (x, rel, *layer.parameters()))


def test_the_gradient_stores_a_bounded_number_of_messages(monkeypatch):
    layer = CompGCNConv(16, 4, 1, LEARNED["conve"], self_loop=False)
    edges = Edges([(i, 0, (i + 1) % 256) for i in range(256)], 256, 1)
    sizes = []
    for rows in (64, 512):
        monkeypatch.setattr(compgcn.nn.filters, "_ROWS", rows)
        sizes.append(sum(stored(layer, *inputs(edges, width=16, dtype=torch.float32), edges.graph())))
    assert sizes[0] < sizes[1] / 3


@EVERY_LEARNED
def test_a_learned_composition_has_parameters_that_are_kept_and_drawn_anew(learned):
    layer, (x, rel) = layer_of(AWKWARD, learned), inputs(AWKWARD)
    expected = layer(x, rel, AWKWARD.graph())
    fresh = CompGCNConv(IN, OUT, AWKWARD.num_relations, learned).double()
    fresh.load_state_dict(layer.state_dict())
    for other in (copy.deepcopy(layer), fresh):
        torch.testing.assert_close(other(x, rel, AWKWARD.graph()), expected, rtol=0, atol=0)
    fresh.reset_parameters()
    changed = [not torch.equal(a, b) for a, b in zip(fresh.phi.parameters(), layer.phi.parameters(), strict=True)]
    assert all(changed)


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 12, 100])
def test_conve_composes_vectors_of_any_dimension_row_by_row(dim):
    phi, x, z = LEARNED["conve"].build(dim).double(), normal(5, dim), normal(5, dim, seed=1)
    rows = torch.cat([phi(a, b) for a, b in zip(x.split(1), z.split(1), strict=True)])
    torch.testing.assert_close(phi.train()(x, z), rows)
    torch.testing.assert_close(phi.eval()(x, z), rows)


# basis matrices, mixed or one at a time

WAYS = {  # mixed into a matrix per relation; a basis at a time, its sums kept; and made again for the gradient
    "mixed": {"mixes": lambda *sizes: True},
    "kept": {"mixes": lambda *sizes: False, "_KEPT": 2**26},
    "again": {"mixes": lambda *sizes: False, "_KEPT": 0},
}


def by_way(way: str, layer: Callable, *args, **options):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in WAYS[way].items():
            patch.setattr(compgcn.nn.filters, name, value)
        return layer(*args, **options)


@pytest.mark.parametrize("way", ["kept", "again"])
@EVERY_ROW
@COUNTED
@given(edges=edge_lists())
@settings(max_examples=4)
@example(edges=AWKWARD)
def test_bases_one_at_a_time_are_the_mixed_ones(way, composition, counted, edges):
    options = {"norm": "kipf", "relation_bias": True, "bias": True, "roles": counted}
    layer = layer_of(edges, composition, filters="basis", bases=3, **options)
    (x, rel), graph = inputs(edges), edges.graph()
    keep = torch.arange(graph.num_edges).double() % 3 / 2 if counted else None
    ours, theirs = (by_way(name, layer, x, rel, graph, keep=keep) for name in (way, "mixed"))
    assert_same_with_gradients(ours, theirs, (x, rel, *layer.parameters()))


def test_many_relations_keep_no_matrix_each():
    R, width, triples = 300, 16, [(i % 7, i, (i + 1) % 7) for i in range(300)]
    edges = Edges(triples, 7, R)
    layer, (x, rel) = CompGCNConv(width, 256, R, "copy", filters="basis", bases=2), inputs(edges, width=width)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compgcn.nn.filters, "_FEW", 0)
        assert max(stored(layer, x.float(), rel.float(), edges.graph())) < 2 * R * 256
    assert max(by_way("mixed", partial(stored, layer), x.float(), rel.float(), edges.graph())) >= 2 * R * width * 256


# edges left out


@EVERY_FILTER
@pytest.mark.parametrize("norm", ["symmetric", "kipf", "relation-mean"])
def test_an_edge_left_out_is_missing_and_the_others_count_what_they_did(filters, norm):
    layer = layer_of(AWKWARD, filters=filters, bases=1, norm=norm, relation_bias=True)
    (x, rel), graph = inputs(AWKWARD), AWKWARD.graph()
    gone = [0, 3, 6]
    stay = torch.tensor([i for i in range(graph.num_edges) if i not in gone])
    part = RelationalGraph(graph.src[stay], graph.dst[stay], graph.rel[stay], graph.num_nodes, graph.num_relations)
    part._part_of = (graph, stay, torch.arange(graph.num_nodes))  # weighted as in the whole graph
    keep = torch.ones(graph.num_edges).index_fill(0, torch.tensor(gone), 0.0)
    leaves = [x, rel, *layer.parameters()]
    assert_same_with_gradients(layer(x, rel, graph, keep=keep), layer(x, rel, part), leaves)
    assert_same_with_gradients(layer(x, rel, graph, keep=keep > 0), layer(x, rel, part), leaves)


# symmetries


@EVERY_FILTER
@given(edge_lists(), SHUFFLES)
def test_renaming_the_nodes_renames_the_output_and_the_order_of_the_edges_does_not_matter(filters, edges, random):
    layer, (x, rel) = layer_of(edges, filters=filters, bases=1), inputs(edges)
    order = random.sample(range(edges.num_nodes), edges.num_nodes)
    triples = [(order[s], r, order[o]) for s, r, o in random.sample(edges.triples, len(edges.triples))]
    there = torch.empty_like(x)
    there[order] = x.detach()
    renamed = layer(there, rel, edges._replace(triples=triples).graph())[0]
    torch.testing.assert_close(renamed[order], layer(x, rel, edges.graph())[0])


@given(edge_lists(), SHUFFLES)
def test_renaming_the_relations_renames_their_vectors(edges, random):
    layer, (x, rel) = layer_of(edges), inputs(edges)
    R = edges.num_relations
    order = random.sample(range(R), R)
    renamed = edges._replace(triples=[(s, order[r], o) for s, r, o in edges.triples])
    both = order + [R + r for r in order]
    there = torch.empty_like(rel)
    there[both] = rel.detach()
    ours, expected = layer(x, there, renamed.graph()), layer(x, rel, edges.graph())
    torch.testing.assert_close(ours[0], expected[0])
    torch.testing.assert_close(ours[1][both], expected[1])


# how it is called


@pytest.fixture
def plans(monkeypatch) -> list[int]:
    """Grows by one whenever messages are sorted."""
    made: list[int] = []
    original = compgcn.nn.graph.make_plan

    def counting(*args, **kwargs):
        made.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(compgcn.nn.graph, "make_plan", counting)
    return made


def test_the_same_tensors_are_sorted_once(plans):
    layer, (x, rel), tensors = layer_of(AWKWARD), inputs(AWKWARD), AWKWARD.tensors()
    first = layer(x, rel, *tensors)
    for _ in range(3):
        torch.testing.assert_close(layer(x, rel, *tensors), first, rtol=0, atol=0)
    assert len(plans) == 1


@pytest.mark.parametrize("which", [0, 1], ids=["edge_index", "edge_type"])
def test_writing_into_a_tensor_makes_it_another_graph(plans, which):
    layer, (x, rel), tensors = layer_of(AWKWARD), inputs(AWKWARD), AWKWARD.tensors()
    before = layer(x, rel, *tensors)[0]
    tensors[which].view(-1)[0] = 2
    after = layer(x, rel, *tensors)[0]
    assert len(plans) == 2
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, copy.deepcopy(layer)(x, rel, *(t.clone() for t in tensors))[0])


def test_other_tensors_and_other_sizes_are_other_graphs():
    layer, (x, rel), (edge_index, edge_type) = layer_of(AWKWARD), inputs(AWKWARD), AWKWARD.tensors()
    layer(x, rel, edge_index, edge_type)
    fewer = AWKWARD._replace(triples=AWKWARD.triples[:4])
    torch.testing.assert_close(layer(x, rel, *fewer.tensors())[0], layer(x, rel, fewer.graph())[0])
    larger = torch.cat((x, x))
    layer(x, rel, edge_index, edge_type)
    out = layer(larger, rel, edge_index, edge_type)[0]
    assert out.shape == (2 * AWKWARD.num_nodes, OUT)
    torch.testing.assert_close(out, layer(larger, rel, AWKWARD._replace(num_nodes=len(larger)).graph())[0])


@EVERY_FILTER
@pytest.mark.parametrize("as_graph", [True, False], ids=["graph", "tensors"])
def test_a_graph_first_seen_in_inference_mode_can_be_trained_on(filters, as_graph):
    layer, (x, rel) = layer_of(AWKWARD, filters=filters, bases=1, relation_bias=True), inputs(AWKWARD)
    args = (AWKWARD.graph(),) if as_graph else AWKWARD.tensors()
    with torch.inference_mode():
        seen = layer(x, rel, *args)[0]
    out = layer(x, rel, *args)[0]
    torch.testing.assert_close(out.detach(), seen.clone())
    out.sum().backward()
    assert x.grad.isfinite().all()


def test_an_empty_graph_and_no_relations_pass_through():
    layer = CompGCNConv(4, 3, 0)
    none = torch.zeros(2, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long)
    out, rel = layer(torch.zeros(0, 4), torch.zeros(0, 4), *none)
    assert out.shape == rel.shape == (0, 3)


# dropout


def halves(layer: CompGCNConv, x: Tensor, rel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three terms of the update, each alone."""
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    out = []
    for kept in ("weight_original", "weight_inverse", "weight_loop"):
        only = {
            name: p if name == kept or name.endswith("relation") else torch.zeros_like(p)
            for name, p in parameters.items()
        }
        out.append(compgcn_layer(AWKWARD, x.detach(), rel.detach(), only)[0])
    return tuple(out)


@pytest.mark.parametrize("loop_dropout", [False, True])
def test_each_direction_is_dropped_by_itself_after_its_filter_and_the_bias_never(loop_dropout):
    torch.manual_seed(0)
    layer, (x, rel) = layer_of(AWKWARD, dropout=0.5, loop_dropout=loop_dropout, bias=True), inputs(AWKWARD)
    original, inverse, loop = halves(layer, x, rel)
    present = (original * inverse != 0).all(1)  # nodes that hear from both directions, so that every case differs
    assert present.any()
    loops = (0, 2) if loop_dropout else (1,)
    cases = [(a, b, c) for a, b in product((0, 2), repeat=2) for c in loops]
    sums = torch.stack([a * original + b * inverse + c * loop + layer.bias for a, b, c in cases])  # [cases, N, out]
    seen = torch.zeros(len(cases), dtype=torch.bool)
    for _ in range(8):
        distance = (layer(x, rel, AWKWARD.graph())[0] - sums).abs()
        assert (distance.min(0)[0] < 1e-12).all()
        seen |= (distance < 1e-12)[:, present].flatten(1).any(1)
    assert seen.all()


# a good citizen of torch


@EVERY_ROW
def test_autocast_to_bfloat16_stays_close_to_single(composition):
    first, second = (CompGCNConv(8, 8, AWKWARD.num_relations, composition) for _ in range(2))
    x, rel = inputs(AWKWARD, width=8, dtype=torch.float32)
    graph = AWKWARD.graph()

    def both() -> tuple[Tensor, Tensor]:
        return second(*first(x, rel, graph), graph)

    exact = both()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = both()
    for ours, theirs in zip(rounded, exact, strict=True):
        assert ours.dtype == torch.bfloat16
        scale = theirs.abs().max()
        torch.testing.assert_close(ours.float() / scale, theirs / scale, rtol=0.05, atol=0.05)
    sum(t.float().sum() for t in rounded).backward()
    gradients = [p.grad for p in first.parameters() if p.grad is not None]  # a copy has no use for the loop's vector
    assert all(g.isfinite().all() and g.dtype == torch.float32 for g in gradients)


COMPILED = [("corr", False, "aot_eager"), ("mult", True, "inductor"), ("ntn", True, "aot_eager")]


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # inductor's imports
@pytest.mark.parametrize(("composition", "as_graph", "compiler"), COMPILED)
def test_the_layer_compiles_as_one_graph(composition, as_graph, compiler):
    torch.compiler.reset()
    layer, (x, rel) = layer_of(AWKWARD, composition), inputs(AWKWARD)
    args = (AWKWARD.graph(),) if as_graph else AWKWARD.tensors()
    compiled = torch.compile(layer, fullgraph=True, backend=compiler)
    for _ in range(2):
        assert_same_with_gradients(compiled(x, rel, *args), layer(x, rel, *args), (x, rel, *layer.parameters()))
    keep = torch.arange(len(AWKWARD.triples)) % 2
    expected = layer(x, rel, *args, keep=keep)
    assert_same_with_gradients(compiled(x, rel, *args, keep=keep), expected, (x, rel, *layer.parameters()))
    torch.compiler.reset()


@pytest.mark.parametrize("rows", [4, 1000], ids=["parts", "whole"])
def test_a_composition_that_does_not_factor_compiles_on_a_graph_that_was_seen(monkeypatch, rows):
    torch.compiler.reset()
    monkeypatch.setattr(compgcn.nn.filters, "_ROWS", rows)
    layer, (x, rel), graph = layer_of(AWKWARD, LEARNED["conve"]), inputs(AWKWARD), AWKWARD.graph()
    expected = layer(x, rel, graph)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_same_with_gradients(compiled(x, rel, graph), expected, (x, rel, *layer.parameters()))
    torch.compiler.reset()


# what is answered with a sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"x": torch.zeros(6, 5)}, r"x must have shape \[6, 4\], not \[6, 5\]"),
        ({"x": torch.zeros(6)}, r"x must have shape \[N, 4\], not \[6\]"),
        ({"x": torch.zeros(6, 4).double()}, r"x is torch.float64 and the layer torch.float32"),
        ({"rel": torch.zeros(3, 4)}, r"rel must have shape \[6, 4\], not \[3, 4\]"),
        ({"rel": None}, r"rel must have shape \[6, 4\], not None"),
        ({"edge_index": torch.zeros(3, 10, dtype=torch.long)}, r"edge_index must have shape \[2, E\], not \[3, 10\]"),
        ({"edge_type": None}, r"edge_type is missing"),
        ({"keep": torch.ones(20)}, r"keep must have shape \[10\], one number per edge, not \[20\]"),
        ({"edge_index": AWKWARD._replace(num_relations=4).graph()}, "the graph has 4 relations, the layer 3"),
        ({"edge_index": AWKWARD._replace(num_nodes=8).graph()}, r"x must have shape \[8, 4\], not \[6, 4\]"),
    ],
)
def test_wrong_input_is_answered_with_the_shapes(arguments, sentence):
    x, rel = inputs(AWKWARD, dtype=torch.float32)
    edge_index, edge_type = AWKWARD.tensors()
    given_ = {"x": x, "rel": rel, "edge_index": edge_index, "edge_type": edge_type, **arguments}
    with pytest.raises(InputError, match=sentence):
        CompGCNConv(IN, OUT, AWKWARD.num_relations)(**given_)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"composition": "cor"}, "unknown composition 'cor'; did you mean 'corr'"),
        ({"norm": "symetric"}, "unknown norm 'symetric'; did you mean 'symmetric'"),
        ({"flow": "target_to_sorce"}, "unknown flow 'target_to_sorce'; did you mean 'target_to_source'"),
        ({"composition": "corr", "relations": "none"}, "composition 'corr' does not work with relations='none'"),
        ({"composition": "ntn", "relations": "scalars"}, "composition 'ntn' does not work with relations='scalars'"),
        ({"composition": "add", "relations": "none", "roles": True}, "'add' by roles does not work with relations="),
        ({"relations": "vector"}, "unknown relations 'vector'; did you mean 'vectors'"),
        ({"filters": "relations"}, "unknown filters 'relations'; did you mean 'relation'"),
        ({"filters": "basis"}, "bases of at least 1, not 0"),
        ({"filters": "block", "bases": 3}, "number of blocks, 3, must divide the dimensions 4 and 3"),
    ],
)
def test_a_wrong_option_is_answered_when_the_layer_is_made(options, sentence):
    with pytest.raises(InputError, match=sentence):
        CompGCNConv(IN, OUT, 2, **options)


@EVERY_FILTER
def test_a_saved_layer_is_the_same_and_does_not_carry_the_last_graph_it_saw(filters):
    layer, (x, rel) = CompGCNConv(IN, OUT, 2, filters=filters, bases=1), (torch.randn(9, IN), torch.randn(4, IN))
    small = len(pickle.dumps(layer))
    tensors = torch.randint(9, (2, 5000)), torch.randint(2, (5000,))
    out = layer(x, rel, *tensors)[0]
    saved = pickle.dumps(layer)
    assert len(saved) < small + 1000
    assert torch.equal(pickle.loads(saved)(x, rel, *tensors)[0], out)  # noqa: S301
