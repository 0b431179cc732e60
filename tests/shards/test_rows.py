"""The layout of rows, and the tables that ranks draw."""

from __future__ import annotations

import pytest
import torch

from compgcn.nn.encoder import learned
from compgcn.processes import World
from compgcn.shards import rows
from compgcn.shards.rows import Lookup, Rows


def layouts(total: int, size: int) -> list[Rows]:
    """The layouts of all ranks; none of them may speak."""
    found = []
    for rank in range(size):
        world = World()
        world.rank, world.size = rank, size
        found.append(Rows(total, world))
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("total", [1, 4, 10, 13])
def test_rows_are_cut_as_torch_cuts_them(total: int, size: int) -> None:
    every = torch.arange(total)
    parts = [every[one.start : one.stop] for one in layouts(total, size)]
    pieces = list(every.chunk(size))
    assert [part.tolist() for part in parts] == [piece.tolist() for piece in pieces] + [[]] * (size - len(pieces))
    for one in layouts(total, size):
        assert every[one.hold(every)].tolist() == every[one.start : one.stop].tolist()


@pytest.mark.parametrize("piece", [16, 64, 2**20])
@pytest.mark.parametrize("scale", [None, 0.1])
@pytest.mark.parametrize(("total", "dim"), [(1, 3), (4, 4), (5, 7), (13, 5), (33, 16), (40, 9)])
def test_ranks_draw_the_rows_of_one_process(
    total: int, dim: int, scale: float | None, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_PIECE", piece)
    torch.manual_seed(0)
    whole, after = learned(total, dim, scale), torch.rand(3)
    for size in (1, 2, 3):
        parts = []
        for one in layouts(total, size):
            torch.manual_seed(0)
            parts.append(one.learned(one.size, dim, scale))
            assert torch.equal(torch.rand(3), after), "what is drawn next is the same too"
        assert torch.equal(torch.cat(parts), whole)


def test_a_single_rank_looks_up_its_own_rows() -> None:
    table, other = torch.randn(7, 3, requires_grad=True), torch.randn(7, 1)
    ids = torch.tensor([[5, 0], [5, 6]])
    found = Lookup(Rows(7, World()), ids)(table, other)
    assert torch.equal(found[0], table[ids])
    assert torch.equal(found[1], other[ids])
    found[0].sum().backward()
    assert torch.equal(table.grad[:, 0], torch.tensor([1.0, 0, 0, 0, 0, 2, 1]))
