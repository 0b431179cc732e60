"""Convolutions over images of one channel as products with the patches under the kernel."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def convolve(image: Tensor, convolution: nn.Conv2d) -> Tensor:
    """The maps of images of one channel, position by position: [B, 1, H, W] -> [B, positions, filters].

    On a GPU as one product with the patches under the kernel, which tensor cores do at once.
    """
    if not image.is_cuda:
        maps = convolution(image.contiguous(memory_format=torch.channels_last))
        return maps.permute(0, 2, 3, 1).flatten(1, 2)  # type: ignore[no-any-return]
    h, w = convolution.kernel_size
    patches = _patches(image, h, w)
    weight = convolution.weight.flatten(1)  # [filters, h w]
    return F.linear(patches, F.pad(weight, (0, patches.shape[2] - weight.shape[1])), convolution.bias)


def convolve_each(image: Tensor, filters: Tensor) -> Tensor:
    """The same where every image has filters of its own: [B, 1, H, W], [B, filters, h, w] -> [B, positions, filters].

    A batched product: to a convolution these would be as many groups as images, each too small to be fast.
    """
    patches = _patches(image, *filters.shape[2:])
    filters = filters.flatten(2)
    return patches @ F.pad(filters, (0, patches.shape[2] - filters.shape[2])).transpose(1, 2)


def _patches(image: Tensor, h: int, w: int) -> Tensor:
    """What lies under a kernel at each of its positions: [B, 1, H, W] -> [B, positions, K], 0 from the h w-th on."""
    H, W = image.shape[2:]
    taps, users = _taps(H, W, h, w, image.device)
    patches: Tensor = _Patches.apply(image.flatten(1), taps, users)  # type: ignore[no-untyped-call]
    return patches


def _taps(H: int, W: int, h: int, w: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Which pixel lies under each tap of an h x w kernel at each of its positions, [positions, K], K a multiple of 8.

    And which (position, tap), as one number, looks at each pixel, [H W, h w]. Where there is none, one past the last.
    """
    grid = torch.arange(H * W, device=device).view(H, W)
    taps = grid.unfold(0, h, 1).unfold(1, w, 1).flatten(2).flatten(0, 1)  # [positions, h w]
    taps = F.pad(taps, (0, -taps.shape[1] % 8), value=H * W)
    positions, K = taps.shape
    number = torch.arange(positions, device=device).view(H - h + 1, W - w + 1) * K
    framed = F.pad(number, (w - 1, w - 1, h - 1, h - 1), value=positions * K)  # kernels that begin outside see nothing
    users = framed.unfold(0, h, 1).unfold(1, w, 1).flip(2, 3).flatten(2).flatten(0, 1)  # [H W, h w]
    users = users + torch.arange(h * w, device=device)
    return taps, users.clamp_max(positions * K)


class _Patches(torch.autograd.Function):
    """pixels [B, H W] -> patches [B, positions, K]; written out because the gradient of a gather is a scatter, and
    this one is a gather too."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor, taps: Tensor, users: Tensor) -> Tensor:
        ctx.save_for_backward(users)
        return F.pad(pixels, (0, 1))[:, taps]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (users,) = ctx.saved_tensors
        return F.pad(g.flatten(1), (0, 1))[:, users].sum(2), None, None
