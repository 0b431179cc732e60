"""Nodes that share a vector by their types, and features out of literals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import toy
from compgcn.data import KnowledgeGraph, Vocabulary, read
from compgcn.data.graph import Literals, literal_features, rows_by_type, typed
from compgcn.errors import InputError


def graph(triples: list[tuple[int, int, int]], entities: int) -> KnowledgeGraph:
    none = np.empty((0, 3), dtype=np.int64)
    names = [f"e{i}" for i in range(entities)]
    relations = Vocabulary("relation", ["knows", "rdf:type"])
    return KnowledgeGraph("g", Vocabulary("entity", names), relations, np.array(triples), none, none)


def test_a_row_for_each_set_of_types_and_for_each_node_without() -> None:
    # 0 and 1 are both 4 and 5, told in another order; 2 is only 4; 3, 4 and 5 have no type.
    given = graph([(0, 1, 4), (0, 1, 5), (1, 1, 5), (1, 1, 4), (2, 1, 4), (3, 0, 0)], 6)
    rows = rows_by_type(given)
    assert rows[0] == rows[1]
    assert len({int(row) for row in rows}) == 5
    assert sorted({int(row) for row in rows}) == list(range(5))


def test_without_types_every_node_would_be_alone_and_that_is_said() -> None:
    assert not typed(toy.graph())
    with pytest.raises(InputError, match=r"the graph 'toy' has no relation .*; use encoder\.input='learned'"):
        rows_by_type(toy.graph())


def test_literals_become_numbers_and_words(tmp_path: Path) -> None:
    kind = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <x:T>"
    lines = [f"<x:{i}> <x:knows> <x:{(i + 1) % 4}> .\n<x:{i}> {kind} .\n" for i in range(4)]
    ages = {0: 10, 1: 20, 2: 30}
    lines += [f'<x:{i}> <x:age> "{age}"^^<http://www.w3.org/2001/XMLSchema#integer> .\n' for i, age in ages.items()]
    lines += ['<x:0> <x:title> "red house" .\n', '<x:3> <x:title> "Red car" .\n']
    (tmp_path / "g.nt").write_text("".join(lines))
    given = read(tmp_path / "g.nt", literals="keep", valid_fraction=0.0, test_fraction=0.0)
    features = literal_features(given)
    assert features.shape == (given.num_entities, 1 + (1 + 1) + 1 + 64)  # types; age; title; words
    row = [given.entities.ids.index(f"x:{i}") for i in range(4)]
    assert features[row, 0].tolist() == [1, 1, 1, 1]
    assert features[row, 1].tolist() == [1, 1, 1, 0]
    np.testing.assert_allclose(features[row, 2], [-np.sqrt(1.5), 0, np.sqrt(1.5), 0], rtol=1e-6)
    assert features[row, 3].tolist() == [1, 0, 0, 1]
    words = features[row, 4:]
    assert ((words[0] > 0) & (words[3] > 0)).any()  # red, whatever its case
    assert not words[1].any()
    assert not words[2].any()


def test_a_graph_read_without_its_literals_has_no_such_features() -> None:
    with pytest.raises(InputError, match="no literals were kept of the graph 'toy'"):
        literal_features(toy.graph())


def test_a_run_learns_from_literals_and_opens_without_them(tmp_path: Path) -> None:
    given = toy.labelled()
    sides = np.arange(24) % 2
    texts = tuple("sold here" if side else "bought" for side in sides)
    kept = Literals(np.arange(24), ("says",) * 24, texts)
    run = toy.classify(tmp_path / "run", replace(given, literals=kept), **{"encoder.input": "literals"})
    assert run.metrics["test"]["accuracy"] == 1.0
    assert run.evaluate("test") == run.metrics["test"]  # opened from the folder, where no literals are
