"""What graphs and collections of graphs both ask of their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compgcn.errors import InputError

Numbers = NDArray[np.int64]
Features = NDArray[np.float32]


def keys(triples: Numbers, num_entities: int, num_relations: int) -> Numbers:
    """One number per triple, equal where the triples are. [n]"""
    s, r, o = triples.T
    if num_entities**2 * num_relations >= 2**63:
        raise InputError(f"{num_entities} entities and {num_relations} relations are more than can be numbered")
    numbers: Numbers = (s * num_entities + o) * num_relations + r
    return numbers


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it must be."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def checked_features(kind: str, given: Any, rows: Mapping[int, str]) -> Features:
    """Finite numbers [n, f], for one of the numbers of rows n that there may be, each with its letter."""
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
            features = np.array(given, dtype=np.float32, order="C")
    except (TypeError, ValueError):
        raise InputError(f"the {kind} features are not an array of numbers") from None
    if features.ndim != 2 or features.shape[0] not in rows or not features.shape[1]:
        expected = " or ".join(f"[{count}, f]" for count in rows)
        letters = " or ".join(f"[{letter}, f]" for letter in rows.values())
        shape = list(features.shape)
        raise InputError(f"the {kind} features have shape {shape}; expected {expected}, that is {letters}")
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise InputError(f"the {kind} features are not all finite: row {row} holds a NaN or an infinity")
    return features
