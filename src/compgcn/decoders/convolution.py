"""Queries made by a convolution over the entity and the relation laid out as an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compgcn.dropout import dropout
from compgcn.errors import InputError


@dataclass(frozen=True, slots=True)
class ConvESettings:
    """The sizes of a ConvE query.

    Args:
        filters: channels of the convolution.
        kernel: side of its square kernel.
        bias: whether the convolution has one.
        feature_dropout: on the feature maps.
        hidden_dropout: on the projection, "hidden dropout 2" in the recipes.
        height, width: the shape each vector takes, d = height · width; chosen by `image_shape` where not given.
    """

    filters: int = 200
    kernel: int = 7
    bias: bool = False
    feature_dropout: float = 0.3
    hidden_dropout: float = 0.3
    height: int | None = None
    width: int | None = None


def image_shape(dim: int, height: int | None = None, width: int | None = None) -> tuple[int, int]:
    """The height and width with height · width = dim that make the image 2·height × width as square as possible.

    Of two equally good shapes the wider one is taken; a height or width that is given is kept.
    """
    shapes = [
        (h, dim // h) for h in range(1, dim + 1) if dim % h == 0 and height in (None, h) and width in (None, dim // h)
    ]
    if not shapes:
        given = " and ".join(
            f"{name} {size}" for name, size in (("height", height), ("width", width)) if size is not None
        )
        raise InputError(
            f"dimension {dim} cannot be laid out with {given or 'any height and width'}; choose sizes whose product is "
            "the dimension, such as height 10 and width 20 for dimension 200"
        )
    return min(shapes, key=lambda shape: abs(2 * shape[0] - shape[1]))


class ConvEQuery(nn.Module):
    """The query of ConvE (Dettmers et al., 2018): relu(norm(vec(relu(norm(ω ∗ norm([x; z])))) W)).

    The entity and the relation are interleaved, x₁ z₁ x₂ z₂ …, into one image 2·height × width. The order is batch
    norm, convolution, batch norm, relu, feature dropout, linear, hidden dropout, batch norm, relu. Weights start as
    torch starts those of a convolution and a linear layer. Feature maps are kept channels last, position by position.

    In training mode a batch of one query has no variance for the last batch norm, and torch refuses it: train on
    batches of two or more.

    Shapes: x [B, d], z [B, d] -> [B, d].
    """

    def __init__(self, dim: int, settings: ConvESettings | None = None) -> None:
        super().__init__()
        settings = settings or ConvESettings()
        self.dim = dim
        self.settings = settings
        self.height, self.width = image_shape(dim, settings.height, settings.width)
        rows, columns = 2 * self.height - settings.kernel + 1, self.width - settings.kernel + 1
        if settings.kernel < 1 or rows < 1 or columns < 1:
            raise InputError(
                f"a {settings.kernel}×{settings.kernel} kernel does not fit the {2 * self.height}×{self.width} image "
                f"of dimension {dim}; use a kernel from 1 to {min(2 * self.height, self.width)}, or a dimension with a "
                "squarer image (200 gives 20×20)"
            )
        self.image_norm = nn.BatchNorm2d(1)
        self.convolution = nn.Conv2d(1, settings.filters, settings.kernel, bias=settings.bias)
        self.feature_norm = nn.BatchNorm1d(settings.filters)
        self.linear = nn.Linear(rows * columns * settings.filters, dim)
        self.query_norm = nn.BatchNorm1d(dim)
        self.register_load_state_dict_pre_hook(_by_position)  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        image = torch.stack((x, z), -1).view(-1, 1, 2 * self.height, self.width)  # [B, d, 2] -> [B, 1, 2h, w]
        maps = convolve(self.image_norm(image), self.convolution)  # [B, positions, filters]
        maps = torch.relu_(self.feature_norm(maps.flatten(0, 1)))  # [B positions, filters]
        features = dropout(maps.view(len(x), self.linear.in_features), self.settings.feature_dropout, self.training)
        hidden = dropout(self.linear(features), self.settings.hidden_dropout, self.training)  # [B, d]
        return torch.relu(self.query_norm(hidden))


def _by_position(query: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Weights saved while feature maps were flattened filter by filter, under another name, are put in order."""
    old = state.pop(f"{prefix}projection.weight", None)
    if old is None:
        return
    filters = len(state[f"{prefix}feature_norm.weight"])
    state[f"{prefix}linear.weight"] = old.view(len(old), filters, -1).transpose(1, 2).flatten(1)
    state[f"{prefix}linear.bias"] = state.pop(f"{prefix}projection.bias")


def convolve(image: Tensor, convolution: nn.Conv2d) -> Tensor:
    """The maps of images of one channel, position by position: [B, 1, H, W] -> [B, positions, filters].

    On a GPU as one product with the patches under the kernel, which tensor cores do at once.
    """
    if not image.is_cuda:
        maps = convolution(image.contiguous(memory_format=torch.channels_last))
        return maps.permute(0, 2, 3, 1).flatten(1, 2)  # type: ignore[no-any-return]
    (H, W), (h, w) = image.shape[2:], convolution.kernel_size
    taps, users = _taps(H, W, h, w, image.device)
    patches: Tensor = _Patches.apply(image.flatten(1), taps, users)  # type: ignore[no-untyped-call]
    weight = convolution.weight.flatten(1)  # [filters, k k]
    return F.linear(patches, F.pad(weight, (0, patches.shape[2] - weight.shape[1])), convolution.bias)


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
