"""Unseen entities: a trained model on a graph with more facts or on another graph.

An unseen entity has no row in the learned tables. Its row is trained on its facts while all else stays; messages from
its neighbours and degrees are those of the larger graph. A model conditioned on the query has no such tables: its
weights hold for any graph with the same relations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from compgcn.config import Config, Data
from compgcn.data import DATASETS, KnowledgeGraph, Vocabulary, find
from compgcn.data.columns import Numbers, Options, counted, keys
from compgcn.data.files import Given, columns_like, source, treatment
from compgcn.data.vocabulary import ending
from compgcn.errors import InputError, nearest
from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.run.build import build_ranker
from compgcn.tasks.link_prediction import LinkPrediction, LinkPredictor, Ranker
from compgcn.tasks.sampling import randomness

# For the rows of unseen entities, by the validation facts of entities hidden in world, and by those of all others
_STEPS, _EPOCHS, _RATE = 60, 2, 0.01
_OTHERS = 4  # how often a fact without unseen entities counts
_CLOSE = 0.9  # how alike two texts are at least if one is taken for a misspelling of the other, see `difflib`
_LISTED = 5  # unseen entities, or unknown relations, that a message names


def add_facts(config: Config, data: KnowledgeGraph, ranker: Ranker, given: Given) -> tuple[KnowledgeGraph, Ranker]:
    """Return the data with more facts in train, by id or name, and the same model on the larger graph.

    A file of them may have the columns of the run's own file.
    """
    _must_send(config, ranker)
    triples = _triples(given, config.data)
    try:
        larger = _enlarged(data, triples)
    except InputError as error:
        if isinstance(given, (str, Path)):
            raise InputError(f"{given}: {error}") from None
        raise
    conditional = isinstance(ranker.model, ConditionalCompGCN)
    if not conditional and config.encoder.input != "learned" and larger.num_entities > data.num_entities:
        new = larger.entities.ids[data.num_entities]
        raise InputError(
            f"this run starts its entities from {config.encoder.input}, and the unseen entity '{new}' has none; "
            "give facts about known entities only"
        )
    built = _rebuilt(config, larger, ranker)
    if not conditional and larger.num_entities > data.num_entities:
        with randomness(config.training.seed, built.graph.src.device):  # of sampled negatives
            _fold_in(config, built, data.num_entities)
    return larger, built


def ask_about(
    config: Config, data: KnowledgeGraph, ranker: Ranker, relations: Vocabulary
) -> tuple[KnowledgeGraph, Ranker]:
    """Return another graph over the relations of a run, each found by id or name, and the run's model on it."""
    if not isinstance(ranker.model, ConditionalCompGCN):
        raise InputError(
            "this model has learned vectors of the entities it was trained on, so it cannot answer about another "
            "graph; train --model conditional for that, or with a graph encoder let predict add facts by --facts"
        )
    _must_send(config, ranker)
    used = np.unique(np.concatenate([triples[:, 1] for triples in data.splits.values()])).tolist()
    ids, names = data.relations.ids, data.relations.names
    known = _known_relations({ids[r]: names[r] for r in used}, relations)
    row = np.zeros(data.num_relations, dtype=np.int64)
    row[used] = [known[ids[r]] for r in used]
    parts, seen = [], np.empty(0, dtype=np.int64)
    for s, r, o in (triples.T for triples in data.splits.values()):
        triples = np.column_stack((s, row[r], o))
        # Two relations of the graph may be one of the run: a fact stays where it stands first.
        own, first = np.unique(keys(triples, data.num_entities, len(relations)), return_index=True)
        parts.append(triples[np.sort(first[~np.isin(own, seen)])])
        seen = np.concatenate((seen, own))
    train, valid, test = parts
    asked = replace(data, relations=relations, relation_features=None, train=train, valid=valid, test=test)
    return asked, _rebuilt(config, asked, ranker)


def read_graph(given: str | Path, trained: Data, *, divide: bool = False) -> KnowledgeGraph:
    """Read another graph for a run: a data set by its name, or files with the columns of the run's own file.

    All facts of a single file are train, unless `divide` splits them as training does.
    """
    named = Data(source=str(given))
    if named.source not in DATASETS:
        alone = Path(given).is_file()
        columns = columns_like(given, trained.columns, trained.comment) if alone else trained.columns
        how = trained.model_dump(include={"comment", "split_seed", "valid_fraction", "test_fraction"})
        how["literals"] = treatment(trained.literals, trained.labels is not None)
        if not divide:
            how |= {"valid_fraction": 0.0, "test_fraction": 0.0}
        named = Data(source=str(given), columns=None if columns is None else tuple(columns), **how)
    found = find(named)
    if not isinstance(found, KnowledgeGraph):
        raise InputError(f"'{given}' is a collection of graphs; name one graph")
    return found


