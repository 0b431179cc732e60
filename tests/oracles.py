"""Oracles: every formula written out edge by edge, sharing no code with the package.

Formulas of compositions work on the d coordinates of a vector one by one; a coordinate is a float, or a tensor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import numba
import torch
from hypothesis import strategies as st
from torch import Tensor

from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.ranking import Ranks

# compositions


def _correlation(a: Sequence, b: Sequence) -> list:
    d = len(a)
    return [sum(a[i] * b[(k + i) % d] for i in range(d)) for k in range(d)]


def _convolution(a: Sequence, b: Sequence) -> list:
    d = len(a)
    return [sum(a[i] * b[(k - i) % d] for i in range(d)) for k in range(d)]


def _complex_product(a: Sequence, b: Sequence) -> list:
    half = len(a) // 2
    real = [a[i] * b[i] - a[half + i] * b[half + i] for i in range(half)]
    imaginary = [a[i] * b[half + i] + a[half + i] * b[i] for i in range(half)]
    return real + imaginary


def _rotation(a: Sequence, b: Sequence) -> list:
    half = len(b) // 2
    modulus = [(b[i] ** 2 + b[half + i] ** 2) ** 0.5 for i in range(half)]
    return _complex_product(a, [b[i] / modulus[i % half] for i in range(2 * half)])


FORMULAS: dict[str, Callable[[Sequence, Sequence], list]] = {
    "copy": lambda a, b: list(a),
    "sub": lambda a, b: [p - q for p, q in zip(a, b, strict=True)],
    "add": lambda a, b: [p + q for p, q in zip(a, b, strict=True)],
    "mult": lambda a, b: [p * q for p, q in zip(a, b, strict=True)],
    "corr": _correlation,
    "conv": _convolution,
    "rotate": _rotation,
    "cmul": _complex_product,
}
COMPLEX = {"rotate", "cmul"}  # these need an even dimension


def phi(name: str | Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
    """The formula on tensors [.., d] of one shape; differentiable. A function of one pair may replace the name."""
    if callable(name):
        return torch.cat([name(p, q) for p, q in zip(a.split(1), b.split(1), strict=True)]) if len(a) else a
    return torch.stack(FORMULAS[name](a.unbind(-1), b.unbind(-1)), -1)


# graphs


class Edges(NamedTuple):
    """A graph as a list of (src, rel, dst)."""

    triples: list[tuple[int, int, int]]
    num_nodes: int
    num_relations: int

    def graph(self) -> RelationalGraph:
        src, rel, dst = torch.tensor(self.triples, dtype=torch.long).reshape(-1, 3).T
        return RelationalGraph(src.contiguous(), dst.contiguous(), rel.contiguous(), self.num_nodes, self.num_relations)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """(edge_index [2, E], edge_type [E])."""
        src, rel, dst = torch.tensor(self.triples, dtype=torch.long).reshape(-1, 3).T
        return torch.stack((src, dst)), rel.contiguous()


# A hub (0), an isolated node (5), a node that only sends (2), a self-edge (4), a doubled edge, and a relation without
# edges (2).
AWKWARD = Edges(
    [(1, 0, 0), (2, 1, 0), (3, 0, 0), (4, 0, 0), (0, 1, 1), (0, 0, 3), (4, 1, 4), (2, 0, 1), (2, 1, 0), (3, 1, 1)], 6, 3
)

DEGENERATE = {
    "awkward": AWKWARD,
    "no edges": Edges([], 4, 2),
    "one hub": Edges([(1 + u % 7, u % 2, 0) for u in range(80)], 8, 2),
    "a hub that sends": Edges([(0, u % 2, 1 + u % 7) for u in range(80)], 8, 2),
    "isolated nodes": Edges([(1, 0, 3)], 9, 1),
    "a relation without edges": Edges([(0, 0, 1), (1, 2, 2)], 3, 4),
    "duplicate edges": Edges([(0, 1, 1)] * 5, 2, 2),
    "self-edges": Edges([(0, 0, 0), (1, 0, 1), (1, 0, 1)], 2, 1),
    "one node": Edges([(0, 0, 0)], 1, 1),
}


@st.composite
def edge_lists(draw: st.DrawFn, max_nodes: int = 7, max_relations: int = 4, max_edges: int = 16) -> Edges:
    nodes = draw(st.integers(1, max_nodes))
    relations = draw(st.integers(1, max_relations))
    node, relation = st.integers(0, nodes - 1), st.integers(0, relations - 1)
    return Edges(draw(st.lists(st.tuples(node, relation, node), max_size=max_edges)), nodes, relations)


class Sent(NamedTuple):
    """One message."""

    sender: int
    receiver: int
    relation: int
    direction: int


def sent(edges: Edges, flow: str = "source_to_target", add_inverse: bool = True) -> list[Sent]:
    """Originals carry r one way, inverses R + r the other way."""
    out = []
    for direction in range(2 if add_inverse else 1):
        for src, rel, dst in edges.triples:
            forwards = (flow == "source_to_target") == (direction == 0)
            ends = (src, dst) if forwards else (dst, src)
            out.append(Sent(*ends, rel + direction * edges.num_relations, direction))
    return out


# norms: (weight per message, weight per loop), counted by looking at every other message


def _unweighted(messages: list[Sent], nodes: int, loop: bool) -> tuple[list[float], list[float]]:
    return [1.0] * len(messages), [1.0] * nodes


def _symmetric(messages: list[Sent], nodes: int, loop: bool) -> tuple[list[float], list[float]]:
    weights = []
    for m in messages:
        received = sum(o.direction == m.direction and o.receiver == m.receiver for o in messages)
        emitted = sum(o.direction == m.direction and o.sender == m.sender for o in messages)
        weights.append(1 / (received * emitted) ** 0.5)
    return weights, [1.0] * nodes


def _mean(messages: list[Sent], nodes: int, loop: bool) -> tuple[list[float], list[float]]:
    counts = [sum(o.direction == m.direction and o.receiver == m.receiver for o in messages) for m in messages]
    return [1 / count for count in counts], [1.0] * nodes


def _relation_mean(messages: list[Sent], nodes: int, loop: bool) -> tuple[list[float], list[float]]:
    counts = [sum(o.relation == m.relation and o.receiver == m.receiver for o in messages) for m in messages]
    return [1 / count for count in counts], [1.0] * nodes


def _kipf(messages: list[Sent], nodes: int, loop: bool) -> tuple[list[float], list[float]]:
    degree = [sum(m.receiver == v for m in messages) + loop for v in range(nodes)]
    root = [count**-0.5 if count else 0.0 for count in degree]
    return [root[m.receiver] * root[m.sender] for m in messages], [r * r for r in root]


def _released(messages: list[Sent], nodes: int, loop: bool) -> tuple[list[float], list[float]]:
    weights = []
    for m in messages:
        half = [o for o in messages if o.direction == m.direction]
        of_receiver = sum(o.receiver == m.receiver for o in half)
        of_sender = sum(o.receiver == m.sender for o in half)  # receiving, though it sends
        weights.append((of_receiver * of_sender) ** -0.5 / 3 if of_sender else 0.0)
    return weights, [1 / 3] * nodes


NORM_FORMULAS: dict[str, Callable[[list[Sent], int, bool], tuple[list[float], list[float]]]] = {
    "none": _unweighted,
    "symmetric": _symmetric,
    "mean": _mean,
    "relation-mean": _relation_mean,
    "kipf": _kipf,
    "released": _released,
}


# layers


def weighted_sum(nodes: int, terms: Sequence[tuple[int, Tensor]], like: Tensor) -> Tensor:
    """Row v is the sum of the terms addressed to v, [N, d]; `like` says how wide a row is where there is no term."""
    width = terms[0][1].shape[0] if terms else like.shape[1]
    rows = [[like.new_zeros(width)] for _ in range(nodes)]
    for receiver, term in terms:
        rows[receiver].append(term)
    return torch.stack([torch.stack(row).sum(0) for row in rows]) + 0 * like.sum()


def vrgcn_layer(edges: Edges, x: Tensor, z: Tensor, W: Tensor, W_relation: Tensor) -> tuple[Tensor, Tensor]:
    """VR-GCN before its activation: what an entity hears as an object, what it hears as a subject, and itself."""
    rows = []
    for v in range(edges.num_nodes):
        as_object = [x[s] + z[r] for s, r, o in edges.triples if o == v]
        as_subject = [x[o] - z[r] for s, r, o in edges.triples if s == v]
        rows.append(x[v] + sum(sum(heard) / len(heard) for heard in (as_object, as_subject) if heard))
    return torch.stack(rows) @ W, z @ W_relation


def compgcn_layer(
    edges: Edges,
    x: Tensor,
    z: Tensor,
    parameters: dict[str, Tensor],
    *,
    composition: str | Callable[[Tensor, Tensor], Tensor] = "corr",
    norm: str = "symmetric",
    flow: str = "source_to_target",
    add_inverse: bool = True,
    self_loop: bool = True,
    counts: Sequence[float] | None = None,
) -> tuple[Tensor, Tensor]:
    """The update of entities and relations, one message after the other, each edge counting so many times."""
    messages = sent(edges, flow, add_inverse)
    weights, loops = NORM_FORMULAS[norm](messages, edges.num_nodes, self_loop)
    if counts is not None:
        weights = [w * counts[i % len(edges.triples)] for i, w in enumerate(weights)]
    filters = [parameters["weight_original"], parameters.get("weight_inverse")]
    composed = phi(composition, x[[m.sender for m in messages]], z[[m.relation for m in messages]])
    terms = [(m.receiver, w * y @ filters[m.direction]) for m, w, y in zip(messages, weights, composed, strict=True)]
    if self_loop:
        composed = phi(composition, x, parameters["loop_relation"].expand_as(x))
        terms += [(v, loops[v] * composed[v] @ parameters["weight_loop"]) for v in range(edges.num_nodes)]
    out = weighted_sum(edges.num_nodes, terms, x @ filters[0])
    if "bias" in parameters:
        out = out + parameters["bias"]
    return out, z @ parameters["weight_relation"]


# comparing


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, grad: bool = True) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
    return values.requires_grad_(grad)


def assert_same_with_gradients(
    ours: Tensor | Sequence[Tensor], theirs: Tensor | Sequence[Tensor], leaves: Sequence[Tensor], **tolerance: Any
) -> None:
    """The outputs agree, and so do their gradients by every leaf for a random cotangent."""
    tolerance = tolerance or {"rtol": 1e-10, "atol": 1e-11}
    gradients = []
    for outputs in (ours, theirs):
        outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
        if not gradients:
            first = outputs
        for a, b in zip(first, outputs, strict=True):
            torch.testing.assert_close(b, a, **tolerance)
        loss = sum((o * normal(*o.shape, seed=i, dtype=o.dtype, grad=False)).sum() for i, o in enumerate(outputs))
        gradients.append(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))
    for i, (a, b) in enumerate(zip(*gradients, strict=True)):
        torch.testing.assert_close(
            a, b, **tolerance, msg=lambda text, i=i: f"gradient {i} {tuple(leaves[i].shape)}: {text}"
        )


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Aggregation on the kernels of that name."""
    with mock.patch.dict(os.environ, {"COMPGCN_KERNEL": name}):
        yield


