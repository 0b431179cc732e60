"""Dropout; on a CPU from 16 random bits a number, which cost a fifth of torch's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_STEPS = 2**16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """x with a share p of its numbers put to 0 and the others divided by 1 - p; on a CPU p is a multiple of 1/65536."""
    if not training or p == 0.0:
        return x
    dropped = round(p * _STEPS)
    if x.device.type != "cpu" or dropped == _STEPS or torch.compiler.is_compiling():
        return F.dropout(x, p)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.long).random_(-(2**63), None)
    lanes = bits.view(torch.int16)[: x.numel()].view(x.shape)  # four numbers of each word, from -32768 up
    return x * (lanes >= dropped - _STEPS // 2).to(x.dtype).mul_(_STEPS / (_STEPS - dropped))
