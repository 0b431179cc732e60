"""The rows of a table that a rank owns, and the look-up of rows that other ranks own."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.processes import World
from compgcn.tasks.ranking import Candidates

_PIECE = 2**20  # numbers of a table that are drawn at a time
_BLOCK = 16  # torch draws normal numbers by so many


class _Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, world: World, give: list[int], take: list[int]) -> Tensor:
        ctx.given = world, take, give
        return world.swapped(x, give, take, "rows")

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        world, give, take = ctx.given
        return world.swapped(g, give, take, "rows"), None, None, None


class Rows(Candidates):
    """Rows 0 .. N-1 of a table, of which rank p of W owns [p C, min((p + 1) C, N)), C = ceil(N / W)."""

    def __init__(self, total: int, world: World) -> None:
        self.total, self.world = total, world
        self.chunk = max(1, -(-total // world.size))  # C
        self.start = min(world.rank * self.chunk, total)
        self.stop = min(self.start + self.chunk, total)
        self.size = self.stop - self.start  # n

    def hold(self, ids: Tensor) -> Tensor:
        return (ids >= self.start) & (ids < self.stop)

    def learned(self, rows: int, dim: int, scale: float | None) -> nn.Parameter:
        """Draw this rank's rows of a learned table of N: those that `compgcn.nn.encoder.learned` draws for one process.

        Every rank draws all numbers, some at a time, and keeps its own.
        """
        total, first, last = self.total * dim, self.start * dim, self.stop * dim
        kept = torch.empty(last - first)
        # Whole blocks, and no rest that is shorter than one: then pieces have the numbers of the whole.
        starts = range(0, max(total - _BLOCK, 1), _PIECE)
        for at, end in zip(starts, [*starts[1:], total], strict=True):
            piece = torch.empty(end - at)
            if scale is None:
                nn.init.normal_(piece, 0.0, math.sqrt(2.0 / (self.total + dim)))  # Xavier's
            else:
                piece = piece.normal_() * scale
            some = slice(max(at, first), min(end, last))
            if some.start < some.stop:
                kept[some.start - first : some.stop - first] = piece[some.start - at : some.stop - at]
        return nn.Parameter(kept.view(rows, dim))

    # Candidates: the entities of the rank's rows, with its slice of the scores [B, n]

    def chosen(self, scores: Tensor, row: Tensor, ids: Tensor) -> Tensor:
        """Return the scores at rows and ids [m]; 0 where another rank has them."""
        mine = self.hold(ids).nonzero().squeeze(1)
        found = scores[row[mine], ids[mine] - self.start]
        return scores.new_zeros(len(ids)).index_put((mine,), found)

    def at(self, scores: Tensor, ids: Tensor) -> Tensor:
        row = torch.arange(len(ids), device=ids.device).repeat_interleave(ids.shape[1])
        return self.world.reduced(self.chosen(scores, row, ids.flatten())).view_as(ids)

    def put(self, scores: Tensor, ids: Tensor, values: Tensor) -> Tensor:
        row, place = self.hold(ids).nonzero(as_tuple=True)
        return scores.index_put((row, ids[row, place] - self.start), values[row, place])

    def best(self, scores: Tensor, top: int) -> tuple[Tensor, Tensor]:
        """Return the largest scores of all slices and their entities, [B, k]: k of each slice, then k of those."""
        k, B = min(top, self.chunk), len(scores)
        values, ids = super().best(scores, k)
        lacking = (0, k - ids.shape[1])
        values, ids = F.pad(values, lacking, value=-torch.inf), F.pad(ids + self.start, lacking, value=self.total)
        values, ids = (self.world.gathered(part).view(-1, B, k).transpose(0, 1).flatten(1) for part in (values, ids))
        order = values.sort(dim=1, descending=True, stable=True).indices[:, : min(top, self.total)]  # of [B, W k]
        return values.gather(1, order), ids.gather(1, order)

    def log_sum_exp(self, scores: Tensor) -> Tensor:
        own = scores.logsumexp(1)
        top = self.world.largest(own).clamp_min(torch.finfo(own.dtype).min)  # every score may be -inf
        return top + self.world.summed((own - top).exp()).log()

    def highest(self, scores: Tensor) -> Tensor:
        return self.world.largest(F.pad(scores, (0, 1), value=-torch.inf).amax(1))

    def added(self, numbers: Tensor) -> Tensor:
        return self.world.reduced(numbers)


class Lookup:
    """A way to look up rows by their ids, any of N: made once, with all ranks, and used for any table.

    Each rank tells the owners of the distinct rows that it wants how many and which they are; `rows` then moves them,
    and its gradient moves the gradients back and adds them up.

    Args:
        ids: the rows that this rank wants, int64 of any shape.
    """

    def __init__(self, rows: Rows, ids: Tensor) -> None:
        self._world = world = rows.world
        wanted, self._place = torch.unique(ids, return_inverse=True)
        counts = torch.bincount(wanted // rows.chunk, minlength=world.size)
        self._take: list[int] = counts.tolist()
        each = [1] * world.size
        self._give: list[int] = world.swapped(counts, each, each, "ids").tolist()
        self._given = world.swapped(wanted, self._take, self._give, "ids") - rows.start

    def __call__(self, *tables: Tensor) -> list[Tensor]:
        """Return the wanted rows of tables, each [n, d] of the rank's own rows -> [.., d]."""
        found = F.embedding(self._place, self.rows(*tables))
        return list(torch.split(found, [table.shape[1] for table in tables], -1))

    def rows(self, *tables: Tensor) -> Tensor:
        """Return the distinct wanted rows in order of their ids, of all tables side by side."""
        given = torch.cat([F.embedding(self._given, table) for table in tables], 1)
        if self._world.size == 1:
            return given
        found: Tensor = _Swap.apply(given, self._world, self._give, self._take)  # type: ignore[no-untyped-call]
        return found
