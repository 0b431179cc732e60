"""Adagrad that a recorded step can hold: that of torch counts on the host, or has no kernel for a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Adagrad(torch.optim.Optimizer):
    """w ← w − lr · g / (√Σg² + ε), the sum over all steps so far (Duchi et al., 2011), of g + decay · w.

    Args:
        weights: what is trained, or groups of it with a rate of their own.
        lr: the learning rate; a tensor on the device of the weights is read there, at every step.
        weight_decay: λ of an L2 penalty.
        eps: ε.
    """

    def __init__(
        self,
        weights: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float | Tensor = 0.01,
        weight_decay: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(weights, {"lr": lr, "weight_decay": weight_decay, "eps": eps})
        for group in self.param_groups:
            for weight in group["params"]:
                self.state[weight]["sum"] = torch.zeros_like(weight, memory_format=torch.preserve_format)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update from the gradients as they are."""
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            gradients = [weight.grad for weight in weights]
            sums = [self.state[weight]["sum"] for weight in weights]
            if group["weight_decay"]:
                gradients = list(torch._foreach_add(gradients, weights, alpha=group["weight_decay"]))
            torch._foreach_addcmul_(sums, gradients, gradients)
            scale = torch._foreach_sqrt(sums)
            torch._foreach_add_(scale, group["eps"])
            torch._foreach_div_(scale, group["lr"])
            torch._foreach_addcdiv_(weights, gradients, scale, value=-1.0)
