"""Every data set in the table loads to its published sizes, or says what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compgcn.data import DATASETS, Vocabulary, load
from compgcn.data.registry import canonical
from compgcn.errors import InputError
from toy import graph

PUBLISHED = {
    "fb15k-237": (14_541, 237, 272_115, 17_535, 20_466),
    "wn18rr": (40_943, 11, 86_835, 3_034, 3_134),
    "nations": (14, 55, 1_592, 199, 201),
    "umls": (135, 46, 5_216, 652, 661),
    "kinship": (104, 25, 8_544, 1_068, 1_074),
}
ON_DISK = [name for name in DATASETS if name != "world"]


@pytest.mark.parametrize("name", DATASETS)
def test_every_row_is_complete(name: str) -> None:
    source = DATASETS[name]
    assert source.name == name
    assert source.task == "link-prediction"
    assert source.description
    assert source.licence
    assert source.citation
    assert list(source.statistics) == ["entities", "relations", "train", "valid", "test"]
    assert all(size > 0 for size in source.statistics.values())
    assert (source.files is None) == (name == "world")
    assert bool(source.canonical) == (name != "world")


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_benchmark_has_its_published_sizes_and_lost_nothing(benchmarks: Path, name: str) -> None:
    graph = load(name)
    found = graph.statistics()
    assert tuple(found[key] for key in ("entities", "relations", "train", "valid", "test")) == PUBLISHED[name]
    assert found["triples"] == sum(PUBLISHED[name][2:])
    assert not [note for note in graph.notes if "dropped" in note or "leakage" in note]


@pytest.mark.parametrize(("name", "unseen"), [("fb15k-237", 36), ("wn18rr", 384)])
def test_entities_unseen_in_train_are_kept_and_counted(benchmarks: Path, name: str, unseen: int) -> None:
    graph = load(name)
    assert graph.num_entities - len(np.unique(graph.train[:, [0, 2]])) == unseen
    assert f"{unseen} entities only in valid or test, never in train; kept" in graph.notes


def test_freebase_entities_have_names_and_shared_ones_are_answered_with_ids(benchmarks: Path) -> None:
    graph = load("fb15k-237")
    assert graph.entities.names[graph.entities.index("/m/06rf7")] == "Schleswig-Holstein"
    assert graph.entities.index("Schleswig-Holstein") == graph.entities.index("/m/06rf7")
    names = list(graph.entities.names)
    shared = next(name for name in names if names.count(name) > 1 and name not in graph.entities.ids)
    bearers = [text for text, name in zip(graph.entities.ids, names, strict=True) if name == shared]
    with pytest.raises(InputError, match=f"'{bearers[0]}', '{bearers[1]}'"):
        graph.entities.index(shared)
    assert graph.relations.names[graph.relations.index("/music/artist/origin")] == "music artist origin"


def test_wordnet_ids_keep_their_zeros_and_are_named_after_their_synset(benchmarks: Path) -> None:
    graph = load("wn18rr")
    row = graph.entities.index("00001740")
    assert graph.entities.names[row] == "breathe.v.01"
    assert graph.entities.index("breathe.v.01") == row
    assert all(len(text) == 8 for text in graph.entities.ids)
    assert graph.relations.index("has part") == graph.relations.index("_has_part")


def test_names_are_not_needed(benchmarks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "WN18RR").mkdir()
    (tmp_path / "WN18RR" / "WN18RR.zip").symlink_to(benchmarks / "WN18RR" / "WN18RR.zip")
    with_names = load("wn18rr")
    monkeypatch.setenv("COMPGCN_DATA", str(tmp_path))
    without = load("wn18rr")
    assert without.entities.names == without.entities.ids
    assert without.fingerprint() == with_names.fingerprint()


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown data set 'fb15k'; did you mean 'fb15k-237'"):
        load("fb15k")


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ON_DISK)
def test_without_folder_and_network_one_sentence_says_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMPGCN_DATA", raising=False)
    with pytest.raises(InputError, match=rf"'{name}' could not be fetched: .*; connect to .*, or set COMPGCN_DATA"):
        load(name)


@pytest.mark.parametrize("name", ON_DISK)
def test_in_the_wrong_folder_the_missing_file_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPGCN_DATA", str(tmp_path))
    with pytest.raises(InputError, match=rf"there is no file '{tmp_path}/.*'; COMPGCN_DATA must name the folder"):
        load(name)


def test_other_data_under_a_known_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "small-kg" / "nations"
    folder.mkdir(parents=True)
    for part in ("train", "valid", "test"):
        (folder / f"{part}.txt").write_text("a\tr\tb\n")
    monkeypatch.setenv("COMPGCN_DATA", str(tmp_path))
    with pytest.raises(InputError, match="not the published data set: 2 entities where 14 are published, 1 relations"):
        load("nations")


def test_other_triples_of_the_same_sizes_are_refused(
    benchmarks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "small-kg" / "nations"
    folder.mkdir(parents=True)
    for part in ("train", "valid", "test"):
        text = (benchmarks / "small-kg" / "nations" / f"{part}.txt").read_text()
        (folder / f"{part}.txt").write_text(text.replace("uk", "UK"))
    monkeypatch.setenv("COMPGCN_DATA", str(tmp_path))
    with pytest.raises(InputError, match="not the published data set: the sizes agree but the triples differ"):
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
    assert len({canonical(given), *map(canonical, others)}) == 1 + len(others)
