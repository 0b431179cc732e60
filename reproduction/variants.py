"""Variants of the conditional model for ablations: they are worse, so no setting offers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from compgcn.nn.conditional import ConditionalCompGCN, ConditionalLayer, View
from compgcn.nn.graph import RelationalGraph

_view = ConditionalCompGCN.view
_relations = ConditionalLayer.relation_vectors
_reset = ConditionalLayer.reset_parameters


def _degrees_kept(self: ConditionalCompGCN, graph: RelationalGraph, keep: Tensor | None = None) -> View:
    """Return a view whose degrees count hidden edges too."""
    whole = _view(self, graph)
    return _view(self, graph, keep)._replace(degree=whole.degree, scale=whole.scale)


def _free_relations(self: ConditionalLayer, q: Tensor) -> Tensor:
    """Return the same vectors for every query."""
    return _relations(self, torch.zeros_like(q))


def _free_reset(self: ConditionalLayer) -> None:
    """Start them as torch starts the vectors of an embedding."""
    _reset(self)
    nn.init.normal_(self.relation_bias)


VARIANTS: dict[str, dict[tuple[type, str], Callable[..., Any]]] = {
    "": {},
    "degrees kept": {(ConditionalCompGCN, "view"): _degrees_kept},
    "free relations": {
        (ConditionalLayer, "relation_vectors"): _free_relations,
        (ConditionalLayer, "reset_parameters"): _free_reset,
    },
}


@contextmanager
def variant(name: str) -> Iterator[None]:
    """Make the conditional model the variant of that name."""
    with ExitStack() as stack:
        for (owner, method), other in VARIANTS[name].items():
            stack.enter_context(patch.object(owner, method, other))
        yield
