"""The order in which kernels sum messages: grouped by row, by sender and by relation, and cut into chunks for a GPU."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from compgcn.errors import InputError
from compgcn.kernels.backend import kernels, runs

CHUNK = 128  # messages that one GPU program sums; several programs share a longer row


class Segments(NamedTuple):
    """Messages sorted by one key: those of row v are `[offsets[v], offsets[v + 1])`."""

    order: Tensor  # [M] message ids
    offsets: Tensor  # [rows + 1]
    left: Tensor  # [M] rows of the first operand, in this order; int32
    right: Tensor  # [M] rows of the second operand, in this order; int32
    chunks: Tensor  # [P, 4] (row, start, end, slot), longest first, see `cut`; empty without a GPU
    merges: Tensor  # [Q, 3] (row, first slot, last slot) of the rows of several chunks
    runs: Tensor  # [M] where the run of one `right` around a message ends; int32; empty unless sorted for a GPU
    weight: Tensor  # [M] in this order; empty where every call brings its own

    @property
    def slots(self) -> int:
        """A bound of the slots: a row of several chunks has fewer than twice its messages / CHUNK."""
        return 2 * (self.left.numel() // CHUNK) + 1

    def swapped(self) -> Segments:
        """Return the same messages with the operands exchanged, which ends the runs."""
        return self._replace(left=self.right, right=self.left, runs=self.runs[:0])


class Plan(NamedTuple):
    """The three groupings of the same M messages: for the sum, for the gradient of x and for that of z."""

    by_row: Segments  # left sender, right relation
    by_sender: Segments  # left row, right relation
    by_relation: Segments  # left row, right sender

    def weighted(self, weight: Tensor) -> Plan:
        """Return the plan with constant weights [M], put in order once."""
        return Plan(*(s._replace(weight=weight[s.order]) for s in self))


class PairPlan(NamedTuple):
    """Messages, and the P distinct pairs (sender, relation) among them: all messages of a pair carry one value."""

    messages: Plan  # in runs
    by_pair: Segments  # the messages grouped by pair, left row, right relation
    pairs: Plan  # one message of weight 1 per pair, to the row of its number


class Groups(NamedTuple):
    """Rows sorted by group: those of group r are `[offsets[r], offsets[r + 1])`."""

    offsets: Tensor  # [Z + 1]
    chunks: Tensor  # [P, 4] (group, start, end, slot), as in `Segments`


def make_plan(
    row: Tensor, sender: Tensor, relation: Tensor, *, rows: int, senders: int, relations: int, in_runs: bool = False
) -> Plan:
    """Sort messages three times: `sender` is a row of x, `relation` one of z, and `row` gets the message, [M] each.

    With `in_runs`, sort the messages of a row, sender or relation too, so that a GPU loads their second operand once
    for a run of equal ones. It pays where a sum is wide and runs are long; sums add in another order.
    """
    if max(rows, senders, relations) >= 2**31:
        raise InputError(f"a table of {max(rows, senders, relations):,} rows is too long: expected fewer than 2^31")
    if in_runs:
        order = torch.argsort(relation * senders + sender, stable=True)
        row, sender, relation = row[order], sender[order], relation[order]
    plan = Plan(
        _segments(row, rows, sender, relation),
        _segments(sender, senders, row, relation),
        _segments(relation, relations, row, sender),
    )
    return Plan(*(s._replace(order=order[s.order], runs=_run_ends(s.right)) for s in plan)) if in_runs else plan


def make_pair_plan(
    row: Tensor, sender: Tensor, relation: Tensor, *, rows: int, senders: int, relations: int
) -> PairPlan:
    """Group the messages for `aggregate` and for `statistics`; waits for the device, so make it once per graph."""
    messages = make_plan(row, sender, relation, rows=rows, senders=senders, relations=relations, in_runs=True)
    by_sender = messages.by_sender  # stands in the order of the pairs too
    key = sender[by_sender.order] * relations + by_sender.right
    pair, counts = torch.unique_consecutive(key, return_counts=True)  # [P] each
    offsets = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    chunks, merges = cut(offsets, row.numel())
    by_pair = by_sender._replace(offsets=offsets, chunks=chunks, merges=merges, runs=by_sender.runs[:0])
    number, ends = torch.arange(pair.numel(), device=pair.device), (pair // relations, pair % relations)
    pairs = make_plan(number, *ends, rows=pair.numel(), senders=senders, relations=relations)
    return PairPlan(messages, by_pair, pairs.weighted(torch.ones_like(pair, dtype=torch.float32)))


def make_groups(group: Tensor, size: int) -> Groups:
    """Return the groups of rows whose group numbers [P] ascend, out of `size`."""
    offsets = torch.searchsorted(group, torch.arange(size + 1, device=group.device))
    return Groups(offsets, cut(offsets, group.numel())[0])


def _segments(key: Tensor, rows: int, left: Tensor, right: Tensor) -> Segments:
    counts = torch.zeros(rows + 1, dtype=torch.long, device=key.device)
    counts.scatter_add_(0, key + 1, torch.ones_like(key))
    offsets = counts.cumsum(0)
    if torch.compiler.is_compiling():
        order = torch.argsort(key, stable=True)
    else:
        order = kernels(key.device.type).stable_order(key, offsets)
    left, right = left[order].int(), right[order].int()
    cuts, weight = cut(offsets, key.numel()), torch.empty(0, device=key.device)
    return Segments(order, offsets, left, right, *cuts, right[:0], weight)


def _run_ends(values: Tensor) -> Tensor:
    """Return where the run of equal values around each one ends, [M]; empty without a GPU."""
    if not runs("triton", values.device.type):
        return values[:0]
    after = torch.arange(1, values.numel() + 1, dtype=torch.int32, device=values.device)
    last = torch.ones_like(values, dtype=torch.bool)
    last[:-1] = values[1:] != values[:-1]
    ends = torch.where(last, after, values.numel())
    return ends.flip(0).cummin(0).values.flip(0) if ends.numel() else ends


def cut(offsets: Tensor, messages: int) -> tuple[Tensor, Tensor]:
    """Cut the rows into chunks of at most `CHUNK` messages.

    The numbers of rows and messages alone bound the sizes, and row -1 pads them: nothing waits for the device, and
    plans of the same sizes have the same shapes. A row of one chunk has slot -1: its sum is final.
    """
    rows, bound = offsets.numel() - 1, messages // CHUNK
    if not runs("triton", offsets.device.type):
        return offsets.new_empty(0, 4), offsets.new_empty(0, 3)
    lengths = offsets.diff()
    pieces = ((lengths + CHUNK - 1) // CHUNK).clamp_min(1)  # an empty row has one, which stores zeros
    after = pieces.cumsum(0)
    index = torch.arange(rows + bound, device=offsets.device)
    row = torch.searchsorted(after, index, right=True).clamp_max(rows - 1)
    nth = index - (after - pieces)[row]
    several = pieces > 1
    slots = torch.where(several, pieces, 0)
    first_slot = slots.cumsum(0) - slots
    start = offsets[row] + nth * CHUNK
    end = torch.minimum(start + CHUNK, offsets[row + 1])
    slot = torch.where(several[row], first_slot[row] + nth, -1)
    chunks = torch.stack((torch.where(index < after[-1:], row, -1), start, end, slot), 1)  # [P, 4]
    chunks = chunks[torch.argsort(torch.where(index < after[-1:], end - start, -1), descending=True, stable=True)]
    long = torch.argsort(several, descending=True, stable=True)[:bound]  # rows of several chunks come first
    merges = torch.stack(
        (torch.where(several, torch.arange(rows, device=row.device), -1), first_slot, first_slot + slots), 1
    )
    return chunks, merges[long]
