"""The layers, under the name PyTorch users look for."""

from compgcn.encoders import Encoder
from compgcn.layers import CompGCNConv

__all__ = ["CompGCNConv", "Encoder"]
