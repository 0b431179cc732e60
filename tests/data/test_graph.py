"""Parts of a graph, numbers told from names, types and literals of its nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toy
from compgcn.config import Data
from compgcn.data import find, load, read
from compgcn.data.graph import Literals, is_value, literal_features, restricted, rows_by_type, top_relations
from compgcn.errors import InputError
from toy import facts, graph, labelled


@given(st.integers(0, 2**16))
def test_what_is_kept_says_the_same_and_the_vocabulary_has_no_more(seed: int) -> None:
    data, rng = graph(), np.random.default_rng(seed)
    keep = {part: rng.random(len(triples)) < 0.5 for part, triples in data.splits.items()}
    found = restricted(data, keep)
    for part in data.splits:
        expected = [fact for fact, kept in zip(facts(data, part), keep[part], strict=True) if kept]
        assert facts(found, part) == expected
    assert set(found.entities.ids) == {end for s, _, o in facts(found) for end in (s, o)}
    assert set(found.relations.ids) == {r for _, r, _ in facts(found)}


def test_the_relations_train_has_most_of_are_kept_in_every_split() -> None:
    world = load("world")
    found = find(Data(source="world", top_relations=3))
    assert set(found.relations.ids) == {"near", "in_time_zone", "in_country"}
    for part in world.splits:
        assert facts(found, part) == [fact for fact in facts(world, part) if fact[1] in found.relations.ids]
    assert top_relations(world, 10).fingerprint() == world.fingerprint()


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: top_relations(graph(), 4), "has 3 relations"),
        (lambda: top_relations(labelled(), 2), "labels or features"),
        (lambda: rows_by_type(graph()), r"the graph 'toy' has no relation .*; use encoder\.input='learned'"),
        (lambda: literal_features(graph()), "no literals were kept of the graph 'toy'"),
    ],
)
def test_what_a_graph_lacks_is_said_in_one_sentence(call: Callable[[], object], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        call()


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.dates(), st.datetimes()))
def test_numbers_and_dates_are_values_as_they_are_printed(value: object) -> None:
    assert is_value(str(value))


def test_numbers_and_dates_as_people_write_them_are_told_from_names() -> None:
    assert all(map(is_value, ["1,234.5", "12.5.1990", "1/2/1990", "1990-05", " 7 ", "+3", ".5"]))
    assert not any(map(is_value, ["", "-", ".", "e5", "3D", "1st", "2001: A Space Odyssey", "Q42", "1-2-3", "½"]))


def notes(folder: Path, lines: list[str]) -> str:
    (folder / "g.tsv").write_text("".join(f"{line}\n" for line in lines))
    return "\n".join(read(folder / "g.tsv").notes)


def test_relations_to_values_are_named_together(tmp_path: Path) -> None:
    lines = [f"f{i}\tyear\t{1990 + i}" for i in range(20)] + [f"f{i}\trun time\t{90 + i}" for i in range(10)]
    assert "--set 'exclude=year,run time'" in notes(tmp_path, [*lines, "f0\tyear\tunknown"])


@pytest.mark.parametrize(
    "lines",
    [
        [f"{i}\tr\t{i + 1}" for i in range(20)],  # whole numbers as ids
        [f"f{i}\tyear\t{1990 + i}" for i in range(9)],  # too few to tell
        [f"f{i}\tshows\t{name}" for i in range(10) for name in ("1984", "Brazil")],
    ],
)
def test_numbers_that_may_be_things_are_left_alone(tmp_path: Path, lines: list[str]) -> None:
    assert "numbers or dates" not in notes(tmp_path, lines)


def test_a_row_for_each_set_of_types_and_for_each_node_without() -> None:
    # 0 and 1 are both 4 and 5, told in another order; 2 is only 4; 3, 4 and 5 have no type.
    facts = [(0, 1, 4), (0, 1, 5), (1, 1, 5), (1, 1, 4), (2, 1, 4), (3, 0, 0)]
    given = toy.numbered(facts, 6, ["knows", "rdf:type"])
    rows = rows_by_type(given)
    assert rows[0] == rows[1]
    assert len({int(row) for row in rows}) == 5
    assert sorted({int(row) for row in rows}) == list(range(5))


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


def test_a_run_learns_from_literals_and_opens_without_them(tmp_path: Path) -> None:
    given = toy.labelled()
    sides = np.arange(24) % 2
    texts = tuple("sold here" if side else "bought" for side in sides)
    kept = Literals(np.arange(24), ("says",) * 24, texts)
    run = toy.classify(tmp_path / "run", replace(given, literals=kept), **{"encoder.input": "literals"})
    assert run.metrics["test"]["accuracy"] == 1.0
    assert run.evaluate("test") == run.metrics["test"]  # opened from the folder, where no literals are
