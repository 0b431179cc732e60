"""Compositions phi(x, z) of an entity with a relation: the first file to read.

Every composition of the paper factors as `phi(x, z) = lower(combine(lift(x), lift_relation(z)))` with `lower` linear.
A linear map commutes with a weighted sum over edges. So a layer lifts its two small tables once, sums
`combine(lifted x[u], lifted z[r])` over the edges in one fused pass (`compgcn.kernels`), and lowers the sums. It never
stores a message per edge. A composition is a value, one row of `COMPOSITIONS`. A composition with parameters is
a row of `LEARNED`, and the layer keeps the parameters.

Complex numbers are kept as two real planes in the last dimension, all real parts first, then all imaginary parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compgcn.errors import InputError, pick
from compgcn.kernels.backend import wide
from compgcn.kernels.reference import Combine, combined

_TRANSPOSED = {  # Σ combine(x, z)·e = Σ z·transposed(x, e)
    Combine.MULT: Combine.MULT,
    Combine.COMPLEX: Combine.CONJUGATE,
    Combine.CONJUGATE: Combine.COMPLEX,
}


def _same(x: Tensor) -> Tensor:
    return x


def _drop_width(y: Tensor, dim: int) -> Tensor:
    return y


def _spectrum(x: Tensor) -> Tensor:
    """Return the real Fourier transform as planes: [.., d] -> [.., 2 p], d//2 + 1 frequencies padded to p.

    A product with a fixed matrix costs no more than the layer's own product with W. p is a multiple of 4, so that
    kernels read whole vectors.
    """
    return _times_fourier(x, x.shape[-1], False)


def _signal(y: Tensor, dim: int) -> Tensor:
    """Invert `_spectrum`; d and d + 1 can have equally many frequencies, so it needs `dim`."""
    return _times_fourier(y, dim, True)


def _times_fourier(x: Tensor, d: int, inverse: bool) -> Tensor:
    matrix = _fourier(d, inverse, wide(x.dtype), x.device)
    if not torch.is_autocast_enabled(x.device.type):  # entering a block takes longer than a product on a GPU
        return x.to(matrix.dtype) @ matrix
    with torch.autocast(x.device.type, enabled=False):  # a rounded matrix would be no Fourier transform
        return x.to(matrix.dtype) @ matrix


def _fourier(d: int, inverse: bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the matrix [d, D] with x F the planes of the transform of x, or its inverse [D, d]."""
    make = _make_fourier if torch.compiler.is_compiling() else _kept_fourier  # a compiled graph makes it anew
    return make(d, inverse, dtype, device)


