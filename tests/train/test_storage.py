"""Files are replaced all or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from compgcn.errors import InputError
from compgcn.train.storage import load_tensors, replace, save_tensors


def test_only_what_is_wanted_is_read(tmp_path):
    save_tensors(tmp_path / "x.safetensors", {"a": torch.ones(3), "b": torch.zeros(2)}, {})
    assert list(load_tensors(tmp_path / "x.safetensors", ("b", "c"))) == ["b"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(tmp_path, there):
    (tmp_path / "far").mkdir()
    file, link = tmp_path / "far" / "file", tmp_path / "link"
    if there:
        file.write_text("before")
        file.chmod(0o604)
    link.symlink_to(Path("far") / "file")
    # another process writes it at the same time
    replace(link, lambda part: (replace(link, lambda other: other.write_text("other")), part.write_text("after")))
    assert (link.is_symlink(), file.read_text()) == (True, "after")
    assert (file.stat().st_mode & 0o777 == 0o604) == there
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["far", "file", "link"]


@pytest.mark.parametrize(("name", "to"), [("pipe", ""), ("link", "pipe"), ("link", "link")])
def test_what_is_no_file_is_refused_and_stays(tmp_path, name, to):
    os.mkfifo(tmp_path / "pipe")
    if to:
        (tmp_path / name).symlink_to(to)
    before = {p.name: p.lstat().st_mode for p in tmp_path.iterdir()}
    with pytest.raises(InputError, match="is not a file that could be replaced; choose another name"):
        replace(tmp_path / name, lambda part: part.write_text("mine"))
    assert {p.name: p.lstat().st_mode for p in tmp_path.iterdir()} == before
