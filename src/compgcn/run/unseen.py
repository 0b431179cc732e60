"""A trained model on an enlarged graph: new facts, and new entities that are known by their facts alone.

A new entity has no row in the learned tables. It gets the one that trained entities with such neighbours have, see
`compgcn.run.unseen`; all else is as for every entity: messages from its neighbours, degrees of the enlarged graph.
Nothing is trained, and batch norms stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from compgcn.config import Config, Data
from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.data.columns import Numbers, counted, keys
from compgcn.data.files import like
from compgcn.errors import InputError
from compgcn.nn.conv import CompGCNConv
from compgcn.nn.encoder import Encoder
from compgcn.nn.graph import RelationalGraph
from compgcn.run.build import build_task
from compgcn.tasks.link_prediction import LinkPrediction, LinkPredictor
from compgcn.tasks.sampling import randomness

_RIDGE = 1e-3  # of the size of each column: enough where there are fewer entities than columns
_LEAST = 1e-9  # of the largest: what keeps the system regular where a column is all zero
_BLOCK = 2**14  # rows that are looked at in float64 at a time


class Surroundings:
    """What is known of every node but for its own row; `self[i:j]` is [j - i, 2(d + 1)] in float64.

    That is (1, h) and log(1 + facts) (1, h), where h is what its neighbours send a node in the first layer.

    Args:
        received: h, [N, d].
        facts: how many facts each node has, [N].
    """

    def __init__(self, received: Tensor, facts: Tensor) -> None:
        self.received, self.facts = received, facts

    def __len__(self) -> int:
        return len(self.facts)

    def __getitem__(self, part: slice) -> Tensor:
        h = self.received[part].double()
        h = torch.cat((torch.ones_like(h[:, :1]), h), 1)
        return torch.cat((h, h * self.facts[part].double().log1p().unsqueeze(1)), 1)


@torch.no_grad()
def surroundings(encoder: Encoder, graph: RelationalGraph) -> Surroundings:
    """Of all nodes of a graph."""
    x, layer = encoder.nodes, encoder.layers[0]
    assert x is not None
    assert isinstance(layer, CompGCNConv)
    h = layer.received(x, None if encoder.relations is None else encoder.relations(), graph)
    return Surroundings(h, torch.bincount(torch.cat((graph.src, graph.dst)), minlength=graph.num_nodes))


def fitted_rows(known: Surroundings | Tensor, table: Tensor, wanted: Tensor) -> Tensor:
    """Rows [n, ..] for surroundings `wanted` [n, f], from a table [N, ..] and its own surroundings [N, f].

    Least squares with a ridge on every column but the first: a table whose rows are all alike gives that row. The sums
    over the N rows are made block by block.
    """
    flat = table.detach().reshape(len(table), -1)
    gram, right = wanted.new_zeros(wanted.shape[1], wanted.shape[1]), wanted.new_zeros(wanted.shape[1], flat.shape[1])
    for first in range(0, len(known), _BLOCK):
        block = known[first : first + _BLOCK]  # [b, f]
        gram += block.T @ block  # [f, f]
        right += block.T @ flat[first : first + _BLOCK].double()
    ridge = _RIDGE * gram.diagonal()
    ridge[0] = 0.0
    gram = gram + torch.diag(ridge.clamp_min(_LEAST * gram.diagonal().max()))
    rows: Tensor = wanted @ torch.linalg.solve(gram, right)
    return rows.to(table.dtype).view(-1, *table.shape[1:])


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


Given = str | Path | Iterable[Sequence[str]]

_NAMED = 5  # relations named in an error


def add_facts(
    config: Config, data: KnowledgeGraph, task: LinkPrediction, given: Given
) -> tuple[KnowledgeGraph, LinkPrediction]:
    """The data with more facts in train, and the same model on the graph of them.

    Args:
        config: of a run.
        data: its graph.
        task: with the weights of the run.
        given: a file of triples in any format that is read, its columns those of the run's own file where it has
            them, or triples (head, relation, tail) by id or name.
    """
    _must_send(config, task)
    triples = _triples(given, config.data)
    try:
        larger = _enlarged(data, triples)
    except InputError as error:
        if isinstance(given, (str, Path)):
            raise InputError(f"{given}: {error}") from None
        raise
    if config.encoder.input != "learned" and larger.num_entities > data.num_entities:
        new = larger.entities.ids[data.num_entities]
        raise InputError(
            f"this run starts its entities from {config.encoder.input}, which the new entity '{new}' has none of; "
            "give facts about known entities only"
        )
    device = task.graph.src.device
    with randomness(config.training.seed, device):  # of weights that are replaced: the caller's stays as it was
        built: LinkPrediction = build_task(config, larger, device, whole=True)
    fresh = built.model.state_dict()
    built.model.load_state_dict({name: _padded(old, fresh[name]) for name, old in task.model.state_dict().items()})
    built.model.eval()
    if larger.num_entities > data.num_entities:
        _fit(built, task)
    return larger, built


@torch.no_grad()
def _fit(built: LinkPrediction, task: LinkPrediction) -> None:
    """Give the newcomers rows: of the input, of raw vectors, and of biases, where there are any."""
    before = surroundings(task.model.encoder, task.graph)
    after = surroundings(built.model.encoder, built.graph)[len(before) :]  # the newcomers' rows are zero so far
    for old, new in zip(_tables(task.model), _tables(built.model), strict=True):
        new[len(before) :] = fitted_rows(before, old, after)


def _tables(model: LinkPredictor) -> list[Tensor]:
    """The tables that have a row for every entity and take part in scores."""
    residual = model.encoder.residual
    tables = (model.encoder.nodes, None if residual is None else residual.nodes, model.decoder.entity_bias)
    return [table for table in tables if table is not None]


def _must_send(config: Config, task: LinkPrediction) -> None:
    """Refuse a model in which facts say nothing about an entity."""
    if not len(task.model.encoder.layers):
        raise InputError(
            f"the encoder '{config.encoder.name}' sends no messages, so it cannot place entities by their facts; "
            "take a run with a graph encoder, such as --encoder compgcn, or train again with the new facts"
        )
    if config.encoder.graph != "given":
        raise InputError(f"this run was trained with encoder.graph '{config.encoder.graph}', so it takes no facts")


def _padded(old: Tensor, fresh: Tensor) -> Tensor:
    """A table with rows of zeros for new entities; what has no such rows as it is."""
    return old if old.shape == fresh.shape else torch.cat((old, old.new_zeros(len(fresh) - len(old), *old.shape[1:])))


def _triples(given: Given, trained: Data) -> list[tuple[str, str, str]]:
    """Triples of text out of a list, or a file, read as the one that was trained on."""
    if isinstance(given, (str, Path)):
        facts = like(given, trained.columns, trained.comment, trained.literals).facts()
        columns = [column.cast("string").to_pylist() for column in facts.columns]
        return list(zip(*columns, strict=True))
    rows = [tuple(row) if not isinstance(row, str) else (row,) for row in given]
    for row in rows:
        if len(row) != 3 or not all(isinstance(text, str) and text for text in row):
            raise InputError(f"a fact is head, relation and tail, each an id or a name, not {row!r}")
    return [(s, r, o) for s, r, o in rows]


def _enlarged(data: KnowledgeGraph, triples: Sequence[tuple[str, str, str]]) -> KnowledgeGraph:
    """The graph with more facts in train; entities it does not have come after those it has, as they appear."""
    relations = _known_relations({r: None for _, r, _ in triples}, data.relations)
    ids, names = data.entities.ids, set(data.entities.names)
    row = {text: i for i, text in enumerate(ids)}
    new: list[str] = []
    for text in (end for s, _, o in triples for end in (s, o)):
        if text not in row and text in names:
            row[text] = data.entities.index(text)  # or an error that lists those who share the name
        elif text not in row:
            row[text] = len(ids) + len(new)
            new.append(text)
    added = np.array([(row[s], relations[r], row[o]) for s, r, o in triples], dtype=np.int64).reshape(-1, 3)
    return replace(
        data,
        entities=Vocabulary("entity", (*ids, *new), (*data.entities.names, *new)),
        train=_joined(data.train, added, len(ids) + len(new), data.num_relations),
        notes=arrival_notes(data, added, new),
    )


def _known_relations(texts: Iterable[str], relations: Vocabulary) -> dict[str, int]:
    """The rows of relations; those that training never saw have no vectors, and are named."""
    found: dict[str, int] = {}
    errors: dict[str, InputError] = {}
    for text in texts:
        try:
            found[text] = relations.index(text)
        except InputError as error:
            errors[text] = error
    if len(errors) == 1:
        raise next(iter(errors.values()))
    if errors:
        listed = ", ".join(f"'{text}'" for text in list(errors)[:_NAMED])
        more = f" and {len(errors) - _NAMED} more" if len(errors) > _NAMED else ""
        raise InputError(f"unknown relations {listed}{more}; facts can be added of the relations trained on alone")
    return found


def _joined(train: Numbers, added: Numbers, num_entities: int, num_relations: int) -> Numbers:
    """The facts of train as they are, then those that are new, each once."""
    every = np.concatenate((train, added))
    _, first = np.unique(keys(every, num_entities, num_relations), return_index=True)
    return every[np.union1d(np.arange(len(train)), first)]
