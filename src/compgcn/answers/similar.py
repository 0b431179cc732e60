"""Compare the vectors of a model: nearest neighbours by cosine, and a map of them by PCA."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from compgcn.answers.links import must_count
from compgcn.data import Vocabulary
from compgcn.data.columns import Numbers
from compgcn.errors import InputError
from compgcn.train.storage import Table

_BLOCK = 2**14  # vectors that are copied in double precision at a time
_SLACK = 1e-5  # above the rounding error of a cosine in single precision


class Similar(NamedTuple):
    """One neighbour."""

    id: str  # of an entity, a relation or a graph
    name: str
    similarity: float  # the cosine, from -1 to 1; 0 if one of the two vectors is zero


class Neighbours:
    """Vectors of unit length with their ids and names; zero vectors stay zero."""

    def __init__(self, table: Table) -> None:
        self.vocabulary = Vocabulary(table.kind, table.ids, table.names)
        vectors = torch.from_numpy(table.vectors)
        largest = vectors.abs().amax(1, keepdim=True)
        if not torch.isfinite(largest).all():
            raise InputError("the model's vectors are not finite; train again with a lower training.lr")
        vectors = vectors / largest.where(largest > 0, 1)  # the square of a tiny or huge number is not finite
        self._directions = torch.nn.functional.normalize(vectors, dim=1)  # [n, d]

    def nearest(self, name: str, top: int = 10) -> list[Similar]:
        """Return the nearest neighbours of an id or name, best first, ties in the order of the table."""
        must_count("top", top)
        row = self.vocabulary.index(name)
        top = min(top, len(self.vocabulary) - 1)
        if not top:
            return []
        own = self._directions[row]
        rough = self._directions @ own  # [n]
        rough[row] = -torch.inf
        # A matrix product may round equal rows differently, so the candidates are computed again, more exactly.
        near = (rough >= rough.topk(top).values[-1] - _SLACK).nonzero().squeeze(1)
        exact = (self._directions[near].double() * own.double()).sum(1).clamp(-1, 1).float()
        order = exact.sort(descending=True, stable=True)
        rows, values = near[order.indices[:top]].tolist(), order.values[:top].tolist()
        ids, names = self.vocabulary.ids, self.vocabulary.names
        return [Similar(ids[k], names[k], value) for k, value in zip(rows, values, strict=True)]


class Projection(NamedTuple):
    """Vectors on their first two principal axes."""

    places: NDArray[np.float64]  # [n, 2]
    explained: list[float]  # the share of the variance along each axis


def pca(vectors: NDArray[Any], shown: Numbers | slice = slice(None)) -> Projection:
    """Project vectors [N, d] onto the two axes of largest variance; return the places of those to show."""
    mean = vectors.mean(0, dtype=np.float64)
    blocks = (vectors[i : i + _BLOCK] - mean for i in range(0, len(vectors), _BLOCK))
    values, axes = np.linalg.eigh(sum(block.T @ block for block in blocks))  # ascending
    axes, values = axes[:, ::-1], np.maximum(values[::-1], 0)
    width = min(2, axes.shape[1])
    chosen = vectors[shown] - mean
    places = np.zeros((len(chosen), 2))
    places[:, :width] = chosen @ axes[:, :width]
    shares = values / values.sum() if values.sum() else values
    return Projection(places, [*shares[:width].tolist(), 0.0][:2])
