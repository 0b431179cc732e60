"""Compositions with parameters, those of `compgcn.compose` and the query of a decoder, and all of them by name."""

from __future__ import annotations

from torch import Tensor, nn

from compgcn.compose import COMPOSITIONS, Composition, Learned
from compgcn.compose import LEARNED as FACTORED
from compgcn.decoders import ConvolutionSettings
from compgcn.decoders.convolution import ConvEQuery, image_shape
from compgcn.errors import unknown

_FILTERS, _KERNEL = 16, 3  # of ConvE as a composition, where every message makes its image


class _Same(nn.Module):
    """The numbers as they are, laid out in order, as a norm would leave them."""

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous()


def _conve(dim: int) -> nn.Module:
    """The query of ConvE without dropout and batch norms: a message depends on its entity and relation alone."""
    height, width = image_shape(dim)
    sizes = ConvolutionSettings(_FILTERS, min(_KERNEL, 2 * height, width), feature_dropout=0.0, hidden_dropout=0.0)
    query = ConvEQuery(dim, sizes)
    for name, part in list(query.named_children()):
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            setattr(query, name, _Same())
    return query


LEARNED: dict[str, Learned] = {
    **FACTORED,
    "conve": Learned(
        "conve",
        _conve,
        origin="a convolution over the entity and the relation as an image",
        reference="Dettmers et al., AAAI 2018",
    ),
}


def find_composition(name: str | None) -> Composition | Learned:
    """The composition of that name, with or without parameters."""
    table: dict[str, Composition | Learned] = {**COMPOSITIONS, **FACTORED, **LEARNED}  # a row may be added to each
    if name not in table:
        raise unknown("composition", str(name), table)
    return table[name]
