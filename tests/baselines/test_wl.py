"""Weisfeiler-Lehman counts the subtrees that a recursion over the neighbourhood finds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toy
from compgcn.baselines.fitted import WEIGHINGS, outgoing
from compgcn.baselines.wl import refined, subtrees, wl_features
from compgcn.data import Vocabulary

N, R = 6, 2
node, relation = st.integers(0, N - 1), st.integers(0, R - 1)
edges = st.lists(st.tuples(node, relation, node), min_size=1, max_size=12, unique=True)


@given(triples=edges, kinds=st.lists(st.integers(0, 2), min_size=N, max_size=N), depth=st.integers(0, 3))
def test_the_subtrees_are_those_of_a_recursive_definition(
    triples: list[tuple[int, int, int]], kinds: list[int], depth: int
) -> None:
    def tree(v: int, down: int) -> Any:
        hanging = [] if down == 0 else sorted((r, tree(o, down - 1)) for s, r, o in triples if s == v)
        return (down, kinds[v], tuple(hanging))

    def walked(root: int, steps: int) -> set[int]:
        found = {root}
        for _ in range(steps):
            found |= {o for s, _, o in triples if s in found}
        return found

    def by_hand(root: int) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for down in range(depth + 1):
            found.update(tree(v, down) for v in walked(root, depth - down))
        for down in range(depth):
            near = walked(root, depth - down - 1)
            found.update((r, tree(o, down)) for s, r, o in triples if s in near)
        return found

    graph = outgoing(np.array(triples), N)
    row, thing = subtrees(graph, refined(graph, np.array(kinds), 3)[: depth + 1])(np.arange(N))
    tables = [Counter(thing[row == n].tolist()) for n in range(N)]
    wanted = [by_hand(n) for n in range(N)]

    def columns(counted: list[Counter[Any]]) -> list[tuple[int, ...]]:
        return sorted(tuple(table[key] for table in counted) for key in set().union(*counted))

    assert columns(tables) == columns(wanted)


@pytest.mark.parametrize("typed", [True, False])
def test_each_depth_start_and_weighing_has_a_variant_the_shallowest_first(typed: bool) -> None:
    pytest.importorskip("scipy")
    data = toy.labelled(typed=typed)
    data = data if typed else replace(data, relations=Vocabulary("relation", ["buys", "sells", "near", "like"]))
    variants = wl_features(data, np.arange(6), 0)
    found = [tuple(variant.settings.values()) for variant in variants]
    starts = ["types", "nodes"] if typed else ["nodes"]
    assert found == [(depth, start, name) for depth in (1, 2, 3, 4) for start in starts for name in WEIGHINGS]
    assert all(list(variant.settings) == ["depth", "start", "weighting"] for variant in variants)
    widths = [variant.table(np.arange(6)).shape[1] for variant in variants if variant.settings["start"] == "nodes"]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
