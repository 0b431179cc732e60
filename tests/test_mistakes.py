"""A file in a form of its own is refused in one sentence that names the file and the place of its first mistake."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compgcn.errors import InputError
from reproduction.experiment import read_experiment


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (read_experiment, "source = 'y'", "title: field required"),
        (read_experiment, "title = 3\nsource = 4", "title: input should be a valid string"),
    ],
)
def test_the_first_mistake_is_named_with_its_place(
    tmp_path: Path, read: Callable[[Path], object], text: str, said: str
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"^{re.escape(f'{path}: {said}')}[^\n]*$"):
        read(path)
