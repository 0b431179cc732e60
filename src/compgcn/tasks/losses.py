"""Losses and regularisers: pure functions, each a mean over the batch, computed in float32 at least."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# The number that label smoothing adds to every label: `eps/N` shares out what the true labels lose; the released code
# adds `1/N`, whatever eps is.
SMOOTHING_FLOORS: dict[str, Callable[[float, int], float]] = {
    "eps/N": lambda smoothing, num_entities: smoothing / num_entities,
    "1/N": lambda smoothing, num_entities: 1.0 / num_entities,
}


def binary_cross_entropy(
    logits: Tensor, rows: Tensor, cols: Tensor, *, smoothing: float = 0.1, floor: float | None = None
) -> Tensor:
    """Return the one-to-all binary cross-entropy with smoothed labels, the mean over all B·N logits x [B, N].

    With labels y = (1 − ε)·[true] + c, of which no table is made, the sum over a row is
    Σ softplus(x_o) − c·Σ x_o − (1 − ε)·Σ_{o true} x_o, and its gradient σ(x_o) − c − (1 − ε)·[o true].

    Args:
        rows, cols: the true (query, entity) pairs, each once [k]. A pair with a negative column is padding.
        smoothing: ε.
        floor: c, see `SMOOTHING_FLOORS`; ε/N if not given.
    """
    floor = smoothing / max(logits.shape[1], 1) if floor is None else floor
    loss: Tensor = _SparseBinaryCrossEntropy.apply(logits, rows, cols, 1.0 - smoothing, floor)  # type: ignore[no-untyped-call]
    return loss


class _SparseBinaryCrossEntropy(torch.autograd.Function):
    """Its own backward: autograd would make a dense gradient for each of the three sums."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: Tensor, cols: Tensor, weight: float, floor: float) -> Tensor:
        ctx.save_for_backward(logits, rows, cols)
        ctx.weight, ctx.floor = weight, floor
        x = _wide(logits)
        true = x[rows, cols.clamp_min(0)] * (cols >= 0)
        # Past the threshold softplus is taken as the identity; torch's own, 20, shows in float64.
        total = F.softplus(x, threshold=40.0).sum() - floor * x.sum() - weight * true.sum()
        return total / max(x.numel(), 1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, rows, cols = ctx.saved_tensors
        x = _wide(logits)
        grad = grad / max(x.numel(), 1)
        turned = x.stride(0) < x.stride(1)  # the scores of an entity lie together
        x = (x.t() if turned else x).contiguous()
        major, minor = (cols, rows) if turned else (rows, cols)
        slope = torch.sigmoid(x).sub_(ctx.floor).mul_(grad)  # [B, N] or [N, B]
        # Padding adds 0, each to a cell of its own: many additions to one cell would wait for each other.
        spread = torch.arange(len(cols), device=cols.device) % max(x.numel(), 1)
        cell = torch.where(cols >= 0, major * x.shape[1] + minor, spread)
        slope.view(-1).index_add_(0, cell, (cols >= 0).to(x.dtype) * (-ctx.weight * grad))
        slope = slope.to(logits.dtype)
        return slope.t() if turned else slope, None, None, None, None


def cross_entropy(logits: Tensor, target: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Return the softmax cross-entropy of logits [B, N] with one true entity (or class) per query [B].

    With smoothing ε the true one has the label 1 − ε + ε/N and every other one ε/N.
    """
    if logits.stride(0) < logits.stride(1):
        loss: Tensor = _TurnedCrossEntropy.apply(logits, target, smoothing)  # type: ignore[no-untyped-call]
        return loss
    return F.cross_entropy(_wide(logits), target, label_smoothing=smoothing)


class _TurnedCrossEntropy(torch.autograd.Function):
    """Cross-entropy for transposed logits, on which torch's own is slow.

    For a row x of N logits with the true one t: log Σ exp(x_o) − (1 − ε) x_t − ε/N Σ x_o, and its gradient
    softmax(x)_o − ε/N − (1 − ε) [o = t].
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
        x = _wide(logits)
        normaliser = torch.logsumexp(x, 1)  # [B]
        ctx.save_for_backward(logits, target, normaliser)
        ctx.smoothing = smoothing
        true = x.gather(1, target.unsqueeze(1)).squeeze(1)
        loss = normaliser - (1 - smoothing) * true
        return (loss - smoothing * x.mean(1) if smoothing else loss).mean()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, target, normaliser = ctx.saved_tensors
        B, N = logits.shape
        slope = (_wide(logits) - normaliser.unsqueeze(1)).exp_()
        if ctx.smoothing:
            slope.sub_(ctx.smoothing / N)
        slope[torch.arange(B, device=target.device), target] -= 1 - ctx.smoothing
        return slope.mul_(grad / B).to(logits.dtype), None, None


def margin_ranking(positive: Tensor, negative: Tensor, *, margin: float) -> Tensor:
    """Return max(0, margin − positive + negative) of positives [B] and their negatives [B, K]."""
    return F.relu(margin - _wide(positive).unsqueeze(1) + _wide(negative)).mean()


def self_adversarial(positive: Tensor, negative: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the loss of negative sampling in which harder negatives weigh more (Sun et al., RotatE, 2019).

    −½·[log σ(positive) + Σ_k p_k·log σ(−negative_k)], with p = softmax(temperature · negative) held constant: a
    temperature of 0 weighs all alike. The logits of true triples [B] and negatives [B, K] hold any margin of a decoder.
    """
    positive, negative = _wide(positive), _wide(negative)
    weight = torch.softmax(temperature * negative.detach(), dim=1)  # [B, K]
    return -(F.logsigmoid(positive) + (weight * F.logsigmoid(-negative)).sum(1)).mean() / 2


def sampled_cross_entropy(positive: Tensor, negative: Tensor, *, num_entities: int) -> Tensor:
    """Return log(exp(positive) + N/K · Σ_k exp(negative_k)) − positive, of logits of true triples [B] and of negatives.

    K uniform negatives [B, K] stand for N/K entities each.
    """
    positive, negative = _wide(positive), _wide(negative)
    others = torch.logsumexp(negative, 1) + math.log(num_entities / negative.shape[1])
    return (torch.logaddexp(positive, others) - positive).mean()


def hidden_answers(logits: Tensor, rows: Tensor, cols: Tensor, hidden: Tensor) -> Tensor:
    """Return the mean over hidden answers t of log(1 + Σ exp(x_o − x_t)), o over the entities that are no answer.

    Args:
        logits: x [B, N].
        rows, cols: all known (query, answer) pairs [k]. A pair with a negative column is padding.
        hidden: the hidden answers of each query [B, h], padded with negative numbers.
    """
    x = _wide(logits)
    B, N = x.shape
    known = torch.zeros(B, N + 1, dtype=torch.bool, device=x.device)
    known.index_put_((rows, torch.where(cols >= 0, cols, N)), known.new_ones(()))  # the last column takes the padding
    others = x.masked_fill(known[:, :N], torch.finfo(x.dtype).min / 2).logsumexp(1, keepdim=True)  # [B, 1]
    there = hidden >= 0
    loss = F.softplus(others - x.gather(1, hidden.clamp_min(0)))
    return (loss * there).sum() / there.sum().clamp_min(1)


def reinforce(log_probability: Tensor, reward: Tensor, baseline: Tensor | float = 0.0) -> Tensor:
    """Return −(reward − baseline) · log p, whose expected gradient is that of minus the expected reward.

    Williams (1992). Log-probabilities and rewards are of choices [B]; the reward is a constant to the gradient. The
    baseline changes the variance of the gradient, not its expectation.
    """
    return -((_wide(reward).detach() - baseline) * _wide(log_probability)).mean()


def n3(*factors: Tensor, planes: bool = False) -> Tensor:
    """Return the nuclear 3-norm (Lacroix et al., 2018): Σ_i |x_i|³ + |z_i|³ + |e_i|³ of the vectors of triples [B, d].

    With `planes` they hold d/2 complex numbers, real parts first, and |·| is the modulus.
    """
    squares = [_wide(factor).square() for factor in factors]
    if planes:
        squares = [torch.add(*square.chunk(2, -1)) for square in squares]
    cubes = [square.pow(1.5).sum(-1) for square in squares]  # 0 has the gradient 0
    return torch.stack(cubes).sum(0).mean()


def dura(x: Tensor, e: Tensor, x_moved: Tensor, e_moved: Tensor) -> Tensor:
    """Return the duality-induced regulariser (Zhang et al., 2020): ‖x‖² + ‖e‖² + ‖phi(x, z)‖² + ‖phi(e, z)‖² [B, d]."""
    lengths = [_wide(vectors).square().sum(-1) for vectors in (x, e, x_moved, e_moved)]
    return torch.stack(lengths).sum(0).mean()


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
