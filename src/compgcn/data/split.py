"""Split one list of triples into train, valid and test, so that no test fact has its mirror image in train."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compgcn.errors import InputError

Triples = NDArray[np.int64]


def split(
    triples: Triples,
    num_entities: int,
    num_relations: int,
    *,
    seed: int = 0,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> tuple[Triples, Triples, Triples]:
    """Deal the triples over three splits; each keeps their order.

    All triples over one unordered pair {s, o} go to the same split, so no symmetric or inverse fact gives its twin
    away. Every entity and every relation keeps a triple in train. Within these rules the fractions are met as closely
    as whole pairs allow; if too few pairs are left, valid and test share them.

    Args:
        triples: [n, 3], (s, r, o), without duplicates.
        valid_fraction, test_fraction: the wanted shares of all triples.
    """
    if not (valid_fraction >= 0 and test_fraction >= 0 and valid_fraction + test_fraction < 1):
        given = f"valid_fraction={valid_fraction}, test_fraction={test_fraction}"
        raise InputError(f"the fractions must not be negative and must leave something to train on; given {given}")
    n = len(triples)
    rng = np.random.default_rng(seed)
    s, o = triples[:, 0], triples[:, 2]
    unordered = np.minimum(s, o) * num_entities + np.maximum(s, o)
    _, pair = np.unique(unordered, return_inverse=True)  # [n]
    size = np.bincount(pair)
    free = np.ones(len(size), dtype=bool)
    free[pair[_anchors(triples, num_entities, num_relations, rng)]] = False

    dealt = rng.permutation(np.flatnonzero(free))
    filled = np.append(0, np.cumsum(size[dealt]))  # triples of the first 0, 1, 2 ... pairs
    for_test, for_valid, left = round(test_fraction * n), round(valid_fraction * n), int(filled[-1])
    if left < for_test + for_valid:
        for_test = round(left * for_test / (for_test + for_valid))
    in_test = _nearest(filled, for_test)
    in_valid = _nearest(filled[in_test:] - filled[in_test], for_valid)
    home = np.zeros(len(size), dtype=np.int8)
    home[dealt[:in_test]] = 2
    home[dealt[in_test : in_test + in_valid]] = 1
    train, valid, test = (triples[home[pair] == part] for part in range(3))
    return train, valid, test


def _anchors(triples: Triples, num_entities: int, num_relations: int, rng: np.random.Generator) -> Triples:
    """Return rows that must stay in train: one for each entity and one for each relation.

    Rows of the loneliest entities come first: the only triple of an entity has to stay anyway, and can serve for the
    entity at its other end.
    """
    ends = triples[:, [0, 2]]  # [n, 2]
    degree = np.bincount(ends.ravel(), minlength=num_entities)
    lonely, chance = degree[ends].min(axis=1), rng.random(len(triples))  # equally lonely ones at random
    if len(triples) and lonely.max() < 2**10:  # one sort of both in one number is four times as fast
        order = np.argsort((lonely << 53) + (chance * 2.0**53).astype(np.int64))
    else:
        order = np.lexsort((chance, lonely))
    of_entity = first(ends[order].ravel(), num_entities) // 2
    of_relation = first(triples[order, 1], num_relations)
    rows = np.concatenate([of_entity, of_relation])
    anchors: Triples = order[rows[rows < len(order)]]
    return anchors


def first(codes: Triples, size: int) -> Triples:
    """Return where each of 0 .. size-1 first occurs, or the number of codes if it does not. [size]"""
    where = np.full(size, len(codes), dtype=np.int64)
    where[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the last write to a place stands
    return where


def _nearest(filled: Triples, target: int) -> int:
    """Return the place of the number nearest to the target; of two as near, the later."""
    return len(filled) - 1 - int(np.abs(filled - target)[::-1].argmin())
