"""Filters of a layer: which relations share a matrix, and how the sums over messages are multiplied by them.

A filter commutes with the sum over edges: the fused sum of phi(x_u, z_r) comes first, and one product per shared
filter after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from compgcn.errors import InputError
from compgcn.kernels import Combine, aggregate, grouped_matmul
from compgcn.nn.compose import Composition
from compgcn.nn.graph import Messages, Norm

Shapes = dict[str, tuple[int, ...]]

_ROWS = 2**14  # messages of a composition without factors that are computed at a time
_FEW = 2**24  # numbers in the matrices of all relations that are few for any graph: 64 MiB of float32
_KEPT = 2**26  # numbers in the sums of all bases that the gradient keeps; it computes more than 256 MiB of them again
_SUMS = (Combine.ADD, Combine.SUB)
_DIRECTIONS: tuple[str, ...] = ("weight_original", "weight_inverse")
# Code that runs again for the gradient draws no random numbers; asking for their state would stop the recording of a
# CUDA graph.
AGAIN: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}


class Sizes(NamedTuple):
    """The sizes that fix the shapes of a layer's filters."""

    inputs: int
    outputs: int
    relations: int  # rows of the relation table, inverses included
    directions: int
    bases: int


class Incoming(NamedTuple):
    """The messages of one call, and all that their sum depends on."""

    phi: Composition
    x: Tensor  # [N, D], lifted by phi
    z: Tensor  # [Z, D], lifted by phi; a placeholder where phi ignores it
    inputs: int
    dtype: torch.dtype  # of the vectors before phi lifts them
    messages: Messages
    norm: Norm | None  # None: `weight` holds the weight of each message [M]
    weight: Tensor | None
    apart: bool  # whether the caller wants the sums of the two directions apart

    def by_direction(self, rows: Tensor) -> Tensor:
        """Rows of the plan [N G, D] as [N, G, D]."""
        return rows.view(self.messages.num_receivers, self.messages.num_directions, rows.shape[-1])


def contents(phi: nn.Module, x: Tensor, z: Tensor, sender: Tensor, relation: Tensor) -> Tensor:
    """Return phi(x[u], z[r]) for pairs (u, r) [P] of rows of x [N, d] and z [Z, d]: [P, d].

    Many pairs are computed part by part, and again for the gradient: phi stores its values for one part at a time.
    """
    if not len(sender):
        return x[:0]

    def part(x: Tensor, z: Tensor, u: Tensor, r: Tensor) -> Tensor:
        made: Tensor = phi(F.embedding(u, x), F.embedding(r, z))
        return made.to(x.dtype)

    if len(sender) <= _ROWS:
        return part(x, z, sender, relation)
    pieces = zip(torch.split(sender, _ROWS), torch.split(relation, _ROWS), strict=True)
    return torch.cat([checkpoint(part, x, z, u, r, **AGAIN) for u, r in pieces])


def _direction(p: Mapping[str, Tensor], m: Incoming) -> list[Tensor]:
    """Return (Σ w phi(x_u, z_r)) W_dir of each direction apart, or of all directions added up: [N, out]."""
    sums = aggregate(m.x, m.z, m.weight, m.messages.plan(m.norm), m.phi.combine).to(m.dtype)
    sums = m.by_direction(sums)  # [N, G, D]
    names = _DIRECTIONS[: m.messages.num_directions - m.messages.loops]
    names += ("weight_loop",) if m.messages.loops else ()
    filters = m.phi.fold(torch.stack([p[name] for name in names]), sums.shape[-1])  # [G, D, out]
    if m.apart:
        return [half @ filter for half, filter in zip(sums.unbind(1), filters.unbind(), strict=True)]
    return [sums.flatten(1) @ filters.flatten(0, 1)]  # [N, G D] @ [G D, out]


def _shared(p: Mapping[str, Tensor], m: Incoming) -> list[Tensor]:
    """Return (Σ w phi(x_u, z_r)) W over both directions, [N, out]."""
    sums = aggregate(m.x, m.z, m.weight, m.messages.plan(m.norm), m.phi.combine).to(m.dtype)
    sums = m.by_direction(sums).sum(1)
    return [sums @ m.phi.fold(p["weight"], sums.shape[-1])]


def _per_relation(weight: Tensor, m: Incoming) -> list[Tensor]:
    """Multiply by a block-diagonal matrix per relation, weight [Z, blocks, in / blocks, out / blocks]: [N, out]."""
    pairs = m.messages.pairs(m.norm)
    sums = aggregate(m.x, m.z, m.weight, pairs.gather, m.phi.combine).to(m.dtype)
    sums = m.phi.lower(sums, m.inputs)  # [P, in]
    y = grouped_matmul(sums.view(-1, *weight.shape[1:3]), weight, pairs.groups).flatten(1)  # [P, out]
    return [aggregate(y, y.new_zeros(1, 1), None, pairs.scatter, Combine.COPY)]


