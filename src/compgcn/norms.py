"""How each message is weighted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from compgcn.messages import Messages


class Weights(NamedTuple):
    """What a message and a self-loop count for in the sum at their receiver."""

    message: Tensor  # [M]
    loop: Tensor | None  # [N]; None: 1 each


class Norm(NamedTuple):
    """Which weights: a name of `NORMS`, whether there are self-loops, and what to compute in."""

    name: str
    self_loop: bool = True
    dtype: torch.dtype = torch.float32


def _count(key: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """How often each key occurs, [size], counted exactly, then as floats to divide by."""
    return torch.zeros(size, dtype=torch.long, device=key.device).scatter_add_(0, key, torch.ones_like(key)).to(dtype)


def _received(m: Messages, dtype: torch.dtype) -> Tensor:
    """Per message: how many its receiver gets in its direction."""
    key = m.receiver * m.num_directions + m.direction
    return _count(key, m.num_nodes * m.num_directions, dtype)[key]


def _none(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """1: the bare sum of the paper's Eq. node_update."""
    return Weights(torch.ones(m.sender.shape, dtype=dtype, device=m.sender.device), None)


def _symmetric(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """1/sqrt(received by the receiver * sent by the sender), both in the message's direction."""
    key = m.sender * m.num_directions + m.direction
    sent = _count(key, m.num_nodes * m.num_directions, dtype)[key]
    return Weights((_received(m, dtype) * sent).rsqrt(), None)


def _mean(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """1/received, in the message's direction."""
    return Weights(_received(m, dtype).reciprocal(), None)


def _relation_mean(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """R-GCN's 1/|N_v^r|: the mean over the neighbours of a receiver by one relation."""
    _, pair, count = torch.unique(m.receiver * m.num_relations + m.relation, return_inverse=True, return_counts=True)
    return Weights(count[pair].to(dtype).reciprocal(), None)


def _kipf(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """D^-1/2 (A + I) D^-1/2 over both directions and the loop, D the row sums of A + I."""
    degree = _count(m.receiver, m.num_nodes, dtype) + float(self_loop)  # [N]
    inverse = torch.where(degree > 0, degree.reciprocal(), 0.0)
    root = inverse.sqrt()
    return Weights(root[m.receiver] * root[m.sender], inverse)


def _released(m: Messages, self_loop: bool, dtype: torch.dtype) -> Weights:
    """The released code: both degrees counted on the receiving side, and the three sums divided by 3.

    A sender that receives nothing in the direction of a message has degree 0 there, and the message vanishes.
    """
    degree = _count(m.receiver * m.num_directions + m.direction, m.num_nodes * m.num_directions, dtype)
    root = torch.where(degree > 0, degree.rsqrt(), 0.0)
    receiver, sender = (end * m.num_directions + m.direction for end in (m.receiver, m.sender))
    return Weights(root[receiver] * root[sender] / 3, root.new_full((m.num_nodes,), 1 / 3))


NORMS: dict[str, Callable[[Messages, bool, torch.dtype], Weights]] = {
    "none": _none,
    "symmetric": _symmetric,
    "mean": _mean,
    "relation-mean": _relation_mean,
    "kipf": _kipf,
    "released": _released,
}

# Those whose weights depend on how many messages a sender sends, or gets, besides the one that is weighted.
COUNT_SENT = ("symmetric", "kipf", "released")
