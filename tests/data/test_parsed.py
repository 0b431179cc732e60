"""The cache of large files: the same graph the second time, whatever happens to the cache."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compgcn.data import KnowledgeGraph, files, graph, read

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that keeps every file, however small."""
    monkeypatch.setenv("COMPGCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "SMALLEST", 1)
    return tmp_path / "cache" / "parsed"


@pytest.fixture
def graph_file(write: Write) -> Path:
    return write("g.tsv", "head\trelation\ttail\n" + "".join(f"é{i}\tr{i % 3}\t{i * 7 % 90}\n" for i in range(90)))


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the graphs that were parsed, rather than found."""
    found: list[str] = []
    whole = graph.tidied

    def counted(name: str, *rest: object) -> KnowledgeGraph:
        found.append(name)
        return whole(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(graph, "tidied", counted)
    return found


def same(one: KnowledgeGraph, other: KnowledgeGraph) -> bool:
    return one.fingerprint() == other.fingerprint() and one.notes == other.notes and one.origin == other.origin


def test_a_file_is_parsed_once_and_found_again(cache: Path, graph_file: Path, parses: list[str]) -> None:
    first, second = read(graph_file), read(graph_file, name="other")
    assert same(first, second)
    assert (second.name, parses) == ("other", ["g"])
    assert len(list(cache.iterdir())) == 1


def test_names_from_the_file_are_kept_with_it(cache: Path, write: Write, parses: list[str]) -> None:
    pytest.importorskip("pyoxigraph", reason="pyoxigraph is not installed: RDF cannot be read")
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    file = write("g.nt", f'<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> {label} "Ann" .\n')
    first, second = read(file), read(file)
    assert first.entities.names == second.entities.names == ("Ann", "http://x/b")
    assert second.relations.names == ("http://x/r",)
    assert (first.notes, len(parses)) == (second.notes, 1)
    own = read(file, names=write("names.tsv", "http://x/b\tBo\n"))
    assert own.entities.names == ("http://x/a", "Bo"), "and a table of names is another way of reading"
    assert len(list(cache.iterdir())) == 2


def test_another_content_or_another_way_of_reading_is_another_entry(
    cache: Path, graph_file: Path, parses: list[str]
) -> None:
    read(graph_file)
    read(graph_file, split_seed=1)
    read(graph_file, columns=(2, 1, 0))
    read(graph_file, exclude=["r1"])
    status = graph_file.stat()
    graph_file.write_bytes(graph_file.read_bytes().replace(b"r1", b"q1"))  # as long as before ..
    os.utime(graph_file, ns=(status.st_atime_ns, status.st_mtime_ns))  # .. and, it seems, as old
    assert "q1" in read(graph_file).relations.ids
    assert len(parses) == 5


def test_kept_literals_are_found_again(cache: Path, write: Write, parses: list[str]) -> None:
    pytest.importorskip("pyoxigraph")
    path = write("g.nt", '<http://a> <http://p> <http://b> .\n<http://b> <http://q> "é" .\n')
    first, second = read(path, literals="keep"), read(path, literals="keep")
    assert first.literals is not None
    assert second.literals is not None
    assert first.literals.entities.tolist() == second.literals.entities.tolist() == [1]
    assert first.literals[1:] == second.literals[1:] == (("http://q",), ("é",))
    assert parses == ["g"]


def test_a_file_written_again_while_it_is_read_is_not_kept(
    cache: Path, graph_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed, other = read.entry, graph_file.read_bytes().replace(b"r1", b"other")

    def overtaken(*given: Any) -> Path | None:
        entry = hashed(*given)
        graph_file.write_bytes(other)
        return entry

    before = graph_file.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(files, "entry", overtaken)
        assert "other" in read(graph_file).relations.ids
    graph_file.write_bytes(before)
    assert "other" not in read(graph_file).relations.ids


def test_what_a_killed_process_was_writing_is_removed_after_a_day(cache: Path, graph_file: Path) -> None:
    cache.mkdir(parents=True)
    for age, name in ((0, "new.part"), (2 * 86400, "old.part")):
        (cache / name).write_bytes(b"PAR1")
        os.utime(cache / name, (time.time() - age, time.time() - age))
    read(graph_file)
    assert [path.name for path in cache.glob("*.part")] == ["new.part"]


def test_a_damaged_entry_is_never_believed(cache: Path, graph_file: Path, parses: list[str]) -> None:
    expected = read(graph_file)
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    for damage in range(0, len(whole), 11):
        entry.write_bytes(whole[:damage] + bytes([whole[damage] ^ 0xFF]) + whole[damage + 1 :])
        assert same(read(graph_file), expected), damage
    for size in (0, 4, len(whole) // 2, len(whole) - 1):
        entry.write_bytes(whole[:size])
        assert same(read(graph_file), expected)
    entry.unlink()
    entry.mkdir()
    assert same(read(graph_file), expected)


def test_a_cache_that_cannot_be_written_is_gone_without(
    tmp_path: Path, graph_file: Path, monkeypatch: pytest.MonkeyPatch, parses: list[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(files, "SMALLEST", 1)
    monkeypatch.setenv("COMPGCN_CACHE", str(tmp_path / "file"))
    assert same(read(graph_file), read(graph_file))
    assert len(parses) == 2


def test_it_can_be_switched_off_and_small_files_are_not_kept(
    tmp_path: Path, graph_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPGCN_CACHE", str(tmp_path / "cache"))
    read(graph_file)
    monkeypatch.setattr(files, "SMALLEST", 1)
    monkeypatch.setenv("COMPGCN_PARSED", "off")
    read(graph_file)
    assert not (tmp_path / "cache").exists()


def test_the_entry_not_used_for_longest_makes_room(
    cache: Path, graph_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        read(graph_file, split_seed=seed)
        for age, path in enumerate(sorted(cache.iterdir(), key=lambda path: -path.stat().st_mtime)):
            os.utime(path, (1000 - age, 1000 - age))
    size = next(iter(cache.iterdir())).stat().st_size
    monkeypatch.setattr(files, "LARGEST", 2.5 * size)
    oldest = min(cache.iterdir(), key=lambda path: path.stat().st_mtime)
    read(graph_file, split_seed=3)
    assert len(list(cache.iterdir())) == 2
    assert not oldest.exists()
