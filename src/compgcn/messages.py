"""The messages that flow over a graph, and the plans by which they are summed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from compgcn.kernels import Groups, Plan, make_groups, make_plan
from compgcn.norms import NORMS, Norm, Weights

_T = TypeVar("_T")


def lasting(make: Callable[[], _T]) -> _T:
    """What is kept must outlive an evaluation: tensors made in inference mode could not be trained with later."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return make()
    with torch.inference_mode(False), torch.no_grad():
        return make()


@dataclass(eq=False)
class Messages:
    """The directed messages of a graph: originals (direction 0), then inverses (direction 1), each counted apart.

    Their plans and weights are made when first asked for and kept, so sorting happens once per graph. Those of a part
    of a graph count for what they do in the whole: `part_of` is the messages of that, which of them these are [M],
    and which of its nodes receive here [num_receivers]. A plan asked for without a norm has no weights: calls bring
    their own.
    """

    sender: Tensor  # [M]
    receiver: Tensor  # [M]
    relation: Tensor  # [M], inverses offset by the number of relations
    direction: Tensor  # [M]
    num_nodes: int
    num_receivers: int  # only nodes 0 to here receive: all, but in a part of a graph
    num_relations: int  # rows of the relation table: 2R with inverses, R without
    num_directions: int
    part_of: tuple[Messages, Tensor | slice, Tensor | slice] | None = field(default=None, repr=False)
    num_senders: int | None = None  # rows of the table that senders are rows of; None: one for every node
    edge: Tensor | None = field(default=None, repr=False)  # [M], over both directions; None: each one in its place
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def senders(self) -> int:
        return self.num_nodes if self.num_senders is None else self.num_senders

    def plan(self, norm: Norm | None) -> Plan:
        """Rows are (receiver, direction), so that one pass gives both halves of the paper's sum."""
        plan = self._keep("plan", lambda: self._plan(self.sender, self.senders, self.relation, self.num_relations))
        return self._weighted("plan", plan, norm)

    def relation_plan(self, norm: Norm | None) -> Plan:
        """The same rows with a row of a relation table from every message: what D-GCN's biases are summed by."""

        def make() -> Plan:
            return self._plan(self.relation, self.num_relations, torch.zeros_like(self.relation), 1)

        return self._weighted("relation plan", self._keep("relation plan", make), norm)

    def _weighted(self, name: str, plan: Plan, norm: Norm | None) -> Plan:
        if norm is None:
            return plan
        return self._keep(f"{name} {norm}", lambda: plan.weighted(self.weights(*norm).message))

    def _plan(self, sender: Tensor, senders: int, relation: Tensor, relations: int) -> Plan:
        row = self.receiver * self.num_directions + self.direction
        rows = self.num_receivers * self.num_directions
        return make_plan(row, sender, relation, rows=rows, senders=senders, relations=relations)

    def pairs(self, norm: Norm | None) -> Pairs:
        """The distinct (relation, receiver) pairs, in order of relation."""
        pairs = self._keep("pairs", lambda: _pairs(self))
        return pairs._replace(gather=self._weighted("pairs", pairs.gather, norm))

    def of_edges(self, values: Tensor) -> Tensor:
        """What is said of every edge of the graph [E], said of every message [M]."""
        both = values.repeat(self.num_directions)
        return both if self.edge is None else both[self.edge]

    def contents(self) -> Contents:
        """The distinct (sender, relation) pairs, in order of sender: all that messages can say."""
        return self._keep("contents", lambda: _contents(self))

    def weights(self, norm: str, self_loop: bool = True, dtype: torch.dtype = torch.float32) -> Weights:
        """The weights of `NORMS[norm]`, computed in `dtype`."""
        return self._keep(f"{norm} {self_loop} {dtype}", lambda: self._weights(norm, self_loop, dtype))

    def _weights(self, norm: str, self_loop: bool, dtype: torch.dtype) -> Weights:
        if self.part_of is None:
            return NORMS[norm](self, self_loop, dtype)
        whole, messages, nodes = self.part_of
        weights = whole.weights(norm, self_loop, dtype)
        return Weights(weights.message[messages], None if weights.loop is None else weights.loop[nodes])

    def _keep(self, key: str, make: Callable[[], _T]) -> _T:
        if key not in self._kept:
            self._kept[key] = lasting(make)
        return cast(_T, self._kept[key])


class Contents(NamedTuple):
    """What messages say, each thing once: for a composition that is computed as it stands, and not on every edge."""

    sender: Tensor  # [P]
    relation: Tensor  # [P]
    messages: Messages  # the same ones, weighted alike, each sent by the pair it says


def _contents(m: Messages) -> Contents:
    key, pair = torch.unique(m.sender * m.num_relations + m.relation, return_inverse=True)
    everything = (m, slice(None), slice(None))
    messages = replace(m, sender=pair, num_senders=key.numel(), part_of=everything, _kept={})
    return Contents(key // m.num_relations, key % m.num_relations, messages)


class Pairs(NamedTuple):
    """Sums per (relation, receiver), for filters that differ by relation: sum first, multiply by W_r, sum again."""

    gather: Plan  # messages -> pairs
    groups: Groups  # which pairs belong to which relation
    scatter: Plan  # pairs -> receivers


def _pairs(m: Messages) -> Pairs:
    key, pair = torch.unique(m.relation * m.num_nodes + m.receiver, return_inverse=True)  # sorted: by relation first
    relation, receiver = key // m.num_nodes, key % m.num_nodes
    gather = make_plan(pair, m.sender, m.relation, rows=key.numel(), senders=m.senders, relations=m.num_relations)
    index, zero = torch.arange(key.numel(), device=key.device), torch.zeros_like(key)
    scatter = make_plan(receiver, index, zero, rows=m.num_receivers, senders=key.numel(), relations=1)
    ones = torch.ones(key.shape, device=key.device)
    return Pairs(gather, make_groups(relation, m.num_relations), scatter.weighted(ones))
