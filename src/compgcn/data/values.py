"""Objects that are values rather than things: numbers and dates that a table gives as if they were entities."""

from __future__ import annotations

import json
import re

import numpy as np

from compgcn.data.arrays import counted
from compgcn.data.triples import KnowledgeGraph

_LEAST = 10  # facts of a relation below which nothing is said of it
_SHARE = 0.9  # of its objects that are values; a few may be "unknown"
_STARTS = frozenset("+-.0123456789")
_VALUE = re.compile(
    r"[+-]?(\d+|\d{1,3}(,\d{3})+)?([.,]\d+)?(?<=\d)([eE][+-]?\d+)?"  # a number
    r"|-?\d{4}-\d{1,2}(-\d{1,2})?([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"  # a date, and perhaps time
    r"|\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{4}[./]\d{1,2}[./]\d{1,2}",
    re.ASCII,
)


def is_value(text: str) -> bool:
    """Whether a text is a number or a date."""
    text = text.strip()
    return text[:1] in _STARTS and _VALUE.fullmatch(text) is not None


def value_notes(graph: KnowledgeGraph) -> list[str]:
    """What to say of relations whose objects are mostly numbers or dates, and how to leave them out.

    Where subjects are numbers too, these are most likely the ids of things, and nothing is said.
    """
    triples = np.concatenate(list(graph.splits.values()))
    values = np.array([is_value(text) for text in graph.entities.ids], dtype=bool)  # [N]
    if not values.any():
        return []
    s, r, o = triples.T
    facts, of_things, to_values = (
        np.bincount(r[rows], minlength=graph.num_relations) for rows in (slice(None), ~values[s], values[o])
    )
    chosen = (facts >= _LEAST) & (of_things == facts) & (to_values >= _SHARE * facts)
    if not chosen.any():
        return []
    size = len(np.unique(o[chosen[r] & values[o]]))
    relations = [graph.relations.ids[row] for row in np.flatnonzero(chosen)]
    which = " and ".join(f"'{relation}'" for relation in relations)
    setting = json.dumps(relations, ensure_ascii=False, separators=(",", ":"))
    what = f"the objects of {which} are numbers or dates, and {counted(size, 'entity')} came of them"
    return [f"{what}; to leave the facts out: --set 'exclude={setting}'"]
