"""Dropout from 16 random bits a number: on a CPU much cheaper than torch's, and less to draw when compiled."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_STEPS = 2**16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Set a share p of the numbers to 0 and divide the others by 1 - p; p counts in steps of 1/65536."""
    if not training or p == 0.0:
        return x
    dropped = round(p * _STEPS)
    if dropped == _STEPS or not (x.device.type == "cpu" or torch.compiler.is_compiling()):
        return F.dropout(x, p)  # elsewhere torch has one kernel for it
    words = torch.randint(-(2**63), 2**63 - 1, (-(-x.numel() // 4),), device=x.device)
    lanes = words.view(torch.int16)[: x.numel()].view(x.shape)  # four numbers of each word, from -32768 up
    return x * (lanes >= dropped - _STEPS // 2).to(x.dtype).mul_(_STEPS / (_STEPS - dropped))