def _basis(p: Mapping[str, Tensor], m: Incoming) -> list[Tensor]:
    """W_r = sum_b a_rb V_b, mixed into a matrix per relation, or one basis at a time."""
    coefficients, bases = p["coefficients"], p["bases"]
    B, inputs, outputs = bases.shape
    messages, receivers = m.messages.relation.numel(), m.messages.num_receivers
    if not mixes(len(coefficients), messages, receivers, B, inputs, outputs, m.x.is_cpu):
        return [_per_basis(coefficients, bases, m)]
    weight = torch.einsum("rb,bio->rio", coefficients, bases)  # [Z, in, out]
    return _per_relation(weight.unsqueeze(1), m)


def mixes(relations: int, messages: int, receivers: int, bases: int, inputs: int, outputs: int, on_cpu: bool) -> bool:
    """Return whether mixing B bases [in, out] into a matrix for each of Z relations pays, for M messages.

    Mixing takes B Z in out multiplications and saves all but one of B passes over M in numbers, so it pays where
    Z out <= M, or where the matrices are few. A CPU takes longer to move a number than to multiply it, so there the
    numbers that each way reads and writes decide.
    """
    if relations * inputs * outputs > max(messages * inputs, _FEW):
        return False
    mixed = 2 * (relations * inputs * outputs + messages * (inputs + outputs))
    return not on_cpu or mixed <= bases * (messages * inputs + receivers * (2 * inputs + outputs))


def _per_basis(coefficients: Tensor, bases: Tensor, m: Incoming) -> Tensor:
    """Return sum_b (sum of weight · a_rb · phi(x[u], z[r])) V_b for a [Z, B] and V [B, in, out]: [N, out]."""
    entities, relations, combine = _as_product(m, len(coefficients))
    halves = 2 if m.phi.combine in _SUMS else 1

    def part(entities: Tensor, relations: Tensor, a: Tensor, basis: Tensor) -> Tensor:
        factor = (a.unsqueeze(1) * relations).expand(-1, entities.shape[1])  # [Z, D]
        rows = aggregate(entities, factor, m.weight, m.messages.plan(m.norm), combine).to(m.dtype)
        sums = m.by_direction(rows).sum(1)  # [N, D]
        return sums @ m.phi.fold(basis, sums.shape[-1] // halves).repeat(halves, 1)

    again = (m.messages.num_receivers * entities.shape[1] + relations.numel()) * len(bases) > _KEPT
    # Under autocast each part is half precise; their sum need not be.
    total = m.x.new_zeros(1, dtype=torch.promote_types(m.dtype, torch.float32))
    for a, basis in zip(coefficients.unbind(1), bases, strict=True):
        given = (entities, relations, a, basis)
        total = total + (checkpoint(part, *given, **AGAIN) if again else part(*given))
    return total.to(m.dtype)


def _as_product(m: Incoming, rows: int) -> tuple[Tensor, Tensor, Combine]:
    """Bring phi into a form linear in the relation: (x + z) as x · 1 + 1 · z, both products side by side."""
    x, z = m.x, m.z
    if m.phi.combine is Combine.COPY:
        return x, x.new_ones(rows, 1), Combine.MULT
    if m.phi.combine not in _SUMS:
        return x, z, m.phi.combine
    z = z if m.phi.combine is Combine.ADD else -z
    return torch.cat((x, torch.ones_like(x)), 1), torch.cat((torch.ones_like(z), z), 1), Combine.MULT


def add_biases(sums: list[Tensor], bias: Tensor, m: Incoming) -> list[Tensor]:
    """Add to each sum the biases [Z, out] of the relations of its messages, weighted like them."""
    rows = aggregate(bias, bias.new_zeros(1, 1), m.weight, m.messages.relation_plan(m.norm), Combine.COPY)
    halves = m.by_direction(rows)  # [N, G, out]
    biases = halves.unbind(1) if len(sums) > 1 else [halves.sum(1)]
    return [half + bias for half, bias in zip(sums, biases, strict=True)]


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


class Filters(NamedTuple):
    """lambda(r) of the paper: which relations share a filter."""

    name: str
    shapes: Callable[[Sizes], Shapes]  # the parameters, in the order in which their values are drawn
    sums: Callable[[Mapping[str, Tensor], Incoming], list[Tensor]]  # [N, out] by direction, or all in one
    loop: str = "weight_loop"  # the parameter that transforms the self-loop

    def __reduce__(self) -> tuple[Callable[[str], Filters], tuple[str]]:
        return _find, (self.name,)  # a copy or a file of a layer names its row


def _find(name: str) -> Filters:
    return FILTERS[name]


FILTERS: dict[str, Filters] = {
    row.name: row
    for row in (
        Filters("shared", lambda s: {"weight": (s.inputs, s.outputs)}, _shared, loop="weight"),
        Filters(
            "direction",
            lambda s: dict.fromkeys((*_DIRECTIONS[: s.directions], "weight_loop"), (s.inputs, s.outputs)),
            _direction,
        ),
        Filters(
            "relation",
            lambda s: {"weight": (s.relations, s.inputs, s.outputs), "weight_loop": (s.inputs, s.outputs)},
            lambda p, m: _per_relation(p["weight"].unsqueeze(1), m),
        ),
        Filters("basis", _basis_shapes, _basis),
        Filters("block", _block_shapes, lambda p, m: _per_relation(p["blocks"], m)),
    )
}
