"""ConvKB, which convolves whole triples: its score is no product of a query with a candidate."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from compgcn.decoders.convolution import ConvolutionSettings
from compgcn.kernels import rectified_sum


class ConvKBQuery(nn.Module):
    """What a candidate is added to: ω₁ x + ω₂ z + b for every filter, [B, d], [B, d] -> [B, filters · d].

    Filters start as those of the released code, (0.1, 0.1, −0.1), which is TransE's x + z − e.
    """

    def __init__(self, dim: int, settings: ConvolutionSettings) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.full((settings.filters, 2), 0.1))
        self.bias = nn.Parameter(torch.zeros(settings.filters))

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        pair = torch.stack((x, z), 1)  # [B, 2, d]
        return (self.filters @ pair + self.bias.unsqueeze(1)).flatten(1)


class ConvKBSimilarity(nn.Module):
    """w · relu(q + ω₃ e) + b, summed over filters and dimensions (Nguyen et al., 2018); no dropout, as in the paper.

    Nothing of the size of all queries times all candidates times filters is made, nor kept for the gradients.

    Shapes: q [B, filters · d], e [C, d] or [B, C, d] -> [B, C].
    """

    def __init__(self, dim: int, settings: ConvolutionSettings) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.full((settings.filters,), -0.1))
        self.weight = nn.Parameter(torch.empty(settings.filters, dim))
        self.bias = nn.Parameter(torch.zeros(()))
        bound = (6 / (self.weight.numel() + 1)) ** 0.5  # Xavier's, for one unit
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, q: Tensor, e: Tensor) -> Tensor:
        return rectified_sum(q.view(-1, *self.weight.shape), e, self.filters, self.weight) + self.bias
