"""Numbers and dates are told from names, and a relation to them from one between things."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.data import read
from compgcn.data.graph import is_value


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.dates(), st.datetimes()))
def test_numbers_and_dates_are_values_as_they_are_printed(value: object) -> None:
    assert is_value(str(value))


def test_numbers_and_dates_as_people_write_them_are_told_from_names() -> None:
    assert all(map(is_value, ["1,234.5", "12.5.1990", "1/2/1990", "1990-05", " 7 ", "+3", ".5"]))
    assert not any(map(is_value, ["", "-", ".", "e5", "3D", "1st", "2001: A Space Odyssey", "Q42", "1-2-3", "½"]))


def notes(folder: Path, lines: list[str]) -> str:
    (folder / "g.tsv").write_text("".join(f"{line}\n" for line in lines))
    return "\n".join(read(folder / "g.tsv").notes)


def test_relations_to_values_are_named_together(tmp_path: Path) -> None:
    lines = [f"f{i}\tyear\t{1990 + i}" for i in range(20)] + [f"f{i}\trun time\t{90 + i}" for i in range(10)]
    assert '--set \'exclude=["year","run time"]\'' in notes(tmp_path, [*lines, "f0\tyear\tunknown"])


@pytest.mark.parametrize(
    "lines",
    [
        [f"{i}\tr\t{i + 1}" for i in range(20)],  # whole numbers as ids
        [f"f{i}\tyear\t{1990 + i}" for i in range(9)],  # too few to tell
        [f"f{i}\tshows\t{name}" for i in range(10) for name in ("1984", "Brazil")],
    ],
)
def test_numbers_that_may_be_things_are_left_alone(tmp_path: Path, lines: list[str]) -> None:
    assert "numbers or dates" not in notes(tmp_path, lines)
