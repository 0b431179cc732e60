"""Every row of files is complete, agrees with what is published, and is the same data from every mirror."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

import pytest

from compgcn.data import DATASETS, download, load
from compgcn.data.datasets import canonical
from compgcn.data.download import FILES
from server import sha

UNHASHED = {"am", "aifb", "bgs"}  # nobody has had these archives in hand yet


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPGCN_CACHE", str(tmp_path / "cache"))


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
    assert {state for _, state in download.verify(name, FILES[name]).values()} == {"ok"}


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
