"""Files are replaced all or nothing, and shards are the same tensors in smaller files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.errors import InputError
from compgcn.train.storage import load_tensors, replace, replace_folder, save_tensors

SIZES = st.lists(st.integers(0, 40), max_size=3)


@given(st.dictionaries(st.sampled_from("abcdef"), SIZES, min_size=1, max_size=6), st.integers(1, 4000))
def test_shards_hold_the_same_tensors_and_none_is_too_large(tmp_path_factory, shapes, limit):
    folder = tmp_path_factory.mktemp("shards")
    tensors = {name: torch.randn(shape) for name, shape in shapes.items()}
    save_tensors(folder / "model.safetensors", tensors, {}, limit / 2**20)
    loaded = load_tensors(folder / "model.safetensors")
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    row = max((t[:1].nbytes for t in tensors.values() if t.ndim), default=4)  # a single row is never cut
    for shard in folder.glob("model-*.safetensors"):
        assert sum(t.nbytes for t in load_tensors(shard).values()) <= max(limit, row)


def test_a_kill_between_the_shards_leaves_the_old_ones_in_force(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    old, new = ({"a": torch.full((100,), value), "b": torch.full((100,), value)} for value in (1.0, 2.0))
    save_tensors(path, old, {}, 300 / 2**20)
    real = Path.replace
    for kill_at in range(1, 6):
        calls = 0

        def killed(self, target, kill_at=kill_at):
            nonlocal calls
            calls += 1
            if calls == kill_at:
                raise KeyboardInterrupt
            return real(self, target)

        monkeypatch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            save_tensors(path, new, {}, 300 / 2**20)
        monkeypatch.undo()
        assert torch.equal(load_tensors(path)["b"], old["b"])
    save_tensors(path, new, {}, 300 / 2**20)
    assert torch.equal(load_tensors(path)["b"], new["b"])
    assert len(list(tmp_path.glob("model-*.safetensors"))) == 4, "shards of no index are removed"


def test_only_what_is_wanted_is_read(tmp_path):
    save_tensors(tmp_path / "x.safetensors", {"a": torch.ones(3), "b": torch.zeros(2)}, {})
    assert list(load_tensors(tmp_path / "x.safetensors", ("b", "c"))) == ["b"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "text"
    replace(path, lambda part: part.write_text("before"))

    def full(part: Path) -> None:
        part.write_text("half of")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="No space left on device; what was there before is untouched"):
        replace(path, full)
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(tmp_path, there):
    (tmp_path / "far").mkdir()
    file, link = tmp_path / "far" / "file", tmp_path / "link"
    if there:
        file.write_text("before")
    link.symlink_to(Path("far") / "file")
    replace(link, lambda part: part.write_text("after"))
    assert link.is_symlink()
    assert file.read_text() == "after"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["far", "file", "link"]


def test_a_link_to_a_folder_stays_one_and_its_folder_is_made_anew(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old.tsv").touch()
    (tmp_path / "link").symlink_to("folder")
    replace_folder(tmp_path / "link", lambda part: (part / "new.tsv").touch(), ["*.tsv"])
    assert (tmp_path / "link").is_symlink()
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["folder", "link", "new.tsv"]


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "link to itself"])
def test_what_is_no_file_is_refused_and_stays(tmp_path, kind):
    place = tmp_path / "place"
    if kind == "link to itself":
        place.symlink_to("place")
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        os.mkfifo(tmp_path / "pipe")
        place.symlink_to("pipe")
    before = {p.name: p.lstat().st_mode for p in tmp_path.iterdir()}
    for write in (replace, lambda path, fill: replace_folder(path, fill, ["*"])):
        with pytest.raises(InputError, match="is not a file that could be replaced; choose another name"):
            write(place, lambda part: part.write_text("mine"))
    assert {p.name: p.lstat().st_mode for p in tmp_path.iterdir()} == before
