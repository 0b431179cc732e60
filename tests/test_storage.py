"""Files are replaced all or nothing, and shards are the same tensors in smaller files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compgcn.errors import InputError
from compgcn.storage import load_tensors, replace, save_tensors

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
