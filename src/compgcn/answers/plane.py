"""Vectors as points to draw."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


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
