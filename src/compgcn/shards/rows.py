"""The rows of a table that a rank owns, the collectives, and the look-up of rows that other ranks own."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.tasks.ranking import Candidates

_PIECE = 2**20  # numbers of a table that are drawn at a time
_BLOCK = 16  # torch draws normal numbers by so many


class World:
    """The ranks of a run, and what they tell each other; a single rank tells nothing and needs no process group.

    Args:
        group: some of the ranks; None for all.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        there = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank(group) if there else 0
        self.size = dist.get_world_size(group) if there else 1
        self.sent: Counter[str] = Counter()  # bytes that this rank has given to collectives, by kind
        self._group = group
        self._on_cpu = there and dist.get_backend(group) == "gloo"

    def summed(self, x: Tensor) -> Tensor:
        """Return the sum over the ranks of x, for a loss that every rank computes of it alike.

        The gradient by each summand is that of the sum, which every rank knows.
        """
        return x if self.size == 1 else _Sum.apply(x, self, False)  # type: ignore[no-untyped-call]

    def pooled(self, x: Tensor) -> Tensor:
        """Return the sum over the ranks of x, which every rank uses for its own rows; gradients are added up too."""
        return x if self.size == 1 else _Sum.apply(x, self, True)  # type: ignore[no-untyped-call]

    def largest(self, x: Tensor) -> Tensor:
        """Return the largest over the ranks of each number of x, without a gradient."""
        return self.reduced(x.detach(), dist.ReduceOp.MAX)

    def reduced(self, x: Tensor, how: Any = dist.ReduceOp.SUM) -> Tensor:
        """Return the sum or another reduction over the ranks of x, without a gradient."""
        if self.size == 1:
            return x
        self.sent["reduced"] += x.nbytes
        total = self._there(x).clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, how, group=self._group)
        return total.to(x.device)

    def gathered(self, x: Tensor) -> Tensor:
        """Return the x of all ranks, which have one shape, under each other: [n, ..] -> [W n, ..]."""
        if self.size == 1:
            return x
        self.sent["gathered"] += x.nbytes
        here = self._there(x).contiguous()
        out = here.new_empty(self.size * len(x), *x.shape[1:])
        dist.all_gather(list(out.chunk(self.size)), here, group=self._group)
        return out.to(x.device)

    def joined(self, x: Tensor) -> Tensor:
        """Return the x of all ranks under each other, however many rows each has: [n, ..] -> [N, ..]."""
        if self.size == 1:
            return x
        sizes = self.gathered(torch.tensor([len(x)], device=x.device)).tolist()
        padded = x.new_zeros(max(sizes), *x.shape[1:])
        padded[: len(x)] = x
        parts = torch.split(self.gathered(padded), max(sizes)) if max(sizes) else [padded]
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=False)])

    def swapped(self, x: Tensor, give: list[int], take: list[int], kind: str) -> Tensor:
        """Give each rank `give` rows of x, in order, and return the `take` rows that each gives, without a gradient."""
        if self.size == 1:
            return x
        self.sent[kind] += (sum(give) - give[self.rank]) * math.prod(x.shape[1:]) * x.element_size()
        here = self._there(x).contiguous()
        out = here.new_empty(sum(take), *x.shape[1:])
        dist.all_to_all_single(out, here, take, give, group=self._group)
        return out.to(x.device)

    def _there(self, x: Tensor) -> Tensor:
        return x.cpu() if self._on_cpu else x  # gloo has not every collective for a GPU


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, world: World, pooled: bool) -> Tensor:
        ctx.world, ctx.pooled = world, pooled
        return world.reduced(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        return ctx.world.reduced(g) if ctx.pooled else g, None, None


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
