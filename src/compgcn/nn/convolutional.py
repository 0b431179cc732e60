"""Convolutional decoders: the queries of ConvE, ConvR, HypER and Conv-TransE, and both halves of ConvKB."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from compgcn.errors import InputError
from compgcn.nn.dropout import dropout
from compgcn.nn.filters import AGAIN

_FILTERS, _KERNEL = 16, 3  # of ConvE as a composition, where every message makes its image
_UNITS_CPU, _UNITS = 2**22, 2**28  # units of ConvKB that one step lays out


@dataclass(frozen=True, slots=True)
class ConvolutionSettings:
    """The sizes of a convolutional query; the defaults are those of ConvE."""

    filters: int = 200  # channels of the convolution
    kernel: int = 7  # side of its square kernel, or length of a kernel of one dimension
    input_dropout: float = 0.0  # on the image
    feature_dropout: float = 0.3  # on the feature maps
    hidden_dropout: float = 0.3  # on the projection, "hidden dropout 2" in the recipes


def image_shape(dim: int, *, stacked: int = 2) -> tuple[int, int]:
    """Return height · width = dim that make the image stacked·height × width as square as possible.

    The wider of two equally good shapes wins.
    """
    shapes = [(height, dim // height) for height in range(1, dim + 1) if dim % height == 0]
    return min(shapes, key=lambda shape: abs(stacked * shape[0] - shape[1]))


def positions(dim: int, image: tuple[int, int], kernel: tuple[int, int]) -> int:
    """Return the number of places of a kernel in the image of a dimension, or refuse a kernel that does not fit."""
    rows, columns = image[0] - kernel[0] + 1, image[1] - kernel[1] + 1
    if kernel[1] < 1 or rows < 1 or columns < 1:
        most = image[1] if image[0] == 1 else min(image)
        raise InputError(
            f"a {kernel[0]}×{kernel[1]} kernel does not fit the {image[0]}×{image[1]} image of dimension {dim}; use a "
            f"kernel from 1 to {most}, or a dimension with a larger or squarer image (200 gives ConvE 20×20)"
        )
    return rows * columns


class ConvolutionQuery(nn.Module, ABC):
    """The common part of convolutional queries: relu(norm(vec(relu(norm(maps))) W)), with maps of norm(image).

    The order is batch norm, input dropout, convolution, batch norm, relu, feature dropout, linear, hidden dropout,
    batch norm, relu. Feature maps are laid out channels last, position by position. Training needs batches of two or
    more queries, because the last batch norm finds no variance in one.

    Args:
        image_norm: the batch norm of the image.
        convolution: the module with the filters, or the one that makes them of a relation.
        positions: the number of places of a filter.
        rectify: whether a relu follows the convolution.

    Shapes: x [B, d], z [B, d] -> [B, d].
    """

    drops_maps = False  # whether feature dropout drops whole maps or single features

    def __init__(
        self,
        dim: int,
        settings: ConvolutionSettings,
        image_norm: nn.Module,
        convolution: nn.Module,
        positions: int,
        *,
        rectify: bool = True,
    ) -> None:
        super().__init__()
        self.dim, self.settings, self.rectify = dim, settings, rectify
        self.image_norm, self.convolution = image_norm, convolution
        self.feature_norm = nn.BatchNorm1d(settings.filters)
        self.linear = nn.Linear(positions * settings.filters, dim)
        self.query_norm = nn.BatchNorm1d(dim)

    @abstractmethod
    def image(self, x: Tensor, z: Tensor) -> Tensor:
        """Return the image to convolve."""

    @abstractmethod
    def maps(self, image: Tensor, z: Tensor) -> Tensor:
        """Return the feature maps, [B, positions, filters]."""

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        settings = self.settings
        image = dropout(self.image_norm(self.image(x, z)), settings.input_dropout, self.training)
        maps = self.maps(image, z)
        maps = self.feature_norm(maps.flatten(0, 1)).view_as(maps)
        maps = torch.relu_(maps) if self.rectify else maps
        if self.drops_maps and self.training:
            features = maps * dropout(maps.new_ones(len(x), 1, settings.filters), settings.feature_dropout, True)
        else:
            features = dropout(maps, settings.feature_dropout, self.training)
        hidden = dropout(self.linear(features.flatten(1)), settings.hidden_dropout, self.training)  # [B, d]
        return torch.relu(self.query_norm(hidden))


class ConvEQuery(ConvolutionQuery):
    """The query of ConvE (Dettmers et al., 2018): relu(norm(vec(relu(norm(ω ∗ norm([x; z])))) W)).

    The entity and the relation are interleaved, x₁ z₁ x₂ z₂ …, into one image 2·height × width.
    """

    convolution: nn.Conv2d

    def __init__(self, dim: int, settings: ConvolutionSettings) -> None:
        height, width = image_shape(dim)
        places = positions(dim, (2 * height, width), (settings.kernel, settings.kernel))
        convolution = nn.Conv2d(1, settings.filters, settings.kernel, bias=False)
        super().__init__(dim, settings, nn.BatchNorm2d(1), convolution, places)
        self.height, self.width = height, width

    def image(self, x: Tensor, z: Tensor) -> Tensor:
        return torch.stack((x, z), -1).view(-1, 1, 2 * self.height, self.width)  # [B, d, 2] -> [B, 1, 2h, w]

    def maps(self, image: Tensor, z: Tensor) -> Tensor:
        return convolve(image, self.convolution)


def plain_conve(dim: int) -> nn.Module:
    """Make the query of ConvE without dropout and batch norms: a message depends on its entity and relation alone."""
    height, width = image_shape(dim)
    sizes = ConvolutionSettings(_FILTERS, min(_KERNEL, 2 * height, width), feature_dropout=0.0, hidden_dropout=0.0)
    query = ConvEQuery(dim, sizes)
    for name, part in list(query.named_children()):
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            setattr(query, name, nn.Identity())
    return query


class ConvRQuery(ConvolutionQuery):
    """The query of ConvR (Jiang et al., 2019): relu(norm(vec(relu(norm(ω(z) ∗ norm(x)))) W)).

    The entity alone is the image, height × width; the relation makes the filters. In the paper a relation is the
    concatenation of its filters, filters · kernel² numbers; here, where relations have the dimension of entities, a
    learned linear map without a bias makes as many filters of z.
    """

    convolution: nn.Linear
    drops_maps = True

    def __init__(self, dim: int, settings: ConvolutionSettings) -> None:
        height, width = image_shape(dim, stacked=1)
        places = positions(dim, (height, width), (settings.kernel, settings.kernel))
        filters = nn.Linear(dim, settings.filters * settings.kernel**2, bias=False)
        super().__init__(dim, settings, nn.BatchNorm2d(1), filters, places)
        self.height, self.width = height, width

    def image(self, x: Tensor, z: Tensor) -> Tensor:
        return x.reshape(-1, 1, self.height, self.width)

    def maps(self, image: Tensor, z: Tensor) -> Tensor:
        side = self.settings.kernel
        return convolve_each(image, self.convolution(z).view(-1, self.settings.filters, side, side))


class HypERQuery(ConvolutionQuery):
    """The query of HypER (Balažević et al., 2019): relu(norm(vec(norm(ω(z) ∗ norm(x))) W)).

    A hypernetwork, one linear layer, makes the filters of the relation; they run along the entity. No relu stands
    between the convolution and W.
    """

    convolution: nn.Linear
    drops_maps = True

    def __init__(self, dim: int, settings: ConvolutionSettings) -> None:
        places = positions(dim, (1, dim), (1, settings.kernel))
        hypernetwork = nn.Linear(dim, settings.filters * settings.kernel)
        super().__init__(dim, settings, nn.BatchNorm2d(1), hypernetwork, places, rectify=False)

    def image(self, x: Tensor, z: Tensor) -> Tensor:
        return x.reshape(-1, 1, 1, self.dim)

    def maps(self, image: Tensor, z: Tensor) -> Tensor:
        return convolve_each(image, self.convolution(z).view(-1, self.settings.filters, 1, self.settings.kernel))


class ConvTransEQuery(ConvolutionQuery):
    """The query of Conv-TransE (Shang et al., 2019), the decoder of SACN: the equation is ConvE's.

    The image is the entity above the relation, 2 × d. Kernels of 2 × k run along it, with zeros at the ends. Position j
    of a map depends on both vectors around j, which keeps TransE's alignment.
    """

    convolution: nn.Conv2d

    def __init__(self, dim: int, settings: ConvolutionSettings) -> None:
        kernel = (2, settings.kernel)
        positions(dim, (2, dim), kernel)
        convolution = nn.Conv2d(1, settings.filters, kernel, bias=False)
        super().__init__(dim, settings, nn.BatchNorm1d(2), convolution, dim)

    def image(self, x: Tensor, z: Tensor) -> Tensor:
        return torch.stack((x, z), 1)  # [B, 2, d]

    def maps(self, image: Tensor, z: Tensor) -> Tensor:
        around = self.settings.kernel - 1
        return convolve(F.pad(image, (around // 2, around - around // 2)).unsqueeze(1), self.convolution)


class ConvKBQuery(nn.Module):
    """The part of ConvKB without the candidate: ω₁ x + ω₂ z + b for every filter, [B, d], [B, d] -> [B, filters · d].

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

    The units of some candidates are laid out at a time, and again for the gradient, so memory stays bounded.

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
        step = max(1, (_UNITS_CPU if q.is_cpu else _UNITS) // max(1, q.numel()))
        if e.shape[-2] <= step:
            return self._scores(q, e) + self.bias
        parts = [checkpoint(self._scores, q, part, **AGAIN) for part in torch.split(e, step, -2)]
        return torch.cat(parts, 1) + self.bias

    def _scores(self, q: Tensor, e: Tensor) -> Tensor:
        q = q.view(len(q), 1, *self.weight.shape)
        units = torch.addcmul(q, self.filters.unsqueeze(1), e.unsqueeze(-2))  # [B, C, filters, d]
        return units.relu_().flatten(2) @ self.weight.flatten()


def convolve(image: Tensor, convolution: nn.Conv2d) -> Tensor:
    """Return the maps of images of one channel, position by position: [B, 1, H, W] -> [B, positions, filters].

    On a GPU one product with the patches under the kernel keeps the tensor cores busy.
    """
    if not image.is_cuda:
        maps = convolution(image.contiguous(memory_format=torch.channels_last))
        return maps.permute(0, 2, 3, 1).flatten(1, 2)  # type: ignore[no-any-return]
    h, w = convolution.kernel_size
    patches = _patches(image, h, w)
    weight = convolution.weight.flatten(1)  # [filters, h w]
    return F.linear(patches, F.pad(weight, (0, patches.shape[2] - weight.shape[1])))


def convolve_each(image: Tensor, filters: Tensor) -> Tensor:
    """Convolve every image with its own filters: [B, 1, H, W], [B, filters, h, w] -> [B, positions, filters].

    A batched product is faster than a convolution of as many small groups as images.
    """
    patches = _patches(image, *filters.shape[2:])
    filters = filters.flatten(2)
    return patches @ F.pad(filters, (0, patches.shape[2] - filters.shape[2])).transpose(1, 2)


def _patches(image: Tensor, h: int, w: int) -> Tensor:
    """Return the pixels under a kernel at each position: [B, 1, H, W] -> [B, positions, K], 0 from the h w-th on."""
    H, W = image.shape[2:]
    taps, users = _taps(H, W, h, w, image.device)
    patches: Tensor = _Patches.apply(image.flatten(1), taps, users)  # type: ignore[no-untyped-call]
    return patches


def _taps(H: int, W: int, h: int, w: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the pixel under each tap of an h x w kernel at each position, [positions, K], K a multiple of 8; and back.

    The second are the (position, tap), as one number, that look at each pixel, [H W, h w]. One past the last stands for
    none.
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
    """Gather patches [B, positions, K] of pixels [B, H W]; unlike torch's, the gradient is a gather too."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor, taps: Tensor, users: Tensor) -> Tensor:
        ctx.save_for_backward(users)
        return F.pad(pixels, (0, 1))[:, taps]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (users,) = ctx.saved_tensors
        return F.pad(g.flatten(1), (0, 1))[:, users].sum(2), None, None