def assert_same_bits_on_any_threads(compute: Callable[[], Sequence[Tensor]]) -> None:
    """The tensors are the same bits on one thread and on two, on every call, shared out to threads or not."""
    threads, seen = (torch.get_num_threads(), numba.get_num_threads()), []
    try:
        for small, count in ((2**40, 1), (0, 1), (0, 2), (0, 2)):
            torch.set_num_threads(count)
            numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
            with mock.patch("compgcn.kernels.numba._SMALL", small):
                seen.append(compute())
    finally:
        torch.set_num_threads(threads[0])
        numba.set_num_threads(threads[1])
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))


def filtered_ranks(scores: Tensor, target: Tensor, known: Tensor) -> Ranks:
    """The definition: rank the target [B] by scores [B, N] among the entities not known [B, N], one by one."""
    rows = []
    for row, t, hidden in zip(scores.tolist(), target.tolist(), known.tolist(), strict=True):
        rivals = [score for e, score in enumerate(row) if e != t and not hidden[e]]
        above, beside = (sum(score > row[t] for score in rivals), sum(score == row[t] for score in rivals))
        rows.append((1 + above, 1 + above + beside / 2, 1 + above + beside))
    optimistic, realistic, pessimistic = torch.tensor(rows, dtype=torch.float64).reshape(-1, 3).T
    return Ranks(optimistic.long(), realistic, pessimistic.long())
