"""The layers, under the name PyTorch users look for."""

from __future__ import annotations

from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.nn.conv import CompGCNConv
from compgcn.nn.encoder import Encoder

__all__ = ["CompGCNConv", "ConditionalCompGCN", "Encoder"]
