"""How the messages of a layer are summed, and the five ways of tying its filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from compgcn.errors import InputError
from compgcn.kernels import Plan, aggregate, grouped_matmul
from compgcn.kernels.combine import Combine
from compgcn.nn.compose import Composition
from compgcn.nn.graph import Messages, Norm

Shapes = dict[str, tuple[int, ...]]

_ROWS = 2**14  # messages of a composition that does not factor that are computed at a time
_FEW = 2**24  # numbers in the matrices of all relations that are few whatever the graph: 64 MiB of float32
_KEPT = 2**26  # numbers in the sums of all bases that are kept for the gradient, and not made again: 256 MiB of float32
_SUMS = (Combine.ADD, Combine.SUB)
# What is computed again for the gradient draws no random numbers, and asking for their state would stop the recording
# of a CUDA graph.
_AGAIN: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}


class Sizes(NamedTuple):
    """What the shapes of a layer's filters depend on."""

    inputs: int
    outputs: int
    relations: int  # rows of the relation table, inverses included
    directions: int
    bases: int


def neighbourhood(phi: Composition, x: Tensor, z: Tensor | None, plan: Plan, weight: Tensor | None = None) -> Tensor:
    """sum of weight * combine(x[u], z[r]) per row of the plan, [rows, D]: lifted and aggregated, not yet lowered."""
    lifted = phi.lift(x)  # [N, D]
    relations = lifted.new_zeros(1, 1) if z is None else phi.lift_relation(z)
    if z is not None and relations.shape[-1] == 1:
        relations = relations.expand(-1, lifted.shape[-1])  # a scalar per relation
    return aggregate(lifted, relations, weight, plan, phi.combine).to(x.dtype)


def contents(phi: nn.Module, x: Tensor, z: Tensor, sender: Tensor, relation: Tensor) -> Tensor:
    """phi(x[u], z[r]) for pairs (u, r) [P] of rows of x [N, d] and z [Z, d]: [P, d].

    Where there are many, they are made part by part and made again for the gradient: what phi itself stores is never
    there for more than one part.
    """
    if not len(sender):
        return x[:0]

    def part(x: Tensor, z: Tensor, u: Tensor, r: Tensor) -> Tensor:
        made: Tensor = phi(F.embedding(u, x), F.embedding(r, z))
        return made.to(x.dtype)

    if len(sender) <= _ROWS:
        return part(x, z, sender, relation)
    pieces = zip(torch.split(sender, _ROWS), torch.split(relation, _ROWS), strict=True)
    return torch.cat([checkpoint(part, x, z, u, r, **_AGAIN) for u, r in pieces])


# A tying is data too: the parameters it wants, and the sums [N, out] they give, by direction or all in one.


class Message(NamedTuple):
    """All a tying needs to know of the messages it sums."""

    phi: Composition
    x: Tensor  # [N, in]
    z: Tensor | None  # [Z, in], [Z, 1], or None where phi ignores it
    messages: Messages
    norm: Norm | None  # None: `weight` says what each message counts for [M]
    weight: Tensor | None
    apart: bool  # whether the sums of the two directions are wanted each for itself


def _halves(m: Message) -> Tensor:
    """Sums by direction, not lowered: [N, G, D]."""
    rows = neighbourhood(m.phi, m.x, m.z, m.messages.plan(m.norm), m.weight)
    return rows.view(m.messages.num_receivers, m.messages.num_directions, rows.shape[-1])


def _shared(p: Mapping[str, Tensor], m: Message) -> list[Tensor]:
    sums = _halves(m).sum(1)
    return [sums @ m.phi.fold(p["weight"], sums.shape[-1])]


def _direction(p: Mapping[str, Tensor], m: Message) -> list[Tensor]:
    names = ("weight_original", "weight_inverse")[: m.messages.num_directions]
    sums = _halves(m)  # [N, G, D]
    filters = [m.phi.fold(p[name], sums.shape[-1]) for name in names]
    if m.apart:
        return [half @ filter for half, filter in zip(sums.unbind(1), filters, strict=True)]
    return [sums.flatten(1) @ torch.cat(filters)]  # [N, G D] @ [G D, out]


