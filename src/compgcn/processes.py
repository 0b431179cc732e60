"""The processes that torchrun starts: which one this is, and how they agree. Without torchrun there is one.

All of them run the same command on the same data with the same seed, in the same order; the first one prints and
writes. Numbers travel between CPUs by gloo and between GPUs by NCCL, or by gloo where processes share a GPU.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

_T = TypeVar("_T")

_store: Store | None = None


def join() -> None:
    """Meet the other processes of torchrun, each on its own GPU as far as there are enough."""
    global _store
    gpus, here = torch.cuda.device_count(), int(os.environ["LOCAL_WORLD_SIZE"])
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % gpus)
    store, rank, size = next(rendezvous("env://"))
    _store = PrefixStore(_meet(store, rank, size), store)
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpus >= here else "gloo", store=_store, rank=rank, world_size=size)


def _meet(store: Store, rank: int, size: int) -> str:
    """Return a word that the processes of this start agree on.

    After a restart the store still has the keys of those that are gone, and gloo would wait for their addresses.
    """
    own = secrets.token_hex(8)
    if rank:
        store.set(f"hello {rank}", own)
        word: str = store.get(f"reply {own}").decode()
        store.set(f"{word} {rank}", "")
        return word
    for other in range(1, size):
        while not store.check([f"{own} {other}"]):
            store.set(f"reply {store.get(f'hello {other}').decode()}", own)
            time.sleep(0.02)
    return own


def leave() -> None:
    """End the connections to the others, after the last word to them."""
    wait()
    dist.destroy_process_group()


def size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0 on."""
    return dist.get_rank() if dist.is_initialized() else 0


def fails_first() -> bool:
    """Return whether no other process has failed before: this one then says why."""
    try:
        return _store is None or _store.add("failures", 1) == 1
    except RuntimeError:  # nobody is left to ask
        return True


def lost(error: RuntimeError) -> bool:
    """Return whether an error says that another process is gone."""
    known = isinstance(error, (dist.DistBackendError, dist.DistNetworkError))
    return size() > 1 and (known or any(words in str(error) for words in ("gloo", "by peer")))


# Agreement


class World:
    """The processes, each with its rank, and what they tell each other; one alone needs no process group.

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


def wait() -> None:
    """Wait for all processes to come here."""
    agreed(0.0)


def agreed(number: float) -> float:
    """Return the number that the first process has."""
    if size() == 1:  # asked once a step
        return number
    own = torch.tensor(0.0 if rank() else number, dtype=torch.float64)
    return World().reduced(own).item()  # unlike a broadcast, it waits for everyone


def clock() -> float:
    """Return the time of the first process in seconds, so that all take the same decisions by it."""
    return agreed(time.monotonic())


def anyone(wish: bool) -> bool:
    """Return whether any process has a wish."""
    return wish if size() == 1 else World().reduced(torch.tensor(float(wish))).item() > 0


def told(content: _T, by: int) -> _T:
    """Return what one of the processes has."""
    held = [content]
    if size() > 1:
        dist.broadcast_object_list(held, by)
    return held[0]


def shared_out(score: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a scorer of queries [B] in which every process scores some and has the rows of all, [B, N]."""
    world = World()
    if world.size == 1:
        return score

    def together(s: Tensor, r: Tensor) -> Tensor:
        each = -(-len(s) // world.size)
        own = torch.arange(world.rank * each, (world.rank + 1) * each, device=s.device).clamp_max(len(s) - 1)
        return world.gathered(score(s[own], r[own]))[: len(s)]

    return together