def _rebuilt(config: Config, data: KnowledgeGraph, ranker: Ranker) -> Ranker:
    """Return the model of a ranker on other data; rows of unseen entities are zero."""
    device = ranker.graph.src.device
    with randomness(config.training.seed, device):  # for weights that are replaced
        built = build_ranker(config, data, device)
    fresh = built.model.state_dict()
    built.model.load_state_dict({name: _padded(old, fresh[name]) for name, old in ranker.model.state_dict().items()})
    built.model.eval()
    return built


def _must_send(config: Config, ranker: Ranker) -> None:
    """Refuse a model in which facts tell nothing about an entity."""
    if not isinstance(ranker.model, ConditionalCompGCN) and not len(ranker.model.encoder.layers):
        raise InputError(
            "this model has no graph encoder: it answers by a learned vector of each entity and takes no more facts; "
            "train one that has, such as --model conditional or --encoder compgcn, or train again with the new facts"
        )
    if config.encoder.graph != "given":
        raise InputError(f"this run was trained with encoder.graph '{config.encoder.graph}', so it takes no facts")


# The rows of unseen entities


@torch.inference_mode(False)
@torch.enable_grad()
def _fold_in(config: Config, built: Ranker, known: int) -> None:
    """Train the rows of unseen entities alone, by the loss of the run, at a rate that falls to zero.

    The rows start at the mean of the `known` ones. Half of a batch is about unseen entities, yet each half counts by
    its facts in train, the others `_OTHERS` times: else unseen entities would answer queries that are not theirs.
    """
    model, settings = built.predictor, config.training
    task = LinkPrediction(model, built.graph, built.splits, settings)
    about, others = _examples(task, known)
    half = max(1, min(len(about), task.batch_size // 2))
    parts = [(part, weight * len(part)) for part, weight in ((about, 1), (others, _OTHERS)) if len(part)]
    draw = torch.Generator().manual_seed(settings.seed)
    model.requires_grad_(False)
    tables = _tables(model)
    for table in tables:
        table[known:] = table[:known].mean(0)
        table.requires_grad_(True)
    optimiser = torch.optim.Adam(tables, lr=_RATE)
    steps = max(_STEPS, _EPOCHS * -(-len(about) // half))
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        for part, weight in parts:
            drawn = part if half == len(part) else part[torch.randint(len(part), (half,), generator=draw)]
            loss = weight / task.num_examples * task.loss(drawn.to(built.graph.src.device))
            loss.backward()  # type: ignore[no-untyped-call]
        for table in tables:  # the moments of the known rows stay zero, and the rows as they are
            assert table.grad is not None
            table.grad[:known] = 0.0
        optimiser.step()
        schedule.step()
    model.requires_grad_(True)


def _examples(task: LinkPrediction, known: int) -> tuple[Tensor, Tensor]:
    """Return which examples of training are about unseen entities, and which are not, on the CPU."""
    query, answer = torch.repeat_interleave(task.train.offsets.cpu().diff()), task.train.answers.cpu()  # by triple
    new = (task.train.queries.cpu()[query, 0] >= known) | (answer >= known)
    if task.objective.by_query:
        new = torch.zeros(len(task.train), dtype=torch.bool).index_put((query[new],), torch.tensor(True))
    return new.nonzero().flatten(), (~new).nonzero().flatten()


def _tables(model: LinkPredictor) -> list[Tensor]:
    """Return the tables with a row for every entity that take part in scores."""
    residual = model.encoder.residual
    tables = (model.encoder.nodes, None if residual is None else residual.nodes, model.decoder.entity_bias)
    return [table for table in tables if table is not None]


def _padded(old: Tensor, fresh: Tensor) -> Tensor:
    """Append rows of zeros for unseen entities to a table of entities; return other tensors as they are."""
    return old if old.shape == fresh.shape else torch.cat((old, old.new_zeros(len(fresh) - len(old), *old.shape[1:])))


# The larger graph


def _triples(given: Given, trained: Data) -> list[tuple[str, str, str]]:
    """Read triples of text that a program has in memory, or from a file in the format of the training file."""
    columns = None
    if isinstance(given, (str, Path)):
        columns = columns_like(given, trained.columns, trained.comment)
    literals = treatment(trained.literals, trained.labels is not None)
    facts = source(given, Options(columns, trained.comment, literals)).facts()
    return list(zip(*(column.cast("string").to_pylist() for column in facts.columns), strict=True))


def _enlarged(data: KnowledgeGraph, triples: Sequence[tuple[str, str, str]]) -> KnowledgeGraph:
    """Add facts to train; unseen entities come after the known ones, in order of appearance."""
    relations = _known_relations({r: r for _, r, _ in triples}, data.relations)
    ids, names = data.entities.ids, set(data.entities.names)
    row = {text: i for i, text in enumerate(ids)}
    new: list[str] = []
    for text in (end for s, _, o in triples for end in (s, o)):
        if text not in row and text in names:
            row[text] = data.entities.index(text)  # or an error that lists the entities of this name
        elif text not in row:
            row[text] = len(ids) + len(new)
            new.append(text)
    added = np.array([(row[s], relations[r], row[o]) for s, r, o in triples], dtype=np.int64).reshape(-1, 3)
    every = np.concatenate((data.train, added))
    _, first = np.unique(keys(every, len(ids) + len(new), data.num_relations), return_index=True)
    return replace(
        data,
        entities=Vocabulary("entity", (*ids, *new), (*data.entities.names, *new)),
        train=every[np.union1d(np.arange(len(data.train)), first)],
        notes=_notes(data, added, new),
    )


def _known_relations(texts: Mapping[str, str], relations: Vocabulary) -> dict[str, int]:
    """Return the rows of relations, given id -> name; refuse those that training never saw."""
    found: dict[str, int] = {}
    errors: dict[str, InputError] = {}
    for text, name in texts.items():
        try:
            row = relations.find(text)
            found[text] = relations.index(name) if row is None else row
        except InputError as error:
            errors[text] = error
    if len(errors) == 1:
        raise next(iter(errors.values()))
    if errors:
        known = relations.spellings()
        listed = _quoted(list(errors), lambda text: next(iter(nearest(text, known)), None))
        raise InputError(f"unknown relations {listed}; the model knows only the relations it was trained on")
    return found


def _notes(data: KnowledgeGraph, added: Numbers, new: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence each on added facts, repeated facts and facts of train."""
    N, R = data.num_entities + len(new), data.num_relations
    distinct = np.unique(keys(added, N, R))
    known = int(np.isin(distinct, keys(data.train, N, R)).sum())
    alike = {text: _lookalike(text, data.entities) for text in new}
    new = sorted(new, key=lambda text: alike[text] is None)  # likely typos first
    listed = _quoted(new, lambda text: alike[text] or _near(text, data.entities.spellings()))
    entities = counted(len(new), "new entity") + (f": {listed}" if new else "")
    notes = [f"{counted(len(distinct) - known, 'fact')} added, {entities}"]
    if repeated := len(added) - len(distinct):
        notes.append(f"{counted(repeated, 'repeated fact')} dropped")
    if known:
        notes.append(f"{counted(known, 'fact')} dropped that train has already")
    return tuple(notes)


def _quoted(texts: Sequence[str], alike: Callable[[str], str | None]) -> str:
    """Name the first texts, each with a known one that it looks like, and count the others."""
    named = ((text, alike(text)) for text in texts[:_LISTED])
    listed = ", ".join(f"'{text}'" + (f" (did you mean '{known}'?)" if known else "") for text, known in named)
    return listed + (f" and {len(texts) - _LISTED:,} more" if len(texts) > _LISTED else "")


def _near(text: str, known: Sequence[str]) -> str | None:
    """Return the known text that this one is most likely a misspelling of: very close, with the same digits."""
    near = nearest(ending(text) or text, known, cutoff=_CLOSE)
    return next((one for one in near if re.findall(r"\d", one) == re.findall(r"\d", text)), None)


def _lookalike(text: str, entities: Vocabulary) -> str | None:
    """Return the entity whose id or name differs only in case or in blanks around it."""
    with suppress(InputError):  # several do
        if (row := entities.find(text.strip())) is not None:
            name = entities.names[row]
            return name if name.casefold() == text.strip().casefold() else entities.ids[row]
    return None