def _make_fourier(d: int, inverse: bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    time, frequency = torch.arange(d, device=device), torch.arange(-(-(d // 2 + 1) // 4) * 4, device=device)
    angle = (time.unsqueeze(1) * frequency % d).double() * (2 * math.pi / d)  # [d, p], of exact whole numbers
    ends = (frequency == 0) | (2 * frequency == d)  # the others stand for two frequencies each
    twice = torch.where(ends, 1.0, torch.where(2 * frequency < d, 2.0, 0.0)).double()
    if not inverse:
        there = (twice > 0).double()
        return torch.cat((there * angle.cos(), -there * angle.sin()), 1).to(dtype)
    share = twice.unsqueeze(1) / d
    return torch.cat((share * angle.cos().T, -share * angle.sin().T)).to(dtype)


@cache
def _kept_fourier(d: int, inverse: bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # training refuses tensors of inference mode
        return _make_fourier(d, inverse, dtype, device)


def _planes(x: Tensor) -> Tensor:
    """Read the vector itself as d/2 complex numbers."""
    if x.shape[-1] % 2:
        raise InputError(f"a complex composition needs an even dimension, not {x.shape[-1]}")
    return x


def _rotation(z: Tensor) -> Tensor:
    """Scale complex numbers to modulus 1, so that multiplying by them only turns; 0 becomes 1."""
    real, imaginary = _planes(z).chunk(2, -1)
    real = torch.where((real == 0) & (imaginary == 0), torch.ones_like(real), real)
    modulus = torch.hypot(real, imaginary)
    return torch.cat((real / modulus, imaginary / modulus), -1)


class Composition(NamedTuple):
    """phi as a value: four pure functions and their origin. Calling it composes [.., d] with [.., d].

    Where `lift` is linear as well as `lower`, phi is affine in x, and a layer folds its loop into a filter.
    """

    name: str
    combine: Combine
    lift: Callable[[Tensor], Tensor] = _same  # entities [.., d] -> [.., D]
    lift_relation: Callable[[Tensor], Tensor] = _same  # relations [.., d] -> [.., D]
    lower: Callable[[Tensor, int], Tensor] = _drop_width  # sums [.., D], d -> [.., d]; linear
    origin: str = ""
    reference: str = ""
    linear_lift: bool = True

    @property
    def is_complex(self) -> bool:
        """Whether vectors are read as d/2 complex numbers."""
        return self.lift is _planes

    @property
    def transforms(self) -> bool:
        """Whether messages need `lower` to become phi."""
        return self.lower is not _drop_width

    @property
    def transposed(self) -> Composition | None:
        """psi with ⟨phi(x, z), e⟩ = ⟨z, psi(x, e)⟩ for all x, z, e; None where phi is not linear in z."""
        if self.combine not in _TRANSPOSED or self.lift_relation is not self.lift or not self.linear_lift:
            return None
        return self._replace(name=f"{self.name}, transposed", combine=_TRANSPOSED[self.combine])

    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        return self.lower(combined(self.combine, self.lift(x), self.lift_relation(z)), x.shape[-1])

    def fold(self, filters: Tensor, width: int) -> Tensor:
        """Return the filters of sums [.., D] not lowered yet, D = `width`: y fold(W) = lower(y) W, W [.., d, out]."""
        if self.lower is _drop_width:
            return filters
        d = filters.shape[-2]
        if self.lower is _signal:
            matrix = _fourier(d, True, wide(filters.dtype), filters.device)
        else:
            matrix = self.lower(torch.eye(width, dtype=filters.dtype, device=filters.device), d)
        matrix = matrix.to(filters.dtype)
        return matrix @ filters if filters.dim() == 2 else matrix.expand(len(filters), -1, -1).bmm(filters)

    def fold_fixed(self, z: Tensor, filters: Tensor) -> tuple[Tensor, Tensor]:
        """Return A [d, out] and b [out] with phi(x, z) W = x A + b for one relation z [1, d], if `lift` is linear."""
        d = z.shape[-1]
        points = torch.cat((torch.eye(d, dtype=z.dtype, device=z.device), z.new_zeros(1, d)))
        images = self(points, z).to(z.dtype) @ filters
        return images[:d] - images[d], images[d]


_PAPER = "Vashishth et al., ICLR 2020"

COMPOSITIONS: dict[str, Composition] = {
    row.name: row
    for row in (
        Composition(
            "copy",
            Combine.COPY,
            origin="x: Kipf-GCN, D-GCN and R-GCN send the entity as it is",
            reference="Kipf & Welling, ICLR 2017",
        ),
        Composition("sub", Combine.SUB, origin="x − z: CompGCN (Sub), after TransE", reference=_PAPER),
        Composition("add", Combine.ADD, origin="x + z: the query of TransE", reference="Bordes et al., NeurIPS 2013"),
        Composition(
            "mult",
            Combine.MULT,
            origin="x · z: CompGCN (Mult), after DistMult; W-GCN with one column",
            reference=_PAPER,
        ),
        Composition(
            "corr",
            Combine.CONJUGATE,
            _spectrum,
            _spectrum,
            _signal,
            "x ⋆ z: CompGCN (Corr), circular correlation as in HolE",
            _PAPER,
        ),
        Composition(
            "conv",
            Combine.COMPLEX,
            _spectrum,
            _spectrum,
            _signal,
            "x ∗ z: circular convolution, the query of HolE",
            "Nickel et al., AAAI 2016",
        ),
        Composition(
            "rotate",
            Combine.COMPLEX,
            _planes,
            _rotation,
            origin="x ∘ z/|z|: complex rotation, the query of RotatE",
            reference="Sun et al., ICLR 2019",
        ),
        Composition(
            "cmul",
            Combine.COMPLEX,
            _planes,
            _planes,
            origin="x ∘ z: complex product, the query of ComplEx",
            reference="Trouillon et al., ICML 2016",
        ),
    )
}


class Learned(NamedTuple):
    """A phi with parameters: `build` makes, for dimension d, a module (x [n, d], z [n, d]) -> [n, d].

    `factors` reads such a module as a Composition, which a layer sums in one pass like any other. Without factors the
    layer calls the module once for each distinct (sender, relation); it must treat every row alone and draw nothing.
    """

    name: str
    build: Callable[[int], nn.Module]
    factors: Callable[[Any], Composition] | None = None
    origin: str = ""
    reference: str = ""


class NTN(nn.Module):
    r"""The layer of a neural tensor network (Socher et al., 2013) between an entity and a relation.

    .. math:: \phi(x, z)_k = x^T T_k z + (x V + z U + b)_k, \qquad T_k = \sum_{j=1}^d C_{jk} a_j b_j^T

    The tensor is a sum of d rank-one terms, a_j and b_j being the columns of A and B: 3 d^2 numbers in place of d^3,
    and phi factors, x^T T_k z = ((x A) * (z B)) C_k. The tanh is left out: the layer's activation follows its sum.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.A, self.B, self.C, self.V, self.U = (nn.Parameter(torch.empty(dim, dim)) for _ in range(5))
        self.bias = nn.Parameter(torch.empty(dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for matrix in (self.A, self.B, self.C, self.V, self.U):
            nn.init.xavier_normal_(matrix)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return ((x @ self.A) * (z @ self.B)) @ self.C + x @ self.V + z @ self.U + self.bias

    def factors(self) -> Composition:
        """Return phi as [x A, x, 1] * [z B, 1, z U + b], lowered by [C; V; 1]."""
        return Composition("ntn", Combine.MULT, self._lift, self._lift_relation, self._lower)

    def _lift(self, x: Tensor) -> Tensor:
        return torch.cat((x @ self.A, x, torch.ones_like(x)), -1)

    def _lift_relation(self, z: Tensor) -> Tensor:
        return torch.cat((z @ self.B, torch.ones_like(z), z @ self.U + self.bias), -1)

    def _lower(self, y: Tensor, dim: int) -> Tensor:
        product, entity, relation = y.chunk(3, -1)
        return product @ self.C + entity @ self.V + relation


def _conve(dim: int) -> nn.Module:
    from compgcn.nn.convolutional import plain_conve  # it imports this module

    return plain_conve(dim)


LEARNED: dict[str, Learned] = {
    "ntn": Learned(
        "ntn", NTN, NTN.factors, "a tensor of low rank, and a linear map of both", "Socher et al., NeurIPS 2013"
    ),
    "conve": Learned(
        "conve",
        _conve,
        origin="a convolution over the entity and the relation as an image",
        reference="Dettmers et al., AAAI 2018",
    ),
}


Phi = str | Composition | Learned  # a name, or a row itself


def find(name: Phi) -> Composition | Learned:
    """Return the row of that name, with or without parameters; a row passes through."""
    if isinstance(name, (Composition, Learned)):
        return name
    table: dict[str, Composition | Learned] = {**COMPOSITIONS, **LEARNED}
    return pick("composition", name, table)