def _basis(p: Mapping[str, Tensor], m: Message) -> list[Tensor]:
    """W_r = sum_b a_rb V_b: mixed into a matrix per relation, or, where that would not pay, a basis at a time."""
    coefficients, bases = p["coefficients"], p["bases"]
    B, inputs, outputs = bases.shape
    messages, receivers = m.messages.relation.numel(), m.messages.num_receivers
    if not mixes(len(coefficients), messages, receivers, B, inputs, outputs, m.x.is_cpu):
        return [_per_basis(coefficients, bases, m)]
    weight = torch.einsum("rb,bio->rio", coefficients, bases)  # [Z, in, out]
    return [_per_relation(weight.unsqueeze(1), m)]


def mixes(relations: int, messages: int, receivers: int, bases: int, inputs: int, outputs: int, on_cpu: bool) -> bool:
    """Whether to mix B bases [in, out] into a matrix for each of Z relations, for M messages to N receivers.

    Mixing takes B Z in out multiplications, and spares all but one of B passes over the messages of M in each. So it
    pays where Z out <= M; and the matrices are then no more numbers than the sums by relation and receiver that the
    one pass lays out, up to M in. Where they are few they are afforded in any case, and on a GPU that pays: B passes
    are B times as many launches.
    A CPU takes longer to write and read a number than to multiply it, so there those count: mixed, Z in out of
    matrices, up to M in of sums and M out of products, each written and read; a basis at a time, B times M in read,
    N in written and read, and N out written.
    """
    if relations * inputs * outputs > max(messages * inputs, _FEW):
        return False
    mixed = 2 * (relations * inputs * outputs + messages * (inputs + outputs))
    return not on_cpu or mixed <= bases * (messages * inputs + receivers * (2 * inputs + outputs))


