"""Every data set in the table loads to its published sizes, or says what is missing."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import toy
from compgcn.data import DATASETS, KnowledgeGraph, Vocabulary, load
from compgcn.data.datasets import canonical
from compgcn.data.download import FILES
from compgcn.errors import InputError
from toy import graph

PUBLISHED = {
    "fb15k-237": (14_541, 237, 272_115, 17_535, 20_466),
    "wn18rr": (40_943, 11, 86_835, 3_034, 3_134),
    "nations": (14, 55, 1_592, 199, 201),
    "umls": (135, 46, 5_216, 652, 661),
    "kinship": (104, 25, 8_544, 1_068, 1_074),
}
# The triples of a graph and of its -ind, as in GraIL's table of data sets; some of its numbers of entities differ.
INDUCTIVE = {
    "fb15k-237-v1": (5_226, 2_404),
    "fb15k-237-v2": (12_085, 5_092),
    "fb15k-237-v3": (22_394, 9_137),
    "fb15k-237-v4": (33_916, 14_554),
    "wn18rr-v1": (6_678, 1_991),
    "wn18rr-v2": (18_968, 4_863),
    "wn18rr-v3": (32_150, 7_470),
    "wn18rr-v4": (9_842, 15_157),
}
SIZES = {
    "link-prediction": ["entities", "relations", "train", "valid", "test"],
    "node-classification": ["entities", "relations", "triples", "classes", "train_labels", "test_labels"],
    "graph-classification": ["graphs", "nodes", "edges", "relations", "node_labels", "classes"],
}
ON_DISK = [name for name in DATASETS if name != "world"]


@pytest.mark.parametrize("name", DATASETS)
def test_every_row_is_complete(name: str) -> None:
    source = DATASETS[name]
    assert all((source.description, source.licence, source.citation))
    assert list(source.statistics) == SIZES[source.task]
    assert all(size > 0 for size in source.statistics.values())
    assert (source.files is None) == (name == "world")
    assert bool(source.canonical) == (name not in ("world", "am", "am-partial", "aifb", "bgs"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_benchmark_has_its_published_sizes_and_lost_nothing(benchmarks: Path, name: str) -> None:
    graph = load(name)
    found = graph.statistics()
    assert tuple(found[key] for key in ("entities", "relations", "train", "valid", "test")) == PUBLISHED[name]
    assert found["triples"] == sum(PUBLISHED[name][2:])
    assert not [note for note in graph.notes if "dropped" in note or "leakage" in note]


@pytest.mark.parametrize("name", INDUCTIVE)
def test_the_other_graph_has_unseen_entities_and_known_relations(benchmarks: Path, name: str) -> None:
    graph, other = load(name), load(f"{name}-ind")
    assert isinstance(graph, KnowledgeGraph)
    assert isinstance(other, KnowledgeGraph)
    assert set(other.relations.ids) <= set(graph.relations.ids)
    shared = set(other.entities.ids) & set(graph.entities.ids)
    assert len(shared) == (8 if name == "wn18rr-v3" else 0)
    assert tuple(one.statistics()["triples"] for one in (graph, other)) == INDUCTIVE[name]
    for one in (graph, other):
        assert one.notes == ()  # no entity or relation is of valid or test alone, and no triple is dropped
        assert set(one.entities.names) != set(one.entities.ids)


def test_wordnet_ids_keep_their_zeros_and_are_named_after_their_synset(benchmarks: Path) -> None:
    graph = load("wn18rr")
    row = graph.entities.index("00001740")
    assert graph.entities.names[row] == "breathe.v.01"
    assert graph.entities.index("breathe.v.01") == row
    assert all(len(text) == 8 for text in graph.entities.ids)
    assert graph.relations.index("has part") == graph.relations.index("_has_part")


@pytest.mark.parametrize("name", ON_DISK)
def test_in_the_wrong_folder_the_missing_file_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPGCN_DATA", str(tmp_path))
    with pytest.raises(InputError, match=rf"there is no file '{tmp_path}/.*'; COMPGCN_DATA must name the folder"):
        load(name)


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("[^\t\n]+", "a", "1 entities where 14 are published, 1 relations where"),
        ("uk", "UK", "the sizes agree but what they say differs"),
    ],
)
def test_other_triples_under_a_known_name_are_refused(
    benchmarks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, wrong: str
) -> None:
    folder = tmp_path / "small-kg" / "nations"
    folder.mkdir(parents=True)
    for part in ("train", "valid", "test"):
        text = (benchmarks / "small-kg" / "nations" / f"{part}.txt").read_text()
        (folder / f"{part}.txt").write_text(re.sub(old, new, text))
    monkeypatch.setenv("COMPGCN_DATA", str(tmp_path))
    with pytest.raises(InputError, match=f"not the published data set: {wrong}"):
        load("nations")


def test_the_canonical_digest_is_of_what_the_graph_says_and_not_of_how() -> None:
    given = graph()
    order = np.random.default_rng(0).permutation(given.num_entities)  # new row -> old row
    place = np.argsort(order)
    shuffled = replace(
        given,
        entities=Vocabulary("entity", [given.entities.ids[row] for row in order]),  # and no names
        **{
            part: np.column_stack([place[triples[:, 0]], triples[:, 1], place[triples[:, 2]]])[::-1]
            for part, triples in given.splits.items()
        },
    )
    assert canonical(shuffled) == canonical(given)
    assert shuffled.fingerprint() != given.fingerprint()
    others = [
        replace(given, train=given.train[1:]),
        replace(given, valid=given.test, test=given.valid),
        replace(given, train=given.train[:, [2, 1, 0]]),
        replace(given, entities=Vocabulary("entity", [f"{text}'" for text in given.entities.ids])),
        replace(given, relations=Vocabulary("relation", ["lives", "born", "known"])),
    ]
    labelled = toy.labelled()
    assert labelled.labels is not None
    swapped = replace(labelled.labels, train=labelled.labels.test, test=labelled.labels.train)
    others += [labelled, replace(labelled, labels=None), replace(labelled, labels=swapped)]
    assert len({canonical(given), *map(canonical, others)}) == 1 + len(others)


# Classification: the figures of the paper's table of data sets


def test_the_mirror_of_mutag_says_the_same_once_the_label_is_taken_out(benchmarks: Path) -> None:
    folder = benchmarks / "MUTAG-node"
    paths = {"graph": folder / "mutag.owl.gz", "train": folder / "trainingSet.tsv", "test": folder / "testSet.tsv"}
    mirror = DATASETS["mutag"].load(paths)
    assert canonical(mirror) == canonical(load("mutag")) == DATASETS["mutag"].canonical
    assert any("340 triples of 1 excluded relation left out" in note for note in mirror.notes)


@pytest.mark.parametrize(
    ("name", "graphs", "nodes", "edges"), [("mutag-graph", 188, 17.9, 39.6), ("ptc", 344, 25.5, 29.5)]
)
def test_the_molecules_have_the_sizes_the_paper_gives_or_say_which_differ(
    benchmarks: Path, name: str, graphs: int, nodes: float, edges: float
) -> None:
    n = load(name).statistics()
    assert (n["graphs"], n["relations"], n["classes"]) == (graphs, 4, 2)
    own = {"mean_nodes": round(n["mean_nodes"], 1), "mean_edges": round(n["mean_edges"], 1)}
    assert own | dict(DATASETS[name].paper) == {"mean_nodes": nodes, "mean_edges": edges}


AM = """<http://am/proxy-1> <http://am/maker> _:x .
<http://am/proxy-2> <http://am/title> "Vase" .
<http://am/proxy-3> <http://am/maker> <http://am/p> .
_:x <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://am/Person> .
"""


def test_am_is_read_from_files_of_the_published_layout(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "am_stripped.nt.gz", "wt") as file:
        file.write(AM)
    header = "proxy\tid\tlabel_cateogory\n"
    (tmp_path / "trainingSet.tsv").write_text(f"{header}http://am/proxy-1\t1.0\thttp://am/t-1\n")
    (tmp_path / "testSet.tsv").write_text(
        f"{header}http://am/proxy-2\t2.0\thttp://am/t-2\nhttp://am/proxy-3\t3.0\thttp://am/t-1\n"
    )
    paths = {role: tmp_path / item.path for role, item in FILES["am"].local.items()}
    graph = DATASETS["am"].load(paths)
    assert isinstance(graph, KnowledgeGraph)
    assert graph.name == "am"
    assert graph.num_entities == 7  # literals, blank nodes and classes included
    assert graph.labels is not None
    assert graph.labels.classes == ("http://am/t-1", "http://am/t-2")
    found = {part: [(graph.entities.ids[e], c) for e, c in rows] for part, rows in graph.labels.splits.items()}
    assert found == {
        "train": [("http://am/proxy-1", 0)],
        "valid": [],
        "test": [("http://am/proxy-2", 1), ("http://am/proxy-3", 0)],
    }


def test_a_number_in_other_digits_is_the_same_number() -> None:
    double = "^^<http://www.w3.org/2001/XMLSchema#double>"

    def with_ids(*ids: str) -> KnowledgeGraph:
        entities = Vocabulary("entity", ids)
        none = np.empty((0, 3), dtype=np.int64)
        return KnowledgeGraph("g", entities, Vocabulary("relation", ["r"]), np.array([[0, 0, 1]]), none, none)

    one = with_ids("a", f'"0.10"{double}')
    assert canonical(one) == canonical(with_ids("a", f'"0.1"{double}'))
    assert canonical(one) != canonical(with_ids("a", f'"0.2"{double}'))
    assert canonical(with_ids("a", '"0.10"')) != canonical(with_ids("a", '"0.1"'))  # text is text
