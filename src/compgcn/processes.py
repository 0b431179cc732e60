"""The processes that torchrun starts: which one this is, and how they agree. Without torchrun there is one.

All of them run the same command on the same data with the same seed, in the same order; the first one prints and
writes. Numbers travel between CPUs by gloo and between GPUs by NCCL, or by gloo where processes share a GPU.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from typing import TypeVar

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


def wait() -> None:
    """Wait for all processes to come here."""
    agreed(0.0)


def agreed(number: float) -> float:
    """Return the number that the first process has."""
    if size() == 1:
        return number
    told = torch.tensor(number, dtype=torch.float64)
    dist.all_reduce(told if rank() == 0 else told.zero_())  # unlike a broadcast, it waits for everyone
    return told.item()


def clock() -> float:
    """Return the time of the first process in seconds, so that all take the same decisions by it."""
    return agreed(time.monotonic())


def anyone(wish: bool) -> bool:
    """Return whether any process has a wish."""
    if size() == 1:
        return wish
    asked = torch.tensor(float(wish))
    dist.all_reduce(asked)
    return asked.item() > 0


def told(content: _T, by: int) -> _T:
    """Return what one of the processes has."""
    held = [content]
    if size() > 1:
        dist.broadcast_object_list(held, by)
    return held[0]


# Queries shared out


def shared_out(score: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a scorer of queries [B] in which every process scores some and has the rows of all, [B, N]."""
    if size() == 1:
        return score

    def together(s: Tensor, r: Tensor) -> Tensor:
        each = -(-len(s) // size())
        own = torch.arange(rank() * each, (rank() + 1) * each, device=s.device).clamp_max(len(s) - 1)
        rows = score(s[own], r[own]).contiguous()
        here = rows.cpu() if dist.get_backend() == "gloo" else rows
        found = here.new_empty(size() * each, *rows.shape[1:])
        dist.all_gather(list(found.chunk(size())), here)
        return found[: len(s)].to(rows.device)

    return together
