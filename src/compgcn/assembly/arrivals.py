"""What is to be said of facts that are added to a graph: who is taken for new, and what was there already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.data.arrays import Numbers, counted, keys
from compgcn.errors import InputError

_LISTED = 5  # new entities that are named


def arrival_notes(data: KnowledgeGraph, added: Numbers, new: Sequence[str]) -> tuple[str, ...]:
    """A sentence each.

    Args:
        data: the graph before.
        added: the facts [n, 3] as they were given, with rows from N on for the new entities.
        new: the ids of those.
    """
    N, R = data.num_entities + len(new), data.num_relations
    distinct = np.unique(keys(added, N, R))
    known = int(np.isin(distinct, keys(data.train, N, R)).sum())
    notes = [f"{counted(len(distinct) - known, 'fact')} added, {counted(len(new), 'new entity')}{_listed(data, new)}"]
    if repeated := len(added) - len(distinct):
        notes.append(f"{counted(repeated, 'repeated fact')} dropped")
    if known:
        notes.append(f"{counted(known, 'fact')} dropped that train has already")
    return tuple(notes)


def _listed(data: KnowledgeGraph, new: Sequence[str]) -> str:
    """The first of them by name, those before all that look like an entity there is."""
    alike = {text: _lookalike(text, data.entities) for text in new}
    order = sorted(new, key=lambda text: alike[text] is None)[:_LISTED]
    named = [f"'{text}'" + (f" (did you mean '{alike[text]}'?)" if alike[text] else "") for text in order]
    more = f" and {len(new) - _LISTED:,} more" if len(new) > _LISTED else ""
    return f": {', '.join(named)}{more}" if new else ""


def _lookalike(text: str, entities: Vocabulary) -> str | None:
    """What a question would take for this entity: one that differs in the case of letters, or in blanks around it."""
    try:
        row = entities.find(text.strip())
    except InputError:  # it would be one of several
        return None
    if row is None:
        return None
    name = entities.names[row]
    return name if name.casefold() == text.strip().casefold() else entities.ids[row]
