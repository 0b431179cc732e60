"""The ways a lifted entity and a lifted relation combine on one edge, and their definition in plain torch."""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor


class Combine(IntEnum):
    """What happens to a lifted entity and a lifted relation on one edge; the numbers are what the kernels switch on."""

    COPY = 0  # x
    ADD = 1  # x + z
    SUB = 2  # x - z
    MULT = 3  # x * z
    COMPLEX = 4  # x * z on complex planes
    CONJUGATE = 5  # conj(x) * z on complex planes


def combined(op: Combine, x: Tensor, z: Tensor) -> Tensor:
    """The definition of a combination, on tensors [.., D] that broadcast."""
    if op == Combine.COPY:
        return torch.broadcast_tensors(x, z)[0]  # type: ignore[no-untyped-call, no-any-return]
    if op == Combine.ADD:
        return x + z
    if op == Combine.SUB:
        return x - z
    if op == Combine.MULT:
        return x * z
    return _complex(x, z) if op == Combine.COMPLEX else _conjugate(x, z)


def _complex(x: Tensor, z: Tensor) -> Tensor:
    (a, b), (c, d) = x.chunk(2, -1), z.chunk(2, -1)
    return torch.cat((a * c - b * d, a * d + b * c), -1)


def _conjugate(x: Tensor, z: Tensor) -> Tensor:
    (a, b), (c, d) = x.chunk(2, -1), z.chunk(2, -1)
    return torch.cat((a * c + b * d, a * d - b * c), -1)
