"""Vectors as points to draw."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from compgcn.data import Vocabulary
from compgcn.errors import InputError
from compgcn.train.storage import Table

_SLACK = 1e-5  # more than single precision errs in a cosine


class Similar(NamedTuple):
    """One neighbour, the nearest first in a list of them."""

    entity: str  # its id; that of a relation or of a graph, where those were asked for
    name: str
    similarity: float  # the cosine, from -1 to 1; 0 where one of the two vectors is zero


class Neighbours:
    """A table of vectors, brought to length 1 once, so that asking is one product of a matrix and a vector.

    Args:
        table: vectors [n, d] with their ids and names. A vector of zeros stays one.
    """

    def __init__(self, table: Table) -> None:
        self.vocabulary = Vocabulary(table.kind, table.ids, table.names)
        vectors = torch.from_numpy(table.vectors)
        largest = vectors.abs().amax(1, keepdim=True)
        if not torch.isfinite(largest).all():
            raise InputError("the model's vectors are not finite; train again with a lower training.lr")
        # Divided by the largest number first: the square of a very small or very large one is no number.
        vectors = vectors / largest.where(largest > 0, 1)
        self._directions = torch.nn.functional.normalize(vectors, dim=1)  # [n, d]

    def nearest(self, name: str, top: int = 10) -> list[Similar]:
        """The nearest to one, by id or name, itself left out; those at the same distance in the order of the table."""
        if not isinstance(top, int) or isinstance(top, bool) or top < 1:
            raise InputError(f"top must be a whole number from 1 on, not {top!r}")
        row = self.vocabulary.index(name)
        top = min(top, len(self.vocabulary) - 1)
        if not top:
            return []
        own = self._directions[row]
        rough = self._directions @ own  # [n]
        rough[row] = -torch.inf
        # A product sums each row in an order of its own, so equal rows may differ in the last digit: those that may
        # belong to the nearest are computed again, exactly enough for equal to be equal.
        near = (rough >= rough.topk(top).values[-1] - _SLACK).nonzero().squeeze(1)
        exact = (self._directions[near].double() * own.double()).sum(1).clamp(-1, 1).float()
        order = exact.sort(descending=True, stable=True)
        rows, values = near[order.indices[:top]].tolist(), order.values[:top].tolist()
        ids, names = self.vocabulary.ids, self.vocabulary.names
        return [Similar(ids[k], names[k], value) for k, value in zip(rows, values, strict=True)]


class Plane(NamedTuple):
    """Vectors in their principal plane."""

    places: NDArray[np.float64]  # [N, 2]
    explained: list[float]  # share of the variance along each axis


def principal_plane(vectors: NDArray[Any]) -> Plane:
    """Where vectors [N, d] lie in the plane that shows most of their variance."""
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    values, axes = np.linalg.eigh(centred.T @ centred)  # in rising order
    axes, values = axes[:, ::-1], np.maximum(values[::-1], 0)
    width = min(2, axes.shape[1])
    places = np.zeros((len(vectors), 2))
    places[:, :width] = centred @ axes[:, :width]
    shares = values / values.sum() if values.sum() else values
    return Plane(places, [*shares[:width].tolist(), 0.0][:2])