def _per_basis(coefficients: Tensor, bases: Tensor, m: Message) -> Tensor:
    """sum_b (sum of weight * a_rb * phi(x[u], z[r])) V_b, for a [Z, B] and V [B, in, out]: [N, out].

    No matrix of a relation is made. The sums of each basis are kept for the gradient, or made again where those are
    many.
    """
    entities, relations, combine = _as_product(m, len(coefficients))
    halves = 2 if m.phi.combine in _SUMS else 1

    def part(entities: Tensor, relations: Tensor, a: Tensor, basis: Tensor) -> Tensor:
        factor = (a.unsqueeze(1) * relations).expand(-1, entities.shape[1])  # [Z, D]
        rows = aggregate(entities, factor, m.weight, m.messages.plan(m.norm), combine).to(m.x.dtype)
        sums = rows.view(m.messages.num_receivers, m.messages.num_directions, rows.shape[-1]).sum(1)  # [N, D]
        return sums @ m.phi.fold(basis, sums.shape[-1] // halves).repeat(halves, 1)

    kept = m.messages.num_receivers * entities.shape[1] + relations.numel()  # for one basis
    again = kept * len(bases) > _KEPT
    # Under autocast each part is half precise; their sum need not be.
    total = m.x.new_zeros(1, dtype=torch.promote_types(m.x.dtype, torch.float32))
    for a, basis in zip(coefficients.unbind(1), bases, strict=True):
        given = (entities, relations, a, basis)
        total = total + (checkpoint(part, *given, **_AGAIN) if again else part(*given))
    return total.to(m.x.dtype)


def _as_product(m: Message, rows: int) -> tuple[Tensor, Tensor, Combine]:
    """phi lifted and linear in the relation, so that what a message counts for is a factor of its relation.

    A sum is x * 1 + 1 * z: both products side by side, which the filter below each of them adds up.
    """
    x = m.phi.lift(m.x)  # [N, D]
    if m.phi.combine is Combine.COPY:
        return x, x.new_ones(rows, 1), Combine.MULT
    assert m.z is not None
    z = m.phi.lift_relation(m.z).expand(-1, x.shape[-1])  # [Z, D], also of a scalar per relation
    if m.phi.combine not in _SUMS:
        return x, z, m.phi.combine
    z = z if m.phi.combine is Combine.ADD else -z
    return torch.cat((x, torch.ones_like(x)), 1), torch.cat((torch.ones_like(z), z), 1), Combine.MULT


def _relation(p: Mapping[str, Tensor], m: Message) -> list[Tensor]:
    return [_per_relation(p["weight"].unsqueeze(1), m)]


def _block(p: Mapping[str, Tensor], m: Message) -> list[Tensor]:
    return [_per_relation(p["blocks"], m)]


def _per_relation(weight: Tensor, m: Message) -> Tensor:
    """Filters [Z, B, in/B, out/B] of B diagonal blocks: sums by (relation, receiver), filtered, summed by receiver."""
    pairs = m.messages.pairs(m.norm)
    sums = m.phi.lower(neighbourhood(m.phi, m.x, m.z, pairs.gather, m.weight), m.x.shape[1])  # [P, in]
    y = grouped_matmul(sums.view(-1, *weight.shape[1:3]), weight, pairs.groups).flatten(1)  # [P, out]
    return aggregate(y, y.new_zeros(1, 1), None, pairs.scatter, Combine.COPY)


class Tying(NamedTuple):
    """lambda(r) of the paper: which relations share a filter."""

    name: str
    shapes: Callable[[Sizes], Shapes]
    sums: Callable[[Mapping[str, Tensor], Message], list[Tensor]]
    loop: str  # the parameter that transforms the self-loop


def _direction_shapes(s: Sizes) -> Shapes:
    names = ("weight_original", "weight_inverse")[: s.directions]
    return dict.fromkeys((*names, "weight_loop"), (s.inputs, s.outputs))


def _basis_shapes(s: Sizes) -> Shapes:
    if s.bases < 1:
        raise InputError(f"weights tied by basis need bases of at least 1, not {s.bases}")
    shape = (s.inputs, s.outputs)
    return {"bases": (s.bases, *shape), "coefficients": (s.relations, s.bases), "weight_loop": shape}


def _block_shapes(s: Sizes) -> Shapes:
    if s.bases < 1 or s.inputs % s.bases or s.outputs % s.bases:
        raise InputError(f"the number of blocks, {s.bases}, must divide the dimensions {s.inputs} and {s.outputs}")
    blocks = (s.relations, s.bases, s.inputs // s.bases, s.outputs // s.bases)
    return {"blocks": blocks, "weight_loop": (s.inputs, s.outputs)}


TYINGS: dict[str, Tying] = {
    row.name: row
    for row in (
        Tying("shared", lambda s: {"weight": (s.inputs, s.outputs)}, _shared, "weight"),
        Tying("direction", _direction_shapes, _direction, "weight_loop"),
        Tying(
            "relation",
            lambda s: {"weight": (s.relations, s.inputs, s.outputs), "weight_loop": (s.inputs, s.outputs)},
            _relation,
            "weight_loop",
        ),
        Tying("basis", _basis_shapes, _basis, "weight_loop"),
        Tying("block", _block_shapes, _block, "weight_loop"),
    )
}


def add_biases(sums: list[Tensor], bias: Tensor, m: Message) -> list[Tensor]:
    """To each sum, the biases [Z, out] of the relations of its messages, weighted like them."""
    plan = m.messages.relation_plan(m.norm)
    rows = aggregate(bias, bias.new_zeros(1, 1), m.weight, plan, Combine.COPY)  # [N G, out]
    halves = rows.view(m.messages.num_receivers, m.messages.num_directions, -1)
    biases = halves.unbind(1) if len(sums) > 1 else [halves.sum(1)]
    return [half + bias for half, bias in zip(sums, biases, strict=True)]
