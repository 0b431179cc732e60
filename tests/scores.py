"""The score of one triple by every decoder, as its paper writes it: loops over numbers, no tensor operations."""

from __future__ import annotations

import cmath
from collections.abc import Callable

import numpy as np
from torch import nn

from compgcn.nn.decoders import Decoder

Array = np.ndarray
Vector = list[float]


# A composition and a similarity


def transe(decoder: Decoder, x: Vector, z: Vector, e: Vector) -> float:
    return decoder.margin.item() - sum(abs(a + b - c) for a, b, c in zip(x, z, e, strict=True))


def distmult(decoder: Decoder, x: Vector, z: Vector, e: Vector) -> float:
    return sum(a * b * c for a, b, c in zip(x, z, e, strict=True))


def numbers(v: Vector) -> list[complex]:
    """A vector as complex numbers, its first half the real parts."""
    return [complex(v[j], v[len(v) // 2 + j]) for j in range(len(v) // 2)]


def complex_(decoder: Decoder, x: Vector, z: Vector, e: Vector) -> float:
    triples = zip(numbers(x), numbers(z), numbers(e), strict=True)
    return sum((a * b * c.conjugate()).real for a, b, c in triples)


def hole(decoder: Decoder, x: Vector, z: Vector, e: Vector) -> float:
    d = len(x)
    return sum(z[i] * sum(x[k] * e[(i + k) % d] for k in range(d)) for i in range(d))


def rotate(decoder: Decoder, x: Vector, z: Vector, e: Vector) -> float:
    triples = zip(numbers(x), numbers(z), numbers(e), strict=True)
    return decoder.margin.item() - sum(abs(a * cmath.rect(1, cmath.phase(b)) - c) for a, b, c in triples)


# A convolution


def weights(module: nn.Module) -> dict[str, Array]:
    return {name: value.detach().numpy() for name, value in module.state_dict().items()}


def norm(w: dict[str, Array], name: str, values: Array, training: bool) -> Array:
    """Batch norm over all axes but the second."""
    axes = tuple(axis for axis in range(values.ndim) if axis != 1)
    shape = [1, -1] + [1] * (values.ndim - 2)
    mean, variance = w[f"{name}.running_mean"], w[f"{name}.running_var"]
    if training:
        mean, variance = values.mean(axes), values.var(axes)
    scaled = (values - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + 1e-5)
    return scaled * w[f"{name}.weight"].reshape(shape) + w[f"{name}.bias"].reshape(shape)


def convolved(image: Array, kernels: Array) -> Array:
    """Kernels [F, h, w] over an image [H, W], not turned round: [F, H - h + 1, W - w + 1]."""
    (H, W), (F, h, w) = image.shape, kernels.shape
    maps = np.empty((F, H - h + 1, W - w + 1))
    for f, i, j in np.ndindex(*maps.shape):
        maps[f, i, j] = (image[i : i + h, j : j + w] * kernels[f]).sum()
    return maps


def projected(w: dict[str, Array], maps: Array, training: bool, *, rectify: bool = True) -> Array:
    """Apply the steps after the convolution, maps [B, F, H, W] -> [B, d]; dropout is left out."""
    maps = norm(w, "feature_norm", maps, training)
    maps = np.maximum(maps, 0) if rectify else maps
    hidden = maps.transpose(0, 2, 3, 1).reshape(len(maps), -1) @ w["linear.weight"].T + w["linear.bias"]
    return np.maximum(norm(w, "query_norm", hidden, training), 0)


def conve_query(query: nn.Module, x: Array, z: Array, training: bool) -> Array:
    w, (batch, dim) = weights(query), x.shape
    image = np.empty((batch, 1, 2 * query.height, query.width))
    for b in range(batch):
        line = [value for pair in zip(x[b], z[b], strict=True) for value in pair]
        for position in range(2 * dim):
            image[b, 0, position // query.width, position % query.width] = line[position]
    image = norm(w, "image_norm", image, training)
    maps = np.stack([convolved(image[b, 0], w["convolution.weight"][:, 0]) for b in range(batch)])
    return projected(w, maps, training)


def convr_query(query: nn.Module, x: Array, z: Array, training: bool) -> Array:
    w, k = weights(query), query.settings.kernel
    image = norm(w, "image_norm", x.reshape(len(x), 1, query.height, query.width), training)
    kernels = [(w["convolution.weight"] @ relation).reshape(-1, k, k) for relation in z]
    return projected(w, np.stack([convolved(image[b, 0], kernels[b]) for b in range(len(x))]), training)


def hyper_query(query: nn.Module, x: Array, z: Array, training: bool) -> Array:
    w, k = weights(query), query.settings.kernel
    image = norm(w, "image_norm", x[:, None, None], training)
    kernels = [(w["convolution.weight"] @ r + w["convolution.bias"]).reshape(-1, 1, k) for r in z]
    maps = np.stack([convolved(image[b, 0], kernels[b]) for b in range(len(x))])
    return projected(w, maps, training, rectify=False)


def conv_transe_query(query: nn.Module, x: Array, z: Array, training: bool) -> Array:
    w, (batch, dim) = weights(query), x.shape
    image = norm(w, "image_norm", np.stack((x, z), 1), training)
    kernels = w["convolution.weight"][:, 0]  # [F, 2, k]
    F, _, k = kernels.shape
    maps = np.zeros((batch, F, 1, dim))
    for b, f, j, row, t in np.ndindex(batch, F, dim, 2, k):
        place = j + t - (k - 1) // 2  # around j; outside there is nothing
        if 0 <= place < dim:
            maps[b, f, 0, j] += image[b, row, place] * kernels[f, row, t]
    return projected(w, maps, training)


QUERIES: dict[str, Callable[[nn.Module, Array, Array, bool], Array]] = {
    "conve": conve_query,
    "convr": convr_query,
    "hyper": hyper_query,
    "conv-transe": conv_transe_query,
}


def by_query(name: str) -> Callable[[Decoder, Vector, Vector, Vector], float]:
    def score(decoder: Decoder, x: Vector, z: Vector, e: Vector) -> float:
        (q,) = QUERIES[name](decoder.phi, np.array([x]), np.array([z]), False)
        return sum(a * b for a, b in zip(q, e, strict=True))

    return score


def convkb(decoder: Decoder, x: Vector, z: Vector, e: Vector) -> float:
    first, bias = decoder.phi.filters.tolist(), decoder.phi.bias.tolist()
    last, weight = decoder.similarity.filters.tolist(), decoder.similarity.weight.tolist()
    total = decoder.similarity.bias.item()
    for (a, b), c, offset, row in zip(first, last, bias, weight, strict=True):
        total += sum(w * max(0.0, a * x[j] + b * z[j] + c * e[j] + offset) for j, w in enumerate(row))
    return total


FORMULAS: dict[str, Callable[[Decoder, Vector, Vector, Vector], float]] = {
    "transe": transe,
    "distmult": distmult,
    "complex": complex_,
    "hole": hole,
    "rotate": rotate,
    "convkb": convkb,
} | {name: by_query(name) for name in QUERIES}
